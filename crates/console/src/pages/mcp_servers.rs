//! MCP servers that the operator offers, and the sign-in at those that people connect.

use std::sync::Arc;

use admin::{McpConnection, McpServerView, McpSignInStart, random};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::Price;
use config::GrantHolder;
use http::HeaderMap;
use maud::{Markup, html};
use store::LinkPurpose;

use crate::cookies::{self, CookieKind};
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::oidc::forward_page;
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

const PAGE_PATH: &str = "/console/mcp";
const MAX_PARAMETER_BYTES: usize = 4_096;

/// `GET /console/mcp`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let servers = state.host.admin().mcp_servers(&user.actor(), user.owner_id()).await?;
    let address = format!("{}/mcp", state.base_url());
    let body = html! {
        div.title { h1 { "MCP servers" } }
        p.muted { "Tools for your keys at " code { (address) } "." }
        @if servers.is_empty() {
            div.empty {
                h2 { "No servers" }
                p { "The operator of this gateway offers you no MCP servers." }
            }
        } @else {
            (table(&servers, &user))
        }
    };
    Ok(ok_page(&Layout::signed_in("MCP servers", &user).with_nav(PAGE_PATH), &body))
}

fn table(servers: &[McpServerView], user: &SignedInUser) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Server" }
                    th scope="col" { "State" }
                    th scope="col" { "Connected for" }
                    th.num scope="col" { "Price of a call" }
                    th scope="col" { span.unseen { "Actions" } }
                } }
                tbody {
                    @for server in servers { (line(server, user)) }
                }
            }
        }
    }
}

fn line(server: &McpServerView, user: &SignedInUser) -> Markup {
    let McpServerView { name, holder, connection, connected_at, may_connect, price } = server;
    let path =
        |action: &str| user.path_for(&format!("{PAGE_PATH}/{}/{action}", urls::escape_value(name)));
    html! {
        tr {
            td data-label="Server" { bdi { (name) } }
            td data-label="State" {
                (state_word(*connection))
                @if let Some(at) = connected_at { " " span.muted.small { "since " (user.zone.timestamp(*at)) } }
            }
            td data-label="Connected for" { (holder_word(*holder, user)) }
            td.num data-label="Price of a call" {
                @if *price == Price::FREE { span.muted { "free" } } @else { "$" (price.to_per_unit()) }
            }
            td {
                @if *may_connect {
                    div.actions {
                        @match connection {
                            McpConnection::NotNeeded => {}
                            McpConnection::NotConnected => (button(&path("connect"), "Connect")),
                            McpConnection::SignInEnded => {
                                (button(&path("connect"), "Sign in again"))
                                (quiet_button(&path("disconnect"), "Disconnect"))
                            }
                            McpConnection::Connected => (quiet_button(&path("disconnect"), "Disconnect")),
                        }
                    }
                }
            }
        }
    }
}

fn button(path: &str, text: &str) -> Markup {
    html! { form method="post" action=(path) { button type="submit" { (text) } } }
}

fn quiet_button(path: &str, text: &str) -> Markup {
    html! { form method="post" action=(path) { button.quiet type="submit" { (text) } } }
}

const fn state_word(connection: McpConnection) -> &'static str {
    match connection {
        McpConnection::NotNeeded => "Ready",
        McpConnection::Connected => "Connected",
        McpConnection::NotConnected => "Not connected",
        McpConnection::SignInEnded => "Needs signing in again",
    }
}

fn holder_word(holder: Option<GrantHolder>, user: &SignedInUser) -> &str {
    match (holder, &user.team) {
        (None | Some(GrantHolder::Gateway), _) => "Everybody",
        (Some(GrantHolder::Team), Some(team)) => &team.name,
        (Some(GrantHolder::Team), None) | (Some(GrantHolder::Person), _) => "You",
    }
}

/// `POST /console/mcp/{server}/connect`: sends the browser to the authorization server.
pub(crate) async fn connect(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let actor = user.actor();
    let begun = state.host.admin().begin_mcp_sign_in(&actor, user.owner_id(), &name).await?;
    let McpSignInStart { url, state: word, pending } = begun;
    let cookie = random::random_token().map_err(|_| PageError::Internal)?;
    let next = user.path_for(PAGE_PATH);
    let note = LinkData { mcp: Some(Box::new(pending)), next: Some(next), ..LinkData::default() };
    let (hash, life) = (flow_hash(&word, &cookie), LINK_LIFETIMES.sign_in_step);
    links::add(&state, hash, LinkPurpose::Return, Some(&user.account.id), &note, life).await?;
    let mut response = forward_page(&name, &url);
    cookies::set(&state, &mut response, CookieKind::IdentityFlow, &cookie, life.as_secs());
    Ok(response)
}

/// Digest under which a sign-in is stored. It covers the cookie and the state, so neither works alone.
fn flow_hash(word: &str, cookie: &str) -> Vec<u8> {
    random::digest(&format!("mcp.{cookie}.{word}"))
}

/// `GET /console/mcp/callback`: finishes the sign-in of the person who began it in this browser.
pub(crate) async fn callback(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    headers: HeaderMap,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    const STALE: PageError = PageError::BadRequest(
        "This sign-in began elsewhere, or too long ago. Go to “MCP servers” and begin again.",
    );
    let refused = |why: &str| PageError::Rejected(why.to_owned());
    let word = query.get_single("state", MAX_PARAMETER_BYTES)?;
    let cookie = cookies::read(&state, &headers, CookieKind::IdentityFlow).ok_or(STALE)?;
    let link = state.store.take_link(&flow_hash(word, &cookie), LinkPurpose::Return).await?;
    let is_own = |id: &Option<String>| id.as_ref() == Some(&user.account.id);
    let link = link.filter(|link| links::is_valid(&state, link) && is_own(&link.account_id));
    let note = links::link_data(&link.ok_or(STALE)?);
    let pending = note.mcp.ok_or(STALE)?;
    if !pending.accepts_issuer(query.get_single("iss", MAX_PARAMETER_BYTES)?) {
        return Err(refused("The answer comes from another authorization server."));
    }
    let code = query.get_single("code", MAX_PARAMETER_BYTES)?;
    if code.is_empty() {
        return Err(refused("The server was not connected: its sign-in page did not permit it."));
    }
    state.host.admin().finish_mcp_sign_in(&user.actor(), *pending, code).await?;
    let mut response = redirect_to(note.next.as_deref().unwrap_or(PAGE_PATH));
    cookies::clear(&state, &mut response, CookieKind::IdentityFlow);
    Ok(response)
}

/// `POST /console/mcp/{server}/disconnect`
pub(crate) async fn disconnect(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let owner = user.owner_id();
    state.host.admin().disconnect_mcp_server(&user.actor(), owner, &name).await?;
    Ok(redirect_to(&user.path_for(PAGE_PATH)))
}

//! Handlers of the sign-in through an identity provider.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;

use super::login::client_network;
use crate::cookies::{self, CookieKind};
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, page};
use crate::links;
use crate::oidc::{self, IdentityReturn};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session;
use crate::state::ConsoleState;
use crate::{signin, urls};
use admin::{AdminError, IdentityClaims, IdentitySignUp};

/// `POST /auth/{identity}`
pub(crate) async fn begin(
    State(state): State<Arc<ConsoleState>>,
    name: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let next = urls::console_path(fields.get("next")).unwrap_or("/console");
    oidc::begin_sign_in(&state, &name, None, next).await
}

/// `GET /auth/{identity}/callback`
pub(crate) async fn callback(
    State(state): State<Arc<ConsoleState>>,
    name: Result<Path<String>, PathRejection>,
    extensions: Extensions,
    headers: HeaderMap,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let finished = finish(&state, &name, &headers, &query).await;
    if let Err(PageError::SignInRefused(_)) = finished {
        signin::record_refusal(&state, client_network(&extensions), None, "identity").await?;
    }
    finished
}

async fn finish(
    state: &ConsoleState,
    name: &str,
    headers: &HeaderMap,
    query: &FormFields,
) -> Result<Response, PageError> {
    let IdentityReturn { provider, claims: person, link } =
        oidc::finish_sign_in(state, name, headers, query).await?;
    let next = links::link_data(&link).next.unwrap_or_else(|| "/console".to_owned());
    if let Some(account_id) = &link.account_id {
        return link_identity(state, headers, account_id, &person, &next).await;
    }
    let known = state.store.account_by_identity(&person.issuer, &person.subject).await?;
    let known = match known {
        Some(account) => {
            state.host.accounts().note_object_id(&account, &person).await?;
            Some(account)
        }
        None => state.host.accounts().claim_provisioned(&provider, &person).await?,
    };
    if let Some(account) = known {
        if account.disabled {
            return Err(PageError::SignInRefused("This account is locked."));
        }
        let account = state.host.accounts().apply_groups(&provider, &person, account).await?;
        return signin::complete_sign_in(state, headers, &account, &provider.name, &next).await;
    }
    let account = match state.host.accounts().sign_up_with_identity(&provider, &person).await? {
        IdentitySignUp::Created(account) => account,
        IdentitySignUp::AddressTaken => return Ok(address_taken_page(&provider.name)),
        IdentitySignUp::NotInvited => {
            return Err(PageError::SignInRefused(
                "You have no account here yet. Ask an administrator of this gateway for an \
                 invitation.",
            ));
        }
        IdentitySignUp::AddressNotVerified => {
            return Err(PageError::SignInRefused(
                "The identity provider has not verified your e-mail address. Verify it there \
                 first.",
            ));
        }
    };
    let account = state.host.accounts().apply_groups(&provider, &person, account).await?;
    signin::complete_sign_in(state, headers, &account, &provider.name, &next).await
}

/// Links an identity to an account. The user who started the flow must still be signed in.
async fn link_identity(
    state: &ConsoleState,
    headers: &HeaderMap,
    account_id: &str,
    person: &IdentityClaims,
    next: &str,
) -> Result<Response, PageError> {
    let user = session::find_session(state, headers).await?;
    let Some(user) = user.filter(|user| user.account.id == account_id) else {
        return Err(PageError::SignInRefused(
            "You were signed out meanwhile. Sign in and try again.",
        ));
    };
    match state.host.accounts().add_identity(&user.actor(), person).await {
        Ok(()) => {}
        Err(AdminError::Forbidden(_)) => {
            return Err(PageError::SignInRefused("This identity belongs to another account here."));
        }
        Err(error) => return Err(error.into()),
    }
    let mut response = redirect_to(next);
    cookies::clear(state, &mut response, CookieKind::IdentityFlow);
    Ok(response)
}

fn address_taken_page(provider: &str) -> Response {
    let body = html! {
        section.card {
            h1 { "This address has an account already" }
            p { "There is an account with your e-mail address here, made in another way. To sign "
                "in to it with " (provider) ", sign in the way you did before and link "
                (provider) " under “Your account”." }
            p.actions {
                a.button href="/login?next=%2Fconsole%2Faccount" { "Sign in" }
                a.button.quiet href="/reset" { "Reset Password" }
            }
        }
    };
    page(StatusCode::CONFLICT, &Layout::signed_out("This address has an account already"), &body)
}

//! The playground: calls to any model in any format, up to four models side by side.
//!
//! Calls are ordinary calls paid by a key the user chooses. The page sends them here, and they are
//! forwarded as if that key had sent them. All limits of the key apply, and the page never holds a
//! key.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::response::Response;
use catalog::{Model, ModelKind};
use http::{HeaderMap, Uri, header};
use maud::{Markup, html};
use store::{KeyOwner, KeyRecord, KeyScope, KeyStanding};

use crate::assets;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

/// Route of a call.
pub(crate) const CALL_PATH: &str = "/console/playground/call/{*path}";
/// Header with the public id of the paying key.
const KEY_HEADER: &str = "x-playground-key";
/// API paths the page may call.
const ALLOWED_PATHS: [&str; 7] = [
    "v1/chat/completions",
    "v1/responses",
    "v1/messages",
    "v1/images/generations",
    "v1/embeddings",
    "v1beta/models/",
    "v1/usage/",
];

struct ModelChoice {
    id: String,
    kind: ModelKind,
    /// The record of the model as JSON. The script shows the controls that the model has.
    capabilities: String,
}

/// `GET /console/playground`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    if !user.may_create_keys() {
        return Err(PageError::Forbidden);
    }
    let now = state.now();
    let owner = match &user.team {
        Some(team) => KeyOwner::Team(team.clone()),
        None => KeyOwner::Person(user.account.clone()),
    };
    let mut keys = state.store.keys_of(owner.id()).await?;
    let usable = |key: &KeyRecord| KeyStanding::of(key, now).works() && key.scope == KeyScope::Call;
    keys.retain(|key| usable(key) && user.may_change_key(key, &owner));
    let models: Vec<ModelChoice> = state.with_catalog(|catalog| {
        let choice = |model: &Arc<Model>| ModelChoice {
            id: model.id.clone(),
            kind: model.kind,
            capabilities: serde_json::to_string(&model.capabilities).unwrap_or_default(),
        };
        catalog.iter().map(choice).collect()
    });
    let wanted = query.get("model");
    let body = html! {
        div.title { h1 { "Playground" } }
        @if keys.is_empty() {
            div.empty {
                h2 { "A key pays for what you try here" }
                p { "You have none that works. " a href=(user.path_for("/console/keys/new")) { "Make one" } ", with a small cap if you like." }
            }
        } @else if models.is_empty() {
            div.empty { h2 { "No models yet" } p { "Models appear here once a provider is configured." } }
        } @else {
            noscript { p.objection { "The playground needs a script, which your browser does not run." } }
            link rel="stylesheet" href=(assets::playground_style().path());
            (page(&state, &user, &keys, &models, wanted))
            (dialogs())
            @for module in assets::playground() { link rel="modulepreload" href=(module.path()); }
            @if let Some(module) = assets::playground().last() {
                script type="module" src=(module.path()) {}
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Playground", &user).with_nav("/console/playground"), &body))
}

fn page(
    state: &ConsoleState,
    user: &SignedInUser,
    keys: &[KeyRecord],
    models: &[ModelChoice],
    wanted: &str,
) -> Markup {
    html! {
        form.playground #play data-url=(state.base_url()) data-account=(user.account.id)
            data-zone=(user.zone.name()) autocomplete="off" {
            div.settings {
                (presets())
                (settings(state, keys))
            }
            div.stage {
                div.toolbar {
                    button.copy name="new" type="button" { "New conversation" }
                    button.copy name="show-kept" type="button" { "Conversations" }
                    button.copy name="show-share" type="button" { "Share" }
                    button.copy name="add-model" type="button" { "Add a model" }
                    label.tick { input #raw type="checkbox"; span { "Raw text" } }
                    p.cost.num #cost role="status" hidden {}
                }
                p.notice #notice role="status" hidden {}
                p.notice #keeping role="status" hidden {}
                div.talks { (column(models, wanted)) }
                p.objection #problem role="alert" hidden {}
                div.composer {
                    label.unseen for="text" { "Message" }
                    textarea id="text" name="text" rows="3" placeholder="Ask something" autofocus {}
                    p.muted.small #files role="status" hidden {}
                    div.actions {
                        button.button name="send" type="submit" { "Send" }
                        button.button.harm name="stop" type="button" hidden { "Stop" }
                        input.unseen id="image" name="image" type="file" aria-label="Files" accept="image/*" multiple;
                        label.button.quiet for="image" { "Attach a file" }
                        button.button.quiet name="show-code" type="button" { "Show as code" }
                    }
                }
            }
        }
    }
}

fn dialogs() -> Markup {
    html! {
        dialog #as-code aria-label="The same as code" {
            div.strip {
                select name="language" form="play" aria-label="Language" {
                    option value="curl" { "curl" }
                    option value="python" { "Python" }
                    option value="node" { "Node" }
                }
                button.copy type="button" hidden data-copy="code-text" { "Copy" }
                button.copy #close-code type="button" { "Close" }
            }
            pre tabindex="0" { code #code-text {} }
        }
        dialog.sheet-dialog #kept aria-labelledby="kept-title" {
            h2 #kept-title { "Conversations" }
            p.help { "Kept in this browser for your account. They are not stored on the gateway." }
            p.objection #kept-problem role="alert" hidden {}
            ul #kept-list {}
            label.tick {
                input #delete-at-sign-out type="checkbox";
                span { "Delete conversations and presets when I sign out of this browser" }
            }
            div.actions #kept-actions { button.copy #close-kept type="button" { "Close" } }
        }
        dialog.sheet-dialog #share aria-labelledby="share-title" {
            h2 #share-title { "Share" }
            p.help {
                "The link contains the conversation and its settings, so everyone who has it can read them. People with an account here open a copy. "
                "It has texts only: pictures, files, thinking and prices are left out."
            }
            label.tick { input #share-messages type="checkbox" checked; span { "With the messages" } }
            p.objection #share-problem role="alert" hidden {}
            pre tabindex="0" { code #share-link {} }
            div.actions {
                button.button #copy-link type="button" { "Copy the link" }
                button.button.quiet #close-share type="button" { "Close" }
            }
        }
    }
}

fn presets() -> Markup {
    html! {
        details {
            summary { "Presets" }
            div.presets {
                div.field {
                    label for="preset" { "Saved settings" }
                    select id="preset" name="preset" {}
                }
                div.inline-copy {
                    button.copy name="load-preset" type="button" { "Load" }
                    button.copy name="delete-preset" type="button" { "Delete" }
                }
                div.field {
                    label for="preset-name" { "Name of a preset" }
                    input id="preset-name" name="preset-name" maxlength="80";
                }
                div.inline-copy {
                    button.copy name="save-preset" type="button" { "Save the settings" }
                }
                p.help #preset-status role="status" hidden {}
            }
        }
    }
}

fn settings(state: &ConsoleState, keys: &[KeyRecord]) -> Markup {
    let formats = state.formats();
    let talking = formats.iter().filter(|format| format.supports(ModelKind::Chat));
    html! {
        div.field {
            label for="format" { "Format" }
            select id="format" name="format" {
                @for format in talking { option value=(format.as_str()) { (format.title()) } }
            }
        }
        div.field {
            label for="key" { "Paid by" }
            select id="key" name="key" {
                @for key in keys { option value=(key.id) { (key.name) } }
            }
        }
        div.field {
            label for="system" { "System" span.optional { " optional" } }
            textarea id="system" name="system" rows="3" {}
        }
        div.pair {
            div.field {
                label for="limit" { "Max tokens" }
                input id="limit" name="limit" type="number" min="1" step="1" value="1024";
            }
            div.field {
                label for="temperature" { "Temperature" }
                input id="temperature" name="temperature" type="number" min="0" max="2" step="0.1";
            }
        }
        div.field {
            label for="effort" { "Thinking" }
            select id="effort" name="effort" {
                option value="" { "Model default" }
                @for word in ["minimal", "low", "medium", "high"] { option value=(word) { (word) } }
            }
        }
        @for (name, label) in [
            ("size", "Image size"),
            ("ratio", "Aspect ratio"),
            ("quality", "Quality"),
            ("file-format", "File format"),
        ] {
            div.field hidden {
                label for=(name) { (label) }
                select id=(name) name=(name) { option value="" { "Model default" } }
            }
        }
        details {
            summary { "Tools" }
            div.field {
                label for="tools" { "Functions, as a JSON list" }
                textarea id="tools" name="tools" rows="8" spellcheck="false" aria-describedby="tools-problem" {}
                p.objection #tools-problem hidden {}
                button.copy name="example-tool" type="button" { "Put in an example" }
            }
        }
        details {
            summary { "Structured output" }
            div.field {
                label for="schema" { "JSON schema of the answer" }
                textarea id="schema" name="schema" rows="8" spellcheck="false" aria-describedby="schema-problem" {}
                p.objection #schema-problem hidden {}
                label.tick {
                    input type="checkbox" name="strict" checked;
                    span {
                        "Strict"
                        span.help { "For the formats that have the choice: chat and responses." }
                    }
                }
                button.copy name="example-schema" type="button" { "Put in an example" }
            }
        }
        label.tick { input type="checkbox" name="stream" checked; span { "Stream the answer" } }
    }
}

/// The first column. The script makes further ones from it.
fn column(models: &[ModelChoice], wanted: &str) -> Markup {
    html! {
        section.column {
            h2.unseen { "Conversation with model" }
            div.picker {
                div.field {
                    label for="model-1" { "Model" }
                    select id="model-1" {
                        @for ModelChoice { id, kind, capabilities } in models {
                            option value=(id) data-kind=(kind.as_str()) data-capabilities=(capabilities)
                                selected[id == wanted] { (id) }
                        }
                    }
                }
                button.copy.remove type="button" hidden { "Remove" }
            }
            div.talk tabindex="0" role="log" aria-label="Model: conversation" {}
        }
    }
}

/// `GET` and `POST /console/playground/call/{*path}`
pub(crate) async fn call(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    Path(path): Path<String>,
    mut request: Request,
) -> Result<Response, PageError> {
    if !user.may_create_keys() {
        return Err(PageError::Forbidden);
    }
    if !ALLOWED_PATHS.iter().any(|start| path.starts_with(start)) {
        return Err(PageError::NotFound);
    }
    let key =
        request.headers().get(KEY_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let key = key.ok_or(PageError::BadRequest("The call does not say which key pays for it."))?;
    let key = state.store.key(&key).await?.ok_or(PageError::NotFound)?;
    if !may_spend(&state, &user, &key).await? {
        return Err(PageError::NotFound);
    }
    // A request without a socket gets an address that is on no allowlist.
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let peer = peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    *request.uri_mut() = api_uri(request.uri()).ok_or(PageError::NotFound)?;
    strip_credentials(request.headers_mut());
    Ok(Arc::clone(&state.host).call_api(key.id, peer, request).await)
}

/// Returns true if the user may spend with a key: their own, or a team key they may change. The
/// administrator role alone gives no right to spend another person's money.
async fn may_spend(
    state: &ConsoleState,
    user: &SignedInUser,
    key: &KeyRecord,
) -> Result<bool, PageError> {
    Ok(match state.store.owner(&key.account_id).await? {
        Some(KeyOwner::Person(account)) => account.id == user.account.id,
        Some(owner @ KeyOwner::Team(_)) => user.may_change_key(key, &owner),
        None => false,
    })
}

/// URI of the API call behind the prefix.
fn api_uri(uri: &Uri) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    path.strip_prefix("/console/playground/call")?.parse().ok()
}

/// Removes the session cookie and every header that carries a key.
fn strip_credentials(headers: &mut HeaderMap) {
    for name in [KEY_HEADER, "x-api-key", "x-goog-api-key", "x-vendor-api-key", "x-portunus-token"]
    {
        headers.remove(name);
    }
    headers.remove(header::COOKIE);
    headers.remove(header::AUTHORIZATION);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_forwarded_to_the_path_after_the_prefix() {
        let uri: Uri = "/console/playground/call/v1beta/models/a%2Fb:x?alt=sse".parse().unwrap();
        assert_eq!(api_uri(&uri).unwrap(), "/v1beta/models/a%2Fb:x?alt=sse");
        assert_eq!(api_uri(&"/console/keys".parse().unwrap()), None);
    }
}

//! Settings: sign-up, name of the gateway, vault key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{ETAG_FIELD, etag_field, select, text_or_null};
use crate::admin_client::{AdminClient, ApiReply, count, text, texts};
use crate::display;
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;

const PAGE_PATH: &str = "/console/settings";
/// Fields of the form, named as in the API.
const FORM_FIELDS: [&str; 4] = ["signup", "signup_role", "signup_cap_usd", "name"];

/// `GET /console/settings`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let notice = match query.get("told") {
        "saved" => Some("Saved."),
        "rekeyed" => Some("Everything in the vault is sealed with the newest key now."),
        _ => None,
    };
    let client = AdminClient::new(&state, &user);
    let now = client.get("/settings").await?;
    let fields = FORM_FIELDS.map(|name| (name, text(&now.value, name).to_owned()));
    let form = SettingsForm {
        current: now,
        fields: FormFields::prefilled(fields.to_vec()),
        errors: FieldErrors::default(),
        notice,
    };
    form.page(&state, &user, &client, StatusCode::OK).await
}

/// `POST /console/settings`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let body: Value =
        FORM_FIELDS.map(|name| (name, text_or_null(&fields, name))).into_iter().collect();
    match client.change(Method::PATCH, "/settings", fields.get(ETAG_FIELD), &body).await? {
        Ok(_) => Ok(redirect_to("/console/settings?told=saved")),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Err(PageError::Forbidden),
        Err(refusal) => {
            let now = client.get("/settings").await?;
            let form = SettingsForm {
                current: now,
                fields,
                errors: refusal.field_errors(&FORM_FIELDS),
                notice: None,
            };
            form.page(&state, &user, &client, refusal.status).await
        }
    }
}

/// `POST /console/settings/rekey`
pub(crate) async fn rekey(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let done = client.change(Method::POST, "/vault/rekey", "", &json!({})).await?;
    done.map(|_| redirect_to("/console/settings?told=rekeyed"))
        .map_err(|refusal| refusal.into_page_error())
}

/// `GET` on a path that only accepts forms, for browsers that reload the page.
pub(crate) async fn redirect_back(_: SignedInUser) -> Response {
    see_other(PAGE_PATH)
}

struct SettingsForm {
    current: ApiReply,
    fields: FormFields,
    errors: FieldErrors,
    notice: Option<&'static str>,
}

impl SettingsForm {
    async fn page(
        &self,
        state: &ConsoleState,
        user: &SignedInUser,
        client: &AdminClient,
        status: StatusCode,
    ) -> Result<Response, PageError> {
        let Self { current, fields, errors, notice } = self;
        let vault = client.find("/vault").await?;
        let mode = SignUpMode::parse(fields.get("signup")).unwrap_or(SignUpMode::Invited);
        let body = html! {
            div.title { h1 { "Settings" } }
            @if let Some(notice) = notice { p.told role="status" { (notice) } }
            (error_summary(errors))
            form method="post" action=(PAGE_PATH) {
                (etag_field(current))
                div.columns {
                    section.card { (sign_up_fields(mode, state.host.can_mail(), fields, errors)) }
                    section.card {
                        h2 { "Name" }
                        (FormInput {
                            name: "name",
                            label: "Name of this gateway",
                            value: fields.get("name"),
                            help: Some("At the top of every page, and below every mail. \
                                Portunus, unless you choose."),
                            ..FormInput::default()
                        }.render(errors))
                    }
                }
                div.actions { button.button type="submit" { "Save" } }
            }
            @if let Some(vault) = &vault { section { (vault_section(&vault.value)) } }
        };
        let layout = Layout::signed_in("Settings", &user.account).with_nav(PAGE_PATH);
        Ok(page(status, &layout, &body))
    }
}

fn sign_up_fields(
    mode: SignUpMode,
    can_mail: bool,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    html! {
        h2 { "Who may sign up" }
        @if mode == SignUpMode::Open && !can_mail {
            p.objection { "Sign-up is open, but without mail nobody can prove an address. Set "
                code { "[mail]" } " in the configuration." }
        }
        fieldset.plain {
            legend.unseen { "Who may sign up" }
            @for choice in SignUpMode::ALL {
                label.tick {
                    input type="radio" name="signup" value=(choice.as_str()) checked[choice == mode];
                    span { (choice.description()) }
                }
            }
        }
        @if let Some(why) = errors.get("signup") { p.objection { (why) } }
        (select(
            ("signup_role", "Role of accounts that sign up without an invitation"),
            fields.get("signup_role"),
            &[("member", "Member: own keys and usage"), ("viewer", "Viewer: looks, does not touch")],
            errors,
        ))
        (FormInput {
            name: "signup_cap_usd",
            label: "What they may spend, in USD",
            value: fields.get("signup_cap_usd"),
            input_mode: Some("decimal"),
            help: Some("All keys of such an account together; nothing is no cap. Accounts that are \
                there already stay as they are."),
            ..FormInput::default()
        }.render(errors))
    }
}

/// Vault keys, and the number of secrets sealed with each.
fn vault_section(vault: &Value) -> Markup {
    let current = text(vault, "current");
    let none = Value::Null;
    let counts = vault.get("sealed").unwrap_or(&none);
    let of = |key: &str| count(counts, key).unwrap_or_default();
    let old: u64 = texts(vault, "keys").into_iter().filter(|key| *key != current).map(of).sum();
    html! {
        h2 { "Vault" }
        p.muted { "Credentials of providers are stored sealed. After you added a newer key to the "
            "configuration, re-seal all secrets, then remove the old key." }
        @if let Some(why) = vault.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        dl.facts {
            @for key in texts(vault, "keys") {
                div {
                    dt { code { (key) } @if key == current { " · in use" } }
                    dd { (display::count(of(key))) " sealed with it" }
                }
            }
        }
        form method="post" action={ (PAGE_PATH) "/rekey" } {
            div.actions {
                button.button.quiet type="submit" disabled[old == 0] { "Re-seal everything" }
            }
            @if old == 0 { p.help { "Everything is sealed with the key in use." } }
        }
    }
}

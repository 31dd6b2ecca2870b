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
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    QueryFields(asked): QueryFields,
) -> Result<Response, PageError> {
    let told = match asked.get("told") {
        "saved" => Some("Saved."),
        "rekeyed" => Some("Everything in the vault is sealed with the newest key now."),
        _ => None,
    };
    let clerk = AdminClient::new(&desk, &signed);
    let now = clerk.get("/settings").await?;
    let fields = FORM_FIELDS.map(|name| (name, text(&now.value, name).to_owned()));
    let form = SettingsForm {
        current: now,
        fields: FormFields::prefilled(fields.to_vec()),
        wrongs: FieldErrors::default(),
        notice: told,
    };
    form.page(&desk, &signed, &clerk, StatusCode::OK).await
}

/// `POST /console/settings`
pub(crate) async fn change(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let clerk = AdminClient::new(&desk, &signed);
    let body: Value =
        FORM_FIELDS.map(|name| (name, text_or_null(&fields, name))).into_iter().collect();
    match clerk.change(Method::PATCH, "/settings", fields.get(ETAG_FIELD), &body).await? {
        Ok(_) => Ok(redirect_to("/console/settings?told=saved")),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Err(PageError::Forbidden),
        Err(refusal) => {
            let now = clerk.get("/settings").await?;
            let form = SettingsForm {
                current: now,
                fields,
                wrongs: refusal.field_errors(&FORM_FIELDS),
                notice: None,
            };
            form.page(&desk, &signed, &clerk, refusal.status).await
        }
    }
}

/// `POST /console/settings/rekey`
pub(crate) async fn rekey(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
) -> Result<Response, PageError> {
    let clerk = AdminClient::new(&desk, &signed);
    let done = clerk.change(Method::POST, "/vault/rekey", "", &json!({})).await?;
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
    wrongs: FieldErrors,
    notice: Option<&'static str>,
}

impl SettingsForm {
    async fn page(
        &self,
        desk: &ConsoleState,
        signed: &SignedInUser,
        clerk: &AdminClient,
        status: StatusCode,
    ) -> Result<Response, PageError> {
        let Self { current: now, fields, wrongs, notice: told } = self;
        let vault = clerk.find("/vault").await?;
        let mode = SignUpMode::parse(fields.get("signup")).unwrap_or(SignUpMode::Invited);
        let body = html! {
            div.title { h1 { "Settings" } }
            @if let Some(told) = told { p.told role="status" { (told) } }
            (error_summary(wrongs))
            form method="post" action=(PAGE_PATH) {
                (etag_field(now))
                div.columns {
                    section.card { (sign_up_fields(mode, desk.host.can_mail(), fields, wrongs)) }
                    section.card {
                        h2 { "Name" }
                        (FormInput {
                            name: "name",
                            label: "Name of this gateway",
                            value: fields.get("name"),
                            help: Some("At the top of every page, and below every mail. \
                                Portunus, unless you choose."),
                            ..FormInput::default()
                        }.render(wrongs))
                    }
                }
                div.actions { button.button type="submit" { "Save" } }
            }
            @if let Some(vault) = &vault { section { (vault_section(&vault.value)) } }
        };
        let shell = Layout::signed_in("Settings", &signed.account).with_nav(PAGE_PATH);
        Ok(page(status, &shell, &body))
    }
}

fn sign_up_fields(
    mode: SignUpMode,
    can_mail: bool,
    fields: &FormFields,
    wrongs: &FieldErrors,
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
        @if let Some(why) = wrongs.get("signup") { p.objection { (why) } }
        (select(
            ("signup_role", "Role of accounts that sign up without an invitation"),
            fields.get("signup_role"),
            &[("member", "Member: own keys and usage"), ("viewer", "Viewer: looks, does not touch")],
            wrongs,
        ))
        (FormInput {
            name: "signup_cap_usd",
            label: "What they may spend, in USD",
            value: fields.get("signup_cap_usd"),
            input_mode: Some("decimal"),
            help: Some("All keys of such an account together; nothing is no cap. Accounts that are \
                there already stay as they are."),
            ..FormInput::default()
        }.render(wrongs))
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

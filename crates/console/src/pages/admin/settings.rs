//! Settings: who may sign up and as what, what this gateway is called, and the key of its vault.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{TAG, select, tag_field, text_or_null};
use crate::clerk::{Clerk, Told, count, text, texts};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, see_other, sent_to};
use crate::show;
use crate::signup::SignUp;
use crate::trouble::Trouble;

const HERE: &str = "/console/settings";
/// The fields of the form, which are those of the API.
const FIELDS: [&str; 4] = ["signup", "signup_role", "signup_cap_usd", "name"];

/// `GET /console/settings`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let told = match asked.get("told") {
        "saved" => Some("Saved."),
        "rekeyed" => Some("Everything in the vault is sealed with the newest key now."),
        _ => None,
    };
    let clerk = Clerk::of(&desk, &signed);
    let now = clerk.get("/settings").await?;
    let fields = FIELDS.map(|name| (name, text(&now.value, name).to_owned()));
    let form = Form { now, fields: Fields::of(fields.to_vec()), wrongs: Wrongs::default(), told };
    form.page(&desk, &signed, &clerk, StatusCode::OK).await
}

/// `POST /console/settings`
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let body: Value = FIELDS.map(|name| (name, text_or_null(&fields, name))).into_iter().collect();
    match clerk.change(Method::PATCH, "/settings", fields.get(TAG), &body).await? {
        Ok(_) => Ok(sent_to("/console/settings?told=saved")),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Err(Trouble::Forbidden),
        Err(refusal) => {
            let now = clerk.get("/settings").await?;
            let form = Form { now, fields, wrongs: refusal.beside(&FIELDS), told: None };
            form.page(&desk, &signed, &clerk, refusal.status).await
        }
    }
}

/// `POST /console/settings/rekey`
pub(crate) async fn rekey(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let done = clerk.change(Method::POST, "/vault/rekey", "", &json!({})).await?;
    done.map(|_| sent_to("/console/settings?told=rekeyed")).map_err(|refusal| refusal.alone())
}

/// `GET` on an address that only takes forms: where a browser lands that reloads one.
pub(crate) async fn back(_: Signed) -> Response {
    see_other(HERE)
}

struct Form {
    now: Told,
    fields: Fields,
    wrongs: Wrongs,
    told: Option<&'static str>,
}

impl Form {
    async fn page(
        &self,
        desk: &Desk,
        signed: &Signed,
        clerk: &Clerk,
        status: StatusCode,
    ) -> Result<Response, Trouble> {
        let Self { now, fields, wrongs, told } = self;
        let vault = clerk.maybe("/vault").await?;
        let mode = SignUp::by_word(fields.get("signup")).unwrap_or(SignUp::Invited);
        let body = html! {
            div.title { h1 { "Settings" } }
            @if let Some(told) = told { p.told role="status" { (told) } }
            (another_look(wrongs))
            form method="post" action=(HERE) {
                (tag_field(now))
                div.columns {
                    section.card { (signing_up(mode, desk.host.can_mail(), fields, wrongs)) }
                    section.card {
                        h2 { "Name" }
                        (Input {
                            name: "name",
                            label: "What this gateway is called",
                            value: fields.get("name"),
                            help: Some("At the top of every page, and below every mail. \
                                Portunus, unless you choose."),
                            ..Input::default()
                        }.show(wrongs))
                    }
                }
                div.actions { button.button type="submit" { "Save" } }
            }
            @if let Some(vault) = &vault { section { (sealed(&vault.value)) } }
        };
        let shell = Shell::signed("Settings", &signed.account).at(HERE);
        Ok(page(status, &shell, &body))
    }
}

fn signing_up(mode: SignUp, can_mail: bool, fields: &Fields, wrongs: &Wrongs) -> Markup {
    html! {
        h2 { "Who may sign up" }
        @if mode == SignUp::Open && !can_mail {
            p.objection { "Sign-up is open, but without mail nobody can prove an address. Set "
                code { "[mail]" } " in the configuration." }
        }
        fieldset.plain {
            legend.unseen { "Who may sign up" }
            @for choice in SignUp::ALL {
                label.tick {
                    input type="radio" name="signup" value=(choice.word()) checked[choice == mode];
                    span { (choice.about()) }
                }
            }
        }
        @if let Some(why) = wrongs.of("signup") { p.objection { (why) } }
        (select(
            ("signup_role", "Role of whoever signs up by themselves"),
            fields.get("signup_role"),
            &[("member", "Member: own keys and usage"), ("viewer", "Viewer: looks, does not touch")],
            wrongs,
        ))
        (Input {
            name: "signup_cap_usd",
            label: "What they may spend, in USD",
            value: fields.get("signup_cap_usd"),
            mode: Some("decimal"),
            help: Some("All keys of such an account together; nothing is no cap. Accounts that are \
                there already stay as they are."),
            ..Input::default()
        }.show(wrongs))
    }
}

/// The vault: which keys there are, and what is sealed with which.
fn sealed(vault: &Value) -> Markup {
    let current = text(vault, "current");
    let none = Value::Null;
    let counts = vault.get("sealed").unwrap_or(&none);
    let of = |key: &str| count(counts, key).unwrap_or_default();
    let old: u64 = texts(vault, "keys").into_iter().filter(|key| *key != current).map(of).sum();
    html! {
        h2 { "Vault" }
        p.muted { "Credentials of providers are stored sealed. After you added a newer key to the "
            "configuration, seal what is there anew, then take the old key away." }
        @if let Some(why) = vault.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        dl.facts {
            @for key in texts(vault, "keys") {
                div {
                    dt { code { (key) } @if key == current { " · in use" } }
                    dd { (show::count(of(key))) " sealed with it" }
                }
            }
        }
        form method="post" action={ (HERE) "/rekey" } {
            div.actions {
                button.button.quiet type="submit" disabled[old == 0] { "Seal everything anew" }
            }
            @if old == 0 { p.help { "Everything is sealed with the key in use." } }
        }
    }
}

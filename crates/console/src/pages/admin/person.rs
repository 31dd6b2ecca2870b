//! One account, as an administrator sees it: its role, what it may spend, the ways into it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};
use store::AccountRole;

use super::{TAG, select, tag_field, text_or_null};
use crate::clerk::{Clerk, Refusal, Told, text};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::pages::copyable;
use crate::pages::people::about;
use crate::session::Signed;
use crate::shell::{Shell, good, page, sent_to};
use crate::trouble::Trouble;
use crate::{address, show};
use admin::may_give;

const PEOPLE: &str = "/console/people";
/// The fields of the terms, which are those of the API.
const TERMS: [&str; 6] =
    ["cap_usd", "budget.most_usd", "budget.per", "limits.rpm", "limits.tpm", "limits.concurrency"];

type Id = Result<Path<String>, PathRejection>;

/// Who is asked about, and by whom.
struct Person {
    clerk: Clerk,
    id: String,
}

impl Person {
    fn of(desk: &Desk, signed: &Signed, id: Id) -> Result<Self, Trouble> {
        let Path(id) = id.map_err(|_| Trouble::NotFound)?;
        Ok(Self { clerk: Clerk::of(desk, signed), id })
    }

    /// Their address in the API.
    fn at(&self, behind: &str) -> String {
        format!("/users/{}{behind}", address::value(&self.id))
    }

    fn page_with(&self, told: &str) -> Response {
        sent_to(&format!("{PEOPLE}/{}?told={told}", address::value(&self.id)))
    }

    async fn change(
        &self,
        behind: &str,
        tag: &str,
        body: &Value,
    ) -> Result<Result<Told, Refusal>, Trouble> {
        let method = match behind {
            "" => Method::PATCH,
            "/terms" => Method::PUT,
            _ => Method::POST,
        };
        self.clerk.change(method, &self.at(behind), tag, body).await
    }
}

/// `GET /console/people/{id}`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    let told = match asked.get("told") {
        "role" => Some("The role is changed."),
        "locked" => Some("The account is locked out: its sessions are over and its keys stop."),
        "open" => Some("The account is let in again."),
        "terms" => Some("Saved."),
        "out" => Some("Every session of this account is over."),
        _ => None,
    };
    let terms = person.clerk.get(&person.at("/terms")).await?;
    let fields = filled(&terms.value);
    whole(&signed, &person, StatusCode::OK, (&terms, &fields), &Wrongs::default(), told).await
}

/// `POST /console/people/{id}/role`
pub(crate) async fn role(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    let body = json!({ "role": fields.get("role") });
    match person.change("", fields.get(TAG), &body).await? {
        Ok(_) => Ok(person.page_with("role")),
        Err(refusal) => refused(&signed, &person, &refusal).await,
    }
}

/// `POST /console/people/{id}/lock`
pub(crate) async fn lock(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    let locked = fields.get("disabled") == "true";
    match person.change("", fields.get(TAG), &json!({ "disabled": locked })).await? {
        Ok(_) => Ok(person.page_with(if locked { "locked" } else { "open" })),
        Err(refusal) => refused(&signed, &person, &refusal).await,
    }
}

/// `POST /console/people/{id}/terms`
pub(crate) async fn terms(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    let mut wrongs = Wrongs::default();
    let mut limit = |name: &'static str| match fields.get(name).trim() {
        "" => Value::Null,
        text => text.parse::<u32>().map_or_else(
            |_| {
                wrongs.add(name, "A whole number above zero, or nothing.");
                Value::Null
            },
            Value::from,
        ),
    };
    let limits = json!({
        "rpm": limit("limits.rpm"), "tpm": limit("limits.tpm"),
        "concurrency": limit("limits.concurrency"),
    });
    let budget = match text_or_null(&fields, "budget.most_usd") {
        Value::Null => Value::Null,
        most => json!({ "most_usd": most, "per": fields.get("budget.per") }),
    };
    let body =
        json!({ "cap_usd": text_or_null(&fields, "cap_usd"), "budget": budget, "limits": limits });
    let mut status = StatusCode::BAD_REQUEST;
    if wrongs.is_empty() {
        match person.change("/terms", fields.get(TAG), &body).await? {
            Ok(_) => return Ok(person.page_with("terms")),
            Err(refusal) => (status, wrongs) = (refusal.status, refusal.beside(&TERMS)),
        }
    }
    let now = person.clerk.get(&person.at("/terms")).await?;
    whole(&signed, &person, status, (&now, &fields), &wrongs, None).await
}

/// `POST /console/people/{id}/reset`: a link to choose another password, to be handed over.
pub(crate) async fn reset(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    let made = match person.change("/reset", "", &json!({})).await? {
        Ok(made) => made.value,
        Err(refusal) => return refused(&signed, &person, &refusal).await,
    };
    let body = html! {
        section.card.broad {
            h1 { "A link to choose a password" }
            p { "Hand this to whoever the account belongs to. It is shown this once, works once, "
                "and for half an hour." }
            (copyable("reset", "Link", text(&made, "link")))
            p.actions { a.button href={ (PEOPLE) "/" (address::value(&person.id)) } { "Done" } }
        }
    };
    Ok(good(&Shell::signed("A link to choose a password", &signed.account).at(PEOPLE), &body))
}

/// `POST /console/people/{id}/sign-out`
pub(crate) async fn sign_out(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
) -> Result<Response, Trouble> {
    let person = Person::of(&desk, &signed, id)?;
    match person.change("/sign-out", "", &json!({})).await? {
        Ok(_) => Ok(person.page_with("out")),
        Err(refusal) => refused(&signed, &person, &refusal).await,
    }
}

/// The page again, with what stands against a change.
async fn refused(signed: &Signed, person: &Person, refusal: &Refusal) -> Result<Response, Trouble> {
    let terms = person.clerk.get(&person.at("/terms")).await?;
    let fields = filled(&terms.value);
    let wrongs = refusal.beside(&["role"]);
    whole(signed, person, refusal.status, (&terms, &fields), &wrongs, None).await
}

/// The terms as fields.
fn filled(terms: &Value) -> Fields {
    let of = |name: &'static str| {
        let value = name.split('.').try_fold(terms, |value, part| value.get(part));
        let text = match value {
            Some(Value::String(text)) => shortened(text),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                String::new()
            }
        };
        (name, text)
    };
    Fields::of(TERMS.map(of).to_vec())
}

/// An amount without the zeros at its end.
fn shortened(amount: &str) -> String {
    match amount.split_once('.') {
        Some((whole, cents)) if cents.trim_end_matches('0').is_empty() => whole.to_owned(),
        Some((whole, cents)) => format!("{whole}.{:0<2}", cents.trim_end_matches('0')),
        None => amount.to_owned(),
    }
}

async fn whole(
    signed: &Signed,
    person: &Person,
    status: StatusCode,
    (terms, fields): (&Told, &Fields),
    wrongs: &Wrongs,
    told: Option<&str>,
) -> Result<Response, Trouble> {
    let account = person.clerk.get(&person.at("")).await?;
    let facts = &account.value;
    let name = text(facts, "name");
    let locked = facts.get("disabled").and_then(Value::as_bool).unwrap_or_default();
    let at = format!("{PEOPLE}/{}", address::value(&person.id));
    let body = html! {
        p.crumbs { a href=(PEOPLE) { "People" } " / account" }
        div.title {
            h1 { bdi { (name) } }
            @if locked { span.badge.off { "Locked" } } @else { span.badge.good { "Active" } }
        }
        @if let Some(told) = told { p.told role="status" { (told) } }
        (another_look(wrongs))
        div.columns {
            section.card {
                h2 { "Account" }
                dl.facts {
                    div { dt { "E-mail" } dd {
                        @match facts.get("email").and_then(Value::as_str) {
                            Some(email) => bdi { (email) },
                            None => span.muted { "none" },
                        }
                    } }
                    div { dt { "Spent" } dd {
                        @match text(&terms.value, "spent_usd").parse() {
                            Ok(spent) => (show::money(spent)),
                            Err(_) => "–",
                        }
                    } }
                    div { dt { "See" } dd {
                        a href={ "/console/usage?account=" (address::value(&person.id)) } { "usage" } ", "
                        a href={ "/console/calls?account=" (address::value(&person.id)) } { "calls" } ", "
                        a href={ "/console/audit?actor=" (address::value(&person.id)) } { "what they changed" }
                    } }
                }
                (role_form(signed, &account, &at, wrongs))
            }
            section.card { h2 { "What it may spend, and how fast" } (terms_form(&at, terms, fields, wrongs)) }
            section.card {
                h2 { "Ways in" }
                @if !locked {
                    form method="post" action={ (at) "/reset" } {
                        button.button.quiet type="submit" { "Make a link to choose a password" }
                    }
                    form method="post" action={ (at) "/sign-out" } {
                        button.button.quiet type="submit" { "End every session" }
                    }
                }
                (lock_form(&account, locked, &at))
            }
        }
    };
    Ok(page(status, &Shell::signed(name, &signed.account).at(PEOPLE), &body))
}

fn role_form(signed: &Signed, account: &Told, at: &str, wrongs: &Wrongs) -> Markup {
    let own = text(&account.value, "role");
    let options: Vec<(&str, &str)> = AccountRole::ALL
        .into_iter()
        .filter(|role| role.word() == own || may_give(signed.account.role, *role))
        .map(|role| (role.word(), about(role)))
        .collect();
    html! {
        form method="post" action={ (at) "/role" } {
            (tag_field(account))
            (select(("role", "Role"), own, &options, wrongs))
            button.button.quiet type="submit" { "Change the role" }
        }
    }
}

fn terms_form(at: &str, terms: &Told, fields: &Fields, wrongs: &Wrongs) -> Markup {
    let periods = [("day", "every day"), ("week", "every week"), ("month", "every month")];
    let limit = |name: &'static str, label: &'static str| {
        let value = fields.get(name);
        let mode = Some("numeric");
        Input { name, label, value, mode, optional: false, ..Input::default() }.show(wrongs)
    };
    html! {
        p.muted { "For all keys of the account together; nothing is no limit." }
        form method="post" action={ (at) "/terms" } {
            (tag_field(terms))
            (Input {
                name: "cap_usd",
                label: "In all, in USD",
                value: fields.get("cap_usd"),
                mode: Some("decimal"),
                ..Input::default()
            }.show(wrongs))
            div.row {
                (Input {
                    name: "budget.most_usd",
                    label: "Budget, in USD",
                    value: fields.get("budget.most_usd"),
                    mode: Some("decimal"),
                    ..Input::default()
                }.show(wrongs))
                (select(("budget.per", "for"), fields.get("budget.per"), &periods, wrongs))
            }
            div.row {
                (limit("limits.rpm", "Requests per minute"))
                (limit("limits.tpm", "Tokens per minute"))
                (limit("limits.concurrency", "Calls at once"))
            }
            button.button.quiet type="submit" { "Save" }
        }
    }
}

fn lock_form(account: &Told, locked: bool, at: &str) -> Markup {
    html! {
        @if locked {
            form method="post" action={ (at) "/lock" } {
                (tag_field(account))
                input type="hidden" name="disabled" value="false";
                button.button.quiet type="submit" { "Let the account in again" }
            }
        } @else {
            details {
                summary { "Lock the account out" }
                form method="post" action={ (at) "/lock" } {
                    (tag_field(account))
                    input type="hidden" name="disabled" value="true";
                    p.help { "Its sessions end, and its keys stop until it is let in again." }
                    button.button.harm type="submit" { "Lock it out" }
                }
            }
        }
    }
}

//! One account for administrators: role, spending terms, sign-in methods.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};
use store::AccountRole;

use super::{ETAG_FIELD, etag_field, select, text_or_null};
use crate::admin_client::{AdminClient, AdminRefusal, ApiReply, text};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::pages::copy_block;
use crate::pages::people::role_description;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::{display, urls};
use admin::may_grant_role;

const PEOPLE_PATH: &str = "/console/people";
/// Fields of the terms, named as in the API.
const TERM_FIELDS: [&str; 6] =
    ["cap_usd", "budget.most_usd", "budget.per", "limits.rpm", "limits.tpm", "limits.concurrency"];

type AccountPath = Result<Path<String>, PathRejection>;

/// The account on the page, and the client to change it.
struct AccountPage {
    client: AdminClient,
    id: String,
}

impl AccountPage {
    fn new(state: &ConsoleState, user: &SignedInUser, id: AccountPath) -> Result<Self, PageError> {
        let Path(id) = id.map_err(|_| PageError::NotFound)?;
        Ok(Self { client: AdminClient::new(state, user), id })
    }

    fn api_path(&self, behind: &str) -> String {
        format!("/users/{}{behind}", urls::escape_value(&self.id))
    }

    fn redirect_with_notice(&self, notice: &str) -> Response {
        redirect_to(&format!("{PEOPLE_PATH}/{}?told={notice}", urls::escape_value(&self.id)))
    }

    async fn change(
        &self,
        behind: &str,
        tag: &str,
        body: &Value,
    ) -> Result<Result<ApiReply, AdminRefusal>, PageError> {
        let method = match behind {
            "" => Method::PATCH,
            "/terms" => Method::PUT,
            _ => Method::POST,
        };
        self.client.change(method, &self.api_path(behind), tag, body).await
    }
}

/// `GET /console/people/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let notice = match query.get("told") {
        "role" => Some("The role is changed."),
        "locked" => Some("The account is locked out: its sessions are over and its keys stop."),
        "open" => Some("The account is let in again."),
        "terms" => Some("Saved."),
        "out" => Some("Every session of this account is over."),
        _ => None,
    };
    let terms = person.client.get(&person.api_path("/terms")).await?;
    let fields = term_fields(&terms.value);
    render_page(&user, &person, StatusCode::OK, (&terms, &fields), &FieldErrors::default(), notice)
        .await
}

/// `POST /console/people/{id}/role`
pub(crate) async fn role(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let body = json!({ "role": fields.get("role") });
    match person.change("", fields.get(ETAG_FIELD), &body).await? {
        Ok(_) => Ok(person.redirect_with_notice("role")),
        Err(refusal) => rejected_page(&user, &person, &refusal).await,
    }
}

/// `POST /console/people/{id}/lock`
pub(crate) async fn lock(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let locked = fields.get("disabled") == "true";
    match person.change("", fields.get(ETAG_FIELD), &json!({ "disabled": locked })).await? {
        Ok(_) => Ok(person.redirect_with_notice(if locked { "locked" } else { "open" })),
        Err(refusal) => rejected_page(&user, &person, &refusal).await,
    }
}

/// `POST /console/people/{id}/terms`
pub(crate) async fn terms(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let mut errors = FieldErrors::default();
    let mut limit = |name: &'static str| match fields.get(name).trim() {
        "" => Value::Null,
        text => text.parse::<u32>().map_or_else(
            |_| {
                errors.add(name, "A whole number above zero, or nothing.");
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
    if errors.is_empty() {
        match person.change("/terms", fields.get(ETAG_FIELD), &body).await? {
            Ok(_) => return Ok(person.redirect_with_notice("terms")),
            Err(refusal) => (status, errors) = (refusal.status, refusal.field_errors(&TERM_FIELDS)),
        }
    }
    let now = person.client.get(&person.api_path("/terms")).await?;
    render_page(&user, &person, status, (&now, &fields), &errors, None).await
}

/// `POST /console/people/{id}/reset`: creates a password link to hand over.
pub(crate) async fn reset(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let made = match person.change("/reset", "", &json!({})).await? {
        Ok(made) => made.value,
        Err(refusal) => return rejected_page(&user, &person, &refusal).await,
    };
    let body = html! {
        section.card.broad {
            h1 { "A link to choose a password" }
            p { "Give this link to the owner of the account. It is shown once, works once, "
                "and for half an hour." }
            (copy_block("reset", "Link", text(&made, "link")))
            p.actions { a.button href={ (PEOPLE_PATH) "/" (urls::escape_value(&person.id)) } { "Done" } }
        }
    };
    Ok(ok_page(
        &Layout::signed_in("A link to choose a password", &user.account).with_nav(PEOPLE_PATH),
        &body,
    ))
}

/// `POST /console/people/{id}/sign-out`
pub(crate) async fn sign_out(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    match person.change("/sign-out", "", &json!({})).await? {
        Ok(_) => Ok(person.redirect_with_notice("out")),
        Err(refusal) => rejected_page(&user, &person, &refusal).await,
    }
}

/// Renders the page with the reason a change was refused.
async fn rejected_page(
    user: &SignedInUser,
    person: &AccountPage,
    refusal: &AdminRefusal,
) -> Result<Response, PageError> {
    let terms = person.client.get(&person.api_path("/terms")).await?;
    let fields = term_fields(&terms.value);
    let errors = refusal.field_errors(&["role"]);
    render_page(user, person, refusal.status, (&terms, &fields), &errors, None).await
}

fn term_fields(terms: &Value) -> FormFields {
    let of = |name: &'static str| {
        let value = name.split('.').try_fold(terms, |value, part| value.get(part));
        let text = match value {
            Some(Value::String(text)) => trim_amount(text),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                String::new()
            }
        };
        (name, text)
    };
    FormFields::prefilled(TERM_FIELDS.map(of).to_vec())
}

fn trim_amount(amount: &str) -> String {
    match amount.split_once('.') {
        Some((whole, cents)) if cents.trim_end_matches('0').is_empty() => whole.to_owned(),
        Some((whole, cents)) => format!("{whole}.{:0<2}", cents.trim_end_matches('0')),
        None => amount.to_owned(),
    }
}

async fn render_page(
    user: &SignedInUser,
    person: &AccountPage,
    status: StatusCode,
    (terms, fields): (&ApiReply, &FormFields),
    errors: &FieldErrors,
    notice: Option<&str>,
) -> Result<Response, PageError> {
    let account = person.client.get(&person.api_path("")).await?;
    let facts = &account.value;
    let name = text(facts, "name");
    let locked = facts.get("disabled").and_then(Value::as_bool).unwrap_or_default();
    let at = format!("{PEOPLE_PATH}/{}", urls::escape_value(&person.id));
    let body = html! {
        p.crumbs { a href=(PEOPLE_PATH) { "People" } " / account" }
        div.title {
            h1 { bdi { (name) } }
            @if locked { span.badge.off { "Locked" } } @else { span.badge.good { "Active" } }
        }
        @if let Some(notice) = notice { p.told role="status" { (notice) } }
        (error_summary(errors))
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
                            Ok(spent) => (display::money(spent)),
                            Err(_) => "–",
                        }
                    } }
                    div { dt { "See" } dd {
                        a href={ "/console/usage?account=" (urls::escape_value(&person.id)) } { "usage" } ", "
                        a href={ "/console/calls?account=" (urls::escape_value(&person.id)) } { "calls" } ", "
                        a href={ "/console/audit?actor=" (urls::escape_value(&person.id)) } { "what they changed" }
                    } }
                }
                (role_form(user, &account, &at, errors))
            }
            section.card { h2 { "What it may spend, and how fast" } (terms_form(&at, terms, fields, errors)) }
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
    Ok(page(status, &Layout::signed_in(name, &user.account).with_nav(PEOPLE_PATH), &body))
}

fn role_form(user: &SignedInUser, account: &ApiReply, at: &str, errors: &FieldErrors) -> Markup {
    let own = text(&account.value, "role");
    let options: Vec<(&str, &str)> = AccountRole::ALL
        .into_iter()
        .filter(|role| role.word() == own || may_grant_role(user.account.role, *role))
        .map(|role| (role.word(), role_description(role)))
        .collect();
    html! {
        form method="post" action={ (at) "/role" } {
            (etag_field(account))
            (select(("role", "Role"), own, &options, errors))
            button.button.quiet type="submit" { "Change the role" }
        }
    }
}

fn terms_form(at: &str, terms: &ApiReply, fields: &FormFields, errors: &FieldErrors) -> Markup {
    let periods = [("day", "every day"), ("week", "every week"), ("month", "every month")];
    let limit = |name: &'static str, label: &'static str| {
        let value = fields.get(name);
        let mode = Some("numeric");
        FormInput {
            name,
            label,
            value,
            input_mode: mode,
            mark_optional: false,
            ..FormInput::default()
        }
        .render(errors)
    };
    html! {
        p.muted { "For all keys of the account together; nothing is no limit." }
        form method="post" action={ (at) "/terms" } {
            (etag_field(terms))
            (FormInput {
                name: "cap_usd",
                label: "In all, in USD",
                value: fields.get("cap_usd"),
                input_mode: Some("decimal"),
                ..FormInput::default()
            }.render(errors))
            div.row {
                (FormInput {
                    name: "budget.most_usd",
                    label: "Budget, in USD",
                    value: fields.get("budget.most_usd"),
                    input_mode: Some("decimal"),
                    ..FormInput::default()
                }.render(errors))
                (select(("budget.per", "for"), fields.get("budget.per"), &periods, errors))
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

fn lock_form(account: &ApiReply, locked: bool, at: &str) -> Markup {
    html! {
        @if locked {
            form method="post" action={ (at) "/lock" } {
                (etag_field(account))
                input type="hidden" name="disabled" value="false";
                button.button.quiet type="submit" { "Let the account in again" }
            }
        } @else {
            details {
                summary { "Lock the account out" }
                form method="post" action={ (at) "/lock" } {
                    (etag_field(account))
                    input type="hidden" name="disabled" value="true";
                    p.help { "Its sessions end, and its keys stop until it is let in again." }
                    button.button.harm type="submit" { "Lock it out" }
                }
            }
        }
    }
}

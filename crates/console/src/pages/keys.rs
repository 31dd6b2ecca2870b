//! Creation, change, rotation and revocation of keys.

use std::sync::Arc;

use admin::{AdminError, IssuedKey, ReadVersion};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use ledger::Micros;
use maud::html;
use store::{KeyOwner, KeyRecord, KeyScope};

use super::account::prove;
use super::key_form::{self, KeyTerms};
use super::new_key_page::render_new_key;
use super::overview::KeyState;
use crate::form::{FieldErrors, FormFields, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::{display, urls};

const NEW_ADMIN_KEY_PATH: &str = "/console/keys/new?scope=admin";
const HOUR: Micros = 3_600 * 1_000_000;
/// Grace periods of the old value after a rotation: form value, label, duration.
const OVERLAP_CHOICES: [(&str, &str, Micros); 4] = [
    ("day", "for a day", 24 * HOUR),
    ("hour", "for an hour", HOUR),
    ("week", "for a week", 7 * 24 * HOUR),
    ("none", "not at all", 0),
];

/// `GET /console/keys`, for browsers that reload a submitted form.
pub(crate) async fn list(signed: SignedInUser) -> Response {
    redirect_to(&signed.path_for("/console"))
}

/// `GET /console/keys/new`, with `?scope=admin` for an admin key.
pub(crate) async fn new_form(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    QueryFields(asked): QueryFields,
) -> Result<Response, PageError> {
    if let Some(way) = check_may_create(&desk, &signed, key_form::scope_of(&asked)).await? {
        return Ok(way);
    }
    let fields =
        FormFields::prefilled(vec![("scope", key_form::scope_of(&asked).word().to_owned())]);
    Ok(form(StatusCode::OK, &signed, &fields, &FieldErrors::default()))
}

/// Checks the right to create a key of this scope. Admin keys also need a recent proof, which the
/// returned redirect asks for. A team cannot have admin keys.
async fn check_may_create(
    desk: &ConsoleState,
    signed: &SignedInUser,
    scope: KeyScope,
) -> Result<Option<Response>, PageError> {
    match scope {
        KeyScope::Call if signed.may_create_keys() => Ok(None),
        KeyScope::Admin if may_make_admin_keys(signed) => {
            prove::require_proof(desk, signed, NEW_ADMIN_KEY_PATH).await
        }
        KeyScope::Call | KeyScope::Admin => Err(PageError::Forbidden),
    }
}

const fn may_make_admin_keys(signed: &SignedInUser) -> bool {
    signed.is_administrator() && signed.team.is_none()
}

/// Changes of admin keys need a recent proof, which the returned redirect asks for.
async fn check_may_change(
    desk: &ConsoleState,
    signed: &SignedInUser,
    key: &KeyRecord,
    page: &str,
) -> Result<Option<Response>, PageError> {
    match key.scope {
        KeyScope::Call => Ok(None),
        KeyScope::Admin => {
            let next = format!("/console/keys/{}/{page}", urls::escape_value(&key.id));
            prove::require_proof(desk, signed, &next).await
        }
    }
}

/// `POST /console/keys`
pub(crate) async fn create(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    if let Some(way) = check_may_create(&desk, &signed, key_form::scope_of(&fields)).await? {
        return Ok(way);
    }
    let mut wrongs = FieldErrors::default();
    let terms = KeyTerms::read(&desk, &fields, None, &mut wrongs)?;
    if !wrongs.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &signed, &fields, &wrongs));
    }
    let owner = desk.store.owner(signed.owner_id()).await?.ok_or(PageError::NotFound)?;
    let made = desk.host.accounts().create_key(&signed.actor(), &owner, terms.into_draft()).await;
    let IssuedKey { record, secret: text } = match made {
        Ok(made) => made,
        Err(AdminError::Invalid { field, message }) => {
            wrongs.add_api_field(&field, message);
            return Ok(form(StatusCode::BAD_REQUEST, &signed, &fields, &wrongs));
        }
        Err(error) => return Err(error.into()),
    };
    let body = render_new_key(&desk, &record, &text, "Your new key", &signed.path_for("/console"));
    Ok(ok_page(&Layout::signed_in("Your new key", &signed), &body))
}

fn form(
    status: StatusCode,
    signed: &SignedInUser,
    fields: &FormFields,
    wrongs: &FieldErrors,
) -> Response {
    let home = signed.path_for("/console");
    let scope = key_form::scope_of(fields);
    let title = match scope {
        KeyScope::Call => "New key",
        KeyScope::Admin => "New admin key",
    };
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Console" } " / Keys" }
            h1 { (title) @if let Some(team) = &signed.team { " of " bdi { (team.name) } } }
            (error_summary(wrongs))
            form method="post" action=(signed.path_for("/console/keys")) {
                (key_form::render(scope, fields, wrongs, false))
                div.actions {
                    button.button type="submit" { "Create key" }
                    a.button.quiet href=(home) { "Cancel" }
                }
            }
            @if may_make_admin_keys(signed) && scope == KeyScope::Call {
                p.beside { a href=(NEW_ADMIN_KEY_PATH) { "Make an admin key instead" } }
            }
        }
    };
    page(status, &Layout::signed_in("New key", signed), &body)
}

/// `GET /console/keys/{id}/edit`
pub(crate) async fn edit(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(way) = check_may_change(&desk, &signed, &key, "edit").await? {
        return Ok(way);
    }
    let fields = key_form::fields_of(&key);
    Ok(edit_form(StatusCode::OK, &signed, (&key, &home), &fields, &FieldErrors::default()))
}

/// `POST /console/keys/{id}/edit`
pub(crate) async fn change(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(way) = check_may_change(&desk, &signed, &key, "edit").await? {
        return Ok(way);
    }
    let mut wrongs = FieldErrors::default();
    let terms = KeyTerms::read(&desk, &fields, Some(&key), &mut wrongs)?;
    if !wrongs.is_empty() {
        let status = StatusCode::BAD_REQUEST;
        return Ok(edit_form(status, &signed, (&key, &home), &fields, &wrongs));
    }
    let accounts = desk.host.accounts();
    let change = terms.into_change();
    match accounts.change_key(&signed.actor(), &key.id, ReadVersion::default(), change).await {
        Ok(_) => {}
        Err(AdminError::Invalid { field, message }) => {
            wrongs.add_api_field(&field, message);
            let status = StatusCode::BAD_REQUEST;
            return Ok(edit_form(status, &signed, (&key, &home), &fields, &wrongs));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(redirect_to(&home))
}

fn edit_form(
    status: StatusCode,
    signed: &SignedInUser,
    (key, home): (&KeyRecord, &str),
    fields: &FormFields,
    wrongs: &FieldErrors,
) -> Response {
    let here = format!("/console/keys/{}", urls::escape_value(&key.id));
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Console" } " / Keys" }
            h1 { "Edit " bdi { (key.name) } }
            p.muted { code { "sk-pt-" (key.id) "-…" } " · spent " (display::money(key.spent)) }
            (error_summary(wrongs))
            form method="post" action={ (here) "/edit" } {
                (key_form::render(key.scope, fields, wrongs, true))
                div.actions {
                    button.button type="submit" { "Save" }
                    a.button.quiet href=(home) { "Cancel" }
                }
            }
            p.beside {
                a href={ (here) "/rotate" } { "Rotate the key" }
                a.danger href={ (here) "/revoke" } { "Revoke the key" }
            }
        }
    };
    page(status, &Layout::signed_in("Edit a key", signed), &body)
}

/// `GET /console/keys/{id}/rotate`
pub(crate) async fn rotate_form(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(way) = check_may_change(&desk, &signed, &key, "rotate").await? {
        return Ok(way);
    }
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Console" } " / Keys" }
            h1 { "Rotate this key?" }
            p { strong { bdi { (key.name) } } " gets a new value. What it may do and what it has "
                "spent stay as they are." }
            @if key.old_until.is_some_and(|until| until > desk.now()) {
                p.objection { "It was rotated not long ago: the value before that one ends now." }
            }
            form method="post"
                action={ "/console/keys/" (urls::escape_value(&key.id)) "/rotate" } {
                div.field {
                    label for="overlap" { "The old value works on" }
                    select #overlap name="overlap" {
                        @for (word, says, _) in OVERLAP_CHOICES { option value=(word) { (says) } }
                    }
                }
                div.actions {
                    button.button type="submit" { "Make the new value" }
                    a.button.quiet href=(home) { "Cancel" }
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Rotate a key", &signed), &body))
}

/// `POST /console/keys/{id}/rotate`
pub(crate) async fn rotate(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    if let Some(way) = check_may_change(&desk, &signed, &key, "rotate").await? {
        return Ok(way);
    }
    let wanted = fields.get("overlap");
    let overlap = OVERLAP_CHOICES.iter().find(|(word, _, _)| *word == wanted);
    let (_, _, overlap) =
        overlap.ok_or(PageError::BadRequest("`overlap` is one of: day, hour, week, none."))?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    let until = desk.now().saturating_add(*overlap);
    let rotated = desk.host.accounts().rotate_key(&signed.actor(), &key.id, until).await;
    let IssuedKey { record: key, secret: text } = match rotated {
        Ok(rotated) => rotated,
        // The key was revoked concurrently.
        Err(AdminError::Invalid { .. }) => return Ok(redirect_to(&home)),
        Err(error) => return Err(error.into()),
    };
    let body = render_new_key(&desk, &key, &text, "The new value", &home);
    Ok(ok_page(&Layout::signed_in("The new value", &signed), &body))
}

/// Returns the key and the page that lists it, if the user may change it. A key the user may not
/// see counts as not found.
async fn find(
    desk: &ConsoleState,
    signed: &SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<(KeyRecord, String), PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let key = desk.store.key(&id).await?.ok_or(PageError::NotFound)?;
    if !signed.may_see(&key.account_id) {
        return Err(PageError::NotFound);
    }
    let owner = desk.store.owner(&key.account_id).await?.ok_or(PageError::NotFound)?;
    if !signed.may_change_key(&key, &owner) {
        return Err(PageError::Forbidden);
    }
    let home = match owner {
        KeyOwner::Person(_) => "/console".to_owned(),
        KeyOwner::Team(team) => urls::with_team("/console", &team.id),
    };
    Ok((key, home))
}

/// `GET /console/keys/{id}/revoke`
pub(crate) async fn revoke_form(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    let now = desk.now();
    if KeyState::of(&key, now) == KeyState::Revoked {
        return Ok(redirect_to(&home));
    }
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Console" } " / Keys" }
            h1 { "Revoke this key?" }
            p { "Programs that use " strong { bdi { (key.name) } } " are refused from now on, "
                "running streams included. This cannot be undone." }
            dl.facts {
                div { dt { "Key" } dd { code { "sk-pt-" (key.id) "-…" } } }
                div { dt { "Spent" } dd { (display::money(key.spent)) } }
                div { dt { "Last use" } dd {
                    @match key.last_used {
                        Some(at) => (display::relative_time(at, now)),
                        None => "never",
                    }
                } }
            }
            form method="post"
                action={ "/console/keys/" (urls::escape_value(&key.id)) "/revoke" } {
                div.actions {
                    button.button.harm type="submit" { "Revoke the key" }
                    a.button.quiet href=(home) { "Keep it" }
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Revoke a key", &signed), &body))
}

/// `POST /console/keys/{id}/revoke`
pub(crate) async fn revoke(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&desk, &signed, id).await?;
    revoke_key(&desk, &signed, &key).await?;
    Ok(redirect_to(&home))
}

/// Revokes a key. The caller has checked the rights.
pub(super) async fn revoke_key(
    desk: &ConsoleState,
    signed: &SignedInUser,
    key: &KeyRecord,
) -> Result<(), PageError> {
    let accounts = desk.host.accounts();
    accounts.revoke_key(&signed.actor(), &key.id, ReadVersion::default()).await?;
    Ok(())
}

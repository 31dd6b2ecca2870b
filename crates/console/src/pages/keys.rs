//! Creation, change, rotation and revocation of keys.

use std::sync::Arc;

use admin::{AdminError, IssuedKey, ReadVersion, key_front, key_version};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::Micros;
use http::StatusCode;
use maud::html;
use store::{KeyOwner, KeyRecord, KeyScope, KeyStanding};

use super::account::prove;
use super::key_form::{self, KeyTerms};
use super::key_list::PAGE_PATH;
use super::new_key_page::render_new_key;
use crate::form::{FieldErrors, FormFields, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::{error_summary, read_version, version_field};
use crate::state::ConsoleState;
use crate::{display, urls};

const NEW_ADMIN_KEY_PATH: &str = "/console/keys/new?scope=admin";
/// Grace periods of the old value after a rotation: form value, label, duration.
const OVERLAP_CHOICES: [(&str, &str, Micros); 4] = [
    ("day", "for a day", Micros::from_days(1)),
    ("hour", "for an hour", Micros::from_hours(1)),
    ("week", "for a week", Micros::from_days(7)),
    ("none", "not at all", Micros::ZERO),
];

/// `GET /console/keys/new`, with `?scope=admin` for an admin key.
pub(crate) async fn new_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    if let Some(redirect) = check_may_create(&state, &user, key_form::scope_of(&query)).await? {
        return Ok(redirect);
    }
    let fields =
        FormFields::prefilled(vec![("scope", key_form::scope_of(&query).word().to_owned())]);
    Ok(form(StatusCode::OK, &user, &fields, &FieldErrors::default()))
}

/// Checks the right to create a key of this scope. Admin keys also need a recent proof, which the
/// returned redirect asks for. A team cannot have admin keys.
async fn check_may_create(
    state: &ConsoleState,
    user: &SignedInUser,
    scope: KeyScope,
) -> Result<Option<Response>, PageError> {
    match scope {
        KeyScope::Call if user.may_create_keys() => Ok(None),
        KeyScope::Admin if may_make_admin_keys(user) => {
            prove::require_proof(state, user, NEW_ADMIN_KEY_PATH).await
        }
        KeyScope::Call | KeyScope::Admin => Err(PageError::Forbidden),
    }
}

const fn may_make_admin_keys(user: &SignedInUser) -> bool {
    user.is_administrator() && user.team.is_none()
}

/// Changes of admin keys need a recent proof, which the returned redirect asks for.
async fn check_may_change(
    state: &ConsoleState,
    user: &SignedInUser,
    key: &KeyRecord,
    page: &str,
) -> Result<Option<Response>, PageError> {
    match key.scope {
        KeyScope::Call => Ok(None),
        KeyScope::Admin => {
            let next = format!("/console/keys/{}/{page}", urls::escape_value(&key.id));
            prove::require_proof(state, user, &next).await
        }
    }
}

/// `POST /console/keys`
pub(crate) async fn create(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    if let Some(redirect) = check_may_create(&state, &user, key_form::scope_of(&fields)).await? {
        return Ok(redirect);
    }
    let mut errors = FieldErrors::default();
    let terms = KeyTerms::read(&state, &fields, None, &mut errors)?;
    if !errors.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &user, &fields, &errors));
    }
    let owner = state.store.owner(user.owner_id()).await?.ok_or(PageError::NotFound)?;
    let made = state.host.accounts().create_key(&user.actor(), &owner, terms.into_draft()).await;
    let IssuedKey { record, secret: text } = match made {
        Ok(made) => made,
        Err(AdminError::Invalid { field, message }) => {
            errors.add_api_field(&field, message);
            return Ok(form(StatusCode::BAD_REQUEST, &user, &fields, &errors));
        }
        Err(error) => return Err(error.into()),
    };
    let body = render_new_key(&state, &record, &text, "Your new key", &user.path_for(PAGE_PATH));
    Ok(ok_page(&Layout::signed_in("Your new key", &user), &body))
}

fn form(
    status: StatusCode,
    user: &SignedInUser,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Response {
    let home = user.path_for(PAGE_PATH);
    let scope = key_form::scope_of(fields);
    let title = match scope {
        KeyScope::Call => "New key",
        KeyScope::Admin => "New admin key",
    };
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Keys" } }
            h1 { (title) @if let Some(team) = &user.team { " of " bdi { (team.name) } } }
            (error_summary(errors))
            form method="post" action=(user.path_for(PAGE_PATH)) {
                (key_form::render(scope, fields, errors, None))
                div.actions {
                    button.button type="submit" { "Create key" }
                    a.button.quiet href=(home) { "Cancel" }
                }
            }
            @if may_make_admin_keys(user) && scope == KeyScope::Call {
                p.beside { a href=(NEW_ADMIN_KEY_PATH) { "Make an admin key instead" } }
            }
        }
    };
    page(status, &Layout::signed_in("New key", user), &body)
}

/// `GET /console/keys/{id}/edit`
pub(crate) async fn edit(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(redirect) = check_may_change(&state, &user, &key, "edit").await? {
        return Ok(redirect);
    }
    let fields = key_form::fields_of(&key, &user.zone);
    Ok(edit_form(StatusCode::OK, &user, (&key, &home), &fields, &FieldErrors::default()))
}

/// `POST /console/keys/{id}/edit`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(redirect) = check_may_change(&state, &user, &key, "edit").await? {
        return Ok(redirect);
    }
    let mut errors = FieldErrors::default();
    let terms = KeyTerms::read(&state, &fields, Some(&key), &mut errors)?;
    if !errors.is_empty() {
        let status = StatusCode::BAD_REQUEST;
        return Ok(edit_form(status, &user, (&key, &home), &fields, &errors));
    }
    let accounts = state.host.accounts();
    let change = terms.into_change();
    match accounts.change_key(&user.actor(), &key.id, read_version(&fields), change).await {
        Ok(_) => {}
        Err(error @ (AdminError::Stale | AdminError::Forbidden(_))) => {
            errors.add("", error.to_string());
            return Ok(edit_form(StatusCode::BAD_REQUEST, &user, (&key, &home), &fields, &errors));
        }
        Err(AdminError::Invalid { field, message }) => {
            errors.add_api_field(&field, message);
            let status = StatusCode::BAD_REQUEST;
            return Ok(edit_form(status, &user, (&key, &home), &fields, &errors));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(redirect_to(&home))
}

fn edit_form(
    status: StatusCode,
    user: &SignedInUser,
    (key, home): (&KeyRecord, &str),
    fields: &FormFields,
    errors: &FieldErrors,
) -> Response {
    let here = format!("/console/keys/{}", urls::escape_value(&key.id));
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Keys" } }
            h1 { "Edit " bdi { (key.name) } }
            p.muted {
                code { (key_front(&key.id, key.scope)) "…" }
                " · scope " (key.grants.scope_text(key.scope))
                " · spent " (display::money(key.spent))
            }
            (error_summary(errors))
            @if !key.bounds.is_none() {
                p.muted { "Limits that an administrator set can be lowered by others, not raised." }
            }
            form method="post" action={ (here) "/edit" } {
                (version_field(&key_version(key)))
                (key_form::render(key.scope, fields, errors, Some(&key.grants)))
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
    page(status, &Layout::signed_in("Edit a key", user), &body)
}

/// `GET /console/keys/{id}/rotate`
pub(crate) async fn rotate_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    if let Some(redirect) = check_may_change(&state, &user, &key, "rotate").await? {
        return Ok(redirect);
    }
    let overlaps = key.old_until.is_some_and(|until| until > state.now());
    let choices =
        OVERLAP_CHOICES.iter().filter(|(_, _, overlap)| !overlaps || *overlap == Micros::ZERO);
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Keys" } }
            h1 { "Rotate this key?" }
            p { strong { bdi { (key.name) } } " gets a new value. What it may do and what it has "
                "spent stay as they are." }
            @if overlaps {
                p.objection { "It was rotated not long ago, and the value before still works. "
                    "Another rotation ends both values at once." }
            }
            form method="post"
                action={ "/console/keys/" (urls::escape_value(&key.id)) "/rotate" } {
                div.field {
                    label for="overlap" { "The old value works on" }
                    select #overlap name="overlap" {
                        @for (word, label, _) in choices { option value=(word) { (label) } }
                    }
                }
                div.actions {
                    button.button type="submit" { "Make the new value" }
                    a.button.quiet href=(home) { "Cancel" }
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Rotate a key", &user), &body))
}

/// `POST /console/keys/{id}/rotate`
pub(crate) async fn rotate(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    if let Some(redirect) = check_may_change(&state, &user, &key, "rotate").await? {
        return Ok(redirect);
    }
    let wanted = fields.get("overlap");
    let overlap = OVERLAP_CHOICES.iter().find(|(word, _, _)| *word == wanted);
    let (_, _, overlap) =
        overlap.ok_or(PageError::BadRequest("`overlap` is one of: day, hour, week, none."))?;
    if key.revoked.is_some() {
        return Ok(redirect_to(&home));
    }
    let until = state.now() + *overlap;
    let rotated = state.host.accounts().rotate_key(&user.actor(), &key.id, until).await;
    let IssuedKey { record: key, secret: text } = match rotated {
        Ok(rotated) => rotated,
        // The key was revoked concurrently.
        Err(AdminError::Invalid { .. }) => return Ok(redirect_to(&home)),
        Err(error) => return Err(error.into()),
    };
    let body = render_new_key(&state, &key, &text, "The new value", &home);
    Ok(ok_page(&Layout::signed_in("The new value", &user), &body))
}

/// Returns the key and the page that lists it, if the user may change it. A key the user may not
/// see counts as not found.
async fn find(
    state: &ConsoleState,
    user: &SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<(KeyRecord, String), PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    find_by_id(state, user, &id).await
}

/// The same for an id from a form.
pub(super) async fn find_by_id(
    state: &ConsoleState,
    user: &SignedInUser,
    id: &str,
) -> Result<(KeyRecord, String), PageError> {
    let key = state.store.key(id).await?.ok_or(PageError::NotFound)?;
    if !user.may_see(&key.account_id) {
        return Err(PageError::NotFound);
    }
    let owner = state.store.owner(&key.account_id).await?.ok_or(PageError::NotFound)?;
    if !user.may_change_key(&key, &owner) {
        return Err(PageError::Forbidden);
    }
    let home = match owner {
        KeyOwner::Person(_) => PAGE_PATH.to_owned(),
        KeyOwner::Team(team) => urls::with_team(PAGE_PATH, &team.id),
    };
    Ok((key, home))
}

/// `GET /console/keys/{id}/revoke`
pub(crate) async fn revoke_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    let clock = user.clock(&state);
    if KeyStanding::of(&key, clock.now) == KeyStanding::Revoked {
        return Ok(redirect_to(&home));
    }
    let body = html! {
        section.card {
            p.crumbs { a href=(home) { "Keys" } }
            h1 { "Revoke this key?" }
            p { "Programs that use " strong { bdi { (key.name) } } " are refused from now on, "
                "running streams included. This cannot be undone." }
            dl.facts {
                div { dt { "Key" } dd { code { (key_front(&key.id, key.scope)) "…" } } }
                div { dt { "Spent" } dd { (display::money(key.spent)) } }
                div { dt { "Last use" } dd {
                    @match key.last_used {
                        Some(at) => (clock.relative_time(at)),
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
    Ok(ok_page(&Layout::signed_in("Revoke a key", &user), &body))
}

/// `POST /console/keys/{id}/revoke`
pub(crate) async fn revoke(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let (key, home) = find(&state, &user, id).await?;
    let (accounts, read) = (state.host.accounts(), ReadVersion::default());
    accounts.revoke_key(&user.actor(), &key.id, read).await?;
    Ok(redirect_to(&home))
}

//! Revocation of several keys at once.

use std::sync::Arc;

use admin::{ReadVersion, key_front};
use axum::extract::State;
use axum::response::Response;
use maud::html;
use store::{KeyRecord, KeyScope};

use super::key_list;
use super::keys::find_by_id;
use crate::display;
use crate::form::FormFields;
use crate::layout::{Layout, ok_page};
use crate::list_view::ROWS;
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

pub(super) const PATH: &str = "/console/keys/revoke";
/// Field with the id of a chosen key.
pub(super) const CHOSEN: &str = "key";
const CONFIRMED: &str = "confirmed";

/// Returns true if the key can be chosen. An admin key has a page of its own, which asks for a proof.
pub(super) fn can_be_chosen(key: &KeyRecord) -> bool {
    match key.scope {
        KeyScope::Call => key.revoked.is_none(),
        KeyScope::Admin => false,
    }
}

/// `GET /console/keys/revoke`, for browsers that open the address of the question again.
pub(crate) async fn redirect_back(user: SignedInUser) -> Response {
    redirect_to(&user.path_for(key_list::PAGE_PATH))
}

/// `POST /console/keys/revoke`: asks, and revokes the keys when that is confirmed.
pub(crate) async fn revoke(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let list = user.path_for(key_list::PAGE_PATH);
    let ids = fields.get_all(CHOSEN);
    if ids.len() > ROWS as usize {
        return Err(PageError::BadRequest("These are more keys than a page has."));
    }
    let mut keys = Vec::new();
    // All of them are looked at before the first one is revoked.
    for id in ids {
        let (key, _) = find_by_id(&state, &user, id).await?;
        if can_be_chosen(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Ok(redirect_to(&list));
    }
    if fields.contains(CONFIRMED) {
        for key in &keys {
            let (accounts, read) = (state.host.accounts(), ReadVersion::default());
            accounts.revoke_key(&user.actor(), &key.id, read).await?;
        }
        return Ok(redirect_to(&list));
    }
    Ok(question(&user, &keys, &list))
}

fn question(user: &SignedInUser, keys: &[KeyRecord], list: &str) -> Response {
    let count = display::plural(keys.len(), "key", "keys");
    let body = html! {
        section.card {
            p.crumbs { a href=(list) { "Keys" } }
            h1 { "Revoke " (count) "?" }
            p { "Programs that use them are refused from now on, running streams included. This cannot be undone." }
            ul {
                @for key in keys {
                    li {
                        bdi { (key.name) } " " code { (key_front(&key.id, key.scope)) "…" }
                        span.muted { " · spent " (display::money(key.spent)) }
                    }
                }
            }
            form method="post" action=(user.path_for(PATH)) {
                @for key in keys { input type="hidden" name=(CHOSEN) value=(key.id); }
                input type="hidden" name=(CONFIRMED) value="yes";
                div.actions {
                    button.button.harm type="submit" { "Revoke " (count) }
                    a.button.quiet href=(list) { "Keep them" }
                }
            }
        }
    };
    ok_page(&Layout::signed_in("Revoke keys", user).with_nav(key_list::PAGE_PATH), &body)
}

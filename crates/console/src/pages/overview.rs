//! The console's first page: spend, keys, recent calls.

use std::collections::HashMap;
use std::sync::Arc;

use admin::key_front;
use axum::extract::State;
use axum::response::Response;
use canon::{Micros, Money};
use ledger::LedgerEntry;
use maud::{Markup, html};
use store::{EntryFilter, KeyOwner, KeyRecord, KeyScope, Team};

use super::call_table::{CallNames, call_table};
use crate::display;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

const DAY: Micros = Micros::from_days(1);
const KEYS_PER_PAGE: usize = 25;
const MAX_RECENT_CALLS: u32 = 20;
/// Limit of calls added up for the day; above it the page shows "more than".
const MAX_COUNTED_CALLS: u32 = 1_000;

/// State of a key. The order is the display order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyState {
    Active,
    CapReached,
    Expired,
    Revoked,
}

impl KeyState {
    pub(super) fn of(key: &KeyRecord, now: Micros) -> Self {
        if key.revoked.is_some() {
            Self::Revoked
        } else if key.expires.is_some_and(|end| end <= now) {
            Self::Expired
        } else {
            match key.scope {
                KeyScope::Call if key.cap.is_some_and(|cap| key.spent >= cap) => Self::CapReached,
                KeyScope::Call | KeyScope::Admin => Self::Active,
            }
        }
    }

    fn badge(self) -> Markup {
        match self {
            Self::Active => html! { span.badge.good { "Active" } },
            Self::CapReached => html! { span.badge.warn { "Cap reached" } },
            Self::Expired => html! { span.badge.off { "Expired" } },
            Self::Revoked => html! { span.badge.off { "Revoked" } },
        }
    }
}

/// `GET /console`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let now = state.now();
    let all = user.sees_all();
    let mine = user.owner_id();
    let mut keys = if all { state.store.keys().await? } else { state.store.keys_of(mine).await? };
    // Active keys first, newest first.
    keys.sort_by_key(|key| (KeyState::of(key, now), std::cmp::Reverse(key.created)));
    let key_owners = KeyOwners::load(&state, &user).await?;
    let account_id = (!all).then(|| mine.to_owned());
    let filter = EntryFilter { account_id, ..EntryFilter::default() };
    let latest = state.store.entries(&filter, MAX_RECENT_CALLS).await?;
    let names = CallNames::load(&state, &user, &latest).await?;
    let today = EntryFilter { since: Some(now - DAY), ..filter };
    let today = state.store.entries(&today, MAX_COUNTED_CALLS).await?;
    let page = query.get("page").parse::<usize>().unwrap_or(1).max(1);
    let body = html! {
        div.title {
            h1 { "Overview" }
            @if user.may_create_keys() {
                a.button href=(user.path_for("/console/keys/new")) { "New key" }
            }
        }
        @if let Some(team) = &user.team { (team_notice(team)) }
        (figures(&keys, &today, now))
        section {
            h2 { "Keys" }
            @if keys.is_empty() {
                div.empty {
                    h3 { "No keys yet" }
                    p {
                        "A key lets a program call the models of this gateway. "
                        @if user.may_create_keys() {
                            a href=(user.path_for("/console/keys/new")) { "Make the first one" } "."
                        } @else {
                            "You may look at keys here, but not make them."
                        }
                    }
                }
            } @else {
                (key_table(&keys, &user, &key_owners, now, page))
            }
        }
        section {
            h2 { "Recent calls" }
            @if latest.is_empty() {
                div.empty {
                    h3 { "No calls yet" }
                    p { "Calls appear here as soon as they are settled." }
                }
            } @else {
                (call_table(&latest, &user, &names, now))
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Overview", &user).with_nav("/console"), &body))
}

fn figures(keys: &[KeyRecord], today: &[LedgerEntry], now: Micros) -> Markup {
    let spent: Money = keys.iter().map(|key| key.spent).sum();
    let active = keys.iter().filter(|key| KeyState::of(key, now) == KeyState::Active).count();
    let of_today: Money = today.iter().map(|entry| entry.cost).sum();
    let more = today.len() >= MAX_COUNTED_CALLS as usize;
    html! {
        dl.figures {
            div { dt { "Total spend" } dd { (display::money(spent)) } }
            div {
                dt { "Spent in 24 hours" }
                dd { @if more { span.small { "more than " } } (display::money(of_today)) }
            }
            div {
                dt { "Calls in 24 hours" }
                dd { (display::count(today.len() as u64)) @if more { "+" } }
            }
            div { dt { "Working keys" } dd { (active) } }
        }
    }
}

/// Owners and creators of keys.
pub(super) struct KeyOwners {
    owners: HashMap<String, KeyOwner>,
    creators: HashMap<String, String>,
}

impl KeyOwners {
    /// Loads the names needed for the keys on a page.
    pub(super) async fn load(state: &ConsoleState, user: &SignedInUser) -> Result<Self, PageError> {
        let owners = match &user.team {
            Some(team) => vec![KeyOwner::Team(team.clone())],
            None if user.sees_all() => state.store.owners().await?,
            None => vec![KeyOwner::Person(user.account.clone())],
        };
        let makers = match &user.team {
            Some(team) => state.store.creators_of(&team.id).await?,
            None => owners.iter().map(|o| (o.id().to_owned(), o.name().to_owned())).collect(),
        };
        let owners = owners.into_iter().map(|owner| (owner.id().to_owned(), owner));
        Ok(Self { owners: owners.collect(), creators: makers.into_iter().collect() })
    }
}

/// Line with the link to the team's page.
fn team_notice(team: &Team) -> Markup {
    html! {
        p.muted {
            "Keys and calls of " a href=(super::team::page_path(team)) { bdi { (team.name) } }
            @if team.disabled { ", which is closed: its keys do not work" } "."
        }
    }
}

pub(super) fn key_table(
    keys: &[KeyRecord],
    user: &SignedInUser,
    key_owners: &KeyOwners,
    now: Micros,
    page: usize,
) -> Markup {
    let last = keys.len().div_ceil(KEYS_PER_PAGE).max(1);
    let page = page.min(last);
    let shown = keys.iter().skip((page - 1) * KEYS_PER_PAGE).take(KEYS_PER_PAGE);
    html! {
        div.sheet {
            table.list.keys {
                thead { tr {
                    th scope="col" { "Name" }
                    th scope="col" { "Spent" }
                    th scope="col" { "Last use" }
                    th scope="col" { "Expires" }
                    th scope="col" { "State" }
                    th scope="col" { span.unseen { "Actions" } }
                } }
                tbody {
                    @for key in shown {
                        (key_row(key, key_owners, user, now))
                    }
                }
            }
        }
        @if last > 1 {
            nav.pager aria-label="Pages of keys" {
                @if page > 1 { a rel="prev" href=(user.path_for(&format!("/console?page={}", page - 1))) { "← Previous" } }
                span.muted { "Page " (page) " of " (last) }
                @if page < last { a rel="next" href=(user.path_for(&format!("/console?page={}", page + 1))) { "Next →" } }
            }
        }
    }
}

fn key_row(key: &KeyRecord, key_owners: &KeyOwners, user: &SignedInUser, now: Micros) -> Markup {
    let state = KeyState::of(key, now);
    let owner = key_owners.owners.get(&key.account_id);
    let other = owner.filter(|owner| owner.id() != user.owner_id());
    let maker = key.created_by.as_ref().filter(|maker| **maker != key.account_id);
    let maker = maker.and_then(|maker| key_owners.creators.get(maker));
    let may = owner.is_some_and(|owner| user.may_change_key(key, owner));
    html! {
        tr.off[state >= KeyState::Expired] {
            th scope="row" {
                span.name { bdi { (key.name) } }
                code.token { (key_front(&key.id, key.scope)) "…" }
                @match key.scope {
                    KeyScope::Call => {},
                    KeyScope::Admin => span.small { span.badge.warn { "admin" } },
                }
                @if let Some(other) = other { span.small.muted { "of " bdi { (other.name()) } } }
                @if let Some(maker) = maker { span.small.muted { "made by " bdi { (maker) } } }
                @if !key.models.is_empty() {
                    span.small.muted title=(key.models.join(", ")) {
                        (display::plural(key.models.len(), "model", "models")) " only"
                    }
                }
            }
            td.spent data-label="Spent" {
                @match key.scope {
                    KeyScope::Call => (spent_of_cap(key.spent, key.cap)),
                    KeyScope::Admin => span.muted { "makes no calls" },
                }
            }
            td data-label="Last use" {
                @match key.last_used {
                    Some(at) => (display::relative_time(at, now)),
                    None => span.muted { "never" },
                }
            }
            td data-label="Expires" {
                @match key.expires {
                    Some(at) => (display::relative_time(at, now)),
                    None => span.muted { "never" },
                }
            }
            td data-label="State" { (state.badge()) }
            td.act {
                @if state != KeyState::Revoked && may {
                    @let here = format!("/console/keys/{}", urls::escape_value(&key.id));
                    a href=(user.path_for(&format!("{here}/edit"))) {
                        "Edit" span.unseen { " " (key.name) }
                    }
                    a.danger href=(user.path_for(&format!("{here}/revoke"))) {
                        "Revoke" span.unseen { " " (key.name) }
                    }
                }
            }
        }
    }
}

/// Renders the spend in relation to the cap.
pub(super) fn spent_of_cap(spent: Money, cap: Option<Money>) -> Markup {
    let Some(cap) = cap else {
        return html! { (display::money(spent)) span.muted { " · unlimited" } };
    };
    // A thousandth is precise enough for a bar.
    let part = i128::from(spent.as_nanos().max(0)) * 1_000;
    let part = (part / i128::from(cap.as_nanos().max(1))).min(1_000);
    html! {
        (display::money(spent)) span.muted { " of " (display::money(cap)) }
        progress.full[part >= 1_000].near[part >= 800] value=(part) max="1000" {
            (part / 10) "%"
        }
    }
}

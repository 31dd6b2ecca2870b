//! The console's first page: spend, keys, recent calls.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::{Micros, Money};
use maud::{Markup, html};
use store::{
    CallFilter, KeyOrder, KeyPage, KeySelection, KeyStanding, Team, UsageFilter, UsagePoint,
    UsageStep,
};

use super::call_table::{CallNames, call_table};
use super::key_list::{self, KeyOwners, KeyTable, no_keys};
use crate::display;
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

const DAY: Micros = Micros::from_days(1);
const SHOWN_KEYS: u32 = 10;
const MAX_RECENT_CALLS: u32 = 20;

/// `GET /console`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let clock = &user.clock(&state);
    let now = clock.now;
    let account_id = (!user.sees_all()).then(|| user.owner_id().to_owned());
    let selection = KeySelection { account_id: account_id.clone(), ..KeySelection::default() };
    let keys = state.store.key_page(&selection, KeyOrder::Standing, (0, SHOWN_KEYS), now).await?;
    let key_owners = KeyOwners::load(&state, &user, &keys.keys).await?;
    let of_account = CallFilter { account_id: account_id.clone(), ..CallFilter::default() };
    let latest = state.store.entries(&of_account.into(), MAX_RECENT_CALLS).await?;
    let names = CallNames::load(&state, &user, &latest).await?;
    let sums = UsageFilter { account_id, ..UsageFilter::default() };
    let today = now - DAY..now + Micros::new(1);
    let today = state.store.usage_over(today, UsageStep::Hour, None, &sums).await?;
    let body = html! {
        div.title {
            h1 { "Overview" }
            @if user.may_create_keys() {
                a.button href=(user.path_for("/console/keys/new")) { "New key" }
            }
        }
        @if let Some(team) = &user.team { (team_notice(team)) }
        (cap_notices(&keys, &user))
        (figures(&keys, &today, &user))
        section {
            h2 { "Keys" }
            @if keys.keys.is_empty() {
                (no_keys(&user))
            } @else {
                (KeyTable { user: &user, owners: &key_owners, clock }.render(&keys.keys))
                @let all = keys.total(None);
                @if all > u64::from(SHOWN_KEYS) {
                    p { a href=(user.path_for(key_list::PAGE_PATH)) { "All " (display::count(all)) " keys" } }
                }
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
                (call_table(&latest, &user, &names, clock))
                p { a href=(user.path_for("/console/activity")) { "All calls" } }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Overview", &user).with_nav("/console"), &body))
}

/// Tells how many keys have nearly or wholly spent their caps.
fn cap_notices(keys: &KeyPage, user: &SignedInUser) -> Markup {
    let notices = [
        (
            KeyStanding::NearCap,
            "has spent 80 % of its cap or more",
            "have spent 80 % of their caps or more",
        ),
        (
            KeyStanding::CapReached,
            "has spent its cap and is refused",
            "have spent their caps and are refused",
        ),
    ];
    html! {
        @for (standing, one, several) in notices {
            @let count = keys.total(Some(standing));
            @let list = format!("{}?state={}", key_list::PAGE_PATH, standing.word());
            @if count > 0 {
                p.notice {
                    (display::count(count)) @if count == 1 { " key " (one) } @else { " keys " (several) } ". "
                    a href=(user.path_for(&list)) { @if count == 1 { "Show it" } @else { "Show them" } }
                }
            }
        }
    }
}

fn figures(keys: &KeyPage, today: &[UsagePoint], user: &SignedInUser) -> Markup {
    let working = KeyStanding::ALL.into_iter().filter(|standing| standing.works());
    let active: u64 = working.map(|standing| keys.total(Some(standing))).sum();
    let spent: Money = today.iter().map(|hour| hour.used.cost).sum();
    let calls = today.iter().fold(0_i64, |sum, hour| sum.saturating_add(hour.used.calls));
    let last_day = user.path_for("/console/activity?range=24h");
    html! {
        dl.figures {
            div { dt { "Total spend" } dd { (display::money(keys.spent)) } }
            div { dt { "Spent in 24 hours" } dd { a href=(last_day) { (display::money(spent)) } } }
            div {
                dt { "Calls in 24 hours" }
                dd { a href=(last_day) { (display::count(calls.max(0).unsigned_abs())) } }
            }
            div { dt { "Working keys" } dd { (display::count(active)) } }
        }
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

//! The console's first page: what was spent, the keys, the latest calls.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use canon::Money;
use ledger::{LedgerEntry, Micros, CallOutcome};
use maud::{Markup, html};
use store::{EntryFilter, KeyRecord, KeyScope, KeyOwner, Team};

use crate::address;
use crate::desk::Desk;
use crate::form::Asked;
use crate::session::Signed;
use crate::shell::{Shell, good};
use crate::show;
use crate::trouble::Trouble;

const DAY: Micros = 24 * 3_600 * 1_000_000;
/// How many keys a page shows.
const KEYS: usize = 25;
/// How many of the latest calls are shown.
const CALLS: u32 = 20;
/// How many calls of a day are added up; beyond that the page says "more than".
const COUNTED: u32 = 1_000;

/// Whether a key works.
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
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let now = desk.now();
    let all = signed.sees_all();
    let mine = signed.acts_for();
    let mut keys = if all { desk.store.keys().await? } else { desk.store.keys_of(mine).await? };
    // What works comes first, and of that the newest.
    keys.sort_by_key(|key| (KeyState::of(key, now), std::cmp::Reverse(key.created)));
    let whose = Whose::of(&desk, &signed).await?;
    let account_id = (!all).then(|| mine.to_owned());
    let filter = EntryFilter { account_id, ..EntryFilter::default() };
    let latest = desk.store.entries(&filter, CALLS).await?;
    let today = EntryFilter { since: Some(now.saturating_sub(DAY)), ..filter };
    let today = desk.store.entries(&today, COUNTED).await?;
    let page = asked.get("page").parse::<usize>().unwrap_or(1).max(1);
    let body = html! {
        div.title {
            h1 { "Overview" }
            @if signed.may_make_keys() {
                a.button href=(signed.at("/console/keys/new")) { "New key" }
            }
        }
        @if let Some(team) = &signed.team { (team_line(team)) }
        (figures(&keys, &today, now))
        section {
            h2 { "Keys" }
            @if keys.is_empty() {
                div.empty {
                    h3 { "No keys yet" }
                    p {
                        "A key lets a program call the models of this gateway. "
                        @if signed.may_make_keys() {
                            a href=(signed.at("/console/keys/new")) { "Make the first one" } "."
                        } @else {
                            "You may look at keys here, but not make them."
                        }
                    }
                }
            } @else {
                (key_table(&keys, &signed, &whose, now, page))
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
                (call_table(&latest, &signed, now))
            }
        }
    };
    Ok(good(&Shell::signed("Overview", &signed).at("/console"), &body))
}

fn figures(keys: &[KeyRecord], today: &[LedgerEntry], now: Micros) -> Markup {
    let spent: Money = keys.iter().map(|key| key.spent).sum();
    let active = keys.iter().filter(|key| KeyState::of(key, now) == KeyState::Active).count();
    let of_today: Money = today.iter().map(|entry| entry.cost).sum();
    let more = today.len() >= COUNTED as usize;
    html! {
        dl.figures {
            div { dt { "Spent in all" } dd { (show::money(spent)) } }
            div {
                dt { "Spent in 24 hours" }
                dd { @if more { span.small { "more than " } } (show::money(of_today)) }
            }
            div {
                dt { "Calls in 24 hours" }
                dd { (show::count(today.len() as u64)) @if more { "+" } }
            }
            div { dt { "Working keys" } dd { (active) } }
        }
    }
}

/// Whom keys belong to, and who made them.
pub(super) struct Whose {
    owners: HashMap<String, KeyOwner>,
    makers: HashMap<String, String>,
}

impl Whose {
    /// What has to be known to tell of the keys that a page shows.
    pub(super) async fn of(desk: &Desk, signed: &Signed) -> Result<Self, Trouble> {
        let owners = match &signed.team {
            Some(team) => vec![KeyOwner::Team(team.clone())],
            None if signed.sees_all() => desk.store.owners().await?,
            None => vec![KeyOwner::Person(signed.account.clone())],
        };
        let makers = match &signed.team {
            Some(team) => desk.store.creators_of(&team.id).await?,
            None => owners.iter().map(|o| (o.id().to_owned(), o.name().to_owned())).collect(),
        };
        let owners = owners.into_iter().map(|owner| (owner.id().to_owned(), owner));
        Ok(Self { owners: owners.collect(), makers: makers.into_iter().collect() })
    }
}

/// Where a team's own page is.
fn team_line(team: &Team) -> Markup {
    html! {
        p.muted {
            "Keys and calls of " a href=(super::team::address(team)) { bdi { (team.name) } }
            @if team.disabled { ", which is closed: its keys do not work" } "."
        }
    }
}

pub(super) fn key_table(
    keys: &[KeyRecord],
    signed: &Signed,
    whose: &Whose,
    now: Micros,
    page: usize,
) -> Markup {
    let last = keys.len().div_ceil(KEYS).max(1);
    let page = page.min(last);
    let shown = keys.iter().skip((page - 1) * KEYS).take(KEYS);
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
                        (key_row(key, whose, signed, now))
                    }
                }
            }
        }
        @if last > 1 {
            nav.pager aria-label="Pages of keys" {
                @if page > 1 { a rel="prev" href=(signed.at(&format!("/console?page={}", page - 1))) { "← Previous" } }
                span.muted { "Page " (page) " of " (last) }
                @if page < last { a rel="next" href=(signed.at(&format!("/console?page={}", page + 1))) { "Next →" } }
            }
        }
    }
}

fn key_row(key: &KeyRecord, whose: &Whose, signed: &Signed, now: Micros) -> Markup {
    let state = KeyState::of(key, now);
    let owner = whose.owners.get(&key.account_id);
    let other = owner.filter(|owner| owner.id() != signed.acts_for());
    let maker = key.created_by.as_ref().filter(|maker| **maker != key.account_id);
    let maker = maker.and_then(|maker| whose.makers.get(maker));
    let may = owner.is_some_and(|owner| signed.may_change_key(key, owner));
    html! {
        tr.off[state >= KeyState::Expired] {
            th scope="row" {
                span.name { bdi { (key.name) } }
                code.token { "sk-pt-" (key.id) "-…" }
                @match key.scope {
                    KeyScope::Call => {},
                    KeyScope::Admin => span.small { span.badge.warn { "admin" } },
                }
                @if let Some(other) = other { span.small.muted { "of " bdi { (other.name()) } } }
                @if let Some(maker) = maker { span.small.muted { "made by " bdi { (maker) } } }
                @if !key.models.is_empty() {
                    span.small.muted title=(key.models.join(", ")) {
                        (show::many(key.models.len(), "model", "models")) " only"
                    }
                }
            }
            td.spent data-label="Spent" {
                @match key.scope {
                    KeyScope::Call => (spent(key.spent, key.cap)),
                    KeyScope::Admin => span.muted { "makes no calls" },
                }
            }
            td data-label="Last use" {
                @match key.last_used {
                    Some(at) => (show::when(at, now)),
                    None => span.muted { "never" },
                }
            }
            td data-label="Expires" {
                @match key.expires {
                    Some(at) => (show::when(at, now)),
                    None => span.muted { "never" },
                }
            }
            td data-label="State" { (state.badge()) }
            td.act {
                @if state != KeyState::Revoked && may {
                    @let here = format!("/console/keys/{}", address::value(&key.id));
                    a href=(signed.at(&format!("{here}/edit"))) {
                        "Edit" span.unseen { " " (key.name) }
                    }
                    a.danger href=(signed.at(&format!("{here}/revoke"))) {
                        "Revoke" span.unseen { " " (key.name) }
                    }
                }
            }
        }
    }
}

/// What was spent, of what may be.
pub(super) fn spent(spent: Money, cap: Option<Money>) -> Markup {
    let Some(cap) = cap else {
        return html! { (show::money(spent)) span.muted { " · unlimited" } };
    };
    // Thousandths are fine enough for a bar and keep its numbers small.
    let part = i128::from(spent.as_nanos().max(0)) * 1_000;
    let part = (part / i128::from(cap.as_nanos().max(1))).min(1_000);
    html! {
        (show::money(spent)) span.muted { " of " (show::money(cap)) }
        progress.full[part >= 1_000].near[part >= 800] value=(part) max="1000" {
            (part / 10) "%"
        }
    }
}

pub(super) fn call_table(calls: &[LedgerEntry], signed: &Signed, now: Micros) -> Markup {
    html! {
        div.sheet {
            table.list.calls {
                thead { tr {
                    th scope="col" { "Time" }
                    th scope="col" { "Model" }
                    th scope="col" { "Lane" }
                    th scope="col" { "Status" }
                    th.num scope="col" { "Tokens" }
                    th.num scope="col" { "Cost" }
                } }
                tbody { @for call in calls { (call_row(call, signed, now)) } }
            }
        }
    }
}

fn call_row(call: &LedgerEntry, signed: &Signed, now: Micros) -> Markup {
    let tokens = format!(
        "{} in, {} out{}",
        show::count(call.usage.input),
        show::count(call.usage.output),
        if call.estimated { ", estimated" } else { "" }
    );
    html! {
        tr {
            td data-label="Time" { (show::when(call.ended, now)) }
            td data-label="Model" title={ "Request " (call.request_id) } {
                @let receipt = format!("/console/calls/{}", address::value(&call.request_id));
                a.id href=(signed.at(&receipt)) {
                    bdi { (call.model) }
                }
            }
            td data-label="Lane" {
                @if call.lane.is_empty() { span.muted { "none" } }
                @else { bdi { (call.lane) } }
            }
            td data-label="Status" { (status(call)) }
            td.num data-label="Tokens" title=(tokens) {
                @if call.estimated { "~" }
                (show::count(call.usage.total()))
            }
            td.num data-label="Cost" { (show::money(call.cost)) }
        }
    }
}

fn status(call: &LedgerEntry) -> Markup {
    match call.outcome {
        CallOutcome::Done => html! { span.badge.good { (call.status) } },
        CallOutcome::CallerLeft => html! { span.badge.off { (call.status) " · caller left" } },
        CallOutcome::BrokeOff => html! { span.badge.bad { (call.status) " · broke off" } },
        CallOutcome::Failed => html! { span.badge.bad { (call.status) } },
        CallOutcome::Recovered => html! { span.badge.warn { (call.status) " · recovered" } },
    }
}

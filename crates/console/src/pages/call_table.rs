//! Table of calls, with the names of their keys and accounts.

use std::collections::{BTreeSet, HashMap};

use ledger::{CallOutcome, LedgerEntry};
use maud::{Markup, html};

use crate::display;
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;
use crate::viewer_time::ViewerClock;

/// Names of the keys and accounts of some calls, by id.
pub(super) struct CallNames {
    keys: HashMap<String, String>,
    accounts: HashMap<String, String>,
}

impl CallNames {
    /// Loads the names. Those of accounts are read only for people who see several.
    pub(super) async fn load(
        state: &ConsoleState,
        user: &SignedInUser,
        calls: &[LedgerEntry],
    ) -> Result<Self, PageError> {
        let ids: BTreeSet<&str> = calls.iter().map(|call| &*call.key_id).collect();
        let mut keys = HashMap::new();
        for id in ids {
            if let Some(key) = state.store.key(id).await? {
                keys.insert(key.id, key.name);
            }
        }
        let mut accounts = HashMap::new();
        if user.sees_all() {
            let ids: BTreeSet<&str> = calls.iter().map(|call| &*call.account_id).collect();
            for id in ids {
                if let Some(owner) = state.store.owner(id).await? {
                    accounts.insert(id.to_owned(), owner.name().to_owned());
                }
            }
        }
        Ok(Self { keys, accounts })
    }
}

/// Draws the table. Keys of one name are told apart by their id, which is shown on hover.
pub(super) fn call_table(
    calls: &[LedgerEntry],
    user: &SignedInUser,
    names: &CallNames,
    clock: &ViewerClock,
) -> Markup {
    html! {
        div.sheet {
            table.list.calls {
                thead { tr {
                    th scope="col" { "Time" }
                    th scope="col" { "Model" }
                    th scope="col" { "Lane" }
                    @if user.sees_all() { th scope="col" { "Account" } }
                    th scope="col" { "Key" }
                    th scope="col" { "Format" }
                    th scope="col" { "Status" }
                    th.num scope="col" { "Took" }
                    th.num scope="col" { "Tokens" }
                    th.num scope="col" { "Cost" }
                } }
                tbody { @for call in calls { (call_row(call, user, names, clock)) } }
            }
        }
    }
}

fn call_row(
    call: &LedgerEntry,
    user: &SignedInUser,
    names: &CallNames,
    clock: &ViewerClock,
) -> Markup {
    let tokens = format!(
        "{} in, {} out{}",
        display::count(call.usage.input),
        display::count(call.usage.output),
        if call.estimated { ", estimated" } else { "" }
    );
    let first = call.first_byte_us.map(display::duration);
    let first = first.map(|first| format!("First byte after {first}"));
    let key = names.keys.get(&*call.key_id).map_or(&*call.key_id, String::as_str);
    let account = names.accounts.get(&*call.account_id).map_or(&*call.account_id, String::as_str);
    html! {
        tr {
            td data-label="Time" { (clock.relative_time(call.ended)) }
            td data-label="Model" title={ "Request " (call.request_id) } {
                @let receipt = format!("/console/calls/{}", urls::escape_value(&call.request_id));
                a.id href=(user.path_for(&receipt)) {
                    bdi { (call.model) }
                }
            }
            td data-label="Lane" {
                @if call.lane.is_empty() { span.muted { "none" } }
                @else { bdi { (call.lane) } }
            }
            @if user.sees_all() { td data-label="Account" { bdi { (account) } } }
            td data-label="Key" title={ "Key " (call.key_id) } { bdi { (key) } }
            td data-label="Format" { (call.dialect) @if call.stream { span.muted { ", streamed" } } }
            td data-label="Status" {
                (status_badge(call))
                @if let Some(error) = &call.error {
                    @let same = format!("/console/activity?error={}", urls::escape_value(&error.code));
                    a.small.id href=(user.path_for(&same)) title=(error.message) { (error.code) }
                }
            }
            td.num data-label="Took" title=[first] { (display::duration(call.ended - call.started)) }
            td.num data-label="Tokens" title=(tokens) {
                @if call.estimated { "~" }
                (display::count(call.usage.total()))
            }
            td.num data-label="Cost" { (display::money(call.cost)) }
        }
    }
}

fn status_badge(call: &LedgerEntry) -> Markup {
    match call.outcome {
        CallOutcome::Done => html! { span.badge.good { (call.status) } },
        CallOutcome::CallerLeft => html! { span.badge.off { (call.status) " · caller left" } },
        CallOutcome::BrokeOff => html! { span.badge.bad { (call.status) " · broke off" } },
        CallOutcome::Failed => html! { span.badge.bad { (call.status) } },
        CallOutcome::Recovered => html! { span.badge.warn { (call.status) " · recovered" } },
    }
}

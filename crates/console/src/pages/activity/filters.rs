//! The form that selects calls.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use store::{GroupBy, Store, StoreError, SumGroup, UsageFilter, UsageStep};

use super::metric::UsageMetric;
use super::names::GroupNames;
use super::selection::{ActivitySelection, PAGE_PATH, group_label};
use crate::session::SignedInUser;
use crate::time_range::{RECENT_TIMES, TimeRange};
use crate::urls::TEAM_PARAMETER;

const MAX_OPTIONS: usize = 100;
/// Fields of the form. Everything else of the selection is kept.
const FIELDS: [&str; 16] = [
    "range", "from", "to", "zone", "model", "key", "account", "lane", "status", "error", "format",
    "session", "end_user", "tag", "cost", "took",
];
/// Ends that can be chosen: parameter value, label.
const STATUSES: [(&str, &str); 4] = [
    ("done", "Answered"),
    ("failed", "Not answered to the end"),
    ("4xx", "4xx: the request"),
    ("5xx", "5xx: gateway or provider"),
];
const FORMATS: [&str; 6] = ["chat", "responses", "messages", "native", "images", "embeddings"];

/// Values of a field: value and label.
type FieldOptions = Vec<(String, String)>;

/// Values of the conditions that calls of the time meet.
pub(super) struct FilterOptions {
    models: FieldOptions,
    keys: FieldOptions,
    accounts: FieldOptions,
    lanes: FieldOptions,
    statuses: FieldOptions,
}

impl FilterOptions {
    /// Reads the values, and the names of those that are ids.
    pub(super) async fn load(
        store: &Store,
        user: &SignedInUser,
        view: &ActivitySelection,
        names: &mut GroupNames,
    ) -> Result<Self, StoreError> {
        let models = used_values(store, user, view, SumGroup::Model).await?;
        let keys = used_values(store, user, view, SumGroup::Key).await?;
        let lanes = used_values(store, user, view, SumGroup::Lane).await?;
        let statuses = used_values(store, user, view, SumGroup::Status).await?;
        let accounts = match user.sees_all() {
            true => used_values(store, user, view, SumGroup::Account).await?,
            false => Vec::new(),
        };
        names.add(store, GroupBy::Key, &keys).await?;
        names.add(store, GroupBy::Account, &accounts).await?;
        let named = |by: GroupBy, values: Vec<String>| {
            let named = values.into_iter().map(|value| (names.name_of(by, &value), value));
            let sorted: BTreeSet<(String, String)> = named.collect();
            sorted.into_iter().map(|(name, value)| (value, name)).collect()
        };
        Ok(Self {
            models: named(GroupBy::Model, models),
            keys: named(GroupBy::Key, keys),
            accounts: named(GroupBy::Account, accounts),
            lanes: with_providers(lanes),
            statuses: with_ends(named(GroupBy::Status, statuses)),
        })
    }
}

/// Returns the values in use, the most used ones if there are many.
async fn used_values(
    store: &Store,
    user: &SignedInUser,
    view: &ActivitySelection,
    by: SumGroup,
) -> Result<Vec<String>, StoreError> {
    // Of the whole time, independent of the other conditions.
    let account_id = (!user.sees_all()).then(|| user.owner_id().to_owned());
    let all = UsageFilter { account_id, ..UsageFilter::default() };
    // Whole months are cheap to read; a few surplus choices do no harm.
    let points = store.usage_over(view.range(), UsageStep::Month, Some(by), &all).await?;
    let mut calls: BTreeMap<String, i64> = BTreeMap::new();
    for point in points.into_iter().filter(|one| !one.group.is_empty()) {
        let sum = calls.entry(point.group).or_default();
        *sum = sum.saturating_add(point.used.calls);
    }
    let mut values: Vec<(String, i64)> = calls.into_iter().collect();
    values.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    values.truncate(MAX_OPTIONS);
    Ok(values.into_iter().map(|(value, _)| value).collect())
}

/// Returns the lanes below their providers.
fn with_providers(lanes: Vec<String>) -> FieldOptions {
    let mut options = BTreeSet::new();
    for lane in lanes {
        if let Some((provider, _)) = lane.split_once('/') {
            options.insert((provider.to_owned(), format!("{provider} (all lanes)")));
        }
        options.insert((lane.clone(), lane));
    }
    options.into_iter().collect()
}

/// Returns the kinds of ends before the statuses.
fn with_ends(statuses: FieldOptions) -> FieldOptions {
    let kinds = STATUSES.map(|(value, label)| (value.to_owned(), label.to_owned()));
    kinds.into_iter().chain(statuses).collect()
}

/// Renders the choices of time, quantity and group.
pub(super) fn choice_bar(view: &ActivitySelection, user: &SignedInUser) -> Markup {
    let chosen = |yes: bool| yes.then_some("true");
    let groups = GroupBy::ALL.into_iter().filter(|by| user.sees_all() || *by != GroupBy::Account);
    html! {
        div.choices {
            nav aria-label="Range" {
                @for recent in RECENT_TIMES {
                    @let time = TimeRange::Recent(recent);
                    a href=(view.with_time(time)) aria-current=[chosen(time == view.time)] { (recent.title) }
                }
            }
            nav aria-label="Measure" {
                @for what in UsageMetric::ALL {
                    a href=(view.with_parameter("what", what.as_str())) aria-current=[chosen(what == view.metric)] { (what.title()) }
                }
            }
            nav aria-label="Group by" {
                @for by in groups {
                    a href=(view.with_parameter("by", by.word())) aria-current=[chosen(by == view.group_by)] { "by " (group_label(by)) }
                }
            }
        }
    }
}

/// Renders the form.
pub(super) fn filter_form(
    view: &ActivitySelection,
    user: &SignedInUser,
    options: &FilterOptions,
) -> Markup {
    let formats: FieldOptions =
        FORMATS.map(|format| (format.to_owned(), format.to_owned())).into_iter().collect();
    let is_open = ["error", "format", "session", "end_user", "tag", "cost", "took"]
        .into_iter()
        .any(|name| !view.condition(name).is_empty());
    html! {
        form.filters method="get" action=(PAGE_PATH) role="search" {
            @if let Some(team) = &user.team { input type="hidden" name=(TEAM_PARAMETER) value=(team.id); }
            @for (name, value) in view.parameters() {
                @if name != TEAM_PARAMETER && !FIELDS.contains(&name) {
                    input type="hidden" name=(name) value=(value);
                }
            }
            (view.time_fields())
            (choice_field(view, "model", "Model", &options.models))
            (choice_field(view, "key", "Key", &options.keys))
            @if user.sees_all() { (choice_field(view, "account", "Account", &options.accounts)) }
            (choice_field(view, "lane", "Lane", &options.lanes))
            (choice_field(view, "status", "Status", &options.statuses))
            details.more open[is_open] {
                summary { "More filters" }
                div.filters {
                    (text_field(view, "error", "Error code", "any"))
                    (choice_field(view, "format", "Format", &formats))
                    (text_field(view, "session", "Session", "any"))
                    (text_field(view, "end_user", "End user", "any"))
                    (text_field(view, "tag", "Tag", "team=blue"))
                    (text_field(view, "cost", "Cost at least ($)", "0.25"))
                    (text_field(view, "took", "Took at least (s)", "2.5"))
                    div.field.grow {
                        label for="id" { "Request id" }
                        input #id name="id" type="search" placeholder="req_…" autocomplete="off";
                    }
                }
            }
            div.field.go { button.button type="submit" { "Show" } }
            @if view.is_narrow() {
                div.field.go { a.button.quiet href=(view.without_conditions()) { "Show all" } }
            }
        }
    }
}

fn choice_field(
    view: &ActivitySelection,
    name: &str,
    label: &str,
    options: &[(String, String)],
) -> Markup {
    let chosen = view.condition(name);
    let is_listed = chosen.is_empty() || options.iter().any(|(value, _)| value == chosen);
    html! {
        div.field {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "Any" }
                @for (value, text) in options {
                    option value=(value) selected[value == chosen] { (text) }
                }
                @if !is_listed { option value=(chosen) selected { (chosen) } }
            }
        }
    }
}

fn text_field(view: &ActivitySelection, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        div.field.grow {
            label for=(name) { (label) }
            input id=(name) name=(name) type="search" value=(view.condition(name)) placeholder=(hint)
                autocomplete="off";
        }
    }
}

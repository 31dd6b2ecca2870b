//! Calls of the last 30 days of each model or provider, for lists in that order.

use std::cmp::Reverse;
use std::collections::HashMap;

use canon::{Micros, Money};
use maud::{Markup, html};
use store::{CallFilter, GroupBy, GroupOrder, ReportTotals, UsageRequest, UsageStep};

use crate::display;
use crate::page_error::PageError;
use crate::state::ConsoleState;

const LENGTH: Micros = Micros::from_days(30);

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UsageOrder {
    /// By name.
    #[default]
    Name,
    /// The largest spending first.
    Spent,
    /// The most calls first.
    Calls,
}

impl UsageOrder {
    const ALL: [Self; 3] = [Self::Name, Self::Spent, Self::Calls];

    /// Orders with their labels.
    pub(super) const LABELS: [(&str, &str); 3] = [
        (Self::Name.word(), "Name"),
        (Self::Spent.word(), "Spent in 30 days"),
        (Self::Calls.word(), "Calls in 30 days"),
    ];

    /// The word in addresses.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Spent => "spent",
            Self::Calls => "calls",
        }
    }

    /// Returns the order with that word.
    pub(super) fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }
}

/// Number and cost of some calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallSum {
    calls: i64,
    cost: Money,
}

/// Sums of the calls of the last 30 days, by the name of a model or provider.
pub(super) struct RecentUsage(HashMap<String, ReportTotals>);

impl RecentUsage {
    /// Reads the sums.
    pub(super) async fn load(state: &ConsoleState, by: GroupBy) -> Result<Self, PageError> {
        let now = state.now();
        let request = UsageRequest {
            // Whole hours, so that no call is read.
            range: UsageStep::Day.begin(now - LENGTH)..UsageStep::Hour.end(now),
            steps: Vec::new(),
            by,
            tag: None,
            rank: GroupOrder::Cost,
            filter: CallFilter::default(),
            listed: usize::MAX,
            with_series: 0,
        };
        let report = state.store.usage_view(&request).await?;
        Ok(Self(report.top.into_iter().collect()))
    }

    /// Returns the sum of all these names.
    pub(super) fn of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> CallSum {
        let found = names.into_iter().filter_map(|name| self.0.get(name));
        found.fold(CallSum::default(), |sum, totals| CallSum {
            calls: sum.calls.saturating_add(totals.calls),
            cost: sum.cost.saturating_add(totals.cost),
        })
    }
}

/// Sorts a list that is ordered by name.
pub(super) fn sort<T>(rows: &mut [(T, CallSum)], order: UsageOrder) {
    match order {
        UsageOrder::Name => {}
        UsageOrder::Spent => rows.sort_by_key(|(_, sum)| Reverse(sum.cost)),
        UsageOrder::Calls => rows.sort_by_key(|(_, sum)| Reverse(sum.calls)),
    }
}

impl CallSum {
    /// Cells with the number of calls and their cost.
    pub(super) fn cells(self) -> Markup {
        html! {
            td.num data-label="Calls in 30 days" { (display::count(self.calls.max(0).unsigned_abs())) }
            td.num data-label="Spent in 30 days" { (display::money(self.cost)) }
        }
    }

    /// The same as a text.
    pub(super) fn line(self) -> Markup {
        let calls = usize::try_from(self.calls).unwrap_or_default();
        html! { (display::plural(calls, "call", "calls")) " and " (display::money(self.cost)) " in 30 days" }
    }
}

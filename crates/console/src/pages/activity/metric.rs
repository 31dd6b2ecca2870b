//! The quantity that a chart shows.

use canon::{Micros, Money};
use store::{GroupOrder, LatencyTotals, ReportTotals};

use crate::display;

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageMetric {
    Spend,
    Tokens,
    Calls,
    Latency,
}

impl UsageMetric {
    pub(super) const ALL: [Self; 4] = [Self::Spend, Self::Tokens, Self::Calls, Self::Latency];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Tokens => "tokens",
            Self::Calls => "calls",
            Self::Latency => "latency",
        }
    }

    pub(super) fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == word)
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Spend => "Spend",
            Self::Tokens => "Tokens",
            Self::Calls => "Calls",
            Self::Latency => "Latency",
        }
    }

    pub(super) const fn group_order(self) -> GroupOrder {
        match self {
            Self::Spend => GroupOrder::Cost,
            Self::Tokens => GroupOrder::Tokens,
            Self::Calls | Self::Latency => GroupOrder::Calls,
        }
    }

    pub(super) fn value_of(self, totals: &ReportTotals) -> i64 {
        match self {
            Self::Spend => totals.cost.as_nanos(),
            Self::Tokens => totals.input.saturating_add(totals.output),
            Self::Calls | Self::Latency => totals.calls,
        }
    }

    pub(super) fn formatter(self) -> fn(i64) -> String {
        match self {
            Self::Spend => |nanos| display::dollars(Money::from_nanos(nanos)),
            Self::Tokens | Self::Calls => |count| display::short_count(count.max(0).unsigned_abs()),
            Self::Latency => |micros| display::duration(Micros::new(micros)),
        }
    }
}

/// Selects one percentile of the latencies.
pub(super) type LatencyPick = fn(&LatencyTotals) -> Option<Micros>;

//! Spending of a key against its limits, and the headers that tell an agent about it.
//!
//! The headers are those of Claude Code's usage notice (`GET /protocol` of `claude gateway`). Only keys
//! that were made by signing in get them, so that other calls do no work for it.

use access::keys::ApiKey;
use canon::{Micros, Money};
use ledger::{BudgetPeriod, BudgetStatus, KeySpending};
use std::time::Duration;
use transport::ReplyHeaders;

use crate::state::ApiState;

const PREFIX: &str = "anthropic-ratelimit-unified-";

/// Spending against one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpendStanding {
    pub(crate) limit: Money,
    pub(crate) spent: Money,
    /// The period and its end; `None` for a limit over all time.
    pub(crate) period: Option<(BudgetPeriod, Micros)>,
}

impl SpendStanding {
    fn of_budget(budget: Option<BudgetStatus>) -> Option<Self> {
        let BudgetStatus { money, period, resets } = budget?;
        Some(Self { limit: money.cap?, spent: money.spent, period: Some((period, resets)) })
    }

    /// Whole percents of the limit that are spent.
    pub(crate) fn percent(&self) -> i64 {
        self.spent.percent_of(self.limit)
    }

    /// The word of a period in the contract.
    pub(crate) const fn period_word(period: BudgetPeriod) -> &'static str {
        match period {
            BudgetPeriod::Day => "daily",
            BudgetPeriod::Week => "weekly",
            BudgetPeriod::Month => "monthly",
        }
    }
}

/// Returns the limits of a key and of its account with what is spent of them, and true if none is
/// missing because the store did not answer.
pub(crate) async fn standings(state: &ApiState, key: &ApiKey) -> (Vec<SpendStanding>, bool) {
    let terms = key.account.spend_terms(&key.record);
    if terms.is_unlimited() {
        return (Vec::new(), true);
    }
    let funds = &state.engine.funds;
    let KeySpending { own, budget, account_budget } = funds.key_status(&key.balance).await;
    let own_cap =
        terms.key_cap.map(|limit| SpendStanding { limit, spent: own.spent, period: None });
    let account_cap = match terms.account_cap {
        Some(limit) => {
            let balance = funds.account_balance(&key.record.account_id, limit).await;
            balance.map(|(spent, _)| SpendStanding { limit, spent, period: None })
        }
        None => None,
    };
    let is_whole = terms.key_budget.is_some() == budget.is_some()
        && terms.account_budget.is_some() == account_budget.is_some()
        && terms.account_cap.is_some() == account_cap.is_some();
    let budgets = [budget, account_budget].map(SpendStanding::of_budget);
    (budgets.into_iter().chain([own_cap, account_cap]).flatten().collect(), is_whole)
}

/// Adds the headers of a call that was answered. A node that does not know the standing says nothing.
pub(crate) fn add_headers(state: &ApiState, key: &ApiKey, headers: &mut ReplyHeaders) {
    let now = state.clock().now();
    let mut all = state.standings.known(key);
    // A period that has ended since was another one.
    all.retain(|standing| standing.period.is_none_or(|(_, resets)| now < resets));
    let Some(fullest) = all.into_iter().max_by_key(SpendStanding::percent) else { return };
    // The share stays below 1 while calls are answered.
    let percent = fullest.percent().clamp(0, 99);
    let threshold = match percent {
        95.. => Some("0.95"),
        75.. => Some("0.75"),
        _ => None,
    };
    let status = if threshold.is_some() { "allowed_warning" } else { "allowed" };
    insert(headers, "status", status);
    insert(headers, "representative-claim", "overage");
    insert(headers, "overage-status", status);
    insert(headers, "overage-utilization", &format!("0.{percent:02}"));
    if let Some(threshold) = threshold {
        insert(headers, "overage-surpassed-threshold", threshold);
    }
    add_reset(headers, fullest.period.map(|(_, resets)| resets));
}

/// Adds the headers of a call that was refused because a limit is reached. Without a claim and an
/// overage status the client prints the message of the error. The refusal says when its limit resets,
/// and the period is that of the budget which resets then.
pub(crate) fn add_rejected_headers(
    now: Micros,
    key: &ApiKey,
    retry_after: Option<Duration>,
    headers: &mut ReplyHeaders,
) {
    insert(headers, "status", "rejected");
    insert(headers, "overage-utilization", "1");
    insert(headers, "overage-surpassed-threshold", "1");
    insert(headers, "overage-disabled-reason", "org_spend_cap_reached");
    let terms = key.account.spend_terms(&key.record);
    let Some(wait) = retry_after else { return };
    let periods = [terms.key_budget, terms.account_budget].into_iter().flatten();
    let resets = periods.map(|budget| (budget.period, budget.period.end(now)));
    let nearest = resets.min_by_key(|(_, resets)| (*resets - now).to_duration().abs_diff(wait));
    if let Some((period, resets)) = nearest {
        insert(headers, "overage-period", SpendStanding::period_word(period));
        add_reset(headers, Some(resets));
    }
}

fn add_reset(headers: &mut ReplyHeaders, resets: Option<Micros>) {
    if let Some(resets) = resets {
        let seconds = resets.as_secs().to_string();
        insert(headers, "reset", &seconds);
        insert(headers, "overage-reset", &seconds);
    }
}

fn insert(headers: &mut ReplyHeaders, name: &str, value: &str) {
    headers.insert(&format!("{PREFIX}{name}"), value.as_bytes());
}

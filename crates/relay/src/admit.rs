//! Admission: reserves the maximum cost of a call before the first byte goes to a provider.

use canon::{ApiError, ErrorKind, Micros, Money, SharedText};
use catalog::ModelKind;
use dialects::RequestFacts;
use ledger::{
    BudgetStatus, HoldRecord, HoldRefusal, HoldShortage, HoldTicket, KeyBalance, KeySpending,
    MoneyBound,
};
use std::sync::Arc;
use std::time::Duration;
use upstream::HealthTracker;

use super::media_refs::MediaRefs;
use super::settle::{BYTES_PER_TOKEN, BoxedAccount, CallAccount};
use super::sizing::{affordable_output, likely_input_bytes, max_cost, max_input_tokens, max_units};
use super::{Call, route, session};
use crate::engine::Engine;
use config::{LiveLane, Route};

const SECOND: Duration = Duration::from_secs(1);
/// A call is refused if the money covers fewer output tokens than this.
const MIN_USEFUL_OUTPUT_TOKENS: u64 = 16;
/// Output estimate for the token rate limit if the caller sets no limit.
const DEFAULT_OUTPUT_TOKENS: u64 = 512;
/// Output limit if neither the caller nor the catalogue sets one.
const UNKNOWN_MAX_OUTPUT_TOKENS: u64 = 32_768;

/// Time after which a caller may retry whose money is reserved for other calls.
const MONEY_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Owner of the money in error messages.
const KEY_NOUN: &str = "API key";
const ACCOUNT_NOUN: &str = "account";
/// The person who can raise a limit.
const ASK_OWNER: &str = "ask the owner of the key";
const ASK_ADMINISTRATOR: &str = "ask an administrator of this gateway";

pub(super) struct AdmittedCall {
    /// Settled when dropped.
    pub(super) account: BoxedAccount,
    /// Output limit that the money covers, if that is less than requested.
    pub(super) lowered_limit: Option<u64>,
    /// Output limit requested by the caller, or the model's own.
    pub(super) requested_output: u64,
}

/// Reserves an upper bound of the call's cost, or lowers the output limit to what the key can pay.
/// Media named by URL, and what only the provider can see, count in addition to the bytes of the body.
pub(super) async fn admit(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> Result<AdmittedCall, ApiError> {
    let model = &route.model;
    let input = max_input_tokens(call, facts, route, media);
    let requested_output = facts
        .max_output_tokens
        .or(model.capabilities.max_output_tokens)
        .unwrap_or(UNKNOWN_MAX_OUTPUT_TOKENS);
    let candidates = u64::from(facts.candidates.max(1));
    let units = max_units(facts, route);
    // Any lane may answer, so the most expensive one counts.
    let bound = |output: u64| max_cost(route, input, facts.max_output(output), &units);
    let mut account = CallAccount::new(call, facts, route);
    let input_bytes = likely_input_bytes(call, route, media);
    account.set_input_bytes(input_bytes);
    let record = hold_record(call, facts, route, &mut account, |lane, health| {
        let output = match model.kind {
            ModelKind::Chat | ModelKind::Image => health.usual_output(SECOND),
            ModelKind::Embedding => 0,
        };
        let input = input_bytes.div_ceil(BYTES_PER_TOKEN);
        lane.prices.running_cost(input, output.saturating_mul(candidates))
    });
    let full = bound(requested_output);
    let least = || bound(requested_output.min(MIN_USEFUL_OUTPUT_TOKENS));
    let ticket = match reserve(call, record, full, least).await {
        Ok(ticket) => ticket,
        Err(error) => return Err(account.record_refusal(call, facts, error)),
    };
    let limit = (ticket.amount() < full)
        .then(|| affordable_output(bound, ticket.amount(), requested_output));
    let lowered = limit.map(|limit| facts.max_output(limit));
    let account = account.attach_hold(ticket, facts.max_output(requested_output), lowered);
    Ok(AdmittedCall { account, lowered_limit: limit, requested_output })
}

/// Returns an error if the key cannot pay the smallest useful output of the call now. Reserves nothing.
pub(super) async fn check_least_funds(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> Result<(), ApiError> {
    let input = max_input_tokens(call, facts, route, media);
    let output = facts.max_output_tokens.or(route.model.capabilities.max_output_tokens);
    let output = output.unwrap_or(MIN_USEFUL_OUTPUT_TOKENS).min(MIN_USEFUL_OUTPUT_TOKENS);
    let bound = max_cost(route, input, facts.max_output(output), &max_units(facts, route));
    check_funds(call, bound).await
}

/// Reserves the maximum cost in full, or refuses the call.
pub(super) async fn admit_with_max_cost(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    bound: Money,
    likely_cost: impl Fn(&LiveLane) -> Money,
) -> Result<BoxedAccount, ApiError> {
    let mut account = CallAccount::new(call, facts, route);
    let record = hold_record(call, facts, route, &mut account, |lane, _| {
        (likely_cost(lane), lane.prices.running_cost(0, 0).1)
    });
    match reserve(call, record, bound, || bound).await {
        Ok(ticket) => {
            Ok(account.attach_hold(ticket, facts.max_output_tokens.unwrap_or_default(), None))
        }
        Err(error) => Err(account.record_refusal(call, facts, error)),
    }
}

/// Chooses the lanes to try and describes the call for the journal, with all that settles it if the
/// gateway dies: its first lane, the cost of its start there and the cost of each second.
fn hold_record(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    account: &mut CallAccount,
    costs: impl Fn(&LiveLane, &HealthTracker) -> (Money, Money),
) -> Arc<HoldRecord> {
    let session = session::find(call, facts);
    let wanted = (&facts.needs, session.as_deref());
    let now = call.engine.monotonic_now();
    let candidates = route::placed_candidates(call, wanted, route, now);
    let first = candidates.first();
    let (start_cost, cost_per_second) =
        first.map(|first| costs(&first.lane, &first.health)).unwrap_or_default();
    let lane = first.map(|first| first.lane.name.clone()).unwrap_or_default();
    account.set_candidates(candidates, |one| costs(&one.lane, &one.health));
    Arc::new(HoldRecord {
        request_id: Arc::clone(&call.id).into(),
        key_id: call.key.balance.key_id().clone(),
        account_id: call.key.balance.share_account(&call.key.record.account_id),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: SharedText::fixed(call.dialect.origin().as_str()),
        model: shared_name(route, &facts.model),
        stream: facts.stream,
        price_version: route.model.prices.version.clone(),
        lease: None,
        lane,
        start_cost,
        cost_per_second,
        session: session.unwrap_or_default(),
        end_user: call.options.labels.end_user(&facts.labels),
        tags: call.options.labels.tags(&facts.labels),
    })
}

/// Returns the requested name of the model. It is an alias of the model or its id, which all records share.
fn shared_name(route: &Route, name: &str) -> SharedText {
    if route.model_id == *name { route.model_id.clone() } else { name.into() }
}

/// Returns an error if the key cannot pay this amount now. Reserves nothing: the task does that
/// when it runs.
pub(super) async fn check_funds(call: &Call, bound: Money) -> Result<(), ApiError> {
    let KeySpending { own, budget, account_budget } =
        call.engine.funds.key_status(&call.key.balance).await;
    let cap = match call.key.record.cap {
        Some(_) => MoneyBound::KeyCap,
        None => MoneyBound::AccountCap,
    };
    let budgets = [(MoneyBound::KeyBudget, budget), (MoneyBound::AccountBudget, account_budget)];
    let budgets = budgets.into_iter().filter_map(|(bound, status)| {
        status.map(|BudgetStatus { money, resets, .. }| (bound, money, Some(resets)))
    });
    let shortages = [(cap, own, None)].into_iter().chain(budgets).filter_map(|one| {
        let (limits, status, resets) = one;
        let (limit, left) = (status.cap?, status.remaining()?);
        let is_spent = limit.saturating_sub(status.spent) < bound;
        let spent = status.spent;
        (left < bound).then_some(HoldShortage {
            bound: limits,
            limit,
            spent,
            left,
            resets,
            is_spent,
        })
    });
    // A limit that is used up comes before one whose money is only reserved.
    match shortages.max_by_key(|shortage| shortage.is_spent) {
        Some(shortage) => Err(no_money(&shortage, bound, call.engine.clock.now())),
        None => Ok(()),
    }
}

/// Reserves money from the key's balance: all of `full`, or at least `least`. Its leases respect the caps
/// and budgets of the key and its account.
async fn reserve(
    call: &Call,
    record: Arc<HoldRecord>,
    full: Money,
    least: impl Fn() -> Money,
) -> Result<HoldTicket, ApiError> {
    let payer = (&*call.engine, &call.key.balance);
    reserve_from(payer, call.config.money_wait, record, full, least).await
}

/// Reserves money from a balance: all of `full`, or at least `least`.
pub(super) async fn reserve_from(
    (engine, balance): (&Engine, &Arc<KeyBalance>),
    wait: Duration,
    record: Arc<HoldRecord>,
    full: Money,
    least: impl Fn() -> Money,
) -> Result<HoldTicket, ApiError> {
    match engine.funds.reserve(balance, record, full, &least, wait).await {
        Ok(ticket) => Ok(ticket),
        Err(HoldRefusal::Spent(shortage) | HoldRefusal::Held(shortage)) => {
            Err(no_money(&shortage, least(), engine.clock.now()))
        }
        Err(HoldRefusal::Journal(e)) => Err(cannot_account().with_log_note(e.to_string())),
        Err(HoldRefusal::Unreachable(why)) => Err(cannot_account().with_log_note(why)),
    }
}

/// The error of a call that needs more money than a limit leaves. Money that is only reserved for
/// other calls may be free in a moment, so official clients are told to retry.
fn no_money(shortage: &HoldShortage, needed: Money, now: Micros) -> ApiError {
    let HoldShortage { bound, limit, spent, left, resets, is_spent } = shortage;
    let (name, owner, ask) = match bound {
        MoneyBound::KeyCap => ("spending cap", KEY_NOUN, ASK_OWNER),
        MoneyBound::AccountCap => ("spending cap", ACCOUNT_NOUN, ASK_ADMINISTRATOR),
        MoneyBound::KeyBudget => ("budget", KEY_NOUN, ASK_OWNER),
        MoneyBound::AccountBudget => ("budget", ACCOUNT_NOUN, ASK_ADMINISTRATOR),
    };
    let wait = resets.map(|resets| (resets - now).max(Micros::ZERO).to_duration());
    let resets = resets.and_then(|time| jiff::Timestamp::from_microsecond(time.get()).ok());
    if *is_spent {
        let message = match resets {
            Some(resets) => format!(
                "the {name} of this {owner} for this period is used up: the call needs {needed} USD \
                 and {left} USD are left; it resets at {resets}; {ask} for more"
            ),
            None => format!(
                "the {name} of this {owner} is reached: the call needs {needed} USD and {left} USD \
                 are left, and it does not reset; {ask} for more"
            ),
        };
        let error = ApiError::new(ErrorKind::QuotaExceeded, message);
        return match wait {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        };
    }
    let reserved = shortage.reserved();
    let message = format!(
        "{reserved} USD of the {name} of this {owner} ({limit} USD) are reserved for running calls \
         and {spent} USD are spent; retry when some of these calls have ended"
    );
    ApiError::new(ErrorKind::RateLimited, message)
        .with_code("money_reserved")
        .with_retry_after(MONEY_RETRY_AFTER)
}

/// Counts an estimate of the call's tokens against the rate limits: the body as text, plus the
/// caller's output limit or a default.
pub(super) async fn check_token_rate(call: &Call, facts: &RequestFacts) -> Result<(), ApiError> {
    let Some(permit) = &call.admission.rate else { return Ok(()) };
    let input = (call.body.len() as u64).div_ceil(BYTES_PER_TOKEN);
    let output = facts
        .max_output_tokens
        .unwrap_or(DEFAULT_OUTPUT_TOKENS)
        .saturating_mul(facts.candidates.max(1).into());
    permit.estimate_tokens(input.saturating_add(output)).await
}

fn cannot_account() -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "calls cannot be accounted for at the moment, retry later")
}

//! Admission: reserves the maximum cost of a call before the first byte goes to a provider.

use canon::{ApiError, ErrorKind, Micros, Money};
use dialects::RequestFacts;
use ledger::{BudgetShare, HoldRecord, HoldRefusal, HoldTicket, OverBudget};
use std::sync::Arc;

use super::Call;
use super::media_refs::MediaRefs;
use super::settle::{BYTES_PER_TOKEN, BoxedAccount, CallAccount};
use super::sizing::{affordable_output, likely_input_bytes, max_cost, max_input_tokens, max_units};
use config::Route;

/// A call is refused if the money covers fewer output tokens than this.
const MIN_USEFUL_OUTPUT_TOKENS: u64 = 16;
/// Output estimate for the token rate limit if the caller sets no limit.
const DEFAULT_OUTPUT_TOKENS: u64 = 512;
/// Output limit if neither the caller nor the catalogue sets one.
const UNKNOWN_MAX_OUTPUT_TOKENS: u64 = 32_768;

/// Owner of the money in error messages.
const KEY_NOUN: &str = "API key";
const ACCOUNT_NOUN: &str = "account";

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
    let prices = Arc::clone(&model.prices);
    let input = max_input_tokens(call, facts, route, media);
    let requested_output =
        facts.max_output_tokens.or(model.max_output_tokens).unwrap_or(UNKNOWN_MAX_OUTPUT_TOKENS);
    let candidates = u64::from(facts.candidates.max(1));
    let units = max_units(facts, route);
    // Any lane may answer, so the most expensive one counts.
    let bound = |output: u64| max_cost(route, input, output.saturating_mul(candidates), &units);
    let record = hold_record(call, facts, &prices.version);
    let mut account = CallAccount::new(call, facts, model);
    account.set_input_bytes(likely_input_bytes(call, route, media));
    let full = bound(requested_output);
    let least = bound(requested_output.min(MIN_USEFUL_OUTPUT_TOKENS));
    let ticket = match reserve(call, record, full, least).await {
        Ok(ticket) => ticket,
        Err(error) => return Err(account.record_refusal(error)),
    };
    let limit = (ticket.amount() < full)
        .then(|| affordable_output(bound, ticket.amount(), requested_output));
    let all = |output: u64| output.saturating_mul(candidates);
    let account = account.attach_hold(ticket, all(requested_output), limit.map(all));
    Ok(AdmittedCall { account, lowered_limit: limit, requested_output })
}

/// Reserves the maximum cost in full, or refuses the call.
pub(super) async fn admit_with_max_cost(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    bound: Money,
) -> Result<BoxedAccount, ApiError> {
    let model = &route.model;
    let account = CallAccount::new(call, facts, model);
    match reserve(call, hold_record(call, facts, &model.prices.version), bound, bound).await {
        Ok(ticket) => {
            Ok(account.attach_hold(ticket, facts.max_output_tokens.unwrap_or_default(), None))
        }
        Err(error) => Err(account.record_refusal(error)),
    }
}

fn hold_record(call: &Call, facts: &RequestFacts, version: &str) -> Arc<HoldRecord> {
    Arc::new(HoldRecord {
        request_id: String::from(&*call.id),
        key_id: call.key.record.id.clone(),
        account_id: call.key.record.account_id.clone(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: call.dialect.origin().as_str().to_owned(),
        model: facts.model.clone(),
        stream: facts.stream,
        price_version: version.to_owned(),
        lease: None,
    })
}

/// Returns an error if the key cannot pay this amount now. Reserves nothing: the task does that
/// when it runs.
pub(super) async fn check_funds(call: &Call, bound: Money) -> Result<(), ApiError> {
    // The shares are dropped at once, which releases them.
    budget_shares(call, bound, bound).map(drop)?;
    match call.engine.funds.key_status(&call.key.balance).await.remaining() {
        Some(left) if left < bound => Err(over_cap(call, left)),
        Some(_) | None => Ok(()),
    }
}

/// Reserves money from the budgets of the key and its account and from the key's balance. Leases of
/// the balance respect the caps of both.
async fn reserve(
    call: &Call,
    record: Arc<HoldRecord>,
    full: Money,
    least: Money,
) -> Result<HoldTicket, ApiError> {
    let shares = budget_shares(call, full, least)?;
    let full = shares.iter().map(BudgetShare::amount).fold(full, Money::min);
    match call.engine.funds.reserve(&call.key.balance, record, full, least).await {
        Ok(ticket) => Ok(shares.into_iter().fold(ticket, HoldTicket::with_share)),
        Err(HoldRefusal::Cap { left } | HoldRefusal::Elsewhere { left }) => {
            Err(over_cap(call, left))
        }
        Err(HoldRefusal::Journal(e)) => Err(cannot_account().with_log_note(e.to_string())),
        Err(HoldRefusal::Unreachable(why)) => Err(cannot_account().with_log_note(why)),
    }
}

/// Reserves shares of the budgets that apply to the call.
fn budget_shares(call: &Call, full: Money, least: Money) -> Result<Vec<BudgetShare>, ApiError> {
    let key = &call.key;
    let mut shares: Vec<BudgetShare> = Vec::new();
    let mut full = full;
    let budgets = [(key.budget.clone(), KEY_NOUN), (key.account.budget(), ACCOUNT_NOUN)];
    for (budget, owner) in budgets {
        let Some(budget) = budget else { continue };
        let share = budget.reserve(call.engine.clock.now(), full, least);
        let share = share.map_err(|over| over_budget(over, owner))?;
        full = full.min(share.amount());
        shares.push(share);
    }
    Ok(shares)
}

fn over_cap(call: &Call, left: Money) -> ApiError {
    let owner = match (call.key.record.cap, call.key.account.cap()) {
        (Some(_), None) => KEY_NOUN,
        (None, _) => ACCOUNT_NOUN,
        (Some(_), Some(_)) => "API key or of its account",
    };
    let message = format!("the spending cap of this {owner} is reached: {left} USD are left");
    ApiError::new(ErrorKind::QuotaExceeded, message)
}

fn over_budget(over: OverBudget, owner: &str) -> ApiError {
    let OverBudget { left, resets } = over;
    let resets = jiff::Timestamp::from_microsecond(resets.get());
    let resets = resets.map(|time| time.to_string()).unwrap_or_default();
    let message = format!(
        "the budget of this {owner} for this period is used up: {left} USD are left; it resets \
         at {resets}"
    );
    ApiError::new(ErrorKind::QuotaExceeded, message)
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

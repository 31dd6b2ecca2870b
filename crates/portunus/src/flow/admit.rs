//! Admission: money is set aside before the first byte goes to a provider.

use canon::{Fault, Money, Trouble};
use dialects::Peek;
use ledger::{Held, OverBudget, Refused, Share, Ticket};
use std::sync::Arc;

use super::Call;
use super::fetch::Named;
use super::settle::{BYTES_PER_TOKEN, Tab};
use crate::config::Route;

/// An answer shorter than this is of no use to anyone.
const USEFUL: u64 = 16;
/// How much a model says, for an estimate, when the caller does not limit it.
const USUAL: u64 = 512;
/// How much a model may say when neither the caller nor the directory tells.
const UNKNOWN_MAX: u64 = 32_768;

/// A call that may run.
pub(super) struct Admitted {
    /// Its tab, settled when dropped.
    pub(super) tab: Tab,
    /// The output limit that fits the money, when that is less than was asked for.
    pub(super) limit: Option<u64>,
    /// The output limit that was asked for, or is the model's own.
    pub(super) asked: u64,
}

/// Sets aside a true upper bound of what the call can cost, or lowers its output limit to what the
/// key can still pay. What the body only names by address comes on top of its own bytes.
pub(super) async fn admit(
    call: &Call,
    peek: &Peek,
    route: &Route,
    named: &Named,
) -> Result<Admitted, Fault> {
    let model = &route.model;
    let prices = Arc::clone(&model.prices);
    // No tokeniser makes more tokens than there are bytes.
    let named = route.lanes.iter().map(|lane| named.tokens(&lane.serves)).max();
    let input = (call.body.len() as u64).saturating_add(named.unwrap_or_default());
    let asked = peek.max_output.or(model.max_output).unwrap_or(UNKNOWN_MAX);
    let candidates = u64::from(peek.candidates.max(1));
    // Any lane may be the one that answers, so the dearest counts.
    let bound = |output: u64| dearest(route, input, output.saturating_mul(candidates));
    let held = Arc::new(Held {
        request_id: call.id.to_string(),
        key_id: call.key.record.id.clone(),
        account_id: call.key.record.account_id.clone(),
        at: 0,
        amount: Money::ZERO,
        dialect: call.dialect.origin().name().to_owned(),
        model: peek.model.clone(),
        stream: peek.stream,
        price_version: prices.version.clone(),
        lease: None,
    });
    let tab = Tab::new(call, peek, model);
    let full = bound(asked);
    let least = bound(asked.min(USEFUL));
    let ticket = match hold(call, held, full, least).await {
        Ok(ticket) => ticket,
        Err(fault) => return Err(tab.refuse(fault)),
    };
    let limit = (ticket.amount() < full).then(|| affordable(bound, ticket.amount(), asked));
    Ok(Admitted { tab: tab.open(ticket), limit, asked })
}

/// Sets money aside: of the budget of this period, where the key has one, and of the key's purse.
async fn hold(call: &Call, held: Arc<Held>, full: Money, least: Money) -> Result<Ticket, Fault> {
    let share = call.key.budget.as_ref();
    let share = share.map(|budget| budget.take(call.app.clock.now(), full, least)).transpose();
    let share = share.map_err(over_budget)?;
    let full = share.as_ref().map_or(full, Share::amount);
    match call.app.set_aside(&call.key.purse, held, full, least).await {
        Ok(ticket) => Ok(match share {
            Some(share) => ticket.with(share),
            None => ticket,
        }),
        Err(Refused::Cap { left } | Refused::Elsewhere { left }) => Err(Fault::new(
            Trouble::Quota,
            format!("the spending cap of this API key is reached: {left} USD are left"),
        )),
        Err(Refused::Journal(e)) => Err(unaccountable().note(e.to_string())),
        Err(Refused::Away(why)) => Err(unaccountable().note(why)),
    }
}

fn over_budget(over: OverBudget) -> Fault {
    let OverBudget { left, resets } = over;
    let resets = jiff::Timestamp::from_microsecond(resets);
    let resets = resets.map(|time| time.to_string()).unwrap_or_default();
    let say = format!(
        "the budget of this API key for this period is used up: {left} USD are left; it begins \
         anew at {resets}"
    );
    Fault::new(Trouble::Quota, say)
}

/// Counts the tokens the call will use against the limits of its key and account, by estimate: the
/// body as text, and the output limit if the caller set one.
pub(super) async fn pace(call: &Call, peek: &Peek) -> Result<(), Fault> {
    let Some(pass) = &call.pass else { return Ok(()) };
    let input = (call.body.len() as u64).div_ceil(BYTES_PER_TOKEN);
    let output = peek.max_output.unwrap_or(USUAL).saturating_mul(peek.candidates.max(1).into());
    pass.estimate(input.saturating_add(output)).await
}

/// Waits until the hold survives the death of the machine, where the operator asks for that.
pub(super) async fn secure(call: &Call) -> Result<(), Fault> {
    if !call.config.power_safe {
        return Ok(());
    }
    let book = Arc::clone(&call.app.book);
    match tokio::task::spawn_blocking(move || book.sync()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(unaccountable().note(e.to_string())),
        Err(e) => Err(Fault::internal(e.to_string())),
    }
}

fn unaccountable() -> Fault {
    Fault::new(Trouble::Overload, "no call can be accounted for at the moment")
}

/// The most any lane could charge.
pub(super) fn dearest(route: &Route, input: u64, output: u64) -> Money {
    let bounds = route.prices.iter().map(|prices| prices.bound(input, output));
    bounds.max().unwrap_or_else(|| route.model.prices.bound(input, output))
}

/// The largest output limit whose bound the money covers.
fn affordable(bound: impl Fn(u64) -> Money, money: Money, asked: u64) -> u64 {
    let (mut fits, mut too_much) = (0, asked.saturating_add(1));
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if bound(middle) <= money {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}

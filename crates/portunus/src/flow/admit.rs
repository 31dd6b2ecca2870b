//! Admission: money is set aside before the first byte goes to a provider.

use canon::{Fault, Money, Trouble};
use catalog::Prices;
use dialects::Peek;
use ledger::{Held, Refused};
use std::sync::Arc;

use super::Call;
use super::settle::Tab;
use crate::config::Route;

/// An answer shorter than this is of no use to anyone.
const USEFUL: u64 = 16;
/// How much a model may say when neither the caller nor the directory tells.
const UNKNOWN_MAX: u64 = 32_768;

/// A call that may run.
pub(super) struct Admitted {
    /// Its tab, settled when dropped.
    pub(super) tab: Tab,
    /// The output limit that fits the money, when that is less than was asked for.
    pub(super) limit: Option<u64>,
}

/// Sets aside a true upper bound of what the call can cost, or lowers its output limit to what the
/// key can still pay.
pub(super) async fn admit(call: &Call, peek: &Peek, route: &Route) -> Result<Admitted, Fault> {
    let model = &route.model;
    let prices = Arc::clone(&model.prices);
    // No tokeniser makes more tokens than there are bytes.
    let input = call.body.len() as u64;
    let asked = peek.max_output.or(model.max_output).unwrap_or(UNKNOWN_MAX);
    let candidates = u64::from(peek.candidates.max(1));
    let bound = |output: u64| prices.bound(input, output.saturating_mul(candidates));
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
    let tab = Tab::new(call, peek, &prices);
    let full = bound(asked);
    let least = bound(asked.min(USEFUL));
    let ticket = match call.app.set_aside(&call.key.purse, held, full, least).await {
        Ok(ticket) => ticket,
        Err(Refused::Cap { left } | Refused::Elsewhere { left }) => {
            let fault = Fault::new(
                Trouble::Quota,
                format!("the spending cap of this API key is reached: {left} USD are left"),
            );
            return Err(tab.refuse(fault));
        }
        Err(Refused::Journal(e)) => {
            return Err(tab.refuse(unaccountable().note(e.to_string())));
        }
        Err(Refused::Away(why)) => return Err(tab.refuse(unaccountable().note(why))),
    };
    let limit = (ticket.amount() < full)
        .then(|| affordable(&prices, input, candidates, ticket.amount(), asked));
    Ok(Admitted { tab: tab.open(ticket), limit })
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

/// The largest output limit whose bound the money covers.
fn affordable(prices: &Prices, input: u64, candidates: u64, money: Money, asked: u64) -> u64 {
    let (mut fits, mut too_much) = (0, asked.saturating_add(1));
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if prices.bound(input, middle.saturating_mul(candidates)) <= money {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}

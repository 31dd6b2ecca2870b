//! Browsers in which somebody has signed in before. They carry a cookie of their own, and guessing
//! elsewhere does not slow them down
//! (<https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies>).

use axum::response::Response;
use canon::Micros;
use http::HeaderMap;
use store::{Account, KnownDevice};

use crate::cookies::{self, CookieKind};
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::throttle::{AttemptSource, ClientNetwork};
use admin::random;

/// Time since the last sign-in after which a browser is forgotten.
const DEVICE_LIFETIME: Micros = Micros::from_days(180);
const MAX_DEVICES_PER_ACCOUNT: u32 = 20;

/// Returns the source of an attempt on an account: the browser, if the account knows it, or else
/// the network.
pub(crate) async fn attempt_source(
    state: &ConsoleState,
    headers: &HeaderMap,
    account: Option<&Account>,
    network: ClientNetwork,
) -> Result<AttemptSource, PageError> {
    let sent = cookies::read(state, headers, CookieKind::Device);
    let (Some(token), Some(account)) = (sent, account) else {
        return Ok(AttemptSource::Network(network));
    };
    let hash = random::digest(&token);
    let seen = state.store.device_seen(&hash, &account.id).await?;
    let known = seen.is_some_and(|seen| state.now() - seen < DEVICE_LIFETIME);
    Ok(if known { AttemptSource::Device(hash) } else { AttemptSource::Network(network) })
}

/// Makes the browser of a sign-in known to the account.
///
/// The token is always a new one. Otherwise an attacker could plant a token of their own in the
/// browser and guess with it once its owner has signed in.
pub(crate) async fn remember(
    state: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    response: &mut Response,
) -> Result<(), PageError> {
    let token = random::random_token().map_err(|_| PageError::Internal)?;
    let (hash, now) = (random::digest(&token), state.now());
    let old = cookies::read(state, headers, CookieKind::Device).map(|old| random::digest(&old));
    let device =
        KnownDevice { hash: &hash, replaces: old.as_deref(), account_id: &account.id, seen: now };
    state.store.remember_device(device, MAX_DEVICES_PER_ACCOUNT, now - DEVICE_LIFETIME).await?;
    cookies::set(state, response, CookieKind::Device, &token, DEVICE_LIFETIME.as_secs());
    Ok(())
}

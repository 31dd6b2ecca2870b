//! Final steps shared by all sign-in methods.

use axum::response::Response;
use http::HeaderMap;
use store::{Account, Factor, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::page_error::PageError;
use crate::redirect::see_other;
use crate::session;
use crate::state::ConsoleState;
use crate::throttle::ClientNetwork;
use admin::is_second_factor;

/// Continues after a correct password: signs the user in, or asks for the second factor.
pub(crate) async fn after_password(
    state: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    next: &str,
) -> Result<Response, PageError> {
    let factors = state.store.factors_of(&account.id).await?;
    if !factors.iter().any(|factor| is_second_factor(factor.kind)) {
        return complete_sign_in(state, headers, account, "password", next).await;
    }
    let note = LinkData { next: Some(next.to_owned()), ..LinkData::default() };
    let token = links::create(
        state,
        LinkPurpose::Second,
        Some(&account.id),
        &note,
        LINK_LIFETIMES.sign_in_step,
    )
    .await?;
    let mut response = see_other("/login/second");
    cookies::set(
        state,
        &mut response,
        CookieKind::SecondFactor,
        &token,
        LINK_LIFETIMES.sign_in_step.as_secs(),
    );
    Ok(response)
}

/// A sign-in whose first step is done, with the factors of the account.
pub(crate) struct PendingSignIn {
    pub(crate) account: Account,
    pub(crate) factors: Vec<Factor>,
    pub(crate) next: String,
    hash: Vec<u8>,
}

impl PendingSignIn {
    /// Returns the pending sign-in of this browser; `None` if there is none or it expired.
    pub(crate) async fn from_request(
        state: &ConsoleState,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, PageError> {
        let Some(token) = cookies::read(state, headers, CookieKind::SecondFactor) else {
            return Ok(None);
        };
        let link = state.store.link(&admin::random::digest(&token)).await?;
        let fits = |link: &store::Link| {
            link.purpose == LinkPurpose::Second && links::is_valid(state, link)
        };
        let Some(link) = link.filter(fits) else { return Ok(None) };
        let Some(id) = &link.account_id else { return Ok(None) };
        let Some(account) = state.store.account(id).await?.filter(|account| !account.disabled)
        else {
            return Ok(None);
        };
        let factors = state.store.factors_of(id).await?;
        let next = links::link_data(&link).next.unwrap_or_else(|| "/console".to_owned());
        Ok(Some(Self { account, factors, next, hash: link.hash }))
    }

    /// A signed-in user who re-authenticates with a second factor.
    pub(crate) const fn for_signed_in(account: Account, factors: Vec<Factor>) -> Self {
        Self { account, factors, next: String::new(), hash: Vec::new() }
    }

    /// Completes the sign-in. Only one of several concurrent requests succeeds.
    pub(crate) async fn complete(
        self,
        state: &ConsoleState,
        headers: &HeaderMap,
        how: &str,
    ) -> Result<Response, PageError> {
        state
            .store
            .take_link(&self.hash, LinkPurpose::Second)
            .await?
            .ok_or(PageError::InvalidLink)?;
        complete_sign_in(state, headers, &self.account, how, &self.next).await
    }
}

/// Starts the session and audits the sign-in method.
pub(crate) async fn complete_sign_in(
    state: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    how: &str,
    next: &str,
) -> Result<Response, PageError> {
    state.host.accounts().record_sign_in(account, how).await?;
    session::start_session(state, headers, account, next).await
}

/// Records a refused sign-in whose attempts have no limit: by passkey or identity provider. The
/// number of lines is limited per network.
pub(crate) async fn record_refusal(
    state: &ConsoleState,
    network: ClientNetwork,
    account: Option<&Account>,
    method: &str,
) -> Result<(), PageError> {
    let network = format!("{network:?}");
    match state.refusal_throttle.admit_name(&state.store, &network, state.now()).await {
        Ok(()) => Ok(state.host.accounts().record_refused_sign_in(account, method).await?),
        Err(PageError::RateLimited(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

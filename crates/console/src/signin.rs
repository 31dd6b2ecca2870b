//! The last steps of a sign-in, whatever it began with.

use axum::response::Response;
use http::HeaderMap;
use store::{Account, Factor, FactorKind, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::layout::see_other;
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::page_error::PageError;
use crate::session;
use crate::state::ConsoleState;

/// The password was right: in, or on to the second factor where there is one.
pub(crate) async fn after_password(
    desk: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    next: &str,
) -> Result<Response, PageError> {
    let factors = desk.store.factors_of(&account.id).await?;
    if !factors.iter().any(|factor| is_second_factor(factor.kind)) {
        return welcome(desk, headers, account, "password", next).await;
    }
    let note = LinkData { next: Some(next.to_owned()), ..LinkData::default() };
    let word = links::create(
        desk,
        LinkPurpose::Second,
        Some(&account.id),
        &note,
        LINK_LIFETIMES.sign_in_step,
    )
    .await?;
    let mut response = see_other("/login/second");
    cookies::set(
        desk,
        &mut response,
        CookieKind::SecondFactor,
        &word,
        LINK_LIFETIMES.sign_in_step / 1_000_000,
    );
    Ok(response)
}

/// Whether having one makes a password not enough.
pub(crate) const fn is_second_factor(kind: FactorKind) -> bool {
    match kind {
        FactorKind::Totp | FactorKind::Passkey => true,
        FactorKind::Recovery => false,
    }
}

/// Who passed the first step in this browser, and what they have for the second.
pub(crate) struct PendingSignIn {
    pub(crate) account: Account,
    pub(crate) factors: Vec<Factor>,
    pub(crate) next: String,
    hash: Vec<u8>,
}

impl PendingSignIn {
    /// Of the request's browser; `None` when it passed no first step, or too long ago.
    pub(crate) async fn from_request(
        desk: &ConsoleState,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, PageError> {
        let Some(word) = cookies::read(desk, headers, CookieKind::SecondFactor) else {
            return Ok(None);
        };
        let link = desk.store.link(&admin::random::digest(&word)).await?;
        let fits =
            |link: &store::Link| link.purpose == LinkPurpose::Second && links::is_valid(desk, link);
        let Some(link) = link.filter(fits) else { return Ok(None) };
        let Some(id) = &link.account_id else { return Ok(None) };
        let Some(account) = desk.store.account(id).await?.filter(|account| !account.disabled)
        else {
            return Ok(None);
        };
        let factors = desk.store.factors_of(id).await?;
        let next = links::link_data(&link).next.unwrap_or_else(|| "/console".to_owned());
        Ok(Some(Self { account, factors, next, hash: link.hash }))
    }

    /// Somebody who is signed in and is to show a second step once more.
    pub(crate) const fn for_signed_in(account: Account, factors: Vec<Factor>) -> Self {
        Self { account, factors, next: String::new(), hash: Vec::new() }
    }

    /// The second step was passed too. Of all who try with one first step, one gets in.
    pub(crate) async fn complete(
        self,
        desk: &ConsoleState,
        headers: &HeaderMap,
        how: &str,
    ) -> Result<Response, PageError> {
        desk.store
            .take_link(&self.hash, LinkPurpose::Second)
            .await?
            .ok_or(PageError::InvalidLink)?;
        welcome(desk, headers, &self.account, how, &self.next).await
    }
}

/// In: a session, and a line in the audit log that says how.
pub(crate) async fn welcome(
    desk: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    how: &str,
    next: &str,
) -> Result<Response, PageError> {
    desk.audit(&account.id, "session.start", &account.id, how).await;
    session::start_session(desk, headers, account, next).await
}

//! The last steps of a sign-in, whatever it began with.

use axum::response::Response;
use http::HeaderMap;
use store::{Account, Factor, FactorKind, LinkPurpose};

use crate::cookies::{self, Jar};
use crate::desk::Desk;
use crate::links::{self, LIFE, Note};
use crate::session;
use crate::shell::see_other;
use crate::trouble::Trouble;

/// The password was right: in, or on to the second factor where there is one.
pub(crate) async fn password_right(
    desk: &Desk,
    headers: &HeaderMap,
    account: &Account,
    next: &str,
) -> Result<Response, Trouble> {
    let factors = desk.store.factors_of(&account.id).await?;
    if !factors.iter().any(|factor| counts(factor.kind)) {
        return welcome(desk, headers, account, "password", next).await;
    }
    let note = Note { next: Some(next.to_owned()), ..Note::default() };
    let word = links::make(desk, LinkPurpose::Second, Some(&account.id), &note, LIFE.step).await?;
    let mut response = see_other("/login/second");
    cookies::set(desk, &mut response, Jar::Second, &word, LIFE.step / 1_000_000);
    Ok(response)
}

/// Whether having one makes a password not enough.
pub(crate) const fn counts(kind: FactorKind) -> bool {
    match kind {
        FactorKind::Totp | FactorKind::Passkey => true,
        FactorKind::Recovery => false,
    }
}

/// Who passed the first step in this browser, and what they have for the second.
pub(crate) struct Halfway {
    pub(crate) account: Account,
    pub(crate) factors: Vec<Factor>,
    pub(crate) next: String,
    hash: Vec<u8>,
}

impl Halfway {
    /// Of the request's browser; `None` when it passed no first step, or too long ago.
    pub(crate) async fn of(desk: &Desk, headers: &HeaderMap) -> Result<Option<Self>, Trouble> {
        let Some(word) = cookies::sent(desk, headers, Jar::Second) else { return Ok(None) };
        let link = desk.store.link(&admin::random::digest(&word)).await?;
        let fits = |link: &store::Link| link.purpose == LinkPurpose::Second && links::alive(desk, link);
        let Some(link) = link.filter(fits) else { return Ok(None) };
        let Some(id) = &link.account_id else { return Ok(None) };
        let Some(account) = desk.store.account(id).await?.filter(|account| !account.disabled)
        else {
            return Ok(None);
        };
        let factors = desk.store.factors_of(id).await?;
        let next = links::note(&link).next.unwrap_or_else(|| "/console".to_owned());
        Ok(Some(Self { account, factors, next, hash: link.hash }))
    }

    /// Somebody who is signed in and is to show a second step once more.
    pub(crate) const fn once_more(account: Account, factors: Vec<Factor>) -> Self {
        Self { account, factors, next: String::new(), hash: Vec::new() }
    }

    /// The second step was passed too. Of all who try with one first step, one gets in.
    pub(crate) async fn welcome(
        self,
        desk: &Desk,
        headers: &HeaderMap,
        how: &str,
    ) -> Result<Response, Trouble> {
        desk.store.take_link(&self.hash, LinkPurpose::Second).await?.ok_or(Trouble::DeadLink)?;
        welcome(desk, headers, &self.account, how, &self.next).await
    }
}

/// In: a session, and a line in the audit log that says how.
pub(crate) async fn welcome(
    desk: &Desk,
    headers: &HeaderMap,
    account: &Account,
    how: &str,
    next: &str,
) -> Result<Response, Trouble> {
    desk.note(&account.id, "session.start", &account.id, how).await;
    session::start(desk, headers, account, next).await
}

//! Who may make an account: anyone, whoever was invited, or nobody. A setting in the store.

use store::{AccountTerms, AccountRole, StoreError};

use crate::desk::Desk;

/// The store's names for it, and for what such accounts may do and spend.
const NAME: &str = "signup";
const ROLE: &str = "signup_role";
const CAP: &str = "signup_cap_usd";

/// Who may make an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignUp {
    /// Anyone with an e-mail address.
    Open,
    /// Whoever was invited.
    Invited,
    /// Nobody.
    Closed,
}

impl SignUp {
    pub(crate) const ALL: [Self; 3] = [Self::Open, Self::Invited, Self::Closed];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invited => "invited",
            Self::Closed => "closed",
        }
    }

    /// What it means, for whoever chooses.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Open => "Open: anyone with an e-mail address",
            Self::Invited => "By invitation only",
            Self::Closed => "Closed: not even invitations work",
        }
    }

    pub(crate) fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// What is set; by invitation, unless somebody chose.
    pub(crate) async fn of(desk: &Desk) -> Result<Self, StoreError> {
        let word = desk.store.setting(NAME).await?;
        Ok(word.as_deref().and_then(Self::by_word).unwrap_or(Self::Invited))
    }
}

/// The role of whoever signs up by themselves.
pub(crate) async fn role(desk: &Desk) -> Result<AccountRole, StoreError> {
    let word = desk.store.setting(ROLE).await?;
    Ok(if word.as_deref() == Some(AccountRole::Viewer.word()) { AccountRole::Viewer } else { AccountRole::Member })
}

/// What an account may spend that somebody makes by themselves.
pub(crate) async fn terms(desk: &Desk) -> Result<AccountTerms, StoreError> {
    let text = desk.store.setting(CAP).await?;
    Ok(AccountTerms { cap: text.and_then(|text| text.parse().ok()), budget: None })
}

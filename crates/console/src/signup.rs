//! Sign-up mode and the terms of new accounts, stored as settings.

use store::{AccountRole, AccountTerms, StoreError};

use crate::state::ConsoleState;

/// Names of the settings.
const MODE_SETTING: &str = "signup";
const ROLE_SETTING: &str = "signup_role";
const CAP_SETTING: &str = "signup_cap_usd";

/// Rule for the creation of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignUpMode {
    /// Anyone with an e-mail address.
    Open,
    /// Invited people only.
    Invited,
    /// No new accounts.
    Closed,
}

impl SignUpMode {
    pub(crate) const ALL: [Self; 3] = [Self::Open, Self::Invited, Self::Closed];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invited => "invited",
            Self::Closed => "closed",
        }
    }

    /// Label of the choice.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Open => "Open: anyone with an e-mail address",
            Self::Invited => "By invitation only",
            Self::Closed => "Closed: not even invitations work",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// Loads the mode; by invitation if none is set.
    pub(crate) async fn load(state: &ConsoleState) -> Result<Self, StoreError> {
        let word = state.store.setting(MODE_SETTING).await?;
        Ok(word.as_deref().and_then(Self::parse).unwrap_or(Self::Invited))
    }
}

/// Role of accounts created without an invitation.
pub(crate) async fn default_role(state: &ConsoleState) -> Result<AccountRole, StoreError> {
    let word = state.store.setting(ROLE_SETTING).await?;
    Ok(if word.as_deref() == Some(AccountRole::Viewer.word()) {
        AccountRole::Viewer
    } else {
        AccountRole::Member
    })
}

/// Spending terms of accounts created without an invitation.
pub(crate) async fn default_terms(state: &ConsoleState) -> Result<AccountTerms, StoreError> {
    let text = state.store.setting(CAP_SETTING).await?;
    Ok(AccountTerms { cap: text.and_then(|text| text.parse().ok()), budget: None })
}

//! Who may make an account: anyone, whoever was invited, or nobody. A setting in the store.

use store::StoreError;

use crate::desk::Desk;

/// The store's name for it.
const NAME: &str = "signup";

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

    pub(crate) async fn set(self, desk: &Desk) -> Result<(), StoreError> {
        desk.store.put_setting(NAME, self.word()).await
    }
}

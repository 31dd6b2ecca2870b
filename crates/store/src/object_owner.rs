//! Ownership of stored answers, tasks, replays and receipts.
//!
//! An object belongs to the key that made it. The other keys of its account see it only if the
//! account shares its objects.

/// Sharing of objects between the keys of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectSharing {
    /// A key sees only the objects it made.
    #[default]
    Key,
    /// A key sees the objects of every key of its account.
    Account,
}

impl ObjectSharing {
    /// Every kind of sharing.
    pub const ALL: [Self; 2] = [Self::Key, Self::Account];

    /// The word in the database, in JSON and in flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Account => "account",
        }
    }

    /// Returns the sharing with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sharing| sharing.word() == word)
    }
}

/// The key or account whose objects a request may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOwner {
    account_id: String,
    /// `None` for the objects of every key of the account.
    key_id: Option<String>,
}

impl ObjectOwner {
    /// The owner of everything that belongs to an account.
    pub fn account(account_id: &str) -> Self {
        Self { account_id: account_id.to_owned(), key_id: None }
    }

    /// The owner of what one key of an account made.
    pub fn key(account_id: &str, key_id: &str) -> Self {
        Self { account_id: account_id.to_owned(), key_id: Some(key_id.to_owned()) }
    }

    /// The account.
    pub fn account_id(&self) -> &str {
        &self.account_id
    }

    /// The only key whose objects are seen; `None` for every key of the account.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Returns true if the object of this account and key may be seen. An object without a key is
    /// older than keys of objects and belongs to its whole account.
    pub fn owns(&self, account_id: &str, key_id: Option<&str>) -> bool {
        let same_key = |own: &str| key_id.is_none_or(|key_id| key_id == own);
        self.account_id == account_id && self.key_id().is_none_or(same_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_owns_its_own_objects_and_an_account_all_of_its_keys() {
        let (key, account) = (ObjectOwner::key("ada", "k1"), ObjectOwner::account("ada"));
        let objects = [
            ("ada", Some("k1"), true, true),
            ("ada", Some("k2"), false, true),
            ("ada", None, true, true),
            ("bob", Some("k1"), false, false),
            ("bob", None, false, false),
        ];
        for (account_id, key_id, by_key, by_account) in objects {
            assert_eq!(key.owns(account_id, key_id), by_key, "{account_id} {key_id:?}");
            assert_eq!(account.owns(account_id, key_id), by_account, "{account_id} {key_id:?}");
        }
    }
}

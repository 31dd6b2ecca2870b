//! Scopes of keys, and the parts that a scope can be narrowed to.

use crate::db::unknown_word;

/// The purpose a key was made for. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// Calls of models. Administration is refused.
    Call,
    /// Administration, with the rights of the key's account. Calls are refused.
    Admin,
}

impl KeyScope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Call, Self::Admin];

    /// The word in records, JSON and flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Admin => "admin",
        }
    }

    /// The scope with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// A part of administration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminPart {
    /// API keys.
    Keys,
    /// Accounts and their terms.
    Users,
    /// Teams and their members.
    Teams,
    /// Providers and their credentials.
    Providers,
    /// Models, prices and the directory.
    Models,
    /// Settings of the gateway.
    Settings,
    /// The key of the vault.
    Vault,
    /// Usage of all accounts.
    Usage,
    /// The audit log.
    Audit,
    /// Metrics and health.
    Metrics,
}

impl AdminPart {
    /// Every part.
    pub const ALL: [Self; 10] = [
        Self::Keys,
        Self::Users,
        Self::Teams,
        Self::Providers,
        Self::Models,
        Self::Settings,
        Self::Vault,
        Self::Usage,
        Self::Audit,
        Self::Metrics,
    ];

    /// The word in records, JSON and flags, behind `admin:`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Users => "users",
            Self::Teams => "teams",
            Self::Providers => "providers",
            Self::Models => "models",
            Self::Settings => "settings",
            Self::Vault => "vault",
            Self::Usage => "usage",
            Self::Audit => "audit",
            Self::Metrics => "metrics",
        }
    }

    /// The part with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.word() == word)
    }
}

/// The part of its scope that a key may use. It never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyGrants {
    /// The whole scope.
    #[default]
    All,
    /// Of the scope `call`: reading of usage, answers, tasks and models, and no call.
    Read,
    /// Of the scope `admin`: only these parts, in order.
    Parts(Vec<AdminPart>),
}

const READ_WORD: &str = "read";
const PART_PREFIX: &str = "admin:";

impl KeyScope {
    /// Reads a scope as users write it: `call`, `read`, `admin`, or parts of it such as
    /// `admin:keys admin:usage`, separated by spaces or commas.
    pub fn parse(text: &str) -> Option<(Self, KeyGrants)> {
        let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let (first, rest) = (words.next()?, words);
        if let Some(scope) = Self::by_word(first) {
            let alone = rest.clone().next().is_none();
            return alone.then_some((scope, KeyGrants::All));
        }
        if first == READ_WORD {
            let alone = rest.clone().next().is_none();
            return alone.then_some((Self::Call, KeyGrants::Read));
        }
        let part = |word: &str| AdminPart::by_word(word.strip_prefix(PART_PREFIX)?);
        let mut parts: Vec<AdminPart> =
            std::iter::once(first).chain(rest).map(part).collect::<Option<_>>()?;
        parts.sort_unstable();
        parts.dedup();
        Some((Self::Admin, KeyGrants::Parts(parts)))
    }
}

impl KeyGrants {
    /// Returns true if a key with these grants may do all that one with the others may.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (Self::Read, Self::Read) => true,
            (Self::Parts(own), Self::Parts(other)) => other.iter().all(|part| own.contains(part)),
            (Self::Read | Self::Parts(_), _) => false,
        }
    }

    /// The scope and this part of it, as users write it.
    pub fn scope_text(&self, scope: KeyScope) -> String {
        match self {
            Self::All => scope.word().to_owned(),
            Self::Read => READ_WORD.to_owned(),
            Self::Parts(parts) => {
                let words: Vec<String> =
                    parts.iter().map(|part| format!("{PART_PREFIX}{}", part.word())).collect();
                words.join(" ")
            }
        }
    }

    /// Encodes the grants for the database; `None` is the whole scope.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Read => Some(READ_WORD.to_owned()),
            Self::Parts(parts) => {
                let words: Vec<&str> = parts.iter().map(|part| part.word()).collect();
                Some(words.join(" "))
            }
        }
    }

    /// Decodes the grants of the database. An unknown word is an error: it must not turn into more.
    pub(crate) fn from_text(text: Option<&str>) -> Result<Self, sqlx::Error> {
        match text {
            None => Ok(Self::All),
            Some(READ_WORD) => Ok(Self::Read),
            Some(words) => {
                let part = |word: &str| AdminPart::by_word(word).ok_or_else(|| unknown_word(word));
                Ok(Self::Parts(words.split(' ').map(part).collect::<Result<_, _>>()?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_and_written_as_users_write_them() {
        let parts = |parts: &[AdminPart]| (KeyScope::Admin, KeyGrants::Parts(parts.to_vec()));
        for (text, expected, written) in [
            ("call", (KeyScope::Call, KeyGrants::All), "call"),
            ("read", (KeyScope::Call, KeyGrants::Read), "read"),
            ("admin", (KeyScope::Admin, KeyGrants::All), "admin"),
            ("admin:keys", parts(&[AdminPart::Keys]), "admin:keys"),
            (
                "admin:usage,admin:keys, admin:usage",
                parts(&[AdminPart::Keys, AdminPart::Usage]),
                "admin:keys admin:usage",
            ),
        ] {
            let (scope, grants) = KeyScope::parse(text).unwrap();
            assert_eq!((scope, grants.clone()), expected, "{text}");
            assert_eq!(grants.scope_text(scope), written);
            assert_eq!(KeyGrants::from_text(grants.to_text().as_deref()).unwrap(), grants);
        }
        for wrong in [
            "",
            "root",
            "call admin",
            "read,call",
            "admin admin:keys",
            "admin:",
            "admin:root",
            "keys",
        ] {
            assert_eq!(KeyScope::parse(wrong), None, "{wrong}");
        }
        assert!(KeyGrants::from_text(Some("keys root")).is_err());
        assert!(KeyGrants::from_text(Some("")).is_err());
    }

    #[test]
    fn a_part_never_covers_more_than_itself() {
        let keys = KeyGrants::Parts(vec![AdminPart::Keys]);
        let both = KeyGrants::Parts(vec![AdminPart::Keys, AdminPart::Users]);
        assert!(KeyGrants::All.covers(&both) && both.covers(&keys) && keys.covers(&keys));
        assert!(!keys.covers(&both) && !keys.covers(&KeyGrants::All));
        assert!(!KeyGrants::Read.covers(&KeyGrants::All));
    }
}

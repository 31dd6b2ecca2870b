//! The person or program that asks for a change.

use store::{Account, AccountRole, KeyRecord};

use crate::error::AdminError;

/// Person or program that asks for a change. Every use case takes one, checks its rights and writes
/// it into the audit log.
#[derive(Clone, Debug)]
pub enum Actor {
    /// The gateway itself at its first start. It writes no line into the audit log.
    FirstStart,
    /// The operator on the machine, through the command line. May do everything.
    Operator,
    /// A person signed in to the console.
    Person(Account),
    /// A key of scope `admin`, through the JSON API, with the rights of its account.
    Key {
        /// The account of the key.
        account: Account,
        /// The key.
        record: Box<KeyRecord>,
    },
    /// An identity provider that manages its people with SCIM. It has no right but that.
    Provisioner {
        /// Name in the audit log.
        audit_name: String,
    },
}

impl Actor {
    /// The name of the operator in the audit log, where accounts have their id.
    const OPERATOR_AUDIT_NAME: &str = "command line";

    /// The account that acts; `None` for the operator.
    pub const fn account(&self) -> Option<&Account> {
        match self {
            Self::FirstStart | Self::Operator | Self::Provisioner { .. } => None,
            Self::Person(account) | Self::Key { account, .. } => Some(account),
        }
    }

    /// The key that acts; `None` unless the actor is a key.
    pub fn key(&self) -> Option<&KeyRecord> {
        match self {
            Self::FirstStart | Self::Operator | Self::Person(_) | Self::Provisioner { .. } => None,
            Self::Key { record, .. } => Some(record),
        }
    }

    /// The actor as the audit log names it.
    pub fn audit_name(&self) -> &str {
        match self {
            Self::FirstStart | Self::Operator => Self::OPERATOR_AUDIT_NAME,
            Self::Person(account) | Self::Key { account, .. } => &account.id,
            Self::Provisioner { audit_name } => audit_name,
        }
    }

    /// Returns true if the actor administrates the gateway.
    pub const fn is_admin(&self) -> bool {
        match self {
            Self::FirstStart | Self::Operator => true,
            Self::Provisioner { .. } => false,
            Self::Person(account) | Self::Key { account, .. } => match account.role {
                AccountRole::Owner | AccountRole::Admin => !account.disabled,
                AccountRole::Member | AccountRole::Viewer => false,
            },
        }
    }

    /// Refuses an actor that does not administrate the gateway.
    pub fn require_admin(&self) -> Result<(), AdminError> {
        if self.is_admin() {
            Ok(())
        } else {
            Err(AdminError::forbidden("administration is for administrators"))
        }
    }

    /// Returns the signed-in person of this actor. The ways to sign in to an account belong to its
    /// person alone: not to an administrator, the operator or a key.
    pub fn require_person(&self) -> Result<&Account, AdminError> {
        match self {
            Self::Person(account) if !account.disabled => Ok(account),
            Self::FirstStart
            | Self::Operator
            | Self::Person(_)
            | Self::Key { .. }
            | Self::Provisioner { .. } => {
                Err(AdminError::forbidden("only the person signed in may change this"))
            }
        }
    }
}

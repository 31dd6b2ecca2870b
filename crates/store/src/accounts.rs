//! Accounts of people and programs that own keys. Teams, which own keys as well, are in `teams.rs`.

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, unknown_word};
use crate::known_devices::DROP_DEVICES;
use crate::row::row;
use crate::{AccountTerms, AuditedChange, Store, StoreError};
use canon::Micros;

/// The rights of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccountRole {
    /// May do everything, including the administration of owners.
    Owner,
    /// May administer everything but owners.
    Admin,
    /// May manage its own keys and see its own usage.
    Member,
    /// May only read.
    Viewer,
}

impl AccountRole {
    /// Every role, the most powerful first.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Admin, Self::Member, Self::Viewer];

    /// The word in records and forms.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// Returns the role with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// A UUID (v7) as text.
    pub id: String,
    /// Name to sign in with, as its owner writes it. Unique without regard to case.
    pub username: String,
    /// Email address to sign in with. Unique without regard to case.
    pub email: Option<String>,
    /// The rights.
    pub role: AccountRole,
    /// Hash of the password; `None` if the account has no password.
    pub password_hash: Option<String>,
    /// True if the account is locked.
    pub disabled: bool,
    /// Time of creation.
    pub created: Micros,
    /// Time of the last edit.
    pub changed: Micros,
}

row! {
    pub(crate) struct AccountRow {
        id: String,
        username: String,
        email: Option<String>,
        role: String,
        password_hash: Option<String>,
        disabled: bool,
        created: Micros,
        changed: Micros,
    }
}

impl TryFrom<AccountRow> for Account {
    type Error = sqlx::Error;

    fn try_from(row: AccountRow) -> Result<Self, sqlx::Error> {
        let AccountRow { id, username, email, role, password_hash, disabled, created, changed } =
            row;
        let role = AccountRole::by_word(&role).ok_or_else(|| unknown_word(&role))?;
        Ok(Self { id, username, email, role, password_hash, disabled, created, changed })
    }
}

/// The result of a change of a person's role or lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonChange {
    /// The change was made.
    Done,
    /// There is no such person.
    Missing,
    /// The change would leave the gateway without an owner.
    LastOwner,
}

/// The columns of `AccountRow`.
macro_rules! account_columns {
    () => {
        "a.id, a.username, a.email, a.role, a.password_hash, a.disabled, a.created, a.changed"
    };
}
pub(crate) use account_columns;

pub(crate) const ADD: &str = "INSERT INTO accounts \
    (id, username, email, role, password_hash, disabled, created, changed) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
pub(crate) const ADD_LOGIN: &str = "INSERT INTO logins (login, account_id) VALUES ($1, $2)";
// Teams are not found by queries for people.
const GET: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts a WHERE a.id = $1 AND a.kind = 'person'"
);
const BY_LOGIN: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM logins l JOIN accounts a ON a.id = l.account_id WHERE l.login = $1 AND a.kind = 'person'"
);
const ALL: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts a WHERE a.kind = 'person' ORDER BY a.created, a.id"
);
const OWNERS: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts a WHERE a.kind = 'person' AND a.role = 'owner' ORDER BY a.created, a.id"
);
const COUNT: &str = "SELECT COUNT(*) FROM accounts WHERE kind = 'person'";
const RENAME: &str = "UPDATE accounts SET username = $2, email = $3, changed = $4 WHERE id = $1";
const DROP_LOGINS: &str = "DELETE FROM logins WHERE account_id = $1";
const SET_PASSWORD: &str = "UPDATE accounts SET password_hash = $2, changed = $3 WHERE id = $1";
const SET_DISABLED: &str = "UPDATE accounts SET disabled = $2, changed = $3 WHERE id = $1";
const DROP_SESSIONS: &str = "DELETE FROM sessions WHERE account_id = $1";
const END_AFTER_PASSWORD: [&str; 3] = [
    DROP_SESSIONS,
    DROP_DEVICES,
    "DELETE FROM links WHERE account_id = $1 AND purpose IN ('reset', 'second')",
];
// The state of the keys changes with the account, so other nodes have to read them again.
const TOUCH_KEYS: &str = "UPDATE keys SET changed = CASE WHEN changed < $2 THEN $2 \
    ELSE changed + 1 END WHERE account_id = $1 OR (surface IS NOT NULL AND made_by = $1)";
const END_AFTER_LOCK: [&str; 3] =
    [DROP_SESSIONS, DROP_DEVICES, "DELETE FROM links WHERE account_id = $1"];
// An update locks the rows in both databases. PostgreSQL reads a row again after it waited for it,
// so the answer is that of the moment after the wait.
pub(crate) const LOCK_OWNERS: &str = "UPDATE accounts SET changed = changed \
    WHERE kind = 'person' AND role = 'owner' RETURNING id, disabled";
const SET_ROLE: &str = "UPDATE accounts SET role = $2, changed = $3 WHERE id = $1";

/// Locks or unlocks an account within a transaction, for either driver. Returns the number of
/// changed accounts.
macro_rules! set_disabled {
    ($tx:ident, $id:expr, $disabled:expr, $at:expr) => {{
        let update = sqlx::query(SET_DISABLED).bind(clean($id)).bind($disabled);
        let changed = update.bind($at.get()).execute(&mut *$tx).await?.rows_affected();
        sqlx::query(TOUCH_KEYS).bind(clean($id)).bind($at.get()).execute(&mut *$tx).await?;
        if $disabled {
            for end in END_AFTER_LOCK {
                sqlx::query(end).bind(clean($id)).execute(&mut *$tx).await?;
            }
        }
        changed
    }};
}

/// Returns a username or address in the form in which it is compared.
pub(crate) fn folded(login: &str) -> String {
    clean(login).to_lowercase()
}

/// Returns the names an account can sign in with. They are sorted, so that two transactions that
/// want the same two names cannot deadlock.
pub(crate) fn logins(username: &str, email: Option<&str>) -> Vec<String> {
    let mut logins: Vec<String> =
        [Some(username), email].into_iter().flatten().map(folded).collect();
    logins.sort();
    logins.dedup();
    logins
}

/// Adds an account and its spending limits within a transaction.
macro_rules! add_account {
    ($account:expr, $terms:expr, $tx:ident) => {{
        let account: &$crate::Account = $account;
        sqlx::query($crate::accounts::ADD)
            .bind($crate::db::clean(&account.id))
            .bind($crate::db::clean(&account.username))
            .bind(account.email.as_deref().map($crate::db::clean))
            .bind(account.role.word())
            .bind(account.password_hash.as_deref())
            .bind(account.disabled)
            .bind(account.created.get())
            .bind(account.changed.get())
            .execute(&mut *$tx)
            .await
            .map_err(StoreError::naming("account id", "account"))?;
        for login in $crate::accounts::logins(&account.username, account.email.as_deref()) {
            sqlx::query($crate::accounts::ADD_LOGIN)
                .bind(login)
                .bind($crate::db::clean(&account.id))
                .execute(&mut *$tx)
                .await
                .map_err(StoreError::naming("username or email", "account"))?;
        }
        if *$terms != $crate::AccountTerms::default() {
            let terms = $crate::account_caps::set_terms!(&account.id, $terms);
            terms.execute(&mut *$tx).await?;
        }
    }};
}
pub(crate) use add_account;

impl Store {
    /// Returns the account with that id.
    pub async fn account(&self, id: &str) -> Result<Option<Account>, StoreError> {
        let row: Option<AccountRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(Account::try_from).transpose()?)
    }

    /// Returns the account with that username or address, without regard to case.
    pub async fn account_by_login(&self, login: &str) -> Result<Option<Account>, StoreError> {
        let row: Option<AccountRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(BY_LOGIN).bind(folded(login)).fetch_optional(pool).await?
        });
        Ok(row.map(Account::try_from).transpose()?)
    }

    /// Returns the accounts of all people, the oldest first.
    pub async fn accounts(&self) -> Result<Vec<Account>, StoreError> {
        let rows: Vec<AccountRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        Ok(rows.into_iter().map(Account::try_from).collect::<Result<_, _>>()?)
    }

    /// Returns the accounts of the owners, the oldest first.
    pub async fn owner_accounts(&self) -> Result<Vec<Account>, StoreError> {
        let rows: Vec<AccountRow> =
            on_reader!(&self.db, pool => sqlx::query_as(OWNERS).fetch_all(pool).await?);
        Ok(rows.into_iter().map(Account::try_from).collect::<Result<_, _>>()?)
    }

    /// Returns the number of people with an account.
    pub async fn account_count(&self) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_scalar(COUNT).fetch_one(pool).await?))
    }
}

impl AuditedChange {
    /// Adds an account together with its spending limits. Its username and address must differ from
    /// those of every other account.
    pub async fn add_account_with_terms(
        &mut self,
        account: &Account,
        terms: &AccountTerms,
    ) -> Result<(), StoreError> {
        in_change!(self, tx => add_account!(account, terms, tx));
        Ok(())
    }

    /// Changes the username and address of an account, or the name of a team. They must differ from
    /// those of every other account. Returns false if there is no such account.
    pub async fn rename_account(
        &mut self,
        id: &str,
        username: &str,
        email: Option<&str>,
        at: Micros,
    ) -> Result<bool, StoreError> {
        let logins = logins(username, email);
        let renamed;
        in_change!(self, tx => {
            sqlx::query(DROP_LOGINS).bind(clean(id)).execute(&mut *tx).await?;
            renamed = sqlx::query(RENAME)
                .bind(clean(id))
                .bind(clean(username))
                .bind(email.map(clean))
                .bind(at.get())
                .execute(&mut *tx)
                .await?
                .rows_affected();
            if renamed > 0 {
                for login in &logins {
                    sqlx::query(ADD_LOGIN)
                        .bind(login)
                        .bind(clean(id))
                        .execute(&mut *tx)
                        .await
                        .map_err(StoreError::naming("username or email", "account"))?;
                }
            }
        });
        Ok(renamed > 0)
    }

    /// Changes or removes the password of an account. Its sessions and its links to choose a
    /// password end. Returns false if there is no such account.
    pub async fn set_password(
        &mut self,
        id: &str,
        hash: Option<&str>,
        at: Micros,
    ) -> Result<bool, StoreError> {
        let changed;
        in_change!(self, tx => {
            changed = sqlx::query(SET_PASSWORD)
                .bind(clean(id))
                .bind(hash)
                .bind(at.get())
                .execute(&mut *tx)
                .await?
                .rows_affected();
            for end in END_AFTER_PASSWORD {
                sqlx::query(end).bind(clean(id)).execute(&mut *tx).await?;
            }
        });
        Ok(changed > 0)
    }

    /// Locks an account or closes a team, or reverts that. Locking ends its sessions and links and
    /// stops its keys. Returns false if there is no such account.
    pub async fn set_disabled(
        &mut self,
        id: &str,
        disabled: bool,
        at: Micros,
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => set_disabled!(tx, id, disabled, at)) > 0)
    }

    /// Changes the role of a person, locks or unlocks them. The gateway keeps an owner that is not
    /// locked, under concurrent changes as well.
    pub async fn change_person(
        &mut self,
        id: &str,
        role: Option<AccountRole>,
        disabled: Option<bool>,
        at: Micros,
    ) -> Result<PersonChange, StoreError> {
        let outcome;
        in_change!(self, tx => {
            let resigns = role.is_some_and(|role| role != AccountRole::Owner);
            let mut owners: Vec<(String, bool)> = Vec::new();
            if resigns || disabled == Some(true) {
                // Changes that can take an owner run one after the other.
                owners = sqlx::query_as(LOCK_OWNERS).fetch_all(&mut *tx).await?;
            }
            let owns = owners.iter().any(|(owner, _)| *owner == id);
            let another = owners.iter().any(|(owner, locked)| *owner != id && !locked);
            if owns && !another {
                outcome = PersonChange::LastOwner;
            } else {
                let mut changed = 0;
                if let Some(role) = role {
                    let update = sqlx::query(SET_ROLE).bind(clean(id)).bind(role.word());
                    changed += update.bind(at.get()).execute(&mut *tx).await?.rows_affected();
                }
                if let Some(disabled) = disabled {
                    changed += set_disabled!(tx, id, disabled, at);
                }
                outcome = if changed > 0 { PersonChange::Done } else { PersonChange::Missing };
            }
        });
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::AssertSqlSafe;

    /// Each change that can take an owner reads the owners. There can be a hundred thousand people.
    #[tokio::test]
    async fn owners_are_found_by_an_index() {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let explain = async |text: &str| -> Result<Vec<(i64, i64, i64, String)>, StoreError> {
            let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            Ok(on_reader!(&store.db, pool => sqlx::query_as(plan).fetch_all(pool).await?))
        };
        for text in [LOCK_OWNERS, OWNERS] {
            let steps = explain(text).await.unwrap();
            assert!(
                steps.iter().any(|(.., step)| step.contains("accounts_of_owners")),
                "{steps:?}"
            );
        }
    }
}

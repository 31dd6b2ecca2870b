//! Who an account is at a provider of identities: the pair of issuer and subject, never an address.

use ledger::Micros;
use sqlx::FromRow;

use crate::accounts::{AccountRow, account_columns, add_account};
use crate::db::{clean, in_transaction, on_reader, on_writer};
use crate::{Account, AccountTerms, Store, StoreError};

/// An account at a provider of identities.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Identity {
    /// The provider.
    pub issuer: String,
    /// Its word for the account.
    pub subject: String,
    /// Whose it is.
    pub account_id: String,
    /// What to show for it.
    pub label: String,
    /// When it was linked.
    pub created: Micros,
}

const ADD: &str = "INSERT INTO identities (issuer, subject, account_id, label, created) \
    VALUES ($1, $2, $3, $4, $5)";
const GET: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM identities i JOIN accounts a ON a.id = i.account_id \
     WHERE i.issuer = $1 AND i.subject = $2"
);
const OF: &str = "SELECT issuer, subject, account_id, label, created FROM identities \
    WHERE account_id = $1 ORDER BY created, issuer, subject";
const DROP: &str = "DELETE FROM identities WHERE issuer = $1 AND subject = $2 AND account_id = $3";

/// The insertion of an identity, for either database.
macro_rules! bound {
    ($identity:expr) => {
        sqlx::query(ADD)
            .bind(clean(&$identity.issuer))
            .bind(clean(&$identity.subject))
            .bind(clean(&$identity.account_id))
            .bind(clean(&$identity.label))
            .bind($identity.created)
    };
}

impl Store {
    /// Links an account to an identity, which must be nobody's yet.
    pub async fn add_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            bound!(identity).execute(pool).await.map_err(StoreError::naming("identity", "account"))?;
        });
        Ok(())
    }

    /// Adds an account together with the identity it comes from and what it may spend: all or none.
    pub async fn add_account_of(
        &self,
        account: &Account,
        identity: &Identity,
        terms: AccountTerms,
    ) -> Result<(), StoreError> {
        in_transaction!(&self.db, tx: Kind => {
            add_account!(account, terms, tx);
            bound!(identity)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("identity", "account"))?;
        });
        Ok(())
    }

    /// The account an identity belongs to.
    pub async fn account_by_identity(
        &self,
        issuer: &str,
        subject: &str,
    ) -> Result<Option<Account>, StoreError> {
        let row: Option<AccountRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(issuer)).bind(clean(subject)).fetch_optional(pool).await?
        });
        Ok(row.map(Account::try_from).transpose()?)
    }

    /// An account's identities, the oldest first.
    pub async fn identities_of(&self, account_id: &str) -> Result<Vec<Identity>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// Cuts an identity off its account. False when it was not that account's.
    pub async fn drop_identity(
        &self,
        account_id: &str,
        issuer: &str,
        subject: &str,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP)
                .bind(clean(issuer))
                .bind(clean(subject))
                .bind(clean(account_id))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }
}

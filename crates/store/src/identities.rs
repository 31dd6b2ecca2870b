//! External identities of accounts (OpenID Connect), by issuer and subject and never by address.

use crate::accounts::{AccountRow, account_columns, add_account};
use crate::audited_change::in_change;
use crate::db::{clean, on_reader};
use crate::row::row;
use crate::{Account, AccountTerms, AuditedChange, Store, StoreError};
use canon::Micros;

row! {
    /// An account at an identity provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Identity {
        /// The issuer.
        pub issuer: String,
        /// The subject: the issuer's id of the account.
        pub subject: String,
        /// The account here.
        pub account_id: String,
        /// Text to display.
        pub label: String,
        /// Id of the person in the issuer's directory, beside the subject (`oid` of Microsoft Entra ID).
        pub object_id: Option<String>,
        /// Time of linking.
        pub created: Micros,
    }
}

const ADD: &str = "INSERT INTO identities (issuer, subject, account_id, label, object_id, created) \
    VALUES ($1, $2, $3, $4, $5, $6)";
const GET: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM identities i JOIN accounts a ON a.id = i.account_id \
     WHERE i.issuer = $1 AND i.subject = $2"
);
// The subject is the surer sign.
const BY_ID: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM identities i JOIN accounts a ON a.id = i.account_id \
     WHERE i.issuer = $1 AND (i.subject = $2 OR i.object_id = $2) \
     ORDER BY CASE WHEN i.subject = $2 THEN 0 ELSE 1 END, i.created, i.subject LIMIT 1"
);
const OF: &str = "SELECT issuer, subject, account_id, label, object_id, created FROM identities \
    WHERE account_id = $1 ORDER BY created, issuer, subject";
const SET_OBJECT_ID: &str = "UPDATE identities SET object_id = $3 \
    WHERE issuer = $1 AND subject = $2";
const DROP: &str = "DELETE FROM identities WHERE issuer = $1 AND subject = $2 AND account_id = $3";

/// Builds the insertion of an identity, for either driver.
macro_rules! bound {
    ($identity:expr) => {
        sqlx::query(ADD)
            .bind(clean(&$identity.issuer))
            .bind(clean(&$identity.subject))
            .bind(clean(&$identity.account_id))
            .bind(clean(&$identity.label))
            .bind($identity.object_id.as_deref().map(clean))
            .bind($identity.created.get())
    };
}

impl Store {
    /// Returns the account of an identity.
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

    /// Returns the account of the person with that id at the issuer: the subject, or the id in its directory.
    pub async fn account_by_provider_id(
        &self,
        issuer: &str,
        id: &str,
    ) -> Result<Option<Account>, StoreError> {
        let row: Option<AccountRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(BY_ID).bind(clean(issuer)).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(Account::try_from).transpose()?)
    }

    /// Returns the identities of an account, the oldest first.
    pub async fn identities_of(&self, account_id: &str) -> Result<Vec<Identity>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Links an identity to an account. It must not be linked to another one.
    pub async fn add_identity(&mut self, identity: &Identity) -> Result<(), StoreError> {
        in_change!(self, tx => {
            bound!(identity).execute(&mut *tx).await.map_err(StoreError::naming("identity", "account"))?;
        });
        Ok(())
    }

    /// Notes the id of an identity's person in the issuer's directory.
    pub async fn set_object_id(
        &mut self,
        issuer: &str,
        subject: &str,
        object_id: &str,
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            let update = sqlx::query(SET_OBJECT_ID).bind(clean(issuer)).bind(clean(subject));
            update.bind(clean(object_id)).execute(&mut *tx).await?;
        });
        Ok(())
    }

    /// Adds an account with its identity and spending limits, in one transaction.
    pub async fn add_account_with_identity(
        &mut self,
        account: &Account,
        identity: &Identity,
        terms: &AccountTerms,
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            add_account!(account, terms, tx);
            bound!(identity)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("identity", "account"))?;
        });
        Ok(())
    }

    /// Unlinks an identity from its account. Returns false if it was not linked to it.
    pub async fn drop_identity(
        &mut self,
        account_id: &str,
        issuer: &str,
        subject: &str,
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP)
                .bind(clean(issuer))
                .bind(clean(subject))
                .bind(clean(account_id))
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }) > 0)
    }
}

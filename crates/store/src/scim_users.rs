//! People that an identity provider manages with SCIM (RFC 7643, section 4.1).

use canon::Micros;
use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::accounts::folded;
use crate::audited_change::in_change;
use crate::db::{clean, on_reader};
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};

row! {
    /// A person of an identity provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScimUser {
        /// The account, whose id is the id of the person.
        pub account_id: String,
        /// Name of the identity provider in the configuration.
        pub identity: String,
        /// Name at the provider. Unique for a provider without regard to case.
        pub user_name: String,
        /// Id at the provider.
        pub external_id: Option<String>,
        /// Name to display.
        pub display_name: Option<String>,
        /// The parts of the name and the addresses, as JSON.
        pub profile: String,
        /// State that the provider gave the person.
        pub active: bool,
        /// True if the account is locked, by the provider or by an operator.
        pub disabled: bool,
        /// Time of creation.
        pub created: Micros,
        /// Time of the last edit.
        pub changed: Micros,
    }
}

/// An address of a person, by which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScimAddress {
    /// The address.
    pub value: String,
    /// Its type; empty if it has none.
    pub kind: String,
}

/// A condition on people. Texts are compared without regard to case, but for ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScimUserCondition {
    /// The id.
    Id(String),
    /// The name at the provider.
    UserName(String),
    /// The id at the provider.
    ExternalId(String),
    /// The name to display.
    DisplayName(String),
    /// One of the addresses, of that type if it is given.
    Address(String, Option<String>),
    /// True for people who are not locked.
    Active(bool),
}

const COLUMNS: &str = "SELECT s.account_id, s.identity, s.user_name, s.external_id, s.display_name, \
    s.profile, s.active, a.disabled, s.created, s.changed FROM scim_users s \
    JOIN accounts a ON a.id = s.account_id WHERE s.deleted IS NULL AND s.identity = ";
const COUNT: &str = "SELECT COUNT(*) FROM scim_users s JOIN accounts a ON a.id = s.account_id \
    WHERE s.deleted IS NULL AND s.identity = ";
const MANAGER: &str = "SELECT identity FROM scim_users WHERE account_id = $1 AND deleted IS NULL";
// The id of a person at the provider is the surer sign. A name without one counts if either row has no id.
const FORMER: &str = "SELECT account_id, external_id FROM scim_users WHERE deleted IS NOT NULL AND identity = $1 \
    AND ((external_id IS NOT NULL AND external_id = $3) \
    OR (name_key = $2 AND (external_id IS NULL OR $3 = ''))) \
    ORDER BY CASE WHEN external_id = $3 THEN 0 ELSE 1 END, changed DESC LIMIT 1";
const FORMER_ACTIVE: &str = "SELECT active FROM scim_users WHERE account_id = $1 AND identity = $2 \
    AND deleted IS NOT NULL";
const PUT: &str = "INSERT INTO scim_users (account_id, identity, user_name, name_key, external_id, \
    display_name, display_key, profile, active, created, changed, deleted) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULL) \
    ON CONFLICT (account_id) DO UPDATE SET identity = excluded.identity, \
    user_name = excluded.user_name, name_key = excluded.name_key, \
    external_id = excluded.external_id, display_name = excluded.display_name, \
    display_key = excluded.display_key, profile = excluded.profile, active = excluded.active, \
    created = excluded.created, changed = excluded.changed, deleted = NULL";
const DROP_ADDRESSES: &str = "DELETE FROM scim_emails WHERE account_id = $1";
const ADD_ADDRESS: &str = "INSERT INTO scim_emails (account_id, address, kind) VALUES ($1, $2, $3) \
    ON CONFLICT (account_id, address, kind) DO NOTHING";
/// Gives the groups of a person a new version, before the person leaves them.
pub(crate) const TOUCH_GROUPS: &str = "UPDATE scim_groups SET changed = CASE WHEN changed < $2 THEN $2 \
    ELSE changed + 1 END WHERE id IN (SELECT group_id FROM scim_members WHERE account_id = $1)";
const DROP_SEATS: &str = "DELETE FROM scim_members WHERE account_id = $1";
const DELETE: &str = "UPDATE scim_users SET deleted = $2, changed = $2, active = $3 WHERE account_id = $1 AND deleted IS NULL";

/// Largest number of ids in one statement.
const MAX_IDS: usize = 500;

/// Adds conditions to a statement that ends with the comparison of the provider.
fn push_conditions<D: Database>(
    query: &mut QueryBuilder<D>,
    identity: &str,
    conditions: &[ScimUserCondition],
) where
    String: Type<D> + for<'q> Encode<'q, D>,
    bool: Type<D> + for<'q> Encode<'q, D>,
{
    query.push_bind(clean(identity).into_owned());
    for condition in conditions {
        match condition {
            ScimUserCondition::Id(id) => {
                query.push(" AND s.account_id = ").push_bind(clean(id).into_owned());
            }
            ScimUserCondition::UserName(name) => {
                query.push(" AND s.name_key = ").push_bind(folded(name));
            }
            ScimUserCondition::ExternalId(id) => {
                query.push(" AND s.external_id = ").push_bind(clean(id).into_owned());
            }
            ScimUserCondition::DisplayName(name) => {
                query.push(" AND s.display_key = ").push_bind(folded(name));
            }
            ScimUserCondition::Address(address, kind) => {
                query.push(
                    " AND EXISTS (SELECT 1 FROM scim_emails e WHERE e.account_id = s.account_id \
                     AND e.address = ",
                );
                query.push_bind(folded(address));
                if let Some(kind) = kind {
                    query.push(" AND e.kind = ").push_bind(folded(kind));
                }
                query.push(")");
            }
            ScimUserCondition::Active(is_active) => {
                query.push(" AND a.disabled = ").push_bind(!is_active);
            }
        }
    }
}

impl Store {
    /// Returns the people of a provider that meet the conditions, the oldest first, after so many others.
    pub async fn scim_users(
        &self,
        identity: &str,
        conditions: &[ScimUserCondition],
        skip: i64,
        limit: i64,
    ) -> Result<Vec<ScimUser>, StoreError> {
        Ok(on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COLUMNS);
            push_conditions(&mut query, identity, conditions);
            query.push(" ORDER BY s.created, s.account_id LIMIT ").push_bind(limit);
            query.push(" OFFSET ").push_bind(skip);
            query.build_query_as().fetch_all(pool).await?
        }))
    }

    /// Returns the number of people of a provider that meet the conditions.
    pub async fn scim_user_count(
        &self,
        identity: &str,
        conditions: &[ScimUserCondition],
    ) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COUNT);
            push_conditions(&mut query, identity, conditions);
            query.build_query_scalar().fetch_one(pool).await?
        }))
    }

    /// Returns a person of a provider.
    pub async fn scim_user(
        &self,
        identity: &str,
        id: &str,
    ) -> Result<Option<ScimUser>, StoreError> {
        let condition = [ScimUserCondition::Id(id.to_owned())];
        Ok(self.scim_users(identity, &condition, 0, 1).await?.pop())
    }

    /// Returns those of the ids that are people of a provider.
    pub async fn known_scim_users(
        &self,
        identity: &str,
        ids: &[String],
    ) -> Result<Vec<String>, StoreError> {
        let mut known = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let mut found: Vec<String> = on_reader!(&self.db, pool: Kind => {
                let mut query = QueryBuilder::<Kind>::new(
                    "SELECT account_id FROM scim_users WHERE deleted IS NULL AND identity = ",
                );
                query.push_bind(clean(identity)).push(" AND account_id IN (");
                let mut list = query.separated(", ");
                for id in ids {
                    list.push_bind(clean(id));
                }
                query.push(")");
                query.build_query_scalar().fetch_all(pool).await?
            });
            known.append(&mut found);
        }
        Ok(known)
    }

    /// Returns the name of the provider that manages an account.
    pub async fn scim_manager(&self, account_id: &str) -> Result<Option<String>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(MANAGER).bind(clean(account_id)).fetch_optional(pool).await?
        }))
    }

    /// Returns the account of a person whom the provider deleted before: the one with the same id at the provider,
    /// or the one with the same name if one of the two has no such id. The account comes with that id.
    pub async fn former_scim_user(
        &self,
        identity: &str,
        user_name: &str,
        external_id: Option<&str>,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        let external_id = clean(external_id.unwrap_or_default());
        Ok(on_reader!(&self.db, pool => {
            let former = sqlx::query_as(FORMER).bind(clean(identity)).bind(folded(user_name));
            former.bind(external_id).fetch_optional(pool).await?
        }))
    }

    /// Returns the last state that this provider gave the person of the account; `None` unless the provider deleted
    /// the person.
    pub async fn former_scim_state(
        &self,
        identity: &str,
        account_id: &str,
    ) -> Result<Option<bool>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            let state = sqlx::query_scalar(FORMER_ACTIVE).bind(clean(account_id));
            state.bind(clean(identity)).fetch_optional(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Adds or replaces a person of a provider. The lock of the account is not changed.
    pub async fn put_scim_user(
        &mut self,
        user: &ScimUser,
        addresses: &[ScimAddress],
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(PUT)
                .bind(clean(&user.account_id))
                .bind(clean(&user.identity))
                .bind(clean(&user.user_name))
                .bind(folded(&user.user_name))
                .bind(user.external_id.as_deref().map(clean))
                .bind(user.display_name.as_deref().map(clean))
                .bind(user.display_name.as_deref().map(folded))
                .bind(clean(&user.profile))
                .bind(user.active)
                .bind(user.created.get())
                .bind(user.changed.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("userName", "account"))?;
            sqlx::query(DROP_ADDRESSES).bind(clean(&user.account_id)).execute(&mut *tx).await?;
            for ScimAddress { value, kind } in addresses {
                sqlx::query(ADD_ADDRESS)
                    .bind(clean(&user.account_id))
                    .bind(folded(value))
                    .bind(folded(kind))
                    .execute(&mut *tx)
                    .await?;
            }
        });
        Ok(())
    }

    /// Takes a person out of the provider's view and out of its groups. The account stays. `active` is the state that
    /// the person comes back from. Returns false if there is no such person.
    pub async fn delete_scim_user(
        &mut self,
        account_id: &str,
        active: bool,
        at: Micros,
    ) -> Result<bool, StoreError> {
        let deleted;
        in_change!(self, tx => {
            let touch = sqlx::query(TOUCH_GROUPS).bind(clean(account_id)).bind(at.get());
            touch.execute(&mut *tx).await?;
            sqlx::query(DROP_SEATS).bind(clean(account_id)).execute(&mut *tx).await?;
            sqlx::query(DROP_ADDRESSES).bind(clean(account_id)).execute(&mut *tx).await?;
            let update = sqlx::query(DELETE).bind(clean(account_id)).bind(at.get());
            deleted = update.bind(active).execute(&mut *tx).await?.rows_affected();
        });
        Ok(deleted > 0)
    }
}

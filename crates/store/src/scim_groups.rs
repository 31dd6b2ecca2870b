//! Groups that an identity provider manages with SCIM (RFC 7643, section 4.2), and their members.

use canon::Micros;
use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::accounts::folded;
use crate::audited_change::in_change;
use crate::db::{clean, on_reader};
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};

row! {
    /// A group of an identity provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScimGroup {
        /// A UUID (v7) as text.
        pub id: String,
        /// Name of the identity provider in the configuration.
        pub identity: String,
        /// Its name. Unique for a provider without regard to case.
        pub display_name: String,
        /// Id at the provider.
        pub external_id: Option<String>,
        /// Time of creation.
        pub created: Micros,
        /// Time of the last edit, of the members as well.
        pub changed: Micros,
    }
}

/// A condition on groups. Names are compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScimGroupCondition {
    /// The id.
    Id(String),
    /// The name.
    DisplayName(String),
    /// The id at the provider.
    ExternalId(String),
    /// Id of a member.
    Member(String),
}

/// The columns of [`ScimGroup`].
macro_rules! group_columns {
    () => {
        "g.id, g.identity, g.display_name, g.external_id, g.created, g.changed"
    };
}

const COLUMNS: &str =
    concat!("SELECT ", group_columns!(), " FROM scim_groups g WHERE g.identity = ");
const COUNT: &str = "SELECT COUNT(*) FROM scim_groups g WHERE g.identity = ";
const OF: &str = concat!(
    "SELECT ",
    group_columns!(),
    " FROM scim_members m JOIN scim_groups g ON g.id = m.group_id WHERE m.account_id = $1 \
     ORDER BY g.created, g.id"
);
const MEMBERS: &str = "SELECT account_id FROM scim_members WHERE group_id = $1 ORDER BY account_id";
const MEMBER_COUNT: &str = "SELECT COUNT(*) FROM scim_members WHERE group_id = $1";
const PUT: &str = "INSERT INTO scim_groups \
    (id, identity, display_name, name_key, external_id, created, changed) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) \
    ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name, \
    name_key = excluded.name_key, external_id = excluded.external_id, changed = excluded.changed";
const DROP: &str = "DELETE FROM scim_groups WHERE id = $1";

/// Members that one statement adds or removes.
const MAX_MEMBERS: usize = 400;

/// Adds conditions to a statement that ends with the comparison of the provider.
fn push_conditions<D: Database>(
    query: &mut QueryBuilder<D>,
    identity: &str,
    conditions: &[ScimGroupCondition],
) where
    String: Type<D> + for<'q> Encode<'q, D>,
{
    query.push_bind(clean(identity).into_owned());
    for condition in conditions {
        match condition {
            ScimGroupCondition::Id(id) => {
                query.push(" AND g.id = ").push_bind(clean(id).into_owned());
            }
            ScimGroupCondition::DisplayName(name) => {
                query.push(" AND g.name_key = ").push_bind(folded(name));
            }
            ScimGroupCondition::ExternalId(id) => {
                query.push(" AND g.external_id = ").push_bind(clean(id).into_owned());
            }
            ScimGroupCondition::Member(id) => {
                query.push(
                    " AND EXISTS (SELECT 1 FROM scim_members m WHERE m.group_id = g.id \
                     AND m.account_id = ",
                );
                query.push_bind(clean(id).into_owned()).push(")");
            }
        }
    }
}

impl Store {
    /// Returns the groups of a provider that meet the conditions, the oldest first, after so many others.
    pub async fn scim_groups(
        &self,
        identity: &str,
        conditions: &[ScimGroupCondition],
        skip: i64,
        limit: i64,
    ) -> Result<Vec<ScimGroup>, StoreError> {
        Ok(on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COLUMNS);
            push_conditions(&mut query, identity, conditions);
            query.push(" ORDER BY g.created, g.id LIMIT ").push_bind(limit);
            query.push(" OFFSET ").push_bind(skip);
            query.build_query_as().fetch_all(pool).await?
        }))
    }

    /// Returns the number of groups of a provider that meet the conditions.
    pub async fn scim_group_count(
        &self,
        identity: &str,
        conditions: &[ScimGroupCondition],
    ) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COUNT);
            push_conditions(&mut query, identity, conditions);
            query.build_query_scalar().fetch_one(pool).await?
        }))
    }

    /// Returns a group of a provider.
    pub async fn scim_group(
        &self,
        identity: &str,
        id: &str,
    ) -> Result<Option<ScimGroup>, StoreError> {
        let condition = [ScimGroupCondition::Id(id.to_owned())];
        Ok(self.scim_groups(identity, &condition, 0, 1).await?.pop())
    }

    /// Returns the groups of a person, the oldest first.
    pub async fn scim_groups_of(&self, account_id: &str) -> Result<Vec<ScimGroup>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// Returns the ids of the members of a group.
    pub async fn scim_members(&self, group_id: &str) -> Result<Vec<String>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(MEMBERS).bind(clean(group_id)).fetch_all(pool).await?
        }))
    }

    /// Returns the number of members of a group.
    pub async fn scim_member_count(&self, group_id: &str) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(MEMBER_COUNT).bind(clean(group_id)).fetch_one(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Adds or replaces a group. Its members stay.
    pub async fn put_scim_group(&mut self, group: &ScimGroup) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(PUT)
                .bind(clean(&group.id))
                .bind(clean(&group.identity))
                .bind(clean(&group.display_name))
                .bind(folded(&group.display_name))
                .bind(group.external_id.as_deref().map(clean))
                .bind(group.created.get())
                .bind(group.changed.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("displayName", "group"))?;
        });
        Ok(())
    }

    /// Adds and removes members of a group. A member that is there already stays.
    pub async fn change_scim_members(
        &mut self,
        group_id: &str,
        added: &[String],
        removed: &[String],
    ) -> Result<(), StoreError> {
        for ids in removed.chunks(MAX_MEMBERS) {
            in_change!(self, tx: Kind => {
                let start = "DELETE FROM scim_members WHERE group_id = ";
                let mut query = QueryBuilder::<Kind>::new(start);
                query.push_bind(clean(group_id)).push(" AND account_id IN (");
                let mut list = query.separated(", ");
                for id in ids {
                    list.push_bind(clean(id));
                }
                query.push(")");
                query.build().execute(&mut *tx).await?;
            });
        }
        for ids in added.chunks(MAX_MEMBERS) {
            in_change!(self, tx: Kind => {
                let start = "INSERT INTO scim_members (group_id, account_id) ";
                let mut query = QueryBuilder::<Kind>::new(start);
                query.push_values(ids, |mut row, id| {
                    row.push_bind(clean(group_id)).push_bind(clean(id));
                });
                query.push(" ON CONFLICT (group_id, account_id) DO NOTHING");
                let added = query.build().execute(&mut *tx).await;
                added.map_err(StoreError::naming("member", "user"))?;
            });
        }
        Ok(())
    }

    /// Deletes a group with its memberships. Returns false if there is no such group.
    pub async fn drop_scim_group(&mut self, id: &str) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP).bind(clean(id)).execute(&mut *tx).await?.rows_affected()
        }) > 0)
    }
}

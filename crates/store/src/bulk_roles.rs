//! Roles of many people at once, in the gateway and in a team. A change of a group can concern thousands, and
//! other changes wait for it.

use std::collections::{HashMap, HashSet};

use canon::Micros;
use sqlx::QueryBuilder;

use crate::accounts::LOCK_OWNERS;
use crate::audited_change::in_change;
use crate::db::clean;
use crate::teams::LOCK;
use crate::{AccountRole, AuditedChange, MemberChange, PersonChange, StoreError, TeamRole};

/// People of one statement.
const MAX_PEOPLE: usize = 500;

impl AuditedChange {
    /// Gives people new roles, as [`AuditedChange::change_person`] does for one. The gateway keeps an owner that is
    /// not locked. Returns the results in the order of the changes.
    pub async fn change_roles(
        &mut self,
        changes: &[(&str, AccountRole)],
        at: Micros,
    ) -> Result<Vec<PersonChange>, StoreError> {
        // New owners first: they let the earlier ones go.
        let is_promoted = |change: &&(&str, AccountRole)| change.1 == AccountRole::Owner;
        let promoted: Vec<&str> = changes.iter().filter(is_promoted).map(|(id, _)| *id).collect();
        let mut done = self.write_roles(&promoted, AccountRole::Owner, at).await?;
        let mut kept = HashSet::new();
        if promoted.len() < changes.len() {
            let owners: Vec<(String, bool)> =
                in_change!(self, tx => sqlx::query_as(LOCK_OWNERS).fetch_all(&mut *tx).await?);
            let mut owners: HashMap<String, bool> = owners.into_iter().collect();
            let mut resigning: HashMap<AccountRole, Vec<&str>> = HashMap::new();
            for (id, role) in changes.iter().copied().filter(|change| !is_promoted(&change)) {
                let is_other = |(owner, locked): (&String, &bool)| owner != id && !locked;
                if owners.contains_key(id) && !owners.iter().any(is_other) {
                    kept.insert(id);
                    continue;
                }
                owners.remove(id);
                resigning.entry(role).or_default().push(id);
            }
            for (role, ids) in resigning {
                done.extend(self.write_roles(&ids, role, at).await?);
            }
        }
        let result = |(id, _): &(&str, AccountRole)| match (kept.contains(id), done.contains(*id)) {
            (true, _) => PersonChange::LastOwner,
            (false, true) => PersonChange::Done,
            (false, false) => PersonChange::Missing,
        };
        Ok(changes.iter().map(result).collect())
    }

    /// Returns the ids of the people who got the role.
    async fn write_roles(
        &mut self,
        ids: &[&str],
        role: AccountRole,
        at: Micros,
    ) -> Result<HashSet<String>, StoreError> {
        let mut done = HashSet::with_capacity(ids.len());
        for ids in ids.chunks(MAX_PEOPLE) {
            let changed: Vec<String> = in_change!(self, tx: Kind => {
                let mut query = QueryBuilder::<Kind>::new("UPDATE accounts SET role = ");
                query.push_bind(role.word()).push(", changed = ").push_bind(at.get());
                let mut list = query.push(" WHERE kind = 'person' AND id IN (").separated(", ");
                for id in ids {
                    list.push_bind(clean(id));
                }
                query.push(") RETURNING id");
                query.build_query_scalar().fetch_all(&mut *tx).await?
            });
            done.extend(changed);
        }
        Ok(done)
    }

    /// Sets the roles of people in a team, or removes them with `None`. The team may be left without a manager.
    /// Returns [`MemberChange::Missing`] if the team or one of them is missing.
    pub async fn set_members(
        &mut self,
        team_id: &str,
        changes: &[(&str, Option<TeamRole>)],
        at: Micros,
    ) -> Result<MemberChange, StoreError> {
        // Changes of one team's members run one after the other.
        let locked = in_change!(self, tx => {
            sqlx::query(LOCK).bind(clean(team_id)).execute(&mut *tx).await?.rows_affected()
        });
        if locked == 0 {
            return Ok(MemberChange::Missing);
        }
        for role in TeamRole::ALL.map(Some).into_iter().chain([None]) {
            let ids = changes.iter().filter(|(_, wanted)| *wanted == role);
            let ids: Vec<&str> = ids.map(|(id, _)| *id).collect();
            for ids in ids.chunks(MAX_PEOPLE) {
                let written = self.write_members(team_id, ids, role, at).await?;
                if written < ids.len() as u64 {
                    return Ok(MemberChange::Missing);
                }
            }
        }
        Ok(MemberChange::Done)
    }

    /// Returns the number of written members.
    async fn write_members(
        &mut self,
        team_id: &str,
        ids: &[&str],
        role: Option<TeamRole>,
        at: Micros,
    ) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx: Kind => {
            let mut query = match role {
                Some(role) => {
                    let start = "INSERT INTO members (team_id, account_id, role, since) SELECT ";
                    let mut query = QueryBuilder::<Kind>::new(start);
                    query.push_bind(clean(team_id)).push(", a.id, ").push_bind(role.word());
                    query.push(", ").push_bind(at.get());
                    query.push(" FROM accounts a WHERE a.kind = 'person' AND a.id IN (");
                    query
                }
                None => {
                    let start = "DELETE FROM members WHERE team_id = ";
                    let mut query = QueryBuilder::<Kind>::new(start);
                    query.push_bind(clean(team_id)).push(" AND account_id IN (");
                    query
                }
            };
            let mut list = query.separated(", ");
            for id in ids {
                list.push_bind(clean(id));
            }
            query.push(")");
            if role.is_some() {
                query.push(" ON CONFLICT (team_id, account_id) DO UPDATE SET role = excluded.role");
            }
            query.build().execute(&mut *tx).await?.rows_affected()
        }))
    }
}

//! Accounts with their groups and teams, many at once: a change of a group can concern thousands.

use std::collections::HashMap;

use sqlx::QueryBuilder;

use crate::accounts::{AccountRow, account_columns};
use crate::db::{clean, in_snapshot, unknown_word};
use crate::row::row;
use crate::{Account, ScimGroup, Store, StoreError, TeamRole};

/// An account, its groups and its roles in teams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScimStanding {
    /// The account.
    pub account: Account,
    /// Its groups, the oldest first.
    pub groups: Vec<ScimGroup>,
    /// Ids of its teams, with the roles there.
    pub seats: Vec<(String, TeamRole)>,
}

row! {
    struct GroupOfRow {
        account_id: String,
    } with group: ScimGroup
}

const ACCOUNTS: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM accounts a WHERE a.kind = 'person' AND a.id IN ("
);
const GROUPS: &str = "SELECT m.account_id, g.id, g.identity, g.display_name, g.external_id, \
    g.created, g.changed FROM scim_members m JOIN scim_groups g ON g.id = m.group_id \
    WHERE m.account_id IN (";
const SEATS: &str = "SELECT account_id, team_id, role FROM members WHERE account_id IN (";

/// Accounts of one statement.
const MAX_ACCOUNTS: usize = 500;

/// Builds a statement that ends with a list of ids.
macro_rules! with_ids {
    ($kind:ty, $start:expr, $ids:expr, $end:expr) => {{
        let mut query = QueryBuilder::<$kind>::new($start);
        let mut list = query.separated(", ");
        for id in $ids {
            list.push_bind(clean(id));
        }
        query.push($end);
        query
    }};
}

impl Store {
    /// Returns the accounts with these ids, each with its groups and teams. Ids of no person are left out.
    pub async fn scim_standings(&self, ids: &[String]) -> Result<Vec<ScimStanding>, StoreError> {
        let mut standings = Vec::with_capacity(ids.len());
        for ids in ids.chunks(MAX_ACCOUNTS) {
            let accounts: Vec<AccountRow>;
            let groups: Vec<GroupOfRow>;
            let seats: Vec<(String, String, String)>;
            in_snapshot!(&self.db, tx: Kind => {
                let mut query = with_ids!(Kind, ACCOUNTS, ids, ")");
                accounts = query.build_query_as().fetch_all(&mut *tx).await?;
                let mut query = with_ids!(Kind, GROUPS, ids, ") ORDER BY g.created, g.id");
                groups = query.build_query_as().fetch_all(&mut *tx).await?;
                let mut query = with_ids!(Kind, SEATS, ids, ")");
                seats = query.build_query_as().fetch_all(&mut *tx).await?;
            });
            let mut groups_of: HashMap<String, Vec<ScimGroup>> = HashMap::new();
            for GroupOfRow { account_id, group } in groups {
                groups_of.entry(account_id).or_default().push(group);
            }
            let mut seats_of: HashMap<String, Vec<(String, TeamRole)>> = HashMap::new();
            for (account_id, team_id, word) in seats {
                let role = TeamRole::by_word(&word).ok_or_else(|| unknown_word(&word))?;
                seats_of.entry(account_id).or_default().push((team_id, role));
            }
            for row in accounts {
                let account = Account::try_from(row)?;
                let groups = groups_of.remove(&account.id).unwrap_or_default();
                let seats = seats_of.remove(&account.id).unwrap_or_default();
                standings.push(ScimStanding { account, groups, seats });
            }
        }
        Ok(standings)
    }
}

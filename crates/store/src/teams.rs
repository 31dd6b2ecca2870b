//! Teams: accounts without sign-in, and their members.
//!
//! A team owns keys and money as a person does, so caps, budgets, leases and the ledger need no
//! special case. Queries for people (`Store::account`, a sign-in) do not find teams, so that no
//! team can sign in or get a role by mistake.

use canon::{Micros, Money};

use crate::accounts::{ADD_LOGIN, AccountRow, account_columns, folded};
use crate::audited_change::in_change;
use crate::db::{clean, on_reader, unknown_word};
use crate::row::row;
use crate::{Account, AccountTerms, AuditedChange, Store, StoreError};

/// The rights of a member in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TeamRole {
    /// May manage members and all keys.
    Manager,
    /// May manage keys of their own.
    Member,
    /// May only read.
    Viewer,
}

impl TeamRole {
    /// Every role, the most powerful first.
    pub const ALL: [Self; 3] = [Self::Manager, Self::Member, Self::Viewer];

    /// The word in records and forms.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// Returns the role with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

row! {
    /// A team.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Team {
        /// Id of its account.
        pub id: String,
        /// Its name, different from every username and address without regard to case.
        pub name: String as "username",
        /// True if it is closed. Its keys do not work then.
        pub disabled: bool,
        /// Time of creation.
        pub created: Micros,
        /// Time of the last edit.
        pub changed: Micros,
    }
}

/// A team with its totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamTotal {
    /// The team.
    pub team: Team,
    /// Money spent by its keys.
    pub spent: Money,
    /// Number of members.
    pub members: u32,
}

/// The membership of a person in a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team.
    pub team: Team,
    /// The rights in it.
    pub role: TeamRole,
}

/// A member of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamMember {
    /// The person's account.
    pub account: Account,
    /// The rights in the team.
    pub role: TeamRole,
    /// Time of joining.
    pub since: Micros,
}

/// The owner of keys and money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// A person.
    Person(Account),
    /// A team.
    Team(Team),
}

impl KeyOwner {
    /// Id of the account.
    pub fn id(&self) -> &str {
        match self {
            Self::Person(account) => &account.id,
            Self::Team(team) => &team.id,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Person(account) => &account.username,
            Self::Team(team) => &team.name,
        }
    }
}

/// The result of a change of membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The change was made.
    Done,
    /// There is no such team, person or member.
    Missing,
    /// The change would leave the team without a manager.
    LastManager,
}

/// The columns of [`Team`].
macro_rules! team_columns {
    () => {
        "t.id, t.username, t.disabled, t.created, t.changed"
    };
}

row! {
    struct TotalRow {
        spent: Money,
        members: u32,
    } with team: Team
}

row! {
    struct SeatRow {
        seat: String,
    } with team: Team
}

row! {
    struct MemberRow {
        seat: String,
        since: Micros,
    } with account: AccountRow
}

fn role(word: &str) -> Result<TeamRole, sqlx::Error> {
    TeamRole::by_word(word).ok_or_else(|| unknown_word(word))
}

// The column is mandatory, but a team has no role. It gets the weakest one.
const ADD: &str = "INSERT INTO accounts \
    (id, username, role, disabled, created, changed, kind) \
    VALUES ($1, $2, 'viewer', $3, $4, $5, 'team')";
const GET: &str =
    concat!("SELECT ", team_columns!(), " FROM accounts t WHERE t.id = $1 AND t.kind = 'team'");
const BY_NAME: &str = concat!(
    "SELECT ",
    team_columns!(),
    " FROM logins l JOIN accounts t ON t.id = l.account_id WHERE l.login = $1 AND t.kind = 'team'"
);
// PostgreSQL returns NUMERIC for a sum of BIGINTs.
const ALL: &str = concat!(
    "SELECT ",
    team_columns!(),
    ", (SELECT CAST(COALESCE(SUM(k.spent), 0) AS BIGINT) FROM keys k WHERE k.account_id = t.id) \
     AS spent, (SELECT COUNT(*) FROM members m WHERE m.team_id = t.id) AS members \
     FROM accounts t WHERE t.kind = 'team' ORDER BY t.created, t.id"
);
const SEATS: &str = concat!(
    "SELECT ",
    team_columns!(),
    ", m.role AS seat FROM members m JOIN accounts t ON t.id = m.team_id \
     WHERE m.account_id = $1 ORDER BY t.created, t.id"
);
const MEMBERS: &str = concat!(
    "SELECT ",
    account_columns!(),
    ", m.role AS seat, m.since FROM members m JOIN accounts a ON a.id = m.account_id \
     WHERE m.team_id = $1 ORDER BY m.since, a.id"
);
const MAKERS: &str = "SELECT DISTINCT a.id, a.username FROM keys k \
    JOIN accounts a ON a.id = k.made_by WHERE k.account_id = $1";
pub(crate) const LOCK: &str =
    "UPDATE accounts SET changed = changed WHERE id = $1 AND kind = 'team'";
const SEAT: &str = "SELECT role FROM members WHERE team_id = $1 AND account_id = $2";
// A locked account cannot manage a team.
const OTHER_MANAGERS: &str = "SELECT COUNT(*) FROM members m JOIN accounts a ON a.id = m.account_id \
    WHERE m.team_id = $1 AND m.account_id <> $2 AND m.role = 'manager' AND NOT a.disabled";
const PUT: &str = "INSERT INTO members (team_id, account_id, role, since) \
    SELECT $1, a.id, $3, $4 FROM accounts a WHERE a.id = $2 AND a.kind = 'person' \
    ON CONFLICT (team_id, account_id) DO UPDATE SET role = excluded.role";
const DROP: &str = "DELETE FROM members WHERE team_id = $1 AND account_id = $2";

impl Store {
    /// Returns the team with that id.
    pub async fn team(&self, id: &str) -> Result<Option<Team>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        }))
    }

    /// Returns every team with its totals, the oldest first.
    pub async fn teams(&self) -> Result<Vec<TeamTotal>, StoreError> {
        let rows: Vec<TotalRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let totals = rows.into_iter().map(|TotalRow { team, spent, members }| TeamTotal {
            team,
            spent,
            members,
        });
        Ok(totals.collect())
    }

    /// Returns the owner with that account id.
    pub async fn owner(&self, id: &str) -> Result<Option<KeyOwner>, StoreError> {
        match self.account(id).await? {
            Some(account) => Ok(Some(KeyOwner::Person(account))),
            None => Ok(self.team(id).await?.map(KeyOwner::Team)),
        }
    }

    /// Returns the person or team with that name, without regard to case. A person is also found by
    /// address.
    pub async fn owner_by_name(&self, name: &str) -> Result<Option<KeyOwner>, StoreError> {
        if let Some(account) = self.account_by_login(name).await? {
            return Ok(Some(KeyOwner::Person(account)));
        }
        let team: Option<Team> = on_reader!(&self.db, pool => {
            sqlx::query_as(BY_NAME).bind(folded(name)).fetch_optional(pool).await?
        });
        Ok(team.map(KeyOwner::Team))
    }

    /// Returns all owners: people, then teams, each the oldest first.
    pub async fn owners(&self) -> Result<Vec<KeyOwner>, StoreError> {
        let people = self.accounts().await?.into_iter().map(KeyOwner::Person);
        let teams = self.teams().await?.into_iter().map(|total| KeyOwner::Team(total.team));
        Ok(people.chain(teams).collect())
    }

    /// Returns the memberships of a person.
    pub async fn memberships_of(&self, account_id: &str) -> Result<Vec<Membership>, StoreError> {
        let rows: Vec<SeatRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(SEATS).bind(clean(account_id)).fetch_all(pool).await?
        });
        let seats = rows.into_iter();
        let seats = seats.map(|SeatRow { team, seat }| Ok(Membership { team, role: role(&seat)? }));
        Ok(seats.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Returns the members of a team in the order of joining.
    pub async fn members(&self, team_id: &str) -> Result<Vec<TeamMember>, StoreError> {
        let rows: Vec<MemberRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(MEMBERS).bind(clean(team_id)).fetch_all(pool).await?
        });
        let members = rows.into_iter().map(|MemberRow { account, seat, since }| {
            Ok(TeamMember { account: account.try_into()?, role: role(&seat)?, since })
        });
        Ok(members.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Returns id and name of the accounts that created keys of that account.
    pub async fn creators_of(&self, account_id: &str) -> Result<Vec<(String, String)>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(MAKERS).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }
}

impl AuditedChange {
    /// Adds a team together with its spending limits. Its name must differ from every username and
    /// address.
    pub async fn add_team_with_terms(
        &mut self,
        team: &Team,
        terms: &AccountTerms,
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(ADD)
                .bind(clean(&team.id))
                .bind(clean(&team.name))
                .bind(team.disabled)
                .bind(team.created.get())
                .bind(team.changed.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("team id", "team"))?;
            sqlx::query(ADD_LOGIN)
                .bind(folded(&team.name))
                .bind(clean(&team.id))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("name", "team"))?;
            if *terms != AccountTerms::default() {
                crate::account_caps::set_terms!(&team.id, terms).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    /// Sets the role of a person in a team, or removes them with `None`. A team keeps its last
    /// manager, under concurrent changes as well, unless an administrator acts (`by_hand`).
    pub async fn set_member(
        &mut self,
        team_id: &str,
        account_id: &str,
        role: Option<TeamRole>,
        by_hand: bool,
        at: Micros,
    ) -> Result<MemberChange, StoreError> {
        let seated;
        in_change!(self, tx => {
            // Changes of one team's members run one after the other.
            let locked = sqlx::query(LOCK).bind(clean(team_id)).execute(&mut *tx).await?;
            let before: Option<String> = sqlx::query_scalar(SEAT)
                .bind(clean(team_id))
                .bind(clean(account_id))
                .fetch_optional(&mut *tx)
                .await?;
            let others: i64 = sqlx::query_scalar(OTHER_MANAGERS)
                .bind(clean(team_id))
                .bind(clean(account_id))
                .fetch_one(&mut *tx)
                .await?;
            let managed = before.as_deref() == Some(TeamRole::Manager.word());
            let resigns = managed && role != Some(TeamRole::Manager);
            seated = if locked.rows_affected() == 0 {
                MemberChange::Missing
            } else if resigns && others == 0 && !by_hand {
                MemberChange::LastManager
            } else {
                let changed = match role {
                    Some(role) => sqlx::query(PUT)
                        .bind(clean(team_id))
                        .bind(clean(account_id))
                        .bind(role.word())
                        .bind(at.get())
                        .execute(&mut *tx)
                        .await?
                        .rows_affected(),
                    None => sqlx::query(DROP)
                        .bind(clean(team_id))
                        .bind(clean(account_id))
                        .execute(&mut *tx)
                        .await?
                        .rows_affected(),
                };
                if changed > 0 { MemberChange::Done } else { MemberChange::Missing }
            };
        });
        Ok(seated)
    }
}

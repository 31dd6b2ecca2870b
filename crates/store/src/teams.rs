//! Teams: accounts nobody signs in to, and who belongs to them.
//!
//! A team owns keys and money as a person does, so caps, budgets, leases and the ledger know nothing
//! of it. Whatever looks for people (`Store::account`, a sign-in) does not find teams, so that none
//! can be signed in to or given a role by mistake.

use canon::Money;
use ledger::Micros;
use sqlx::FromRow;

use crate::accounts::{ADD_LOGIN, AccountRow, account_columns, folded};
use crate::db::{clean, in_transaction, number, on_reader, unknown_word};
use crate::{Account, Store, StoreError};

/// What somebody may do in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TeamRole {
    /// Its members and all its keys.
    Manager,
    /// Keys of their own making.
    Member,
    /// Looking, not touching.
    Viewer,
}

impl TeamRole {
    /// Every role, the mightiest first.
    pub const ALL: [Self; 3] = [Self::Manager, Self::Member, Self::Viewer];

    /// The word in records and forms.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// The role with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// A team.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Team {
    /// The id of its account.
    pub id: String,
    /// What it is called; no account's name or address, whatever the case.
    #[sqlx(rename = "username")]
    pub name: String,
    /// Whether it is closed: its keys do not work.
    pub disabled: bool,
    /// When it was made.
    pub created: Micros,
    /// When it was last edited.
    pub changed: Micros,
}

/// A team and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamTotal {
    /// The team.
    pub team: Team,
    /// What its keys have spent.
    pub spent: Money,
    /// How many belong to it.
    pub members: u32,
}

/// A place somebody has in a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The team.
    pub team: Team,
    /// What they may do there.
    pub role: TeamRole,
}

/// Somebody who belongs to a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub account: Account,
    /// What they may do there.
    pub role: TeamRole,
    /// Since when they belong to it.
    pub since: Micros,
}

/// Who owns keys and money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Somebody.
    Person(Account),
    /// A team.
    Team(Team),
}

impl Owner {
    /// The id of the account.
    pub fn id(&self) -> &str {
        match self {
            Self::Person(account) => &account.id,
            Self::Team(team) => &team.id,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Person(account) => &account.username,
            Self::Team(team) => &team.name,
        }
    }
}

/// What became of a change of a team's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seated {
    /// It is made.
    Done,
    /// There is no such team, person or member.
    Missing,
    /// It would have left the team without a manager.
    LastManager,
}

/// The columns of [`Team`].
macro_rules! team_columns {
    () => {
        "t.id, t.username, t.disabled, t.created, t.changed"
    };
}

#[derive(FromRow)]
struct TotalRow {
    #[sqlx(flatten)]
    team: Team,
    spent: i64,
    members: i64,
}

#[derive(FromRow)]
struct SeatRow {
    #[sqlx(flatten)]
    team: Team,
    seat: String,
}

#[derive(FromRow)]
struct MemberRow {
    #[sqlx(flatten)]
    account: AccountRow,
    seat: String,
    since: Micros,
}

fn role(word: &str) -> Result<TeamRole, sqlx::Error> {
    TeamRole::by_word(word).ok_or_else(|| unknown_word(word))
}

// The role of an account says nothing of a team; it has the one that may least by itself.
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
// A sum of BIGINTs is no BIGINT in PostgreSQL.
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
const LOCK: &str = "UPDATE accounts SET changed = changed WHERE id = $1 AND kind = 'team'";
const SEAT: &str = "SELECT role FROM members WHERE team_id = $1 AND account_id = $2";
// Whoever is locked out manages nothing.
const OTHER_MANAGERS: &str = "SELECT COUNT(*) FROM members m JOIN accounts a ON a.id = m.account_id \
    WHERE m.team_id = $1 AND m.account_id <> $2 AND m.role = 'manager' AND NOT a.disabled";
const PUT: &str = "INSERT INTO members (team_id, account_id, role, since) \
    SELECT $1, a.id, $3, $4 FROM accounts a WHERE a.id = $2 AND a.kind = 'person' \
    ON CONFLICT (team_id, account_id) DO UPDATE SET role = excluded.role";
const DROP: &str = "DELETE FROM members WHERE team_id = $1 AND account_id = $2";

impl Store {
    /// Adds a team. Its name may be no account's username or address.
    pub async fn add_team(&self, team: &Team) -> Result<(), StoreError> {
        in_transaction!(&self.db, tx: Kind => {
            sqlx::query(ADD)
                .bind(clean(&team.id))
                .bind(clean(&team.name))
                .bind(team.disabled)
                .bind(team.created)
                .bind(team.changed)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("team id", "team"))?;
            sqlx::query(ADD_LOGIN)
                .bind(folded(&team.name))
                .bind(clean(&team.id))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("name", "team"))?;
        });
        Ok(())
    }

    /// The team with that id.
    pub async fn team(&self, id: &str) -> Result<Option<Team>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        }))
    }

    /// Every team and how it stands, the oldest first.
    pub async fn teams(&self) -> Result<Vec<TeamTotal>, StoreError> {
        let rows: Vec<TotalRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let totals = rows.into_iter().map(|TotalRow { team, spent, members }| {
            Ok(TeamTotal { team, spent: Money::nanos(spent), members: number(members)? })
        });
        Ok(totals.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Who owns what belongs to that account.
    pub async fn owner(&self, id: &str) -> Result<Option<Owner>, StoreError> {
        match self.account(id).await? {
            Some(account) => Ok(Some(Owner::Person(account))),
            None => Ok(self.team(id).await?.map(Owner::Team)),
        }
    }

    /// The person or team with that name, whatever the case; a person also by their address.
    pub async fn owner_by_name(&self, name: &str) -> Result<Option<Owner>, StoreError> {
        if let Some(account) = self.account_by_login(name).await? {
            return Ok(Some(Owner::Person(account)));
        }
        let team: Option<Team> = on_reader!(&self.db, pool => {
            sqlx::query_as(BY_NAME).bind(folded(name)).fetch_optional(pool).await?
        });
        Ok(team.map(Owner::Team))
    }

    /// Everyone who may own keys and money: people, then teams, the oldest first.
    pub async fn owners(&self) -> Result<Vec<Owner>, StoreError> {
        let people = self.accounts().await?.into_iter().map(Owner::Person);
        let teams = self.teams().await?.into_iter().map(|total| Owner::Team(total.team));
        Ok(people.chain(teams).collect())
    }

    /// The places somebody has in teams.
    pub async fn seats_of(&self, account_id: &str) -> Result<Vec<Seat>, StoreError> {
        let rows: Vec<SeatRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(SEATS).bind(clean(account_id)).fetch_all(pool).await?
        });
        let seats = rows.into_iter();
        let seats = seats.map(|SeatRow { team, seat }| Ok(Seat { team, role: role(&seat)? }));
        Ok(seats.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Who belongs to a team, whoever came first.
    pub async fn members(&self, team_id: &str) -> Result<Vec<Member>, StoreError> {
        let rows: Vec<MemberRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(MEMBERS).bind(clean(team_id)).fetch_all(pool).await?
        });
        let members = rows.into_iter().map(|MemberRow { account, seat, since }| {
            Ok(Member { account: account.try_into()?, role: role(&seat)?, since })
        });
        Ok(members.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Who made keys of that account, by id: what they are called.
    pub async fn makers_of(&self, account_id: &str) -> Result<Vec<(String, String)>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(MAKERS).bind(clean(account_id)).fetch_all(pool).await?
        }))
    }

    /// Gives somebody a role in a team, or with `None` takes them out of it. Unless `by_hand` of an
    /// administrator, no team loses its last manager by it, however many try at once.
    pub async fn set_member(
        &self,
        team_id: &str,
        account_id: &str,
        role: Option<TeamRole>,
        by_hand: bool,
        at: Micros,
    ) -> Result<Seated, StoreError> {
        let seated;
        in_transaction!(&self.db, tx: Kind => {
            // Whoever changes the members of one team does it one after the other.
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
                Seated::Missing
            } else if resigns && others == 0 && !by_hand {
                Seated::LastManager
            } else {
                let changed = match role {
                    Some(role) => sqlx::query(PUT)
                        .bind(clean(team_id))
                        .bind(clean(account_id))
                        .bind(role.word())
                        .bind(at)
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
                if changed > 0 { Seated::Done } else { Seated::Missing }
            };
        });
        Ok(seated)
    }
}

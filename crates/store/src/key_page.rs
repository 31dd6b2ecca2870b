//! Pages of keys: found by a text, by their standing and by their owner, in an order.

use canon::{Micros, Money};
use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::db::{clean, on_reader};
use crate::keys::{KeyRow, key_columns, key_selection, records};
use crate::text_search::push_contains;
use crate::{KeyRecord, KeyScope, Store, StoreError};

/// State of a key at a moment. The order is the display order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyStanding {
    /// It works.
    Active,
    /// It works, and four fifths of its cap are spent.
    NearCap,
    /// Its cap is spent.
    CapReached,
    /// Its time is over.
    Expired,
    /// It was revoked, or its owner is locked.
    Revoked,
}

impl KeyStanding {
    /// Every standing, in display order.
    pub const ALL: [Self; 5] =
        [Self::Active, Self::NearCap, Self::CapReached, Self::Expired, Self::Revoked];

    /// Returns the standing of a key. The database computes the same, see [`STANDING`].
    pub fn of(key: &KeyRecord, now: Micros) -> Self {
        if key.revoked.is_some() {
            return Self::Revoked;
        }
        if key.expires.is_some_and(|end| end <= now) {
            return Self::Expired;
        }
        match (key.scope, key.cap) {
            (KeyScope::Call, Some(cap)) if key.spent >= cap => Self::CapReached,
            (KeyScope::Call, Some(cap)) if key.spent >= near(cap) => Self::NearCap,
            (KeyScope::Call | KeyScope::Admin, _) => Self::Active,
        }
    }

    /// Returns true if the key works.
    pub const fn works(self) -> bool {
        matches!(self, Self::Active | Self::NearCap)
    }

    /// The word in addresses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NearCap => "near_cap",
            Self::CapReached => "cap_reached",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

    /// Returns the standing with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.word() == word)
    }

    const fn number(self) -> i64 {
        match self {
            Self::Active => 0,
            Self::NearCap => 1,
            Self::CapReached => 2,
            Self::Expired => 3,
            Self::Revoked => 4,
        }
    }
}

fn near(cap: Money) -> Money {
    let cap = cap.as_nanos();
    Money::from_nanos(cap - cap / 5)
}

/// The order of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// By standing, and the newest first.
    #[default]
    Standing,
    /// By name.
    Name,
    /// The largest spending first.
    Spent,
    /// The latest use first.
    LastUse,
    /// The newest first.
    Created,
    /// The oldest first.
    Oldest,
}

impl KeyOrder {
    /// Every order.
    pub const ALL: [Self; 6] =
        [Self::Standing, Self::Name, Self::Spent, Self::LastUse, Self::Created, Self::Oldest];

    /// The word in addresses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Standing => "state",
            Self::Name => "name",
            Self::Spent => "spent",
            Self::LastUse => "used",
            Self::Created => "created",
            Self::Oldest => "oldest",
        }
    }

    /// Returns the order with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }

    /// Text after `ORDER BY`.
    const fn text(self) -> &'static str {
        match self {
            Self::Standing => "standing, created DESC, id DESC",
            Self::Name => "LOWER(name), name, created DESC, id DESC",
            Self::Spent => "spent DESC, created DESC, id DESC",
            Self::LastUse => "COALESCE(last_used, 0) DESC, created DESC, id DESC",
            Self::Created => "created DESC, id DESC",
            Self::Oldest => "created, id",
        }
    }
}

/// A selection of keys; `None` is no condition.
#[derive(Clone, Debug, Default)]
pub struct KeySelection {
    /// Of this account.
    pub account_id: Option<String>,
    /// With this text in the name, the id or the name of the owner.
    pub text: Option<String>,
    /// With this standing.
    pub standing: Option<KeyStanding>,
}

/// Some of the selected keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys of the page.
    pub keys: Vec<KeyRecord>,
    /// Number of keys of each standing, whatever standing is selected.
    pub counts: [u64; 5],
    /// Money that all of those have spent.
    pub spent: Money,
}

impl KeyPage {
    /// Returns the number of selected keys on all pages.
    pub fn total(&self, standing: Option<KeyStanding>) -> u64 {
        let counts = KeyStanding::ALL.into_iter().zip(self.counts);
        counts.filter(|(of, _)| standing.is_none_or(|one| one == *of)).map(|(_, count)| count).sum()
    }
}

/// Number of the standing; the time is bound twice in between.
const STANDING: [&str; 2] = [
    "CASE WHEN revoked IS NOT NULL THEN 4 WHEN expires <= ",
    " THEN 3 WHEN scope <> 'call' OR cap IS NULL OR spent < cap - cap / 5 THEN 0 \
     WHEN spent < cap THEN 1 ELSE 2 END AS standing",
];

/// Selects keys of an account and with a text, with their standing.
fn push_selection<D: Database>(query: &mut QueryBuilder<D>, selection: &KeySelection, now: Micros)
where
    i64: Type<D> + for<'q> Encode<'q, D>,
    String: Type<D> + for<'q> Encode<'q, D>,
{
    query.push(concat!("SELECT ", key_columns!(), ", ")).push(STANDING[0]).push_bind(now.get());
    query.push(STANDING[1]).push(concat!(" FROM (", key_selection!(), ") k WHERE true"));
    if let Some(account) = &selection.account_id {
        query.push(" AND account_id = ").push_bind(clean(account).into_owned());
    }
    if let Some(text) = &selection.text {
        query.push(" AND (");
        push_contains(query, "name", text);
        query.push(" OR ");
        push_contains(query, "id", text);
        query.push(" OR account_id IN (SELECT id FROM accounts WHERE ");
        push_contains(query, "username", text);
        query.push("))");
    }
}

impl Store {
    /// Returns a page of keys: `limit` of them after the first `offset`.
    pub async fn key_page(
        &self,
        selection: &KeySelection,
        order: KeyOrder,
        (offset, limit): (u64, u32),
        now: Micros,
    ) -> Result<KeyPage, StoreError> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let counted: Vec<(i64, i64, i64)> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(
                "SELECT CAST(standing AS BIGINT), COUNT(*), CAST(SUM(spent) AS BIGINT) FROM (",
            );
            push_selection(&mut query, selection, now);
            query.push(") s GROUP BY standing");
            query.build_query_as().fetch_all(pool).await?
        });
        let rows: Vec<KeyRow> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new("SELECT * FROM (");
            push_selection(&mut query, selection, now);
            query.push(") s");
            if let Some(standing) = selection.standing {
                query.push(" WHERE standing = ").push_bind(standing.number());
            }
            query.push(" ORDER BY ").push(order.text());
            query.push(" LIMIT ").push_bind(i64::from(limit)).push(" OFFSET ").push_bind(offset);
            query.build_query_as().fetch_all(pool).await?
        });
        let count = |standing: KeyStanding| {
            let found = counted.iter().find(|(number, ..)| *number == standing.number());
            found.map_or(0, |(_, count, _)| count.unsigned_abs())
        };
        let spent = counted.iter().map(|(_, _, spent)| Money::from_nanos(*spent)).sum();
        Ok(KeyPage { keys: records(rows)?, counts: KeyStanding::ALL.map(count), spent })
    }
}

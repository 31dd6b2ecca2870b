//! Pages of people: found by a text and by their lock, in an order, with what their own keys spent.

use canon::{Micros, Money};
use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::accounts::{AccountRow, account_columns};
use crate::db::on_reader;
use crate::row::row;
use crate::text_search::push_contains;
use crate::{Account, Store, StoreError};

/// The order of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PersonOrder {
    /// By username.
    #[default]
    Name,
    /// The largest spending first.
    Spent,
    /// The latest use of a key first.
    LastUse,
    /// The newest first.
    Created,
}

impl PersonOrder {
    /// Every order.
    pub const ALL: [Self; 4] = [Self::Name, Self::Spent, Self::LastUse, Self::Created];

    /// The word in addresses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Spent => "spent",
            Self::LastUse => "used",
            Self::Created => "created",
        }
    }

    /// Returns the order with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }

    /// Text after `ORDER BY`.
    const fn text(self) -> &'static str {
        match self {
            Self::Name => "LOWER(a.username), a.id",
            Self::Spent => "spent DESC, a.created DESC, a.id DESC",
            Self::LastUse => "COALESCE(s.last_used, 0) DESC, a.created DESC, a.id DESC",
            Self::Created => "a.created DESC, a.id DESC",
        }
    }
}

/// A selection of people; `None` is no condition.
#[derive(Clone, Debug, Default)]
pub struct PersonSelection {
    /// With this text in the username or the email address.
    pub text: Option<String>,
    /// Locked people, or those who are not.
    pub disabled: Option<bool>,
}

/// A person with the figures of the person's own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonSummary {
    /// The person.
    pub account: Account,
    /// Number of keys.
    pub keys: u32,
    /// Money that they have spent.
    pub spent: Money,
    /// Latest end of a call of one of them.
    pub last_used: Option<Micros>,
}

/// Some of the selected people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonPage {
    /// The people of the page.
    pub people: Vec<PersonSummary>,
    /// Number of people who may sign in, whatever lock is selected.
    pub active: u64,
    /// The same for locked people.
    pub locked: u64,
}

impl PersonPage {
    /// Returns the number of selected people on all pages.
    pub const fn total(&self, disabled: Option<bool>) -> u64 {
        match disabled {
            None => self.active + self.locked,
            Some(false) => self.active,
            Some(true) => self.locked,
        }
    }
}

row! {
    struct SummaryRow {
        key_count: u32,
        spent: Money,
        last_used: Option<Micros>,
    } with account: AccountRow
}

const SUMMARIES: &str = concat!(
    "SELECT ",
    account_columns!(),
    ", COALESCE(s.key_count, 0) AS key_count, COALESCE(s.spent, 0) AS spent, s.last_used \
     FROM accounts a LEFT JOIN (SELECT account_id, COUNT(*) AS key_count, \
     CAST(SUM(spent) AS BIGINT) AS spent, MAX(last_used) AS last_used FROM keys \
     GROUP BY account_id) s ON s.account_id = a.id WHERE a.kind = 'person'"
);
const COUNTS: &str = "SELECT a.disabled, COUNT(*) FROM accounts a WHERE a.kind = 'person'";

fn push_text<D: Database>(query: &mut QueryBuilder<D>, selection: &PersonSelection)
where
    String: Type<D> + for<'q> Encode<'q, D>,
{
    let Some(text) = &selection.text else { return };
    query.push(" AND (");
    push_contains(query, "a.username", text);
    query.push(" OR ");
    push_contains(query, "a.email", text);
    query.push(")");
}

impl Store {
    /// Returns a page of people: `limit` of them after the first `offset`.
    pub async fn person_page(
        &self,
        selection: &PersonSelection,
        order: PersonOrder,
        (offset, limit): (u64, u32),
    ) -> Result<PersonPage, StoreError> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let counts: Vec<(bool, i64)> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COUNTS);
            push_text(&mut query, selection);
            query.push(" GROUP BY a.disabled");
            query.build_query_as().fetch_all(pool).await?
        });
        let rows: Vec<SummaryRow> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(SUMMARIES);
            push_text(&mut query, selection);
            if let Some(disabled) = selection.disabled {
                query.push(" AND a.disabled = ").push_bind(disabled);
            }
            query.push(" ORDER BY ").push(order.text());
            query.push(" LIMIT ").push_bind(i64::from(limit)).push(" OFFSET ").push_bind(offset);
            query.build_query_as().fetch_all(pool).await?
        });
        let count = |disabled| {
            let found = counts.iter().find(|(of, _)| *of == disabled);
            found.map_or(0, |(_, count)| count.unsigned_abs())
        };
        let people = rows.into_iter().map(|row| {
            let SummaryRow { key_count, spent, last_used, account } = row;
            Ok(PersonSummary { account: account.try_into()?, keys: key_count, spent, last_used })
        });
        let people = people.collect::<Result<_, sqlx::Error>>()?;
        Ok(PersonPage { people, active: count(false), locked: count(true) })
    }
}

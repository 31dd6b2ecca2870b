//! Statements: the calls of a calendar month of a person, a team or the whole gateway, by model and by key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use canon::Micros;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use store::{KeyOwner, MonthSums, ReportTotals, UsageStep};

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;

/// Years from the first instant that is counted. The end of a later one cannot be written.
const YEARS: RangeInclusive<i16> = 1970..=9998;

/// A calendar month in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementMonth(Date);

impl StatementMonth {
    /// Returns the month of a time.
    pub fn of(at: Micros) -> Option<Self> {
        let at = Timestamp::from_microsecond(at.get()).ok()?;
        Some(Self(at.to_zoned(TimeZone::UTC).date().first_of_month()))
    }

    /// Reads a month such as `2026-03`, of a year in which calls can be.
    pub fn parse(text: &str) -> Option<Self> {
        let month = Self(format!("{text}-01").parse().ok()?);
        // The parser takes other notations of a day too.
        (month.word() == text && YEARS.contains(&month.0.year())).then_some(month)
    }

    /// The month in addresses: `2026-03`.
    pub fn word(self) -> String {
        self.0.strftime("%Y-%m").to_string()
    }

    /// The month in words: `March 2026`.
    pub fn title(self) -> String {
        self.0.strftime("%B %Y").to_string()
    }

    /// First day, such as `2026-03-01`.
    pub fn first_day(self) -> String {
        self.0.to_string()
    }

    /// Last day.
    pub fn last_day(self) -> String {
        self.0.last_of_month().to_string()
    }

    /// Begin of the month.
    pub fn begun(self) -> Micros {
        let begun = self.0.to_zoned(TimeZone::UTC);
        Micros::new(begun.map_or(i64::MIN, |begun| begun.timestamp().as_microsecond()))
    }

    /// Begin of the next month.
    pub fn end(self) -> Micros {
        UsageStep::Month.end(self.begun())
    }
}

/// Owner of the calls of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementOwner {
    /// Id of the account or team.
    pub id: String,
    /// Its name.
    pub name: String,
    /// True if it is a team.
    pub is_team: bool,
}

/// Calls of one model, key or account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// Id of the model, the key or the account.
    pub id: String,
    /// Name of the key or the account; empty if it is gone.
    pub name: String,
    /// Sums of the calls.
    pub totals: ReportTotals,
}

/// Calls that began in one month. The lines of each list add up to the total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonthStatement {
    /// The month.
    pub month: StatementMonth,
    /// The owner; `None` for the whole gateway.
    pub owner: Option<StatementOwner>,
    /// True if the month is over. Calls that began in it may still run.
    pub is_over: bool,
    /// All calls.
    pub all: ReportTotals,
    /// By model, the most expensive first.
    pub models: Vec<StatementLine>,
    /// By key of the owner, or by account of the gateway, the most expensive first.
    pub parts: Vec<StatementLine>,
}

impl Admin {
    /// Returns the statement of an account or team, for those who see its calls.
    pub async fn statement(
        &self,
        actor: &Actor,
        account_id: &str,
        month: StatementMonth,
    ) -> Result<MonthStatement, AdminError> {
        self.account_right(actor, account_id).await?;
        self.account_statement(account_id, month).await
    }

    /// Returns the statement of an account or team for a mail to those who asked for it.
    pub async fn account_statement(
        &self,
        account_id: &str,
        month: StatementMonth,
    ) -> Result<MonthStatement, AdminError> {
        let owner = self.store.owner(account_id).await?;
        let owner = statement_owner(owner.ok_or(AdminError::NotFound("account"))?);
        let keys = self.store.keys_of(account_id).await?;
        let names = keys.into_iter().map(|key| (key.id, key.name)).collect();
        let sums = self.store.month_sums(month.begun(), Some(account_id)).await?;
        Ok(self.with_names(month, Some(owner), sums, names))
    }

    /// Returns the statement of the whole gateway.
    pub async fn gateway_statement(
        &self,
        actor: &Actor,
        month: StatementMonth,
    ) -> Result<MonthStatement, AdminError> {
        actor.require_admin()?;
        let owners = self.store.owners().await?.into_iter().map(statement_owner);
        let names = owners.map(|owner| (owner.id, owner.name)).collect();
        let sums = self.store.month_sums(month.begun(), None).await?;
        Ok(self.with_names(month, None, sums, names))
    }

    fn with_names(
        &self,
        month: StatementMonth,
        owner: Option<StatementOwner>,
        sums: MonthSums,
        names: BTreeMap<String, String>,
    ) -> MonthStatement {
        let MonthSums { all, models, owners } = sums;
        let lines = |groups: Vec<(String, ReportTotals)>| {
            let line = |(id, totals)| {
                let name = names.get(&id).cloned().unwrap_or_default();
                StatementLine { id, name, totals }
            };
            groups.into_iter().map(line).collect()
        };
        let is_over = month.end() <= self.accounts.now();
        let (models, parts) = (lines(models), lines(owners));
        MonthStatement { month, owner, is_over, all, models, parts }
    }
}

fn statement_owner(owner: KeyOwner) -> StatementOwner {
    match owner {
        KeyOwner::Person(account) => {
            StatementOwner { id: account.id, name: account.username, is_team: false }
        }
        KeyOwner::Team(team) => StatementOwner { id: team.id, name: team.name, is_team: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_text::rfc3339;

    #[test]
    fn months_are_read_as_they_are_written() {
        let march = StatementMonth::parse("2026-03").unwrap();
        assert_eq!((march.word(), march.title()), ("2026-03".to_owned(), "March 2026".to_owned()));
        assert_eq!(
            (march.first_day(), march.last_day()),
            ("2026-03-01".into(), "2026-03-31".into())
        );
        assert_eq!(rfc3339(march.begun()).as_deref(), Some("2026-03-01T00:00:00Z"));
        assert_eq!(rfc3339(march.end()).as_deref(), Some("2026-04-01T00:00:00Z"));
        for at in [march.begun(), march.end() - Micros::new(1)] {
            assert_eq!(StatementMonth::of(at), Some(march));
        }
        assert_ne!(StatementMonth::of(march.end()), Some(march));
        for wrong in [
            "",
            "2026",
            "2026-3",
            "2026-13",
            "2026-00",
            "+002026-03",
            "2026-03-01",
            "26-03",
            "9999-12",
            "0000-01",
        ] {
            assert_eq!(StatementMonth::parse(wrong), None, "{wrong}");
        }
    }
}

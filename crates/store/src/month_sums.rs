//! Sums of a calendar month, for statements. All of one month are read at one instant and agree with each
//! other.

use std::collections::BTreeMap;
use std::ops::Range;

use canon::Micros;

use crate::db::in_snapshot;
use crate::sums::{ReportTotals, SummedColumns as _};
use crate::usage::first;
use crate::usage_query::{ChosenHours, UsageQuery, point};
use crate::{GroupOrder, Store, StoreError, SumGroup, UsageFilter, UsagePoint, UsageStep};

/// Sums of the calls that began in one month, each list with the most expensive group first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonthSums {
    /// All calls.
    pub all: ReportTotals,
    /// By model.
    pub models: Vec<(String, ReportTotals)>,
    /// By key of the account, or by account if the calls are those of the whole gateway.
    pub owners: Vec<(String, ReportTotals)>,
}

impl Store {
    /// Returns the sums of the month that begins then, of an account or of the whole gateway.
    pub async fn month_sums(
        &self,
        begun: Micros,
        account_id: Option<&str>,
    ) -> Result<MonthSums, StoreError> {
        let filter = &of_account(account_id);
        let range = begun..UsageStep::Month.end(begun);
        let query = |by| UsageQuery {
            piece: (UsageStep::Month, range.clone()),
            by: Some(by),
            among: None,
            filter,
            hours: ChosenHours::All,
            over_time: false,
        };
        let owner = if account_id.is_some() { SumGroup::Key } else { SumGroup::Account };
        let mut lists = [SumGroup::Model, owner].map(|by| (by, BTreeMap::new()));
        in_snapshot!(&self.db, tx: Kind => {
            for (by, groups) in &mut lists {
                let query = query(*by);
                for row in query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { group, used, .. } = point::<ReportTotals, _>(&row)?;
                    groups.insert(group, used);
                }
            }
        });
        let [models, owners] = lists.map(|(_, groups)| first(groups, GroupOrder::Cost, usize::MAX));
        let mut all = ReportTotals::default();
        for (_, used) in &models {
            all = all.plus(used)?;
        }
        Ok(MonthSums { all, models, owners })
    }

    /// Returns the sums of every month of a range in which an account, or the whole gateway, has calls, the
    /// oldest first.
    pub async fn sums_of_months(
        &self,
        range: Range<Micros>,
        account_id: Option<&str>,
    ) -> Result<Vec<(Micros, ReportTotals)>, StoreError> {
        let months = (UsageStep::Month, UsageStep::Month.begin(range.start)..range.end);
        let filter = &of_account(account_id);
        let query = UsageQuery {
            piece: months,
            by: None,
            among: None,
            filter,
            hours: ChosenHours::All,
            over_time: true,
        };
        let points = self.ask::<ReportTotals>(&query).await?;
        Ok(points.into_iter().map(|point| (point.begun, point.used)).collect())
    }
}

fn of_account(account_id: Option<&str>) -> UsageFilter {
    UsageFilter { account_id: account_id.map(str::to_owned), ..UsageFilter::default() }
}

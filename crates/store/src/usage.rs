//! Usage reports: over time, in total, and by the largest users.
//!
//! Most reports read the table `usage` and never the calls, so a year of a hundred million calls is
//! a few thousand rows. A report on something that the table does not have reads the calls
//! (`usage_search.rs`), and so does an hour that a step or the range divides: days of some time zones begin
//! within an hour. Times are those of admission. Running and unposted calls are not included.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use canon::Micros;

use crate::call_filter::CallFilter;
use crate::db::{in_snapshot, on_reader};
use crate::refusals::refused_query;
use crate::sums::{ReportTotals, SummedColumns};
use crate::usage_query::{
    ChosenHours, RangePiece, UsageFilter, UsageQuery, pieces, point, series_pieces,
};
use crate::usage_search::DividedHours;
use crate::{LatencyTotals, Store, StoreError, UsageStep, UsageTotals};

/// A dimension of the table of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumGroup {
    /// The account.
    Account,
    /// The key.
    Key,
    /// The model.
    Model,
    /// The lane that answered.
    Lane,
    /// The HTTP status the caller received.
    Status,
}

impl SumGroup {
    /// Every dimension.
    pub const ALL: [Self; 5] = [Self::Account, Self::Key, Self::Model, Self::Lane, Self::Status];
}

/// The dimension that groups a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The account.
    Account,
    /// The key.
    Key,
    /// The model.
    Model,
    /// The provider that answered.
    Provider,
    /// The lane that answered.
    Lane,
    /// The HTTP status the caller received.
    Status,
    /// The code of the error that ended the call.
    Error,
    /// The format of the call.
    Format,
    /// The session.
    Session,
    /// The end user.
    EndUser,
    /// The value of a tag, see [`UsageRequest::tag`].
    Tag,
}

impl GroupBy {
    /// Every dimension.
    pub const ALL: [Self; 11] = [
        Self::Account,
        Self::Key,
        Self::Model,
        Self::Provider,
        Self::Lane,
        Self::Status,
        Self::Error,
        Self::Format,
        Self::Session,
        Self::EndUser,
        Self::Tag,
    ];

    /// The word in URLs and on pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Key => "key",
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Lane => "lane",
            Self::Status => "status",
            Self::Error => "error",
            Self::Format => "format",
            Self::Session => "session",
            Self::EndUser => "end_user",
            Self::Tag => "tag",
        }
    }

    /// Returns the dimension with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.word() == word)
    }

    /// Returns the dimension of the sums that tells the group of a call.
    const fn on_sums(self) -> Option<SumGroup> {
        match self {
            Self::Account => Some(SumGroup::Account),
            Self::Key => Some(SumGroup::Key),
            Self::Model => Some(SumGroup::Model),
            Self::Provider | Self::Lane => Some(SumGroup::Lane),
            Self::Status => Some(SumGroup::Status),
            Self::Error | Self::Format | Self::Session | Self::EndUser | Self::Tag => None,
        }
    }

    /// Returns the group of a group of the sums.
    fn of_sum(self, group: String) -> String {
        match (self, group.split_once('/')) {
            (Self::Provider, Some((provider, _))) => provider.to_owned(),
            (_, _) => group,
        }
    }
}

/// Sums of one step of time and one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePoint<S = UsageTotals> {
    /// Begin of the step.
    pub begun: Micros,
    /// The group: an id, a model, a lane or a status; empty without grouping.
    pub group: String,
    /// The sums.
    pub used: S,
}

/// A usage report to make.
#[derive(Clone, Debug)]
pub struct UsageRequest {
    /// Range of the begins of calls.
    pub range: Range<Micros>,
    /// Begins of the steps of the series in ascending order. The first one is not after the begin of the range.
    pub steps: Vec<Micros>,
    /// The dimension that groups the report.
    pub by: GroupBy,
    /// Name of the tag whose values are the groups of a report by tag. Without it, that of the most recent calls.
    pub tag: Option<String>,
    /// The order of the groups.
    pub rank: GroupOrder,
    /// Conditions on the calls.
    pub filter: CallFilter,
    /// Maximum number of listed groups.
    pub listed: usize,
    /// Number of groups with a series of their own; the others are summed up in one.
    pub with_series: usize,
}

impl UsageRequest {
    /// Returns the hours of which a part is out of the range or in another step.
    fn divided_hours(&self) -> BTreeSet<Micros> {
        let hour = |at: &Micros| UsageStep::Hour.begin(*at);
        let ends = [self.range.start, self.range.end];
        let cuts = self.steps.iter().chain(&ends).filter(|at| hour(at) != **at);
        let first = hour(&self.range.start);
        cuts.map(hour).filter(|hour| (first..self.range.end).contains(hour)).collect()
    }

    /// Returns pieces of which none is of two steps, and in which a divided hour is a row of its own.
    fn series_pieces(&self, divided: &BTreeSet<Micros>) -> Vec<RangePiece> {
        let range = UsageStep::Hour.cover(&self.range);
        let begins = self.steps.iter().map(|step| UsageStep::Hour.begin(*step));
        let ends = divided.iter().map(|hour| UsageStep::Hour.end(*hour));
        let mut cuts: BTreeSet<Micros> =
            begins.chain(divided.iter().copied()).chain(ends).collect();
        cuts.insert(range.start);
        let cuts: Vec<Micros> = cuts.into_iter().collect();
        series_pieces(&range, &cuts)
    }

    /// Returns the begin of the step of a time.
    pub(crate) fn step_of(&self, at: Micros) -> Micros {
        let after = self.steps.partition_point(|begin| *begin <= at);
        let step = after.checked_sub(1).and_then(|last| self.steps.get(last));
        step.copied().unwrap_or(self.range.start)
    }
}

/// A usage report. All its parts are read at one instant and agree with each other, unless calls were
/// searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The total.
    pub all: ReportTotals,
    /// Number of calls that were refused before any provider was asked.
    pub refused: i64,
    /// The same by group.
    pub refused_by: BTreeMap<String, i64>,
    /// Latencies of all calls.
    pub latencies: LatencyTotals,
    /// Latencies over time, oldest first.
    pub latency_series: Vec<(Micros, LatencyTotals)>,
    /// The first groups.
    pub top: Vec<(String, ReportTotals)>,
    /// Series of the very first groups, oldest first.
    pub series: Vec<UsagePoint<ReportTotals>>,
    /// Series of all other groups together, with the begin of each step.
    pub others: Vec<(Micros, ReportTotals)>,
    /// Set if the report has only the calls that ended at this time or later, because there are too many to
    /// search them all.
    pub searched_since: Option<Micros>,
    /// Hours that count whole to the step of their begin although a step or the range divides them, because
    /// their calls are not stored any more, or are too many to read.
    pub whole_hours: Vec<Micros>,
    /// Name of the tag whose values are the groups; `None` if no call has a tag.
    pub tag: Option<String>,
    /// Names of tags and the numbers of their calls, if the report is by tag.
    pub tag_names: BTreeMap<String, i64>,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupOrder {
    /// By the amount paid.
    #[default]
    Cost,
    /// By the number of calls.
    Calls,
    /// By the number of prompt and reply tokens.
    Tokens,
}

impl Store {
    /// Returns the usage in each step of a range, grouped or not, oldest first.
    ///
    /// The range is extended to whole steps. A step without usage is left out.
    pub async fn usage_over(
        &self,
        range: Range<Micros>,
        step: UsageStep,
        by: Option<SumGroup>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint>, StoreError> {
        let range = step.begin(range.start)..range.end;
        let (among, hours) = (None, ChosenHours::All);
        self.ask(&UsageQuery { piece: (step, range), by, among, filter, over_time: true, hours })
            .await
    }

    /// Returns the latencies in each step of a range, grouped in the same way.
    pub async fn latencies_over(
        &self,
        range: Range<Micros>,
        step: UsageStep,
        by: Option<SumGroup>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint<LatencyTotals>>, StoreError> {
        let range = step.begin(range.start)..range.end;
        let (among, hours) = (None, ChosenHours::All);
        self.ask(&UsageQuery { piece: (step, range), by, among, filter, over_time: true, hours })
            .await
    }

    /// Makes a usage report.
    pub async fn usage_view(&self, request: &UsageRequest) -> Result<UsageReport, StoreError> {
        if request.range.is_empty() {
            return Ok(UsageReport::default());
        }
        match (request.filter.on_sums(), request.by.on_sums()) {
            (Some(filter), Some(by)) => self.summed_usage(request, by, &filter).await,
            (Some(filter), None) => {
                let report = self.searched_usage(request).await?;
                let refused = self.refused_calls(&request.range, &filter).await?;
                Ok(UsageReport { refused, ..report })
            }
            // A refused call has nothing but what sums have.
            (None, _) => self.searched_usage(request).await,
        }
    }

    /// Makes a report from the sums.
    ///
    /// It reads no more detail than it shows: totals over many owners come from rows without
    /// grouping, whole months come from rows of months, and only the first groups have a series.
    async fn summed_usage(
        &self,
        request: &UsageRequest,
        by: SumGroup,
        filter: &UsageFilter,
    ) -> Result<UsageReport, StoreError> {
        let UsageRequest { range, rank, listed, with_series: apart, .. } = request;
        let cut = request.divided_hours();
        let totals = match cut.is_empty() {
            true => pieces(range),
            false => request.series_pieces(&cut),
        };
        let over_time = match request.steps.is_empty() {
            true => Vec::new(),
            false => request.series_pieces(&cut),
        };
        let divided = self.divided_usage(request, by, filter, cut).await?;
        let except = ChosenHours::Except(&divided.hours);
        let mut view = UsageReport { whole_hours: divided.whole_hours, ..UsageReport::default() };
        let mut groups = divided.sums.groups;
        for used in groups.values() {
            view.all = view.all.plus(used)?;
        }
        let mut series: BTreeMap<(Micros, String), ReportTotals> = BTreeMap::new();
        let mut others: BTreeMap<Micros, ReportTotals> = BTreeMap::new();
        let mut latencies = divided.sums.latency_series;
        for used in latencies.values() {
            view.latencies = view.latencies.plus(used)?;
        }
        let by = Some(by);
        let step_of = |begun: Micros| request.step_of(begun.max(range.start));
        let whole = |piece: &RangePiece, by| UsageQuery {
            piece: piece.clone(),
            by,
            among: None,
            filter,
            over_time: false,
            hours: except,
        };
        in_snapshot!(&self.db, tx: Kind => {
            for piece in totals {
                let query = whole(&piece, by);
                for row in query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { group, used, .. } = point::<ReportTotals, _>(&row)?;
                    let sum = groups.entry(request.by.of_sum(group)).or_default();
                    *sum = sum.plus(&used)?;
                    view.all = view.all.plus(&used)?;
                }
                let query = whole(&piece, None);
                for row in query.build::<Kind, LatencyTotals>().build().fetch_all(&mut *tx).await? {
                    view.latencies = view.latencies.plus(&point::<LatencyTotals, _>(&row)?.used)?;
                }
            }
            let mut refused = refused_query!(Kind, range, by, filter);
            for (group, calls) in refused.build_query_as::<(String, i64)>().fetch_all(&mut *tx).await? {
                let group = request.by.of_sum(group);
                view.refused = view.refused.saturating_add(calls);
                // A group of refused calls alone is listed too.
                groups.entry(group.clone()).or_default();
                let sum = view.refused_by.entry(group).or_default();
                *sum = sum.saturating_add(calls);
            }
            view.top = first(groups, *rank, *listed);
            let among = view.top.get(..*apart).unwrap_or(&view.top);
            for piece in over_time {
                let query = UsageQuery { over_time: true, ..whole(&piece, None) };
                for row in query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { begun, used, .. } = point::<ReportTotals, _>(&row)?;
                    let sum = others.entry(step_of(begun)).or_default();
                    *sum = sum.plus(&used)?;
                }
                for row in query.build::<Kind, LatencyTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { begun, used, .. } = point::<LatencyTotals, _>(&row)?;
                    let sum = latencies.entry(step_of(begun)).or_default();
                    *sum = sum.plus(&used)?;
                }
                if among.is_empty() {
                    continue;
                }
                // The names of lanes do not tell which ones are of the first providers.
                let among_lanes = (request.by != GroupBy::Provider).then_some(among);
                let query = UsageQuery { by, among: among_lanes, over_time: true, ..whole(&piece, by) };
                for row in query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { begun, group, used } = point::<ReportTotals, _>(&row)?;
                    let (begun, group) = (step_of(begun), request.by.of_sum(group));
                    if !among.iter().any(|(name, _)| *name == group) {
                        continue;
                    }
                    if let Some(rest) = others.get_mut(&begun) {
                        *rest = rest.less(&used)?;
                    }
                    let sum = series.entry((begun, group)).or_default();
                    *sum = sum.plus(&used)?;
                }
            }
        });
        let is_apart = |group: &str| view.top.iter().take(*apart).any(|(name, _)| name == group);
        for ((begun, group), used) in divided.sums.series {
            let sum = match is_apart(&group) {
                true => series.entry((begun, group)).or_default(),
                false => others.entry(begun).or_default(),
            };
            *sum = sum.plus(&used)?;
        }
        view.series = points(series);
        others.retain(|_, rest| rest.calls > 0);
        view.others = others.into_iter().collect();
        view.latency_series = latencies.into_iter().collect();
        Ok(view)
    }

    /// Sums up the calls of divided hours.
    async fn divided_usage(
        &self,
        request: &UsageRequest,
        by: SumGroup,
        filter: &UsageFilter,
        cut: BTreeSet<Micros>,
    ) -> Result<DividedHours, StoreError> {
        let (Some(first), Some(last)) = (cut.first(), cut.last()) else {
            return Ok(DividedHours::default());
        };
        // The grouping decides which rows are read, so that a group without sums loses no call.
        let range = *first..UsageStep::Hour.end(*last);
        let piece = (UsageStep::Hour, range);
        let hours = ChosenHours::Only(&cut);
        let query = UsageQuery { piece, by: Some(by), among: None, filter, over_time: true, hours };
        let mut calls: BTreeMap<Micros, i64> = cut.iter().map(|hour| (*hour, 0)).collect();
        for UsagePoint { begun, used, .. } in self.ask::<ReportTotals>(&query).await? {
            let sum = calls.entry(begun).or_default();
            *sum = sum.saturating_add(used.calls);
        }
        self.searched_hours(request, &calls).await
    }

    /// Returns the number of calls that were refused before any provider was asked.
    async fn refused_calls(
        &self,
        range: &Range<Micros>,
        filter: &UsageFilter,
    ) -> Result<i64, StoreError> {
        let rows: Vec<(String, i64)> = on_reader!(&self.db, pool: Kind => {
            let mut refused = refused_query!(Kind, range, None, filter);
            refused.build_query_as().fetch_all(pool).await?
        });
        Ok(rows.into_iter().fold(0, |sum: i64, (_, calls)| sum.saturating_add(calls)))
    }

    pub(crate) async fn ask<S: SummedColumns>(
        &self,
        usage_query: &UsageQuery<'_>,
    ) -> Result<Vec<UsagePoint<S>>, StoreError> {
        let points: Result<_, sqlx::Error> = on_reader!(&self.db, pool: Kind => {
            let mut query = usage_query.build::<Kind, S>();
            query.build().fetch_all(pool).await?.iter().map(point).collect()
        });
        Ok(points?)
    }
}

/// Returns a series, oldest first.
pub(crate) fn points(
    series: BTreeMap<(Micros, String), ReportTotals>,
) -> Vec<UsagePoint<ReportTotals>> {
    let point = |((begun, group), used)| UsagePoint { begun, group, used };
    series.into_iter().map(point).collect()
}

/// Returns the first groups in descending order, equal ones by name.
pub(crate) fn first(
    groups: BTreeMap<String, ReportTotals>,
    rank: GroupOrder,
    listed: usize,
) -> Vec<(String, ReportTotals)> {
    let mut groups: Vec<(String, ReportTotals)> = groups.into_iter().collect();
    // The sort is stable, so equal groups stay ordered by name.
    groups.sort_by_key(|(_, used)| {
        std::cmp::Reverse(match rank {
            GroupOrder::Cost => used.cost.as_nanos(),
            GroupOrder::Calls => used.calls,
            GroupOrder::Tokens => used.input.saturating_add(used.output),
        })
    });
    groups.truncate(listed);
    groups
}

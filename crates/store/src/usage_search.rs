//! Usage reports that read the calls, for what the sums do not have.

use std::collections::{BTreeMap, BTreeSet};

use canon::Micros;
use ledger::LedgerEntry;

use crate::entries::{EntryFilter, EntryPage};
use crate::rollup::counted;
use crate::sums::{LatencyTotals, ReportTotals, SummedColumns};
use crate::usage::{GroupBy, UsageReport, UsageRequest, first, points};
use crate::{Store, StoreError, UsageStep};

/// Calls that are read at once.
const BATCH_CALLS: u32 = 5_000;
/// Size of the stored calls that one report searches, half a million or so.
const MAX_SEARCHED_BYTES: usize = 32 << 20;

/// Different names of tags that a report counts.
const MAX_TAG_NAMES: usize = 100;

/// Returns the group of a call.
fn group_of(by: GroupBy, tag: &str, call: &LedgerEntry) -> String {
    let error = || call.error.as_ref().map_or("", |error| error.code.as_str());
    match by {
        GroupBy::Account => call.account_id.to_string(),
        GroupBy::Key => call.key_id.to_string(),
        GroupBy::Model => call.model.to_string(),
        GroupBy::Provider => call.lane.split('/').next().unwrap_or_default().to_owned(),
        GroupBy::Lane => call.lane.to_string(),
        GroupBy::Status => call.status.to_string(),
        GroupBy::Error => error().to_owned(),
        GroupBy::Format => call.dialect.to_string(),
        GroupBy::Session => call.session.to_string(),
        GroupBy::EndUser => call.end_user.to_string(),
        GroupBy::Tag => call.tags.value(tag).unwrap_or_default().to_owned(),
    }
}

/// Sums of the calls that were read.
#[derive(Default)]
pub(crate) struct CallSums {
    pub(crate) groups: BTreeMap<String, ReportTotals>,
    pub(crate) series: BTreeMap<(Micros, String), ReportTotals>,
    pub(crate) latency_series: BTreeMap<Micros, LatencyTotals>,
    tag: Option<String>,
    tag_names: BTreeMap<String, i64>,
}

impl CallSums {
    /// Chooses the most frequent name among the tags of these calls, if none is chosen.
    fn choose_tag(&mut self, calls: &[LedgerEntry]) {
        if self.tag.is_some() {
            return;
        }
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, _) in calls.iter().flat_map(|call| call.tags.iter()) {
            *names.entry(name).or_default() += 1;
        }
        let most = names.into_iter().max_by_key(|(name, calls)| (*calls, std::cmp::Reverse(*name)));
        self.tag = most.map(|(name, _)| name.to_owned());
    }

    fn count_tags(&mut self, call: &LedgerEntry) {
        for (name, _) in call.tags.iter() {
            let has_room = self.tag_names.len() < MAX_TAG_NAMES;
            match self.tag_names.get_mut(name) {
                Some(calls) => *calls = calls.saturating_add(1),
                None if has_room => {
                    self.tag_names.insert(name.to_owned(), 1);
                }
                None => {}
            }
        }
    }

    fn add(&mut self, request: &UsageRequest, call: &LedgerEntry) -> Result<(), StoreError> {
        let one = counted(call);
        let used = ReportTotals {
            calls: one.calls,
            input: one.input,
            cache_read: one.cache_read,
            output: one.output,
            thinking: one.thinking,
            cost: one.cost,
            absorbed: one.absorbed,
        };
        let tag = self.tag.as_deref().unwrap_or_default();
        let (step, group) = (request.step_of(call.started), group_of(request.by, tag, call));
        let sum = self.groups.entry(group.clone()).or_default();
        *sum = sum.plus(&used)?;
        let sum = self.series.entry((step, group)).or_default();
        *sum = sum.plus(&used)?;
        let latencies = self.latency_series.entry(step).or_default();
        latencies.took.add(one.took);
        if call.first_byte_us.is_some() {
            latencies.waited.add(one.waited);
        }
        Ok(())
    }

    /// Adds the groups and series of other calls.
    fn plus(mut self, other: Self) -> Result<Self, StoreError> {
        let Self { groups, series, latency_series, .. } = other;
        for (group, used) in groups {
            let sum = self.groups.entry(group).or_default();
            *sum = sum.plus(&used)?;
        }
        for (step, used) in series {
            let sum = self.series.entry(step).or_default();
            *sum = sum.plus(&used)?;
        }
        for (step, used) in latency_series {
            let sum = self.latency_series.entry(step).or_default();
            *sum = sum.plus(&used)?;
        }
        Ok(self)
    }

    fn into_report(self, request: &UsageRequest) -> Result<UsageReport, StoreError> {
        let Self { groups, mut series, latency_series, tag, tag_names } = self;
        let mut report = UsageReport { tag, tag_names, ..UsageReport::default() };
        for used in groups.values() {
            report.all = report.all.plus(used)?;
        }
        for latencies in latency_series.values() {
            report.latencies = report.latencies.plus(latencies)?;
        }
        report.top = first(groups, request.rank, request.listed);
        let apart = report.top.get(..request.with_series).unwrap_or(&report.top);
        let mut others: BTreeMap<Micros, ReportTotals> = BTreeMap::new();
        for ((begun, _), used) in
            series.extract_if(.., |(_, group), _| !apart.iter().any(|(name, _)| name == group))
        {
            let sum = others.entry(begun).or_default();
            *sum = sum.plus(&used)?;
        }
        report.series = points(series);
        report.others = others.into_iter().collect();
        report.latency_series = latency_series.into_iter().collect();
        Ok(report)
    }
}

/// The hours that a step or the end of a range divides.
#[derive(Default)]
pub(crate) struct DividedHours {
    /// Hours whose calls were read.
    pub(crate) hours: BTreeSet<Micros>,
    /// Sums of their calls within the range.
    pub(crate) sums: CallSums,
    /// The other hours.
    pub(crate) whole_hours: Vec<Micros>,
}

impl Store {
    /// Reads the calls of some hours, the newest first. An hour with fewer calls than its sums have is not
    /// divided, so that no call is lost.
    pub(crate) async fn searched_hours(
        &self,
        request: &UsageRequest,
        hours: &BTreeMap<Micros, i64>,
    ) -> Result<DividedHours, StoreError> {
        let (mut divided, mut left) = (DividedHours::default(), MAX_SEARCHED_BYTES);
        for (hour, summed) in hours.iter().rev() {
            match self.searched_hour(request, *hour, &mut left).await? {
                Some((calls, sums)) if calls >= *summed => {
                    divided.hours.insert(*hour);
                    divided.sums = divided.sums.plus(sums)?;
                }
                Some(_) | None => divided.whole_hours.push(*hour),
            }
        }
        Ok(divided)
    }

    /// Returns the number of calls of an hour, and the sums of those within the range; `None` if there are too
    /// many.
    async fn searched_hour(
        &self,
        request: &UsageRequest,
        hour: Micros,
        left: &mut usize,
    ) -> Result<Option<(i64, CallSums)>, StoreError> {
        let began = Some(hour..UsageStep::Hour.end(hour));
        let mut filter = EntryFilter { began, ..EntryFilter::from(request.filter.clone()) };
        let (mut number, mut sums) = (0_i64, CallSums::default());
        while *left > 0 {
            let EntryPage { calls, next, searched_bytes } =
                self.entry_page(&filter, BATCH_CALLS, *left).await?;
            for call in &calls {
                number = number.saturating_add(1);
                if request.range.contains(&call.started) {
                    sums.add(request, call)?;
                }
            }
            let Some(next) = next else { return Ok(Some((number, sums))) };
            *left = left.saturating_sub(searched_bytes);
            filter.before = Some(next);
        }
        Ok(None)
    }

    /// Makes a report from the calls, newest first until too many were searched.
    pub(crate) async fn searched_usage(
        &self,
        request: &UsageRequest,
    ) -> Result<UsageReport, StoreError> {
        let began = Some(request.range.clone());
        let mut filter = EntryFilter { began, ..EntryFilter::from(request.filter.clone()) };
        let tag = request.tag.clone();
        let (mut sums, mut left) = (CallSums { tag, ..CallSums::default() }, MAX_SEARCHED_BYTES);
        let searched_since = loop {
            let EntryPage { calls, next, searched_bytes } =
                self.entry_page(&filter, BATCH_CALLS, left).await?;
            if request.by == GroupBy::Tag {
                sums.choose_tag(&calls);
                calls.iter().for_each(|call| sums.count_tags(call));
            }
            for call in &calls {
                sums.add(request, call)?;
            }
            let Some(next) = next else { break None };
            left = left.saturating_sub(searched_bytes);
            if left == 0 {
                break Some(next.0);
            }
            filter.before = Some(next);
        };
        Ok(UsageReport { searched_since, ..sums.into_report(request)? })
    }
}

//! Usage reports that read the calls, for what the sums do not have.

use std::collections::BTreeMap;

use canon::Micros;
use ledger::LedgerEntry;

use crate::entries::{EntryFilter, EntryPage};
use crate::rollup::counted;
use crate::sums::{LatencyTotals, ReportTotals, SummedColumns};
use crate::usage::{GroupBy, UsageReport, UsageRequest, first, points};
use crate::{Store, StoreError};

/// Calls that are read at once.
const BATCH_CALLS: u32 = 5_000;
/// Size of the stored calls that one report searches, half a million or so.
const MAX_SEARCHED_BYTES: usize = 32 << 20;

/// Returns the group of a call.
fn group_of(by: GroupBy, call: &LedgerEntry) -> String {
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
    }
}

/// Sums of the calls that were read.
#[derive(Default)]
struct CallSums {
    groups: BTreeMap<String, ReportTotals>,
    series: BTreeMap<(Micros, String), ReportTotals>,
    latency_series: BTreeMap<Micros, LatencyTotals>,
}

impl CallSums {
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
        let (step, group) = (request.step_of(call.started), group_of(request.by, call));
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

    fn into_report(self, request: &UsageRequest) -> Result<UsageReport, StoreError> {
        let Self { groups, mut series, latency_series } = self;
        let mut report = UsageReport::default();
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

impl Store {
    /// Makes a report from the calls, newest first until too many were searched.
    pub(crate) async fn searched_usage(
        &self,
        request: &UsageRequest,
    ) -> Result<UsageReport, StoreError> {
        let began = Some(request.range.clone());
        let mut filter = EntryFilter { began, ..EntryFilter::from(request.filter.clone()) };
        let (mut sums, mut left) = (CallSums::default(), MAX_SEARCHED_BYTES);
        let searched_since = loop {
            let EntryPage { calls, next, searched_bytes } =
                self.entry_page(&filter, BATCH_CALLS, left).await?;
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

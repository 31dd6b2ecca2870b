//! Cumulative histograms in the form OpenTelemetry collectors accept.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::counters::OTHER;
use crate::otlp_values::{LabelSet, attributes};

/// Upper bound of series in memory. Callers can only name configured models, so it is not reached
/// in practice. Values beyond it are counted together, with `other` as the value of every attribute.
const MAX_SERIES: usize = 10_000;

/// A metric with one histogram per label set.
#[derive(Debug)]
pub(crate) struct LabelledHistogram {
    name: &'static str,
    unit: &'static str,
    bounds: &'static [f64],
    series: BTreeMap<LabelSet, HistogramSeries>,
}

#[derive(Debug, Default)]
struct HistogramSeries {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl LabelledHistogram {
    pub(crate) const fn new(
        name: &'static str,
        unit: &'static str,
        bounds: &'static [f64],
    ) -> Self {
        Self { name, unit, bounds, series: BTreeMap::new() }
    }

    pub(crate) fn record(&mut self, mut labels: LabelSet, value: f64) {
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&labels) {
            labels.iter_mut().for_each(|(_, value)| OTHER.clone_into(value));
        }
        let series = self.series.entry(labels).or_default();
        series.buckets.resize(self.bounds.len() + 1, 0);
        let at = self.bounds.iter().position(|bound| value <= *bound);
        if let Some(bucket) = series.buckets.get_mut(at.unwrap_or(self.bounds.len())) {
            *bucket += 1;
        }
        series.count += 1;
        series.sum += value;
    }

    /// Returns the counts since start as an OTLP JSON metric
    /// (<https://opentelemetry.io/docs/specs/otlp/>).
    pub(crate) fn to_json(&self, since: &str, now: &str) -> Value {
        let points: Vec<Value> = self
            .series
            .iter()
            .map(|(labels, series)| {
                let counts: Vec<String> = series.buckets.iter().map(u64::to_string).collect();
                json!({
                    "attributes": attributes(labels),
                    "startTimeUnixNano": since,
                    "timeUnixNano": now,
                    "count": series.count.to_string(),
                    "sum": series.sum,
                    "bucketCounts": counts,
                    "explicitBounds": self.bounds,
                })
            })
            .collect();
        json!({
            "name": self.name,
            "unit": self.unit,
            // 2 is AGGREGATION_TEMPORALITY_CUMULATIVE: a lost report delays the figures and loses
            // none.
            "histogram": { "aggregationTemporality": 2, "dataPoints": points },
        })
    }

    /// Returns true if no value was recorded yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_beyond_the_bound_are_counted_together() {
        let mut histogram = LabelledHistogram::new("h", "s", &[1.0]);
        for number in 0..MAX_SERIES + 3 {
            histogram.record(vec![("model", number.to_string())], 0.5);
        }
        assert_eq!(histogram.series.len(), MAX_SERIES + 1);
        let others = histogram.series.get(&vec![("model", OTHER.to_owned())]);
        assert_eq!(others.map(|series| series.count), Some(3));
    }

    #[test]
    fn value_on_a_bound_counts_below_it() {
        let mut histogram = LabelledHistogram::new("h", "s", &[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.record(vec![("a", "b".to_owned())], value);
        }
        let metric = histogram.to_json("1", "2");
        let point = metric.pointer("/histogram/dataPoints/0").unwrap();
        assert_eq!(point.get("bucketCounts").unwrap(), &json!(["2", "1", "1"]));
        assert_eq!((point.get("count"), point.get("sum")), (Some(&json!("4")), Some(&json!(12.0))));
    }
}

//! Distributions counted since the start, as OpenTelemetry collectors take them.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a distribution is counted by; its names and values as they are told.
pub(crate) type LabelSet = Vec<(&'static str, String)>;

/// The most label sets kept; a caller can only name models that exist, so this is never met.
const MAX_SERIES: usize = 10_000;

/// One distribution per set of labels.
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

    /// Counts a value.
    pub(crate) fn record(&mut self, labels: LabelSet, value: f64) {
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&labels) {
            return;
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

    /// Everything since the start, as OTLP's JSON.
    pub(crate) fn to_json(&self, since: &str, now: &str) -> Value {
        let points: Vec<Value> = self
            .series
            .iter()
            .map(|(labels, series)| {
                let counts: Vec<String> = series.buckets.iter().map(u64::to_string).collect();
                json!({
                    "attributes": super::otlp::attributes(labels),
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
            // Cumulative: a lost report costs nothing but freshness.
            "histogram": { "aggregationTemporality": 2, "dataPoints": points },
        })
    }

    /// Whether nothing was counted yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        let mut histogram = LabelledHistogram::new("h", "s", &[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.record(vec![("a", "b".to_owned())], value);
        }
        let told = histogram.to_json("1", "2");
        let point = told.pointer("/histogram/dataPoints/0").unwrap();
        assert_eq!(point.get("bucketCounts").unwrap(), &json!(["2", "1", "1"]));
        assert_eq!((point.get("count"), point.get("sum")), (Some(&json!("4")), Some(&json!(12.0))));
    }
}

//! Metrics as text, in the two formats that Prometheus reads:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/> and
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use canon::HistogramSnapshot;
use std::fmt::{Display, Write as _};
use std::time::Duration;

/// Format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older format of Prometheus, which most other tools read.
    Prometheus,
}

impl MetricsFormat {
    /// Returns the format that a client asks for with its `Accept`.
    pub fn for_accept(accept: Option<&str>) -> Self {
        let wants_open = accept.is_some_and(|text| text.contains("application/openmetrics-text"));
        if wants_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the content type of the text.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Names and values of labels.
pub(crate) type LabelPairs<'l> = [(&'static str, &'l str)];

/// The text as it grows.
pub(crate) struct MetricsWriter {
    format: MetricsFormat,
    text: String,
}

/// A family whose samples are written.
pub(crate) struct FamilyWriter<'w> {
    writer: &'w mut MetricsWriter,
    name: &'static str,
    kind: MetricKind,
}

impl MetricsWriter {
    pub(crate) const fn new(format: MetricsFormat) -> Self {
        Self { format, text: String::new() }
    }

    /// Begins a family. The name of a counter has no `_total` here.
    pub(crate) fn family(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &str,
    ) -> FamilyWriter<'_> {
        let (word, suffix) = match (kind, self.format) {
            (MetricKind::Counter, MetricsFormat::Prometheus) => ("counter", "_total"),
            (MetricKind::Counter, MetricsFormat::OpenMetrics) => ("counter", ""),
            (MetricKind::Gauge, _) => ("gauge", ""),
            (MetricKind::Histogram, _) => ("histogram", ""),
        };
        // Writing into a `String` cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}");
        let _ = writeln!(self.text, "# TYPE {name}{suffix} {word}");
        FamilyWriter { writer: self, name, kind }
    }

    /// Writes a family of one sample without labels.
    pub(crate) fn single(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &str,
        value: impl Display,
    ) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// Returns the whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == MetricsFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn line(
        &mut self,
        (name, suffix): (&str, &str),
        labels: &LabelPairs<'_>,
        bound: Option<&str>,
        value: impl Display,
    ) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let mut separator = '{';
        for (label, text) in all {
            self.text.push(separator);
            separator = ',';
            self.text.push_str(label);
            self.text.push_str("=\"");
            for letter in text.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

impl FamilyWriter<'_> {
    /// Writes a value of a counter or gauge.
    pub(crate) fn sample(&mut self, labels: &LabelPairs<'_>, value: impl Display) {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.writer.line((self.name, suffix), labels, None, value);
    }

    /// Writes a histogram.
    pub(crate) fn histogram(&mut self, labels: &LabelPairs<'_>, histogram: &HistogramSnapshot) {
        let HistogramSnapshot { buckets, count, sum } = histogram;
        for (bound, counted) in buckets {
            let bound = format!("{:?}", bound.as_secs_f64());
            self.writer.line((self.name, "_bucket"), labels, Some(&bound), counted);
        }
        self.writer.line((self.name, "_bucket"), labels, Some("+Inf"), count);
        self.writer.line((self.name, "_sum"), labels, None, seconds(*sum));
        self.writer.line((self.name, "_count"), labels, None, count);
    }
}

/// Returns a duration in seconds, as all metrics of time have it.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::TimeHistogram;

    fn written(format: MetricsFormat) -> String {
        let mut writer = MetricsWriter::new(format);
        let mut calls = writer.family("calls", MetricKind::Counter, "Calls");
        calls.sample(&[("model", "a\"b\\c\nd"), ("error", "")], 3);
        writer.single("free_bytes", MetricKind::Gauge, "Room", 5);
        let times = TimeHistogram::for_calls();
        times.record(Duration::from_secs(1));
        let mut family = writer.family("call_seconds", MetricKind::Histogram, "Time");
        family.histogram(&[("lane", "p/x")], &times.snapshot());
        writer.finish()
    }

    #[test]
    fn labels_are_escaped_and_counters_have_their_suffix() {
        let text = written(MetricsFormat::Prometheus);
        assert!(text.contains("# TYPE calls_total counter\n"), "{text}");
        assert!(text.contains("calls_total{model=\"a\\\"b\\\\c\\nd\",error=\"\"} 3\n"), "{text}");
        assert!(text.contains("\nfree_bytes 5\n") && !text.contains("# EOF"), "{text}");
        let text = written(MetricsFormat::OpenMetrics);
        assert!(text.contains("# TYPE calls counter\n") && text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("calls_total{"), "{text}");
    }

    #[test]
    fn buckets_are_cumulative() {
        let text = written(MetricsFormat::Prometheus);
        assert!(text.contains("call_seconds_bucket{lane=\"p/x\",le=\"0.5\"} 0\n"), "{text}");
        assert!(text.contains("call_seconds_bucket{lane=\"p/x\",le=\"1.0\"} 1\n"), "{text}");
        assert!(text.contains("call_seconds_bucket{lane=\"p/x\",le=\"+Inf\"} 1\n"), "{text}");
        assert!(text.contains("call_seconds_sum{lane=\"p/x\"} 1\n"), "{text}");
        assert!(text.contains("call_seconds_count{lane=\"p/x\"} 1\n"), "{text}");
    }

    #[test]
    fn a_client_gets_the_format_that_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3";
        assert_eq!(MetricsFormat::for_accept(Some(prometheus)), MetricsFormat::OpenMetrics);
        for accept in [None, Some("*/*"), Some("text/plain")] {
            assert_eq!(MetricsFormat::for_accept(accept), MetricsFormat::Prometheus);
        }
    }
}

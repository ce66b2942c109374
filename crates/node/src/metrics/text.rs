//! The Prometheus text format: families with help and type, samples with labels. Small enough to write ourselves, and
//! it lets the counters stay where the data path has them instead of in a registry.

use super::histogram::{BOUNDS_US, Snapshot};
use std::fmt::{Display, Write};
use std::time::Duration;

/// Media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Default)]
pub struct Text {
    text: String,
    /// Name of the family that samples belong to now.
    family: &'static str,
}

pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    pub fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, help, "counter")
    }

    pub fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, help, "gauge")
    }

    pub fn histogram(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, help, "histogram")
    }

    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    pub fn seconds(&mut self, labels: Labels<'_>, value: Duration) -> &mut Self {
        self.sample(labels, value.as_secs_f64())
    }

    /// All samples of one histogram, in seconds.
    pub fn distribution(&mut self, labels: Labels<'_>, snapshot: &Snapshot) -> &mut Self {
        for (bound_us, below) in BOUNDS_US.iter().zip(snapshot.below_bounds()) {
            let bound = format!("{}", *bound_us as f64 / 1e6);
            self.line("_bucket", labels, Some(&bound), below);
        }
        self.line("_bucket", labels, Some("+Inf"), snapshot.count);
        self.line("_sum", labels, None, snapshot.sum.as_secs_f64());
        self.line("_count", labels, None, snapshot.count);
        self
    }

    pub fn finish(self) -> String {
        self.text
    }

    fn begin(&mut self, name: &'static str, help: &str, kind: &str) -> &mut Self {
        self.family = name;
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let mut separator = '{';
        for (name, value) in labels {
            self.write(format_args!("{separator}{name}=\""));
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.text.write_fmt(arguments).expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Histogram;
    use super::*;

    #[test]
    fn families_samples_and_labels_are_written_as_prometheus_reads_them() {
        let mut text = Text::default();
        text.counter("lighter_calls_total", "Calls.").sample(&[("function", "a\"b\\c\nd"), ("outcome", "ok")], 7);
        text.gauge("lighter_up", "Up.").sample(&[], 1);
        let expected = "# HELP lighter_calls_total Calls.\n# TYPE lighter_calls_total counter\n\
            lighter_calls_total{function=\"a\\\"b\\\\c\\nd\",outcome=\"ok\"} 7\n\
            # HELP lighter_up Up.\n# TYPE lighter_up gauge\nlighter_up 1\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn a_histogram_has_rising_buckets_a_sum_and_a_count() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(10));
        histogram.record(Duration::from_secs(2));
        let mut text = Text::default();
        text.histogram("lighter_x_seconds", "X.").distribution(&[("function", "f")], &histogram.snapshot());
        let text = text.finish();
        assert!(text.contains("lighter_x_seconds_bucket{function=\"f\",le=\"0.000008\"} 0\n"), "{text}");
        assert!(text.contains("lighter_x_seconds_bucket{function=\"f\",le=\"0.000016\"} 1\n"), "{text}");
        assert!(text.contains("lighter_x_seconds_bucket{function=\"f\",le=\"+Inf\"} 2\n"), "{text}");
        assert!(text.contains("lighter_x_seconds_sum{function=\"f\"} 2.00001\n"), "{text}");
        assert!(text.contains("lighter_x_seconds_count{function=\"f\"} 2\n"), "{text}");
    }
}

//! The text format of Prometheus: families with HELP and TYPE, samples with labels.

// Source: Prometheus documentation, "Exposition formats", text format 0.0.4

use std::fmt::{Display, Write as _};

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Label names and values of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page under construction. All samples of a family follow its head.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    family: &'static str,
}

// Writing to a String cannot fail, hence `let _`.
impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Begins a family. The unit is the last word of its name, not counting `_total`.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        debug_assert!(!help.contains(['\n', '\\']), "{name}");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        self.family = name;
    }

    /// Appends a sample to the current family.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Appends a family with one sample.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// Appends a histogram: pairs of an upper bound and the number of values up to it, then the
    /// total count and the sum.
    pub(super) fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        for (bound, below) in buckets {
            self.line("_bucket", labels, Some(bound), below);
        }
        self.line("_bucket", labels, Some(f64::INFINITY), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<f64>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        let mut separator = '{';
        for (name, value) in labels {
            let _ = write!(self.text, "{separator}{name}=\"");
            self.escaped(value);
            self.text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = if bound.is_infinite() {
                write!(self.text, "{separator}le=\"+Inf\"")
            } else {
                write!(self.text, "{separator}le=\"{bound}\"")
            };
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn escaped(&mut self, value: &str) {
        for character in value.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                other => self.text.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_are_formatted() {
        let mut page = Page::default();
        page.one("up", Kind::Gauge, "Whether it is up.", 1);
        page.family("calls_total", Kind::Counter, "Calls.");
        page.sample(&[("name", "a\"b\\c\nd"), ("kind", "x")], 7);
        page.family("time_seconds", Kind::Histogram, "Times.");
        page.histogram(&[("stage", "s")], [(0.5, 1), (1.0, 3)].into_iter(), 4, 2.5);
        assert_eq!(
            page.into_text(),
            "# HELP up Whether it is up.\n# TYPE up gauge\nup 1\n\
             # HELP calls_total Calls.\n# TYPE calls_total counter\n\
             calls_total{name=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 7\n\
             # HELP time_seconds Times.\n# TYPE time_seconds histogram\n\
             time_seconds_bucket{stage=\"s\",le=\"0.5\"} 1\n\
             time_seconds_bucket{stage=\"s\",le=\"1\"} 3\n\
             time_seconds_bucket{stage=\"s\",le=\"+Inf\"} 4\n\
             time_seconds_sum{stage=\"s\"} 2.5\ntime_seconds_count{stage=\"s\"} 4\n"
        );
    }
}

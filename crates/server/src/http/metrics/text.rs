//! The text format of Prometheus: families with HELP and TYPE, samples with labels.

// Source: Prometheus documentation, "Exposition formats", text format 0.0.4

use std::fmt::{Display, Write as _};

use super::page::{Distribution, Format, Kind, Labels};

/// The text of a page.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

// Writing to a String cannot fail, hence `let _`.
impl Format for Text {
    fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {word}");
        self.family = name;
    }

    fn sample(&mut self, labels: Labels<'_>, value: &dyn Display) {
        self.line("", labels, None, value);
    }

    fn histogram(&mut self, labels: Labels<'_>, values: Distribution<'_>) {
        let Distribution { buckets, count, sum } = values;
        for (bound, below) in buckets {
            self.line("_bucket", labels, Some(bound), &below);
        }
        self.line("_bucket", labels, Some(f64::INFINITY), &count);
        self.line("_sum", labels, None, &sum);
        self.line("_count", labels, None, &count);
    }
}

impl Text {
    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<f64>, value: &dyn Display) {
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
    use crate::http::metrics::page::Page;

    #[test]
    fn families_and_samples_are_formatted() {
        let mut text = Text::default();
        let mut page = Page(&mut text);
        page.one("up", Kind::Gauge, "Whether it is up.", 1);
        page.family("calls_total", Kind::Counter, "Calls.");
        page.sample(&[("name", "a\"b\\c\nd"), ("kind", "x")], 7);
        page.family("time_seconds", Kind::Histogram, "Times.");
        page.histogram(&[("stage", "s")], [(0.5, 1), (1.0, 3)].into_iter(), 4, 2.5);
        assert_eq!(
            text.into_text(),
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

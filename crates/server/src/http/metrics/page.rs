//! Families of samples, in any format.

use std::fmt::Display;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Label names and values of one sample.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The values of a histogram.
pub(crate) struct Distribution<'a> {
    /// Upper bounds, and the number of values up to each.
    pub(crate) buckets: &'a mut dyn Iterator<Item = (f64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

/// Writes families in one format.
pub(crate) trait Format {
    fn family(&mut self, name: &'static str, kind: Kind, help: &str);

    /// A sample of the last family, a counter or a gauge.
    fn sample(&mut self, labels: Labels<'_>, value: &dyn Display);

    fn histogram(&mut self, labels: Labels<'_>, values: Distribution<'_>);
}

/// A page under construction. All samples of a family follow its head.
pub(super) struct Page<'a>(pub(super) &'a mut dyn Format);

impl Page<'_> {
    /// Begins a family. The unit is the last word of its name, not counting `_total`.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        debug_assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
        debug_assert!(!help.contains(['\n', '\\']), "{name}");
        self.0.family(name, kind, help);
    }

    /// Appends a sample to the current family.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.0.sample(labels, &value);
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
        mut buckets: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        self.0.histogram(labels, Distribution { buckets: &mut buckets, count, sum });
    }
}

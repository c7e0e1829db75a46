//! Evaluates folded stacks: each function's share of the samples.

use std::collections::{BTreeMap, BTreeSet};

/// One function's part of a profile.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Share {
    pub function: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in it or in its callees.
    pub with_callees: u64,
    /// Share of all samples, from 0 to 1.
    pub relative_own: f64,
    pub relative_with_callees: f64,
}

/// One function's part of two profiles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub function: String,
    /// Its own share of all samples, from 0 to 1.
    pub before: f64,
    pub after: f64,
}

/// Parses a line of folded stacks into the stack and its samples. Returns `None` if malformed.
pub(super) fn parse(line: &str) -> Option<(&str, u64)> {
    let (stack, count) = line.rsplit_once(' ')?;
    Some((stack, count.parse().ok()?)).filter(|(stack, _)| !stack.is_empty())
}

/// Returns the functions of folded stacks, sorted by their own samples. The outermost element of a
/// stack is its thread, not a function.
pub(crate) fn shares(folded: &str) -> Vec<Share> {
    let mut total = 0;
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (stack, count) in folded.lines().filter_map(parse) {
        total += count;
        let functions: Vec<&str> = stack.split(';').skip(1).collect();
        let Some(owner) = owner(&functions) else { continue };
        counts.entry(owner).or_default().0 += count;
        for function in functions.iter().map(|name| plain(name)).collect::<BTreeSet<_>>() {
            counts.entry(function).or_default().1 += count;
        }
    }
    let mut shares: Vec<Share> = counts
        .into_iter()
        .map(|(function, (own, with_callees))| Share {
            function: function.to_owned(),
            own,
            with_callees,
            relative_own: ratio(own, total),
            relative_with_callees: ratio(with_callees, total),
        })
        .collect();
    shares.sort_by(|a, b| b.own.cmp(&a.own).then(b.with_callees.cmp(&a.with_callees)));
    shares
}

/// Returns the difference of each function's own share in two profiles, the greatest first.
pub(crate) fn changes(before: &str, after: &str) -> Vec<Change> {
    let mut both: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for share in shares(before) {
        both.entry(share.function).or_default().0 = share.relative_own;
    }
    for share in shares(after) {
        both.entry(share.function).or_default().1 = share.relative_own;
    }
    let mut changes: Vec<Change> = both
        .into_iter()
        .map(|(function, (before, after))| Change { function, before, after })
        .collect();
    changes.sort_by(|a, b| (b.after - b.before).abs().total_cmp(&(a.after - a.before).abs()));
    changes
}

/// Returns the function to which a stack is attributed: the innermost one. Inlined functions of the
/// standard library (copies, comparisons, iterator steps) are attributed to their caller.
fn owner<'a>(functions: &[&'a str]) -> Option<&'a str> {
    let from_library = |name: &str| {
        name.ends_with("_[i]")
            && ["core::", "core_arch::", "alloc::", "std::"]
                .iter()
                .any(|library| name.trim_start_matches(['<', '&']).starts_with(library))
    };
    let owner = functions.iter().rev().find(|name| !from_library(name)).or(functions.last())?;
    Some(plain(owner))
}

/// Strips markers, so that inlined and compiled instances are combined.
fn plain(name: &str) -> &str {
    name.strip_suffix("_[i]").unwrap_or(name)
}

#[allow(clippy::cast_precision_loss)]
fn ratio(count: u64, total: u64) -> f64 {
    count as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folded: &str, expected: &[(&str, u64, u64)]) {
        let found = shares(folded);
        let found: Vec<_> =
            found.iter().map(|s| (s.function.as_str(), s.own, s.with_callees)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn time_is_the_innermost_functions_and_its_callers() {
        check("r;a;b 3\nr;a 1\n", &[("b", 3, 3), ("a", 1, 4)]);
    }

    #[test]
    fn a_function_that_calls_itself_is_counted_once() {
        check("r;a;b;a 2\n", &[("a", 2, 2), ("b", 0, 2)]);
    }

    #[test]
    fn inlined_parts_of_the_standard_library_are_their_callers() {
        check(
            "r;a;b_[i];core::ptr::read_[i] 4\nr;b;memcpy 1\n",
            &[("b", 4, 5), ("memcpy", 1, 1), ("a", 0, 4), ("core::ptr::read", 0, 4)],
        );
    }

    #[test]
    fn the_greatest_change_is_first() {
        let changes = changes("r;a 1\nr;b 1\n", "r;a 30\nr;b 9\nr;c 1\n");
        let names: Vec<_> = changes.iter().map(|change| change.function.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert!((changes[0].after - 0.225).abs() < 1e-9);
    }

    #[test]
    fn other_text_is_not_a_folded_stack() {
        assert_eq!(parse("a;b 3"), Some(("a;b", 3)));
        for line in ["", "a", "a b", " 3", "a -1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}

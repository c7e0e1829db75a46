//! Counts of what passed and failed.

use std::fmt;
use std::ops::AddAssign;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// Finds counts in one line of a suite's output: `3 passed, 0 failed` alone on a line, or
    /// the result line of `cargo test`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("test result: ") {
            let (_, counts) = rest.split_once(". ")?;
            let mut parts = counts.split("; ");
            let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
            let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
            return Some(Self { passed, failed });
        }
        let (passed, failed) = line.split_once(" passed, ")?;
        let failed = failed.strip_suffix(" failed")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_both_forms() {
        let found = Some(Tally { passed: 12, failed: 3 });
        assert_eq!(Tally::parse("12 passed, 3 failed"), found);
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured";
        assert_eq!(Tally::parse(line), found);
        assert_eq!(Tally::parse("nothing passed, much failed"), None);
        assert_eq!(Tally { passed: 12, failed: 3 }.to_string(), "12 passed, 3 failed");
    }
}

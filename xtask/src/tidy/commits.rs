//! The subject of the latest commit. Older commits cannot be changed any more.

use std::path::Path;
use std::process::Command;

use crate::tidy::Violation;

/// What `git log --oneline` shows in a terminal of 80 columns.
const SUBJECT_COLUMNS_MAX: usize = 72;

/// Checks the subject of `HEAD`. A tree without a repository, such as an archive, has none.
pub(crate) fn check_subject(root: &Path) -> Vec<Violation> {
    let log = Command::new("git").args(["log", "-1", "--format=%s"]).current_dir(root).output();
    let Ok(log) = log else { return Vec::new() };
    if !log.status.success() {
        return Vec::new();
    }
    check(String::from_utf8_lossy(&log.stdout).trim_end()).into_iter().collect()
}

fn check(subject: &str) -> Option<Violation> {
    let columns = subject.chars().count();
    let what = if columns > SUBJECT_COLUMNS_MAX {
        format!("{columns} columns: the limit is {SUBJECT_COLUMNS_MAX}; explain in the body")
    } else if subject.ends_with('.') {
        "remove the period at the end".to_owned()
    } else {
        return None;
    };
    Some(Violation { path: "subject of HEAD".to_owned(), line: 0, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_subjects_and_periods_are_found() {
        assert_eq!(check("Add a rule for commit subjects"), None);
        assert_eq!(check(&"a".repeat(SUBJECT_COLUMNS_MAX)), None);
        assert!(check(&"a".repeat(SUBJECT_COLUMNS_MAX + 1)).is_some());
        assert!(check("Add a rule.").is_some());
    }
}

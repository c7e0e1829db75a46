//! Errors for an invalid command line.

use std::process::{Command, Stdio};

#[test]
fn a_wrong_command_line_exits_with_2_and_is_reported_once() {
    for words in [
        &["pipeline"][..],
        &["pipeline", "run", "--rate", "fast"],
        &["pipeline", "executor", "--collector", "nowhere"],
        &["fly"],
    ] {
        let program = env!("CARGO_BIN_EXE_myriad");
        let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        let is_named = words.iter().rfind(|word| word.starts_with('-'));
        assert!(is_named.is_none_or(|option| complaint.contains(option)), "{complaint}");
    }
}

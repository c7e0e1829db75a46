//! The wait for another import into the same target.

use std::io::Write;
use std::time::{Duration, Instant};

/// Reports when the wait begins and ends.
#[derive(Debug)]
pub(super) struct Wait {
    max: Duration,
    began: Option<Instant>,
}

impl Wait {
    pub(super) fn new(max: Duration) -> Wait {
        Wait { max, began: None }
    }

    /// Notes that the `other` import still uses the target. False when the wait has ended without
    /// result.
    pub(super) fn may_continue(&mut self, other: &str, err: &mut dyn Write) -> bool {
        let began = self.began.unwrap_or_else(|| {
            let max_s = self.max.as_secs();
            note(err, &format!("waiting up to {max_s} s for {other}"));
            Instant::now()
        });
        self.began = Some(began);
        began.elapsed() <= self.max
    }

    /// Notes that the target is free.
    pub(super) fn end(self, err: &mut dyn Write) {
        if let Some(began) = self.began {
            let waited_s = began.elapsed().as_secs_f64();
            note(err, &format!("the other import has ended after {waited_s:.1} s; continuing"));
        }
    }
}

/// Writes a line to standard error. If that is closed, the line is lost.
fn note(err: &mut dyn Write, line: &str) {
    let _ = writeln!(err, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_once_and_its_end_only_after_it() {
        let mut err = Vec::new();
        Wait::new(Duration::from_secs(5)).end(&mut err);
        assert_eq!(err, b"");
        let mut wait = Wait::new(Duration::from_secs(5));
        for _ in 0..3 {
            assert!(wait.may_continue("another import from 1.2.3.4:5", &mut err));
        }
        wait.end(&mut err);
        let text = String::from_utf8(err).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [begin, end] = lines[..] else { panic!("{text}") };
        assert_eq!(begin, "waiting up to 5 s for another import from 1.2.3.4:5");
        assert!(end.starts_with("the other import has ended after 0."), "{end}");

        let mut short = Wait::new(Duration::ZERO);
        short.may_continue("another import", &mut Vec::new());
        std::thread::sleep(Duration::from_millis(1));
        assert!(!short.may_continue("another import", &mut Vec::new()));
    }
}

//! Each option has an effect: a server that ignored it would answer as one that has the default.
//!
//! A row starts two servers, with the default and with another value, and observes both in the same
//! way: a reply, a limit, a file, a line of the log, a state of the kernel. That a value was stored
//! is no effect.

mod connections;
mod data;
mod fixture;
mod limits;

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use fixture::Server;

/// An option, and what is seen of it.
struct Row {
    option: &'static str,
    value: &'static str,
    /// Options that both servers have. `{dir}` is the directory of the row.
    with: &'static [&'static str],
    observe: fn(&Server) -> String,
    /// With the default, and with the value.
    expected: [&'static str; 2],
}

const fn row(
    option: &'static str,
    value: &'static str,
    with: &'static [&'static str],
    observe: fn(&Server) -> String,
    expected: [&'static str; 2],
) -> Row {
    Row { option, value, with, observe, expected }
}

/// A busy host halts processes, and some effects are times.
const ATTEMPTS_MAX: usize = 4;
/// Most rows wait rather than compute.
const AT_ONCE: usize = 6;

fn rows() -> impl Iterator<Item = &'static Row> {
    connections::ROWS.iter().chain(data::ROWS).chain(limits::ROWS)
}

impl Row {
    fn seen(&self) -> [String; 2] {
        let given = [format!("--{}", self.option), self.value.to_owned()];
        [&[][..], &given].map(|given| {
            let observed = catch_unwind(|| {
                let server = Server::start(self.option, self.with, given);
                (self.observe)(&server)
            });
            observed.unwrap_or_else(|_| "a panic".to_owned())
        })
    }

    /// What is wrong with it, if it is that each time.
    fn fault(&self) -> Option<String> {
        let mut seen = self.seen();
        for _ in 1..ATTEMPTS_MAX {
            if seen == self.expected {
                return None;
            }
            seen = self.seen();
        }
        (seen != self.expected)
            .then(|| format!("{}: {seen:?} instead of {:?}", self.option, self.expected))
    }
}

#[test]
fn every_option_has_an_effect() {
    let rows: Vec<&Row> = rows().collect();
    let next = AtomicUsize::new(0);
    let faults = std::thread::scope(|scope| {
        let work = || {
            let mut faults = Vec::new();
            while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                assert_ne!(row.expected[0], row.expected[1], "{}", row.option);
                faults.extend(row.fault());
            }
            faults
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Names in the first column of the reference page, but those that only tools read.
#[test]
fn every_option_has_a_row() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (options, _) = page.split_once("## Names that Redis tools read").unwrap();
    let documented: BTreeSet<&str> =
        options.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let observed: BTreeSet<&str> = rows().map(|row| row.option).collect();
    // These need a clock that the test sets: `simulation::options` and `groups` of the server.
    let simulated = BTreeSet::from(["lfu-decay-time", "log-spin-us"]);
    assert_eq!(rows().count(), observed.len(), "an option has two rows");
    assert!(observed.is_disjoint(&simulated));
    assert_eq!(&observed | &simulated, documented);
}

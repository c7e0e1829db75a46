//! Each option has an effect: a server that ignored it would behave as with the default.
//!
//! A row starts two servers, one with the default and one with another value, and observes both in
//! the same way: through a reply, a limit, a file, a log line, or kernel state. That the value is
//! stored does not count as an effect.

mod connections;
mod data;
mod fixture;
mod limits;
mod reload;
mod stalled;
mod unix_socket;

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::resp::{ask, read_reply};
use fixture::Server;

/// An option and its observable effect.
struct Row {
    option: &'static str,
    value: &'static str,
    /// Options that both servers get. `{dir}` is the directory of the row.
    with: &'static [&'static str],
    observe: fn(&Server) -> String,
    /// Expected observation with the default, and with the value.
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

/// Retries: a busy host deschedules processes, and some effects are durations.
const ATTEMPTS_MAX: usize = 4;
/// Concurrent rows; most wait rather than compute.
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

    /// Returns the difference from the expectation if every attempt fails.
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

/// Names and aliases of the reference page, with the column that shows when they change.
fn documented() -> Vec<(String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let names = cells[0].split(", ").map(|name| name.trim_matches('`').to_owned());
        names.map(|name| (name, cells[3].to_owned())).collect::<Vec<_>>()
    };
    rows.flat_map(names).collect()
}

/// Also where more is changed than a value: passwords, TLS files, how the log is synced.
#[test]
fn every_name_takes_the_value_that_it_shows() {
    let server = Server::start("names", &[], &[]);
    let mut stream = server.connect("resp");
    for (name, changes) in documented() {
        assert_eq!(ask(&mut stream, &["CONFIG", "GET", &name]), "*2");
        assert_eq!(read_reply(&mut stream), name);
        let value = read_reply(&mut stream);
        let reply = ask(&mut stream, &["CONFIG", "SET", &name, &value]);
        let is_immutable = reply.ends_with("can't set immutable config");
        assert_eq!(is_immutable, changes == "start", "{name}: {reply}");
        assert!(is_immutable || reply == "+OK", "{name}: {reply}");
        assert_eq!(ask(&mut stream, &["CONFIG", "GET", &name]), "*2");
        read_reply(&mut stream);
        assert_eq!(read_reply(&mut stream), value, "{name}");
    }
}

/// The options in the first column of the reference page, except names read only by Redis tools.
#[test]
fn every_option_has_a_row() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (options, _) = page.split_once("## Names that Redis tools read").unwrap();
    let documented: BTreeSet<&str> =
        options.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let observed: BTreeSet<&str> = rows().map(|row| row.option).collect();
    // These need a simulated clock: see `simulation` of the server.
    let simulated = BTreeSet::from([
        "hz",
        "lfu-decay-time",
        "log-spin-us",
        "min-replicas-max-lag",
        "repl-backlog-size",
        "replica-serve-stale-data",
    ]);
    assert_eq!(rows().count(), observed.len(), "an option has two rows");
    assert!(observed.is_disjoint(&simulated));
    assert_eq!(&observed | &simulated, documented);
}

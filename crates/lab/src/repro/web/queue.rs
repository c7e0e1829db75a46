//! Number of connections waiting to be accepted while clients load the serial server, for several
//! lengths of its queue, and for comparison our own accept strategy with the same short queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::clients::{Clients, Manner, Plan};
use super::host::Host;
use super::sockets::{accept_queue, drops};
use super::{Bench, per_second, real};
use crate::measure::{added, tcp_counters};
use crate::repro::finding::{Finding, FindingRow, Number};

/// Sampling interval of the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// One server under one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    accept: &'static str,
    backlog: u64,
    clients: usize,
}

const fn serial(backlog: u64, clients: usize) -> Cell {
    Cell { accept: "serial", backlog, clients }
}

const fn myriad_cell(backlog: u64, clients: usize) -> Cell {
    Cell { accept: "least-loaded", backlog, clients }
}

const QUICK: [Cell; 7] = [
    serial(5, 5),
    serial(5, 10),
    serial(20, 10),
    serial(20, 20),
    serial(20, 50),
    myriad_cell(5, 50),
    myriad_cell(1024, 50),
];
/// The key numbers.
const NUMBERS: [(&str, Cell); 5] = [
    ("serial, 10 at a time, backlog 5:", serial(5, 10)),
    ("backlog 20:", serial(20, 10)),
    ("50 at a time, backlog 20:", serial(20, 50)),
    ("least-loaded, 50 at a time, backlog 5:", myriad_cell(5, 50)),
    ("backlog 1024:", myriad_cell(1024, 50)),
];
const BACKLOGS: [u64; 4] = [5, 20, 128, 1024];
const CLIENTS: [usize; 5] = [5, 10, 20, 50, 100];

/// Observations of a cell.
#[derive(Debug, Clone)]
struct Observation {
    cell: Cell,
    pages_per_second: f64,
    failures: u64,
    longest: u64,
    /// Share of samples with a full queue.
    full_share: f64,
    /// Connections and connection attempts dropped because the queue was full.
    overflows: u64,
    /// The kernel's counters, for the whole machine.
    tcp: BTreeMap<String, u64>,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let cells = if bench.is_quick { QUICK.to_vec() } else { all_cells() };
    let mut observed = Vec::new();
    for cell in cells {
        observed.push(observe(bench, cell).with_context(|| format!("{cell:?}"))?);
    }
    Ok(finding(&observed))
}

fn all_cells() -> Vec<Cell> {
    let grid = BACKLOGS.iter().flat_map(|&backlog| CLIENTS.map(|clients| serial(backlog, clients)));
    grid.chain([5, 1024].into_iter().flat_map(|backlog| [50, 100].map(|c| myriad_cell(backlog, c))))
        .collect()
}

fn observe(bench: &Bench<'_>, cell: Cell) -> Result<Observation> {
    let backlog = cell.backlog.to_string();
    let options = ["--accept", cell.accept, "--backlog", &backlog, "--workers", "1"];
    let host = Host::start(bench, &options)?;
    let (address, clients) = (host.address(), cell.clients);
    let client_group = Clients::start(Plan { address, clients, manner: Manner::NewConnections })?;
    bench.pause(Duration::from_millis(bench.pick(300, 2_000)))?;

    let measured = Duration::from_millis(bench.pick(1_200, 5_000));
    let (before, pages, failures) =
        (tcp_counters()?, client_group.pages(), client_group.failure_count());
    let (overflows, started) = (drops(address.port())?, Instant::now());
    let (mut longest, mut polls, mut full) = (0, 0_u64, 0_u64);
    while started.elapsed() < measured {
        let waiting = accept_queue(address.port())?;
        longest = longest.max(waiting);
        polls += 1;
        full += u64::from(waiting > cell.backlog);
        bench.pause(POLL_INTERVAL)?;
    }
    let elapsed = started.elapsed();
    let observed = Observation {
        cell,
        pages_per_second: per_second(client_group.pages() - pages, elapsed),
        failures: client_group.failure_count() - failures,
        longest,
        full_share: real(full) / real(polls.max(1)),
        overflows: drops(address.port())?.saturating_sub(overflows),
        tcp: added(&tcp_counters()?, &before),
    };
    client_group.stop()?;
    Ok(observed)
}

impl Observation {
    fn row(&self) -> FindingRow {
        let Cell { accept, backlog, clients } = self.cell;
        let count = |name: &str| self.tcp.get(name).copied().unwrap_or_default();
        let note = format!(
            "{} overflows, {} handshakes retried on the machine, {} failed; the queue held {} at \
             most, and was full {:.0} % of the time",
            self.overflows,
            count("TCPSynRetrans"),
            self.failures,
            self.longest,
            self.full_share * 100.0
        );
        let variant = format!("{accept}, backlog {backlog}");
        let role = format!("{clients} at a time");
        FindingRow::once(&variant, &role, self.pages_per_second, "pages/s", note)
    }
}

/// The expected result: with a backlog of 5 the queue overflows at 10 clients; 20 is sufficient for
/// 10 and 20 clients, not for 50.
fn finding(observed: &[Observation]) -> Finding {
    let overflows = |cell: Cell| {
        let found = observed.iter().find(|observed| observed.cell == cell);
        found.map(|observed| observed.overflows)
    };
    let number =
        |(label, cell): (&str, Cell)| Some(Number::new(label, real(overflows(cell)?), "overflows"));
    let is_cured = |cell| overflows(cell) == Some(0);
    let is_ill = |cell| overflows(cell).is_some_and(|count| count > 0);
    let agrees = is_ill(serial(5, 10))
        && is_cured(serial(20, 10))
        && is_cured(serial(20, 20))
        && is_ill(serial(20, 50));
    Finding {
        name: "s2.p1b".into(),
        title: "Length of the accept queue".into(),
        numbers: NUMBERS.into_iter().filter_map(number).collect(),
        source: "backlog 20 instead of 5 fixes 10 and 20 at a time, not 50".into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: if agrees { String::new() } else { DEVIATION_REASON.into() },
        rows: observed.iter().map(Observation::row).collect(),
    }
}

const CONCLUSION: &str = "\
A queue of backlog + 1 holds the clients that wait while one is served; it overflows as soon as more arrive at once, and \
then the timers of the kernel determine the delay. A longer queue only moves the limit. The solution is a server that \
accepts all waiting clients before it serves the next, with a queue that is longer than any burst.";
const DEVIATION_REASON: &str = "\
the rows show which cell differs; other programs can change the bursts of a load.";

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(cell: Cell, overflows: u64) -> Observation {
        Observation {
            cell,
            pages_per_second: 20_000.0,
            failures: 0,
            longest: cell.backlog + 1,
            full_share: 0.25,
            overflows,
            tcp: BTreeMap::new(),
        }
    }

    fn all(ill: &[Cell]) -> Vec<Observation> {
        QUICK.iter().map(|cell| observed(*cell, u64::from(ill.contains(cell)) * 7)).collect()
    }

    #[test]
    fn a_longer_queue_moves_the_bound() {
        let found = finding(&all(&[serial(5, 10), serial(20, 50)]));
        assert!(found.agrees && found.deviation_reason.is_empty());
        let numbers = found.numbers();
        assert!(
            numbers.starts_with("serial, 10 at a time, backlog 5: 7, backlog 20: 0"),
            "{numbers}"
        );
        assert!(
            found.rows[1].note.starts_with("7 overflows, 0 handshakes retried on the machine"),
            "{found:?}"
        );
        assert!(found.rows[1].note.ends_with("held 6 at most, and was full 25 % of the time"));
        for ill in [&[serial(5, 10)][..], &[serial(5, 10), serial(20, 20), serial(20, 50)]] {
            assert!(!finding(&all(ill)).agrees, "{ill:?}");
        }
    }

    #[test]
    fn the_whole_grid_has_the_cells_of_the_statement() {
        let cells = all_cells();
        assert_eq!(cells.len(), BACKLOGS.len() * CLIENTS.len() + 4);
        assert!(QUICK.iter().all(|cell| cells.contains(cell)));
    }
}

//! Loads on the servers of the tests, and their reports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lab::load::{
    Arrival, Distribution, Keys, LoadEvent, LoadReport, LoadSpec, Operation, Patience, Protocol,
    Sharing, Sizes, SocketWork, Warmup, Work, generate_with,
};

use crate::server::PATIENT;

/// GET of a thousand keys over four connections.
pub(crate) fn work(address: SocketAddr) -> SocketWork {
    SocketWork {
        protocol: Protocol::Resp,
        address,
        password: None,
        threads: 1,
        connections: 4,
        users: 0,
        sharing: Sharing::Blocking,
        pipeline: 1,
        arrival: Arrival::Closed,
        mix: vec![Operation { weight: 1.0, words: vec!["GET".to_owned(), "{key}".to_owned()] }],
        keys: Keys { prefix: "key:".to_owned(), count: 1000, distribution: Distribution::Uniform },
        value_bytes: Sizes::Fixed(80),
        setup: Vec::new(),
        cql: None,
        http: None,
    }
}

pub(crate) fn spec(work: SocketWork, duration_ms: u64) -> LoadSpec {
    LoadSpec {
        work: Work::Socket(work),
        side_loads: BTreeMap::new(),
        warmup: Warmup::Fixed { ms: 0 },
        duration_ms,
        operations_max: None,
        window_ms: 50,
        cpus: Vec::new(),
        seed: 1,
    }
}

/// Runs this many operations, however long they take.
pub(crate) fn counted(work: SocketWork, operations: u64) -> LoadSpec {
    LoadSpec { operations_max: Some(operations), ..spec(work, 60_000) }
}

pub(crate) fn run(spec: &LoadSpec) -> Result<LoadReport, String> {
    run_timed(spec, PATIENT).map(|(report, _)| report)
}

/// Also returns the total time including connecting, an upper limit for the duration of the load.
pub(crate) fn run_timed(
    spec: &LoadSpec,
    patience: Patience,
) -> Result<(LoadReport, Duration), String> {
    let begun = Instant::now();
    let (mut report, mut lasted) = (None, Duration::ZERO);
    let ended = generate_with(spec, patience, &mut |event| {
        match event {
            LoadEvent::Measured => lasted = begun.elapsed(),
            LoadEvent::Done(done) => report = Some(*done),
            _ => {}
        }
        Ok(())
    });
    ended.map_err(|error| format!("{error:#}"))?;
    Ok((report.expect("a successful load has a report"), lasted))
}

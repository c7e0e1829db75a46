//! `lab cassandra-stress`: the options and output of that tool, with this lab's generator.

mod options;
mod output;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};

use self::options::{HELP, Kind, Options, Rate};
use self::output::{Interval, Summary};
use crate::command_line::{CommandLine, Job, printing};
use crate::load::{
    Arrival, CqlWork, Keys, LoadEvent, LoadReport, LoadSpec, Operation, Protocol, Schedule,
    Sharing, SocketWork, Warmup, Work, generate,
};

/// Duration limit of a run that ends by its operation count: a day.
const DURATION_MS: u64 = 86_400_000;
/// The tool warms up with a quarter of the operations, but no more than this.
const WARMUP_OPERATIONS_MAX: u64 = 50_000;
/// Connections to a server: the default of the tool's driver.
const CONNECTIONS_MAX: usize = 8;

/// Parses the arguments after `cassandra-stress`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let mut words = Vec::new();
    for word in parser.rest()? {
        words.push(word.into_string().ok().context("options must be text")?);
    }
    let Some(options) = options::parse(&words)? else { return Ok(printing(HELP)) };
    Ok(Box::new(move || run(&options)))
}

fn run(options: &Options) -> Result<()> {
    let address = resolve(options)?;
    crate::command_line::print(&output::settings(options))?;
    if let Some(operations) = warmup_operations(options) {
        let name = options.kind.name();
        crate::command_line::print(&format!(
            "Warming up {name} with {operations} iterations...\n"
        ))?;
        let warmup = Options { count: Some(operations), duration_s: None, ..options.clone() };
        load(&warmup, address, &mut |_| Ok(()))?;
    }
    crate::command_line::print(&output::running(options))?;
    crate::command_line::print(output::HEAD)?;
    let mut interval = Interval::new(options.interval_s);
    let report = load(options, address, &mut |operations| {
        crate::command_line::print(&interval.line(operations))
    })?;
    crate::command_line::print(&Summary::of(options, &report)?.text())
}

fn resolve(options: &Options) -> Result<SocketAddr> {
    Ok(base::address::resolve_host(&options.node, options.port)?)
}

fn warmup_operations(options: &Options) -> Option<u64> {
    let quarter = options.count.map_or(u64::MAX, |count| count / 4);
    let operations = quarter.min(WARMUP_OPERATIONS_MAX);
    (options.is_warmed_up && operations > 0).then_some(operations)
}

/// Generates the load; passes the operations of each interval to `on_interval`.
fn load(
    options: &Options,
    address: SocketAddr,
    on_interval: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<LoadReport> {
    let mut report = None;
    generate(&spec(options, address), &mut |event| {
        match event {
            LoadEvent::Window { operations } => return on_interval(operations),
            LoadEvent::Done(done) => report = Some(*done),
            _ => {}
        }
        Ok(())
    })?;
    report.context("the load generator sent no report")
}

fn spec(options: &Options, address: SocketAddr) -> LoadSpec {
    let connections = options.threads.min(CONNECTIONS_MAX);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let arrival = match options.rate {
        Rate::Unlimited => Arrival::Closed,
        Rate::Throttle(per_second) | Rate::Fixed(per_second) => {
            Arrival::Open { per_second, schedule: Schedule::Even }
        }
    };
    LoadSpec {
        side_loads: BTreeMap::new(),
        work: Work::Socket(SocketWork {
            protocol: Protocol::Cql,
            address,
            password: options.password.clone(),
            threads: connections.min(cores),
            connections,
            users: options.threads,
            sharing: Sharing::Multiplexed,
            pipeline: 1,
            arrival,
            mix: mix(options),
            keys: Keys {
                prefix: String::new(),
                count: options.keys_count,
                distribution: options.distribution,
            },
            value_bytes: options.column_bytes,
            setup: Vec::new(),
            cql: Some(Box::new(CqlWork {
                user: options.user.clone(),
                consistency: options.consistency,
                schema: schema(options),
            })),
            http: None,
        }),
        warmup: Warmup::Fixed { ms: 0 },
        duration_ms: options.duration_s.map_or(DURATION_MS, |seconds| seconds * 1_000),
        operations_max: options.count,
        window_ms: options.interval_s * 1_000,
        cpus: Vec::new(),
        seed: 1,
    }
}

/// The tool's table: a key, and columns C0, C1, ...
// Source: cassandra-stress 5.0, the schema and the statements of its commands read and write
fn schema(options: &Options) -> Vec<String> {
    let (keyspace, factor) = (&options.keyspace, options.replication_factor);
    let columns = (0..options.columns).map(|number| format!(", \"C{number}\" blob"));
    let columns: String = columns.collect();
    let mut schema = vec![
        format!(
            "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': \
             'SimpleStrategy', 'replication_factor': '{factor}'}} AND durable_writes = true"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS \"{keyspace}\".\"standard1\" (key blob PRIMARY KEY{columns})"
        ),
    ];
    if options.truncates {
        schema.push(format!("TRUNCATE \"{keyspace}\".\"standard1\""));
    }
    schema
}

fn mix(options: &Options) -> Vec<Operation> {
    let keyspace = &options.keyspace;
    let columns: Vec<String> =
        (0..options.columns).map(|number| format!("\"C{number}\" = {{value}}")).collect();
    let columns = columns.join(", ");
    let write = format!("UPDATE \"{keyspace}\".\"standard1\" SET {columns} WHERE key = {{key}}");
    let read = format!("SELECT * FROM \"{keyspace}\".\"standard1\" WHERE key = {{key}}");
    let operation =
        |weight, statement: &String| Operation { weight, words: vec![statement.clone()] };
    match options.kind {
        Kind::Write => vec![operation(1.0, &write)],
        Kind::Read => vec![operation(1.0, &read)],
        Kind::Mixed { reads, writes } => vec![operation(reads, &read), operation(writes, &write)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{CqlConsistency, Distribution, Sizes};

    fn options_of(words: &str) -> Options {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        options::parse(&words).unwrap().unwrap()
    }

    fn work_of(words: &str) -> (LoadSpec, SocketWork) {
        let spec = spec(&options_of(words), SocketAddr::from(([127, 0, 0, 1], 1)));
        let Work::Socket(work) = spec.work.clone() else { panic!("sockets") };
        (spec, work)
    }

    #[test]
    fn threads_share_the_drivers_connections() {
        let (spec, work) = work_of("write n=1000 -rate threads=50 -col n=FIXED(2) size=FIXED(7)");
        assert_eq!((work.connections, work.users), (8, 50));
        assert_eq!((spec.operations_max, work.value_bytes), (Some(1000), Sizes::Fixed(7)));
        assert_eq!(
            work.mix[0].words,
            [
                "UPDATE \"keyspace1\".\"standard1\" SET \"C0\" = {value}, \"C1\" = {value} WHERE key \
              = {key}"
            ]
        );
        let cql = work.cql.unwrap();
        assert_eq!(cql.consistency, CqlConsistency::LocalOne);
        assert!(cql.schema[1].ends_with("(key blob PRIMARY KEY, \"C0\" blob, \"C1\" blob)"));
        assert_eq!(work_of("read n=9 -rate threads=3").1.connections, 3);
    }

    #[test]
    fn rates_are_schedules() {
        let (spec, work) =
            work_of("mixed ratio(write=1,read=3) duration=2m -rate threads=4 fixed=500/s");
        assert_eq!((spec.duration_ms, spec.operations_max), (120_000, None));
        assert!(matches!(work.arrival, Arrival::Open { per_second, .. } if per_second > 499.0));
        let weights: Vec<f64> = work.mix.iter().map(|operation| operation.weight).collect();
        assert_eq!(weights, [3.0, 1.0]);
        assert!(matches!(work.keys.distribution, Distribution::Gaussian));
    }

    #[test]
    fn a_quarter_warms_up() {
        let warmup = |words: &str| warmup_operations(&options_of(words));
        assert_eq!(warmup("write n=1000 -rate threads=1"), Some(250));
        assert_eq!(warmup("write n=1000000 -rate threads=1"), Some(50_000));
        assert_eq!(warmup("write duration=1s -rate threads=1"), Some(50_000));
        assert_eq!(warmup("write n=1000 no-warmup -rate threads=1"), None);
        assert_eq!(warmup("write n=3 -rate threads=1"), None);
    }
}

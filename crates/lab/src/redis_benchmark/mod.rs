//! `myriad-lab redis-benchmark`: the options and output of that tool, with this lab's generator.

mod options;
mod output;
mod suite;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use wire::resp::{Reply, decode_reply, encode_request};

use self::options::{HELP, Options};
use self::output::{Facts, ServerConfig};
use self::suite::{Test, selected};
use crate::command_line::{CommandLine, Job, printing};
use crate::load::{
    Arrival, Distribution, Keys, LoadEvent, LoadReport, LoadSpec, Operation, Sharing, Sizes,
    SocketWork, Warmup, Work, generate,
};

/// Interval of the progress display.
const PROGRESS_MS: u64 = 250;
/// Duration limit: a day. Normally the number of requests ends a test.
const DURATION_MS: u64 = 86_400_000;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for the reply to CONFIG GET.
const CONFIG_BYTES_MAX: usize = 64 << 10;

/// Parses the arguments after `redis-benchmark`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let Some(options) = options::parse(parser)? else { return Ok(printing(HELP)) };
    Ok(Box::new(move || run_tests(&options)))
}

fn run_tests(options: &Options) -> Result<()> {
    let address = resolve(options)?;
    if options.is_idle {
        return stay_idle(options, address);
    }
    let config = if options.is_csv || options.is_quiet { None } else { config(options, address) };
    if options.is_csv {
        crate::command_line::print(output::CSV_HEADER)?;
    }
    loop {
        for test in selected(options) {
            run(options, address, config.as_ref(), &test)?;
        }
        if !options.is_csv {
            crate::command_line::print("\n")?;
        }
        if !options.loops {
            return Ok(());
        }
    }
}

fn resolve(options: &Options) -> Result<SocketAddr> {
    Ok(base::address::resolve_host(&options.host, options.port)?)
}

fn run(
    options: &Options,
    address: SocketAddr,
    config: Option<&ServerConfig>,
    test: &Test,
) -> Result<()> {
    let report = load(options, address, test)?;
    if let Some(word) = report.errors.keys().next() {
        bail!("Error from server: {word}");
    }
    ensure!(
        report.broken_connections == 0 && report.lost == 0,
        "the server closed {} connections, and {} requests had no reply",
        report.broken_connections,
        report.lost
    );
    let facts = Facts {
        title: &test.title,
        requests: report.operations,
        duration_ns: report.duration_ns,
        clients: options.clients,
        payload_bytes: test.payload_bytes,
        config,
        threads: options.threads,
        latency: output::microseconds(&report.latency_raw)?,
    };
    crate::command_line::print(&if options.is_csv {
        facts.csv()
    } else if options.is_quiet {
        facts.quiet()
    } else {
        facts.full()
    })
}

/// Sends the requests of one test, and displays the progress on a terminal.
fn load(options: &Options, address: SocketAddr, test: &Test) -> Result<LoadReport> {
    let spec = spec(options, address, test);
    let mut report = None;
    let mut requests = 0;
    let mut windows = 0;
    generate(&spec, &mut |event| {
        match event {
            LoadEvent::Window { operations } if !options.is_csv => {
                requests += operations;
                windows += 1;
                let in_flight = options.clients.saturating_mul(options.pipeline) as u64;
                let progress = output::Progress { operations, requests, windows, in_flight };
                return crate::command_line::print(&progress.line(&test.title));
            }
            LoadEvent::Done(done) => report = Some(*done),
            _ => {}
        }
        Ok(())
    })?;
    report.context("the load generator sent no report")
}

fn spec(options: &Options, address: SocketAddr, test: &Test) -> LoadSpec {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let mut setup: Vec<Vec<String>> = Vec::new();
    if options.is_resp3 {
        setup.push(words(&["HELLO", "3"]));
    }
    if options.database != 0 {
        setup.push(words(&["SELECT", &options.database.to_string()]));
    }
    LoadSpec {
        side_loads: BTreeMap::new(),
        work: Work::Socket(SocketWork {
            protocol: test.protocol,
            address,
            password: options.password.clone(),
            threads: options.threads.unwrap_or(1),
            connections: options.clients,
            users: 0,
            sharing: Sharing::Blocking,
            pipeline: options.pipeline,
            arrival: Arrival::Closed,
            mix: vec![Operation { weight: 1.0, words: test.words.clone() }],
            keys: Keys {
                prefix: String::new(),
                count: options.keys_count.unwrap_or(1),
                distribution: Distribution::Uniform,
            },
            value_bytes: Sizes::Fixed(options.data_bytes),
            setup,
            cql: None,
            http: None,
        }),
        warmup: Warmup::Fixed { ms: 0 },
        duration_ms: DURATION_MS,
        operations_max: Some(options.requests),
        window_ms: PROGRESS_MS,
        cpus: Vec::new(),
        seed: 1,
    }
}

/// Opens connections and keeps them until the process is killed.
fn stay_idle(options: &Options, address: SocketAddr) -> Result<()> {
    let connect = || TcpStream::connect_timeout(&address, TIMEOUT);
    let connections: std::io::Result<Vec<TcpStream>> =
        (0..options.clients).map(|_| connect()).collect();
    let connections = connections.with_context(|| format!("could not connect to {address}"))?;
    crate::command_line::print(&format!(
        "Creating {} idle connections and waiting forever (Ctrl+C when done)\n",
        connections.len()
    ))?;
    loop {
        std::thread::park();
    }
}

/// Reads the server's settings for the report; `None` if they are unavailable.
fn config(options: &Options, address: SocketAddr) -> Option<ServerConfig> {
    let config = fetch_config(options, address);
    if let Err(error) = &config {
        tracing::debug!(%error, "CONFIG GET");
        // As in the original, the test continues. Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "WARNING: Could not fetch server CONFIG");
    }
    config.ok()
}

fn fetch_config(options: &Options, address: SocketAddr) -> Result<ServerConfig> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    if let Some(password) = &options.password {
        ask(&mut stream, &[b"AUTH", password.as_bytes()])?;
    }
    Ok(ServerConfig {
        save: setting(&mut stream, b"save")?,
        appendonly: setting(&mut stream, b"appendonly")?,
    })
}

fn setting(stream: &mut TcpStream, name: &[u8]) -> Result<String> {
    match ask(stream, &[b"CONFIG", b"GET", name])? {
        Reply::Array(pair) => match pair.as_slice() {
            [_, Reply::Bulk(value)] => Ok(String::from_utf8_lossy(value).into_owned()),
            _ => bail!("unknown setting"),
        },
        other => bail!("{other:?} is not a setting"),
    }
}

fn ask(stream: &mut TcpStream, words: &[&[u8]]) -> Result<Reply> {
    let mut request = Vec::new();
    encode_request(words, &mut request);
    stream.write_all(&request)?;
    let (mut input, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        if let Some((reply, _)) = decode_reply(&input)? {
            return Ok(reply);
        }
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "the server closed the connection");
        ensure!(input.len() < CONFIG_BYTES_MAX, "the reply is too long");
        input.extend_from_slice(&chunk[..count]);
    }
}

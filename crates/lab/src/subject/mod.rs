//! Servers under test: started with an empty directory and a free port, queried for their counters,
//! and stopped on drop.

pub(crate) mod command;
mod probe;
mod scratch;
mod spec;
mod web;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

pub(crate) use command::{available_cpus, spawn_pinned};
pub(crate) use command::{ending_with_us, myriad};
pub(crate) use scratch::Scratch;
#[cfg(test)]
pub(crate) use scratch::tests::write_program;
pub(crate) use spec::{Kind, OptionValue, REPLICAS_MAX, Replicas, SubjectSpec};

use crate::measure::process_tree;
use crate::row::SubjectRow;
use command::Launch;

/// Limit for a server's start. It excludes recovery of a large log, because the directory is empty.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Cassandra creates its tables first, which takes a minute on one core.
const CASSANDRA_START_TIMEOUT: Duration = Duration::from_mins(4);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Limit for the first copy of an empty data set.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(30);
/// Another program may take a free port before it is used.
const START_ATTEMPTS: usize = 5;
/// A server that has not stopped by then is killed: its directory is removed in any case.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Length of the end of a server's output that is included in an error.
const OUTPUT_CHARS_MAX: usize = 1_000;

/// Reason why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    #[error("{0} is not installed: it is not found on PATH")]
    NotInstalled(Kind),
    #[error("{} does not exist: build it with cargo build --release -p myriad", .0.display())]
    NotBuilt(PathBuf),
    #[error("{0} runs inside the generator: there is no server to start")]
    NoServer(Kind),
    #[error("{program} did not start: {reason}")]
    NotStarted { program: String, reason: String },
    #[error("could not query INFO of {address}: {source}")]
    Info { address: SocketAddr, source: io::Error },
    #[error("{online} of {count} replicas had the data after {REPLICAS_TIMEOUT:?}")]
    Replicas { online: usize, count: usize },
    #[error("{online} of {count} replicas were connected at the end")]
    ReplicasLeft { online: usize, count: usize },
    #[error("prepare {what}: {source}")]
    Prepare { what: String, source: io::Error },
}

/// A running server. Dropping it stops the process and removes its directory.
///
/// If the lab itself is killed, the kernel kills the server together with the thread that started
/// it, provided that `setpriv` (util-linux) is installed.
#[derive(Debug)]
pub struct Subject {
    child: Child,
    address: SocketAddr,
    /// The CQL address, if any.
    cql: Option<SocketAddr>,
    /// The HTTP address, if any.
    http: Option<SocketAddr>,
    password: Option<String>,
    row: SubjectRow,
    kind: Kind,
    replicas: Vec<Subject>,
    /// Removed after the process has exited.
    _scratch: Scratch,
}

impl Subject {
    /// Starts a server and waits until it responds.
    pub fn start(spec: &SubjectSpec) -> Result<Self, SubjectError> {
        if spec.kind == Kind::Log {
            return Err(SubjectError::NoServer(spec.kind));
        }
        let mut subject = Self::start_alone(spec)?;
        let replica = spec.replica_of(subject.address);
        for _ in 0..spec.replicas.count {
            subject.replicas.push(Self::start_alone(&replica)?);
        }
        subject.wait_for_replicas()?;
        Ok(subject)
    }

    fn start_alone(spec: &SubjectSpec) -> Result<Self, SubjectError> {
        let program = command::program(spec)?;
        let version = command::version(&program, spec.kind);
        let mut attempts = 1..=START_ATTEMPTS;
        loop {
            let attempt = attempts.next();
            match Self::try_start(spec, &program, &version) {
                Err(SubjectError::NotStarted { reason, .. })
                    if attempt < Some(START_ATTEMPTS) && spec::is_port_taken(&reason) => {}
                result => return result,
            }
        }
    }

    fn try_start(spec: &SubjectSpec, program: &Path, version: &str) -> Result<Self, SubjectError> {
        let prepare = |what: &str, source| SubjectError::Prepare { what: what.into(), source };
        let parent = spec.directory.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = Scratch::new(&parent).map_err(|e| prepare("a directory", e))?;
        let launch = Launch::new(spec, program, scratch.path())
            .map_err(|error| prepare("a free port", error))?;
        if spec.kind.is_web() {
            web::prepare(spec.kind, scratch.path(), launch.address, &spec.options)
                .map_err(|error| prepare("a web server", error))?;
        }
        let output_path = scratch.path().join("output");
        let output = File::create(&output_path).map_err(|e| prepare("a file for output", e))?;
        let errors = output.try_clone().map_err(|e| prepare("a file for output", e))?;
        let mut command = launch.command();
        command.current_dir(scratch.path()).stdin(Stdio::null()).stdout(output).stderr(errors);
        let cpus = available_cpus(&spec.cpus);
        let child = spawn_pinned(&mut command, &cpus)
            .map_err(|error| not_started(program, error.to_string()))?;
        let mut subject = Self {
            child,
            address: launch.address,
            cql: matches!(spec.kind, Kind::Cassandra | Kind::Echo).then_some(launch.address),
            http: spec.kind.is_web().then_some(launch.address),
            password: spec.password(),
            row: SubjectRow {
                kind: spec.kind.to_string(),
                version: version.to_owned(),
                command_line: launch.words(),
                cpus,
            },
            kind: spec.kind,
            replicas: Vec::new(),
            _scratch: scratch,
        };
        subject.wait_until_ready(program, &output_path)?;
        Ok(subject)
    }

    fn wait_until_ready(&mut self, program: &Path, output: &Path) -> Result<(), SubjectError> {
        let timeout = match self.kind {
            Kind::Cassandra => CASSANDRA_START_TIMEOUT,
            _ => START_TIMEOUT,
        };
        let deadline = now() + timeout;
        loop {
            let text = read_lossy(output);
            if let Some(address) = self.kind.announced(self.kind.first_protocol(), &text) {
                self.address = address;
                self.cql = self.kind.announced("cql", &text);
                self.http = self.kind.announced("http", &text);
            }
            if self.address.port() != 0 && probe::answers(self.kind, self.address).is_ok() {
                return Ok(());
            }
            let status = self.child.try_wait();
            let status = status.map_err(|error| not_started(program, error.to_string()))?;
            if let Some(status) = status {
                return Err(not_started(program, ended(status, &read_lossy(output))));
            }
            if now() > deadline {
                let last = tail(&read_lossy(output));
                let reason = format!("no response within {timeout:?}; output: {last}");
                return Err(not_started(program, reason));
            }
            pause();
        }
    }

    fn wait_for_replicas(&self) -> Result<(), SubjectError> {
        let count = self.replicas.len();
        if count == 0 {
            return Ok(());
        }
        let deadline = now() + REPLICAS_TIMEOUT;
        loop {
            let online = probe::replicas_online(&self.info("replication")?);
            if online == count {
                return Ok(());
            }
            if now() > deadline {
                return Err(SubjectError::Replicas { online, count });
            }
            pause();
        }
    }

    fn info(&self, section: &str) -> Result<String, SubjectError> {
        let address = self.address;
        probe::info(address, self.password.as_deref(), section)
            .map_err(|source| SubjectError::Info { address, source })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processes of its replicas.
    pub fn replica_pids(&self) -> Vec<u32> {
        self.replicas.iter().map(Self::pid).collect()
    }

    /// Returns the processes that do its work: the started one and, for a web server, its
    /// descendants.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        if self.kind.is_web() { process_tree(self.pid()) } else { Ok(vec![self.pid()]) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CQL address, if any.
    pub fn cql_address(&self) -> Option<SocketAddr> {
        self.cql
    }

    /// Returns the HTTP address, if any.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns its description for rows.
    pub fn row(&self) -> &SubjectRow {
        &self.row
    }

    /// Returns the password set by its options.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the server's own totals since its start, by name: system calls as `syscalls_read`,
    /// lock waits as `lock_waits` and `lock_wait_ns`. Empty for servers without counters. Takes one
    /// request.
    pub fn counters(&self) -> Result<BTreeMap<String, f64>, SubjectError> {
        if self.kind != Kind::Myriad {
            return Ok(BTreeMap::new());
        }
        Ok(probe::counters(&self.info("counters")?))
    }

    /// Fails if a replica has left, so that the server does not feed it any more.
    pub fn check_replicas(&self) -> Result<(), SubjectError> {
        let count = self.replicas.len();
        if count == 0 {
            return Ok(());
        }
        match probe::replicas_online(&self.info("replication")?) {
            online if online == count => Ok(()),
            online => Err(SubjectError::ReplicasLeft { online, count }),
        }
    }

    /// Whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Terminates a child, and kills it if necessary. It is reaped when this returns.
pub(crate) fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // Only fails if the process has already exited.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = now() + STOP_TIMEOUT;
    while now() < deadline {
        match child.try_wait() {
            Ok(None) => pause(),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    // Includes its descendants, which are in its process group if it was started by
    // `ending_with_us`.
    if let Some(pid) = pid {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn not_started(program: &Path, reason: String) -> SubjectError {
    SubjectError::NotStarted { program: program.display().to_string(), reason }
}

fn ended(status: ExitStatus, output: &str) -> String {
    match tail(output) {
        last if last.is_empty() => format!("it exited with {status}"),
        last => format!("it exited with {status}; output: {last}"),
    }
}

/// Missing or malformed output is not an error: only the server's response matters.
fn read_lossy(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn tail(text: &str) -> String {
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    text.chars().skip(skipped).collect()
}

fn now() -> Instant {
    Instant::now()
}

fn pause() {
    thread::sleep(POLL_INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: Kind) -> SubjectSpec {
        SubjectSpec {
            kind,
            label: None,
            binary: None,
            cpus: Vec::new(),
            options: BTreeMap::new(),
            replicas: Replicas::default(),
            directory: None,
        }
    }

    #[test]
    fn missing_programs_are_reported() {
        let missing =
            SubjectSpec { binary: Some("no-such-server".into()), ..spec(Kind::Memcached) };
        let error = Subject::start(&missing).unwrap_err();
        assert!(matches!(error, SubjectError::NotInstalled(Kind::Memcached)), "{error}");
        let error = Subject::start(&spec(Kind::Log)).unwrap_err();
        assert_eq!(error.to_string(), "log runs inside the generator: there is no server to start");
    }

    /// If a program exits immediately, its output is included in the error.
    #[test]
    fn a_server_that_ends_is_quoted() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let script = "#!/bin/sh\necho no memory left\nexit 3\n";
        let path = write_program(&scratch, "server", script);
        let broken = SubjectSpec { binary: Some(path), ..spec(Kind::RedisServer) };
        let error = Subject::start(&broken).unwrap_err().to_string();
        assert!(
            error.ends_with("it exited with exit status: 3; output: no memory left"),
            "{error}"
        );
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).unwrap();
        stop(&mut child);
        assert!(child.try_wait().unwrap().is_some());
    }
}

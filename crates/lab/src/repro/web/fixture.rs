//! The site for the expectations, and checks that need more than one request.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::Bench;
use super::host::{Host, signal};
use super::talk::{GET, HELLO, ask, connect, receives_hello};
use crate::subject::{Scratch, available_cpus};

/// The content of `a.txt`, nine bytes.
pub(super) const SMALL: &str = "content a";
/// The last bytes of `big.bin`.
pub(super) const BIG_BYTES: &str = "end";
const BIG_FILE_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout in tests of timeouts.
const SHORT_MS: &str = "250";
const CLOSE: &str = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// For the data server, which refuses unknown hosts because a browser may have been redirected to
/// them.
const LOCAL_CLOSE: &str = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Files to serve, and one outside the root that must not be served.
#[derive(Debug)]
pub(super) struct Fixture {
    scratch: Scratch,
}

impl Fixture {
    pub(super) fn new() -> Result<Self> {
        let scratch =
            Scratch::new(&std::env::temp_dir()).context("could not create a directory")?;
        let fixture = Self { scratch };
        fixture.fill().context("could not write the files of a site")?;
        Ok(fixture)
    }

    fn fill(&self) -> std::io::Result<()> {
        let root = self.path("root");
        fs::create_dir_all(root.join("sub"))?;
        fs::write(self.path("secret.txt"), "secret")?;
        fs::write(root.join("index.html"), "<p>index</p>")?;
        fs::write(root.join("a.txt"), SMALL)?;
        fs::write(root.join("data.json"), "{}")?;
        fs::write(root.join("strange.xyz"), "?")?;
        fs::write(root.join(".hidden"), "secret")?;
        fs::write(root.join("page.html"), "<p>page</p>".repeat(500))?;
        fs::write(root.join("page.html.br"), "packed before")?;
        fs::write(root.join("photo.png"), "photo".repeat(500))?;
        let mut big = vec![b'.'; BIG_FILE_BYTES - BIG_BYTES.len()];
        big.extend_from_slice(BIG_BYTES.as_bytes());
        fs::write(root.join("big.bin"), big)?;
        symlink("a.txt", root.join("inside.txt"))?;
        symlink("../secret.txt", root.join("link.txt"))?;
        symlink("/etc/hostname", root.join("absolute.txt"))?;
        symlink("..", root.join("outside"))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts a server of these files with an unreachable upstream.
    pub(super) fn host(&self, bench: &Bench<'_>, options: &[&str]) -> Result<Host> {
        let root = self.path("root").display().to_string();
        let common = ["--workers", "1", "--root", &root, "--body-bytes-max", "1000000"];
        // No server listens on port 1.
        let upstream = ["--upstream", "127.0.0.1:1"];
        Host::start(bench, &[&common[..], &upstream, options].concat())
    }
}

/// A check with several steps.
pub(super) struct Trial {
    pub(super) row: &'static str,
    pub(super) what: &'static str,
    pub(super) run: fn(&Bench<'_>, &Fixture) -> Result<()>,
}

#[rustfmt::skip]
pub(super) const TRIALS: &[Trial] = &[
    Trial { row: "W1", what: "100-continue before a body that waits for it", run: sends_continue },
    Trial { row: "W2", what: "a head over the limit", run: long_head },
    Trial { row: "W2", what: "header lines over the limit", run: many_lines },
    Trial { row: "W2", what: "a target over the limit", run: long_target },
    Trial { row: "W2", what: "connections of one address over the limit: 503 with Retry-After", run: limited_connections },
    Trial { row: "W3", what: "half a head: 408 after the timeout", run: slow_head },
    Trial { row: "W3", what: "half a body: 408 after the timeout", run: slow_body },
    Trial { row: "W3", what: "a silent connection is closed without a response", run: silent },
    Trial { row: "W3", what: "a response that is not read is aborted", run: untaken },
    Trial { row: "W4", what: "a version that the client has: 304", run: same_version },
    Trial { row: "W6", what: "values by HTTP, of the data server", run: values },
    Trial { row: "W7", what: "health, readiness and counters, of the data server", run: health },
    Trial { row: "W8", what: "TERM completes pending requests, and then ends", run: drains },
    Trial { row: "W10", what: "a line per request, and a new file after USR1", run: logs },
    Trial { row: "W13", what: "the same with threads", run: threads },
    Trial { row: "W15", what: "options are reloaded without interruption", run: reloads },
];

/// Implemented expectations that are tested elsewhere: the lab has neither client nor certificates
/// for them.
pub(super) const ELSEWHERE: &[(&str, &str, &str)] =
    &[("W9", "TLS", "supported (listen-tls); tested by the tests of the program")];

/// Unimplemented expectations, with alternatives.
pub(super) const ABSENT: &[(&str, &str, &str)] = &[
    ("W11", "HTTP/2 and WebSocket", "HTTP/1.1 only; the data server offers server-sent events"),
    (
        "W14",
        "CORS, tokens, lists of addresses",
        "the data server has tokens; the web server serves all clients",
    ),
];

fn check(address: SocketAddr, request: &str, status: u16) -> Result<String> {
    let answer = String::from_utf8_lossy(&ask(address, request.as_bytes())?).into_owned();
    let line = answer.lines().next().unwrap_or_default();
    ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line:?} instead of {status}");
    Ok(answer)
}

fn sends_continue(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut answer = [0; 25];
    stream.read_exact(&mut answer)?;
    ensure!(answer == *expected, "{:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn long_head(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let request = format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(100_000));
    check(host.address(), &request, 431).map(drop)
}

fn many_lines(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let request = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101));
    check(host.address(), &request, 431).map(drop)
}

fn long_target(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let request = format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000));
    check(host.address(), &request, 414).map(drop)
}

fn limited_connections(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &["--connections-per-address-max", "2"])?;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(host.address(), PATIENCE)?;
        stream.write_all(GET)?;
        ensure!(receives_hello(&mut stream)?, "no response within the limit");
        kept.push(stream);
    }
    let answer = check(host.address(), &format!("GET / {CLOSE}"), 503)?;
    ensure!(answer.contains("Retry-After: "), "missing Retry-After");
    Ok(())
}

fn slow_head(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &["--head-timeout-ms", SHORT_MS])?;
    check(host.address(), "GET /hello HT", 408).map(drop)
}

fn slow_body(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let options = ["--head-timeout-ms", SHORT_MS, "--body-rate-min", "1000000"];
    let host = fixture.host(bench, &options)?;
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";
    check(host.address(), request, 408).map(drop)
}

fn silent(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let options = ["--head-timeout-ms", SHORT_MS, "--idle-timeout-ms", SHORT_MS];
    let host = fixture.host(bench, &options)?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let count = stream.read(&mut [0; 64]).context("could not wait for the end")?;
    ensure!(count == 0, "unexpected response");
    let mut stream = connect(host.address(), PATIENCE)?;
    stream.write_all(GET)?;
    ensure!(receives_hello(&mut stream)?, "no response to the first request");
    let count = stream.read(&mut [0; 64]).context("could not wait for the end")?;
    ensure!(count == 0, "unexpected data after the response");
    Ok(())
}

/// Requests more than the socket buffers hold, and does not read it.
fn untaken(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &["--write-timeout-ms", SHORT_MS])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
    stream.write_all(get.as_bytes())?;
    ensure!(stream.read(&mut [0; 64])? > 0, "no data of the file was received");
    let (worker, port) = (host.worker()?, host.address().port());
    bench.wait_for("the connection is closed", PATIENCE, || {
        Ok(super::sockets::clients_of(worker, port)?.is_empty().then_some(()))
    })
}

fn same_version(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let answer = check(host.address(), &format!("GET /a.txt {CLOSE}"), 200)?;
    let mut lines = answer.lines();
    let etag = lines.find_map(|line| line.strip_prefix("ETag: ")).context("missing ETag")?;
    let line = format!("HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-None-Match: {etag}\r\n\r\n");
    check(host.address(), &format!("GET /a.txt {line}"), 304).map(drop)
}

/// Starts the data server, for the expectations on data.
fn data_server(bench: &Bench<'_>, fixture: &Fixture) -> Result<Host> {
    let folder = fixture.path("data");
    fs::create_dir_all(&folder)?;
    let folder = folder.display().to_string();
    let resp = ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let words =
        [&resp[..], &["--dir", &folder, "--durability", "never", "--reactors", "1"]].concat();
    Host::start_on(bench, &words, "http=", &available_cpus(&[super::SERVER_CPU]))
}

fn values(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = data_server(bench, fixture)?;
    let put = "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nb\r\nc";
    let answer = String::from_utf8_lossy(&ask(host.address(), put.as_bytes())?).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 20"), "PUT: {answer:?}");
    let answer = check(host.address(), &format!("GET /kv/a {LOCAL_CLOSE}"), 200)?;
    ensure!(answer.ends_with("\r\n\r\nb\r\nc") && answer.contains("ETag: "), "GET: {answer:?}");
    let delete = ask(host.address(), format!("DELETE /kv/a {LOCAL_CLOSE}").as_bytes())?;
    ensure!(delete.starts_with(b"HTTP/1.1 20"), "DELETE: {:?}", String::from_utf8_lossy(&delete));
    check(host.address(), &format!("GET /kv/a {LOCAL_CLOSE}"), 404).map(drop)
}

fn health(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = data_server(bench, fixture)?;
    check(host.address(), &format!("GET /healthz {LOCAL_CLOSE}"), 200)?;
    check(host.address(), &format!("GET /readyz {LOCAL_CLOSE}"), 200)?;
    let metrics = check(host.address(), &format!("GET /metrics {LOCAL_CLOSE}"), 200)?;
    ensure!(metrics.contains("# HELP ") && metrics.contains("# TYPE "), "missing HELP or TYPE");
    Ok(())
}

fn drains(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &[])?;
    let mut download = connect(host.address(), PATIENCE)?;
    download.write_all(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut answer = vec![0; 1024];
    let count = download.read(&mut answer)?;
    answer.truncate(count);
    signal(host.master(), Signal::TERM)?;
    download.read_to_end(&mut answer).context("could not read the rest of a file")?;
    ensure!(
        answer.len() > BIG_FILE_BYTES && answer.ends_with(BIG_BYTES.as_bytes()),
        "the response is truncated"
    );
    let is_closed = || Ok(connect(host.address(), PATIENCE).is_err().then_some(()));
    bench.wait_for("the port is closed", PATIENCE, is_closed)
}

fn logs(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let (log, old) = (fixture.path("access.log"), fixture.path("access.log.1"));
    let host = fixture.host(bench, &["--access-log", &log.display().to_string()])?;
    let has_line = |path: &Path, word: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        Ok(text.lines().any(|line| line.contains(word)).then_some(()))
    };
    check(host.address(), &format!("GET /a.txt?first {CLOSE}"), 200)?;
    let first = "\"GET /a.txt?first HTTP/1.1\" 200 9 ";
    bench.wait_for("a line is written", PATIENCE, || has_line(&log, first))?;
    fs::rename(&log, &old)?;
    signal(host.master(), Signal::USR1)?;
    bench.wait_for("the file is opened", PATIENCE, || Ok(log.exists().then_some(())))?;
    check(host.address(), &format!("GET /a.txt?second {CLOSE}"), 200)?;
    bench.wait_for("a line is written", PATIENCE, || has_line(&log, "?second HTTP/1.1\" 200 9 "))
}

fn threads(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let host = fixture.host(bench, &["--mode", "thread"])?;
    ensure!(host.workers()?.is_empty(), "found a worker process");
    ensure!(ask(host.address(), b"GET /hello HTTP/1.0\r\n\r\n")? == HELLO, "unexpected response");
    check(host.address(), &format!("GET /a.txt {CLOSE}"), 200).map(drop)
}

fn reloads(bench: &Bench<'_>, fixture: &Fixture) -> Result<()> {
    let file = fixture.path("web.toml");
    fs::write(&file, "target-bytes-max = 8000\n")?;
    let host = fixture.host(bench, &["--config", &file.display().to_string()])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    stream.write_all(GET)?;
    ensure!(receives_hello(&mut stream)?, "no response");
    fs::write(&file, "target-bytes-max = 100\n")?;
    signal(host.master(), Signal::HUP)?;
    let long = format!("GET /{} {CLOSE}", "a".repeat(200));
    bench.wait_for("the new limit is in effect", PATIENCE, || {
        Ok(ask(host.address(), long.as_bytes())?.starts_with(b"HTTP/1.1 414 ").then_some(()))
    })?;
    // The old worker responds once more, and announces the end of the connection.
    stream.write_all(GET)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("could not send a request on the old connection")?;
    ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_has_what_the_exchanges_ask_for() {
        let fixture = Fixture::new().unwrap();
        assert_eq!(SMALL.len(), 9);
        assert_eq!(fs::read_to_string(fixture.path("root/inside.txt")).unwrap(), SMALL);
        assert_eq!(fs::read_to_string(fixture.path("root/link.txt")).unwrap(), "secret");
        assert_eq!(fs::metadata(fixture.path("root/big.bin")).unwrap().len(), 8 << 20);
        let folder = fixture.path("");
        drop(fixture);
        assert!(!folder.exists());
    }

    #[test]
    fn every_expectation_of_the_list_is_looked_at_somewhere() {
        let exchanges = super::super::exchanges::ALL.iter().map(|one| one.row);
        let rows = exchanges.chain(TRIALS.iter().map(|trial| trial.row));
        let others = ELSEWHERE.iter().chain(ABSENT).map(|(row, ..)| *row);
        let rows: Vec<&str> = rows.chain(others).collect();
        for number in 1..=16 {
            let row = format!("W{number}");
            // Table s2.r7 covers signals and replaced workers.
            assert!(number == 12 || rows.contains(&row.as_str()), "{row}");
        }
    }
}

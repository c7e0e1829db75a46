//! The site of the expectations, and those that take more than a request and its answer.

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
use super::talk::{GET, HELLO, ask, connect, hears_hello};
use crate::subject::{Scratch, available_cpus};

/// The content of `a.txt`, nine bytes.
pub(super) const SMALL: &str = "content a";
/// The last bytes of `big.bin`.
pub(super) const BIG_BYTES: &str = "end";
const BIG_FILE_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// Of servers whose timeouts are tried.
const SHORT_MS: &str = "250";
const CLOSE: &str = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// For the data server, which refuses hosts of pages that a browser may have come from.
const LOCAL_CLOSE: &str = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Files to be served, and one beside them that must not be.
#[derive(Debug)]
pub(super) struct Ground {
    scratch: Scratch,
}

impl Ground {
    pub(super) fn new() -> Result<Self> {
        let scratch = Scratch::new(&std::env::temp_dir()).context("make a directory")?;
        let ground = Self { scratch };
        ground.fill().context("write the files of a site")?;
        Ok(ground)
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

    /// A server of these files with an upstream that is not there.
    pub(super) fn host(&self, bench: &Bench<'_>, options: &[&str]) -> Result<Host> {
        let root = self.path("root").display().to_string();
        let common = ["--workers", "1", "--root", &root, "--body-bytes-max", "1000000"];
        // Port 1 belongs to nobody who answers.
        let upstream = ["--upstream", "127.0.0.1:1"];
        Host::start(bench, &[&common[..], &upstream, options].concat())
    }
}

/// An expectation that takes several steps.
pub(super) struct Trial {
    pub(super) row: &'static str,
    pub(super) what: &'static str,
    pub(super) run: fn(&Bench<'_>, &Ground) -> Result<()>,
}

#[rustfmt::skip]
pub(super) const TRIALS: &[Trial] = &[
    Trial { row: "W1", what: "100-continue before a body that waits for it", run: says_continue },
    Trial { row: "W2", what: "a head over the limit", run: long_head },
    Trial { row: "W2", what: "header lines over the limit", run: many_lines },
    Trial { row: "W2", what: "a target over the limit", run: long_target },
    Trial { row: "W2", what: "connections of one address over the limit: 503, and when to come again", run: crowded },
    Trial { row: "W3", what: "half a head: 408 in its time", run: slow_head },
    Trial { row: "W3", what: "half a body: 408 in its time", run: slow_body },
    Trial { row: "W3", what: "a silent connection is closed without a word", run: silent },
    Trial { row: "W3", what: "an answer that nobody takes is given up", run: untaken },
    Trial { row: "W4", what: "a version that the client has: 304", run: same_version },
    Trial { row: "W6", what: "values by HTTP, of the data server", run: values },
    Trial { row: "W7", what: "health, readiness and counters, of the data server", run: health },
    Trial { row: "W8", what: "TERM finishes what was asked, and then ends", run: drains },
    Trial { row: "W10", what: "a line per request, and a new file after USR1", run: logs },
    Trial { row: "W13", what: "the same by threads", run: threads },
    Trial { row: "W15", what: "options are read again without a break", run: reloads },
];

/// What is expected and there, but tried elsewhere: the lab has no client and no certificates for it.
pub(super) const ELSEWHERE: &[(&str, &str, &str)] =
    &[("W9", "TLS", "the web server has it (listen-tls); the tests of the program try it")];

/// What is expected and not there, with where it is instead.
pub(super) const ABSENT: &[(&str, &str, &str)] = &[
    (
        "W11",
        "HTTP/2 and WebSocket",
        "HTTP/1.1 only; events come by server-sent events of the data server",
    ),
    (
        "W14",
        "CORS, tokens, lists of addresses",
        "the data server has tokens; the web server serves everybody",
    ),
];

fn check(address: SocketAddr, request: &str, status: u16) -> Result<String> {
    let answer = String::from_utf8_lossy(&ask(address, request.as_bytes())?).into_owned();
    let line = answer.lines().next().unwrap_or_default();
    ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line:?} instead of {status}");
    Ok(answer)
}

fn says_continue(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut answer = [0; 25];
    stream.read_exact(&mut answer)?;
    ensure!(answer == *expected, "{:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn long_head(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let request = format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(100_000));
    check(host.address(), &request, 431).map(drop)
}

fn many_lines(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let request = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101));
    check(host.address(), &request, 431).map(drop)
}

fn long_target(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let request = format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000));
    check(host.address(), &request, 414).map(drop)
}

fn crowded(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &["--connections-per-address-max", "2"])?;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(host.address(), PATIENCE)?;
        stream.write_all(GET)?;
        ensure!(hears_hello(&mut stream)?, "one within the limit is not answered");
        kept.push(stream);
    }
    let answer = check(host.address(), &format!("GET / {CLOSE}"), 503)?;
    ensure!(answer.contains("Retry-After: "), "it does not say when to come again");
    Ok(())
}

fn slow_head(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &["--head-timeout-ms", SHORT_MS])?;
    check(host.address(), "GET /hello HT", 408).map(drop)
}

fn slow_body(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let options = ["--head-timeout-ms", SHORT_MS, "--body-rate-min", "1000000"];
    let host = ground.host(bench, &options)?;
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";
    check(host.address(), request, 408).map(drop)
}

fn silent(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let options = ["--head-timeout-ms", SHORT_MS, "--idle-timeout-ms", SHORT_MS];
    let host = ground.host(bench, &options)?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let count = stream.read(&mut [0; 64]).context("wait for the end")?;
    ensure!(count == 0, "it says something");
    let mut stream = connect(host.address(), PATIENCE)?;
    stream.write_all(GET)?;
    ensure!(hears_hello(&mut stream)?, "the first request is not answered");
    let count = stream.read(&mut [0; 64]).context("wait for the end")?;
    ensure!(count == 0, "it says something after its answer");
    Ok(())
}

/// More than sockets hold is asked for and not read.
fn untaken(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &["--write-timeout-ms", SHORT_MS])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
    stream.write_all(get.as_bytes())?;
    ensure!(stream.read(&mut [0; 64])? > 0, "the file does not come");
    let (worker, port) = (host.worker()?, host.address().port());
    bench.wait_for("the connection is given up", PATIENCE, || {
        Ok(super::sockets::clients_of(worker, port)?.is_empty().then_some(()))
    })
}

fn same_version(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let answer = check(host.address(), &format!("GET /a.txt {CLOSE}"), 200)?;
    let mut lines = answer.lines();
    let etag = lines.find_map(|line| line.strip_prefix("ETag: ")).context("there is no ETag")?;
    let line = format!("HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-None-Match: {etag}\r\n\r\n");
    check(host.address(), &format!("GET /a.txt {line}"), 304).map(drop)
}

/// The server of the data, which has the parts of the list that are about data.
fn data_server(bench: &Bench<'_>, ground: &Ground) -> Result<Host> {
    let folder = ground.path("data");
    fs::create_dir_all(&folder)?;
    let folder = folder.display().to_string();
    let resp = ["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let words =
        [&resp[..], &["--dir", &folder, "--durability", "never", "--reactors", "1"]].concat();
    Host::start_on(bench, &words, "http=", &available_cpus(&[super::SERVER_CPU]))
}

fn values(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = data_server(bench, ground)?;
    let put = "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nb\r\nc";
    let answer = String::from_utf8_lossy(&ask(host.address(), put.as_bytes())?).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 20"), "PUT: {answer:?}");
    let answer = check(host.address(), &format!("GET /kv/a {LOCAL_CLOSE}"), 200)?;
    ensure!(answer.ends_with("\r\n\r\nb\r\nc") && answer.contains("ETag: "), "GET: {answer:?}");
    let delete = ask(host.address(), format!("DELETE /kv/a {LOCAL_CLOSE}").as_bytes())?;
    ensure!(delete.starts_with(b"HTTP/1.1 20"), "DELETE: {:?}", String::from_utf8_lossy(&delete));
    check(host.address(), &format!("GET /kv/a {LOCAL_CLOSE}"), 404).map(drop)
}

fn health(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = data_server(bench, ground)?;
    check(host.address(), &format!("GET /healthz {LOCAL_CLOSE}"), 200)?;
    check(host.address(), &format!("GET /readyz {LOCAL_CLOSE}"), 200)?;
    let metrics = check(host.address(), &format!("GET /metrics {LOCAL_CLOSE}"), 200)?;
    ensure!(metrics.contains("# HELP ") && metrics.contains("# TYPE "), "no help or no types");
    Ok(())
}

fn drains(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &[])?;
    let mut download = connect(host.address(), PATIENCE)?;
    download.write_all(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut answer = vec![0; 1024];
    let count = download.read(&mut answer)?;
    answer.truncate(count);
    signal(host.master(), Signal::TERM)?;
    download.read_to_end(&mut answer).context("take the rest of a file")?;
    ensure!(
        answer.len() > BIG_FILE_BYTES && answer.ends_with(BIG_BYTES.as_bytes()),
        "it is cut off"
    );
    let gone = || Ok(connect(host.address(), PATIENCE).is_err().then_some(()));
    bench.wait_for("nobody listens", PATIENCE, gone)
}

fn logs(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let (log, old) = (ground.path("access.log"), ground.path("access.log.1"));
    let host = ground.host(bench, &["--access-log", &log.display().to_string()])?;
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

fn threads(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let host = ground.host(bench, &["--mode", "thread"])?;
    ensure!(host.workers()?.is_empty(), "there is a process of a worker");
    ensure!(ask(host.address(), b"GET /hello HTTP/1.0\r\n\r\n")? == HELLO, "another answer");
    check(host.address(), &format!("GET /a.txt {CLOSE}"), 200).map(drop)
}

fn reloads(bench: &Bench<'_>, ground: &Ground) -> Result<()> {
    let file = ground.path("web.toml");
    fs::write(&file, "target-bytes-max = 8000\n")?;
    let host = ground.host(bench, &["--config", &file.display().to_string()])?;
    let mut stream = connect(host.address(), PATIENCE)?;
    stream.write_all(GET)?;
    ensure!(hears_hello(&mut stream)?, "not answered");
    fs::write(&file, "target-bytes-max = 100\n")?;
    signal(host.master(), Signal::HUP)?;
    let long = format!("GET /{} {CLOSE}", "a".repeat(200));
    bench.wait_for("the new limit holds", PATIENCE, || {
        Ok(ask(host.address(), long.as_bytes())?.starts_with(b"HTTP/1.1 414 ").then_some(()))
    })?;
    // The old worker answers once more, and says with it that it ends.
    stream.write_all(GET)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("ask on the old connection")?;
    ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_has_what_the_exchanges_ask_for() {
        let ground = Ground::new().unwrap();
        assert_eq!(SMALL.len(), 9);
        assert_eq!(fs::read_to_string(ground.path("root/inside.txt")).unwrap(), SMALL);
        assert_eq!(fs::read_to_string(ground.path("root/link.txt")).unwrap(), "secret");
        assert_eq!(fs::metadata(ground.path("root/big.bin")).unwrap().len(), 8 << 20);
        let folder = ground.path("");
        drop(ground);
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
            // Signals and replaced workers are table s2.r7.
            assert!(number == 12 || rows.contains(&row.as_str()), "{row}");
        }
    }
}

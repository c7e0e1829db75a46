//! Rejected clients, and servers that must not start.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::ask::{connect, expect_bytes, expect_closed, expect_error, expect_simple, reset};
use super::bystander::Habit;
use super::disk::Mounted;
use super::stage::Stage;
use super::subject::{Subject, refused};
use super::{Check, Outcome, Scene};
use crate::process::TempDir;
use crate::resp::request;

const STRANGERS: usize = 200;
/// Exit codes: docs/reference/limits.md.
const FAILED: i32 = 1;
const WRONG_CONFIGURATION: i32 = 2;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "before AUTH", suits_any_server: false, run: strangers },
    Check { name: "protected mode", suits_any_server: false, run: protected },
    Check { name: "two servers on one directory", suits_any_server: false, run: second },
    Check { name: "bad configuration", suits_any_server: false, run: configuration },
    Check { name: "a port in use", suits_any_server: false, run: port },
    Check { name: "directories that cannot be used", suits_any_server: false, run: directories },
];

fn strangers(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(&["--requirepass", "secret"])?;
    let before_bytes = subject.resident_bytes()?;
    let mut friend = subject.connect()?;
    for request in [&["PING"][..], &["GET", "x"], &["MULTI"], &["INFO"], &["SHUTDOWN"]] {
        expect_error(&friend.call(request)?, "NOAUTH Authentication required.")
            .with_context(|| format!("{request:?}"))?;
    }
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for password in ["", "Secret", "secret1", &"x".repeat(16 << 10)] {
        expect_error(&friend.call(&["AUTH", password])?, wrong)?;
    }
    for (bytes, reason) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$536870913\r\n", "invalid bulk length"),
    ] {
        let expected = format!("-ERR Protocol error: {reason}\r\n");
        expect_closed(&subject.address, bytes.as_bytes(), expected.as_bytes())?;
    }
    // Unauthenticated clients cannot fill the memory: ten arguments, 16 KiB each.
    let mut half = b"*10\r\n".to_vec();
    for _ in 0..9 {
        half.extend_from_slice(b"$16384\r\n");
        half.extend(std::iter::repeat_n(b'x', 16 << 10));
        half.extend_from_slice(b"\r\n");
    }
    let mut streams = Vec::new();
    for _ in 0..STRANGERS {
        let mut stream = connect(&subject.address)?;
        std::io::Write::write_all(&mut stream, &half)?;
        streams.push(stream);
    }
    expect_simple(&friend.call(&["AUTH", "secret"])?, "OK")?;
    expect_simple(&friend.call(&["SET", "x", &"y".repeat(100_000)])?, "OK")?;
    subject.until_flat(before_bytes)?;
    streams.into_iter().try_for_each(reset)?;
    // From the packet with AUTH on, the limits are the usual ones.
    let mut stream = connect(&subject.address)?;
    let many = request(&[&["DEL"][..], &["k"; 100]].concat());
    let bytes = [request(&["AUTH", "secret"]), many].concat();
    std::io::Write::write_all(&mut stream, &bytes)?;
    expect_bytes(&mut stream, b"+OK\r\n:0\r\n")?;
    drop((friend, stream));
    subject.stop()?;
    Ok(Outcome::Passed)
}

/// A server that must refuse to start with `code` and print all of `words`.
fn expect_refusal(
    scene: &Scene<'_>,
    directory: &Path,
    options: &[&str],
    code: i32,
    words: &[&str],
) -> Result<()> {
    let ended = refused(scene.root, directory, options)?;
    let stderr = ended.stderr.trim();
    ensure!(ended.status.code() == Some(code), "{options:?}: {}: {stderr}", ended.status);
    for word in words {
        ensure!(stderr.contains(word), "{options:?}: no {word:?} in {stderr:?}");
    }
    Ok(())
}

fn protected(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let words = ["0.0.0.0:0 can be reached from other machines", "set requirepass"];
    let options = ["--resp", "0.0.0.0:0"];
    expect_refusal(scene, directory.path(), &options, WRONG_CONFIGURATION, &words)?;
    for allowed in [["--requirepass", "secret"], ["--protected-mode", "no"]] {
        let options = [&options[..], &allowed[..]].concat();
        Subject::start_on(scene.root, directory.path(), &options, &[])?.end()?;
    }
    Ok(Outcome::Passed)
}

fn second(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let first = Subject::start_on(scene.root, directory.path(), &[], &[])?;
    let stage = Stage::resp(first, Habit::Writes)?;
    expect_refusal(scene, directory.path(), &[], FAILED, &["data directory", "another"])?;
    stage.end()
}

fn configuration(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let data = directory.path().join("data");
    let file = directory.path().join("bad.toml");
    let path = file.display().to_string();
    for (text, line, reason) in [
        ("hz = 10\nmaxclients = \"many\"\n", 2, "maxclients"),
        ("hz = 10\n\nno-such-option = 1\n", 3, "no-such-option"),
        ("hz = [\n", 1, ""),
        ("hz = 10\n[table]\nx = 1\n", 2, "flat"),
        ("maxmemory = \"1 parsec\"\n", 1, "maxmemory"),
        ("hz = 10\nhz = 20\n", 2, "duplicate"),
        ("\u{0}\n", 1, ""),
    ] {
        fs::write(&file, text)?;
        let place = format!("{path}:{line}: ");
        let options = ["--config", &path];
        expect_refusal(scene, &data, &options, WRONG_CONFIGURATION, &[&place, reason])?;
    }
    fs::write(&file, vec![b'#'; (1 << 20) + 1])?;
    expect_refusal(scene, &data, &["--config", &path], WRONG_CONFIGURATION, &[&path])?;
    let missing = directory.path().join("missing.toml").display().to_string();
    expect_refusal(scene, &data, &["--config", &missing], WRONG_CONFIGURATION, &[&missing])?;
    for (options, words) in [
        (&["--no-such-option", "1"][..], &["no-such-option"][..]),
        (&["--hz", "0"], &["--hz", "1 to 500"]),
        (&["--hz"], &["hz"]),
        (&["--set", "no-such-option=1"], &["no-such-option"]),
        (&["--resp", "nonsense"], &["resp"]),
        (&["stray"], &["stray"]),
    ] {
        expect_refusal(scene, &data, options, WRONG_CONFIGURATION, words)?;
    }
    ensure!(!data.exists(), "a server that refuses its configuration touches its directory");
    Ok(Outcome::Passed)
}

fn port(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let reason = format!("could not listen on {address}");
    let words = [reason.as_str(), "in use"];
    expect_refusal(scene, directory.path(), &["--resp", &address], FAILED, &words)?;
    Ok(Outcome::Passed)
}

fn directories(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let file = directory.path().join("file");
    fs::write(&file, "no directory")?;
    expect_refusal(scene, &file, &[], FAILED, &["data directory", "file"])?;
    expect_refusal(scene, &file.join("below"), &[], FAILED, &["data directory", "below"])?;
    let words = ["data directory"];
    if rustix::process::geteuid().is_root() {
        // File modes do not stop root; a read-only file system does.
        let Some(mounted) = Mounted::new("ro,size=1m")? else {
            return Ok(Outcome::Skipped("root that may not mount has no read-only place".into()));
        };
        expect_refusal(scene, mounted.path(), &[], FAILED, &words)?;
        expect_refusal(scene, &mounted.path().join("data"), &[], FAILED, &words)?;
    } else {
        let locked = directory.path().join("locked");
        fs::create_dir(&locked)?;
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555))?;
        expect_refusal(scene, &locked, &[], FAILED, &words)?;
    }
    Ok(Outcome::Passed)
}

//! Logs and output that cannot be written: every program continues, and counts what it lost.

use std::fs::{self, File, OpenOptions};
use std::io::{PipeReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{Process, Server, directory, wait_until};

/// Bytes that a pipe holds.
// Source: pipe(7), "Pipe capacity"
const PIPE_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    FullDisk,
    ClosedPipe,
    /// A full pipe that stays open and is not read.
    UnreadPipe,
}

pub(crate) const DESTINATIONS: [Destination; 3] =
    [Destination::FullDisk, Destination::ClosedPipe, Destination::UnreadPipe];

impl Destination {
    /// Opens it for a process. The reader, if there is one, must stay open meanwhile.
    pub(crate) fn open(self) -> (Stdio, Option<PipeReader>) {
        if self == Destination::FullDisk {
            return (full_disk().into(), None);
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&vec![b'x'; PIPE_BYTES]).unwrap();
        (writer.into(), (self == Destination::UnreadPipe).then_some(reader))
    }

    /// Whether lines are lost at once; otherwise they wait first.
    pub(crate) fn loses(self) -> bool {
        self != Destination::UnreadPipe
    }
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn lost_lines(server: &Server) -> u64 {
    let info = server.ask("INFO stats");
    let line = info.lines().find_map(|line| line.strip_prefix("log_lines_lost:"));
    line.unwrap().parse().unwrap()
}

/// Makes any client's requests cause events of the log and of the audit log.
fn cause_events(server: &Server) {
    let event = "EVAL \"redis.log(redis.LOG_WARNING, string.rep('x', 900)) return 1\" 0";
    for _ in 0..40 {
        assert_eq!(server.ask(&format!("{event}\r\nCONFIG SET hz 10")), ":1\r\n+OK\r\n");
    }
    assert_eq!(server.ask("SET k v\r\nGET k"), "+OK\r\n$1\r\nv\r\n");
}

#[test]
fn a_server_continues_when_standard_error_takes_nothing() {
    for destination in DESTINATIONS {
        let directory = directory(&format!("diagnostics-stderr-{destination:?}"));
        let (log, _reader) = destination.open();
        let server = Server::start_with_log(&directory, &["--audit-log", "yes"], log);
        cause_events(&server);
        if destination.loses() {
            wait_until("the lines are counted", || lost_lines(&server) >= 80);
        }
        server.stop();
    }
}

#[test]
fn a_server_continues_when_its_log_file_takes_nothing() {
    let folder = directory("diagnostics-log-file");
    fs::create_dir(&folder).unwrap();
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut both_ends = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    both_ends.write_all(&vec![b'x'; PIPE_BYTES]).unwrap();
    for (name, log) in [("full", Path::new("/dev/full")), ("pipe", &pipe)] {
        let options = ["--audit-log", "yes", "--log-file", log.to_str().unwrap()];
        let server = Server::start(&folder.join(format!("data-{name}")), &options);
        cause_events(&server);
        if name == "full" {
            wait_until("the lines are counted", || lost_lines(&server) >= 80);
        }
        server.stop();
    }
}

#[test]
fn lost_lines_are_reported_when_writing_works_again() {
    let folder = directory("diagnostics-recovery");
    fs::create_dir(&folder).unwrap();
    let (link, file) = (folder.join("link"), folder.join("file"));
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let server = Server::start(&folder.join("data"), &["--log-file", link.to_str().unwrap()]);
    cause_events(&server);
    wait_until("the lines are counted", || lost_lines(&server) >= 40);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    server.process.signal("USR1");
    let text = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the loss is reported", || text().contains("log lines were lost"));
    assert!(text().contains("cause=\"No space left on device"), "{}", text());
    server.stop();
}

#[test]
fn a_server_starts_when_standard_output_takes_nothing() {
    for destination in DESTINATIONS {
        let directory = directory(&format!("diagnostics-stdout-{destination:?}"));
        fs::create_dir(&directory).unwrap();
        let socket = directory.join("socket");
        let (output, _reader) = destination.open();
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.args(["serve", "--resp", "127.0.0.1:0", "--reactors", "1", "--unixsocket"]);
        command.arg(&socket).arg("--dir").arg(directory.join("data"));
        let process = Process::start(command.stdout(output).stderr(Stdio::null()));
        wait_until("the server accepts connections", || UnixStream::connect(&socket).is_ok());
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"PING\r\nQUIT\r\n").unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        assert_eq!(replies, "+PONG\r\n+OK\r\n");
        process.signal("TERM");
        assert!(process.wait().success(), "{destination:?}");
    }
}

/// A server that cannot start ends, whether or not its reason can be written, and writes it to
/// standard error, whatever `log-file` is.
#[test]
fn a_failed_start_ends_with_its_reason() {
    let folder = directory("diagnostics-start");
    fs::create_dir(&folder).unwrap();
    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.args(["serve", "--dir", "/dev/null/data", "--log-file"]).arg(folder.join("log"));
        command
    };
    let output = serve().output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("myriad: could not open data directory /dev/null/data"), "{text}");
    for destination in DESTINATIONS {
        let (log, _reader) = destination.open();
        let process = Process::start(serve().stderr(log));
        assert_eq!(process.wait().code(), Some(1), "{destination:?}");
    }
}

#[test]
fn a_pipeline_ends_as_usual_when_its_output_takes_nothing() {
    for destination in DESTINATIONS {
        let (log, _reader) = destination.open();
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.args(["pipeline", "run", "--tasks", "1000", "--rate", "10000"]);
        // Events that occur in each run.
        command.env("MYRIAD_LOG", "trace").stdout(Stdio::piped()).stderr(log);
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{destination:?}");
        assert!(!output.stdout.is_empty());
    }
}

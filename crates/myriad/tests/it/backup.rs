//! Backups of a running server, and what is restored from them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::cql::Cql;
use crate::process::{Process, Server, directory, signal, wait_until};

/// Starts a server with a port for CQL.
fn start(directory: &Path, options: &[&str]) -> Server {
    Server::start(directory, &[&["--cql", "127.0.0.1:0"], options].concat())
}

impl Server {
    /// The position up to which the log is durable.
    fn position(&self) -> u64 {
        self.info("master_repl_offset").parse().unwrap()
    }

    /// Runs statements of CQL. Returns the last result.
    fn cql(&self, statements: &[&str]) -> Vec<u8> {
        let mut cql = Cql::start(TcpStream::connect(self.address("cql")).unwrap());
        let mut result = Vec::new();
        for statement in statements {
            let (kind, body) = cql.query(statement);
            assert_ne!(kind, 0, "{}", String::from_utf8_lossy(&body));
            result = body;
        }
        result
    }
}

/// Directories of one test.
struct Places {
    data: PathBuf,
    backup: PathBuf,
    restored: PathBuf,
}

impl Places {
    fn new(name: &str) -> Places {
        let root = directory(&format!("backup-{name}"));
        fs::create_dir_all(&root).unwrap();
        let place = |name| root.join(name);
        Places { data: place("data"), backup: place("backup"), restored: place("restored") }
    }

    fn backup_command(&self, server: &Server, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        let address = server.address("resp").to_string();
        command.args(["backup", &address, "--to"]).arg(&self.backup).args(options);
        command
    }

    /// Takes a backup. Returns what it reported.
    fn back_up(&self, server: &Server, options: &[&str]) -> String {
        shown(&self.backup_command(server, options).output().unwrap(), true)
    }

    fn restore(&self, options: &[&str]) -> Output {
        let _ = fs::remove_dir_all(&self.restored);
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.arg("restore").arg(&self.backup).arg("--to").arg(&self.restored).args(options);
        command.output().unwrap()
    }

    /// A server with the data up to a position or a time of the backup.
    fn restored(&self, until: Option<&str>) -> Server {
        let options = until.map_or_else(Vec::new, |until| vec!["--until", until]);
        shown(&self.restore(&options), true);
        start(&self.restored, &[])
    }

    /// Restores, which must fail, with this part in the error.
    fn refused(&self, options: &[&str], expected: &str) {
        let text = shown(&self.restore(options), false);
        assert!(text.contains(expected), "{text}");
        assert!(!self.restored.exists(), "nothing is made");
    }

    fn verify(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.arg("restore").arg(&self.backup).arg("--verify");
        shown(&command.output().unwrap(), true)
    }

    fn file(&self, number: u64) -> PathBuf {
        self.backup.join(format!("backup-{number:08}.myb"))
    }
}

/// Standard output and standard error of a program that must have succeeded or failed.
fn shown(output: &Output, is_success: bool) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.success(), is_success, "{text}");
    text
}

const EVERY_TYPE: &str = "SET s v\r\nSET t v EX 100000\r\nRPUSH l a b\r\nHSET h f 1\r\nSADD e a b\r\n\
    ZADD z 1 a\r\nXADD x 1-1 f v\r\nPFADD p a b c\r\nSELECT 3\r\nSET other v\r\n\
    FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"";

#[test]
fn a_backup_contains_every_kind_of_data() {
    let places = Places::new("kinds");
    let server = start(&places.data, &[]);
    server.ask(EVERY_TYPE);
    server.ask("DEBUG POPULATE 20000");
    server.cql(&[
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE k.t (a int PRIMARY KEY, b text, c set<int>)",
        "INSERT INTO k.t (a, b, c) VALUES (1, 'one', {1, 2})",
    ]);
    assert!(places.back_up(&server, &[]).contains("file 1: full"));
    assert_eq!(server.ask("INFO replication").matches("connected_slaves:0").count(), 1);
    server.ask("DEL s\r\nRPUSH l c\r\nSWAPDB 0 3");
    server.cql(&["INSERT INTO k.t (a, b) VALUES (2, 'two')", "DELETE b FROM k.t WHERE a = 1"]);
    assert!(places.back_up(&server, &[]).contains("file 2: incremental"));
    assert!(places.back_up(&server, &[]).contains("nothing new"));
    assert!(places.verify().contains("the backup is intact"), "{}", places.verify());

    let restored = places.restored(None);
    assert_eq!(restored.ask("DEBUG DIGEST"), server.ask("DEBUG DIGEST"));
    assert_eq!(restored.ask("FCALL f 0"), ":1\r\n");
    let all = ["SELECT a, b, c FROM k.t"];
    assert_eq!(restored.cql(&all), server.cql(&all));
    // It is a master, whose history is its own.
    assert!(restored.ask("ROLE").contains("master"));
    assert_eq!(restored.ask("SET k v"), "+OK\r\n");
}

/// The lines of `myriad log tail`.
fn tail(dir: &Path, options: &[&str]) -> Vec<serde_json::Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    let output = command.args(["log", "tail"]).arg(dir).args(options).output().unwrap();
    shown(&output, true).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_log_of_a_running_server_is_printed_as_json() {
    let places = Places::new("tail");
    let server = start(&places.data, &[]);
    server.ask("SET s v\r\nHSET h f 1");
    server.ask(&format!("RPUSH long{}", " a".repeat(2000)));
    let changes = |lines: &[serde_json::Value]| -> Vec<serde_json::Value> {
        let all = lines.iter().flat_map(|line| line["changes"].as_array().unwrap().clone());
        all.filter(|change| change["database"] == 0).collect()
    };
    let lines = tail(&places.data, &[]);
    let found = changes(&lines);
    assert_eq!(found.len(), 3);
    assert_eq!((&found[0]["key"], &found[0]["value"]), (&"s".into(), &"v".into()));
    assert_eq!(found[1]["pairs"], serde_json::json!(["f", "1"]));
    assert_eq!(found[2]["values"], serde_json::json!(vec!["a"; 2000]), "all elements");
    let last = lines.last().unwrap();
    let from = last["position"].to_string();
    assert_eq!(tail(&places.data, &["--from", &from]), lines[lines.len() - 1..]);

    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(["log", "tail", "--follow", "--from", &last["end"].to_string()]);
    let mut follower = Process::start(command.arg(&places.data).stdout(Stdio::piped()));
    let mut output = BufReader::new(follower.0.stdout.take().unwrap());
    for round in 0..3 {
        server.ask(&format!("SET round {round}"));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["changes"][0]["value"], round.to_string());
    }
}

/// Appends a request with these arguments, which may have any bytes.
fn put_request(arguments: &[&[u8]], out: &mut Vec<u8>) {
    write!(out, "*{}\r\n", arguments.len()).unwrap();
    for argument in arguments {
        write!(out, "${}\r\n", argument.len()).unwrap();
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The bytes of a string in JSON: itself, or an object with its base64 form.
fn bytes_of(value: &serde_json::Value) -> Vec<u8> {
    use base64::Engine as _;
    match value["base64"].as_str() {
        Some(text) => base64::engine::general_purpose::STANDARD.decode(text).unwrap(),
        None => value.as_str().unwrap().as_bytes().to_vec(),
    }
}

/// Data can be recovered by hand from the output of `log tail`: all bytes of keys, values of
/// cells, libraries of functions, and copied values.
#[test]
fn the_log_as_json_has_complete_values() {
    let places = Places::new("complete");
    let server = start(&places.data, &[]);
    let key: Vec<u8> = (0..=255).collect();
    let value: Vec<u8> = (0..1 << 20).map(|at: u32| u8::try_from(at * 7 % 251).unwrap()).collect();
    let library = format!(
        "#!lua name=lib\nredis.register_function('f', function() return '{}' end)",
        "x".repeat(200)
    );
    let mut requests = Vec::new();
    put_request(&[b"SET", &key, &value], &mut requests);
    put_request(&[b"RPUSH", b"list", &key, &value], &mut requests);
    put_request(&[b"COPY", b"list", b"copied"], &mut requests);
    put_request(&[b"FUNCTION", b"LOAD", library.as_bytes()], &mut requests);
    put_request(&[b"QUIT"], &mut requests);
    let mut stream = TcpStream::connect(server.address("resp")).unwrap();
    stream.write_all(&requests).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "+OK\r\n:2\r\n:1\r\n$3\r\nlib\r\n+OK\r\n");
    let digits = value[..100_000].iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let hex: String = digits.map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect();
    let name = "k".repeat(48);
    let keyspace = format!(
        "CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', \
         'replication_factor': 1}}"
    );
    let table = format!("CREATE TABLE {name}.t (a text, b text, c blob, PRIMARY KEY (a, b))");
    let (long, row) = ("a".repeat(1000), "b".repeat(1000));
    let insert = format!("INSERT INTO {name}.t (a, b, c) VALUES ('{long}', '{row}', 0x{hex})");
    server.cql(&[&keyspace, &table, &insert]);

    let lines = tail(&places.data, &[]);
    let changes: Vec<&serde_json::Value> =
        lines.iter().flat_map(|line| line["changes"].as_array().unwrap()).collect();
    let of = |kind: &'static str| changes.iter().filter(move |change| change["change"] == kind);
    let set = of("set").next().unwrap();
    assert_eq!((bytes_of(&set["key"]), bytes_of(&set["value"])), (key.clone(), value.clone()));
    let push = of("list-push").next().unwrap();
    assert_eq!(bytes_of(&push["values"][1]), value);
    // The copy can be restored by RESTORE, here or in Redis.
    let put = of("put").next().unwrap();
    let payload = bytes_of(&put["value"]["restore"]);
    let mut requests = Vec::new();
    put_request(&[b"RESTORE", b"restored", b"0", &payload], &mut requests);
    put_request(&[b"LINDEX", b"restored", b"1"], &mut requests);
    put_request(&[b"QUIT"], &mut requests);
    let mut stream = TcpStream::connect(server.address("resp")).unwrap();
    stream.write_all(&requests).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    let expected = [b"+OK\r\n$1048576\r\n", &value[..], b"\r\n+OK\r\n"].concat();
    assert!(replies == expected, "the list is the copied one");

    let writes: Vec<&serde_json::Value> =
        of("partition").flat_map(|change| change["writes"].as_array().unwrap()).collect();
    let has = |field: &str, bytes: &[u8]| {
        let values = writes.iter().map(|write| &write[field]).filter(|value| !value.is_null());
        values.map(bytes_of).any(|found| found == bytes)
    };
    assert!(has("value", library.as_bytes()), "the library");
    assert!(has("value", &value[..100_000]), "the cell");
    assert!(writes.iter().any(|write| {
        !write["row"].is_null() && bytes_of(&write["row"]).starts_with(row.as_bytes())
    }));
    assert!(of("partition").any(|change| bytes_of(&change["key"]) == long.as_bytes()));
    assert!(of("partition").any(|change| bytes_of(&change["key"]) == name.as_bytes()));
}

/// Tools read only directories of a server: another one is refused, and stays as it is.
#[test]
fn tools_refuse_directories_without_data() {
    let places = Places::new("other-directory");
    let [empty, other] = ["empty", "other"].map(|name| places.data.join(name));
    fs::create_dir_all(&empty).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("passwd"), "root").unwrap();
    let file = places.backup.join("file.rdb");
    fs::create_dir_all(&places.backup).unwrap();
    for dir in [&empty, &other] {
        let names = || {
            let entries = fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        let before = names();
        for tool in [
            &["log", "dump"][..],
            &["log", "tail"],
            &["log", "tail", "--follow"],
            &["log", "verify"],
            &["log", "repair"],
            &["log", "repair", "--apply"],
            &["upgrade", "--check"],
            &["export"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
            command.args(tool).arg(dir);
            if tool == ["export"] {
                command.arg(&file);
            }
            let text = shown(&command.output().unwrap(), false);
            let expected = format!("{} is not a data directory", dir.display());
            assert!(text.contains(&expected), "{tool:?}: {text}");
            assert_eq!(names(), before, "{tool:?}");
        }
    }
    assert!(!file.exists());
    let server = start(&places.restored, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(["backup", &server.address("resp").to_string(), "--to"]).arg(&other);
    let text = shown(&command.output().unwrap(), false);
    assert!(text.contains("is not a directory of backups: it has passwd"), "{text}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

/// A client that appends numbers to a list, 16 at a time.
struct Load {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn run(&self, address: SocketAddr) {
        let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
        while !self.is_over.load(Ordering::SeqCst) {
            let from = self.sent.load(Ordering::SeqCst);
            let requests: Vec<String> =
                (from..from + 16).map(|number| format!("RPUSH load {number}\r\n")).collect();
            let requests = requests.concat();
            self.sent.store(from + 16, Ordering::SeqCst);
            if stream.get_mut().write_all(requests.as_bytes()).is_err() {
                return;
            }
            for number in from..from + 16 {
                let mut reply = String::new();
                if !stream.read_line(&mut reply).is_ok_and(|bytes| bytes > 0) {
                    return;
                }
                assert_eq!(reply, format!(":{}\r\n", number + 1));
                self.acknowledged.store(number + 1, Ordering::SeqCst);
            }
        }
    }

    /// A position or time, and the bounds of the number of writes before it: those acknowledged
    /// before, and those sent.
    fn sample(&self, place: impl FnOnce() -> String) -> (String, u64, u64) {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let place = place();
        (place, acknowledged, self.sent.load(Ordering::SeqCst))
    }
}

fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

#[test]
fn a_restore_at_a_position_or_time_has_the_writes_acknowledged_before_it() {
    let places = Places::new("positions");
    let server = start(&places.data, &[]);
    server.ask("DEBUG POPULATE 5000");
    let zero = || AtomicU64::new(0);
    let load = Load { sent: zero(), acknowledged: zero(), is_over: AtomicBool::new(false) };
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| load.run(server.address("resp")));
        places.back_up(&server, &[]);
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(40));
            samples.push(load.sample(|| server.position().to_string()));
            samples.push(load.sample(now));
            if round % 2 == 1 {
                places.back_up(&server, &[]);
            }
        }
        load.is_over.store(true, Ordering::SeqCst);
    });
    places.back_up(&server, &[]);
    let end = server.position();
    for (place, acknowledged, sent) in samples {
        let restored = places.restored(Some(&place));
        let length = restored.ask("LLEN load");
        let length: u64 = length.trim_start_matches(':').trim_end().parse().unwrap();
        assert!((acknowledged..=sent).contains(&length), "{place}: {acknowledged} {length} {sent}");
        let last = format!("{}", length - 1);
        assert_eq!(restored.ask("LINDEX load -1"), format!("${}\r\n{last}\r\n", last.len()));
        assert!(restored.ask("DBSIZE").starts_with(":5001"));
    }
    let late = (end + 1_000_000).to_string();
    places.refused(&["--until", &late], "cannot be restored at position");
    places.refused(&["--until", "1"], "cannot be restored at position");
    places.refused(&["--until", "2001-01-01T00:00:00Z"], "at time 2001-01-01T00:00:00Z, only at");
    places.refused(&["--until", &now()], "cannot be restored at time");
    assert_eq!(places.restored(None).ask("DEBUG DIGEST"), server.ask("DEBUG DIGEST"));
}

#[test]
fn a_damaged_backup_is_refused() {
    let places = Places::new("damage");
    let server = start(&places.data, &[]);
    server.ask(EVERY_TYPE);
    places.back_up(&server, &[]);
    for round in 2..5 {
        server.ask(&format!("SET round {round}"));
        places.back_up(&server, &[]);
    }
    let whole: Vec<Vec<u8>> = (1..5).map(|number| fs::read(places.file(number)).unwrap()).collect();
    let repair = || {
        for (number, bytes) in (1..5).zip(&whole) {
            fs::write(places.file(number), bytes).unwrap();
        }
    };
    // Every part of a file is checked: header, frames, end.
    for at in (0..whole[1].len()).step_by(3).chain([whole[1].len() - 1]) {
        let mut bytes = whole[1].clone();
        bytes[at] ^= 4;
        fs::write(places.file(2), bytes).unwrap();
        places.refused(&[], "backup-00000002.myb");
    }
    repair();
    for length in [0, 50, whole[2].len() / 2, whole[2].len() - 1] {
        fs::write(places.file(3), &whole[2][..length]).unwrap();
        places.refused(&[], "backup-00000003.myb is damaged");
    }
    repair();
    fs::remove_file(places.file(3)).unwrap();
    places.refused(&[], "backup-00000003.myb is missing");
    repair();
    fs::remove_file(places.file(4)).unwrap();
    places.refused(&[], "backup-00000004.myb is missing");
    repair();
    fs::write(places.file(2), &whole[2]).unwrap();
    fs::write(places.file(3), &whole[1]).unwrap();
    places.refused(&[], "was number 3");
    repair();
    assert_eq!(places.restored(None).ask("GET round"), "$1\r\n4\r\n");
    let text = shown(
        &Command::new(env!("CARGO_BIN_EXE_myriad"))
            .arg("restore")
            .arg(&places.backup)
            .arg("--to")
            .arg(&places.data)
            .output()
            .unwrap(),
        false,
    );
    assert!(text.contains("is not empty"), "{text}");
}

#[test]
fn a_backup_of_an_earlier_version_is_restored() {
    let places = Places::new("version-2");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/fixtures/backup-v2");
    fs::create_dir_all(&places.backup).unwrap();
    for file in fs::read_dir(files).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), places.backup.join(file.file_name())).unwrap();
    }
    assert!(places.verify().contains("the backup is intact"));
    let restored = places.restored(None);
    assert_eq!(restored.ask("GET k\r\nLLEN l\r\nGET n"), "$1\r\nw\r\n:3\r\n$1\r\n1\r\n");
    let restored = places.restored(Some("277"));
    assert_eq!(restored.ask("GET k\r\nHGET h g"), "$1\r\nv\r\n$1\r\n2\r\n");
    // A new chain of the present version follows the files of the old one.
    assert!(places.back_up(&restored, &["--full"]).contains("file 3: full"));
    assert_eq!(places.restored(None).ask("GET k"), "$1\r\nv\r\n");
}

#[test]
fn a_backup_continues_after_kills_and_starts_again_after_a_truncation() {
    let places = Places::new("kills");
    let options = ["--log-segment-bytes", "1048576"];
    let server = start(&places.data, &options);
    server.ask("SET k 1");
    let mut following = places.backup_command(&server, &["--follow"]);
    let mut following = Process::start(following.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut reported = BufReader::new(following.0.stdout.take().unwrap());
    let mut line = String::new();
    reported.read_line(&mut line).unwrap();
    assert!(line.contains("file 1: full"), "{line}");
    following.kill();
    server.ask("SET k 2");
    server.process.kill();
    let server = start(&places.data, &options);
    server.ask("SET l 3");
    assert!(places.back_up(&server, &[]).contains("file 2: incremental"));

    let value = "v".repeat(50_000);
    for number in 0..200 {
        server.ask(&format!("SET big {number}{value}"));
    }
    server.ask("SET m 4\r\nBGSAVE");
    let first = server.position();
    wait_until("the snapshot is complete", || {
        server.ask("INFO persistence").contains("rdb_bgsave_in_progress:0")
    });
    let text = places.back_up(&server, &[]);
    assert!(text.contains("cannot continue at position"), "{text}");
    assert!(text.contains("file 3: full"), "{text}");
    let restored = places.restored(None);
    assert_eq!(restored.ask("DEBUG DIGEST"), server.ask("DEBUG DIGEST"));
    assert!(server.position() >= first);

    // A stop completes the last file.
    let mut following = places.backup_command(&server, &["--follow"]);
    let following = following.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut following = following.unwrap();
    server.ask("SET n 5");
    wait_for_position(following.stderr.take().unwrap(), server.position());
    signal(following.id(), "TERM");
    let text = shown(&following.wait_with_output().unwrap(), true);
    assert!(text.contains("file 4: incremental"), "{text}");
    assert_eq!(places.restored(None).ask("GET n"), "$1\r\n5\r\n");
    assert!(places.verify().contains("files: 2,"));
}

/// Reads reports of the progress until one names this position or a later one.
fn wait_for_position(reports: impl std::io::Read, wanted: u64) {
    for line in BufReader::new(reports).lines() {
        let line = line.unwrap();
        let named = line.split_once("position ").and_then(|(_, rest)| rest.split(' ').next());
        if named.is_some_and(|position| position.parse::<u64>().is_ok_and(|at| at >= wanted)) {
            return;
        }
    }
    panic!("the backup ended before position {wanted}");
}

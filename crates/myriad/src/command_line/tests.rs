use super::*;

fn parsed(arguments: &[&str]) -> Result<Command, String> {
    parse(&mut Parser::from_args(arguments), Environment::default())
        .map_err(|error| error.to_string())
}

fn check_fault(arguments: &[&str], expected: &str) {
    assert_eq!(parsed(arguments).unwrap_err(), expected, "{arguments:?}");
}

#[test]
fn every_command_has_help() {
    for (arguments, part) in [
        (&["--help"][..], "\n  serve               Serve"),
        (&["help"], "\n  log dump            Print"),
        (&["serve", "--help"], "--maxmemory <bytes> [0]"),
        (&["log", "--help"], "--from LSN"),
        (&["log", "dump", "-h"], "--from LSN"),
        (&["import", "--help"], "--partial"),
        (&["export", "--help"], "RDB file"),
        (&["backup", "--help"], "--password-file FILE"),
        (&["restore", "--help"], "--verify"),
        (&["config", "--help"], "docs/reference/config.md"),
        (&["doctor", "--help"], "open files"),
        (&["config", "check", "--help"], "docs/reference/config.md"),
        (&["config", "--markdown"], "# Configuration"),
        (&["commands", "--help"], "docs/reference/commands.md"),
        (&["commands", "--markdown"], "# Commands"),
        (&["hub", "--help"], "docs/operate/hub.md"),
        (&["upgrade", "--help"], "--check <DIR>"),
        (&["completion", "-h"], "bash|zsh|fish"),
        (&["completion", "bash"], "complete -F _myriad myriad"),
        (&["man", "--help"], "DIR/man1"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["version"], env!("CARGO_PKG_VERSION")),
    ] {
        match parsed(arguments) {
            Ok(Command::Print(text)) => assert!(text.contains(part), "{text}"),
            other => panic!("{arguments:?}: {other:?}"),
        }
    }
}

#[test]
fn commands_parse_their_arguments() {
    match parsed(&["serve", "--hz", "20"]) {
        Ok(Command::Serve(config)) => assert_eq!(config.settings().hz, 20),
        other => panic!("{other:?}"),
    }
    match parsed(&["log", "dump", "data", "--from", "4096"]) {
        Ok(Command::LogDump { dir, from }) => {
            assert_eq!((dir, from), (PathBuf::from("data"), Some(4_096)));
        }
        other => panic!("{other:?}"),
    }
    match parsed(&["config", "check", "m.toml"]) {
        Ok(Command::ConfigCheck { file, .. }) => assert_eq!(file, PathBuf::from("m.toml")),
        other => panic!("{other:?}"),
    }
    match parsed(&["log", "tail", "data", "--follow", "--from", "9"]) {
        Ok(Command::LogTail { dir, from, follow }) => {
            assert_eq!((dir, from, follow), (PathBuf::from("data"), Some(9), Follow::Yes));
        }
        other => panic!("{other:?}"),
    }
    let follow = "--follow is an option of log tail only; see myriad --help";
    check_fault(&["log", "dump", "data", "--follow"], follow);
    match parsed(&["log", "verify", "data"]) {
        Ok(Command::LogVerify { dir }) => assert_eq!(dir, PathBuf::from("data")),
        other => panic!("{other:?}"),
    }
    for (arguments, expected) in [
        (&["log", "repair", "data"][..], repair::Mode::Try),
        (&["log", "repair", "data", "--apply"], repair::Mode::Apply),
    ] {
        match parsed(arguments) {
            Ok(Command::LogRepair { dir, mode }) => {
                assert_eq!((dir, mode), (PathBuf::from("data"), expected));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_import_needs_a_file_and_a_directory() {
    for (arguments, expected) in [
        (&["import", "a.rdb", "--dir", "data"][..], Losses::Refuse),
        (&["import", "--partial", "--dir", "data", "a.rdb"], Losses::Accept),
    ] {
        match parsed(arguments) {
            Ok(Command::Import { from, dir, losses }) => {
                assert_eq!((from, dir), (PathBuf::from("a.rdb"), PathBuf::from("data")));
                assert_eq!(losses, expected);
            }
            other => panic!("{other:?}"),
        }
    }
    match parsed(&["export", "data", "a.rdb"]) {
        Ok(Command::Export { dir, to }) => {
            assert_eq!((dir, to), (PathBuf::from("data"), PathBuf::from("a.rdb")));
        }
        other => panic!("{other:?}"),
    }
    check_fault(&["export", "data"], "myriad export requires DIR FILE; see myriad --help");
    check_fault(&["import"], "missing file or server to import; see myriad --help");
    let missing = "an import from a file requires --dir DIR, a new directory; see myriad --help";
    check_fault(&["import", "a.rdb"], missing);
    check_fault(&["import", "a", "b"], "unexpected argument \"b\"");
}

#[test]
fn an_import_from_cassandra_has_a_keyspace() {
    let source = "cassandra://me:secret@host/shop";
    match parsed(&["import", source, "--to", "127.0.0.1:9043", "--partial"]) {
        Ok(Command::CassandraImport(import)) => {
            assert_eq!(import.keyspace.as_deref(), Some("shop"));
            assert_eq!((import.source.address.port, import.target.address.port), (9042, 9043));
            assert_eq!(import.losses, Losses::Accept);
        }
        other => panic!("{other:?}"),
    }
    match parsed(&["import", "cassandra://host", "--to", "cassandra://h", "--verify"]) {
        Ok(Command::CassandraVerify(import)) => assert_eq!(import.keyspace, None),
        other => panic!("{other:?}"),
    }
    for (options, expected) in [
        (&["--to", "h", "--merge"][..], "--once and --merge are options of an import from Redis"),
        (&["--to", "h/k"], "the keyspaces of the target have the names of the source"),
        (&["--to", "h", "--verify", "--partial"], "--verify allows no other options than --to"),
        (&["--dir", "d"], "an import from a server requires --to HOST:PORT"),
    ] {
        let arguments = [&["import", source][..], options].concat();
        check_fault(&arguments, &format!("{expected}; see myriad --help"));
    }
}

#[test]
fn a_backup_names_a_server_and_a_restore_one_purpose() {
    let words = ["backup", "[::1]:6379", "--to", "b", "--full", "--follow", "--keep", "3"];
    match parsed(&words) {
        Ok(Command::Backup { backup, place }) => {
            assert_eq!((backup.source.host.as_str(), backup.source.port), ("::1", 6_379));
            assert_eq!((backup.begin, backup.until), (Begin::Full, Until::Stopped));
            assert_eq!(backup.keep.map(std::num::NonZeroUsize::get), Some(3));
            assert_eq!(place, BackupPlace::Directory(PathBuf::from("b")));
            assert!(backup.tls.is_none());
        }
        other => panic!("{other:?}"),
    }
    let files = "--tls-cert-file and --tls-key-file require each other and \
                 --tls-ca-cert-file; see myriad --help";
    let backup = ["backup", "host:1", "--to", "b"];
    for words in [
        ["--tls-cert-file", "c", "--tls-ca-cert-file", "a"],
        ["--tls-cert-file", "c", "--tls-key-file", "k"],
    ] {
        check_fault(&[&backup[..], &words].concat(), files);
    }
    assert!(parsed(&[&backup[..], &["--keep", "0"]].concat()).is_err());
    match parsed(&["restore", "b", "--to", "data", "--until", "77"]) {
        Ok(Command::Restore { place, to, target }) => {
            assert_eq!(place, BackupPlace::Directory(PathBuf::from("b")));
            assert_eq!(to, Some(PathBuf::from("data")));
            assert_eq!(target, Target::Position(77));
        }
        other => panic!("{other:?}"),
    }
    for time in ["2026-11-24T15:04:05.25Z", "2026-11-24T16:04:05.250000+01:00"] {
        match parsed(&["restore", "b", "--verify", "--until", time]) {
            Ok(Command::Restore { target, .. }) => {
                assert_eq!(target, Target::Time(1_795_532_645_250_000));
            }
            other => panic!("{other:?}"),
        }
    }
    let missing = "myriad backup requires HOST:PORT and --to DIR; see myriad --help";
    check_fault(&["backup", "host:1"], missing);
    let malformed = "the address of a server is HOST:PORT; see myriad --help";
    for place in ["host", ":1", "host:0", "host:x"] {
        check_fault(&["backup", place, "--to", "b"], malformed);
    }
    let purpose =
        "myriad restore requires DIR and either --to DATA-DIR or --verify; see myriad --help";
    check_fault(&["restore", "b"], purpose);
    check_fault(&["restore", "b", "--to", "data", "--verify"], purpose);
    let until = "--until requires a position, or a time such as 2026-11-24T15:04:05Z; see \
                 myriad --help";
    for text in ["noon", "-1", "2026-11-24", "2026-11-24T15:04:05", ""] {
        check_fault(&["restore", "b", "--verify", "--until", text], until);
    }
}

#[test]
fn usage_errors_name_the_option_or_command() {
    check_fault(&[], "missing command; see myriad --help");
    check_fault(&["lab"], "unknown command lab; see myriad --help");
    check_fault(&["--fast"], "invalid option '--fast'");
    check_fault(
        &["serve", "--hz", "x"],
        "--hz: argument couldn't be parsed into an integer (number, 1 to 500)",
    );
    check_fault(
        &["log"],
        "myriad log requires dump, tail, verify or repair, and DIR; see myriad --help",
    );
    check_fault(
        &["log", "cut", "data"],
        "myriad log requires dump, tail, verify or repair, and DIR; see myriad --help",
    );
    check_fault(&["log", "dump"], "missing directory of the log; see myriad --help");
    check_fault(
        &["log", "dump", "data", "--from", "x"],
        "--from requires an LSN, a byte position; see myriad --help",
    );
    check_fault(
        &["log", "verify", "data", "--from", "1"],
        "--from is an option of log dump and log tail only; see myriad --help",
    );
    check_fault(
        &["log", "verify", "data", "--apply"],
        "--apply is an option of log repair only; see myriad --help",
    );
    check_fault(&["log", "repair"], "missing directory of the log; see myriad --help");
    check_fault(&["log", "dump", "data", "more"], "unexpected argument \"more\"");
    check_fault(&["config"], "myriad config requires check FILE or --markdown; see myriad --help");
    check_fault(&["config", "check"], "missing configuration file; see myriad --help");
    check_fault(&["config", "check", "a", "b"], "unexpected argument \"b\"");
    check_fault(&["config", "--markdown", "x"], "unexpected argument \"x\"");
    let upgrade = "myriad upgrade requires --check DIR; see myriad --help";
    check_fault(&["upgrade"], upgrade);
    check_fault(&["upgrade", "data"], "unexpected argument \"data\"");
    let shells = "myriad completion requires a shell: bash, zsh, fish; see myriad --help";
    check_fault(&["completion"], shells);
    check_fault(&["completion", "tcsh"], shells);
    check_fault(&["completion", "bash", "zsh"], "unexpected argument \"zsh\"");
    check_fault(&["man"], "myriad man requires DIR; see myriad --help");
    check_fault(&["commands"], "myriad commands requires --markdown; see myriad --help");
}

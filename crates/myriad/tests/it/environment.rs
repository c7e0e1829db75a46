//! Options in variables of the environment, as a container sets them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{Server, directory};

/// The program without variables of the one who runs the tests.
fn myriad(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"MYRIAD_") {
            command.env_remove(name);
        }
    }
    command.args(words).envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

#[test]
fn a_server_takes_its_options_from_variables() {
    let root = directory("environment-serve");
    std::fs::create_dir(&root).unwrap();
    let (file, log) = (root.join("m.toml"), root.join("log.txt"));
    std::fs::write(&file, "hz = 20\ntimeout = 7\nmaxclients = 50\n").unwrap();
    let data = root.join("data").display().to_string();
    let variables = [
        ("MYRIAD_DIR", data.as_str()),
        ("MYRIAD_RESP", "127.0.0.1:0"),
        ("MYRIAD_HZ", "30"),
        ("MYRIAD_MAXCLIENTS", "60"),
        ("MYRIAD_REQUIREPASS", "hunter2"),
        ("MYRIAD_LOG_LEVEL", "debug"),
    ];
    let words = ["serve", "--reactors", "1", "--maxclients", "70", "--config"];
    let words = [&words[..], &[file.to_str().unwrap()]].concat();
    let mut command = myriad(&words, &variables);
    let server = Server::run(command.stderr(std::fs::File::create(&log).unwrap()));
    let replies = server.ask(
        "PING\r\nAUTH hunter2\r\nCONFIG GET hz\r\nCONFIG GET timeout\r\nCONFIG GET maxclients",
    );
    assert!(replies.starts_with("-NOAUTH"), "{replies}");
    for value in ["hz\r\n$2\r\n30", "timeout\r\n$1\r\n7", "maxclients\r\n$2\r\n70"] {
        assert!(replies.contains(value), "{replies}");
    }
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("accepting connections"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_wrong_variable_stops_the_start_and_is_named() {
    let root = directory("environment-wrong");
    std::fs::create_dir(&root).unwrap();
    let file = root.join("m.toml");
    std::fs::write(&file, "hz = 20\n").unwrap();
    let file = file.to_str().unwrap();
    let missing = root.join("data").display().to_string();
    for (name, value, reason) in [
        ("MYRIAD_HZ", "fast", "argument couldn't be parsed into an integer (number, 1 to 500)"),
        ("MYRIAD_MAXMEMROY", "1", "unknown option; did you mean MYRIAD_MAXMEMORY?"),
        ("MYRIAD_PORT_6379_TCP", "tcp://10.0.0.1:6379", "unknown option"),
        ("MYRIAD_LOG_LEVEL", "", "argument(s) must be one of the following: "),
        ("MYRIAD_LOG_FILE", "a\nb", "argument must be UTF-8 text without control characters"),
    ] {
        for words in [
            &["serve", "--dir", &missing][..],
            &["hub", "--dir", &missing],
            &["doctor", "--dir", &missing],
            &["config", "check", file],
        ] {
            let output = myriad(words, &[(name, value)]).output().unwrap();
            let complaint = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{words:?}: {complaint}");
            let expected = format!("myriad: {name}: {reason}");
            assert!(complaint.starts_with(&expected), "{words:?}: {complaint}");
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
        }
    }
    assert!(!Path::new(&missing).exists());
    let output = myriad(&["config", "check", file], &[("MYRIAD_HZ", "30")]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("hz = 30 # MYRIAD_HZ, default 10\n"), "{shown}");
    // Other commands have their own variables.
    let output = myriad(&["version"], &[("MYRIAD_NONSENSE", "1")]).output().unwrap();
    assert!(output.status.success());
}

//! Options of the operator: invalid ones, the user of the workers, addresses.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use super::harness::{
    Folder, GET_HELLO, GET_HELLO_AND_CLOSE, HELLO, HELLO_AND_CLOSE, Load, Orphan, PATIENT, Server,
    ask, ask_all, check_status, connect, is_running, own_address, replace, signal, wait_until,
};
use crate::secure::Files;

/// Returns the exit code of `myriad web` with invalid options, and its error output.
fn refusal(options: &[&str]) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_myriad"));
    program.args(["web", "--listen", &own_address(), "--workers", "3"]).args(options);
    let output = program.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Several workers start with the same options, and two processes write to the same terminal.
#[test]
fn each_error_is_reported_once() {
    let folder = Folder::new("wrong");
    let file = folder.path("web.toml");
    fs::write(&file, "compress = true\nwrokers = 3\n").unwrap();
    let file = file.to_str().unwrap();
    for mode in ["process", "thread"] {
        for (options, code, expected) in [
            (
                &["--root", "/nonexistent/site"][..],
                1,
                "root: could not open directory /nonexistent/site: No such file or directory",
            ),
            (&["--root", file], 1, "root: could not open directory"),
            (&["--access-log", "/nonexistent/log"], 1, "access-log: could not open /nonexistent"),
            (&["--config", file], 2, "web.toml:2: wrokers: unknown option; did you mean workers?"),
            (&["--workers", "many"], 2, "--workers: argument couldn't be parsed into an integer"),
            (&["--upstream", "25005"], 2, "--upstream: \"25005\" is not HOST:PORT"),
            (&["--listen", "no-such.invalid:1"], 1, "listen: could not resolve host"),
        ] {
            let (found, said) = refusal(&[&["--mode", mode][..], options].concat());
            assert_eq!(found, Some(code), "{options:?}: {said}");
            assert_eq!(said.matches(expected).count(), 1, "{options:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{options:?}: {said}");
        }
    }
}

/// Returns the user and group IDs of a process, and whether it can gain privileges.
// Source: proc_pid_status(5)
fn rights(pid: u32) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    ["Uid:", "Gid:", "Groups:", "NoNewPrivs:", "CapEff:"]
        .iter()
        .map(|name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap())
        .map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The master reads the key and opens the log; the workers may do neither.
#[test]
fn workers_have_only_the_rights_of_their_user() {
    const NOBODY: &str = "65534";
    let folder = Folder::new("user");
    if !rights(std::process::id())[0].starts_with("0 0 ") {
        let (code, said) = refusal(&["--user", NOBODY, "--group", NOBODY]);
        assert_eq!(code, Some(2));
        assert!(said.contains("user: only root can run workers as another user"), "{said}");
        return;
    }
    let files = Files::make(folder.path("certificates"));
    for name in ["one.key", "root/none.txt"] {
        let path = if name.ends_with("key") { files.path(name) } else { folder.path(name) };
        if name.ends_with("txt") {
            fs::write(&path, "secret").unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let (log, old) = (folder.path("access.log"), folder.path("old.log"));
    let file = folder.path("web.toml");
    let text = format!(
        "root = {:?}\naccess-log = {log:?}\nuser = \"{NOBODY}\"\ngroup = \"{NOBODY}\"\n\
         listen-tls = \"127.0.0.1:0\"\ntls-cert-file = {:?}\ntls-key-file = {:?}\nworkers = 2\n",
        folder.path("root"),
        files.path("one.pem"),
        files.path("one.key"),
    );
    fs::write(&file, &text).unwrap();
    let options = [&["--config", file.to_str().unwrap()][..], &PATIENT].concat();
    let mut server = Server::start(&options);
    let check = |server: &Server, master: u32| {
        for worker in super::harness::children(master) {
            let ids = [NOBODY; 4].join(" ");
            assert_eq!(rights(worker), [&ids, &ids, "", "1", "0000000000000000"]);
        }
        check_status(server, "GET /none.txt HTTP/1.0\r\n\r\n", 403);
        check_status(server, "GET /index.html HTTP/1.0\r\n\r\n", 200);
        assert!(rights(master)[0].starts_with("0 0 "));
    };
    check(&server, server.master.id());
    let has_line = || fs::read_to_string(&log).is_ok_and(|text| text.contains("/none.txt"));
    wait_until("the log has a line", has_line);
    fs::rename(&log, &old).unwrap();
    server.signal("USR1");
    // The master creates the file before the workers open it.
    wait_until("the workers have opened the log", || {
        server.workers().into_iter().all(|worker| super::harness::has_open(worker, &log))
    });
    check(&server, server.master.id());
    wait_until("the new log has a line", has_line);
    let before = server.workers();
    server.signal("HUP");
    wait_until("only the new workers remain", || {
        let now = server.workers();
        now.len() == 2 && !now.iter().any(|worker| before.contains(worker))
    });
    check(&server, server.master.id());
    let first = server.master.id();
    let next = replace(first, server.address);
    server.next_ready();
    wait_until("the old master has ended", || !is_running(first));
    check(&server, next.0);
    signal(next.0, "TERM");
    wait_until("the new master has ended", || !next.is_there());
}

/// Returns an IPv6 address if the machine supports IPv6.
fn ipv6_address() -> Option<&'static str> {
    std::net::TcpListener::bind("[::1]:0").is_ok().then_some("[::1]:0")
}

#[test]
fn several_addresses_are_served_reloaded_and_inherited() {
    for accept in ["least-loaded", "exclusive", "fdpass"] {
        let folder = Folder::new(&format!("addresses-{accept}"));
        let (file, said) = (folder.path("web.toml"), folder.path("said"));
        let (second, third) = (own_address(), own_address());
        let six: Vec<&str> = ipv6_address().into_iter().collect();
        let list = |addresses: &[&str]| {
            format!("accept = \"{accept}\"\nworkers = 2\nlisten = {addresses:?}\n")
        };
        let all = [&[second.as_str(), &third, "localhost:0"][..], &six].concat();
        fs::write(&file, list(&all)).unwrap();
        let errors = fs::File::create(&said).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_myriad"));
        let options =
            ["--config", file.to_str().unwrap(), PATIENT[0], PATIENT[1], PATIENT[2], PATIENT[3]];
        let mut server = Server::run_as_told(&mut program, &options, errors);
        let addresses: Vec<SocketAddr> = server.addresses.iter().map(|one| one.1).collect();
        assert_eq!(addresses.len(), all.len());
        for address in &addresses {
            ask(&mut connect(*address), GET_HELLO, HELLO);
        }
        // One address is removed, and clients of the others are unaffected.
        let kept: Vec<String> = addresses[1..].iter().map(SocketAddr::to_string).collect();
        fs::write(&file, list(&kept.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
        let loads: Vec<Load> = addresses[1..].iter().map(|one| Load::start(*one, 1)).collect();
        let mut waiting = connect(addresses[0]);
        ask(&mut waiting, GET_HELLO, HELLO);
        server.signal("HUP");
        wait_until("the new workers serve", || {
            fs::read_to_string(&said).unwrap().contains("serving with new options")
        });
        let mut rest = Vec::new();
        waiting.read_to_end(&mut rest).unwrap();
        wait_until("the address refuses connections", || {
            std::net::TcpStream::connect(addresses[0]).is_err()
        });
        // The next program inherits all addresses and closes one.
        let kept = &kept[..kept.len() - 1];
        fs::write(&file, list(&kept.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
        let (last, loads_kept) = (loads.len() - 1, addresses.len() - 2);
        let mut loads = loads;
        assert_eq!(loads.remove(last).stop(), Vec::<String>::new());
        let before = Orphan(server.master.id());
        let next = replace(before.0, addresses[1]);
        assert_eq!(server.next_ready().len(), loads_kept);
        wait_until("the old master has ended", || !is_running(before.0));
        for load in &loads {
            load.go_on(20);
        }
        for load in loads {
            assert_eq!(load.stop(), Vec::<String>::new(), "{accept}");
        }
        assert_eq!(ask_all(addresses[1], GET_HELLO_AND_CLOSE.as_bytes()), HELLO_AND_CLOSE);
        signal(next.0, "TERM");
        wait_until("the new master has ended", || !next.is_there());
    }
}

//! What the operator can observe: counters, and workers that hang.

use std::fs;

use super::harness::{
    Folder, GET_HELLO, GET_HELLO_AND_CLOSE, HELLO, HELLO_AND_CLOSE, Server, ask, ask_all, halt,
    own_address, signal, wait_until,
};

const OK: &str = "myriad_web_responses_total{class=\"2xx\"";

/// Whichever process or thread has lost them, and whichever workers have been replaced.
#[test]
fn lost_lines_are_counted_once() {
    for mode in ["process", "thread"] {
        let (folder, status) = (Folder::new(&format!("lost-lines-{mode}")), own_address());
        let options = ["--workers", "3", "--mode", mode, "--status", &status];
        let file = folder.path("log");
        let server = Server::start_saying(&options, fs::File::create(&file).unwrap());
        server.signal("HUP");
        let lines = || fs::read_to_string(&file).unwrap();
        wait_until("the options are read again", || lines().contains("serving with new options"));
        server.stop();
        let ended = lines().lines().filter(|line| line.contains("end")).count();
        let expected = (lines().lines().count() - ended) as u64;
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let server = Server::start_saying(&options, full);
        server.signal("HUP");
        let lost = || server.metric("myriad_web_log_lines_lost_total");
        wait_until("the lines are counted", || lost() >= expected);
        assert_eq!(lost(), expected, "{mode}: {}", lines());
        server.stop();
    }
}

#[test]
fn counters_do_not_shrink_when_workers_change() {
    let status = own_address();
    for accept in ["least-loaded", "fdpass"] {
        let server = Server::start(&["--workers", "2", "--accept", accept, "--status", &status]);
        for _ in 0..5 {
            ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
        }
        ask_all(server.address, b"GET /none HTTP/1.0\r\n\r\n");
        wait_until("all responses are counted", || server.metric(OK) == 5);
        let missing = "myriad_web_responses_total{class=\"4xx\"";
        wait_until("the 404 response is counted", || server.metric(missing) == 1);
        assert_eq!(server.metric("myriad_web_connections_accepted_total"), 6);
        let before = server.workers();
        signal(before[0], "KILL");
        wait_until("the worker is replaced", || {
            server.metric("myriad_web_worker_restarts_total") == 1
        });
        assert_eq!((server.metric(OK), server.metric(missing)), (5, 1));
        server.signal("HUP");
        wait_until("only the new workers remain", || {
            let now = server.workers();
            now.len() == 2 && !now.contains(&before[1])
        });
        ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
        wait_until("the new workers count responses", || server.metric(OK) == 6);
        assert_eq!(server.metric("myriad_web_worker_restarts_total"), 1);
        server.stop();
    }
}

/// The status address does not serve the site, and the site does not serve the status pages.
#[test]
fn status_pages_have_an_address_of_their_own() {
    let status = own_address();
    let server = Server::start(&["--workers", "1", "--connections-max", "1", "--status", &status]);
    let ask_status = |line: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        ask_all(server.status(), request.as_bytes())
    };
    for (line, code) in
        [("GET /hello", 404), ("POST /metrics", 405), ("GET /", 200), ("HEAD /", 200)]
    {
        assert!(ask_status(line).starts_with(&format!("HTTP/1.1 {code} ")), "{line}");
    }
    assert!(ask_status("GET /").ends_with("</html>\n"));
    let metrics = ask_all(server.address, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 404 "), "{metrics}");
    // The status address answers even when clients use all connections.
    let mut only = server.connect();
    ask(&mut only, GET_HELLO, HELLO);
    let waiting = server.connect();
    assert_eq!(server.metric("myriad_web_connections"), 1);
    drop((only, waiting));
    server.stop();
}

#[test]
fn a_worker_that_hangs_is_reported_and_gets_no_connections() {
    let folder = Folder::new("hangs");
    let said = folder.path("said");
    let errors = fs::File::create(&said).unwrap();
    let has_said = |words: &str| fs::read_to_string(&said).unwrap().contains(words);
    let options = ["--workers", "2", "--accept", "fdpass", "--worker-timeout-ms", "60000"];
    let server = Server::start_saying(&options, errors);
    let workers = server.workers();
    ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
    halt(workers[0]);
    wait_until("the hang is logged", || has_said("worker loop is not running"));
    for _ in 0..20 {
        let answer = ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
        assert_eq!(answer, HELLO_AND_CLOSE);
    }
    signal(workers[0], "CONT");
    wait_until("the recovery is logged", || has_said("worker loop is running again"));
    assert_eq!(server.workers(), workers);
    server.stop();
}

#[test]
fn a_worker_that_hangs_for_too_long_is_replaced() {
    let folder = Folder::new("killed");
    let said = folder.path("said");
    let errors = fs::File::create(&said).unwrap();
    let options = ["--workers", "2", "--worker-timeout-ms", "2000"];
    let server = Server::start_saying(&options, errors);
    let workers = server.workers();
    halt(workers[1]);
    // Connections that the kernel assigns to the socket of the hung worker wait for its successor.
    for _ in 0..20 {
        let answer = ask_all(server.address, GET_HELLO_AND_CLOSE.as_bytes());
        assert_eq!(answer, HELLO_AND_CLOSE);
    }
    wait_until("the replacement worker is running", || {
        let now = server.workers();
        now.len() == 2 && now.contains(&workers[0]) && !now.contains(&workers[1])
    });
    assert!(fs::read_to_string(&said).unwrap().contains("worker hangs; killing it"));
    server.stop();
}

#[test]
fn plain_http_is_redirected() {
    let server = Server::start(&["--workers", "1", "--https-redirect-port", "8443"]);
    let answer = ask_all(server.address, b"GET /hello?x HTTP/1.0\r\nHost: a:80\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.contains("\r\nLocation: https://a:8443/hello?x\r\n"), "{answer}");
    server.stop();
}

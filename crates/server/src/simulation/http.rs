//! HTTP connections of the simulated server: the REST dialect, splits, gates, limits, timeouts.

use binlog::Faults as DiskFaults;

use super::cql_client::run_reactors;
use super::http_client::{Client, SECOND_NS, check, request, run, world, world_with};
use crate::protocol::ClientProtocol;

#[test]
fn commands_are_sent_as_arrays_or_as_paths() {
    check(
        &mut world(),
        &[
            ("POST /", r#"["SET","foo","bar","EX",100]"#, 200, r#"{"result":"OK"}"#),
            ("GET /get/foo", "", 200, r#"{"result":"bar"}"#),
            ("GET /ttl/foo", "", 200, r#"{"result":100}"#),
            ("GET /get/none", "", 200, r#"{"result":null}"#),
            ("POST /set/foo?EX=50&XX", "a b/c", 200, r#"{"result":"OK"}"#),
            ("GET /mget/foo/b%20c%2F", "", 200, r#"{"result":["a b/c",null]}"#),
            ("GET /ttl/foo", "", 200, r#"{"result":50}"#),
            ("PUT /set/n/5", "", 200, r#"{"result":"OK"}"#),
            ("POST /incr/n", "", 200, r#"{"result":6}"#),
            ("GET /hset/h/f/1/g/2", "", 200, r#"{"result":2}"#),
            ("GET /hgetall/h", "", 200, r#"{"result":["f","1","g","2"]}"#),
            ("GET /ping", "", 200, r#"{"result":"PONG"}"#),
            ("GET /set/e/", "", 200, r#"{"result":"OK"}"#),
            ("GET /strlen/e", "", 200, r#"{"result":0}"#),
            ("HEAD /get/foo", "", 200, ""),
            ("GET /get/foo|Upstash-Encoding: base64", "", 200, r#"{"result":"YSBiL2M="}"#),
            ("GET /set/a/b|Upstash-Encoding: base64", "", 200, r#"{"result":"OK"}"#),
            ("GET /get/n|Upstash-Response-Format: resp2", "", 200, "$1\r\n6\r\n"),
        ],
    );
}

#[test]
fn errors_have_the_texts_of_the_dialect() {
    let refused = |name: &str| format!(r#"{{"error":"ERR Command is not available: '{name}'"}}"#);
    check(
        &mut world_with(&[("enable-debug-command", "yes")]),
        &[
            ("GET /lpush/l/a", "", 200, r#"{"result":1}"#),
            (
                "GET /get/l",
                "",
                400,
                r#"{"error":"WRONGTYPE Operation against a key holding the wrong kind of value"}"#,
            ),
            ("GET /get", "", 400, r#"{"error":"ERR wrong number of arguments for 'get' command"}"#),
            (
                "GET /nosuch/a",
                "",
                400,
                r#"{"error":"ERR unknown command 'nosuch', with args beginning with: 'a' "}"#,
            ),
            ("POST /", "[]", 400, r#"{"error":"ERR failed to parse command"}"#),
            ("POST /", "{", 400, r#"{"error":"ERR failed to parse command"}"#),
            ("POST /pipeline", "[1]", 400, r#"{"error":"ERR failed to parse pipeline request"}"#),
            ("GET /get/%zz", "", 400, r#"{"error":"ERR failed to parse command"}"#),
            ("DELETE /get/a", "", 405, r#"{"error":"ERR method not allowed"}"#),
            ("GET /multi", "", 400, &refused("MULTI")),
            ("GET /client/getname", "", 400, &refused("CLIENT")),
            ("GET /wait/1/0", "", 400, &refused("WAIT")),
            (
                "GET /debug/sleep/1",
                "",
                400,
                r#"{"error":"ERR blocking commands are not supported over HTTP"}"#,
            ),
            (
                "GET /ping|Myriad-Durability: maybe",
                "",
                400,
                r#"{"error":"ERR Myriad-Durability must be always, interval or never"}"#,
            ),
            ("OPTIONS /pipeline", "", 204, ""),
            ("GET /ping", "", 200, r#"{"result":"PONG"}"#),
        ],
    );
}

#[test]
fn a_header_selects_the_database_of_one_request() {
    let range = r#"{"error":"ERR Myriad-Database must be the number of a database, 0 to 15"}"#;
    let both = r#"[["GET","a"],["GET","b"]]"#;
    check(
        &mut world(),
        &[
            ("POST /|Myriad-Database: 3", r#"["SET","a","x"]"#, 200, r#"{"result":"OK"}"#),
            ("PUT /kv/b|Myriad-Database: 3", "y", 201, ""),
            ("GET /get/a|Myriad-Database: 3", "", 200, r#"{"result":"x"}"#),
            ("GET /kv/b|Myriad-Database: 3", "", 200, "y"),
            ("POST /pipeline|Myriad-Database: 3", both, 200, r#"[{"result":"x"},{"result":"y"}]"#),
            (
                "POST /multi-exec|Myriad-Database: 3",
                both,
                200,
                r#"[{"result":"x"},{"result":"y"}]"#,
            ),
            ("GET /get/a", "", 200, r#"{"result":null}"#),
            ("GET /kv/b", "", 404, r#"{"error":"ERR no such key"}"#),
            ("GET /get/a|Myriad-Database: 0", "", 200, r#"{"result":null}"#),
            ("GET /get/a|Myriad-Database: 16", "", 400, range),
            ("GET /kv/a|Myriad-Database: -1", "", 400, range),
            ("POST /pipeline|Myriad-Database: x", both, 400, range),
            ("GET /acl/setuser/default/-select", "", 200, r#"{"result":"OK"}"#),
            (
                "GET /get/a|Myriad-Database: 3",
                "",
                400,
                r#"{"error":"NOPERM User default has no permissions to run the 'select' command"}"#,
            ),
        ],
    );
}

#[test]
fn pipelines_continue_after_errors_and_transactions_do_not_start() {
    let commands = r#"[["SET","a","x"],["INCR","a"],["WATCH","a"],["GET","a"]]"#;
    let results = r#"[{"result":"OK"},{"error":"ERR value is not an integer or out of range"},{"error":"ERR Command is not available: 'WATCH'"},{"result":"x"}]"#;
    let transaction = r#"[["SET","a","1"],["INCR","a"],["LPUSH","a","x"],["MGET","a","b"]]"#;
    let executed = r#"[{"result":"OK"},{"result":2},{"error":"WRONGTYPE Operation against a key holding the wrong kind of value"},{"result":["2",null]}]"#;
    let mut world = world();
    check(
        &mut world,
        &[
            ("POST /pipeline", commands, 200, results),
            ("POST /multi-exec", transaction, 200, executed),
            (
                "POST /multi-exec",
                r#"[["SET","a","9"],["GET"]]"#,
                400,
                r#"{"error":"ERR wrong number of arguments for 'get' command"}"#,
            ),
            (
                "POST /multi-exec",
                r#"[["SET","a","9"],["EXEC"]]"#,
                400,
                r#"{"error":"ERR Command is not available: 'EXEC'"}"#,
            ),
            ("GET /get/a", "", 200, r#"{"result":"2"}"#),
            (
                "POST /multi-exec|Upstash-Encoding: base64",
                r#"[["GET","a"],["SET","a","1"]]"#,
                200,
                r#"[{"result":"Mg=="},{"result":"OK"}]"#,
            ),
        ],
    );
    let mut grown = |head: &str, body: &str| {
        let before = world.shared().log.stats().records;
        assert_eq!(Client::connect(&mut world).ask(&mut world, head, body).status, 200);
        world.shared().log.stats().records - before
    };
    let single = grown("GET /set/x/1", "");
    let both = grown("POST /multi-exec", r#"[["SET","x","1"],["SET","y","2"]]"#);
    assert_eq!(both, single, "a transaction is one record");
    let queued = world.shared().memory.call.of(ClientProtocol::Resp).current_bytes();
    assert_eq!(queued, 0, "queued commands are freed even if nothing was executed");
}

#[test]
fn every_split_of_the_input_gets_the_same_responses() {
    let conversation = [
        request("POST /", r#"["SET","k","value"]"#),
        request("GET /get/k", ""),
        "PUT /set/c HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            .replace("a:1", "127.0.0.1:1"),
        request("POST /pipeline", r#"[["GET","c"],["DEL","c"]]"#),
        request("GET /healthz|Connection: close", ""),
    ]
    .concat();
    let mut world = world();
    let mut talk = |cut: usize| {
        let mut client = Client::connect(&mut world);
        client.sim.send(&conversation.as_bytes()[..cut]);
        run(&mut world);
        client.sim.send(&conversation.as_bytes()[cut..]);
        run(&mut world);
        let answers = client.answers();
        assert!(client.sim.is_ended(), "cut at {cut}");
        answers
    };
    let expected = talk(0);
    assert_eq!(expected.iter().map(|one| one.status).collect::<Vec<_>>(), [200; 5]);
    assert_eq!(expected[3].body, r#"[{"result":"abcde"},{"result":1}]"#);
    assert_eq!(expected[4].line("Connection"), Some("close"));
    for cut in 1..conversation.len() {
        assert_eq!(talk(cut), expected, "cut at {cut}");
    }
}

#[test]
fn responses_wait_for_the_log_in_order() {
    let mut world = world();
    let mut writer = Client::connect(&mut world);
    let mut reader = Client::connect(&mut world);
    writer.sim.send(request("GET /set/a/1", "").as_bytes());
    writer.sim.send(request("GET /get/other", "").as_bytes());
    run_reactors(&mut world);
    reader.sim.send(request("GET /get/other", "").as_bytes());
    run_reactors(&mut world);
    assert_eq!(writer.answers(), [], "both wait: the second may not overtake the first");
    assert_eq!(reader.answers().len(), 1, "a read does not wait for a write of another key");
    reader.sim.send(request("GET /get/a", "").as_bytes());
    run_reactors(&mut world);
    assert_eq!(reader.answers(), [], "data that a crash could undo is not returned");
    run(&mut world);
    assert_eq!(writer.answers().len(), 2);
    assert_eq!(reader.answers()[0].body, r#"{"result":"1"}"#);
    writer.sim.send(request("GET /set/a/2|Myriad-Durability: never", "").as_bytes());
    writer.sim.send(request("GET /get/a|Myriad-Durability: interval", "").as_bytes());
    run_reactors(&mut world);
    let answers = writer.answers();
    assert_eq!(answers.len(), 2, "a connection with lower durability does not wait");
    assert_eq!(answers[1].body, r#"{"result":"2"}"#);
}

#[test]
fn a_failed_log_refuses_writes_and_not_reads() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    client.ask(&mut world, "GET /set/a/1", "");
    assert_eq!(client.ask(&mut world, "GET /readyz", "").status, 200);
    world.disk.set_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
    client.sim.send(request("GET /set/a/2", "").as_bytes());
    run(&mut world);
    run(&mut world);
    assert_eq!(client.answers(), [], "the outcome of that write is unknown");
    assert!(client.sim.is_ended());
    let mut client = Client::connect(&mut world);
    let refused = client.ask(&mut world, "GET /set/b/1", "");
    assert_eq!(refused.status, 400);
    assert!(refused.body.starts_with(r#"{"error":"MISCONF "#), "{}", refused.body);
    let lost = client.ask(&mut world, "GET /get/a", "");
    assert!(lost.body.starts_with(r#"{"error":"MISCONF "#), "{}", lost.body);
    assert_eq!(client.ask(&mut world, "GET /get/b", "").body, r#"{"result":null}"#);
    let ready = client.ask(&mut world, "GET /readyz", "");
    assert_eq!((ready.status, ready.body.as_str()), (503, "{\"status\":\"log-failed\"}\n"));
    assert_eq!(client.ask(&mut world, "GET /healthz", "").body, "ok\n");
}

#[test]
fn a_password_is_required() {
    let mut world = world_with(&[("requirepass", "secret")]);
    let mut client = Client::connect(&mut world);
    let refused = client.ask(&mut world, "GET /get/a", "");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.body, r#"{"error":"WRONGPASS invalid or missing auth token"}"#);
    assert!(refused.line("WWW-Authenticate").is_some_and(|line| line.starts_with("Basic ")));
    for (head, status) in [
        ("GET /get/a|Authorization: Bearer wrong", 401),
        ("GET /get/a|Authorization: Bearer secret", 200),
        ("GET /get/a?_token=secret", 200),
        ("GET /get/a?_token=wrong", 401),
        ("GET /metrics", 401),
        ("GET /healthz", 200),
        ("GET /readyz", 200),
    ] {
        client.sim.send(request(head, "").as_bytes());
        client.sim.send(request("GET /healthz", "").as_bytes());
        run(&mut world);
        let is_wrong = head.contains("wrong");
        let answers = client.answers();
        assert_eq!(answers.len(), if is_wrong { 0 } else { 2 }, "{head}: guessing is slow");
        world.advance(SECOND_NS);
        run(&mut world);
        let statuses: Vec<_> =
            answers.into_iter().chain(client.answers()).map(|one| one.status).collect();
        assert_eq!(statuses, [status, 200], "{head}");
    }
    // A browser prompts its user for a password only for requests that the user made.
    let numbers = client.ask(&mut world, "GET /api/v1/overview", "");
    assert_eq!(numbers.line("WWW-Authenticate"), Some("Bearer realm=\"myriad\""));
}

#[test]
fn paused_requests_wait_and_run_once() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    client.ask(&mut world, "GET /set/n/0", "");
    let admin = world.sim().connect();
    admin.send(b"CLIENT PAUSE 5000 WRITE\r\n");
    run(&mut world);
    assert_eq!(admin.received(), b"+OK\r\n");
    assert_eq!(client.ask(&mut world, "GET /get/n", "").body, r#"{"result":"0"}"#);
    client.sim.send(request("GET /incr/n", "").as_bytes());
    client.sim.send(request("POST /multi-exec", r#"[["INCR","n"]]"#).as_bytes());
    run(&mut world);
    assert_eq!(client.answers(), []);
    world.advance(6 * SECOND_NS);
    run(&mut world);
    let bodies: Vec<_> = client.answers().into_iter().map(|one| one.body).collect();
    assert_eq!(bodies, [r#"{"result":1}"#, r#"[{"result":2}]"#]);
}

#[test]
fn requests_over_the_limits_are_refused_and_close() {
    let mut world = world_with(&[("http-body-bytes-max", "1kb")]);
    let long = "x".repeat(20_000);
    for (bytes, status) in [
        (request("POST /set/a", &long), 413),
        (request(&format!("GET /get/{}", &long[..9000]), ""), 414),
        (request(&format!("GET /get/a|X: {long}"), ""), 431),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_owned(),
            400,
        ),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
    ] {
        let mut client = Client::connect(&mut world);
        client.sim.send(request("GET /ping", "").as_bytes());
        client.sim.send(bytes.as_bytes());
        run(&mut world);
        let answers: Vec<_> = client.answers().iter().map(|one| one.status).collect();
        assert_eq!(answers, [200, status]);
        assert!(client.sim.is_ended());
    }
}

#[test]
fn connections_stay_open_as_requested() {
    let mut world = world();
    for (text, lives, line) in [
        ("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", true, None),
        (
            "GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            false,
            Some("close"),
        ),
        ("GET /ping HTTP/1.0\r\n\r\n", false, Some("close")),
        ("GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, Some("keep-alive")),
    ] {
        let mut client = Client::connect(&mut world);
        client.sim.send(text.as_bytes());
        run(&mut world);
        assert_eq!(client.answers()[0].line("Connection"), line, "{text}");
        assert_eq!(client.sim.is_ended(), !lives, "{text}");
    }
    let mut client = Client::connect(&mut world);
    client.sim.send(b"PUT /set/e HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    run(&mut world);
    assert_eq!(client.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [100]);
    client.sim.send(b"hi");
    run(&mut world);
    assert_eq!(client.answers()[0].body, r#"{"result":"OK"}"#);
}

#[test]
fn slow_clients_are_disconnected() {
    let mut world = world_with(&[("http-head-timeout-ms", "5000"), ("http-body-rate-min", "10")]);
    let mut silent = Client::connect(&mut world);
    let mut head = Client::connect(&mut world);
    let mut body = Client::connect(&mut world);
    let mut idle = Client::connect(&mut world);
    let mut stopped = Client::connect(&mut world);
    head.sim.send(b"GET /pi");
    body.sim.send(b"PUT /set/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nab");
    // At 10 bytes per second the last client would have minutes left.
    let begun = format!("Content-Length: 4000\r\n\r\n{}", "x".repeat(3999));
    stopped.sim.send(b"PUT /set/l HTTP/1.1\r\nHost: localhost\r\n");
    stopped.sim.send(begun.as_bytes());
    idle.ask(&mut world, "GET /ping", "");
    for second in 1..=90 {
        world.advance(SECOND_NS);
        run(&mut world);
        if second == 4 {
            // A head that arrives byte by byte times out as early as a missing head.
            head.sim.send(b"n");
            run(&mut world);
            assert!([&silent, &head, &body, &idle].iter().all(|one| !one.sim.is_ended()));
        }
        if second == 8 {
            assert_eq!(head.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [408]);
            assert!(head.sim.is_ended() && silent.sim.is_ended() && !body.sim.is_ended());
            assert_eq!(silent.answers(), []);
        }
        if second == 30 {
            assert_eq!(body.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [408]);
            assert!(body.sim.is_ended() && !idle.sim.is_ended() && !stopped.sim.is_ended());
        }
    }
    assert_eq!(stopped.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [408]);
    assert!(idle.sim.is_ended(), "idle for longer than a minute");
    assert_eq!(idle.answers(), []);
}

#[test]
fn clients_that_do_not_read_are_disconnected() {
    let mut world = world_with(&[("http-write-timeout-ms", "5000")]);
    // The last client sends a byte now and then.
    for (line, more) in [("", ""), ("|Connection: close", ""), ("", "G")] {
        let client = Client::connect(&mut world);
        client.sim.set_window(0);
        client.sim.send(request(&format!("GET /ping{line}"), "").as_bytes());
        run(&mut world);
        for second in 1..=8 {
            client.sim.send(more.as_bytes());
            world.advance(SECOND_NS);
            run(&mut world);
            assert!(second > 4 || !client.sim.is_closed(), "{line:?} {more:?} after {second} s");
        }
        assert!(client.sim.is_closed(), "{line:?} {more:?}");
    }
}

#[test]
fn unauthorized_requests_are_refused_before_their_bodies() {
    let mut world = world_with(&[("requirepass", "secret")]);
    for (head, status) in [
        ("POST /pipeline", 401),
        ("PUT /kv/a|Expect: 100-continue", 401),
        ("PUT /kv/a|Authorization: Bearer wrong", 401),
        ("PUT /kv/a|Authorization: Bearer secret|Origin: http://evil.example", 403),
        ("POST /metrics", 405),
        ("PUT /healthz", 405),
        ("GET /healthz", 200),
        ("OPTIONS /kv/a", 204),
    ] {
        for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
            for part in ["", "1"] {
                let mut client = Client::connect(&mut world);
                client.sim.send(request("GET /healthz", "").as_bytes());
                let head = request(&format!("{head}|{framing}"), "");
                client.sim.send(format!("{head}{part}").as_bytes());
                run(&mut world);
                world.advance(SECOND_NS);
                run(&mut world);
                let answers = client.answers();
                let statuses: Vec<_> = answers.iter().map(|one| one.status).collect();
                assert_eq!(statuses, [200, status], "{head}{part}");
                assert_eq!(answers[1].line("Connection"), Some("close"));
                assert!(client.sim.is_ended(), "{head}");
                // A client that continues to send receives the whole response; its input is
                // discarded.
                client.sim.send(&[b'x'; 10_000]);
                run(&mut world);
                assert_eq!(client.answers(), []);
            }
        }
    }
    // With the password, the body is read in any number of pieces.
    let mut client = Client::connect(&mut world);
    let head = "PUT /kv/a|Authorization: Bearer secret|Content-Length: 6";
    for part in [request(head, "").as_str(), "abc", "def"] {
        assert_eq!(client.answers(), []);
        client.sim.send(part.as_bytes());
        run(&mut world);
    }
    assert_eq!(client.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [201]);
    let read = client.ask(&mut world, "GET /kv/a|Authorization: Bearer secret", "");
    assert_eq!(read.body, "abcdef");
}

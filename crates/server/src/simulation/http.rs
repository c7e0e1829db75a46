//! HTTP connections of the simulated server: the REST dialect, splits, gates, limits, times.

use binlog::Faults as DiskFaults;
use reactor::SimClient;
use wire::http::{Event, Limits, ResponseDecoder};

use super::cql_client::run_reactors;
use super::world::{Plan, World};

const SEED: u64 = 1;
/// The listener behind the one of RESP.
const HTTP: usize = 1;
const SECOND_NS: u64 = 1_000_000_000;

fn world() -> World {
    world_with(&[])
}

fn world_with(options: &[(&'static str, &str)]) -> World {
    let mut all = vec![("http", "127.0.0.1:0".to_owned())];
    all.extend(options.iter().map(|(name, value)| (*name, (*value).to_owned())));
    World::new(SEED, Plan { reactors: 1, options: all, ..Plan::default() })
}

/// Runs reactor and log until they wait.
fn run(world: &mut World) {
    while world.write_log() | world.step(0) {}
}

/// The far end of a connection.
struct Client {
    sim: SimClient,
    decoder: ResponseDecoder,
    unread: Vec<u8>,
    answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    lines: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn line(&self, name: &str) -> Option<&str> {
        let found = self.lines.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

impl Client {
    fn connect(world: &mut World) -> Client {
        let sim = world.sim().connect_to(HTTP);
        Client { sim, decoder: ResponseDecoder::new(), unread: Vec::new(), answer: None }
    }

    /// What has arrived whole.
    fn answers(&mut self) -> Vec<Answer> {
        self.unread.extend(self.sim.received());
        let mut answers = Vec::new();
        let bytes = std::mem::take(&mut self.unread);
        let mut at = 0;
        loop {
            let decoded = self.decoder.decode(&bytes[at..], &Limits::DEFAULT);
            let (used, event) = decoded.expect("the server speaks HTTP");
            at += used;
            match event {
                Event::Unfinished => break,
                Event::Head(head) => {
                    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    let lines = head.headers().map(|(name, value)| (name.to_owned(), text(value)));
                    let lines = lines.filter(|(name, _)| name != "Date").collect();
                    let answer = Answer { status: head.status, lines, body: String::new() };
                    if head.status < 200 {
                        answers.push(answer);
                    } else {
                        self.answer = Some(answer);
                    }
                }
                Event::Body(part) => {
                    let answer = self.answer.as_mut().expect("a head came first");
                    answer.body.push_str(std::str::from_utf8(part).unwrap());
                }
                Event::End => answers.extend(self.answer.take()),
            }
        }
        self.unread = bytes[at..].to_vec();
        answers
    }

    /// Sends a request and runs the server until it waits.
    fn ask(&mut self, world: &mut World, head: &str, body: &str) -> Answer {
        self.sim.send(request(head, body).as_bytes());
        self.decoder.expect_to_head(head.starts_with("HEAD"));
        run(world);
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{head}: {answers:?}");
        answers.remove(0)
    }
}

/// `head`: method, target, and header lines behind `|`.
fn request(head: &str, body: &str) -> String {
    let mut parts = head.split('|');
    let line = parts.next().unwrap();
    let lines: String = parts.map(|line| format!("{line}\r\n")).collect();
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{lines}{length}\r\n{body}")
}

/// Requests of one connection after the other, with the status and content of their answers.
#[track_caller]
fn check(world: &mut World, talk: &[(&str, &str, u16, &str)]) {
    let mut client = Client::connect(world);
    for (head, body, status, expected) in talk {
        let answer = client.ask(world, head, body);
        assert_eq!((answer.status, answer.body.as_str()), (*status, *expected), "{head} {body}");
    }
}

#[test]
fn commands_come_as_arrays_and_as_paths() {
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
fn errors_are_said_in_the_words_of_the_dialect() {
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
            ("GET /client/list", "", 400, &refused("CLIENT")),
            ("GET /wait/1/0", "", 400, &refused("WAIT")),
            (
                "GET /debug/sleep/1",
                "",
                400,
                r#"{"error":"ERR this command waits, which is not done by HTTP"}"#,
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
fn pipelines_go_on_after_errors_and_transactions_do_not_begin() {
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
    let queued = world.shared().memory.call_resp.current_bytes();
    assert_eq!(queued, 0, "what was queued is given back, too, where nothing was executed");
}

#[test]
fn every_split_of_the_input_is_answered_alike() {
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
fn answers_wait_for_the_log_in_order() {
    let mut world = world();
    let mut writer = Client::connect(&mut world);
    let mut reader = Client::connect(&mut world);
    writer.sim.send(request("GET /set/a/1", "").as_bytes());
    writer.sim.send(request("GET /get/other", "").as_bytes());
    run_reactors(&mut world);
    reader.sim.send(request("GET /get/other", "").as_bytes());
    run_reactors(&mut world);
    assert_eq!(writer.answers(), [], "both wait: the second may not overtake the first");
    assert_eq!(reader.answers().len(), 1, "nobody waits for a write of another key");
    reader.sim.send(request("GET /get/a", "").as_bytes());
    run_reactors(&mut world);
    assert_eq!(reader.answers(), [], "what a crash could undo is not shown");
    run(&mut world);
    assert_eq!(writer.answers().len(), 2);
    assert_eq!(reader.answers()[0].body, r#"{"result":"1"}"#);
    writer.sim.send(request("GET /set/a/2|Myriad-Durability: never", "").as_bytes());
    writer.sim.send(request("GET /get/a|Myriad-Durability: interval", "").as_bytes());
    run_reactors(&mut world);
    let answers = writer.answers();
    assert_eq!(answers.len(), 2, "who asks for less waits for nothing");
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
    assert_eq!(client.answers(), [], "nobody knows whether that write is there");
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
fn a_password_is_asked_for() {
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
        assert_eq!(client.ask(&mut world, head, "").status, status, "{head}");
    }
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
fn limits_are_answered_and_close() {
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
fn connections_live_as_long_as_they_say() {
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
fn who_is_slow_is_let_go() {
    let mut world = world_with(&[("http-head-timeout-ms", "5000"), ("http-body-rate-min", "10")]);
    let mut silent = Client::connect(&mut world);
    let mut head = Client::connect(&mut world);
    let mut body = Client::connect(&mut world);
    let mut idle = Client::connect(&mut world);
    head.sim.send(b"GET /pi");
    body.sim.send(b"PUT /set/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nab");
    idle.ask(&mut world, "GET /ping", "");
    for second in 1..=90 {
        world.advance(SECOND_NS);
        run(&mut world);
        if second == 4 {
            // A head that comes byte by byte is as late as one that does not come.
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
            assert!(body.sim.is_ended() && !idle.sim.is_ended());
        }
    }
    assert!(idle.sim.is_ended(), "idle for longer than a minute");
    assert_eq!(idle.answers(), []);
}

#[test]
fn values_have_tags_conditions_and_times() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    let created = client.ask(&mut world, "PUT /kv/a%2Fb|Content-Type: text/html", "one");
    let tag = created.line("ETag").unwrap().to_owned();
    assert_eq!((created.status, created.body.as_str()), (201, ""));
    let read = client.ask(&mut world, "GET /kv/a/b", "");
    assert_eq!(
        (read.status, read.body.as_str(), read.line("ETag")),
        (200, "one", Some(tag.as_str()))
    );
    assert_eq!(read.line("Content-Type"), Some("application/octet-stream"));
    assert_eq!(read.line("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(read.line("Myriad-TTL-Ms"), None);
    let head = client.ask(&mut world, "HEAD /kv/a/b", "");
    assert_eq!((head.line("Content-Length"), head.body.as_str()), (Some("3"), ""));
    let steps = [
        ("GET /kv/a/b|If-None-Match: ETAG", "", 304),
        ("GET /kv/a/b|If-None-Match: \"x\"", "", 200),
        ("GET /kv/a/b|If-Match: \"x\"", "", 412),
        ("PUT /kv/a/b|If-None-Match: *", "two", 412),
        ("PUT /kv/a/b|If-Match: \"x\"", "two", 412),
        ("PUT /kv/none|If-Match: *", "two", 412),
        ("GET /kv/a/b|If-Match: ETAG", "", 200),
        ("PUT /kv/a/b|If-Match: ETAG|Myriad-TTL-Ms: 5000", "two", 204),
        ("PUT /kv/a/b|If-Match: ETAG", "three", 412),
        ("DELETE /kv/a/b|If-Match: ETAG", "", 412),
        ("PUT /kv/new|If-None-Match: *", "new", 201),
        ("DELETE /kv/new", "", 204),
        ("DELETE /kv/new", "", 404),
        ("GET /kv/new", "", 404),
        ("GET /kv/", "", 400),
        ("PUT /kv/a/b|Myriad-TTL-Ms: soon", "x", 400),
        ("POST /kv/a/b", "x", 405),
        ("GET /lpush/list/x", "", 200),
        ("GET /kv/list", "", 409),
        ("PUT /kv/list|If-Match: *", "x", 409),
        ("PUT /kv/list", "x", 204),
    ];
    for (head, body, status) in steps {
        let answer = client.ask(&mut world, &head.replace("ETAG", &tag), body);
        assert_eq!(answer.status, status, "{head}: {}", answer.body);
    }
    let read = client.ask(&mut world, "GET /kv/a/b", "");
    assert_eq!((read.body.as_str(), read.line("Myriad-TTL-Ms")), ("two", Some("5000")));
    world.advance(6 * SECOND_NS);
    run(&mut world);
    assert_eq!(client.ask(&mut world, "GET /kv/a/b", "").status, 404);
    client.sim.send(request("PUT /kv/durable", "x").as_bytes());
    run_reactors(&mut world);
    assert_eq!(client.answers(), [], "it waits for the log");
    run(&mut world);
    assert_eq!(client.answers().len(), 1);
}

#[test]
fn metrics_have_one_head_for_each_family() {
    let mut world = world_with(&[("cql", "127.0.0.1:0")]);
    // CQL has the listener in between.
    let sim = world.sim().connect_to(HTTP + 1);
    let mut client = Client { sim, ..Client::connect(&mut world) };
    client.ask(&mut world, "GET /set/a/1", "");
    client.ask(&mut world, "GET /nosuch", "");
    world.advance(SECOND_NS);
    run(&mut world);
    let page = client.ask(&mut world, "GET /metrics", "");
    assert_eq!(page.line("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let heads = |word: &str| {
        let mut names: Vec<_> = page
            .body
            .lines()
            .filter(|line| line.starts_with(word))
            .map(|line| line.split(' ').nth(2))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "a family has one head");
        all
    };
    assert_eq!(heads("# HELP "), heads("# TYPE "));
    for line in [
        "myriad_commands_total{command=\"set\"} 1",
        "myriad_commands_total{command=\"http|command-path\"} 2",
        "myriad_clients{protocol=\"http\"} 1",
        "myriad_clients{protocol=\"cql\"} 1",
        "myriad_clients{protocol=\"resp\"} 0",
        "myriad_keys{database=\"0\"} 1",
        "myriad_log_failed 0",
        "myriad_errors_total{kind=\"HTTP_CLIENT\"} 1",
        "myriad_stage_seconds_count{stage=\"wait_for_log\"} 1",
    ] {
        assert!(page.body.lines().any(|found| found == line), "{line}\n{}", page.body);
    }
}

//! HTTP routes besides commands: values, statements, change streams, the console, metrics.

use super::cql_client::run_reactors;
use super::http_client::{Client, HTTP, SECOND_NS, check, request, run, world, world_with};
use super::world::World;
use crate::statements::scan_queue::ROWS_PER_TURN;

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
        ("PUT /kv/a/b|Content-Range: bytes 0-0/9", "x", 400),
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
    assert_eq!(client.answers(), [], "the response waits for the log");
    run(&mut world);
    assert_eq!(client.answers().len(), 1);
}

#[test]
fn unread_responses_are_bounded_by_the_memory_limit() {
    const VALUE_BYTES: usize = 256 << 10;
    let options = [("memory-limit", "4mb"), ("read-buffer-memory-limit", "2mb")];
    let mut world = world_with(&options);
    let mut client = Client::connect(&mut world);
    assert_eq!(client.ask(&mut world, "PUT /kv/a", &"v".repeat(VALUE_BYTES)).status, 201);
    let greedy: Vec<_> = (0..20)
        .map(|number| {
            let client = Client::connect(&mut world);
            client.sim.set_window(0);
            let (head, body) = match number % 2 {
                0 => ("GET /kv/a", ""),
                _ => ("POST /pipeline", r#"[["PING"],["GET","a"],["PING"]]"#),
            };
            client.sim.send(request(head, body).as_bytes());
            run(&mut world);
            client
        })
        .collect();
    let held_bytes = world.shared().memory.server.current_bytes();
    assert!((3 << 20..(4 << 20) + VALUE_BYTES as u64).contains(&held_bytes), "{held_bytes}");
    let refused = client.ask(&mut world, "GET /kv/a", "");
    assert_eq!((refused.status, refused.line("Retry-After")), (503, Some("1")));
    assert!(refused.body.starts_with(r#"{"error":"OOM "#), "{}", refused.body);
    for (head, body) in [
        ("GET /get/a", ""),
        ("POST /", r#"["MGET","b","a"]"#),
        ("POST /multi-exec", r#"[["SET","done","1"],["GET","a"]]"#),
    ] {
        let refused = client.ask(&mut world, head, body);
        assert_eq!((refused.status, refused.line("Retry-After")), (503, Some("1")), "{head}");
        assert!(refused.body.starts_with(r#"{"error":"OOM "#), "{head}: {}", refused.body);
    }
    assert_eq!(client.ask(&mut world, "GET /get/done", "").body, r#"{"result":"1"}"#);
    let partly = client.ask(&mut world, "POST /pipeline", r#"[["GET","a"],["PING"]]"#);
    assert_eq!(partly.status, 200);
    assert!(partly.body.starts_with(r#"[{"error":"OOM "#), "{}", partly.body);
    assert!(partly.body.ends_with(r#"{"result":"PONG"}]"#), "{}", partly.body);
    assert_eq!(client.ask(&mut world, "GET /ping", "").status, 200, "small responses are served");
    for client in &greedy {
        client.sim.reset();
    }
    world.advance(SECOND_NS);
    run(&mut world);
    assert_eq!(client.ask(&mut world, "GET /kv/a", "").body.len(), VALUE_BYTES);
}

#[test]
fn cql_statements_take_values_and_return_rows() {
    let mut world = world();
    let column = |name: &str, of: &str| {
        format!(r#"{{"keyspace":"k","table":"t","name":"{name}","type":"{of}"}}"#)
    };
    let nothing = r#"{"columns":[],"rows":[],"paging_state":null}"#;
    let create = "CREATE TABLE k.t (a int, b text, c map<text, double>, d blob, v vector<float, 2>, \
                  PRIMARY KEY (a, b))";
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let statement =
        |text: &str| format!(r#"{{"statement":{}}}"#, serde_json::to_string(text).unwrap());
    let make = statement(&format!("CREATE KEYSPACE k WITH replication = {replication}"));
    let insert = r#"{"statement":"INSERT INTO k.t (a, b, c, d, v) VALUES (?, ?, ?, ?, ?)","values":[1,"x\"y",{"one":1.5},"0xff",[0.5,2]]}"#;
    let named = r#"{"statement":"INSERT INTO t (a, b) VALUES (:a, :b)","keyspace":"k","values":{"b":"z","a":"1"}}"#;
    let columns = [
        column("b", "text"),
        column("c", "map<text, double>"),
        column("d", "blob"),
        column("v", "vector<float, 2>"),
    ]
    .join(",");
    let rows = format!(
        r#"{{"columns":[{columns}],"rows":[["x\"y",{{"one": 1.5}},"0xff",[0.5, 2.0]],["z",null,null,null]],"paging_state":null}}"#
    );
    check(
        &mut world,
        &[
            ("POST /cql", &make, 200, nothing),
            ("POST /cql", &statement(create), 200, nothing),
            ("POST /cql", insert, 200, nothing),
            ("POST /cql", named, 200, nothing),
            ("POST /cql", &statement("SELECT b, c, d, v FROM k.t WHERE a = 1"), 200, &rows),
            ("POST /cql", "{}", 400, r#"{"error":"no statement","code":10}"#),
            (
                "POST /cql",
                r#"{"statment":"x"}"#,
                400,
                r#"{"error":"unknown member statment","code":10}"#,
            ),
            ("GET /cql", "", 405, r#"{"error":"ERR method not allowed"}"#),
        ],
    );
    let mut client = Client::connect(&mut world);
    for (text, values, status, code) in [
        ("SELEC 1", "[]", 400, 0x2000),
        ("SELECT * FROM k.none", "[]", 400, 0x2200),
        (
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "[]",
            409,
            0x2400,
        ),
        ("SELECT * FROM k.t WHERE a = ?", "[]", 400, 0x2200),
        ("SELECT * FROM k.t WHERE a = ?", r#"["one"]"#, 400, 0x2200),
        ("SELECT * FROM k.t WHERE a = :a", r#"{"x":1}"#, 400, 0x2200),
    ] {
        let text = serde_json::to_string(text).unwrap();
        let body = format!(r#"{{"statement":{text},"values":{values}}}"#);
        let answer = client.ask(&mut world, "POST /cql", &body);
        assert_eq!(answer.status, status, "{text}: {}", answer.body);
        assert!(answer.body.ends_with(&format!(",\"code\":{code}}}")), "{}", answer.body);
    }
    // One page after another.
    let (mut state, mut seen) = ("null".to_owned(), Vec::new());
    for _ in 0..3 {
        let body =
            format!(r#"{{"statement":"SELECT b FROM k.t","page_size":1,"paging_state":{state}}}"#);
        let answer = client.ask(&mut world, "POST /cql", &body);
        let page: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row[0].to_string()));
        state = page["paging_state"].to_string();
        if state == "null" {
            break;
        }
    }
    assert_eq!((seen, state.as_str()), (vec![r#""x\"y""#.to_owned(), r#""z""#.to_owned()], "null"));
    client.sim.send(request("POST /cql", insert).as_bytes());
    run_reactors(&mut world);
    assert_eq!(client.answers(), [], "the response waits for the log");
    run(&mut world);
    assert_eq!(client.answers().len(), 1);
}

#[test]
fn a_statement_is_traced_on_request() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    let mut trace = |text: &str, trace: bool| {
        let text = serde_json::to_string(text).unwrap();
        let body = format!(r#"{{"statement":{text},"trace":{trace}}}"#);
        let answer = client.ask(&mut world, "POST /cql", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let events = answer.get("trace").map(|events| events.as_array().unwrap().clone());
        let texts = events.unwrap_or_default().into_iter().map(|event| {
            (event["at_us"].as_u64().unwrap(), event["text"].as_str().unwrap().to_owned())
        });
        texts.collect::<Vec<_>>()
    };
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    trace(&format!("CREATE KEYSPACE k WITH replication = {replication}"), false);
    trace("CREATE TABLE k.t (a int PRIMARY KEY, b int)", false);
    for first in (0..5_000).step_by(100) {
        let insert = |a: i32| format!("INSERT INTO k.t (a, b) VALUES ({a}, 1);");
        let inserts: String = (first..first + 100).map(insert).collect();
        assert_eq!(trace(&format!("BEGIN BATCH {inserts} APPLY BATCH"), false), []);
    }
    let has = |events: &[(u64, String)], text: &str| {
        assert!(events.is_sorted_by_key(|(at_us, _)| *at_us), "{events:?}");
        assert!(events.iter().any(|(_, event)| event.contains(text)), "{text}: {events:?}");
    };
    let written = trace("INSERT INTO k.t (a, b) VALUES (1, 2)", true);
    has(&written, "Statement run, rows: 0");
    has(&written, "Answer waits for position ");
    let read = trace("SELECT b FROM k.t WHERE a = 1", true);
    has(&read, "Statement run, rows: 1");
    has(&trace("SELECT count(*) FROM k.t", true), "rows read; other requests are served");
}

#[test]
fn the_console_has_pages_and_numbers() {
    let mut world = world_with(&[("requirepass", "secret"), ("slowlog-log-slower-than", "0")]);
    let mut client = Client::connect(&mut world);
    // The console asks for the password itself; its page has no data.
    assert_eq!(client.ask(&mut world, "GET /", "").status, 200);
    assert_eq!(client.ask(&mut world, "GET /console/app.js", "").status, 200);
    for (head, challenge) in
        [("GET /api/v1/user", "Bearer"), ("POST /pipeline", "Bearer"), ("GET /metrics", "Basic")]
    {
        let refused = client.ask(&mut world, head, "[]");
        assert_eq!(refused.status, 401, "{head}");
        let line = refused.line("WWW-Authenticate").unwrap();
        assert!(line.starts_with(challenge), "{head}: {line}");
    }
    let mut ask = |path: &str| {
        client.ask(&mut world, &format!("GET {path}|Authorization: Basic ZGVmYXVsdDpzZWNyZXQ="), "")
    };
    let page = ask("/");
    assert!(page.body.contains("/console/app.js"), "{}", page.body);
    assert!(
        page.line("Content-Security-Policy")
            .is_some_and(|line| line.starts_with("default-src 'none'"))
    );
    let script = ask("/console/app.js");
    assert_eq!(script.line("Content-Type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(ask("/console/none.js").status, 404);
    ask("/set/key/value");
    let mut api = |name: &str| -> serde_json::Value {
        let answer = ask(&format!("/api/v1/{name}"));
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    assert_eq!(api("overview")["keys"], 1);
    assert_eq!(api("reactors")[0]["name"], "r00");
    assert_eq!(api("memory")[0]["path"], "server");
    assert_eq!(api("requests")["slow"][0]["arguments"][0], "set");
    assert_eq!(api("connections")["rows"][0]["protocol"], "http");
    assert!(api("log")["syncs"].as_u64().unwrap() >= 1);
    let names: Vec<_> = api("statements")["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].clone())
        .collect();
    assert!(names.contains(&"set".into()) && names.contains(&"http|console".into()), "{names:?}");
    let options = api("configuration");
    let password =
        options.as_array().unwrap().iter().find(|row| row["name"] == "requirepass").unwrap();
    assert_eq!(password["value"], "(redacted)");
    assert!(!options.to_string().contains("secret"));
    assert!(!api("threads").as_array().unwrap().is_empty());
    assert!(api("logs")["lines"].is_array());
    assert_eq!(ask("/api/v1/none").status, 404);
}

#[test]
fn the_history_has_a_point_each_second() {
    let mut world = world();
    for second in 0..20 {
        world.ask(format!("SET k {second}\r\n").as_bytes());
        world.advance(SECOND_NS);
        run(&mut world);
    }
    let mut client = Client::connect(&mut world);
    let mut ask = |world: &mut World, query: &str| {
        let answer = client.ask(world, &format!("GET /api/v1/history{query}"), "");
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()
    };
    let page = ask(&mut world, "");
    let column = |page: &serde_json::Value, name: &str| {
        let columns = page["columns"].as_array().unwrap();
        let at = columns.iter().position(|known| known == name)?;
        let rows = page["rows"].as_array().unwrap();
        Some(rows.iter().map(|row| row[at].as_f64()).collect::<Vec<_>>())
    };
    let count = page["at_ms"].as_array().unwrap().len();
    assert!((10..=20).contains(&count), "{page}");
    assert_eq!(page["step_ms"], 1000);
    let rates = column(&page, "resp_per_s").unwrap();
    assert_eq!(rates.len(), count);
    assert!(rates.iter().flatten().any(|rate| (0.5..1.5).contains(rate)), "{rates:?}");
    let latency = column(&page, "resp_execute_p99_ns").unwrap();
    assert!(latency.iter().flatten().count() > 5, "{latency:?}");
    assert_eq!(column(&page, "cql_execute_p99_ns"), None, "nothing was measured");
    assert!(column(&page, "r00_load").is_some() && column(&page, "used_bytes").is_some());
    let last = page["at_ms"][count - 1].as_u64().unwrap();
    assert_eq!(ask(&mut world, &format!("?from_ms={}", last + 1))["rows"], serde_json::json!([]));
    let one = ask(&mut world, &format!("?from_ms={last}&until_ms={last}"));
    assert_eq!(one["at_ms"], serde_json::json!([last]));
    let all = ask(&mut world, &format!("?from_ms=0&until_ms={}", u64::MAX));
    assert_eq!(all["at_ms"].as_array().unwrap().len(), count);
    assert_eq!(ask(&mut world, &format!("?from_ms={}", u64::MAX))["at_ms"], serde_json::json!([]));
    for query in ["?from_ms=-1", "?from_ms=x", "?until_ms=99999999999999999999", "?from_ms="] {
        let answer = client.ask(&mut world, &format!("GET /api/v1/history{query}"), "");
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.contains("must be a number of milliseconds"), "{}", answer.body);
    }
}

#[test]
fn a_client_can_be_closed() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    let mut other = Client::connect(&mut world);
    assert_eq!(other.ask(&mut world, "GET /ping", "").status, 200);
    let rows = client.ask(&mut world, "GET /client/list", "").body;
    assert!(rows.contains("cmd=http|command-path"), "{rows}");
    let id = other.sim.id().0;
    let killed = client.ask(&mut world, &format!("POST /client/kill/id/{id}"), "");
    assert_eq!((killed.status, killed.body.as_str()), (200, r#"{"result":1}"#));
    run(&mut world);
    assert!(other.sim.is_closed());
    for body in [r#"["CLIENT"]"#, r#"["CLIENT","ID"]"#, r#"["CLIENT","TRACKING","ON"]"#] {
        let refused = client.ask(&mut world, "POST /", body);
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
    }
}

#[test]
fn changes_are_streamed_when_they_are_durable() {
    let mut world = world();
    let mut writer = Client::connect(&mut world);
    writer.ask(&mut world, "GET /set/before/1", "");
    let from = world.shared().log.durable().0;
    let first = Client::connect(&mut world);
    let late = Client::connect(&mut world);
    let mut batch = binlog::Batch::new();
    let mut feed = |world: &mut World| {
        world.state().feeds.serve(world.shared(), &mut batch);
        run_reactors(world);
    };
    first.sim.send(request("GET /changes", "").as_bytes());
    late.sim.send(request("GET /changes?from=0", "").as_bytes());
    run(&mut world);
    feed(&mut world);
    let text = |client: &Client| String::from_utf8(client.sim.received()).unwrap();
    let head = text(&first);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/event-stream\r\n"), "{head}");
    assert!(
        head.contains("\r\nConnection: close\r\n") && !head.contains("Content-Length"),
        "{head}"
    );
    assert!(head.ends_with(&format!("\r\n\r\n: from {from}\nretry: 1000\n\n")), "{head}");
    assert!(text(&late).contains(r#""key":"before","value":"1""#));
    writer
        .sim
        .send(request("POST /multi-exec", r#"[["SET","a","x"],["DEL","before"]]"#).as_bytes());
    run_reactors(&mut world);
    feed(&mut world);
    assert_eq!(text(&first), "", "changes that a crash could undo are not sent");
    run(&mut world);
    assert_eq!(writer.answers().len(), 1);
    feed(&mut world);
    let sent = text(&first);
    assert_eq!(sent, text(&late), "all followers receive the same events");
    assert_eq!(sent.matches("event: change\n").count(), 1, "{sent}");
    assert!(sent.contains(r#"[{"change":"set","database":0,"expires_ms":null,"key":"a","value":"x"},{"change":"delete","database":0,"key":"before"}]"#), "{sent}");
    let id: u64 = sent.split("id: ").nth(1).unwrap().split('\n').next().unwrap().parse().unwrap();
    let again = Client::connect(&mut world);
    again.sim.send(request(&format!("GET /changes|Last-Event-ID: {id}"), "").as_bytes());
    run(&mut world);
    feed(&mut world);
    assert!(text(&again).ends_with("retry: 1000\n\n"), "no event is sent twice");
    again.sim.close();
    // A browser requests the same path again, with the last event id that it received.
    let again = Client::connect(&mut world);
    again.sim.send(request(&format!("GET /changes?from=0|Last-Event-ID: {id}"), "").as_bytes());
    run(&mut world);
    feed(&mut world);
    let sent = text(&again);
    assert!(sent.ends_with(&format!(": from {id}\nretry: 1000\n\n")), "{sent}");
    again.sim.close();
    // A follower that does not read is closed, and the other one is not affected.
    first.sim.set_window(0);
    for number in 0..3 {
        writer.ask(&mut world, &format!("GET /set/n/{number}"), "");
        feed(&mut world);
    }
    assert_eq!(text(&late).matches("event: change\n").count(), 3);
    for _ in 0..40 {
        world.advance(SECOND_NS);
        run(&mut world);
    }
    assert!(
        first.sim.is_closed() && !late.sim.is_closed(),
        "a follower that does not read is closed"
    );
    assert!(text(&late).ends_with(":\n\n"), "the other one receives a keepalive");
    late.sim.close();
    run(&mut world);
    assert!(world.state().feeds.has_room());
    let mut client = Client::connect(&mut world);
    for (target, status) in
        [("?from=soon", 400), ("?from=99999999", 400), ("?from=0|Last-Event-ID: soon", 400)]
    {
        assert_eq!(client.ask(&mut world, &format!("GET /changes{target}"), "").status, status);
    }
}

#[test]
fn metrics_have_one_head_for_each_family() {
    let mut world = world_with(&[("cql", "127.0.0.1:0")]);
    // The CQL listener is between RESP and HTTP.
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
        "myriad_log_full 0",
        "myriad_snapshot_failed 0",
        "myriad_is_replica 0",
        "myriad_replicas 0",
        "myriad_errors_total{kind=\"HTTP_CLIENT\"} 1",
        "myriad_stage_seconds_count{stage=\"wait_for_log\"} 1",
    ] {
        assert!(page.body.lines().any(|found| found == line), "{line}\n{}", page.body);
    }
}

#[test]
fn with_full_memory_writes_are_refused_and_reads_served() {
    let mut world = world();
    let mut client = Client::connect(&mut world);
    assert_eq!(client.ask(&mut world, "PUT /kv/a", "one").status, 201);
    let set = client.ask(&mut world, "GET /config/set/maxmemory/1", "");
    assert_eq!(set.body, r#"{"result":"OK"}"#);
    let read = client.ask(&mut world, "GET /kv/a", "");
    assert_eq!((read.status, read.body.as_str()), (200, "one"));
    assert_eq!(client.ask(&mut world, "GET /kv/none", "").status, 404);
    let refused = client.ask(&mut world, "PUT /kv/b", "two");
    assert!(refused.status >= 400 && refused.body.contains("OOM "), "{refused:?}");
    assert_eq!(client.ask(&mut world, "DELETE /kv/a", "").status, 204);
}

#[test]
fn followers_are_notified_of_a_log_failure() {
    let mut world = world();
    let writer = Client::connect(&mut world);
    let follower = Client::connect(&mut world);
    follower.sim.send(request("GET /changes", "").as_bytes());
    run(&mut world);
    let mut batch = binlog::Batch::new();
    let mut received = |world: &mut World| {
        world.state().feeds.serve(world.shared(), &mut batch);
        run_reactors(world);
        String::from_utf8(follower.sim.received()).unwrap()
    };
    assert!(received(&mut world).ends_with("retry: 1000\n\n"));
    assert_eq!(received(&mut world), "", "nothing has happened");
    world.disk.set_faults(binlog::Faults { sync_error: 1.0, ..binlog::Faults::default() });
    writer.sim.send(request("GET /set/a/1", "").as_bytes());
    run(&mut world);
    run(&mut world);
    assert!(world.log_failed());
    let end = received(&mut world);
    assert!(end.starts_with("event: end\n") && end.contains("the log has failed"), "{end}");
    assert!(follower.sim.is_ended());
}

/// Creates a table of one partition that takes several turns to scan.
fn create_long_table(world: &mut World) {
    let mut client = Client::connect(world);
    let mut ask = |text: &str| {
        let body = format!(r#"{{"statement":{}}}"#, serde_json::to_string(text).unwrap());
        let answer = client.ask(world, "POST /cql", &body);
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
    };
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    ask(&format!("CREATE KEYSPACE k WITH replication = {replication}"));
    ask("CREATE TABLE k.t (p int, c int, PRIMARY KEY (p, c))");
    for first in (0..LONG_ROWS).step_by(100) {
        let inserts = (first..first + 100)
            .map(|c| format!("INSERT INTO k.t (p, c) VALUES (1, {c}); "))
            .collect::<Vec<_>>();
        ask(&format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts.concat()));
    }
}

const LONG_ROWS: usize = 2000;
const COUNT: &str = r#"{"statement":"SELECT count(*) FROM k.t"}"#;

#[test]
fn a_long_statement_yields_to_other_clients_of_its_reactor() {
    const { assert!(LONG_ROWS > 4 * ROWS_PER_TURN) };
    let mut world = world();
    create_long_table(&mut world);
    let mut client = Client::connect(&mut world);
    let mut other = Client::connect(&mut world);
    // The next request on the connection waits for the statement.
    let close = request("GET /ping|Connection: close", "");
    let both = format!("{}{close}", request("POST /cql", COUNT));
    client.sim.send(both.as_bytes());
    world.step(0);
    other.sim.send(request("GET /ping", "").as_bytes());
    while other.answers().is_empty() {
        assert!(world.step(0));
    }
    assert_eq!(client.answers(), [], "the statement is still running");
    run(&mut world);
    let answers = client.answers();
    assert_eq!(answers.len(), 2);
    assert!(answers[0].body.contains(&format!(r#""rows":[[{LONG_ROWS}]]"#)), "{answers:?}");
    assert_eq!(answers[1].body, r#"{"result":"PONG"}"#);
    assert!(client.sim.is_ended());
}

#[test]
fn a_long_statement_is_answered_after_its_client_half_closed() {
    let mut world = world();
    create_long_table(&mut world);
    for line in ["", "|Connection: close"] {
        let mut client = Client::connect(&mut world);
        client.sim.send(request(&format!("POST /cql{line}"), COUNT).as_bytes());
        world.step(0);
        client.sim.half_close();
        run(&mut world);
        assert_eq!(client.answers().iter().map(|one| one.status).collect::<Vec<_>>(), [200]);
        assert!(client.sim.is_ended());
    }
    // The statement of a closed client is dropped.
    let client = Client::connect(&mut world);
    client.sim.send(request("POST /cql", COUNT).as_bytes());
    world.step(0);
    client.sim.reset();
    run(&mut world);
    assert!(client.sim.is_closed());
}

#[test]
fn a_server_that_shuts_down_is_not_ready() {
    let mut world = world();
    create_long_table(&mut world);
    let mut client = Client::connect(&mut world);
    // The first request is in flight when the shutdown begins, so the second is still answered.
    let both = format!("{}{}", request("POST /cql", COUNT), request("GET /readyz", ""));
    client.sim.send(both.as_bytes());
    world.step(0);
    world.sim().drain();
    run(&mut world);
    let answers = client.answers();
    let statuses: Vec<_> = answers.iter().map(|one| one.status).collect();
    assert_eq!(statuses, [200, 503]);
    assert_eq!(answers[1].body, "{\"status\":\"draining\"}\n");
    assert!(client.sim.is_ended());
}

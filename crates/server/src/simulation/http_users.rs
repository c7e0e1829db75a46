//! Users over HTTP.

use super::http_client::{Client, SECOND_NS, request, run, world};
use super::world::World;

/// `user:password`, as a token.
const TOKEN: &str = "Authorization: Bearer app:pw";

/// A server with the user `app`.
fn world_of(rules: &str) -> World {
    let mut world = world();
    set_user(&mut world, &format!("on >pw {rules}"));
    world
}

#[track_caller]
fn set_user(world: &mut World, rules: &str) {
    let request = format!("ACL SETUSER app {rules}\r\n");
    assert_eq!(world.ask(request.as_bytes()), b"+OK\r\n");
    run(world);
}

#[test]
fn a_request_runs_as_its_user() {
    let mut world = world_of("~a %R~r +@read +set +info +acl|whoami +subscribe &n");
    let mut client = Client::connect(&mut world);
    let no_key = r#"{"error":"NOPERM No permissions to access a key"}"#;
    let no_page = r#"{"error":"NOPERM the user may not see this page"}"#;
    let no_kill =
        r#"{"error":"NOPERM User app has no permissions to run the 'client|kill' command"}"#;
    let no_route = r#"{"error":"NOPERM the user may not use this route"}"#;
    for (head, body, status, answer) in [
        ("GET /acl/whoami", "", 200, r#"{"result":"app"}"#),
        ("GET /set/a/1", "", 200, r#"{"result":"OK"}"#),
        ("GET /get/a", "", 200, r#"{"result":"1"}"#),
        ("GET /get/b", "", 400, no_key),
        ("GET /set/r/1", "", 400, no_key),
        ("POST /", r#"["GET","b"]"#, 400, no_key),
        ("PUT /kv/a", "2", 204, ""),
        ("PUT /kv/r", "2", 403, no_key),
        ("GET /kv/b", "", 403, no_key),
        (
            "POST /pipeline",
            r#"[["GET","a"],["GET","b"],["ACL","WHOAMI"]]"#,
            200,
            r#"[{"result":"2"},{"error":"NOPERM No permissions to access a key"},{"result":"app"}]"#,
        ),
        ("POST /multi-exec", r#"[["SET","a","3"],["GET","b"]]"#, 400, no_key),
        ("GET /get/a", "", 200, r#"{"result":"2"}"#),
        ("GET /api/v1/logs", "", 403, no_page),
        ("GET /api/v1/configuration", "", 403, no_page),
        ("POST /", r#"["CLIENT","KILL","ID","1"]"#, 400, no_kill),
        ("GET /changes", "", 403, no_route),
        ("POST /cql", r#"{"query":"SELECT * FROM system.local"}"#, 403, no_route),
        ("GET /subscribe/n/x", "", 403, r#"{"error":"NOPERM No permissions to access a channel"}"#),
        (
            "GET /psubscribe/n",
            "",
            403,
            r#"{"error":"NOPERM User app has no permissions to run the 'psubscribe' command"}"#,
        ),
    ] {
        let found = client.ask(&mut world, &format!("{head}|{TOKEN}"), body);
        assert_eq!((found.status, found.body.as_str()), (status, answer), "{head}");
        // The same connection without a token is the default user's again.
        let anyone = client.ask(&mut world, "GET /acl/whoami", "");
        assert_eq!(anyone.body, r#"{"result":"default"}"#, "{head}");
    }
    assert_eq!(client.ask(&mut world, &format!("GET /metrics|{TOKEN}"), "").status, 200);
    set_user(&mut world, "-info");
    assert_eq!(client.ask(&mut world, &format!("GET /metrics|{TOKEN}"), "").status, 403);
    let wrong = "GET /get/a|Authorization: Basic YXBwOng=";
    client.sim.send(request(wrong, "").as_bytes());
    run(&mut world);
    world.advance(SECOND_NS);
    run(&mut world);
    assert_eq!(client.answers()[0].status, 401);
    let log = String::from_utf8(world.ask(b"ACL LOG 1\r\n")).unwrap();
    assert!(log.contains("auth\r\n") && log.contains("http\r\n"), "{log}");
}

#[test]
fn the_api_shows_what_a_user_may_see() {
    let mut world = world_of("~r* +@read +info");
    let mut client = Client::connect(&mut world);
    let mut ask = |world: &mut World, page: &str| {
        let answer = client.ask(world, &format!("GET /api/v1/{page}|{TOKEN}"), "");
        assert_eq!(answer.status, 200, "{page}: {}", answer.body);
        serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()
    };
    let user = ask(&mut world, "user");
    assert_eq!((&user["name"], &user["may_cql"]), (&"app".into(), &false.into()));
    assert_eq!(user["is_unrestricted"], false);
    let may = |user: &serde_json::Value, name: &str| user["may_run"][name].as_bool().unwrap();
    assert!(may(&user, "scan") && may(&user, "info"));
    assert!(!may(&user, "set") && !may(&user, "config|set") && !may(&user, "client|kill"));
    let overview = ask(&mut world, "overview");
    assert_eq!(overview["hot_keys"], serde_json::json!([]));
    assert_eq!(overview["busiest_clients"], serde_json::json!([]));
    assert!(ask(&mut world, "history")["rows"].is_array());
    set_user(&mut world, "+config|set +@all ~* &*");
    let user = ask(&mut world, "user");
    assert_eq!((&user["is_unrestricted"], &user["may_cql"]), (&true.into(), &true.into()));
    assert!(may(&user, "config|set"));
    set_user(&mut world, "-info");
    for page in ["overview", "history", "memory"] {
        let answer = client.ask(&mut world, &format!("GET /api/v1/{page}|{TOKEN}"), "");
        assert_eq!(answer.status, 403, "{page}");
    }
}

#[test]
fn a_stream_ends_with_the_permission_for_it() {
    let mut world = world_of("+@all ~* &*");
    let (feed, subscriber) = (Client::connect(&mut world), Client::connect(&mut world));
    feed.sim.send(request(&format!("GET /changes|{TOKEN}"), "").as_bytes());
    subscriber.sim.send(request(&format!("GET /subscribe/n|{TOKEN}"), "").as_bytes());
    run(&mut world);
    set_user(&mut world, "-flushall");
    assert!(feed.sim.is_closed() && !subscriber.sim.is_closed());
    set_user(&mut world, "resetchannels");
    assert!(subscriber.sim.is_closed());
}

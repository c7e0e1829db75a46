//! CQL roles: logins, permissions, and their recovery after a crash.

use binlog::Faults;
use cql::plan::prepared::statement_id;
use cql::roles::is_table_of_roles;
use reactor::SimClient;
use wire::cql::{BatchKind, BatchStatement, Consistency, Parameters, Version};

use super::cql_client::{Client, execute, hex, run_reactors, world};
use super::http_client::{HTTP, request};
use super::world::World;
use crate::cql::pool;

const PASSWORDS: [(&str, &str); 2] = [("cql-authenticator", "password"), ("requirepass", "secret")];

/// Runs reactors, the password pool and the log until the client has a response.
fn answers(world: &mut World, client: &mut Client) -> Vec<String> {
    let mut replies = client.ask(world);
    loop {
        pool::run_waiting(world.shared(), &world.state().cql);
        replies.extend(client.ask(world));
        if !world.write_log() {
            replies.extend(client.ask(world));
            return replies;
        }
    }
}

/// A client that has received AUTHENTICATE.
fn stranger(world: &mut World, version: Version) -> Client {
    let mut client = Client::connect(world, version);
    client.startup(None);
    let class = "org.apache.cassandra.auth.PasswordAuthenticator";
    assert_eq!(client.ask(world), [format!("0 AUTHENTICATE {class}")]);
    client
}

fn try_login(world: &mut World, user: &str, password: &str) -> (Client, Vec<String>) {
    let mut client = stranger(world, Version::V5);
    let token = format!("\0{user}\0{password}");
    client.send(|to, out| to.auth_response(1, token.as_bytes(), out));
    let mut replies = answers(world, &mut client);
    if replies.is_empty() {
        world.advance(1_000_000_000);
        replies = answers(world, &mut client);
    }
    (client, replies)
}

pub(super) fn login(world: &mut World, user: &str, password: &str) -> Client {
    let (client, replies) = try_login(world, user, password);
    assert_eq!(replies, ["1 AUTH_SUCCESS"], "{user}");
    client
}

pub(super) fn run(world: &mut World, client: &mut Client, text: &str) -> String {
    client.query(7, text);
    let replies = answers(world, client);
    let [reply] = &replies[..] else { panic!("{text}: {replies:?}") };
    reply.strip_prefix("7 ").unwrap().to_owned()
}

fn run_all(world: &mut World, client: &mut Client, statements: &[&str]) {
    for text in statements {
        let reply = run(world, client, text);
        assert!(reply == "VOID" || reply.starts_with("CHANGE"), "{text}: {reply}");
    }
}

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

#[test]
fn only_clients_with_a_role_log_in() {
    let mut world = world(&PASSWORDS);
    for (user, password) in [("cassandra", "cassandra"), ("nobody", "secret")] {
        let (_, replies) = try_login(&mut world, user, password);
        let refusal = format!("Provided username {user} and/or password are incorrect");
        assert_eq!(replies, [format!("1 ERROR 0100 {refusal}")]);
    }
    let mut root = login(&mut world, "cassandra", "secret");
    run_all(
        &mut world,
        &mut root,
        &["CREATE ROLE shut WITH PASSWORD = 'p'", "CREATE USER ann WITH PASSWORD 'q'"],
    );
    let (_, replies) = try_login(&mut world, "shut", "p");
    assert_eq!(replies, ["1 ERROR 0100 shut is not permitted to log in"]);
    login(&mut world, "ann", "q");
    // A recently verified password is accepted without another check.
    let mut again = stranger(&mut world, Version::V4);
    again.send(|to, out| to.auth_response(1, b"\0ann\0q", out));
    assert_eq!(again.ask(&mut world), ["1 AUTH_SUCCESS"]);
    run_all(&mut world, &mut root, &["ALTER USER ann WITH PASSWORD 'r'"]);
    let (_, replies) = try_login(&mut world, "ann", "q");
    assert!(replies[0].contains("are incorrect"), "{replies:?}");
    login(&mut world, "ann", "r");
}

#[test]
fn guesses_are_serialized_and_limited_to_three() {
    let mut world = world(&PASSWORDS);
    let mut client = stranger(&mut world, Version::V4);
    for stream in 0..5 {
        client.send(|to, out| to.auth_response(stream, b"\0cassandra\0guess", out));
    }
    let mut replies = Vec::new();
    for _ in 0..5 {
        run_reactors(&mut world);
        assert!(world.state().cql.password_pool.waiting() <= 1);
        pool::run_waiting(world.shared(), &world.state().cql);
        assert!(client.ask(&mut world).is_empty(), "a refusal is delayed");
        world.advance(1_000_000_000);
        replies.extend(client.ask(&mut world));
    }
    assert_eq!(replies.len(), 3, "{replies:?}");
    assert!(client.sim.is_ended());
}

#[test]
fn a_list_of_roles_waits_for_the_last_change() {
    let mut world = world(&PASSWORDS);
    let mut root = login(&mut world, "cassandra", "secret");
    let mut reader = login(&mut world, "cassandra", "secret");
    root.query(1, "CREATE ROLE ann");
    assert!(root.ask(&mut world).is_empty());
    reader.query(2, "LIST ROLES");
    assert!(reader.ask(&mut world).is_empty(), "the role is not durable yet");
    world.write_log();
    assert_eq!(root.ask(&mut world), ["1 VOID"]);
    let replies = reader.ask(&mut world);
    assert!(replies.len() == 1 && replies[0].starts_with("2 ROWS "), "{replies:?}");
}

const SELECT: &str = "SELECT v FROM k.t WHERE p = 1";

#[test]
fn permissions_take_effect_from_the_next_statement_on() {
    let mut world = world(&PASSWORDS);
    let mut root = login(&mut world, "cassandra", "secret");
    run_all(
        &mut world,
        &mut root,
        &[
            KEYSPACE,
            "CREATE TABLE k.t (p int PRIMARY KEY, v int)",
            "INSERT INTO k.t (p, v) VALUES (1, 2)",
            "CREATE ROLE reader",
            "CREATE ROLE ann WITH PASSWORD = 'q' AND LOGIN = true",
            "GRANT reader TO ann",
        ],
    );
    let mut ann = login(&mut world, "ann", "q");
    ann.send(|to, out| to.prepare(2, SELECT, None, out));
    let id = statement_id(SELECT, None);
    assert_eq!(answers(&mut world, &mut ann), [format!("2 PREPARED {}", hex(&id))]);
    let refused = "3 ERROR 2100 User ann has no SELECT permission on <table k.t> or any of its \
                   parents";
    let shown = "3 ROWS 00000002";
    for (change, expected) in [
        ("GRANT SELECT ON k.t TO reader", shown),
        ("REVOKE SELECT ON k.t FROM reader", refused),
        ("GRANT SELECT ON KEYSPACE k TO ann", shown),
        ("ALTER ROLE reader WITH LOGIN = false", shown),
        ("REVOKE ALL ON KEYSPACE k FROM ann", refused),
        ("GRANT SELECT ON ALL KEYSPACES TO reader", shown),
        ("REVOKE reader FROM ann", refused),
        ("ALTER ROLE ann WITH SUPERUSER = true", shown),
        ("DROP ROLE ann", refused),
    ] {
        let warned = run(&mut world, &mut root, change);
        assert!(warned.starts_with("VOID"), "{change}: {warned}");
        execute(&ann, 3, &id, &[]);
        // The client reports outdated columns, so the response may also contain the names.
        let replies = answers(&mut world, &mut ann);
        assert!(replies[0].starts_with(expected), "{change}: {replies:?}");
    }
}

#[test]
fn batches_need_what_their_statements_need() {
    let mut world = world(&PASSWORDS);
    let mut root = login(&mut world, "cassandra", "secret");
    run_all(
        &mut world,
        &mut root,
        &[
            KEYSPACE,
            "CREATE TABLE k.t (p int PRIMARY KEY, v int)",
            "CREATE TABLE k.u (p int PRIMARY KEY, v int)",
            "CREATE ROLE ann WITH PASSWORD = 'q' AND LOGIN = true",
            "GRANT MODIFY ON k.t TO ann",
        ],
    );
    let mut ann = login(&mut world, "ann", "q");
    let (mine, other) =
        ("INSERT INTO k.t (p, v) VALUES (1, 2)", "INSERT INTO k.u (p, v) VALUES (1, 2)");
    for (texts, expected) in [(vec![mine], "1 VOID"), (vec![mine, other], "1 ERROR 2100 User ann")]
    {
        let statements: Vec<_> =
            texts.iter().map(|text| (BatchStatement::Text(text), &[][..])).collect();
        let with = Parameters::new(Consistency::One);
        ann.send(|to, out| to.batch(1, BatchKind::Logged, &statements, &with, out));
        let replies = answers(&mut world, &mut ann);
        assert!(replies[0].starts_with(expected), "{texts:?}: {replies:?}");
    }
    let text = format!("BEGIN BATCH {mine}; {other}; APPLY BATCH");
    assert!(run(&mut world, &mut ann, &text).contains("no MODIFY permission on <table k.u>"));
    assert_eq!(run(&mut world, &mut root, "SELECT * FROM k.u"), "ROWS ");
}

/// Names are resolved when a statement runs.
#[test]
fn indexes_need_what_their_table_needs() {
    let mut world = world(&PASSWORDS);
    let mut root = login(&mut world, "cassandra", "secret");
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    run_all(
        &mut world,
        &mut root,
        &[
            KEYSPACE,
            &format!("CREATE KEYSPACE m WITH replication = {replication}"),
            "CREATE TABLE k.t (p int PRIMARY KEY, v int)",
            "CREATE TABLE m.t (p int PRIMARY KEY, v int)",
            "CREATE ROLE ann WITH PASSWORD = 'q' AND LOGIN = true",
            "GRANT ALTER ON KEYSPACE m TO ann",
        ],
    );
    let mut ann = login(&mut world, "ann", "q");
    let refused =
        "ERROR 2100 User ann has no ALTER permission on <table k.t> or any of its parents";
    assert_eq!(run(&mut world, &mut ann, "USE m"), "KEYSPACE m");
    // The index name determines the keyspace of the table.
    assert_eq!(run(&mut world, &mut ann, "CREATE INDEX k.by_v ON t (v)"), refused);
    assert_eq!(run(&mut world, &mut ann, "CREATE INDEX by_v ON k.t (v)"), refused);
    // The index did not exist when the statement was prepared.
    let drop_index = "DROP INDEX k.by_v";
    ann.send(|to, out| to.prepare(2, drop_index, None, out));
    let id = statement_id(drop_index, Some("m"));
    assert_eq!(answers(&mut world, &mut ann), [format!("2 PREPARED {}", hex(&id))]);
    run_all(&mut world, &mut root, &["CREATE INDEX by_v ON k.t (v)"]);
    execute(&ann, 3, &id, &[]);
    assert_eq!(answers(&mut world, &mut ann), [format!("3 {refused}")]);
    run_all(&mut world, &mut root, &[drop_index]);
    run_all(&mut world, &mut ann, &["CREATE INDEX by_v ON t (v)", "DROP INDEX by_v"]);
}

/// HTTP has no roles, so its change stream omits data that roles protect.
#[test]
fn changes_of_tables_are_not_streamed_with_roles() {
    for (options, is_told) in [(&[][..], true), (&PASSWORDS[..], false)] {
        let options = [options, &[("http", "127.0.0.1:0")][..]].concat();
        let mut world = world(&options);
        let mut client = if is_told {
            Client::start(&mut world, Version::V5, None)
        } else {
            login(&mut world, "cassandra", "secret")
        };
        let insert = "INSERT INTO k.t (p) VALUES (1)";
        run_all(
            &mut world,
            &mut client,
            &[KEYSPACE, "CREATE TABLE k.t (p int PRIMARY KEY)", insert, "TRUNCATE k.t"],
        );
        let resp = world.sim().connect();
        resp.send(b"AUTH secret\r\nSET shown 1\r\n");
        // The HTTP listener follows those of RESP and CQL.
        let follower = world.sim().connect_to(HTTP + 1);
        let head = "GET /changes?from=0|Authorization: Bearer secret";
        follower.send(request(head, "").as_bytes());
        answers(&mut world, &mut client);
        let events = told_to(&mut world, &follower, r#""key":"shown""#);
        for change in ["partition", "truncate"] {
            let is_there = events.contains(&format!(r#""change":"{change}""#));
            assert_eq!(is_there, is_told, "{change}: {events}");
        }
    }
}

/// The events that a follower of the log receives, up to the given text.
fn told_to(world: &mut World, follower: &SimClient, end: &str) -> String {
    let mut batch = binlog::Batch::new();
    let mut events = String::new();
    while !events.contains(end) {
        world.state().feeds.serve(world.shared(), &mut batch);
        run_reactors(world);
        let part = String::from_utf8(follower.received()).unwrap();
        assert_ne!(part, "", "{events}");
        events.push_str(&part);
    }
    events
}

#[test]
fn changes_of_roles_are_not_streamed_after_roles_are_disabled() {
    let mut world = world(&[PASSWORDS[0], PASSWORDS[1], ("http", "127.0.0.1:0")]);
    let mut root = login(&mut world, "cassandra", "secret");
    let table = "CREATE TABLE k.t (p int PRIMARY KEY)";
    let role = "CREATE ROLE ann WITH PASSWORD = 'q' AND LOGIN = true";
    run_all(&mut world, &mut root, &[role, KEYSPACE, table, "INSERT INTO k.t (p) VALUES (1)"]);
    world.plan.options.retain(|(name, _)| !["cql-authenticator", "requirepass"].contains(name));
    world.crash(false, Faults::default());
    let resp = world.sim().connect();
    resp.send(b"SET shown 1\r\n");
    let follower = world.sim().connect_to(HTTP + 1);
    follower.send(request("GET /changes?from=0", "").as_bytes());
    world.settle();
    let events = told_to(&mut world, &follower, r#""key":"shown""#);
    assert!(!events.contains("$2a$"), "a password hash was sent: {events}");
    let tables: Vec<_> = events.split("\"table\":\"").skip(1).map(|rest| &rest[..36]).collect();
    assert!(tables.len() > 1, "the schema and table rows are sent: {events}");
    for table in tables {
        let id = uuid::Uuid::parse_str(table).unwrap();
        assert!(!is_table_of_roles(id.as_u128()), "{events}");
    }
}

#[test]
fn roles_survive_a_crash() {
    let mut world = world(&PASSWORDS);
    let mut root = login(&mut world, "cassandra", "secret");
    run_all(
        &mut world,
        &mut root,
        &[
            "ALTER ROLE cassandra WITH PASSWORD = 'changed'",
            "CREATE ROLE maker WITH PASSWORD = 'q' AND LOGIN = true",
            "CREATE ROLE gone WITH PASSWORD = 'q' AND LOGIN = true",
            "GRANT gone TO maker",
            "GRANT CREATE ON ALL KEYSPACES TO maker",
            "GRANT CREATE ON ALL ROLES TO maker",
            "DROP ROLE gone",
        ],
    );
    let mut maker = login(&mut world, "maker", "q");
    run_all(
        &mut world,
        &mut maker,
        &[KEYSPACE, "CREATE TABLE k.t (p int PRIMARY KEY)", "CREATE TABLE k.d (p int PRIMARY KEY)"],
    );
    run_all(&mut world, &mut maker, &["INSERT INTO k.t (p) VALUES (1)", "DROP TABLE k.d"]);
    let before = world.shared().roles.load_full();
    // With roles it is not needed, and the oracle sends requests without a password.
    world.plan.options.retain(|(name, _)| *name != "requirepass");
    world.crash(true, Faults::default());
    assert_eq!(world.shared().roles.load_full(), before);
    let (_, replies) = try_login(&mut world, "cassandra", "secret");
    assert!(replies[0].starts_with("1 ERROR 0100"), "the first password is valid again");
    let (_, replies) = try_login(&mut world, "gone", "q");
    assert!(replies[0].starts_with("1 ERROR 0100"), "a dropped role was restored");
    let mut root = login(&mut world, "cassandra", "changed");
    let mut maker = login(&mut world, "maker", "q");
    assert_eq!(run(&mut world, &mut maker, "SELECT * FROM k.t"), "ROWS 00000001");
    let permissions = |text: &str| format!("ROWS {}", hex(text.as_bytes()));
    let select = "SELECT resource FROM system_auth.role_permissions WHERE role = 'maker' AND \
                  resource = 'data/k/t'";
    assert_eq!(run(&mut world, &mut root, select), permissions("data/k/t"));
    let select = "SELECT role FROM system_auth.resource_role_permissons_index WHERE resource = \
                  'data/k/d'";
    assert_eq!(run(&mut world, &mut root, select), "ROWS ");
    let refused = run(&mut world, &mut root, "DELETE FROM system_auth.roles WHERE role = 'maker'");
    assert_eq!(refused, "ERROR 2100 Cannot MODIFY <table system_auth.roles>");
    run_all(&mut world, &mut root, &["CREATE ROLE gone", "DROP KEYSPACE k"]);
    let role = world.shared().roles.load_full();
    let grants = &role.role("maker").unwrap().grants;
    // One on all keyspaces, one on all roles.
    assert_eq!(grants.len(), 2, "{grants:?}");
}

#[test]
fn without_an_authorizer_a_role_may_do_all() {
    let options = [PASSWORDS[0], PASSWORDS[1], ("cql-authorizer", "allow-all")];
    let mut world = world(&options);
    let mut root = login(&mut world, "cassandra", "secret");
    run_all(&mut world, &mut root, &["CREATE ROLE ann WITH PASSWORD = 'q' AND LOGIN = true"]);
    let mut ann = login(&mut world, "ann", "q");
    run_all(&mut world, &mut ann, &[KEYSPACE, "CREATE TABLE k.t (p int PRIMARY KEY)"]);
    let refused = run(&mut world, &mut ann, "GRANT SELECT ON k.t TO ann");
    assert_eq!(refused, "ERROR 2200 GRANT operation is not supported by AllowAllAuthorizer");
}

#[test]
fn without_authentication_clients_have_no_role() {
    for options in [&[][..], &[("requirepass", "p"), ("cql-authenticator", "allow-all")]] {
        let mut world = world(options);
        let mut client = Client::start(&mut world, Version::V5, None);
        run_all(&mut world, &mut client, &[KEYSPACE]);
        let refused = run(&mut world, &mut client, "CREATE ROLE r");
        let text = "You have to be logged in and not anonymous to perform this request";
        assert_eq!(refused, format!("ERROR 2100 {text}"));
    }
}

//! No password of a request appears where requests are shown: SLOWLOG, COMMANDLOG, MONITOR, the
//! console (and so OTLP, which has the entries of the slow log), and pages of options.

use std::collections::BTreeSet;

use cql::schema::builtin;

use super::http_client::request;
use super::pubsub_client::{ask, received, run, world_with};
use super::world::World;
use crate::commands::registry::REGISTRY;
use crate::config::{find, is_secret, rows};

/// Listeners.
const CQL: usize = 1;
const HTTP: usize = 2;

/// Part of every password.
const LEAK: &str = "LEAK";

/// Requests with passwords, apart from CONFIG SET of each secret option.
const REQUESTS: &[&str] = &[
    "auth LEAK",
    "auth default LEAK",
    "hello 3 auth user LEAK",
    "hello 3 setname n auth user LEAK",
    "acl setuser u on >LEAK",
    "acl setuser u on LEAK",
    "acl dryrun default auth LEAK",
    "acl dryrun default config set masterauth LEAK",
    "acl dryrun default acl dryrun default auth LEAK",
    "command getkeys migrate h 1 k 0 1 auth LEAK",
    "command getkeysandflags migrate h 1 k 0 1 auth2 LEAKuser LEAK",
    "config set masterauht LEAK",
    "config set hz 10 masterauth a LEAK LEAK",
    "migrate 127.0.0.1 1 k 0 1 auth LEAK",
    "migrate 127.0.0.1 1 k 0 1 copy replace auth2 LEAKuser LEAK",
    "migrate 127.0.0.1 1  0 1 replace auth LEAK keys a b",
    "migrate 127.0.0.1 1 k 0 1 atuh LEAK",
];

/// All requests, in lowercase and in uppercase.
fn requests() -> Vec<Vec<String>> {
    let options = rows().filter(|option| is_secret(option)).flat_map(options::OptionSpec::names);
    let options = options.map(|name| format!("config set hz 10 {name} LEAK"));
    let all: Vec<String> = REQUESTS.iter().map(|text| (*text).to_owned()).chain(options).collect();
    let upper = all.iter().map(|text| text.to_uppercase());
    let all = all.iter().cloned().chain(upper);
    all.map(|text| text.split(' ').map(str::to_owned).collect()).collect()
}

fn full_name(words: &[String]) -> String {
    let words: wire::resp::OwnedArgs = words.iter().collect();
    let id = REGISTRY.find_request(words.as_args()).unwrap();
    REGISTRY.entry(id).full_name.clone()
}

/// What the syntax of a command calls a password or a user's rules, or a request, is tested.
#[test]
fn every_command_with_passwords_is_tested() {
    let tested: BTreeSet<String> = requests().iter().map(|words| full_name(words)).collect();
    for (_, entry) in REGISTRY.entries() {
        let syntax = entry.command.syntax.to_lowercase();
        let has_password = ["passw", "auth", "rule", "secret", "parameter value"]
            .iter()
            .any(|word| syntax.contains(word));
        let is_tested = tested.contains(&entry.full_name);
        assert!(is_tested || !(has_password || entry.command.has_inner_request()), "{syntax}");
    }
    assert!(
        find("masterauth").is_some_and(is_secret) && find("requirepass").is_some_and(is_secret)
    );
}

fn page(world: &mut World, path: &str) -> String {
    let client = world.sim().connect_to(HTTP);
    client.send(request(&format!("GET {path}"), "").as_bytes());
    run(world);
    let reply = received(&client);
    assert!(reply.starts_with("HTTP/1.1 200"), "{path}: {reply}");
    client.close();
    reply
}

#[track_caller]
fn check_pages(world: &mut World, context: &str) {
    let reader = world.sim().connect();
    for words in [
        &["SLOWLOG", "GET", "-1"][..],
        &["COMMANDLOG", "GET", "-1", "slow"],
        &["COMMANDLOG", "GET", "-1", "large-request"],
        &["COMMANDLOG", "GET", "-1", "large-reply"],
        &["ACL", "LOG"],
        &["CLIENT", "LIST"],
    ] {
        let reply = ask(world, &reader, words);
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        assert!(!reply.contains(LEAK), "{context}, {words:?}: {reply}");
    }
    for path in ["/api/v1/requests", "/api/v1/configuration", "/api/v1/connections", "/api/v1/logs"]
    {
        let reply = page(world, path);
        assert!(!reply.contains(LEAK), "{context}, {path}: {reply}");
    }
    reader.close();
}

const OPTIONS: [(&str, &str); 5] = [
    ("cql", "127.0.0.1:0"),
    ("http", "127.0.0.1:0"),
    ("slowlog-log-slower-than", "0"),
    ("slowlog-max-len", "100000"),
    ("audit-log", "yes"),
];

fn quiet_world() -> World {
    let world = world_with(1, &OPTIONS);
    world.shared().catalog.store(builtin());
    world
}

#[test]
fn no_password_of_a_request_is_shown() {
    let mut world = quiet_world();
    for words in requests() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let context = words.join(" ");
        let monitor = world.sim().connect();
        assert_eq!(ask(&mut world, &monitor, &["MONITOR"]), "+OK\r\n");
        let client = world.sim().connect();
        ask(&mut world, &client, &words);
        ask(&mut world, &client, &["MULTI"]);
        ask(&mut world, &client, &words);
        ask(&mut world, &client, &["EXEC"]);
        let post = world.sim().connect_to(HTTP);
        let body = serde_json::to_string(&words).unwrap();
        post.send(request("POST /", &body).as_bytes());
        post.send(request(&format!("GET /{}", words.join("/")), "").as_bytes());
        run(&mut world);
        world.advance(super::http_client::SECOND_NS);
        run(&mut world);
        let seen = received(&monitor);
        assert!(seen.to_lowercase().contains("exec"), "{context}: {seen}");
        assert!(!seen.contains(LEAK), "{context}: {seen}");
        // The request may have set a password, without which the pages cannot be read.
        let reset = world.sim().connect();
        run(&mut world);
        for password in ["LEAK", "none"] {
            ask(&mut world, &reset, &["AUTH", "default", password]);
            world.advance(super::http_client::SECOND_NS);
            run(&mut world);
        }
        ask(&mut world, &reset, &["ACL", "SETUSER", "default", "nopass"]);
        received(&reset);
        reset.close();
        check_pages(&mut world, &context);
        for client in [monitor, client, post] {
            client.close();
        }
    }
    let (redacted, requests) = (redacted_words(&mut world), requests().len());
    assert!(redacted >= REDACTED_MIN * requests, "{redacted} words of {requests} requests");
}

/// Words of each request that are logged as redacted, at least: it is sent alone, in EXEC and over
/// HTTP, and has a password or a word that could be one.
const REDACTED_MIN: usize = 7;

/// The redacted words of the slow log, to see that the requests were logged at all.
fn redacted_words(world: &mut World) -> usize {
    let client = world.sim().connect();
    let reply = ask(world, &client, &["SLOWLOG", "GET", "-1"]);
    assert!(reply.starts_with('*'), "{reply}");
    reply.matches("(redacted)").count()
}

#[test]
fn no_secret_option_is_shown_over_cql() {
    let mut world = quiet_world();
    let client = world.sim().connect();
    assert_eq!(ask(&mut world, &client, &["CONFIG", "SET", "masterauth", LEAK]), "+OK\r\n");
    let mut cql = super::cql_client::Client::connect_to(&mut world, CQL, wire::cql::Version::V4);
    cql.startup(None);
    assert_eq!(cql.ask(&mut world), ["0 READY"]);
    cql.query(1, "SELECT name, value FROM system_views.settings");
    let reply = cql.ask(&mut world).concat();
    assert!(reply.contains(&super::cql_client::hex(b"masterauth")), "{reply}");
    assert!(!reply.contains(&super::cql_client::hex(LEAK.as_bytes())), "{reply}");
}

//! Every way to set or withdraw a password, a user's rights, or both, over every protocol: no
//! client acts that the user `default` does not admit, and protected addresses stay protected.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cql::schema::builtin;
use reactor::SimClient;
use wire::cql::Version;

use super::cql_client;
use super::http_client::{SECOND_NS, request};
use super::pubsub_client::{ask, received, run, send};
use super::world::{Plan, World};

/// Listeners, in the order of the endpoints.
const RESP: usize = 0;
const CQL: usize = 1;
const HTTP: usize = 2;
const ADMIN: usize = 3;
const SOCKET: usize = 4;

/// An address or a path of HTTP that gives access to the key `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Resp(usize),
    Rest,
    HttpCql,
    Cql(Version),
}

const DOORS: [Door; 8] = [
    Door::Resp(RESP),
    Door::Resp(ADMIN),
    Door::Resp(SOCKET),
    Door::Rest,
    Door::HttpCql,
    Door::Cql(Version::V3),
    Door::Cql(Version::V4),
    Door::Cql(Version::V5),
];

const CREDENTIALS: [Option<&str>; 4] = [None, Some("old"), Some("new"), Some("other")];

/// The user `default`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
struct Model {
    is_on: bool,
    takes_any: bool,
    passwords: Vec<&'static str>,
    commands: bool,
    keys: bool,
    channels: bool,
}

impl Model {
    fn with(passwords: &[&'static str]) -> Model {
        Model {
            is_on: true,
            takes_any: passwords.is_empty(),
            passwords: passwords.to_vec(),
            commands: true,
            keys: true,
            channels: true,
        }
    }

    fn set_passwords(&mut self, passwords: &[&'static str]) {
        self.takes_any = false;
        self.passwords = passwords.to_vec();
    }

    fn is_open(&self) -> bool {
        self.is_on && self.takes_any
    }

    fn may_act(&self, door: Door) -> bool {
        match door {
            Door::Resp(_) | Door::Rest => self.commands && self.keys,
            Door::HttpCql | Door::Cql(_) => self.commands && self.keys && self.channels,
        }
    }

    fn admits(&self, door: Door, credential: Option<&str>) -> bool {
        let is_right = match credential {
            None => self.takes_any,
            Some(password) => self.takes_any || self.passwords.contains(&password),
        };
        self.is_on && is_right && self.may_act(door)
    }
}

/// A change of the user `default`, by a command or by a file of users.
struct Way {
    name: &'static str,
    words: &'static [&'static str],
    file: &'static str,
    changes: fn(&mut Model),
}

const fn command(words: &'static [&'static str], changes: fn(&mut Model)) -> Way {
    Way { name: words[words.len() - 1], words, file: "", changes }
}

const fn user_file(name: &'static str, changes: fn(&mut Model)) -> Way {
    Way { name, words: &["ACL", "LOAD"], file: name, changes }
}

const WAYS: &[Way] = &[
    command(&["CONFIG", "SET", "requirepass", "old"], |m| m.set_passwords(&["old"])),
    command(&["CONFIG", "SET", "requirepass", "new"], |m| m.set_passwords(&["new"])),
    command(&["CONFIG", "SET", "requirepass", ""], |m| {
        m.set_passwords(&[]);
        m.takes_any = true;
    }),
    command(&["ACL", "SETUSER", "default", "resetpass", ">new"], |m| m.set_passwords(&["new"])),
    command(&["ACL", "SETUSER", "default", "resetpass", ">old", ">new"], |m| {
        m.set_passwords(&["old", "new"]);
    }),
    command(&["ACL", "SETUSER", "default", "resetpass"], |m| m.set_passwords(&[])),
    command(&["ACL", "SETUSER", "default", "nopass"], |m| {
        m.set_passwords(&[]);
        m.takes_any = true;
    }),
    command(&["ACL", "SETUSER", "default", "off"], |m| m.is_on = false),
    command(&["ACL", "SETUSER", "default", "on"], |m| m.is_on = true),
    command(&["ACL", "SETUSER", "default", "reset"], |m| {
        m.set_passwords(&[]);
        (m.is_on, m.commands, m.keys, m.channels) = (false, false, false, false);
    }),
    command(&["ACL", "SETUSER", "default", "-@all"], |m| m.commands = false),
    command(&["ACL", "SETUSER", "default", "resetkeys"], |m| m.keys = false),
    command(&["ACL", "SETUSER", "default", "resetchannels"], |m| m.channels = false),
    command(&["ACL", "SETUSER", "default", "+@all", "~*", "&*"], |m| {
        (m.commands, m.keys, m.channels) = (true, true, true);
    }),
    user_file("user default on >new ~* &* +@all", |m| *m = Model::with(&["new"])),
    user_file("user default off >new ~* &* +@all", |m| {
        *m = Model { is_on: false, ..Model::with(&["new"]) };
    }),
    user_file("user default on nopass ~* &* +@all", |m| *m = Model::with(&[])),
    user_file("user default on nopass ~* &* +ping", |m| {
        *m = Model { commands: false, ..Model::with(&[]) };
    }),
];

/// The way by a command.
fn command_way(words: &[&str]) -> &'static Way {
    WAYS.iter().find(|way| way.words == words).expect("one of the ways")
}

/// A server with the key `k`, and with a user `root` that is never the user `default`.
struct Scene {
    world: World,
    users: PathBuf,
    model: Model,
    /// Other machines reach its addresses.
    is_exposed: bool,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.users);
    }
}

const ROOT: &str = "user root on >root ~* &* +@all\n";

impl Scene {
    fn new(label: &str, host: &str, password: &'static str) -> Scene {
        let users = format!("myriad-ways-in-{label}-{}.acl", std::process::id());
        let users = std::env::temp_dir().join(users);
        fs::write(&users, ROOT).unwrap();
        let own = |text: &str| text.to_owned();
        let any = format!("{host}:0");
        let options = vec![
            ("resp", any.clone()),
            ("cql", any.clone()),
            ("http", any.clone()),
            ("admin", any),
            ("unixsocket", own("/tmp/never-bound")),
            ("aclfile", own(users.to_str().unwrap())),
            ("requirepass", own(password)),
        ];
        let mut world = World::new(1, Plan { reactors: 2, options, ..Plan::default() });
        world.shared().catalog.store(builtin());
        let first = world.sim().connect();
        if !password.is_empty() {
            assert_eq!(ask(&mut world, &first, &["AUTH", password]), "+OK\r\n");
        }
        assert_eq!(ask(&mut world, &first, &["ACL", "LOAD"]), "+OK\r\n");
        assert_eq!(ask(&mut world, &first, &["SET", "k", "v"]), "+OK\r\n");
        let passwords = [password];
        let passwords = if password.is_empty() { &[][..] } else { &passwords };
        Scene { world, users, model: Model::with(passwords), is_exposed: host != "127.0.0.1" }
    }

    fn administer(&mut self, words: &[&str]) -> String {
        let admin = self.world.sim().connect();
        ask(&mut self.world, &admin, &["AUTH", "root", "root"]);
        let reply = ask(&mut self.world, &admin, words);
        admin.close();
        run(&mut self.world);
        reply
    }

    /// Changes the user, or checks that the change is refused because it would open an address.
    fn go(&mut self, way: &Way) {
        let mut next = self.model.clone();
        (way.changes)(&mut next);
        fs::write(&self.users, format!("{ROOT}{}\n", way.file)).unwrap();
        let reply = self.administer(way.words);
        if self.is_exposed && next.is_open() {
            let refused = reply.starts_with("-ERR") && reply.contains("can be reached from other");
            assert!(refused, "{}: {reply}", way.name);
        } else {
            assert_eq!(reply, "+OK\r\n", "{} after {:?}", way.name, self.model);
            self.model = next;
        }
    }

    fn check(&mut self, context: &str) {
        let pairs = DOORS.into_iter().flat_map(|door| CREDENTIALS.map(|one| (door, one)));
        let pairs: Vec<_> = pairs.collect();
        let mut visits: Vec<Visit> = pairs
            .iter()
            .map(|(door, credential)| Visit::begin(&mut self.world, *door, *credential))
            .collect();
        settle(&mut self.world);
        let acts = act(&mut self.world, &mut visits);
        for ((door, credential), acts) in pairs.into_iter().zip(acts) {
            let expected = self.model.admits(door, credential);
            assert_eq!(acts, expected, "{context}: {door:?} with {credential:?}");
        }
        visits.iter().for_each(Visit::close);
        run(&mut self.world);
    }
}

/// One connection, which has shown its credential.
enum Visit {
    Resp(SimClient),
    Http(SimClient, String),
    Cql(cql_client::Client),
}

impl Visit {
    fn begin(world: &mut World, door: Door, credential: Option<&str>) -> Visit {
        match door {
            Door::Resp(listener) => {
                let client = world.sim().connect_to(listener);
                if let Some(password) = credential {
                    send(&client, &["AUTH", "default", password]);
                }
                Visit::Resp(client)
            }
            Door::Rest | Door::HttpCql => {
                let login = credential.map_or_else(String::new, |password| {
                    let pair = STANDARD.encode(format!("default:{password}"));
                    format!("|Authorization: Basic {pair}")
                });
                let text = if door == Door::Rest {
                    request(&format!("GET /get/k{login}"), "")
                } else {
                    let body =
                        r#"{"statement":"SELECT value FROM redis.strings WHERE key = 0x6b"}"#;
                    request(&format!("POST /cql{login}"), body)
                };
                Visit::Http(world.sim().connect_to(HTTP), text)
            }
            Door::Cql(version) => {
                let mut client = cql_client::Client::connect_to(world, CQL, version);
                client.startup(None);
                let reply = client.ask(world).concat();
                if let Some(password) = credential
                    && reply.contains("AUTHENTICATE")
                {
                    let token = format!("\0anyone\0{password}");
                    client.send(|to, out| to.auth_response(1, token.as_bytes(), out));
                }
                Visit::Cql(client)
            }
        }
    }

    fn close(&self) {
        match self {
            Visit::Resp(client) | Visit::Http(client, _) => client.close(),
            Visit::Cql(client) => client.sim.close(),
        }
    }

    /// Asks for the key. The replies so far are dropped.
    fn ask(&mut self) {
        match self {
            Visit::Resp(client) => {
                received(client);
                send(client, &["GET", "k"]);
            }
            Visit::Http(client, text) => client.send(text.as_bytes()),
            Visit::Cql(client) => {
                client.replies();
                client.query(2, "SELECT value FROM redis.strings WHERE key = 0x6b");
            }
        }
    }

    /// Whether the key has arrived.
    fn has_read(&mut self) -> bool {
        match self {
            Visit::Resp(client) => received(client) == "$1\r\nv\r\n",
            Visit::Http(client, _) => {
                let reply = received(client);
                let shows_value = [r#""result":"v""#, "0x76"];
                reply.starts_with("HTTP/1.1 200") && shows_value.iter().any(|it| reply.contains(it))
            }
            Visit::Cql(client) => client.replies().iter().any(|reply| reply == "2 ROWS 76"),
        }
    }
}

/// Whether each connection reads the key.
fn act(world: &mut World, visits: &mut [Visit]) -> Vec<bool> {
    visits.iter_mut().for_each(Visit::ask);
    settle(world);
    visits.iter_mut().map(Visit::has_read).collect()
}

/// Runs the server, and lets delayed refusals pass.
fn settle(world: &mut World) {
    run(world);
    world.advance(SECOND_NS);
    run(world);
}

/// All ways from all states that one way makes, on a server that starts without a password and on
/// one that starts with one.
#[test]
fn no_pair_of_way_and_protocol_admits_more_than_the_user() {
    for (label, password) in [("open", ""), ("locked", "old")] {
        let mut scene = Scene::new(label, "127.0.0.1", password);
        scene.check(label);
        for first in WAYS {
            scene.go(first);
            for second in WAYS {
                scene.go(second);
                scene.check(&format!("{label}, {}, {}", first.name, second.name));
                scene.go(first);
            }
        }
    }
}

/// A connection keeps its login when the password changes or the user is switched off, and never
/// more rights than the user has.
#[test]
fn a_running_connection_has_the_rights_of_its_user() {
    let mut scene = Scene::new("running", "127.0.0.1", "old");
    for way in WAYS {
        scene.go(command_way(&["ACL", "SETUSER", "default", "+@all", "~*", "&*"]));
        scene.go(command_way(&["ACL", "SETUSER", "default", "on"]));
        scene.go(command_way(&["CONFIG", "SET", "requirepass", "old"]));
        assert_eq!(scene.model, Model::with(&["old"]));
        let mut visits =
            Vec::from(DOORS.map(|door| Visit::begin(&mut scene.world, door, Some("old"))));
        settle(&mut scene.world);
        assert!(act(&mut scene.world, &mut visits).into_iter().all(|acts| acts));
        scene.go(way);
        let acts = act(&mut scene.world, &mut visits);
        for ((door, visit), acts) in DOORS.into_iter().zip(visits).zip(acts) {
            let expected = match door {
                // HTTP shows its password with each request.
                Door::Rest | Door::HttpCql => scene.model.admits(door, Some("old")),
                Door::Resp(_) | Door::Cql(_) => scene.model.may_act(door),
            };
            assert_eq!(acts, expected, "{door:?} after {}", way.name);
            if let Visit::Cql(client) = visit {
                assert_eq!(client.sim.is_ended(), !expected, "{door:?} after {}", way.name);
            }
        }
    }
}

/// 1. The user loses a right, but the reactor of an idle connection has not taken a turn.
/// 2. The next request of the connection arrives in the same turn: it is refused.
#[test]
fn a_request_right_after_a_revocation_is_refused() {
    let mut scene = Scene::new("after", "127.0.0.1", "");
    for _ in 0..4 {
        let mut client = cql_client::Client::connect_to(&mut scene.world, CQL, Version::V4);
        client.startup(None);
        assert_eq!(client.ask(&mut scene.world), ["0 READY"]);
        let admin = scene.world.sim().connect();
        run(&mut scene.world);
        send(&admin, &["ACL", "SETUSER", "default", "-get"]);
        let reactor = scene.world.sim().place_of(admin.id()).unwrap();
        client.query(2, "SELECT value FROM redis.strings WHERE key = 0x6b");
        while scene.world.step(reactor) {}
        run(&mut scene.world);
        let replies = client.replies().concat();
        assert!(replies.contains("ERROR 2100") && !replies.contains("ROWS"), "{replies}");
        assert!(client.sim.is_ended());
        scene.go(command_way(&["ACL", "SETUSER", "default", "+@all", "~*", "&*"]));
    }
}

#[test]
fn exposed_addresses_keep_a_password_whatever_changes() {
    let mut scene = Scene::new("exposed", "0.0.0.0", "old");
    for first in WAYS {
        scene.go(first);
        for second in WAYS {
            scene.go(second);
            let is_open = scene.model.is_open();
            assert!(!is_open, "{}, {}", first.name, second.name);
            scene.go(first);
        }
        scene.check(first.name);
    }
    assert_eq!(scene.administer(&["CONFIG", "SET", "protected-mode", "no"]), "+OK\r\n");
    scene.is_exposed = false;
    scene.go(command_way(&["ACL", "SETUSER", "default", "on"]));
    scene.go(command_way(&["ACL", "SETUSER", "default", "nopass"]));
    let reply = scene.administer(&["CONFIG", "SET", "protected-mode", "yes"]);
    let refused =
        "-ERR CONFIG SET failed (possibly related to argument 'protected-mode') - 0.0.0.0";
    assert!(reply.starts_with(refused), "{reply}");
    // The password of ACL protects as that of the option does.
    scene.go(command_way(&["ACL", "SETUSER", "default", "resetpass", ">new"]));
    assert_eq!(scene.administer(&["CONFIG", "SET", "protected-mode", "yes"]), "+OK\r\n");
    // The default address of a server is not concerned.
    let mut local = Scene::new("local", "127.0.0.1", "old");
    local.go(command_way(&["CONFIG", "SET", "requirepass", ""]));
    assert!(local.model.is_open());
}

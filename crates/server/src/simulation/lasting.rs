//! What lasts ends when its user loses the right to begin it, on every reactor.

use std::collections::BTreeSet;

use reactor::SimClient;

use super::http_client::request;
use super::pubsub_client::{ask, connect, publish, received, run, send, world_with};
use super::world::World;
use crate::commands::command::Flags;
use crate::commands::registry::REGISTRY;

/// Listener of HTTP.
const HTTP: usize = 1;

/// Something that lasts: the requests that begin it, and rules that end it.
struct Lasting {
    name: &'static str,
    requests: &'static [&'static [&'static str]],
    /// Over HTTP instead.
    path: &'static str,
    ends: &'static [&'static [&'static str]],
    /// Changes that leave it.
    stays: &'static [&'static [&'static str]],
}

const RESP: Lasting = Lasting { name: "", requests: &[], path: "", ends: &[], stays: &[] };

/// Changes that concern no right.
const OTHER: &[&str] = &[">another", "-lpush"];

const ALL: &[Lasting] = &[
    Lasting {
        name: "monitor",
        requests: &[&["MONITOR"]],
        ends: &[&["-@all"], &["-monitor"], &["-@dangerous"]],
        stays: &[OTHER, &["resetkeys"], &["resetchannels"]],
        ..RESP
    },
    Lasting {
        name: "subscribe",
        requests: &[&["SUBSCRIBE", "news"]],
        ends: &[&["-@all"], &["-subscribe"], &["resetchannels"]],
        stays: &[OTHER, &["resetkeys"], &["resetchannels", "&n*"]],
        ..RESP
    },
    Lasting {
        name: "psubscribe",
        requests: &[&["PSUBSCRIBE", "n*"]],
        ends: &[&["-@all"], &["-psubscribe"], &["resetchannels", "&news"]],
        stays: &[OTHER, &["resetkeys"], &["resetchannels", "&n*"]],
        ..RESP
    },
    Lasting {
        name: "ssubscribe",
        requests: &[&["SSUBSCRIBE", "news"]],
        ends: &[&["-@all"], &["-ssubscribe"], &["resetchannels"]],
        stays: &[OTHER, &["resetkeys"]],
        ..RESP
    },
    Lasting {
        name: "client|tracking",
        requests: &[&["HELLO", "3"], &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user:"]],
        ends: &[&["-@all"], &["-client|tracking"], &["resetkeys"], &["resetkeys", "~user:a*"]],
        stays: &[OTHER, &["resetchannels"], &["resetkeys", "~u*"]],
        ..RESP
    },
    Lasting {
        name: "client|tracking",
        requests: &[&["HELLO", "3"], &["CLIENT", "TRACKING", "ON"], &["GET", "news"]],
        ends: &[&["-@all"], &["-client"], &["resetkeys"], &["resetkeys", "%W~*"]],
        stays: &[OTHER, &["resetchannels"]],
        ..RESP
    },
    Lasting {
        name: "psync",
        requests: &[&["REPLCONF", "capa", "myriad-stream-1"], &["PSYNC", "?", "-1"]],
        ends: &[&["-@all"], &["-psync"], &["-@dangerous"]],
        stays: &[OTHER, &["-sync"], &["resetchannels"]],
        ..RESP
    },
    Lasting {
        name: "sync",
        requests: &[&["REPLCONF", "rdb-only", "1"], &["REPLCONF", "capa", "eof"], &["SYNC"]],
        ends: &[&["-@all"], &["-sync"]],
        stays: &[OTHER, &["-psync"]],
        ..RESP
    },
    Lasting {
        name: "GET /subscribe",
        path: "/subscribe/news",
        ends: &[&["-@all"], &["-subscribe"], &["resetchannels"]],
        stays: &[OTHER, &["resetkeys"]],
        ..RESP
    },
    Lasting {
        name: "GET /changes",
        path: "/changes",
        ends: &[&["-@all"], &["-get"], &["resetkeys"], &["resetchannels"]],
        stays: &[&[">another"]],
        ..RESP
    },
];

#[track_caller]
fn set_user(world: &mut World, admin: &SimClient, rules: &[&str]) {
    let words = [&["ACL", "SETUSER", "app"], rules].concat();
    assert_eq!(ask(world, admin, &words), "+OK\r\n");
}

fn begin(world: &mut World, lasting: &Lasting) -> SimClient {
    let client = if lasting.path.is_empty() {
        let client = world.sim().connect();
        assert_eq!(ask(world, &client, &["AUTH", "app", "pw"]), "+OK\r\n");
        for words in lasting.requests {
            let reply = ask(world, &client, words);
            assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        }
        client
    } else {
        let client = world.sim().connect_to(HTTP);
        let head = format!("GET {}|Authorization: Bearer app:pw", lasting.path);
        client.send(request(&head, "").as_bytes());
        run(world);
        let reply = received(&client);
        assert!(reply.starts_with("HTTP/1.1 200"), "{}: {reply}", lasting.name);
        client
    };
    run(world);
    client
}

/// Two connections of each kind, because connections take turns between the reactors.
#[test]
fn a_revoked_right_ends_what_it_had_begun() {
    for lasting in ALL {
        let ends = lasting.ends.iter().map(|rules| (rules, true));
        let stays = lasting.stays.iter().map(|rules| (rules, false));
        for (rules, must_end) in ends.chain(stays) {
            let mut world = world_with(2, &[("http", "127.0.0.1:0")]);
            let admin = connect(&mut world, 0);
            set_user(&mut world, &admin, &["on", ">pw", "+@all", "~*", "&*"]);
            let clients = [begin(&mut world, lasting), begin(&mut world, lasting)];
            assert!(clients.iter().all(|client| !client.is_closed()), "{}", lasting.name);
            set_user(&mut world, &admin, rules);
            for client in &clients {
                assert_eq!(client.is_closed(), must_end, "{} after {rules:?}", lasting.name);
                received_bytes(client);
            }
            if must_end {
                publish(&mut world, &admin, "news", "x");
                ask(&mut world, &admin, &["SET", "user:x", "1"]);
                ask(&mut world, &admin, &["SET", "news", "1"]);
                for client in &clients {
                    assert_eq!(received_bytes(client), 0, "{} after {rules:?}", lasting.name);
                }
            }
            let removed = ask(&mut world, &admin, &["ACL", "DELUSER", "app"]);
            assert_eq!(removed, ":1\r\n");
            assert!(clients.iter().all(SimClient::is_closed), "{}", lasting.name);
        }
    }
}

fn received_bytes(client: &SimClient) -> usize {
    client.received().len()
}

/// A command that HTTP does not serve needs a connection of its own: either it is in the table
/// above, or what it begins ends with its reply or is checked with each request.
#[test]
fn every_command_that_needs_a_connection_is_known() {
    const WITH_REPLY: &[&str] = &[
        "client",
        "debug",
        "discard",
        "exec",
        "migrate",
        "multi",
        "punsubscribe",
        "quit",
        "replconf",
        "reset",
        "save",
        "select",
        "shutdown",
        "sunsubscribe",
        "unsubscribe",
        "unwatch",
        "watch",
        "auth",
        "hello",
    ];
    let tested: BTreeSet<&str> = ALL.iter().map(|lasting| lasting.name).collect();
    for (_, entry) in REGISTRY.entries() {
        let name = entry.full_name.as_str();
        let parent = name.split('|').next().unwrap();
        let needs_connection = entry.command.flags.has(Flags::NO_HTTP);
        let is_known = tested.contains(name) || WITH_REPLY.contains(&parent);
        assert!(!needs_connection || is_known, "{name}");
    }
}

#[test]
fn broadcasts_need_a_user_who_may_read_the_keys_that_they_name() {
    let mut world = world_with(1, &[]);
    let admin = connect(&mut world, 0);
    let track =
        |prefix: &[&'static str]| [&["CLIENT", "TRACKING", "ON", "BCAST"][..], prefix].concat();
    for (rules, prefix, may) in [
        (&["~*"][..], &[][..], true),
        (&["~a:*"], &[], false),
        (&["~a:*"], &["PREFIX", "a:"], true),
        (&["~a:*"], &["PREFIX", "a:b"], true),
        (&["~a:*"], &["PREFIX", "a"], false),
        (&["%W~a:*"], &["PREFIX", "a:"], false),
        (&["~a:?*"], &["PREFIX", "a:"], false),
        (&["~a:"], &["PREFIX", "a:"], false),
        (&["~[ab]*"], &["PREFIX", "a"], false),
        (&["~x", "(+client ~a:*)"], &["PREFIX", "a:"], true),
    ] {
        set_user(
            &mut world,
            &admin,
            &[&["reset", "on", ">pw", "+client", "+hello"][..], rules].concat(),
        );
        let client = connect(&mut world, 0);
        send(&client, &["HELLO", "3", "AUTH", "app", "pw"]);
        run(&mut world);
        received(&client);
        let reply = ask(&mut world, &client, &track(prefix));
        assert_eq!(reply == "+OK\r\n", may, "{rules:?} {prefix:?}: {reply}");
        assert!(may || reply.starts_with("-NOPERM"), "{reply}");
    }
}

//! Users and their permissions, on several reactors.

use std::fs;
use std::path::PathBuf;

use super::pubsub_client::{ask, connect, message, publish, received, run, send, world_with};
use super::world::World;
use reactor::SimClient;

const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";

/// An administrator on reactor 0, and a user `app`, with these rules and any password.
fn administered(rules: &[&str]) -> (World, SimClient) {
    let mut world = world_with(2, &[]);
    let admin = connect(&mut world, 0);
    set_user(&mut world, &admin, &[&["on", "nopass"], rules].concat());
    (world, admin)
}

#[track_caller]
fn set_user(world: &mut World, admin: &SimClient, rules: &[&str]) {
    let words = [&["ACL", "SETUSER", "app"], rules].concat();
    assert_eq!(ask(world, admin, &words), "+OK\r\n");
}

/// A connection of the user on this reactor.
fn log_in(world: &mut World, reactor: usize) -> SimClient {
    let client = connect(world, reactor);
    assert_eq!(ask(world, &client, &["AUTH", "app", "x"]), "+OK\r\n");
    client
}

#[test]
fn a_change_applies_to_the_next_request_on_every_reactor() {
    let (mut world, admin) = administered(&["+@all", "~a"]);
    let clients = [log_in(&mut world, 0), log_in(&mut world, 1)];
    for client in &clients {
        assert_eq!(ask(&mut world, client, &["SET", "a", "1"]), "+OK\r\n");
        assert_eq!(ask(&mut world, client, &["SET", "b", "1"]), NO_KEY);
    }
    set_user(&mut world, &admin, &["resetkeys", "~b"]);
    for client in &clients {
        assert_eq!(ask(&mut world, client, &["SET", "a", "1"]), NO_KEY);
        assert_eq!(ask(&mut world, client, &["SET", "b", "1"]), "+OK\r\n");
    }
    set_user(&mut world, &admin, &["allkeys", "allchannels"]);
    for client in &clients {
        assert_eq!(ask(&mut world, client, &["SET", "c", "1"]), "+OK\r\n");
    }
    set_user(&mut world, &admin, &["-set"]);
    for client in &clients {
        let refused = "-NOPERM User app has no permissions to run the 'set' command\r\n";
        assert_eq!(ask(&mut world, client, &["SET", "c", "1"]), refused);
    }
}

#[test]
fn a_transaction_begun_before_a_revocation_runs_without_its_permission() {
    let (mut world, admin) = administered(&["+@all", "~*"]);
    let client = log_in(&mut world, 1);
    for words in [&["MULTI"][..], &["SET", "a", "1"], &["SET", "b", "2"], &["GET", "a"]] {
        ask(&mut world, &client, words);
    }
    set_user(&mut world, &admin, &["resetkeys", "%R~a", "~b"]);
    let reply = ask(&mut world, &client, &["EXEC"]);
    assert!(reply.starts_with("*3\r\n-NOPERM ACLs rules changed between"), "{reply}");
    assert!(reply.contains("no permission to touch the specified keys\r\n+OK\r\n$-1"), "{reply}");
    assert_eq!(ask(&mut world, &admin, &["MGET", "a", "b"]), "*2\r\n$-1\r\n$1\r\n2\r\n");
}

/// The user changes within a transaction: each command is checked for the user of its moment.
#[test]
fn a_login_inside_a_transaction_changes_its_user() {
    let (mut world, admin) = administered(&["+set", "~a"]);
    for words in [&["MULTI"][..], &["SET", "b", "1"], &["AUTH", "app", "x"], &["SET", "b", "2"]] {
        ask(&mut world, &admin, words);
    }
    ask(&mut world, &admin, &["SET", "a", "3"]);
    let reply = ask(&mut world, &admin, &["EXEC"]);
    assert!(reply.starts_with("*4\r\n+OK\r\n+OK\r\n-NOPERM ACLs rules changed"), "{reply}");
    assert!(reply.ends_with("keys\r\n+OK\r\n"), "{reply}");
}

#[test]
fn connections_of_a_deleted_user_are_closed_without_a_request() {
    let (mut world, admin) = administered(&["+@all", "~*", "&*"]);
    let (idle, subscribed) = (log_in(&mut world, 0), log_in(&mut world, 1));
    let other = connect(&mut world, 1);
    ask(&mut world, &subscribed, &["SUBSCRIBE", "news"]);
    assert_eq!(ask(&mut world, &admin, &["ACL", "DELUSER", "app"]), ":1\r\n");
    run(&mut world);
    assert!(idle.is_closed() && subscribed.is_closed() && !other.is_closed());
    assert_eq!(publish(&mut world, &admin, "news", "x"), 0);
}

/// 1. A user is deleted and created again before its reactor takes a turn.
/// 2. The connection of the deleted user sends a request: it is not the new user's.
#[test]
fn a_user_created_again_is_another_one() {
    let (mut world, admin) = administered(&["+@all", "~*"]);
    let (near, far) = (log_in(&mut world, 0), log_in(&mut world, 1));
    send(&admin, &["ACL", "DELUSER", "app"]);
    send(&admin, &["ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*"]);
    send(&near, &["SET", "a", "1"]);
    send(&far, &["SET", "a", "1"]);
    while world.step(0) {}
    run(&mut world);
    assert_eq!(received(&admin), ":1\r\n+OK\r\n");
    assert!(near.is_closed() && far.is_closed());
    let replies = [received(&near), received(&far)];
    assert!(replies.iter().all(|reply| !reply.starts_with("+OK")), "{replies:?}");
    assert_eq!(ask(&mut world, &admin, &["GET", "a"]), "$-1\r\n");
    let again = log_in(&mut world, 1);
    assert_eq!(ask(&mut world, &again, &["SET", "a", "1"]), "+OK\r\n");
}

#[test]
fn a_user_that_deletes_itself_gets_the_reply() {
    let (mut world, _admin) = administered(&["+@all", "~*"]);
    let client = log_in(&mut world, 1);
    send(&client, &["ACL", "DELUSER", "app"]);
    send(&client, &["SET", "a", "1"]);
    run(&mut world);
    assert_eq!(received(&client), ":1\r\n");
    assert_eq!(ask(&mut world, &client, &["PING"]), "");
}

#[test]
fn subscribers_without_their_channel_are_closed() {
    let (mut world, admin) = administered(&["+@all", "&*"]);
    let (first, second) = (log_in(&mut world, 0), log_in(&mut world, 1));
    let third = log_in(&mut world, 1);
    ask(&mut world, &first, &["SUBSCRIBE", "a"]);
    ask(&mut world, &second, &["SUBSCRIBE", "b"]);
    ask(&mut world, &third, &["PSUBSCRIBE", "a*"]);
    set_user(&mut world, &admin, &["resetchannels", "&a*"]);
    assert!(!first.is_closed() && second.is_closed() && !third.is_closed());
    assert_eq!(publish(&mut world, &admin, "a", "x"), 2);
    assert_eq!(received(&first), message("a", "x"));
    // A literal pattern is needed for a pattern: `a` alone is not enough.
    set_user(&mut world, &admin, &["resetchannels", "&a"]);
    assert!(!first.is_closed() && third.is_closed());
}

#[test]
fn a_request_that_waits_for_a_key_is_checked_again() {
    let (mut world, admin) = administered(&["+@all", "~*"]);
    let client = log_in(&mut world, 1);
    assert_eq!(ask(&mut world, &client, &["BLPOP", "list", "0"]), "");
    set_user(&mut world, &admin, &["resetkeys", "~other"]);
    assert_eq!(ask(&mut world, &admin, &["RPUSH", "list", "x"]), ":1\r\n");
    assert_eq!(received(&client), NO_KEY);
    assert_eq!(ask(&mut world, &admin, &["LLEN", "list"]), ":1\r\n");
}

#[test]
fn a_password_of_the_default_user_concerns_new_connections() {
    let mut world = world_with(2, &[]);
    let (admin, open) = (connect(&mut world, 0), connect(&mut world, 1));
    let rules = &["ACL", "SETUSER", "default", "resetpass", ">secret"];
    assert_eq!(ask(&mut world, &admin, rules), "+OK\r\n");
    assert_eq!(ask(&mut world, &open, &["PING"]), "+PONG\r\n");
    let new = connect(&mut world, 1);
    assert_eq!(ask(&mut world, &new, &["PING"]), "-NOAUTH Authentication required.\r\n");
    assert_eq!(ask(&mut world, &new, &["AUTH", "secret"]), "+OK\r\n");
    let waiting = connect(&mut world, 0);
    assert_eq!(ask(&mut world, &waiting, &["PING"]), "-NOAUTH Authentication required.\r\n");
    assert_eq!(ask(&mut world, &admin, &["CONFIG", "SET", "requirepass", "other"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &waiting, &["AUTH", "other"]), "+OK\r\n");
    let last = connect(&mut world, 1);
    assert_eq!(ask(&mut world, &last, &["PING"]), "-NOAUTH Authentication required.\r\n");
    assert_eq!(ask(&mut world, &admin, &["ACL", "SETUSER", "default", "nopass"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &last, &["PING"]), "+PONG\r\n");
}

#[test]
fn requirepass_has_two_passwords_only_with_a_separator() {
    let mut world = world_with(2, &[("requirepass", "old,new")]);
    let admin = connect(&mut world, 0);
    assert_eq!(ask(&mut world, &admin, &["AUTH", "old,new"]), "+OK\r\n");
    let set = |world: &mut World, name: &str, value: &str| {
        ask(world, &admin, &["CONFIG", "SET", name, value])
    };
    assert_eq!(set(&mut world, "requirepass-separator", ","), "+OK\r\n");
    for password in ["old", "new"] {
        let client = connect(&mut world, 1);
        assert_eq!(ask(&mut world, &client, &["AUTH", password]), "+OK\r\n", "{password}");
    }
    let client = connect(&mut world, 1);
    assert_eq!(ask(&mut world, &client, &["AUTH", "old,new"]), "", "its refusal is delayed");
    assert_eq!(set(&mut world, "requirepass", "new"), "+OK\r\n");
    let client = connect(&mut world, 1);
    assert_eq!(ask(&mut world, &client, &["AUTH", "new"]), "+OK\r\n");
    for refused in ["a,b,c", "a,", ",a", ","] {
        let reply = set(&mut world, "requirepass", refused);
        assert!(reply.starts_with("-ERR CONFIG SET failed"), "{refused}: {reply}");
    }
    let reply = set(&mut world, "requirepass-separator", ",,");
    assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
}

struct UserFile(PathBuf);

impl UserFile {
    fn new(name: &str, text: &str) -> UserFile {
        let name = format!("myriad-users-{name}-{}.acl", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        UserFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for UserFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_replaces_all_users_and_keeps_the_default_connections() {
    let file = UserFile::new(
        "load",
        "user app on nopass ~* +@all\r\n\n  user  b off\nuser c on (~a\t +get)\n",
    );
    let mut world = world_with(2, &[("aclfile", file.path())]);
    let admin = connect(&mut world, 0);
    ask(&mut world, &admin, &["ACL", "SETUSER", "gone", "on"]);
    let reply = ask(&mut world, &admin, &["ACL", "LOAD"]);
    // Two spaces are an empty name between them.
    let fault = format!("-ERR {}:3: Syntax error. WARNING: ACL errors detected", file.path());
    assert!(reply.starts_with(&fault), "{reply}");
    assert!(ask(&mut world, &admin, &["ACL", "USERS"]).contains("gone"));

    fs::write(&file.0, "user app on nopass ~* +@all\nuser default on nopass ~* &* +@all\n")
        .unwrap();
    assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), "+OK\r\n");
    let users = "*2\r\n$3\r\napp\r\n$7\r\ndefault\r\n";
    assert_eq!(ask(&mut world, &admin, &["ACL", "USERS"]), users);
    let client = log_in(&mut world, 1);
    assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), "+OK\r\n");
    assert!(client.is_closed() && !admin.is_closed());

    ask(&mut world, &admin, &["ACL", "SETUSER", "b", ">pw", "~x", "(%R~y +get)"]);
    let before = ask(&mut world, &admin, &["ACL", "LIST"]);
    assert_eq!(ask(&mut world, &admin, &["ACL", "SAVE"]), "+OK\r\n");
    let text = fs::read_to_string(&file.0).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(!text.contains("pw"), "{text}");
    ask(&mut world, &admin, &["ACL", "DELUSER", "b", "app"]);
    assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &admin, &["ACL", "LIST"]), before);
}

#[test]
fn a_faulty_file_changes_nothing_and_its_lines_are_named() {
    let file = UserFile::new("faults", "");
    let mut world = world_with(1, &[("aclfile", file.path())]);
    let admin = connect(&mut world, 0);
    ask(&mut world, &admin, &["ACL", "SETUSER", "app", "on"]);
    let before = ask(&mut world, &admin, &["ACL", "LIST"]);
    let path = file.path();
    for (text, faults) in [
        (
            "user a on\n# a comment\n",
            "{path}:2 should start with user keyword followed by the username. ",
        ),
        ("user", "{path}:1 should start with user keyword followed by the username. "),
        ("user a on\nuser a off", "WARNING: Duplicate user 'a' found on line 2. "),
        (
            "user a +nosuch -nosuch on x y",
            "{path}:1: Error in applying operation '+nosuch': Unknown command or category name in \
             ACL. {path}:1: Error in applying operation '-nosuch': Unknown command or category \
             name in ACL. {path}:1: Syntax error. ",
        ),
        ("\nuser a (+get", "{path}:2: Unmatched parenthesis in selector definition. "),
        ("user a\tb on", "'{path}:1: username 'a\tb' contains invalid characters. "),
    ] {
        fs::write(&file.0, text).unwrap();
        let expected = format!(
            "-ERR {}WARNING: ACL errors detected, no change to the previously active ACL rules \
             was performed\r\n",
            faults.replace("{path}", path)
        );
        assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), expected, "{text}");
        assert_eq!(ask(&mut world, &admin, &["ACL", "LIST"]), before, "{text}");
    }
    fs::write(&file.0, "x\n".repeat(100_000)).unwrap();
    let reply = ask(&mut world, &admin, &["ACL", "LOAD"]);
    assert!(reply.len() < 20_000, "{} bytes", reply.len());
    fs::remove_file(&file.0).unwrap();
    let missing =
        format!("-ERR Error loading ACLs, opening file '{path}': No such file or directory\r\n");
    assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), missing);
    assert_eq!(ask(&mut world, &admin, &["ACL", "SAVE"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &admin, &["ACL", "LOAD"]), "+OK\r\n");
    assert_eq!(ask(&mut world, &admin, &["ACL", "LIST"]), before);
}

#[test]
fn rules_of_hostile_size_are_refused_and_change_nothing() {
    let mut world = world_with(1, &[]);
    let admin = connect(&mut world, 0);
    let refused = "-ERR the user has too many ACL rules\r\n";
    let many: Vec<String> = (0..5_000).map(|index| format!("~{index}")).collect();
    let nested = format!("({})", many.join(" "));
    let long = format!("~{}", "x".repeat(70_000));
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    for rules in [&words[..], &[&nested], &[&long], &vec!["on"; 9_000]] {
        let words = [&["ACL", "SETUSER", "app"], rules].concat();
        assert_eq!(ask(&mut world, &admin, &words), refused);
    }
    assert_eq!(ask(&mut world, &admin, &["ACL", "USERS"]), "*1\r\n$7\r\ndefault\r\n");
    // Names count, too.
    let name = "n".repeat(60_000);
    let mut accepted = 0;
    let reply = loop {
        let reply = ask(&mut world, &admin, &["ACL", "SETUSER", &format!("{name}{accepted}")]);
        if reply != "+OK\r\n" {
            break reply;
        }
        accepted += 1;
    };
    assert!(reply.starts_with("-ERR too many ACL users or rules: at most"), "{reply}");
    assert_eq!(accepted, (16 << 20) / 60_003);
}

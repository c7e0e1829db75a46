//! The documented numbers of functions and scripts, all of them in one interpreter.

use wire::resp::{Reply, decode_reply, encode_request};

use super::world::{Plan, World};
use crate::engine::functions::FUNCTIONS_MAX;

const LIBRARIES: usize = 16;
const FUNCTIONS_PER_LIBRARY: usize = FUNCTIONS_MAX / LIBRARIES;

/// More than an interpreter keeps.
const SCRIPTS: usize = 2_100;

/// A value of many levels, each of which an interpreter refers to while it is encoded.
const DEEP: &str = "for depth = 1, 999 do local t = setmetatable({}, {}) \
                    for i = 1, depth do t = {t} end cjson.encode(t) end return 'deep'";

fn ask(world: &mut World, words: &[&[u8]]) -> Reply {
    let mut bytes = Vec::new();
    encode_request(words, &mut bytes);
    let answer = world.ask(&bytes);
    let (reply, length) = decode_reply(&answer).unwrap().expect("a complete reply");
    assert_eq!(length, answer.len());
    reply
}

#[track_caller]
fn check(world: &mut World, words: &[&str], expected: &str) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    assert_eq!(ask(world, &words), Reply::Bulk(expected.into()));
}

fn library(number: usize, functions: usize) -> String {
    format!(
        "#!lua name=l{number}\nfor index = 1, {functions} do \
         redis.register_function('f{number}_' .. index, function() return 'f' .. index end) end"
    )
}

/// The first and the last function are there.
fn check_functions(world: &mut World) {
    check(world, &["FCALL", "f0_1", "0"], "f1");
    let last = (format!("f{}_{FUNCTIONS_PER_LIBRARY}", LIBRARIES - 1), "0");
    check(world, &["FCALL", &last.0, last.1], &format!("f{FUNCTIONS_PER_LIBRARY}"));
    check(world, &["EVAL", DEEP, "0"], "deep");
}

#[test]
fn all_functions_and_scripts_that_the_limits_permit_work_together() {
    let mut world = World::new(1, Plan { reactors: 1, ..Plan::default() });
    for number in 0..LIBRARIES {
        let text = library(number, FUNCTIONS_PER_LIBRARY);
        check(&mut world, &["FUNCTION", "LOAD", &text], &format!("l{number}"));
    }
    let another = library(LIBRARIES, 1);
    let Reply::Error(error) = ask(&mut world, &[b"FUNCTION", b"LOAD", another.as_bytes()]) else {
        panic!("a library beyond the limit is loaded")
    };
    assert!(error.starts_with(b"ERR too many libraries or functions"));
    for number in 0..SCRIPTS {
        let text = format!("return '{number}'");
        check(&mut world, &["EVAL", &text, "0"], &number.to_string());
    }
    check_functions(&mut world);

    // What the server dumps itself, it restores, while the old functions are there.
    let Reply::Bulk(dump) = ask(&mut world, &[b"FUNCTION", b"DUMP"]) else { panic!("no dump") };
    for policy in [&b"REPLACE"[..], b"FLUSH"] {
        let restored = ask(&mut world, &[b"FUNCTION", b"RESTORE", &dump, policy]);
        assert_eq!(restored, Reply::Simple(b"OK".to_vec()));
        check_functions(&mut world);
    }
    world.restart().unwrap();
    check_functions(&mut world);
}

#[test]
fn messages_of_read_only_scripts_are_refused() {
    let mut world = World::new(1, Plan::default());
    let refused = "ERR Write commands are not allowed from read-only scripts.";
    for call in ["'publish', 'c', 'm'", "'spublish', 'c', 'm'", "'pfcount', 'k'"] {
        let body = format!(
            "local reply = redis.pcall({call}) \
                            if type(reply) == 'table' then return reply.err end \
                            return 'published'"
        );
        check(&mut world, &["EVAL_RO", &body, "1", "k"], refused);
        let flagged = format!("#!lua flags=no-writes\n{body}");
        check(&mut world, &["EVAL", &flagged, "1", "k"], refused);
        let written = ask(&mut world, &[b"EVAL", body.as_bytes(), b"1", b"k"]);
        assert_eq!(written, Reply::Bulk(b"published".to_vec()), "{call}");
    }
}

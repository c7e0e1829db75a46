//! Options of statements: each one that is obeyed has an effect.

use cql::options::{Effect, OPTIONS, OptionOwner};

use super::harness::Server;

/// An option, statements, and a question with its answers without and with the option.
struct Observed {
    name: &'static str,
    create: &'static str,
    then: &'static [&'static str],
    question: &'static str,
    without: &'static str,
    with: &'static str,
}

const TABLE: &str = "CREATE TABLE t (k int, c int, a text, PRIMARY KEY (k, c))";

const OBSERVED: [Observed; 7] = [
    Observed {
        name: "clustering order",
        create: TABLE,
        then: &["INSERT INTO t (k, c) VALUES (1, 1)", "INSERT INTO t (k, c) VALUES (1, 2)"],
        question: "SELECT c FROM t",
        without: "1\n2",
        with: "2\n1",
    },
    Observed {
        name: "default_time_to_live",
        create: TABLE,
        then: &["INSERT INTO t (k, c, a) VALUES (1, 1, 'a')"],
        question: "SELECT TTL(a) FROM t",
        without: "null",
        with: "60",
    },
    Observed {
        name: "gc_grace_seconds",
        create: TABLE,
        then: &["DELETE FROM t WHERE k = 1", "PURGE"],
        question: "PARTITIONS",
        without: "1",
        with: "0",
    },
    Observed {
        name: "id",
        create: TABLE,
        then: &[],
        question: "CREATE TABLE other (k int PRIMARY KEY) WITH id = \
                   5a1c395e-b41f-11e5-9f22-ba0be0483c18",
        without: "",
        with: "! Table id 5a1c395e-b41f-11e5-9f22-ba0be0483c18 is in use",
    },
    Observed {
        name: "case_sensitive",
        create: TABLE,
        then: &["INSERT INTO t (k, c, a) VALUES (1, 1, 'Ab')"],
        question: "SELECT k FROM t WHERE a = 'aB'",
        without: "",
        with: "1",
    },
    Observed {
        name: "normalize",
        create: TABLE,
        then: &["INSERT INTO t (k, c, a) VALUES (1, 1, 'e\u{301}')"],
        question: "SELECT k FROM t WHERE a = '\u{e9}'",
        without: "",
        with: "1",
    },
    Observed {
        name: "ascii",
        create: TABLE,
        then: &["INSERT INTO t (k, c, a) VALUES (1, 1, '\u{e9}')"],
        question: "SELECT k FROM t WHERE a = 'e'",
        without: "",
        with: "1",
    },
];

fn answer(observed: &Observed, owner: OptionOwner, option: Option<&str>) -> String {
    let mut server = Server::new();
    let with = option.map(|option| format!(" WITH {option}")).unwrap_or_default();
    let of_index = option.map(|option| format!(" WITH OPTIONS = {{{option}}}")).unwrap_or_default();
    let is_of_index = owner == OptionOwner::Index;
    let create = observed.create;
    server.run(&if is_of_index { create.to_owned() } else { format!("{create}{with}") }).unwrap();
    if is_of_index {
        server.run(&format!("CREATE INDEX ON t (a) USING 'sai'{of_index}")).unwrap();
    }
    for text in observed.then {
        if *text == "PURGE" {
            server.pass_seconds(100_000);
            server.purge();
        } else {
            server.run(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
    if observed.question == "PARTITIONS" {
        return server.partitions("t").to_string();
    }
    match server.run(observed.question) {
        Ok(answer) => answer.rows.join("\n"),
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn every_obeyed_option_has_an_effect() {
    for option in OPTIONS.iter().filter(|option| option.effect == Effect::Obeyed) {
        // `simulation/roles` observes those of roles.
        if option.owner == OptionOwner::Role {
            continue;
        }
        let observed = OBSERVED.iter().find(|observed| observed.name == option.name);
        let observed = observed.unwrap_or_else(|| panic!("{} is not observed", option.name));
        assert_eq!(answer(observed, option.owner, None), observed.without, "{}", option.name);
        let with = answer(observed, option.owner, Some(option.example));
        assert_eq!(with, observed.with, "{}", option.name);
    }
}

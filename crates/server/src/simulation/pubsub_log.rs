//! Messages and the log: the positions that they wait for, messages whose sender lost a write, and
//! messages of transactions.

use std::sync::Arc;

use base::time::{MonoNs, Now};
use reactor::ConnId;
use wire::resp::{Args, OwnedArgs, Protocol, Reply, ReplyWriter, decode_reply};

use super::cql_client::run_reactors;
use super::pubsub_client::{ask, connect, message, publish, received, run, send, world_with};
use crate::commands::execute::{Prepared, prepare};
use crate::commands::session::Session;
use crate::config::Durability;
use crate::engine::acl::Identity;
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::pubsub::{Kind, SubscriberTable, Subscriptions};
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::{ServerState, params};
use reactor::Peer;

/// A session without its connection, which runs requests as a reactor does.
struct Hand<'a> {
    shared: &'a ServerState,
    reactor: ReactorState,
    record: Record,
    session: Session,
}

impl Hand<'_> {
    fn new(shared: &ServerState, index: usize) -> Hand<'_> {
        let peer = Peer { remote: None, local: None, listener: 0 };
        let opened = MonoNs::default();
        Hand {
            shared,
            reactor: ReactorState::new(shared, index),
            record: Record::default(),
            session: Session::new(
                ConnId(1 << 40),
                &peer,
                opened,
                Identity::anyone(),
                Durability::Always,
            ),
        }
    }

    /// Runs a request. Returns the log position that its reply waits for, and the reply.
    fn ask(&mut self, words: &[&str]) -> (Gate, String) {
        self.execute(words, |context, session, prepared, args, reply| {
            context.request(session, prepared, args, reply)
        })
    }

    /// Like [`Hand::ask`], but skips the initial checks, as if the state had changed after them.
    fn ask_unchecked(&mut self, words: &[&str]) -> (Gate, String) {
        self.execute(words, |context, session, prepared, args, reply| {
            context.run(session, prepared.entry.unwrap(), prepared.hash, args, reply).unwrap()
        })
    }

    fn execute(
        &mut self,
        words: &[&str],
        run: impl FnOnce(
            &mut ReactorContext<'_>,
            &mut Session,
            Prepared,
            Args<'_>,
            ReplyWriter<'_>,
        ) -> Gate,
    ) -> (Gate, String) {
        let args: OwnedArgs = words.iter().copied().collect();
        let prepared = prepare(self.shared, args.as_args());
        let (now, seed) = (Now::default(), self.shared.keyspace.seed());
        let params = params(&self.reactor.settings, now.unix, seed, seed);
        let mut context = ReactorContext {
            shared: self.shared,
            params: &params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now,
            replies: None,
        };
        let mut out = Vec::new();
        let reply = ReplyWriter::new(&mut out, self.session.protocol);
        let gate = run(&mut context, &mut self.session, prepared, args.as_args(), reply);
        (gate, String::from_utf8(out).unwrap())
    }
}

#[test]
fn a_message_waits_for_writes_of_its_sender() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    let rounds: [&[&[&str]]; 3] = [
        &[&["SET", "k", "v"], &["PUBLISH", "a", "1"]],
        &[&["MULTI"], &["PUBLISH", "a", "1"], &["SET", "k", "w"], &["EXEC"]],
        &[&["MULTI"], &["SET", "k", "x"], &["PUBLISH", "a", "1"], &["EXEC"]],
    ];
    for requests in rounds {
        for words in requests {
            send(&publisher, words);
        }
        run_reactors(&mut world);
        assert_eq!(
            received(&subscriber),
            "",
            "a crash could undo the write that precedes the message"
        );
        run(&mut world);
        assert_eq!(received(&subscriber), message("a", "1"));
        assert!(received(&publisher).contains(":1\r\n"));
    }
    send(&publisher, &["PUBLISH", "a", "2"]);
    run_reactors(&mut world);
    assert_eq!(received(&subscriber), message("a", "2"), "there is nothing left to wait for");
}

#[test]
fn after_a_failed_log_messages_wait_for_nothing() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    world.disk.set_faults(binlog::Faults { sync_error: 1.0, ..binlog::Faults::default() });
    let writer = connect(&mut world, 0);
    ask(&mut world, &writer, &["SET", "k", "v"]);
    assert!(world.log_failed());
    let refused = ask(&mut world, &publisher, &["SET", "k", "v"]);
    assert!(refused.starts_with("-MISCONF"), "{refused}");
    assert_eq!(publish(&mut world, &publisher, "a", "x"), 1);
    assert_eq!(received(&subscriber), message("a", "x"));
}

#[test]
fn transactions_publish_when_they_are_complete() {
    let mut world = world_with(1, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    ask(&mut world, &publisher, &["MULTI"]);
    assert_eq!(ask(&mut world, &publisher, &["PUBLISH", "a", "1"]), "+QUEUED\r\n");
    assert_eq!(ask(&mut world, &publisher, &["PUBLISH", "none", "1"]), "+QUEUED\r\n");
    assert_eq!(received(&subscriber), "");
    assert_eq!(ask(&mut world, &publisher, &["EXEC"]), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(received(&subscriber), message("a", "1"));
    ask(&mut world, &publisher, &["MULTI"]);
    ask(&mut world, &publisher, &["PUBLISH", "a", "2"]);
    ask(&mut world, &publisher, &["DISCARD"]);
    assert_eq!(received(&subscriber), "");
}

#[test]
fn messages_during_a_transaction_follow_its_reply() {
    let world = world_with(2, &[]);
    let mut hand = Hand::new(world.shared(), 0);
    hand.session.protocol = Protocol::Resp3;
    hand.ask(&["SUBSCRIBE", "a"]);
    hand.ask(&["MULTI"]);
    hand.ask(&["UNSUBSCRIBE"]);
    assert_eq!(
        Hand::new(world.shared(), 1).ask(&["PUBLISH", "a", "x"]),
        (Gate::OPEN, ":1\r\n".to_owned())
    );
    let (_, replies) = hand.ask(&["EXEC"]);
    let push = |payload: &str| message("a", payload).replacen('*', ">", 1);
    let left = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    assert_eq!(replies, format!("*1\r\n{left}{}", push("x")));
    // Outside of a transaction they precede the reply.
    hand.ask(&["SUBSCRIBE", "a"]);
    Hand::new(world.shared(), 1).ask(&["PUBLISH", "a", "y"]);
    let (_, replies) = hand.ask(&["UNSUBSCRIBE"]);
    assert_eq!(replies, format!("{}{left}", push("y")));
}

#[test]
fn a_transaction_that_the_log_refuses_sends_no_events() {
    let mut world = world_with(2, &[]);
    let (subscriber, writer) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    let shared = Arc::clone(world.shared());
    let mut hand = Hand::new(&shared, 1);
    for words in [&["MULTI"][..], &["SET", "k", "v"], &["PUBLISH", "a", "x"]] {
        hand.ask(words);
    }
    world.disk.set_faults(binlog::Faults { sync_error: 1.0, ..binlog::Faults::default() });
    ask(&mut world, &writer, &["SET", "other", "v"]);
    assert!(world.log_failed());
    // The log fails after the initial checks of EXEC.
    let (gate, reply) = hand.ask_unchecked(&["EXEC"]);
    assert_eq!(reply, "*2\r\n+OK\r\n:1\r\n");
    assert!(hand.reactor.is_lost(&shared, gate), "the reply is an error");
    run(&mut world);
    assert_eq!(received(&subscriber), "");
    assert!(!subscriber.is_closed());
    // A message that does not depend on a lost write is delivered.
    assert_eq!(hand.ask(&["PUBLISH", "a", "y"]).1, ":1\r\n");
    run(&mut world);
    assert_eq!(received(&subscriber), message("a", "y"));
}

#[test]
fn lost_writes_are_not_reported_to_subscribers() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    world.disk.set_faults(binlog::Faults { sync_error: 1.0, ..binlog::Faults::default() });
    send(&publisher, &["SET", "k", "v"]);
    send(&publisher, &["PUBLISH", "a", "x"]);
    while world.step(1) {}
    // The log fails before the subscriber's reactor runs.
    while world.write_log() {}
    assert!(world.log_failed());
    run(&mut world);
    assert_eq!(received(&subscriber), "");
    assert!(publisher.is_closed() && !subscriber.is_closed());
    let other = connect(&mut world, 1);
    assert_eq!(publish(&mut world, &other, "a", "y"), 1);
    assert_eq!(received(&subscriber), message("a", "y"));
}

#[test]
fn events_of_transactions_on_several_reactors_are_in_log_order() {
    const ROUNDS: usize = 1_000;
    let world = world_with(3, &[]);
    let shared: &ServerState = world.shared();
    let (mut table, mut mine) = (SubscriberTable::new(2), Subscriptions::default());
    table.subscribe(&shared.pubsub, ConnId(1), &mut mine, Kind::Channel, b"a").unwrap();
    std::thread::scope(|scope| {
        for reactor in 0..2 {
            scope.spawn(move || {
                let mut hand = Hand::new(shared, reactor);
                for round in 0..ROUNDS {
                    let text = format!("{reactor}:{round}");
                    hand.ask(&["MULTI"]);
                    hand.ask(&["RPUSH", "l", &text]);
                    hand.ask(&["PUBLISH", "a", &text]);
                    let (_, replies) = hand.ask(&["EXEC"]);
                    assert!(replies.ends_with("\r\n:1\r\n"), "{replies}");
                }
            });
        }
    });
    // The threads have no reactor turns.
    while shared.pubsub.has_unmatched() {
        table.match_some(&shared.pubsub, |_| ());
        table.has_matched_its_share(&shared.pubsub);
    }
    let mut replies = Vec::new();
    table.catch_up(&shared.pubsub, ConnId(1), &mut mine, |message, _| {
        replies.push(message.payload().to_vec());
        true
    });
    let (_, list) = Hand::new(shared, 2).ask(&["LRANGE", "l", "0", "-1"]);
    let Ok(Some((Reply::Array(items), _))) = decode_reply(list.as_bytes()) else {
        panic!("{list}");
    };
    let written = items.into_iter().map(|item| match item {
        Reply::Bulk(text) => text,
        other => panic!("{other:?}"),
    });
    let written: Vec<Vec<u8>> = written.collect();
    assert_eq!(written.len(), 2 * ROUNDS);
    assert_eq!(replies, written);
}

#[test]
fn pending_gates_move_with_their_connection() {
    let mut world = world_with(3, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    let left = "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    // Delivered at the end of a turn, or before its next request.
    for turns_between in [1, 0] {
        ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
        send(&publisher, &["SET", "k", "v"]);
        send(&publisher, &["PUBLISH", "a", "x"]);
        while world.step(1) {}
        for _ in 0..turns_between {
            assert!(world.step(0));
        }
        send(&subscriber, &["UNSUBSCRIBE"]);
        run_reactors(&mut world);
        let place = world.sim().place_of(subscriber.id()).unwrap();
        assert!(world.sim().migrate(subscriber.id(), 2 - place));
        run_reactors(&mut world);
        assert_eq!(world.sim().place_of(subscriber.id()), Some(2 - place));
        assert_eq!(
            received(&subscriber),
            "",
            "a crash could undo the write that precedes the message"
        );
        // No other client of its new reactor waits for the log.
        run(&mut world);
        assert_eq!(received(&subscriber), format!("{}{left}", message("a", "x")));
        assert!(world.sim().migrate(subscriber.id(), 0));
        run(&mut world);
    }
}

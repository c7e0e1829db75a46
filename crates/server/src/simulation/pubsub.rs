//! Channels: delivery and order of messages, and subscribers that do not read.

use reactor::SimClient;

use super::cql_client::run_reactors;
use super::http_client::{HTTP, SECOND_NS, request};
use super::pubsub_client::{
    ask, connect, held_bytes, message, publish, received, run, send, world_with,
};
use super::world::World;
use crate::protocol::ClientProtocol;

#[test]
fn messages_reach_all_reactors_in_one_order() {
    const MESSAGES: usize = 200;
    let mut world = world_with(3, &[]);
    let subscribers: Vec<_> = (0..6).map(|number| connect(&mut world, number % 3)).collect();
    for (number, subscriber) in subscribers.iter().enumerate() {
        if number >= 3 {
            ask(&mut world, subscriber, &["HELLO", "3"]);
        }
        let confirmed = ask(&mut world, subscriber, &["SUBSCRIBE", "news"]);
        assert!(confirmed.ends_with("$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"), "{confirmed}");
    }
    let publishers = [connect(&mut world, 0), connect(&mut world, 1)];
    for number in 0..MESSAGES {
        send(&publishers[number % 2], &["PUBLISH", "news", &number.to_string()]);
        if number % 7 == 0 {
            world.step(number % 3);
        }
    }
    run(&mut world);
    for publisher in &publishers {
        assert_eq!(received(publisher), ":6\r\n".repeat(MESSAGES / 2));
    }
    let first = received(&subscribers[0]);
    for subscriber in &subscribers[1..] {
        let same = received(subscriber).replace(">3\r\n", "*3\r\n");
        assert_eq!(first, same, "all subscribers see the same order");
    }
    let payloads: Vec<usize> = first
        .split("*3\r\n")
        .skip(1)
        .map(|frame| frame.trim_end().rsplit("\r\n").next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(payloads.len(), MESSAGES);
    for parity in 0..2 {
        let sent: Vec<_> = payloads.iter().filter(|number| *number % 2 == parity).collect();
        assert!(sent.is_sorted(), "messages of each publisher are in order");
    }
}

#[test]
fn a_reply_follows_all_messages_published_before_it() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    let late = connect(&mut world, 0);
    send(&publisher, &["PUBLISH", "a", "x"]);
    while world.step(1) {}
    assert_eq!(received(&publisher), ":1\r\n");
    // The subscriber's reactor has not run since.
    send(&subscriber, &["PING"]);
    send(&late, &["SUBSCRIBE", "a"]);
    run(&mut world);
    let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    assert_eq!(received(&subscriber), format!("{}{pong}", message("a", "x")), "once, and first");
    assert_eq!(
        received(&late),
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
        "it subscribed later"
    );
    assert_eq!(publish(&mut world, &publisher, "a", "y"), 2);
    assert_eq!((received(&subscriber), received(&late)), (message("a", "y"), message("a", "y")));
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_others_are_not() {
    let limits = [("client-output-buffer-limit", "pubsub 65536 0 0")];
    let mut world = world_with(2, &limits);
    let (deaf, reader) = (connect(&mut world, 0), connect(&mut world, 0));
    let publisher = connect(&mut world, 1);
    for subscriber in [&deaf, &reader] {
        ask(&mut world, subscriber, &["PSUBSCRIBE", "a*"]);
    }
    deaf.set_window(0);
    let payload = "x".repeat(4096);
    for number in 0..30 {
        let expected = if number < 15 { 2..=2 } else { 1..=2 };
        let receivers = publish(&mut world, &publisher, "abc", &payload);
        assert!(expected.contains(&receivers), "{number}: {receivers}");
        assert_eq!(received(&reader).matches(&payload).count(), 1);
    }
    assert!(deaf.is_closed() && !reader.is_closed());
    assert_eq!(publish(&mut world, &publisher, "abc", ""), 1);
    let info = ask(&mut world, &publisher, &["INFO", "clients", "stats"]);
    assert!(info.contains("pubsub_clients:1\r\npubsub_clients_cut:1\r\n"), "{info}");
    assert!(info.contains("pubsub_channels:0\r\npubsub_patterns:1\r\n"), "{info}");
    // A single message may exceed the limit.
    publish(&mut world, &publisher, "abc", &"x".repeat(70_000));
    assert!(reader.is_closed());
    assert_eq!(ask(&mut world, &publisher, &["PING"]), "+PONG\r\n");
}

#[test]
fn unread_messages_are_charged_and_freed() {
    let mut world = world_with(1, &[]);
    let (deaf, publisher) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &deaf, &["SUBSCRIBE", "a"]);
    deaf.set_window(0);
    for _ in 0..20 {
        publish(&mut world, &publisher, "a", &"x".repeat(10_000));
    }
    let output_bytes = |world: &mut World| {
        for _ in 0..30 {
            world.advance(SECOND_NS / 10);
            run(world);
        }
        world.shared().memory.output.of(ClientProtocol::Resp).current_bytes()
    };
    assert!(output_bytes(&mut world) >= 200_000);
    deaf.set_window(usize::MAX);
    assert_eq!(output_bytes(&mut world), 0, "without any request from the subscriber");
    assert_eq!(received(&deaf).matches("message").count(), 20);
}

/// Checks how many seconds a subscriber stays connected that leaves about 40,000 bytes unread.
#[track_caller]
fn check_soft_limit(limits: &str, expected: std::ops::Range<u64>) {
    let mut world = world_with(1, &[("client-output-buffer-limit", limits)]);
    let (deaf, publisher) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &deaf, &["SUBSCRIBE", "a"]);
    deaf.set_window(0);
    publish(&mut world, &publisher, "a", &"x".repeat(40_000));
    let mut seconds = 0;
    while !deaf.is_closed() && seconds < 12 {
        for _ in 0..100 {
            world.advance(SECOND_NS / 100);
            run(&mut world);
        }
        seconds += 1;
    }
    assert!(expected.contains(&seconds), "{limits}: {seconds} s");
}

#[test]
fn subscribers_that_fall_behind_are_closed() {
    check_soft_limit("pubsub 0 20000 5", 5..8);
    check_soft_limit("pubsub 0 50000 5", 12..13);
    check_soft_limit("normal 0 20000 5", 12..13);
}

#[test]
fn ten_thousand_channels_are_created_and_removed() {
    const CHANNELS: usize = 10_000;
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    let before_bytes = held_bytes(&mut world);
    let names: Vec<String> = (0..CHANNELS).map(|number| format!("channel:{number}")).collect();
    let mut words = vec!["SUBSCRIBE"];
    words.extend(names.iter().map(String::as_str));
    let confirmed = ask(&mut world, &subscriber, &words);
    assert!(confirmed.ends_with(&format!("\r\n$12\r\nchannel:9999\r\n:{CHANNELS}\r\n")));
    assert!(held_bytes(&mut world) > before_bytes + 300 * CHANNELS as u64);
    assert_eq!(publish(&mut world, &publisher, "channel:7777", "x"), 1);
    assert_eq!(received(&subscriber), message("channel:7777", "x"));
    assert_eq!(publish(&mut world, &publisher, "channel:10000", "x"), 0);
    let listed = ask(&mut world, &publisher, &["PUBSUB", "CHANNELS", "channel:777?"]);
    assert!(listed.starts_with("*10\r\n$12\r\nchannel:7770\r\n"), "{listed}");
    ask(&mut world, &subscriber, &["UNSUBSCRIBE", "channel:7777"]);
    assert_eq!(publish(&mut world, &publisher, "channel:7777", "x"), 0);
    subscriber.close();
    run(&mut world);
    assert_eq!(publish(&mut world, &publisher, "channel:1", "x"), 0);
    assert_eq!(ask(&mut world, &publisher, &["PUBSUB", "CHANNELS"]), "*0\r\n");
    let again = connect(&mut world, 0);
    assert_eq!(
        held_bytes(&mut world),
        before_bytes,
        "unchanged, with one client instead of the other"
    );
    assert!(!again.is_closed());
}

#[test]
fn a_connection_may_not_subscribe_to_everything() {
    const MAX: usize = 1 << 16;
    let mut world = world_with(1, &[]);
    let client = connect(&mut world, 0);
    let names: Vec<String> = (0..=MAX).map(|number| number.to_string()).collect();
    let mut replies = String::new();
    for part in names.chunks(10_000) {
        let mut words = vec!["SUBSCRIBE"];
        words.extend(part.iter().map(String::as_str));
        replies += &ask(&mut world, &client, &words);
    }
    assert_eq!(replies.matches("subscribe\r\n").count(), MAX);
    assert!(replies.ends_with("-ERR too many subscriptions for this connection\r\n"));
    assert_eq!(ask(&mut world, &client, &["RESET"]), "+RESET\r\n");
    assert_eq!(ask(&mut world, &client, &["PUBSUB", "NUMSUB", "7"]), "*2\r\n$1\r\n7\r\n:0\r\n");
    let confirmed = ask(&mut world, &client, &["SUBSCRIBE", "a"]);
    assert!(confirmed.ends_with(":1\r\n"), "{confirmed}");
}

#[test]
fn leaving_with_messages_in_flight_affects_no_other_client() {
    let mut world = world_with(2, &[]);
    let publisher = connect(&mut world, 1);
    let subscribers: Vec<_> = (0..4).map(|_| connect(&mut world, 0)).collect();
    for subscriber in &subscribers {
        ask(&mut world, subscriber, &["SUBSCRIBE", "a"]);
    }
    for number in 0..10 {
        send(&publisher, &["PUBLISH", "a", &number.to_string()]);
    }
    while world.step(1) {}
    assert_eq!(received(&publisher), ":4\r\n".repeat(10));
    subscribers[0].close();
    subscribers[1].reset();
    send(&subscribers[2], &["UNSUBSCRIBE"]);
    run(&mut world);
    let all: String = (0..10).map(|number| message("a", &number.to_string())).collect();
    assert_eq!(received(&subscribers[3]), all);
    let left = format!("{all}*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n");
    assert_eq!(received(&subscribers[2]), left, "the message was published before");
    assert_eq!(publish(&mut world, &publisher, "a", "x"), 1);
    // The last subscriber leaves while a message waits for it.
    send(&publisher, &["PUBLISH", "a", "y"]);
    while world.step(1) {}
    assert_eq!(received(&publisher), ":1\r\n");
    subscribers[3].reset();
    run(&mut world);
    assert_eq!(publish(&mut world, &publisher, "a", "z"), 0);
    let info = ask(&mut world, &publisher, &["INFO", "clients"]);
    assert!(info.contains("pubsub_clients:0\r\n"), "{info}");
}

#[test]
fn subscribers_stay_on_their_reactor_and_may_be_idle() {
    let mut world = world_with(2, &[("timeout", "5")]);
    let (subscriber, other) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    assert!(!world.sim().migrate(subscriber.id(), 1));
    assert!(world.sim().migrate(other.id(), 1));
    for _ in 0..10 {
        world.advance(SECOND_NS);
        run(&mut world);
    }
    assert!(other.is_closed() && !subscriber.is_closed());
    let publisher = connect(&mut world, 1);
    assert_eq!(publish(&mut world, &publisher, "a", "x"), 1);
    assert!(received(&subscriber).ends_with(&message("a", "x")));
    ask(&mut world, &subscriber, &["UNSUBSCRIBE"]);
    assert!(world.sim().migrate(subscriber.id(), 1), "without subscriptions it may move");
}

#[test]
fn clients_are_listed_and_killed_by_type() {
    let mut world = world_with(2, &[]);
    let subscribers = [connect(&mut world, 0), connect(&mut world, 1)];
    let other = connect(&mut world, 0);
    for subscriber in &subscribers {
        ask(&mut world, subscriber, &["SUBSCRIBE", "a", "b"]);
        ask(&mut world, subscriber, &["PSUBSCRIBE", "c*"]);
        ask(&mut world, subscriber, &["SSUBSCRIBE", "d"]);
    }
    let listed = ask(&mut world, &other, &["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(listed.matches(" flags=P capa= db=0 sub=2 psub=1 ssub=1 ").count(), 2, "{listed}");
    assert_eq!(ask(&mut world, &other, &["CLIENT", "KILL", "TYPE", "pubsub"]), ":2\r\n");
    assert!(subscribers.iter().all(SimClient::is_closed) && !other.is_closed());
    assert_eq!(publish(&mut world, &other, "a", "x"), 0);
}

/// Sends an HTTP request and returns the response received so far, without its header lines.
fn ask_http(world: &mut World, client: &SimClient, head: &str, body: &str) -> (String, String) {
    client.send(request(head, body).as_bytes());
    run(world);
    let answer = received(client);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}

#[test]
fn http_sends_messages_as_events() {
    let mut world = world_with(1, &[("http", "127.0.0.1:0")]);
    let mut client = || {
        let client = world.sim().connect_to(HTTP);
        run(&mut world);
        client
    };
    let (listener, encoded, seer, caller) = (client(), client(), client(), client());
    let (head, body) = ask_http(&mut world, &listener, "GET /subscribe/chat", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close\r\n") && !head.contains("Content-Length"));
    assert_eq!(body, "data: subscribe,chat,1\n\n");
    // In the form that the dialect's SDK requests.
    let (_, body) =
        ask_http(&mut world, &encoded, "POST /subscribe/chat/b%2Fc?encoding=base64", "[]");
    assert_eq!(body, "data: subscribe,chat,1\n\ndata: subscribe,b/c,2\n\n");
    let (_, body) = ask_http(&mut world, &seer, "GET /psubscribe/c*?pattern=%5Bb-z%5D*", "");
    assert_eq!(body, "data: psubscribe,c*,1\n\ndata: psubscribe,[b-z]*,2\n\n");
    let (_, body) = ask_http(&mut world, &caller, "POST /publish/chat", "two\nlines");
    assert_eq!(body, r#"{"result":4}"#);
    assert_eq!(received(&listener), "data: message,chat,two\ndata: lines\n\n");
    assert_eq!(received(&encoded), "data: message,chat,dHdvCmxpbmVz\n\n");
    assert_eq!(
        received(&seer),
        "data: pmessage,[b-z]*,chat,two\ndata: lines\n\ndata: pmessage,c*,chat,two\ndata: lines\n\n"
    );
    let (_, body) = ask_http(
        &mut world,
        &caller,
        "POST /multi-exec",
        r#"[["SET","k","v"],["PUBLISH","chat","x"]]"#,
    );
    assert_eq!(body, r#"[{"result":"OK"},{"result":4}]"#);
    assert_eq!(received(&listener), "data: message,chat,x\n\n");
    let (_, body) = ask_http(&mut world, &caller, "GET /pubsub/numsub/chat", "");
    assert_eq!(body, r#"{"result":["chat",2]}"#);
    let (head, _) = ask_http(&mut world, &caller, "HEAD /subscribe/chat", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for (request, status) in [
        ("GET /subscribe/", "400"),
        ("GET /subscribe/%zz", "400"),
        ("GET /subscribe/a?encoding=x", "400"),
        ("DELETE /subscribe/a", "405"),
        ("GET /ssubscribe/a", "400"),
    ] {
        let (head, _) = ask_http(&mut world, &caller, request, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
    }
    // A silent connection receives a keepalive now and then, and stays open.
    for _ in 0..200 {
        world.advance(SECOND_NS / 10);
        run(&mut world);
    }
    assert_eq!(received(&listener), ":\n\n");
    listener.close();
    run(&mut world);
    let (_, body) = ask_http(&mut world, &caller, "GET /publish/chat/y", "");
    assert_eq!(body, r#"{"result":3}"#);
}

#[test]
fn over_http_a_message_waits_for_writes_of_its_connection() {
    let mut world = world_with(1, &[("http", "127.0.0.1:0")]);
    let subscriber = connect(&mut world, 0);
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    let caller = world.sim().connect_to(HTTP);
    run(&mut world);
    caller.send(request("POST /", r#"["SET","k","v"]"#).as_bytes());
    caller.send(request("POST /", r#"["PUBLISH","a","1"]"#).as_bytes());
    run_reactors(&mut world);
    assert_eq!(received(&subscriber), "", "a crash could undo the write that precedes the message");
    run(&mut world);
    assert_eq!(received(&subscriber), message("a", "1"));
}

#[test]
fn http_requires_the_password_and_closes_slow_readers() {
    let limits = "pubsub 65536 0 0";
    let options = [
        ("http", "127.0.0.1:0"),
        ("requirepass", "secret"),
        ("client-output-buffer-limit", limits),
    ];
    let mut world = world_with(1, &options);
    let (deaf, caller) = (world.sim().connect_to(HTTP), world.sim().connect_to(HTTP));
    run(&mut world);
    let (head, _) = ask_http(&mut world, &deaf, "GET /subscribe/a", "");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    let authorized = |line: &str| format!("{line}|Authorization: Bearer secret");
    let (_, body) = ask_http(&mut world, &deaf, &authorized("GET /subscribe/a"), "");
    assert_eq!(body, "data: subscribe,a,1\n\n");
    deaf.set_window(0);
    let payload = "x".repeat(4096);
    for _ in 0..20 {
        ask_http(&mut world, &caller, &authorized("POST /publish/a"), &payload);
    }
    assert!(deaf.is_closed());
    let (_, body) = ask_http(&mut world, &caller, &authorized("POST /publish/a"), &payload);
    assert_eq!(body, r#"{"result":0}"#);
    // Event streams that are open when the server shuts down do not end by themselves.
    let last = world.sim().connect_to(HTTP);
    run(&mut world);
    ask_http(&mut world, &last, &authorized("GET /subscribe/a"), "");
    world.sim().drain();
    run(&mut world);
    assert!(last.is_closed());
}

#[test]
fn publishers_wait_while_too_much_is_in_flight() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    let payload = "x".repeat(128 << 10);
    for _ in 0..12 {
        send(&publisher, &["PUBLISH", "a", &payload]);
    }
    // Reactor 0 does not run, so no message is delivered.
    for _ in 0..2000 {
        world.step(1);
    }
    let accepted = received(&publisher).matches(":1\r\n").count();
    assert!((8..12).contains(&accepted), "{accepted} were accepted");
    assert!(world.shared().pubsub.is_any_full());
    run(&mut world);
    assert_eq!(received(&publisher), ":1\r\n".repeat(12 - accepted));
    assert_eq!(received(&subscriber).matches("message").count(), 12);
    assert!(!world.shared().pubsub.is_any_full());
}

#[test]
fn a_busy_reactor_stops_only_the_clients_that_publish_to_it() {
    let mut world = world_with(3, &[]);
    let (busy, subscriber) = (connect(&mut world, 0), connect(&mut world, 2));
    let (publisher, neighbor, distant) =
        (connect(&mut world, 1), connect(&mut world, 1), connect(&mut world, 2));
    ask(&mut world, &busy, &["SUBSCRIBE", "a"]);
    ask(&mut world, &subscriber, &["SUBSCRIBE", "b"]);
    let payload = "x".repeat(128 << 10);
    for _ in 0..12 {
        send(&publisher, &["PUBLISH", "a", &payload]);
    }
    // Reactor 0 does not run: it executes one long command.
    let step = |world: &mut World| while world.step(1) | world.step(2) {};
    step(&mut world);
    assert!(world.shared().pubsub.is_any_full());
    let accepted = received(&publisher).matches(":1\r\n").count();
    assert!((8..12).contains(&accepted), "{accepted} were accepted");
    for client in [&neighbor, &distant] {
        send(client, &["PING"]);
        send(client, &["PUBLISH", "b", "x"]);
        send(client, &["PUBLISH", "nobody", "x"]);
        step(&mut world);
        assert_eq!(received(client), "+PONG\r\n:1\r\n:0\r\n");
    }
    assert_eq!(received(&subscriber), message("b", "x").repeat(2));
    // One more message is accepted from each connection.
    send(&distant, &["PUBLISH", "a", "y"]);
    send(&distant, &["PING"]);
    step(&mut world);
    assert_eq!(received(&distant), ":1\r\n");
    // Received requests are executed, even if their client has disconnected.
    publisher.half_close();
    step(&mut world);
    run(&mut world);
    assert_eq!(received(&distant), "+PONG\r\n");
    assert_eq!(received(&publisher), ":1\r\n".repeat(12 - accepted));
    assert_eq!(received(&busy).matches("message").count(), 13);
    assert!(!world.shared().pubsub.is_any_full());
}

#[test]
fn a_monitor_whose_reactor_is_busy_is_closed_when_it_has_missed_lines() {
    let mut world = world_with(2, &[]);
    let (monitor, other) = (connect(&mut world, 0), connect(&mut world, 1));
    assert_eq!(ask(&mut world, &monitor, &["MONITOR"]), "+OK\r\n");
    let word = "x".repeat(128 << 10);
    // Reactor 0 does not run: it executes one long command.
    for _ in 0..12 {
        send(&other, &["ECHO", &word]);
        while world.step(1) {}
    }
    run(&mut world);
    assert!(monitor.is_closed(), "lines are missing");
    let again = connect(&mut world, 0);
    assert_eq!(ask(&mut world, &again, &["MONITOR"]), "+OK\r\n");
    ask(&mut world, &other, &["ECHO", "y"]);
    assert!(received(&again).ends_with("\"ECHO\" \"y\"\r\n"));
}

#[test]
fn own_messages_arrive_before_the_next_reply() {
    let mut world = world_with(2, &[]);
    let own = message("a", "x").replacen('*', ">", 1);
    let left = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n";
    let cases: [(&[&[&str]], String); 5] = [
        (&[&["PUBLISH", "a", "x"][..], &["UNSUBSCRIBE", "a"]][..], format!(":1\r\n{own}{left}")),
        (&[&["PUBLISH", "a", "x"], &["PING"]], format!(":1\r\n{own}+PONG\r\n")),
        (&[&["PUBLISH", "a", "x"], &["RESET"]], format!(":1\r\n{own}+RESET\r\n")),
        (&[&["PUBLISH", "a", "x"], &["QUIT"]], format!(":1\r\n{own}+OK\r\n")),
        (
            &[&["MULTI"], &["PUBLISH", "a", "x"], &["EXEC"], &["UNSUBSCRIBE"]],
            format!("+OK\r\n+QUEUED\r\n*1\r\n:1\r\n{own}{left}"),
        ),
    ];
    for (requests, expected) in cases {
        let client = connect(&mut world, 0);
        ask(&mut world, &client, &["HELLO", "3"]);
        ask(&mut world, &client, &["SUBSCRIBE", "a"]);
        // In one read, so that all are handled in one turn.
        let mut bytes = Vec::new();
        for words in requests {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            wire::resp::encode_request(&words, &mut bytes);
        }
        client.send(&bytes);
        run(&mut world);
        assert_eq!(received(&client), expected, "{requests:?}");
        client.close();
        run(&mut world);
    }
}

#[test]
fn delivery_may_take_several_turns_and_happens_once() {
    const SUBSCRIBERS: usize = 40;
    // The number of messages that a turn may deliver in tests, plus one.
    const TURN_MAX: usize = (64 << 10) / (8 << 10) + 1;
    let mut world = world_with(2, &[]);
    let subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| connect(&mut world, 0)).collect();
    let publisher = connect(&mut world, 1);
    for subscriber in &subscribers {
        ask(&mut world, subscriber, &["SUBSCRIBE", "a"]);
    }
    let payload = "x".repeat(8 << 10);
    send(&publisher, &["PUBLISH", "a", &payload]);
    while world.step(1) {}
    assert_eq!(received(&publisher), format!(":{SUBSCRIBERS}\r\n"));
    let mut got = vec![String::new(); SUBSCRIBERS];
    let mut turns = 0;
    while world.step(0) {
        let before = got.iter().filter(|text| !text.is_empty()).count();
        for (text, subscriber) in got.iter_mut().zip(&subscribers) {
            *text += &received(subscriber);
        }
        let after = got.iter().filter(|text| !text.is_empty()).count();
        // One subscriber has sent a request.
        let turn_max = TURN_MAX + usize::from(turns == 1);
        assert!(after - before <= turn_max, "turn {turns}: {}", after - before);
        turns += 1;
        if turns == 1 {
            // A subscriber that sends a request receives the message before its turn. No subscriber
            // receives it twice.
            send(&subscribers[SUBSCRIBERS - 1], &["PING"]);
            send(&subscribers[0], &["PING"]);
        }
    }
    assert!(turns >= SUBSCRIBERS / TURN_MAX, "{turns} turns");
    let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    for (number, text) in got.iter().enumerate() {
        let asked = number == 0 || number == SUBSCRIBERS - 1;
        let expected = format!("{}{}", message("a", &payload), if asked { pong } else { "" });
        assert!(*text == expected, "subscriber {number} got {} bytes", text.len());
    }
}

#[test]
fn a_client_over_its_limit_is_closed_before_its_request() {
    let mut world = world_with(2, &[("client-output-buffer-limit", "pubsub 65536 0 0")]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    for _ in 0..20 {
        send(&publisher, &["PUBLISH", "a", &"x".repeat(4096)]);
    }
    while world.step(1) {}
    assert_eq!(received(&publisher), ":1\r\n".repeat(20));
    send(&subscriber, &["PING"]);
    run(&mut world);
    assert!(subscriber.is_closed());
    let info = ask(&mut world, &publisher, &["INFO", "clients"]);
    assert!(info.contains("pubsub_clients:0\r\npubsub_clients_cut:1\r\n"), "{info}");
}

#[test]
fn closing_subscribers_are_not_counted() {
    let mut world = world_with(2, &[]);
    let (subscriber, publisher) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &subscriber, &["SUBSCRIBE", "a"]);
    subscriber.set_window(0);
    assert_eq!(publish(&mut world, &publisher, "a", "x"), 1);
    send(&subscriber, &["QUIT"]);
    run(&mut world);
    assert!(!subscriber.is_closed(), "the client has unread output");
    assert_eq!(publish(&mut world, &publisher, "a", "y"), 0);
    subscriber.set_window(usize::MAX);
    world.advance(SECOND_NS);
    run(&mut world);
    assert_eq!(received(&subscriber), format!("{}+OK\r\n", message("a", "x")));
    assert!(subscriber.is_closed());
}

#[test]
fn ever_new_channel_names_use_no_memory() {
    let mut world = world_with(2, &[]);
    let client = connect(&mut world, 0);
    let before_bytes = held_bytes(&mut world);
    for round in 0..10 {
        for word in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
            let names: Vec<_> = (0..300).map(|number| format!("{round}:{number}")).collect();
            let mut words = vec![word];
            words.extend(names.iter().map(String::as_str));
            ask(&mut world, &client, &words);
        }
        assert!(held_bytes(&mut world) > before_bytes + 900 * 300);
        for word in ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"] {
            ask(&mut world, &client, &[word]);
        }
        assert_eq!(held_bytes(&mut world), before_bytes);
    }
}

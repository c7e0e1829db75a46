//! An HTTP client for the simulated server, and servers for it to connect to.

use reactor::SimClient;
use wire::http::{Event, Limits, ResponseDecoder};

use super::world::{Plan, World};

const SEED: u64 = 1;
/// The listener after the RESP one.
pub(super) const HTTP: usize = 1;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn world() -> World {
    world_with(&[])
}

pub(super) fn world_with(options: &[(&'static str, &str)]) -> World {
    let mut all = vec![("http", "127.0.0.1:0".to_owned())];
    all.extend(options.iter().map(|(name, value)| (*name, (*value).to_owned())));
    World::new(SEED, Plan { reactors: 1, options: all, ..Plan::default() })
}

/// Runs reactor and log until they are idle.
pub(super) fn run(world: &mut World) {
    while world.write_log() | world.step(0) {}
}

/// The client's end of a connection.
pub(super) struct Client {
    pub(super) sim: SimClient,
    pub(super) decoder: ResponseDecoder,
    pub(super) unread: Vec<u8>,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) lines: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn line(&self, name: &str) -> Option<&str> {
        let found = self.lines.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

impl Client {
    pub(super) fn connect(world: &mut World) -> Client {
        Client::connect_to(world, HTTP)
    }

    pub(super) fn connect_to(world: &mut World, listener: usize) -> Client {
        let sim = world.sim().connect_to(listener);
        Client { sim, decoder: ResponseDecoder::new(), unread: Vec::new(), answer: None }
    }

    /// The responses that have arrived completely.
    pub(super) fn answers(&mut self) -> Vec<Answer> {
        self.unread.extend(self.sim.received());
        let mut answers = Vec::new();
        let bytes = std::mem::take(&mut self.unread);
        let mut at = 0;
        loop {
            let decoded = self.decoder.decode(&bytes[at..], &Limits::DEFAULT);
            let (used, event) = decoded.expect("the server speaks HTTP");
            at += used;
            match event {
                Event::Unfinished if used == 0 => break,
                Event::Unfinished => {}
                Event::Head(head) => {
                    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    let lines = head.headers().map(|(name, value)| (name.to_owned(), text(value)));
                    let lines = lines.filter(|(name, _)| name != "Date").collect();
                    let answer = Answer { status: head.status, lines, body: String::new() };
                    if head.status < 200 {
                        answers.push(answer);
                    } else {
                        self.answer = Some(answer);
                    }
                }
                Event::Body(part) => {
                    let answer = self.answer.as_mut().expect("a head precedes the body");
                    answer.body.push_str(std::str::from_utf8(part).unwrap());
                }
                Event::End => answers.extend(self.answer.take()),
            }
        }
        self.unread = bytes[at..].to_vec();
        answers
    }

    /// Sends a request and runs the server until it is idle.
    pub(super) fn ask(&mut self, world: &mut World, head: &str, body: &str) -> Answer {
        self.sim.send(request(head, body).as_bytes());
        self.decoder.expect_to_head(head.starts_with("HEAD"));
        run(world);
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{head}: {answers:?}");
        answers.remove(0)
    }
}

/// `head`: method and target, then header lines, each preceded by `|`.
pub(super) fn request(head: &str, body: &str) -> String {
    let mut parts = head.split('|');
    let line = parts.next().unwrap();
    let lines: Vec<_> = parts.map(|line| format!("{line}\r\n")).collect();
    let lines = lines.concat();
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{lines}{length}\r\n{body}")
}

/// Sends requests over one connection, and checks the status and body of each response.
#[track_caller]
pub(super) fn check(world: &mut World, talk: &[(&str, &str, u16, &str)]) {
    let mut client = Client::connect(world);
    for (head, body, status, expected) in talk {
        let answer = client.ask(world, head, body);
        assert_eq!((answer.status, answer.body.as_str()), (*status, *expected), "{head} {body}");
    }
}

//! Random sequences of requests.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};

use super::agree::Rule;
use super::grammar::{self, Grammar, Theme};
use super::words::{KEYS, Word};

/// Connections of a sequence. Most requests are sent by the first one.
pub(super) const CONNECTIONS: usize = 2;
const OF_THE_SECOND: f64 = 0.08;
/// The share of requests of the preferred themes.
const PREFERRED: f64 = 0.85;
/// The share of requests with a mistake.
const MISTAKEN: f64 = 0.04;
/// The share of requests that a script sends.
const SCRIPTED: f64 = 0.06;
/// The share of steps that begin a transaction, and its size.
const TRANSACTIONS: f64 = 0.015;
const TRANSACTION_MAX: usize = 6;
/// The share of transactions with watched keys.
const WATCHING: f64 = 0.5;
/// The share of steps in which the servers exchange a value.
const EXCHANGES: f64 = 0.01;
/// The share of sequences with RESP3.
const RESP3: f64 = 0.5;

const CALL: &str = "return redis.call(unpack(ARGV))";
/// Scripts, with a weight: some know the name of the command, some convert replies.
const SCRIPTS: [&str; 5] = [
    CALL,
    CALL,
    "return redis.pcall(unpack(ARGV))",
    "local r = redis.call(unpack(ARGV)) if type(r) == 'table' then return #r end return r",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
];

/// One step of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A request to both servers.
    Ask { connection: usize, words: Vec<Vec<u8>>, rule: Rule },
    /// DUMP on both, RESTORE of the other's payload.
    Exchange { from: Vec<u8>, to: Vec<u8> },
}

impl Step {
    fn ask(connection: usize, words: &[&[u8]], rule: Rule) -> Self {
        let words = words.iter().map(|word| word.to_vec()).collect();
        Step::Ask { connection, words, rule }
    }
}

/// A sequence of `count` random steps, and the steps that read all data at its end.
pub(super) fn steps(grammar: &Grammar, seed: u64, count: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let themes = grammar::themes(&mut random);
    let mut maker = Maker { grammar, themes, ids: 0, steps: Vec::with_capacity(count + 100) };
    if random.random_bool(RESP3) {
        for connection in 0..CONNECTIONS {
            maker.steps.push(Step::ask(connection, &[b"HELLO", b"3"], Rule::Kind));
        }
    }
    while maker.steps.len() < count {
        maker.step(&mut random);
    }
    let mut steps = maker.steps;
    for database in [&b"0"[..], b"1"] {
        steps.push(Step::ask(0, &[b"SELECT", database], Rule::Exact));
        read_all(&mut steps);
    }
    steps
}

/// Reads all keys; the wrong commands for a key answer with an error.
fn read_all(steps: &mut Vec<Step>) {
    steps.push(Step::ask(0, &[b"KEYS", b"*"], Rule::Set));
    for key in KEYS {
        let key = key.as_bytes();
        let reads: &[(&[&[u8]], Rule)] = match key[0] {
            b's' | b'b' => &[(&[b"GET"], Rule::Exact)],
            b'h' => &[(&[b"HGETALL"], Rule::Pairs)],
            b'l' | b'q' => &[(&[b"LRANGE", b"0", b"-1"], Rule::Exact)],
            b't' => &[(&[b"SMEMBERS"], Rule::Set)],
            b'z' | b'y' | b'g' => &[(&[b"ZRANGE", b"0", b"-1", b"WITHSCORES"], Rule::Exact)],
            b'x' => &[
                (&[b"XINFO", b"STREAM", b"FULL", b"COUNT", b"0"], Rule::Info),
                (&[b"XRANGE", b"-", b"+"], Rule::Exact),
            ],
            b'p' => &[(&[b"PFCOUNT"], Rule::Exact)],
            _ => &[],
        };
        for (words, rule) in reads {
            let mut words: Vec<&[u8]> = words.to_vec();
            let at = if words[0] == b"XINFO" { 2 } else { 1 };
            words.insert(at, key);
            steps.push(Step::ask(0, &words, *rule));
        }
        steps.push(Step::ask(0, &[b"TYPE", key], Rule::Exact));
        steps.push(Step::ask(0, &[b"PEXPIRETIME", key], Rule::Time));
    }
}

struct Maker<'g> {
    grammar: &'g Grammar,
    themes: Vec<Theme>,
    ids: u64,
    steps: Vec<Step>,
}

impl Maker<'_> {
    fn step(&mut self, random: &mut StdRng) {
        if random.random_bool(TRANSACTIONS) {
            return self.transaction(random);
        }
        if random.random_bool(EXCHANGES) {
            return self.exchange(random);
        }
        let connection = usize::from(random.random_bool(OF_THE_SECOND));
        let step = self.request(random, connection);
        self.steps.push(step);
    }

    /// A value moves from each server to the other one.
    fn exchange(&mut self, random: &mut StdRng) {
        let from = KEYS.choose(random).expect("some").as_bytes();
        let alike: Vec<&[u8]> =
            KEYS.iter().map(|key| key.as_bytes()).filter(|key| key[0] == from[0]).collect();
        let to = alike.choose(random).expect("itself at least").to_vec();
        self.steps.push(Step::Exchange { from: from.to_vec(), to });
    }

    /// A transaction on the first connection, and what the second one does meanwhile.
    fn transaction(&mut self, random: &mut StdRng) {
        let meanwhile = |maker: &mut Self, random: &mut StdRng| {
            if random.random_bool(0.15) {
                let step = maker.request(random, 1);
                maker.steps.push(step);
            }
        };
        if random.random_bool(WATCHING) {
            // Groups of a stream end a transaction only in Myriad.
            let others: Vec<&str> = KEYS.into_iter().filter(|key| !key.starts_with('x')).collect();
            let keys: [&str; 2] = [0, 0].map(|_| *others.choose(random).expect("some"));
            let words = [b"WATCH", keys[0].as_bytes(), keys[1].as_bytes()];
            self.steps.push(Step::ask(0, &words, Rule::Exact));
            meanwhile(self, random);
            if random.random_bool(0.1) {
                self.steps.push(Step::ask(0, &[b"UNWATCH"], Rule::Exact));
            }
        }
        self.steps.push(Step::ask(0, &[b"MULTI"], Rule::Exact));
        for _ in 0..random.random_range(0..=TRANSACTION_MAX) {
            let step = self.request(random, 0);
            self.steps.push(step);
            meanwhile(self, random);
        }
        let end: &[u8] = if random.random_bool(0.1) { b"DISCARD" } else { b"EXEC" };
        self.steps.push(Step::ask(0, &[end], Rule::Exact));
    }

    /// Creates the consumer of a command first: Redis 7.0 does not always do that.
    fn create_consumers(&mut self, connection: usize, words: &[Word]) {
        let [command, _, group, consumer, ..] = words else { return };
        let creates = [&b"XREADGROUP"[..], b"XCLAIM", b"XAUTOCLAIM"];
        if !creates.iter().any(|name| command.bytes.eq_ignore_ascii_case(name)) {
            return;
        }
        for key in words.iter().filter(|word| word.is_key) {
            let words =
                [&b"XGROUP"[..], b"CREATECONSUMER", &key.bytes, &group.bytes, &consumer.bytes];
            self.steps.push(Step::ask(connection, &words, Rule::Exact));
        }
    }

    fn request(&mut self, random: &mut StdRng, connection: usize) -> Step {
        let theme = if random.random_bool(PREFERRED) {
            *self.themes.choose(random).expect("one at least")
        } else {
            *Theme::ALL.choose(random).expect("some")
        };
        let form = self.grammar.any(random, theme);
        let mut words = form.words(random, &mut self.ids);
        // A wrong cursor has no defined result, a part of a set is random, a mistake could make scores
        // different that must be equal, and 7.2 has another number of arguments.
        let is_undefined = matches!(form.rule, Rule::Scan | Rule::ScanPairs)
            || matches!(&words[0].bytes[..], b"SPOP" | b"SRANDMEMBER" | b"ZRANK" | b"ZREVRANK")
            || words[0].bytes == b"ZADD" && words[1].has_equal_scores();
        if !form.is_blocking && !is_undefined && random.random_bool(MISTAKEN) {
            mistake(random, &mut words);
        }
        let rule = form.rule;
        self.create_consumers(connection, &words);
        // Redis 7.0 refuses blocking commands in scripts.
        let is_scripted = !form.is_blocking && random.random_bool(SCRIPTED);
        let words = if is_scripted { scripted(random, words, rule) } else { words };
        let words = words.into_iter().map(|word| word.bytes).collect();
        Step::Ask { connection, words, rule }
    }
}

/// A mistake as clients make them. The command remains the same.
fn mistake(random: &mut StdRng, words: &mut Vec<Word>) {
    if words.len() < 2 {
        words.push(Word::plain(b"more"));
        return;
    }
    let at = random.random_range(1..words.len());
    match random.random_range(0..6) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[at].clone()),
        2 => words.push(Word::plain(b"more")),
        3 => words.truncate(at),
        4 => words[0].bytes.make_ascii_lowercase(),
        _ => {
            words[at].bytes =
                [&b""[..], b"-1", b"x", b"1.5", b"99"].choose(random).expect("some").to_vec();
        }
    }
}

/// The request as a script sends it.
fn scripted(random: &mut StdRng, words: Vec<Word>, rule: Rule) -> Vec<Word> {
    // A table of Lua has no order.
    let may_be_map = rule != Rule::Exact || words[0].bytes.starts_with(b"XREAD");
    let scripts = if may_be_map { &SCRIPTS[..SCRIPTS.len() - 1] } else { &SCRIPTS[..] };
    let script = scripts.choose(random).expect("some");
    let keys: Vec<Word> = words.iter().filter(|word| word.is_key).cloned().collect();
    let mut request = vec![Word::plain(b"EVAL"), Word::plain(script.as_bytes())];
    request.push(Word::plain(keys.len().to_string().as_bytes()));
    request.extend(keys);
    request.extend(words);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_sequence() {
        let grammar = Grammar::new();
        let first = steps(&grammar, 7, 200);
        assert_eq!(first, steps(&grammar, 7, 200));
        assert_ne!(first, steps(&grammar, 8, 200));
        assert!(first.len() > 200);
    }

    #[test]
    fn sequences_contain_everything() {
        let grammar = Grammar::new();
        let all: Vec<Step> = (0..30).flat_map(|seed| steps(&grammar, seed, 300)).collect();
        let has = |name: &[u8]| {
            all.iter().any(|step| matches!(step, Step::Ask { words, .. } if words[0] == name))
        };
        for name in [&b"HELLO"[..], b"WATCH", b"EXEC", b"DISCARD", b"EVAL", b"XADD", b"BLPOP"] {
            assert!(has(name), "{}", String::from_utf8_lossy(name));
        }
        assert!(all.iter().any(|step| matches!(step, Step::Exchange { .. })));
        assert!(all.iter().any(|step| matches!(step, Step::Ask { connection: 1, .. })));
    }
}

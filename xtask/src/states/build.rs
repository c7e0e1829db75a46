//! The states. Each is built by requests of ordinary clients; what the server refuses, because
//! another state has taken the memory or the connections, is not built.

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::line::{Line, Missing, Reply};
use super::subject::Subject;
use crate::cql::connection::Connection as CqlConnection;
use crate::resp::request;

/// An extreme state of a server.
pub(super) struct State {
    pub(super) name: &'static str,
    /// Options of the server.
    pub(super) options: &'static [&'static str],
    pub(super) build: fn(&mut Builder<'_>) -> Result<()>,
}

pub(super) static STATES: &[State] = &[
    state("functions", functions),
    state("scripts", scripts),
    state("users", users),
    state("groups", groups),
    state("subscriptions", subscriptions),
    state("long-keys", long_keys),
    state("transactions", transactions),
    state("watches", watches),
    State { options: &["--memory-limit", "256mb"], ..state("memory", memory) },
    State { options: &["--maxclients", "600"], ..state("clients", clients) },
    state("tracking", tracking),
    state("databases", databases),
    state("blocked", blocked),
    state("collections", collections),
    state("strings", strings),
    state("deep-values", deep_values),
    state("expiries", expiries),
    state("unread", unread),
    state("schemas", schemas),
    state("monitors", monitors),
];

const fn state(name: &'static str, build: fn(&mut Builder<'_>) -> Result<()>) -> State {
    State { name, options: &[], build }
}

/// Builds states of a server.
pub(super) struct Builder<'s> {
    subject: &'s Subject,
    random: &'s mut StdRng,
    /// Connections that are part of a state.
    pub(super) held: Vec<Line>,
    /// Requests that must be answered after a restart.
    pub(super) probes: Vec<Vec<String>>,
}

impl<'s> Builder<'s> {
    pub(super) fn new(subject: &'s Subject, random: &'s mut StdRng) -> Builder<'s> {
        Builder { subject, random, held: Vec::new(), probes: Vec::new() }
    }

    fn one_of(&mut self, numbers: &[usize]) -> usize {
        *numbers.choose(self.random).expect("some")
    }

    fn line(&self) -> Result<Line> {
        Line::open(&self.subject.address)
    }

    /// Sends requests on a connection of their own. Returns how many were refused. A server that
    /// accepts no more clients refuses the state.
    fn ask(&mut self, requests: impl IntoIterator<Item = Vec<Vec<u8>>>) -> Result<u64> {
        let requests: Vec<Vec<u8>> = requests.into_iter().map(|words| request(&words)).collect();
        unless_closed(self.line()?.ask_all(&requests))
    }

    /// Sends requests on a connection that remains, and reads as many replies. A server that closes
    /// the connection refuses the state.
    fn hold(&mut self, requests: &[Vec<Vec<u8>>], replies: usize) -> Result<()> {
        let mut line = self.line()?;
        for words in requests {
            if line.send(&request(words)).is_err() {
                return Ok(());
            }
        }
        for _ in 0..replies {
            match line.read() {
                Ok(Reply::Error(_)) => break,
                Ok(_) => {}
                Err(Missing::Closed) => return Ok(()),
                Err(Missing::Failed(error)) => return Err(error),
            }
        }
        self.held.push(line);
        Ok(())
    }
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command with many arguments that differ by their number.
fn many(
    head: &str,
    count: usize,
    argument: impl Fn(usize) -> Vec<String>,
) -> impl Iterator<Item = Vec<Vec<u8>>> {
    const ARGUMENTS_MAX: usize = 1_000;
    let head = words(head);
    (0..count).step_by(ARGUMENTS_MAX).map(move |start| {
        let numbers = start..count.min(start + ARGUMENTS_MAX);
        let arguments = numbers.flat_map(&argument).map(String::into_bytes);
        head.iter().cloned().chain(arguments).collect()
    })
}

/// Libraries near the limits of Lua's stacks and of the server.
fn functions(builder: &mut Builder<'_>) -> Result<()> {
    const PER_LIBRARY: usize = 500;
    let count = builder.one_of(&[7_400, 7_900, 20_000, 65_000]);
    let libraries = (0..count.div_ceil(PER_LIBRARY)).map(|library| {
        let functions = PER_LIBRARY.min(count - library * PER_LIBRARY);
        let text = format!(
            "#!lua name=l{library}\nfor i = 1, {functions} do \
             redis.register_function('f{library}_' .. i, function(keys, args) \
             return args[1] or i end) end"
        );
        vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), text.into_bytes()]
    });
    let refused = builder.ask(libraries)?;
    let calls: Vec<String> =
        (0..count / PER_LIBRARY).map(|library| format!("FCALL f{library}_1 0")).collect();
    // Each reactor loads the libraries whose functions it runs.
    for _ in 0..2 {
        builder.ask(calls.iter().map(|text| words(text)))?;
    }
    if refused == 0 {
        let probes = calls.iter().map(|text| text.split(' ').map(str::to_owned).collect());
        builder.probes.extend(probes);
    }
    Ok(())
}

fn scripts(builder: &mut Builder<'_>) -> Result<()> {
    let scripts = (0..3_000).flat_map(|number| {
        let text = format!("return 'script' .. {number}").into_bytes();
        [
            vec![b"SCRIPT".to_vec(), b"LOAD".to_vec(), text.clone()],
            vec![b"EVAL".to_vec(), text, b"0".to_vec()],
        ]
    });
    builder.ask(scripts).map(drop)
}

fn users(builder: &mut Builder<'_>) -> Result<()> {
    let users = (0..3_000)
        .map(|n| words(&format!("ACL SETUSER u{n} on nopass ~k{n}:* &c{n}* +@all -@dangerous")));
    builder.ask(users).map(drop)
}

fn groups(builder: &mut Builder<'_>) -> Result<()> {
    let entries = (0..2_000).map(|n| words(&format!("XADD big:stream * field {n}")));
    let groups = (0..1_000).map(|n| words(&format!("XGROUP CREATE big:stream g{n} 0")));
    let consumers = (0..3_000).map(|n| {
        let group = n % 100;
        words(&format!("XREADGROUP GROUP g{group} c{n} COUNT 20 STREAMS big:stream >"))
    });
    builder.ask(entries.chain(groups).chain(consumers)).map(drop)
}

fn subscriptions(builder: &mut Builder<'_>) -> Result<()> {
    const CHANNELS: usize = 20_000;
    const PATTERNS: usize = 2_000;
    let channels: Vec<_> =
        many("SUBSCRIBE", CHANNELS, |number| vec![format!("c{number}")]).collect();
    builder.hold(&channels, CHANNELS)?;
    let patterns: Vec<_> =
        many("PSUBSCRIBE", PATTERNS, |number| vec![format!("[ck]*{number}")]).collect();
    builder.hold(&patterns, PATTERNS)?;
    for number in 0..100 {
        builder.hold(&[words(&format!("SSUBSCRIBE c{number}"))], 1)?;
    }
    Ok(())
}

fn long_keys(builder: &mut Builder<'_>) -> Result<()> {
    let lengths = [1_000, 65_535, 65_536, 200_000, 1_000_000];
    let commands = ["SET value", "RPUSH a", "SADD a", "HSET f v", "ZADD 1 a", "XADD * f v"];
    let requests = lengths.into_iter().flat_map(|length| {
        commands.iter().enumerate().map(move |(number, command)| {
            let name = format!("{number}{}", "k".repeat(length));
            let mut request = words(command);
            request.insert(1, name.into_bytes());
            request
        })
    });
    builder.ask(requests).map(drop)
}

fn transactions(builder: &mut Builder<'_>) -> Result<()> {
    let count = builder.one_of(&[1_000, 20_000, 100_000]);
    let queued = (0..count).map(|number| words(&format!("SET queued{} {number}", number % 100)));
    let requests: Vec<_> = [words("MULTI")].into_iter().chain(queued).collect();
    // Unread replies would stop the server from reading.
    let mut line = builder.line()?;
    let requests: Vec<_> = requests.iter().map(|words| request(words)).collect();
    unless_closed(line.ask_all(&requests))?;
    builder.held.push(line);
    Ok(())
}

fn watches(builder: &mut Builder<'_>) -> Result<()> {
    const KEYS: usize = 50_000;
    let watches: Vec<_> = many("WATCH", KEYS, |number| vec![format!("k{number}")]).collect();
    for _ in 0..5 {
        builder.hold(&watches, watches.len())?;
    }
    Ok(())
}

/// Nearly all memory of `memory-limit`.
fn memory(builder: &mut Builder<'_>) -> Result<()> {
    const VALUES_MAX: usize = 2_000;
    let value = vec![b'x'; 256 << 10];
    let mut line = builder.line()?;
    for number in 0..VALUES_MAX {
        let key = format!("fill{number}").into_bytes();
        let set = request(&[b"SET".to_vec(), key, value.clone()]);
        match line.ask_all(&[set]) {
            Ok(0) => {}
            Ok(_) | Err(Missing::Closed) => return Ok(()),
            Err(Missing::Failed(error)) => return Err(error),
        }
    }
    bail!("the memory limit was not reached")
}

/// All connections that `maxclients` permits, except for a few.
fn clients(builder: &mut Builder<'_>) -> Result<()> {
    const CLIENTS: usize = 560;
    while builder.held.len() < CLIENTS {
        let held = builder.held.len();
        builder.hold(&[words(&format!("CLIENT SETNAME client{held}"))], 1)?;
        if builder.held.len() == held {
            break;
        }
    }
    Ok(())
}

fn tracking(builder: &mut Builder<'_>) -> Result<()> {
    const KEYS: usize = 50_000;
    for options in ["", " BCAST PREFIX k PREFIX big"] {
        let track = [words("HELLO 3"), words(&format!("CLIENT TRACKING ON{options}"))];
        let reads = many("MGET", KEYS, |number| vec![format!("k{number}")]);
        let requests: Vec<_> = track.into_iter().chain(reads).collect();
        builder.hold(&requests, requests.len())?;
    }
    let prefixes = (0..500).flat_map(|number| words(&format!("PREFIX p{number}:")));
    let track = words("CLIENT TRACKING ON BCAST").into_iter().chain(prefixes).collect();
    builder.hold(&[words("HELLO 3"), track], 2)
}

fn databases(builder: &mut Builder<'_>) -> Result<()> {
    let requests = (0..16).flat_map(|db| {
        let keys = (0..500).map(|number| words(&format!("SET k{number} v")));
        [words(&format!("SELECT {db}"))].into_iter().chain(keys)
    });
    builder.ask(requests).map(drop)
}

fn blocked(builder: &mut Builder<'_>) -> Result<()> {
    let keys: Vec<String> = (0..30).map(|number| format!("wait{number}")).collect();
    let keys = keys.join(" ");
    for number in 0..200 {
        let request = match number % 4 {
            0 => format!("BLPOP {keys} 0"),
            1 => format!("BZPOPMIN {keys} 0"),
            2 => "XREAD BLOCK 0 STREAMS wait30 $".to_owned(),
            _ => format!("BLMOVE wait{} wait{} LEFT RIGHT 0", number % 30, (number + 1) % 30),
        };
        builder.hold(&[words(&request)], 0)?;
    }
    Ok(())
}

fn collections(builder: &mut Builder<'_>) -> Result<()> {
    let count = builder.one_of(&[10_000, 100_000, 300_000]);
    let one = |number: usize| vec![format!("e{number}")];
    let requests = many("RPUSH big:list", count, one)
        .chain(many("SADD big:set", count, one))
        .chain(many("HSET big:hash", count, |n| vec![format!("f{n}"), n.to_string()]))
        .chain(many("ZADD big:zset", count, |n| vec![n.to_string(), format!("e{n}")]))
        .chain(many("PFADD big:log", count, one));
    builder.ask(requests).map(drop)
}

fn strings(builder: &mut Builder<'_>) -> Result<()> {
    let bytes = builder.one_of(&[1 << 20, 8 << 20, 60 << 20]);
    let requests = [
        format!("SETRANGE big:string {bytes} x"),
        format!("SETBIT big:bits {} 1", bytes * 8),
        format!("BITFIELD big:bits SET u8 {} 255", bytes / 2),
    ];
    builder.ask(requests.iter().map(|text| words(text))).map(drop)
}

/// Texts that are deep when scripts read them.
fn deep_values(builder: &mut Builder<'_>) -> Result<()> {
    let depth = builder.one_of(&[500, 1_000, 1_001, 100_000]);
    let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let object = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)).into_bytes();
    let packed = [vec![0x91; depth], vec![0x90]].concat();
    let maps = [[0x81, 0x01].repeat(depth), vec![0xC0]].concat();
    let values = [("deep:json", json), ("deep:object", object), ("deep:pack", packed)];
    let values = values.into_iter().chain([("deep:maps", maps)]);
    let requests = values.map(|(name, value)| vec![b"SET".to_vec(), name.into(), value]);
    builder.ask(requests).map(drop)
}

fn expiries(builder: &mut Builder<'_>) -> Result<()> {
    let times: Vec<u32> = (0..20_000).map(|_| builder.random.random_range(1..4_000)).collect();
    let requests = times.iter().enumerate().flat_map(|(number, ms)| {
        let field = number % 5_000;
        [
            words(&format!("SET k{number} v PX {ms}")),
            words(&format!("HSET big:fields f{field} v")),
            words(&format!("HPEXPIRE big:fields {ms} FIELDS 1 f{field}")),
        ]
    });
    builder.ask(requests).map(drop)
}

/// Clients that do not read what they asked for.
fn unread(builder: &mut Builder<'_>) -> Result<()> {
    let value = vec![b'y'; 1 << 20];
    builder.ask([vec![b"SET".to_vec(), b"big:value".to_vec(), value]])?;
    let requests = vec![words("GET big:value"); 4];
    for _ in 0..20 {
        builder.hold(&requests, 0)?;
    }
    Ok(())
}

/// Tables, types and indexes of CQL, with rows.
fn schemas(builder: &mut Builder<'_>) -> Result<()> {
    const TABLES: usize = 100;
    let mut cql = CqlConnection::open(&builder.subject.cql_address).context("open CQL")?;
    let mut statements = vec![
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 1}"
            .to_owned(),
    ];
    for number in 0..TABLES {
        statements.push(format!("CREATE TYPE k.u{number} (a int, b frozen<list<text>>)"));
        statements.push(format!(
            "CREATE TABLE k.t{number} (k int, c int, v text, m map<text, int>, u u{number}, \
             PRIMARY KEY (k, c))"
        ));
        statements.push(format!("CREATE INDEX i{number} ON k.t{number} (v)"));
        for row in 0..10 {
            statements.push(format!(
                "INSERT INTO k.t{number} (k, c, v, m) VALUES (1, {row}, 'v', {{'a': {row}}})"
            ));
        }
    }
    for statement in &statements {
        if let Err(error) = cql.must(statement) {
            // A full server refuses schemas.
            let text = format!("{error:#}");
            return if text.contains("memory") { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

fn monitors(builder: &mut Builder<'_>) -> Result<()> {
    let settings = [
        "CONFIG SET notify-keyspace-events KEA",
        "CONFIG SET slowlog-log-slower-than 0",
        "CONFIG SET latency-monitor-threshold 1",
    ];
    builder.ask(settings.iter().map(|text| words(text)))?;
    for _ in 0..5 {
        builder.hold(&[words("MONITOR")], 1)?;
        builder.hold(&[words("PSUBSCRIBE __key*")], 1)?;
    }
    Ok(())
}

/// A connection that is closed takes no part in the state. If the server has failed, the
/// second client finds out.
fn unless_closed(asked: Result<u64, Missing>) -> Result<u64> {
    match asked {
        Ok(refused) => Ok(refused),
        Err(Missing::Closed) => Ok(0),
        Err(Missing::Failed(error)) => Err(error),
    }
}

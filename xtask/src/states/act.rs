//! Random requests: commands of the server's own list with edge values, alone, in transactions and
//! in scripts; scripts that need much of what Lua has; functions.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::Counts;
use super::line::{Line, Missing, Reply, show};
use super::subject::Subject;
use crate::resp::{Connection, Value, request};

/// What these do is that the server ends, stops, changes its role, or answers in another form; or
/// that they end the bystander.
const EXCLUDED: &[&str] = &[
    "add",
    "auth",
    "client|kill",
    "client|pause",
    "client|reply",
    "config|set",
    "debug",
    "failover",
    "hub",
    "migrate",
    "monitor",
    "psubscribe",
    "psync",
    "remove",
    "replconf",
    "replicaof",
    "shutdown",
    "slaveof",
    "ssubscribe",
    "subscribe",
    "sync",
    "transfer",
    "wait",
    "waitaof",
];

/// These remove states: they run rarely.
const REMOVING: &[&str] = &["flushall", "flushdb", "function|delete", "function|flush", "swapdb"];
const REMOVES: f64 = 0.01;

const KEYS: &[&str] = &[
    "k1",
    "k2",
    "k7",
    "k100",
    "big:stream",
    "big:list",
    "big:set",
    "big:hash",
    "big:zset",
    "big:log",
    "big:string",
    "big:bits",
    "big:fields",
    "big:value",
    "deep:json",
    "deep:object",
    "deep:pack",
    "wait0",
    "wait1",
    "wait30",
    "queued1",
    "fill1",
    "fill2",
    "none",
];

const EDGES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "1000000",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e300",
    "nan",
    "inf",
    "-inf",
    "1.5",
    "x",
    "a",
    "*",
    "[",
    "?*",
    "-",
    "+",
    "(1",
    "[a",
    "$",
    ">",
    "0-0",
    "1-1",
    "#",
    "\r\n",
    "\0",
    "u1",
    "g1",
    "c1",
    "c20",
    "f0_1",
    "l0",
    "e1",
    "f1",
    "lib",
];

const OPTIONS: &[&str] = &[
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "KEEPTTL",
    "MATCH",
    "TYPE",
    "BLOCK",
    "STREAMS",
    "GROUP",
    "STORE",
    "BY",
    "GET",
    "ASC",
    "ALPHA",
    "WEIGHTS",
    "AGGREGATE",
    "LEFT",
    "RIGHT",
    "FIELDS",
    "REPLACE",
    "IDLE",
    "JUSTID",
    "MAXLEN",
    "MINID",
    "~",
    "=",
    "REV",
    "BYSCORE",
    "BYLEX",
    "ANY",
    "FROMMEMBER",
    "BYRADIUS",
    "m",
    "ABSTTL",
    "DB",
    "SYNC",
    "ASYNC",
    "ON",
    "OFF",
    "BCAST",
    "PREFIX",
    "WITHCODE",
    "WITHVALUES",
    "u8",
    "i64",
    "SET",
    "INCRBY",
    "FULL",
];

/// Scripts. `D` is a depth, `N` a count.
const SCRIPTS: &[&str] = &[
    "local t = setmetatable({}, {}) for i = 1, D do t = {t} end return #cjson.encode(t)",
    "for d = 1, D do local t = setmetatable({}, {}) for i = 1, d do t = {t} end \
     pcall(cjson.encode, t) end return 1",
    "local t = {} for i = 1, D do t = {a = t, b = {}} end return #cjson.encode(t)",
    "local t = {} for i = 1, D do t = {t} end return t",
    "local t = {} for i = 1, D do t = {t, t and 1} end return #cmsgpack.pack(t)",
    "return cjson.encode(cjson.decode(redis.call('get', 'deep:json')))",
    "return cjson.encode(cjson.decode(redis.call('get', 'deep:object')))",
    "return type(cmsgpack.unpack(redis.call('get', 'deep:pack')))",
    "return type(cmsgpack.unpack(redis.call('get', 'deep:maps')))",
    "return #cjson.encode(string.rep('\\0', N * 100))",
    "return #cmsgpack.pack(string.rep('x', N * 100))",
    "return #cjson.decode('\"' .. string.rep('x', N * 100) .. '\"')",
    "return #struct.pack('c0', string.rep('x', N * 100))",
    "local t = {} for i = 1, N do t[i] = i end return {unpack(t)}",
    "local t = {} for i = 1, N do t[i] = 'x' .. i end return redis.call('rpush', 'k7', unpack(t))",
    "local t = {} for i = 1, N do t[i] = 'x' .. i end return redis.sha1hex(unpack(t))",
    "local t = {} for i = 1, N do t[i] = 'x' .. i end return redis.log(0, unpack(t))",
    "local t = {} for i = 1, N do t[i] = 'x' .. i end return #cmsgpack.pack(unpack(t))",
    "local t = {} for i = 1, N do t[i] = 'x' .. i end return cjson.encode(unpack(t))",
    "local t = {} for i = 1, N do t[i] = {} end return #cjson.encode(t)",
    "local t = {} for i = 1, N do t[i] = i end return bit.bor(unpack(t))",
    "local function f(n) if n == 0 then return redis.call('get', 'k1') end return (f(n - 1)) end \
     return f(N)",
    "local function f(n) if n == 0 then return cjson.encode({}) end \
     return (string.gsub('x', 'x', function() return f(n - 1) end)) end return f(D)",
    "local function f(n) if n == 0 then return {} end \
     return coroutine.wrap(function() return f(n - 1) end)() end return f(D)",
    "local t = {} for i = 1, N do t[i] = coroutine.create(function() coroutine.yield(i) end) \
     coroutine.resume(t[i]) end return #t",
    "local t = {} for i = 1, N do t[i] = cjson.new() if i > 50 then break end end return #t",
    "for i = 1, N do pcall(error, {err = 'x' .. i}) end return redis.error_reply('x')",
    "error(setmetatable({}, {__tostring = function() return 'x' end}))",
    "error(string.rep('x', N * 10))",
    "return string.rep('x', N * 1000)",
    "local s = string.rep('x', N) return {string.gsub(s, '(x)(x)', '%2%1')}",
    "return {redis.pcall('keys', '*'), redis.pcall('scan', 0, 'count', N)}",
    "return redis.pcall('lrange', 'big:list', 0, N)",
    "return redis.pcall('hgetall', 'big:hash')",
    "redis.setresp(3) return {redis.pcall('hgetall', 'big:hash'), redis.pcall('zrange', 'big:zset', \
     0, N, 'withscores')}",
    "return {redis.pcall('publish', 'c1', string.rep('m', N)), redis.pcall('spublish', 'c1', 'm')}",
    "return {loadstring('return ' .. string.rep('{', D) .. string.rep('}', D))()}",
    "local t = {} for i = 1, N do table.insert(t, 1, i) if i > 3000 then break end end \
     table.sort(t) return table.concat(t, ',')",
];

const DEPTHS: &[usize] = &[1, 16, 17, 99, 198, 200, 500, 990, 999, 1_000, 1_001];
const COUNTS: &[usize] = &[0, 1, 10, 1_000, 3_999, 4_000, 7_980, 7_996, 7_999, 8_000, 20_000];

/// Attempts to connect to a server that has nearly as many connections as it permits.
const CONNECTS_MAX: usize = 200;
const CONNECT_POLL: Duration = Duration::from_millis(5);

/// A command of the server.
#[derive(Debug, Clone)]
struct Command {
    name: String,
    arity: i64,
    is_blocking: bool,
}

/// A client that acts.
#[derive(Debug)]
pub(super) struct Actor {
    line: Line,
    commands: Vec<Command>,
    /// Number of the text that ends a batch.
    batch: u64,
}

impl Actor {
    pub(super) fn new(subject: &Subject) -> Result<Actor> {
        let commands = list_commands(&subject.address)?;
        Ok(Actor { line: connect(subject)?, commands, batch: 0 })
    }

    pub(super) fn knows_commands(&self) -> bool {
        self.commands.len() > 200
    }

    /// Sends a batch of requests, and reads all replies.
    pub(super) fn act(
        &mut self,
        subject: &Subject,
        random: &mut StdRng,
        counts: &mut Counts,
    ) -> Result<()> {
        let requests = self.batch(random);
        let shown = requests.iter().map(|words| show(words)).collect::<Vec<_>>().join("\n  ");
        match self.exchange(&requests, counts) {
            Ok(()) => Ok(()),
            Err(Missing::Closed) => {
                self.line = connect(subject).with_context(|| format!("after\n  {shown}"))?;
                Ok(())
            }
            Err(Missing::Failed(error)) => Err(error.context(format!("one of\n  {shown}"))),
        }
    }

    fn exchange(&mut self, requests: &[Vec<Vec<u8>>], counts: &mut Counts) -> Result<(), Missing> {
        /// Replies of a batch, with the messages in between.
        const REPLIES_MAX: usize = 1_000_000;
        self.batch += 1;
        let token = format!("end of batch {}", self.batch).into_bytes();
        let mut bytes: Vec<u8> = requests.iter().flat_map(|words| request(words)).collect();
        bytes.extend(request(&[b"DISCARD"])); // an open transaction would queue the last one
        bytes.extend(request(&[b"ECHO".to_vec(), token.clone()]));
        let sent = self.line.send(&bytes);
        sent.map_err(Missing::of)?;
        for _ in 0..REPLIES_MAX {
            match self.line.read()? {
                Reply::Text(text) if text == token => return Ok(()),
                Reply::Error(_) => counts.errors += 1,
                _ => {}
            }
            counts.requests += 1;
        }
        Err(Missing::Failed(anyhow::anyhow!("the replies do not end")))
    }

    fn batch(&self, random: &mut StdRng) -> Vec<Vec<Vec<u8>>> {
        let length = random.random_range(1..30);
        match random.random_range(0..100) {
            0..45 => (0..length).map(|_| self.command(random, false)).collect(),
            45..60 => {
                let queued = (0..length).map(|_| self.command(random, true));
                let ends = [vec![b"MULTI".to_vec()], vec![b"EXEC".to_vec()]];
                let [begin, end] = ends;
                [begin].into_iter().chain(queued).chain([end]).collect()
            }
            60..70 => (0..length)
                .map(|_| {
                    let text: &[u8] = b"return redis.pcall(unpack(ARGV))";
                    let head = [&b"EVAL"[..], text, b"0"].map(<[u8]>::to_vec);
                    head.into_iter().chain(self.command(random, true)).collect()
                })
                .collect(),
            70..88 => (0..random.random_range(1..8)).map(|_| script(random)).collect(),
            _ => (0..length).map(|_| function(random)).collect(),
        }
    }

    /// A random command. `waits_not`: where it does not wait for its keys.
    fn command(&self, random: &mut StdRng, waits_not: bool) -> Vec<Vec<u8>> {
        loop {
            let command = self.commands.choose(random).expect("some");
            let is_rare = REMOVING.contains(&command.name.as_str());
            if (command.is_blocking && !waits_not) || (is_rare && !random.random_bool(REMOVES)) {
                continue;
            }
            let mut words: Vec<Vec<u8>> =
                command.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
            let least = usize::try_from(command.arity.unsigned_abs()).unwrap_or(1);
            let more = if command.arity < 0 { random.random_range(0..6) } else { 0 };
            while words.len() < least + more {
                words.push(word(random));
            }
            return words;
        }
    }
}

fn word(random: &mut StdRng) -> Vec<u8> {
    let pool = match random.random_range(0..10) {
        0..5 => KEYS,
        5..8 => EDGES,
        _ => OPTIONS,
    };
    let text = pool.choose(random).expect("some").as_bytes().to_vec();
    if random.random_bool(0.01) { text.repeat(1_000) } else { text }
}

fn script(random: &mut StdRng) -> Vec<Vec<u8>> {
    let text = SCRIPTS.choose(random).expect("some");
    let depth = DEPTHS.choose(random).expect("some").to_string();
    let count = COUNTS.choose(random).expect("some").to_string();
    let text = replace_word(&replace_word(text, 'D', &depth), 'N', &count);
    let command = if random.random_bool(0.2) { "EVAL_RO" } else { "EVAL" };
    vec![command.into(), text.into_bytes(), b"0".to_vec()]
}

/// Replaces a letter that is a word of its own.
fn replace_word(text: &str, letter: char, by: &str) -> String {
    let is_part = |neighbour: Option<char>| neighbour.is_some_and(char::is_alphanumeric);
    let mut replaced = String::new();
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        if next == letter && !is_part(before) && !is_part(rest.peek().copied()) {
            replaced.push_str(by);
        } else {
            replaced.push(next);
        }
        before = Some(next);
    }
    replaced
}

fn function(random: &mut StdRng) -> Vec<Vec<u8>> {
    // Libraries with low numbers exist in all rounds.
    let libraries = if random.random_bool(0.5) { 15 } else { 130 };
    let (library, number) = (random.random_range(0..libraries), random.random_range(1..=500));
    let text = match random.random_range(0..40) {
        0 => "FUNCTION DUMP".to_owned(),
        1 => "FUNCTION LIST".to_owned(),
        2 => "FUNCTION STATS".to_owned(),
        3 => "FUNCTION DELETE lib".to_owned(),
        4 => "FUNCTION RESTORE x REPLACE".to_owned(),
        5 => {
            let text = format!(
                "#!lua name=lib\nredis.register_function('lib{number}', function() \
                 return cjson.encode({{}}) end)"
            );
            let words = ["FUNCTION", "LOAD", "REPLACE", &text];
            return words.map(|word| word.as_bytes().to_vec()).to_vec();
        }
        6 => "FCALL_RO lib1 0".to_owned(),
        _ => format!("FCALL f{library}_{number} 0"),
    };
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn connect(subject: &Subject) -> Result<Line> {
    let mut last = None;
    for _ in 0..CONNECTS_MAX {
        let connected = Line::open(&subject.address).and_then(|mut line| {
            line.ask(&["PING"])?;
            Ok(line)
        });
        match connected {
            Ok(line) => return Ok(line),
            Err(error) => last = Some(error),
        }
        thread::sleep(CONNECT_POLL);
    }
    Err(last.context("no attempt was made")?)
}

fn list_commands(address: &str) -> Result<Vec<Command>> {
    let mut connection = Connection::open(address)?;
    let Value::Array(Some(names)) = connection.call(&["COMMAND", "LIST"])? else {
        bail!("COMMAND LIST is not an array")
    };
    let mut commands = Vec::new();
    for name in names {
        let name = text(&name)?;
        let is_excluded =
            |excluded: &&str| name == **excluded || name.split('|').next() == Some(excluded);
        if EXCLUDED.iter().any(is_excluded) {
            continue;
        }
        let Value::Array(Some(found)) = connection.call(&["COMMAND", "INFO", &name])? else {
            bail!("COMMAND INFO is not an array")
        };
        let Some(Value::Array(Some(fields))) = found.first() else { continue };
        let (Some(Value::Scalar(arity)), Some(Value::Array(Some(flags)))) =
            (fields.get(1), fields.get(2))
        else {
            bail!("COMMAND INFO {name}: {found:?}")
        };
        let arity = arity.trim_start_matches(':').parse()?;
        let is_blocking = flags.iter().any(|flag| text(flag).is_ok_and(|flag| flag == "blocking"));
        commands.push(Command { name, arity, is_blocking });
    }
    Ok(commands)
}

fn text(value: &Value) -> Result<String> {
    match value {
        Value::Simple(text) | Value::Bulk(Some(text)) => Ok(String::from_utf8(text.clone())?),
        other => bail!("no text: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_scripts_are_replaced() {
        assert_eq!(
            replace_word("for d = 1, D do N(D) end DN", 'D', "7"),
            "for d = 1, 7 do N(7) end DN"
        );
    }
}

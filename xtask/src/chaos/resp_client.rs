//! A writer by the Redis protocol.

use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use rand::Rng;
use rand::rngs::SmallRng;

use super::client::{Account, Client, Unavailable};
use crate::resp::{Connection, Value};

/// Shared keys of each type.
const KEYS: u32 = 50;
/// More than a socket's buffer takes.
const BIG_BYTES: usize = 300_000;
/// Characters of a request that are shown.
const SHOWN_CHARS_MAX: usize = 100;

/// First words of the errors of a server that is unavailable for a while.
const UNAVAILABLE: [&str; 4] = ["READONLY", "LOADING", "NOREPLICAS", "TRYAGAIN"];
/// Precedes the error that made EXEC discard a transaction.
const DISCARDED: &str = "EXECABORT Transaction discarded because of: ";

pub(super) struct RespClient {
    connection: Connection,
    number: u64,
}

impl RespClient {
    pub(super) fn open(address: &str, account: Account, timeout: Duration) -> Result<Self> {
        let connection = Connection::open_within(address, timeout)?;
        let mut client = Self { connection, number: account.number };
        client.call(&format!("CLIENT DURABILITY {}", account.durability))?;
        Ok(client)
    }

    fn call(&mut self, request: &str) -> Result<Value> {
        let words: Vec<&str> = request.split_whitespace().collect();
        match self.connection.call(&words)? {
            Value::Error(text) => Err(error_of(&text).context(shown(request))),
            reply => Ok(reply),
        }
    }

    fn read(&mut self, request: &str) -> Result<Option<u64>> {
        match self.call(request)? {
            Value::Bulk(None) => Ok(None),
            Value::Bulk(Some(text)) => Ok(Some(number(&text)?)),
            other => bail!("{request} is answered {other:?}"),
        }
    }

    /// Runs commands in a transaction.
    fn run_together(&mut self, requests: &[String]) -> Result<()> {
        self.call("MULTI")?;
        for request in requests {
            self.call(request)?;
        }
        match self.call("EXEC")? {
            Value::Array(Some(replies)) if replies.len() == requests.len() => {
                let mut errors = replies.iter().filter_map(|reply| match reply {
                    Value::Error(text) => Some(error_of(text).context("in a transaction")),
                    _ => None,
                });
                errors.try_for_each(Err)
            }
            other => bail!("EXEC is answered {other:?}"),
        }
    }
}

fn error_of(text: &[u8]) -> Error {
    let text = String::from_utf8_lossy(text).into_owned();
    let reason = text.strip_prefix(DISCARDED).unwrap_or(&text);
    if UNAVAILABLE.iter().any(|word| reason.starts_with(word)) {
        return Unavailable(text).into();
    }
    anyhow!(text)
}

/// The start of a request, which may be long.
fn shown(request: &str) -> String {
    request.chars().take(SHOWN_CHARS_MAX).collect()
}

fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text)?;
    text.parse().with_context(|| format!("{text:?} is not a number"))
}

impl Client for RespClient {
    fn set(&mut self, register: u64, value: u64) -> Result<()> {
        let writer = self.number;
        let request = match register % 3 {
            0 => format!("SET w{writer}:s{register} {value}"),
            1 => format!("HSET w{writer}:h f{register} {value}"),
            _ => format!(
                "EVAL return(redis.call('HSET',KEYS[1],ARGV[1],ARGV[2])) 1 w{writer}:h f{register} \
                 {value}"
            ),
        };
        self.call(&request).map(drop)
    }

    fn get(&mut self, register: u64) -> Result<Option<u64>> {
        let writer = self.number;
        match register % 3 {
            0 => self.read(&format!("GET w{writer}:s{register}")),
            _ => self.read(&format!("HGET w{writer}:h f{register}")),
        }
    }

    fn append(&mut self, list: u64, value: u64) -> Result<()> {
        self.call(&format!("RPUSH w{}:l{list} {value}", self.number)).map(drop)
    }

    fn list(&mut self, list: u64) -> Result<Vec<u64>> {
        let Value::Array(Some(items)) =
            self.call(&format!("LRANGE w{}:l{list} 0 -1", self.number))?
        else {
            bail!("LRANGE does not return an array")
        };
        let item = |item| match item {
            Value::Bulk(Some(text)) => number(&text),
            other => bail!("an element is {other:?}"),
        };
        items.into_iter().map(item).collect()
    }

    fn increment(&mut self) -> Result<()> {
        self.call(&format!("INCR w{}:n", self.number)).map(drop)
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.read(&format!("GET w{}:n", self.number))?.unwrap_or(0))
    }

    fn set_pair(&mut self, value: u64) -> Result<()> {
        let writer = self.number;
        let halves = ["a", "b"].map(|half| format!("SET w{writer}:{half} {value}"));
        self.run_together(&halves)
    }

    fn pair(&mut self) -> Result<[Option<u64>; 2]> {
        let writer = self.number;
        Ok([self.read(&format!("GET w{writer}:a"))?, self.read(&format!("GET w{writer}:b"))?])
    }

    fn change_shared(&mut self, random: &mut SmallRng) -> Result<()> {
        if random.random_bool(0.05) {
            let (key, letter) = (random.random_range(0..KEYS / 10), self.number.to_string());
            let value = letter.repeat(BIG_BYTES);
            return self.call(&format!("SET big{key} {value}")).map(drop);
        }
        if random.random_bool(0.9) {
            let request = shared_request(random, self.number);
            return self.call(&request).map(drop);
        }
        self.call("SELECT 3")?;
        let is_flush = random.random_bool(0.02);
        let request =
            if is_flush { "FLUSHDB".to_owned() } else { shared_request(random, self.number) };
        self.call(&request)?;
        self.call("SELECT 0").map(drop)
    }
}

fn shared_request(random: &mut SmallRng, writer: u64) -> String {
    let (key, value) = (random.random_range(0..KEYS), random.random_range(0..1_000_000));
    match random.random_range(0..14) {
        0 => format!("SET s{key} {writer}-{value}"),
        1 => format!("SET s{key} {writer}-{value} PX {}", random.random_range(1..3000)),
        2 => format!("APPEND s{key} {value}"),
        3 => format!("SET s{key} {value} EX 1000000"),
        4 => format!("RPUSH l{key} {value}"),
        5 => format!("LTRIM l{key} -20 -1"),
        6 => format!("HSET h{key} f{} {value}", value % 50),
        7 => format!("ZADD z{key} {value} m{}", value % 50),
        8 => format!("SADD t{key} {}", value % 100),
        9 => format!("XADD x{key} MAXLEN 20 * f {value}"),
        10 => format!("DEL s{key} l{key} h{key}"),
        11 => format!("SPOP t{key}"),
        12 => format!("HPEXPIRE h{key} {} FIELDS 1 f{}", value % 3000, value % 50),
        _ => format!("COPY l{key} l{} REPLACE", (key + random.random_range(1..KEYS)) % KEYS),
    }
}

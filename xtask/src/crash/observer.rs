//! A client that only reads what others write: everything it has seen must survive.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Bytes;
use super::generate::{Published, SHARED_COUNTERS};
use super::op::counter_key;
use super::verify::number_of;
use super::writer::{Fault, judge_end};
use crate::resp::{Connection, Value, request};

/// Reads sent before their replies are read.
const DEPTH_MAX: usize = 8;

/// One read.
#[derive(Debug)]
enum Read {
    /// All keys of one MSET, by one MGET.
    Together(usize),
    /// All keys of one transaction, by one transaction.
    InTransaction(usize),
    /// One published key.
    One(usize, Published),
    Counter(usize),
}

/// A reader and the highest version that it saw in each key.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) name: String,
    /// The prefixes of the clients that it watches.
    targets: Vec<String>,
    pub(crate) seen: BTreeMap<Bytes, i64>,
    /// Reads in this round.
    pub(crate) reads: u64,
}

impl Observer {
    pub(crate) fn new(name: String, targets: Vec<String>) -> Self {
        Self { name, targets, seen: BTreeMap::new(), reads: 0 }
    }

    /// Reads until the connection breaks. An error is a violation by the server.
    pub(crate) fn run(
        &mut self,
        address: &str,
        seed: u64,
        stopping: &AtomicBool,
    ) -> Result<(), String> {
        match self.observe(address, &mut StdRng::seed_from_u64(seed)) {
            Ok(never) => match never {},
            Err(fault) => judge_end(&self.name, fault, stopping),
        }
    }

    fn observe(&mut self, address: &str, random: &mut StdRng) -> Result<Infallible, Fault> {
        let mut connection = Connection::open(address)?;
        let mut requests = Vec::new();
        loop {
            let depth = random.random_range(1..=DEPTH_MAX);
            let reads: Vec<Read> = (0..depth).map(|_| self.choose(random)).collect();
            requests.clear();
            for read in &reads {
                self.encode(read, &mut requests);
            }
            connection.send_raw(&requests)?;
            for read in &reads {
                self.note_reply(read, &mut connection)?;
                self.reads += 1;
            }
        }
    }

    fn choose(&self, random: &mut StdRng) -> Read {
        let target = random.random_range(0..self.targets.len());
        match random.random_range(0..10) {
            0..3 => Read::Together(target),
            3..5 => Read::InTransaction(target),
            5 => Read::Counter(random.random_range(0..SHARED_COUNTERS)),
            6 | 7 => Read::One(target, Published::BY_MSET[random.random_range(0..3)]),
            _ => Read::One(target, Published::BY_TRANSACTION[random.random_range(0..3)]),
        }
    }

    fn encode(&self, read: &Read, out: &mut Vec<u8>) {
        match read {
            Read::Together(target) => {
                let keys = Published::BY_MSET.map(|place| place.key(&self.targets[*target]));
                let args: Vec<Bytes> = std::iter::once(b"MGET".to_vec()).chain(keys).collect();
                out.extend(request(&args));
            }
            Read::InTransaction(target) => {
                out.extend(request(&[b"MULTI"]));
                for place in Published::BY_TRANSACTION {
                    out.extend(request(&get(place, &self.targets[*target])));
                }
                out.extend(request(&[b"EXEC"]));
            }
            Read::One(target, place) => out.extend(request(&get(*place, &self.targets[*target]))),
            Read::Counter(counter) => {
                out.extend(request(&[b"GET".to_vec(), counter_key(*counter)]));
            }
        }
    }

    fn note_reply(&mut self, read: &Read, connection: &mut Connection) -> Result<(), Fault> {
        match read {
            Read::Together(target) => {
                let reply = connection.read()?;
                self.note_all(*target, Published::BY_MSET, &reply)
            }
            Read::InTransaction(target) => {
                for _ in 0..=Published::BY_TRANSACTION.len() {
                    connection.read()?;
                }
                let reply = connection.read()?;
                self.note_all(*target, Published::BY_TRANSACTION, &reply)
            }
            Read::One(target, place) => {
                let reply = connection.read()?;
                self.note(place.key(&self.targets[*target]), &reply).map(drop)
            }
            Read::Counter(counter) => {
                let reply = connection.read()?;
                self.note(counter_key(*counter), &reply).map(drop)
            }
        }
    }

    /// Parts written atomically and read atomically must have the same version.
    fn note_all(
        &mut self,
        target: usize,
        places: [Published; 3],
        reply: &Value,
    ) -> Result<(), Fault> {
        let Value::Array(Some(replies)) = reply else {
            return Err(Fault::Wrong(format!("{places:?} got {reply:?}")));
        };
        let mut versions = Vec::new();
        for (place, reply) in places.iter().zip(replies) {
            versions.push(self.note(place.key(&self.targets[target]), reply)?);
        }
        if versions.len() == places.len() && versions.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(());
        }
        let client = &self.targets[target];
        Err(Fault::Wrong(format!("half a write of {client} in {places:?}: versions {versions:?}")))
    }

    /// Checks that a version does not decrease.
    fn note(&mut self, key: Bytes, reply: &Value) -> Result<i64, Fault> {
        let value = number_of(reply).map_err(Fault::Wrong)?;
        let seen = self.seen.entry(key).or_default();
        if value < *seen {
            return Err(Fault::Wrong(format!("reads {value} after {seen}: a write was undone")));
        }
        *seen = value;
        Ok(value)
    }
}

/// The request that reads one published version.
fn get(place: Published, prefix: &str) -> Vec<Bytes> {
    let key = place.key(prefix);
    match place {
        Published::MSet(_) | Published::String => vec![b"GET".to_vec(), key],
        Published::Field => vec![b"HGET".to_vec(), key, Published::NAME.to_vec()],
        Published::Score => vec![b"ZSCORE".to_vec(), key, Published::NAME.to_vec()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(Some(text.into()))
    }

    #[test]
    fn a_version_that_goes_back_is_noticed() {
        let mut observer = Observer::new("observer".to_owned(), vec!["c0:".to_owned()]);
        assert!(observer.note(b"k".to_vec(), &Value::Bulk(None)).is_ok());
        assert!(observer.note(b"k".to_vec(), &bulk("7")).is_ok());
        assert!(observer.note(b"k".to_vec(), &bulk("7")).is_ok());
        assert!(observer.note(b"k".to_vec(), &bulk("6")).is_err());
        assert!(observer.note(b"k".to_vec(), &bulk("seven")).is_err());
    }

    #[test]
    fn half_a_write_is_noticed() {
        let mut observer = Observer::new("observer".to_owned(), vec!["c0:".to_owned()]);
        let whole = Value::Array(Some(vec![bulk("1"), bulk("1"), bulk("1")]));
        let half = Value::Array(Some(vec![bulk("2"), bulk("2"), bulk("1")]));
        let short = Value::Array(Some(vec![bulk("2")]));
        assert!(observer.note_all(0, Published::BY_TRANSACTION, &whole).is_ok());
        assert!(observer.note_all(0, Published::BY_TRANSACTION, &half).is_err());
        assert!(observer.note_all(0, Published::BY_MSET, &short).is_err());
    }
}

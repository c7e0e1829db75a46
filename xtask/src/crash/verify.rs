//! Reads the data back after a restart and finds the history that explains it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use super::Bytes;
use super::generate::Published;
use super::model::{Data, Entry, Model, shown};
use super::op::Step;
use crate::resp::{Connection, Value, request};

/// Maximum number of keys and parts of keys in an error.
const SHOWN_MAX: usize = 5;

/// Returns how many of `steps`, in order, lead from `base` to `found`: any number from none to all
/// is valid. The error lists the keys that differ from the nearest explanation.
pub(crate) fn settle<'a>(
    base: &Model,
    steps: impl Iterator<Item = &'a Step>,
    found: &Model,
) -> Result<usize, String> {
    let mut model = base.clone();
    let mut nearest = (differing(&model, found).len(), 0, model.clone());
    let mut taken = 0;
    if nearest.0 == 0 {
        return Ok(0);
    }
    for step in steps {
        model.take(step);
        taken += 1;
        if model == *found {
            return Ok(taken);
        }
        let distance = differing(&model, found).len();
        if distance < nearest.0 {
            nearest = (distance, taken, model.clone());
        }
    }
    let (distance, at, model) = nearest;
    let mut complaint = format!(
        "the data is not what any prefix of the {taken} undecided steps gives; nearest is after \
         {at} of them, with {distance} keys wrong:"
    );
    for key in differing(&model, found).into_iter().take(SHOWN_MAX) {
        complaint.push_str(&difference(key, model.entries.get(key), found.entries.get(key)));
    }
    Err(complaint)
}

/// Keys that differ, in their order.
fn differing<'a>(expected: &'a Model, found: &'a Model) -> Vec<&'a Bytes> {
    let keys: BTreeSet<&Bytes> = expected.entries.keys().chain(found.entries.keys()).collect();
    let differs = |key: &&Bytes| expected.entries.get(*key) != found.entries.get(*key);
    keys.into_iter().filter(differs).collect()
}

/// The parts of a key that differ, in lines.
fn difference(key: &[u8], expected: Option<&Entry>, found: Option<&Entry>) -> String {
    let parts = |entry: Option<&Entry>| {
        entry.map_or_else(|| ["no such key".to_owned()].into(), Entry::parts)
    };
    let (expected, found) = (parts(expected), parts(found));
    let only = |these: &BTreeSet<String>, others: &BTreeSet<String>| {
        let mut list: Vec<&str> = these.difference(others).map(String::as_str).collect();
        let count = list.len();
        list.truncate(SHOWN_MAX);
        if count > SHOWN_MAX {
            format!("{}, ... ({count})", list.join(", "))
        } else {
            list.join(", ")
        }
    };
    format!(
        "\n  key {}\n    expected {}\n    found    {}",
        shown(key),
        only(&expected, &found),
        only(&found, &expected)
    )
}

/// The number in a published key or a counter; 0 where there is none.
pub(crate) fn number_in(entry: Option<&Entry>) -> Result<i64, String> {
    match entry.map(|entry| &entry.data) {
        None => Ok(0),
        Some(Data::String(text)) => parse_number(text),
        Some(Data::Hash(hash)) => {
            hash.get(Published::NAME).map_or(Ok(0), |text| parse_number(text))
        }
        Some(Data::Zset(zset)) => Ok(zset.get(Published::NAME).copied().unwrap_or(0)),
        Some(other) => Err(format!("a {} where a number should be", other.type_name())),
    }
}

/// The number in a reply; a missing key counts as 0.
pub(crate) fn number_of(reply: &Value) -> Result<i64, String> {
    let number = match reply {
        Value::Bulk(None) => Ok(0),
        Value::Bulk(Some(text)) => parse_number(text),
        Value::Scalar(text) => parse_number(text.trim_start_matches(':').as_bytes()),
        _ => Err(String::new()),
    };
    number.map_err(|_| format!("{reply:?} where a number should be"))
}

fn parse_number(text: &[u8]) -> Result<i64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{} where a number should be", shown(text)))
}

/// Reads all keys of a database, and compares their number with DBSIZE.
pub(crate) fn read_database(connection: &mut Connection, database: usize) -> Result<Model> {
    connection.call(&["SELECT", &database.to_string()])?;
    let keys = bulks(connection.call(&["KEYS", "*"])?).context("KEYS")?;
    let size = number(&connection.call(&["DBSIZE"])?)?;
    if usize::try_from(size).ok() != Some(keys.len()) {
        bail!("database {database}: DBSIZE is {size}, KEYS finds {}", keys.len());
    }
    let mut requests = Vec::new();
    for key in &keys {
        requests.extend(request(&[b"TYPE", &key[..]]));
        requests.extend(request(&[b"PEXPIRETIME", &key[..]]));
    }
    connection.send_raw(&requests)?;
    let mut kinds = Vec::new();
    for _ in &keys {
        kinds.push((type_name(connection.read()?)?, number(&connection.read()?)?));
    }
    requests.clear();
    for (key, (kind, _)) in keys.iter().zip(&kinds) {
        requests.extend(request(&read_request(key, kind)?));
    }
    connection.send_raw(&requests)?;
    let mut entries = BTreeMap::new();
    for (key, (kind, expires)) in keys.into_iter().zip(kinds) {
        let reply = connection.read()?;
        let data = data(&kind, reply).with_context(|| format!("read {} {}", kind, shown(&key)))?;
        let expires_at_ms = match expires {
            -1 => None,
            at => Some(u64::try_from(at).with_context(|| format!("PEXPIRETIME gives {at}"))?),
        };
        let twice = format!("KEYS has {} twice", shown(&key));
        if entries.insert(key, Entry { data, expires_at_ms }).is_some() {
            bail!(twice);
        }
    }
    Ok(Model { entries })
}

/// Removes and returns the keys that begin with `prefix`.
pub(crate) fn split_off(database: &mut Model, prefix: &str) -> Model {
    let (own, others) = std::mem::take(&mut database.entries)
        .into_iter()
        .partition(|(key, _)| key.starts_with(prefix.as_bytes()));
    database.entries = others;
    Model { entries: own }
}

fn read_request(key: &Bytes, kind: &str) -> Result<Vec<Bytes>> {
    let words: &[&str] = match kind {
        "string" => &["GET"],
        "hash" => &["HGETALL"],
        "list" => &["LRANGE", "0", "-1"],
        "set" => &["SMEMBERS"],
        "zset" => &["ZRANGE", "0", "-1", "WITHSCORES"],
        other => bail!("{} is a {other}", shown(key)),
    };
    let mut args: Vec<Bytes> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    args.insert(1, key.clone());
    Ok(args)
}

fn data(kind: &str, reply: Value) -> Result<Data> {
    if kind == "string" {
        let Value::Bulk(Some(value)) = reply else { bail!("GET is answered {reply:?}") };
        return Ok(Data::String(value));
    }
    let parts = bulks(reply)?;
    let count = parts.len();
    let (data, expected) = match kind {
        "hash" => {
            let hash: BTreeMap<_, _> = pairs(parts).collect();
            (Data::Hash(hash.clone()), hash.len() * 2)
        }
        "list" => (Data::List(parts.into()), count),
        "set" => {
            let set: BTreeSet<_> = parts.into_iter().collect();
            (Data::Set(set.clone()), set.len())
        }
        _ => {
            let scores = pairs(parts).map(|(member, score)| Ok((member, parse_number(&score)?)));
            let zset: BTreeMap<_, _> =
                scores.collect::<Result<_, String>>().map_err(anyhow::Error::msg)?;
            (Data::Zset(zset.clone()), zset.len() * 2)
        }
    };
    if count != expected {
        bail!("{count} parts in the reply, {expected} without repetitions");
    }
    Ok(data)
}

fn pairs(parts: Vec<Bytes>) -> impl Iterator<Item = (Bytes, Bytes)> {
    let mut parts = parts.into_iter();
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

fn bulks(reply: Value) -> Result<Vec<Bytes>> {
    let Value::Array(Some(items)) = reply else { bail!("{reply:?} where an array should be") };
    let bulk = |item| match item {
        Value::Bulk(Some(bytes)) => Ok(bytes),
        other => bail!("{other:?} where a string should be"),
    };
    items.into_iter().map(bulk).collect()
}

fn type_name(reply: Value) -> Result<String> {
    let Value::Simple(name) = reply else { bail!("TYPE is answered {reply:?}") };
    Ok(String::from_utf8_lossy(&name).into_owned())
}

fn number(reply: &Value) -> Result<i64> {
    number_of(reply).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::op::Op;

    fn set(key: &str, value: &str) -> Op {
        Op::Set { key: key.into(), value: value.into() }
    }

    fn after(steps: &[Step]) -> Model {
        let mut model = Model::default();
        for step in steps {
            model.take(step);
        }
        model
    }

    fn history() -> Vec<Step> {
        vec![
            Step::Single(set("a", "1")),
            Step::Transaction(vec![set("a", "2"), set("b", "2")]),
            Step::Share(0),
            Step::Single(Op::Del { keys: vec![b"a".to_vec()] }),
        ]
    }

    #[test]
    fn every_prefix_explains_itself() {
        let history = history();
        for taken in [0, 1, 2, 4] {
            let found = after(&history[..taken]);
            assert_eq!(settle(&Model::default(), history.iter(), &found), Ok(taken));
        }
    }

    #[test]
    fn a_lost_acknowledged_step_is_noticed() {
        let history = history();
        let acknowledged = after(&history[..2]);
        let complaint = settle(&acknowledged, history[2..].iter(), &after(&history[..1]));
        let complaint = complaint.unwrap_err();
        assert!(complaint.contains("key \"a\""), "{complaint}");
        assert!(complaint.contains("expected string \"2\""), "{complaint}");
        assert!(complaint.contains("found    string \"1\""), "{complaint}");
    }

    #[test]
    fn half_a_transaction_is_noticed() {
        let found = after(&[Step::Single(set("a", "2"))]);
        assert!(settle(&Model::default(), history().iter(), &found).is_err());
    }

    #[test]
    fn a_later_step_without_an_earlier_one_is_noticed() {
        let found = after(&history()[1..2]);
        let steps = [Step::Single(set("c", "1")), history()[1].clone()];
        assert!(settle(&Model::default(), steps.iter(), &found).is_err());
    }

    #[test]
    fn values_that_were_never_written_are_found() {
        assert!(settle(&Model::default(), [].iter(), &after(&history()[..1])).is_err());
    }

    #[test]
    fn a_time_to_live_is_part_of_a_key() {
        let mut found = after(&history()[..1]);
        found.apply(&Op::ExpireAt { key: b"a".to_vec(), seconds: 9 });
        let complaint = settle(&Model::default(), history().iter(), &found).unwrap_err();
        assert!(complaint.contains("expires at 9000"), "{complaint}");
    }

    #[test]
    fn repeated_members_are_noticed() {
        let twice = Value::Array(Some(vec![Value::Bulk(Some(b"m".to_vec())); 2]));
        assert!(data("set", twice.clone()).is_err());
        assert!(data("list", twice.clone()).is_ok());
        assert!(data("zset", twice).is_err());
    }

    #[test]
    fn keys_are_split_by_client() {
        let mut database = after(&[Step::Single(set("c0:a", "")), Step::Single(set("c1:a", ""))]);
        let own = split_off(&mut database, "c0:");
        assert_eq!(own, after(&[Step::Single(set("c0:a", ""))]));
        assert_eq!(database, after(&[Step::Single(set("c1:a", ""))]));
    }
}

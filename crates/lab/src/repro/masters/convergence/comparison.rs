//! What all servers have when the masters are no longer written: the same values, and every write
//! that was answered.

use anyhow::{Result, bail, ensure};
use wire::resp::Reply;

use super::load::{self, Written};
use crate::repro::masters::connection::Connection;
use crate::repro::masters::group::Group;

/// Keys per request.
const BATCH: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Comparison {
    pub(super) keys: u64,
    /// Keys of which not all servers have the same value.
    pub(super) differing: u64,
    /// Keys that lack a write that was answered.
    pub(super) lost: u64,
}

/// A value, if the server has one.
type Value = Option<Vec<u8>>;

/// A key, as it was written.
#[derive(Debug, Clone, Copy)]
enum Key {
    Shared(u32),
    Own { at: usize, index: usize },
}

impl Key {
    fn name(self) -> String {
        match self {
            Self::Shared(number) => load::shared_key(number),
            Self::Own { at, index } => load::own_key(at, index),
        }
    }

    /// Whether a value lacks a write that was answered. Of a shared key, one master's last write
    /// stays: its version exceeds those of its earlier writes.
    fn has_lost(self, value: Option<&[u8]>, written: &[Written]) -> bool {
        match self {
            Self::Own { at, index } => {
                let expected = load::value(at, index);
                written[at].writes[index].is_answered && value != Some(expected.as_bytes())
            }
            Self::Shared(number) => match value.map(load::parsed) {
                Some(Some((at, index))) if at < written.len() => {
                    written[at].has_later(number, index + 1)
                }
                Some(_) => true,
                None => written.iter().any(|written| written.has_later(number, 0)),
            },
        }
    }
}

/// Reads all keys of all servers.
pub(super) fn compare(group: &Group, written: &[Written]) -> Result<Comparison> {
    let own = written.iter().flat_map(|Written { at, writes, .. }| {
        let indices = (0..writes.len()).filter(|index| writes[*index].shared.is_none());
        indices.map(|index| Key::Own { at: *at, index })
    });
    let keys: Vec<Key> = (0..load::SHARED_KEYS).map(Key::Shared).chain(own).collect();
    let mut servers = group.connections()?;
    let mut found = Comparison::default();
    for keys in keys.chunks(BATCH) {
        let values = servers.iter_mut().map(|server| read(server, keys));
        let values = values.collect::<Result<Vec<Vec<Value>>>>()?;
        for (at, key) in keys.iter().enumerate() {
            let values: Vec<Option<&[u8]>> =
                values.iter().map(|values| values[at].as_deref()).collect();
            found.add(*key, &values, written);
        }
    }
    Ok(found)
}

fn read(server: &mut Connection, keys: &[Key]) -> Result<Vec<Value>> {
    let names: Vec<String> = keys.iter().map(|key| key.name()).collect();
    let reply = server.ask(&format!("MGET {}", names.join(" ")))?;
    let Reply::Array(values) = reply else { bail!("MGET without an array") };
    ensure!(values.len() == keys.len(), "MGET without a value for each key");
    let value = |reply| if let Reply::Bulk(value) = reply { Some(value) } else { None };
    Ok(values.into_iter().map(value).collect())
}

impl Comparison {
    /// `values`: those of all servers.
    fn add(&mut self, key: Key, values: &[Option<&[u8]>], written: &[Written]) {
        self.keys += 1;
        self.differing += u64::from(values.iter().any(|value| *value != values[0]));
        self.lost += u64::from(values.iter().any(|value| key.has_lost(*value, written)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::load::Write;
    use super::*;

    fn written(at: usize, writes: &[(Option<u32>, bool)]) -> Written {
        let write = |(shared, is_answered): &(Option<u32>, bool)| Write {
            shared: *shared,
            is_answered: *is_answered,
        };
        Written { at, writes: writes.iter().map(write).collect(), ended: Instant::now() }
    }

    #[test]
    fn every_answered_write_must_be_there_on_all_servers() {
        let all = [
            written(0, &[(Some(7), true), (None, true), (Some(7), true), (Some(7), false)]),
            written(1, &[(Some(7), true), (None, false)]),
        ];
        let check = |key: Key, values: [Option<&str>; 2], differing: u64, lost: u64| {
            let mut found = Comparison::default();
            found.add(key, &values.map(|value| value.map(str::as_bytes)), &all);
            assert_eq!(found, Comparison { keys: 1, differing, lost }, "{key:?} {values:?}");
        };
        // The last answered write, the undecided one after it, and the write of the other master.
        for value in ["0:2", "0:3", "1:0"] {
            check(Key::Shared(7), [Some(value); 2], 0, 0);
        }
        check(Key::Shared(7), [Some("0:0"); 2], 0, 1);
        check(Key::Shared(7), [Some("2:0"); 2], 0, 1);
        check(Key::Shared(7), [Some("0:2"), Some("1:0")], 1, 0);
        check(Key::Shared(7), [Some("0:2"), None], 1, 1);
        check(Key::Shared(8), [None; 2], 0, 0);
        let own = |at, index| Key::Own { at, index };
        check(own(0, 1), [Some("0:1"); 2], 0, 0);
        check(own(0, 1), [Some("0:1"), None], 1, 1);
        // Undecided: it may be there.
        check(own(1, 1), [None; 2], 0, 0);
        check(own(1, 1), [Some("1:1"); 2], 0, 0);
    }
}

//! A fixed amount of work on one thread, to count its instructions:
//! `valgrind --tool=callgrind target/release/examples/store_instructions`.
//!
//! Writes, reads, edits and deletes keys of each type. The same program does the same work each
//! time, so two builds are compared by their totals.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use base::time::UnixMs;
use store::types::Compact;
use store::{AccessClock, AccessRule, Change, Items, Keyspace, Mutation, Params, Scored, Value};

const KEYS: u64 = 50_000;

fn main() {
    let now = UnixMs(1 << 40);
    let clock = AccessClock::new(AccessRule::Lru, now, 1);
    let params = Params::new(now, clock, Compact::default());
    let keyspace = Keyspace::new(7);
    let (mut bytes, mut hits) = (0, 0_u64);
    for number in 0..KEYS {
        let name = (number % (KEYS / 4)).to_le_bytes();
        let key = keyspace.key(&name);
        let member = number.to_le_bytes();
        let items = [&member[..], &name[..]];
        let scored = [(1.5, &member[..])];
        let db = u8::try_from(number % 5).unwrap();
        let change = match number % 5 {
            0 => Change::Set { value: &[9; 80], expiry: Some(UnixMs(now.0 + number + 1)) },
            1 => Change::HashSet { pairs: Items::Slice(&items) },
            2 => Change::SetAdd { members: Items::Slice(&items) },
            3 => Change::ZSetAdd { members: Scored::Slice(&scored) },
            _ => Change::ListPush { end: store::End::Back, values: Items::Slice(&items) },
        };
        let mut log = Vec::new();
        let mut locked = keyspace.lock_one(key.hash, &params);
        let mutation = Mutation::Key { db, key, change };
        mutation.encode(&mut log);
        locked.apply_mutation(&mutation).unwrap();
        locked.note_write(db, key.hash, number + 1, number);
        hits += locked.get(db, key).map_or(0, |value: Value<'_>| value.len() as u64);
        if number % 7 == 0 {
            let delete = Mutation::Key { db, key, change: Change::Delete };
            locked.apply_mutation(&delete).unwrap();
        }
        bytes += log.len() + usize::try_from(locked.grown_bytes().max(0)).unwrap();
    }
    println!("{bytes} {hits}");
}

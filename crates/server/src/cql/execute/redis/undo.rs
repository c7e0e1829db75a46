//! Several changes of keys, all or none.

use base::time::UnixMs;
use store::{Change, Key, Kind, Locked, Mutation, Value};

use super::DB;

/// What keys were before a batch has changed them. A batch whose second write is refused has done the
/// first one by then: what that is depends on the data.
#[derive(Debug, Default)]
pub(in crate::cql::execute) struct Undo {
    keys: Vec<(Vec<u8>, Before)>,
}

#[derive(Debug)]
enum Before {
    Absent,
    String(Vec<u8>, Option<UnixMs>),
    Collection(Kind, Vec<u8>, Option<UnixMs>),
}

impl Undo {
    /// Remembers a key that is about to be changed. O(value), once for each key.
    pub(in crate::cql::execute) fn save(&mut self, locked: &Locked<'_>, key: Key<'_>) {
        if self.keys.iter().any(|(known, _)| known == key.bytes) {
            return;
        }
        let expiry = locked.expiry(DB, key).flatten();
        let mut encoded = Vec::new();
        let before = match locked.peek(DB, key) {
            None => Before::Absent,
            Some(Value::String(bytes)) => Before::String(bytes.to_vec(), expiry),
            Some(_) => {
                let kind = locked.encode_collection(DB, key, &mut encoded);
                Before::Collection(kind.expect("it is no string"), encoded, expiry)
            }
        };
        self.keys.push((key.bytes.to_vec(), before));
    }

    /// Makes all keys what they were. Nothing of it is logged, as nothing of the changes was.
    pub(in crate::cql::execute) fn restore(self, locked: &mut Locked<'_>) {
        for (bytes, before) in &self.keys {
            let change = match before {
                Before::Absent => Change::Delete,
                Before::String(value, expiry) => Change::Set { value, expiry: *expiry },
                Before::Collection(kind, encoded, expiry) => {
                    Change::Put { kind: *kind, encoded, expiry: *expiry }
                }
            };
            let mutation = Mutation::Key { db: DB, key: locked.key(bytes), change };
            locked.apply(&mutation).expect("the key was like this");
        }
    }
}

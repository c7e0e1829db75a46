//! Whether an import from a running server is unfinished: then no key may expire here.

use store::{Key, Keyspace, Params};

/// The key in database 0 that states how far an import is. It is set in the transaction of the writes
/// that it counts, so that none is repeated or left out, and removed when the import is complete.
pub(crate) const STATE_KEY: &[u8] = b"myriad:import:state";

/// Whether the data are those of an unfinished import, as after a crash of this server.
pub(crate) fn is_unfinished(keyspace: &Keyspace, params: &Params) -> bool {
    let key = Key { bytes: STATE_KEY, hash: keyspace.hash(STATE_KEY) };
    keyspace.lock_one(key.hash, params).contains(0, key)
}

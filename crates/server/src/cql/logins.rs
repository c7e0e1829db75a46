//! Passwords that were found right lately: a login that is repeated costs a microsecond, not tens of
//! milliseconds.

use std::collections::HashMap;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::engine::secret::is_same_secret;

/// Roles that are remembered; one more and all are forgotten.
const LOGINS_MAX: usize = 1024;

/// See the module. Passwords are not kept, only what they hash to with a key that nobody knows and
/// that ends with the process.
#[derive(Debug)]
pub(crate) struct Logins {
    key: [u8; 32],
    /// By the salted hash of the role: a changed password is not found.
    known: Mutex<HashMap<String, [u8; 32]>>,
}

impl Default for Logins {
    fn default() -> Logins {
        Logins { key: rand::random(), known: Mutex::default() }
    }
}

impl Logins {
    pub(crate) fn knows(&self, password: &[u8], salted_hash: &str) -> bool {
        let digest = self.digest(password, salted_hash);
        let known = self.known.lock().get(salted_hash).copied();
        known.is_some_and(|known| is_same_secret(&known, &digest))
    }

    /// The password was found right.
    pub(crate) fn remember(&self, password: &[u8], salted_hash: &str) {
        let digest = self.digest(password, salted_hash);
        let mut known = self.known.lock();
        if known.len() >= LOGINS_MAX {
            known.clear();
        }
        known.insert(salted_hash.to_owned(), digest);
    }

    fn digest(&self, password: &[u8], salted_hash: &str) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.key).chain_update([0]);
        // A hash by bcrypt has no zero byte.
        let hash = hash.chain_update(salted_hash).chain_update([0]).chain_update(password);
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_right_is_known() {
        let logins = Logins::default();
        assert!(!logins.knows(b"p", "hash"));
        logins.remember(b"p", "hash");
        assert!(logins.knows(b"p", "hash"));
        assert!(!logins.knows(b"q", "hash") && !logins.knows(b"p", "other"));
        for number in 0..3 * LOGINS_MAX {
            logins.remember(b"p", &number.to_string());
        }
        assert!(logins.known.lock().len() <= LOGINS_MAX);
    }
}

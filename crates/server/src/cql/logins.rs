//! Recently verified passwords: a repeated login costs a microsecond, not tens of milliseconds.

use std::collections::HashMap;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::engine::secret::is_same_secret;

/// Roles that are remembered. When the limit is exceeded, all are forgotten.
const LOGINS_MAX: usize = 1024;

/// Recently verified logins. Passwords are not stored, only their hashes under a random key that
/// exists only in this process.
#[derive(Debug)]
pub(crate) struct Logins {
    key: [u8; 32],
    /// Keyed by the role's salted hash, so a changed password is not found.
    known: Mutex<HashMap<String, [u8; 32]>>,
}

impl Default for Logins {
    fn default() -> Logins {
        Logins { key: rand::random(), known: Mutex::default() }
    }
}

impl Logins {
    pub(crate) fn is_verified(&self, password: &[u8], salted_hash: &str) -> bool {
        let digest = self.digest(password, salted_hash);
        let known = self.known.lock().get(salted_hash).copied();
        known.is_some_and(|known| is_same_secret(&known, &digest))
    }

    /// Records that the password was verified.
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
        // A bcrypt hash contains no zero byte.
        let hash = hash.chain_update(salted_hash).chain_update([0]).chain_update(password);
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verified_passwords_are_known() {
        let logins = Logins::default();
        assert!(!logins.is_verified(b"p", "hash"));
        logins.remember(b"p", "hash");
        assert!(logins.is_verified(b"p", "hash"));
        assert!(!logins.is_verified(b"q", "hash") && !logins.is_verified(b"p", "other"));
        for number in 0..3 * LOGINS_MAX {
            logins.remember(b"p", &number.to_string());
        }
        assert!(logins.known.lock().len() <= LOGINS_MAX);
    }
}

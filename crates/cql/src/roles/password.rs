//! Passwords as salted hashes, in Cassandra's format. Computing one takes tens of milliseconds, so
//! never do it on a reactor.

use std::sync::LazyLock;

use bcrypt::{HashParts, Version};

/// The logarithm of the number of rounds.
// Source: Cassandra 5.0, CassandraRoleManager.GENSALT_LOG2_ROUNDS
const COST: u32 = 10;

/// The maximum cost of a hash: a login with it takes 64 times as long as with ours.
const COST_MAX: u32 = 16;

/// The hash that is checked for nonexistent users, so that they take as long as others.
static DUMMY_HASH: LazyLock<String> = LazyLock::new(|| hash("nobody"));

/// As in Cassandra, only the first 72 bytes count.
pub fn hash(password: &str) -> String {
    let hashed = bcrypt::hash_with_salt(password, COST, rand::random());
    let hashed = hashed.expect("the cost is in the range of bcrypt");
    hashed.format_for_version(Version::TwoA)
}

/// Whether the password matches the hash. None: the user has no password, so the result is false.
pub fn is_right(password: &[u8], salted_hash: Option<&str>) -> bool {
    let is_same = bcrypt::verify(password, salted_hash.unwrap_or(&DUMMY_HASH)).unwrap_or(false);
    is_same && salted_hash.is_some()
}

/// Whether the text is a hash that can be checked.
pub(super) fn is_hash(text: &str) -> bool {
    let is_known = ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix));
    let parts = text.parse::<HashParts>();
    is_known && parts.is_ok_and(|parts| (4..=COST_MAX).contains(&parts.get_cost()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_cassandra() {
        let made = hash("secret");
        assert!(made.starts_with("$2a$10$") && made.len() == 60, "{made}");
        assert!(is_right(b"secret", Some(&made)));
        assert!(!is_right(b"secret2", Some(&made)));
        assert!(!is_right(b"secret", None));
        assert_ne!(hash("secret"), made, "each has a salt of its own");
        // Source: jBCrypt, TestBCrypt
        let known = "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";
        assert!(is_right(b"abc", Some(known)) && !is_right(b"abd", Some(known)));
    }

    #[test]
    fn other_texts_are_not_hashes() {
        assert!(is_hash(&DUMMY_HASH));
        for text in ["", "secret", "$2a$10$short", "$1$x", &DUMMY_HASH.replace("$10$", "$31$")] {
            assert!(!is_hash(text), "{text}");
        }
        assert!(!is_right(b"secret", Some("damaged")));
    }
}

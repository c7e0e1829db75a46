//! Passwords as salted hashes, in the form that Cassandra keeps them in. One takes tens of
//! milliseconds: never on a reactor.

use std::sync::LazyLock;

use bcrypt::{HashParts, Version};

/// The logarithm of the rounds.
// Source: Cassandra 5.0, CassandraRoleManager.GENSALT_LOG2_ROUNDS
const COST: u32 = 10;

/// A highest cost that a hash may ask for: a login takes 64 times as long as with ours.
const COST_MAX: u32 = 16;

/// What is checked for users who do not exist, so that they take as long as others.
static NOBODY: LazyLock<String> = LazyLock::new(|| hash("nobody"));

/// As all of Cassandra's, it looks at the first 72 bytes.
pub fn hash(password: &str) -> String {
    let hashed = bcrypt::hash_with_salt(password, COST, rand::random());
    let hashed = hashed.expect("the cost is in the range of bcrypt");
    hashed.format_for_version(Version::TwoA)
}

/// Whether the password is that of the hash. None: the user has none, and it is not.
pub fn is_right(password: &[u8], salted_hash: Option<&str>) -> bool {
    let is_same = bcrypt::verify(password, salted_hash.unwrap_or(&NOBODY)).unwrap_or(false);
    is_same && salted_hash.is_some()
}

/// Whether it is a hash that can be checked.
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
    fn other_texts_are_no_hashes() {
        assert!(is_hash(&NOBODY));
        for text in ["", "secret", "$2a$10$short", "$1$x", &NOBODY.replace("$10$", "$31$")] {
            assert!(!is_hash(text), "{text}");
        }
        assert!(!is_right(b"secret", Some("damaged")));
    }
}

//! `token(...)`

use super::{Call, Function, Shape};
use crate::error::CqlError;
use crate::token::token;

pub(super) static FUNCTIONS: &[Function] = &[Function {
    name: "token",
    older_name: None,
    shape: Shape::PartitionKey,
    doc: "The position of a partition on the ring.",
    run,
}];

fn run(call: &Call<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(parts) = call.arguments.iter().copied().collect::<Option<Vec<&[u8]>>>() else {
        return Ok(None);
    };
    let key = key_bytes(&parts)
        .ok_or_else(|| CqlError::invalid("A part of a partition key is longer than 65535 bytes"))?;
    Ok(Some(token(&key).to_be_bytes().to_vec()))
}

/// A single part as it is; of several, each follows its length in two bytes and precedes a zero
/// byte.
// Source: Cassandra 5.0, CompositeType
fn key_bytes(parts: &[&[u8]]) -> Option<Vec<u8>> {
    if let [only] = parts {
        return Some(only.to_vec());
    }
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
        out.extend_from_slice(part);
        out.push(0);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn tokens_are_of_the_partition_key() {
        let key = key_bytes(&[&1_i32.to_be_bytes(), b"a"]).unwrap();
        assert_eq!(key, b"\0\x04\0\0\0\x01\0\0\x01a\0");
        assert_eq!(evaluated("token(1, 'a')", "bigint"), token(&key).to_string());
        assert_eq!(evaluated("token(1, null)", "bigint"), "null");
        assert_eq!(key_bytes(&[b"ab"]), Some(b"ab".to_vec()));
        for (term, expected) in [
            (
                "token(1)",
                "Invalid number of arguments in call to function system.token: 2 required but 1 provided",
            ),
            (
                "token('a', 1)",
                "Type error: 'a' cannot be passed as argument 0 of function system.token of type int",
            ),
        ] {
            assert_eq!(refused(term, "bigint"), expected);
        }
    }
}

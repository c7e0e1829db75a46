//! The order of values of a type.

use std::cmp::Ordering;

use super::comparable::encode;
use crate::cql::types::CqlType;

/// How two values of a type stand to one another, as clustering keys sort them. The bytes must have
/// been checked.
pub fn compare(left: &[u8], right: &[u8], of: &CqlType) -> Ordering {
    let key = |bytes: &[u8]| {
        let mut key = Vec::new();
        encode(bytes, of, false, &mut key);
        key
    };
    key(left).cmp(&key(right))
}

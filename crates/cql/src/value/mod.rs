//! Values: their bytes in the protocol, their text for people, and bytes that sort like them.
//!
//! `constant` makes bytes from constants in statements, `json` from JSON; `text` makes text and
//! JSON from bytes; `comparable` makes bytes that sort like the values, for clustering keys;
//! `order` compares two values. `check` rejects a client's bytes that are not a valid value of
//! their type.

pub(crate) mod calendar;
pub mod check;
pub mod collection;
pub mod comparable;
pub(crate) mod constant;
pub mod json;
pub(crate) mod number;
pub mod order;
pub mod text;
pub(crate) mod time;
pub(crate) mod timestamp;
pub(crate) mod vector;

use super::error::CqlError;

/// Maximum bytes of one value: no message can contain a longer one.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Rejects a value that grows too long while it is assembled from parts or cells, or by a function.
pub fn check_size(bytes: usize) -> Result<(), CqlError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(CqlError::invalid(format!("A value has more than {VALUE_BYTES_MAX} bytes")))
}

//! Values: bytes as the protocol carries them, text as people write them, and an order of bytes.
//!
//! `constant` makes bytes from constants of statements, `json` from JSON; `text` makes text and JSON from
//! bytes, `comparable` makes bytes whose order is that of the values, for clustering keys; `order` compares two
//! values. `check` refuses bytes of a client that are no value of their type.

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

/// Most bytes of one value: no message can carry a longer one.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Refuses a value that gets too long while it is put together from parts, cells or by a function.
pub fn check_size(bytes: usize) -> Result<(), CqlError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(CqlError::invalid(format!("A value has more than {VALUE_BYTES_MAX} bytes")))
}

//! Values: bytes as the protocol carries them, text as people write them, and an order of bytes.
//!
//! `constant` makes bytes from constants of statements, `json` from JSON; `text` makes text and JSON from
//! bytes, `comparable` makes bytes whose order is that of the values, for clustering keys; `order` compares two
//! values. `check` refuses bytes of a client that are no value of their type.

pub mod calendar;
pub mod check;
pub mod collection;
pub mod comparable;
pub mod constant;
pub mod json;
pub mod number;
pub mod order;
pub mod text;
pub mod time;
pub mod timestamp;
pub mod vector;

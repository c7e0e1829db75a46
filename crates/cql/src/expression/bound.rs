//! The values that a client sent for the markers of a statement.

use std::collections::BTreeMap;

use wire::cql::{Value, Values};

use super::markers::Marker;
use crate::error::CqlError;

/// Values kept without an allocation.
const INLINE_MAX: usize = 16;

/// One value per marker, borrowed from the request. Not a generic small vector: with one, the
/// lifetime of the borrow could not be shortened.
#[derive(Debug, Clone)]
pub struct BoundValues<'a> {
    inline: [Value<'a>; INLINE_MAX],
    /// All values, if there are more.
    spilled: Vec<Value<'a>>,
}

impl<'a> BoundValues<'a> {
    /// Arranges the values in the order of the markers. Each marker must have one.
    pub fn new(values: &Values<'a>, markers: &[Marker]) -> Result<Self, CqlError> {
        let count_is_wrong = || CqlError::invalid("Invalid amount of bind variables");
        let mut bound = BoundValues { inline: [Value::Null; INLINE_MAX], spilled: Vec::new() };
        if markers.len() > INLINE_MAX {
            bound.spilled = vec![Value::Null; markers.len()];
        }
        let slots = match markers.len() {
            ..=INLINE_MAX => &mut bound.inline[..markers.len()],
            _ => &mut bound.spilled[..],
        };
        if values.are_named() {
            // Of values with the same name, the first one counts.
            let mut named: BTreeMap<&str, Value<'a>> = BTreeMap::new();
            for (name, value) in values.iter() {
                named.entry(name.unwrap_or_default()).or_insert(value);
            }
            for (slot, marker) in slots.iter_mut().zip(markers) {
                *slot = *named.get(marker.name.as_str()).ok_or_else(count_is_wrong)?;
            }
        } else if values.len() != markers.len() {
            return Err(count_is_wrong());
        } else {
            slots.iter_mut().zip(values.iter()).for_each(|(slot, (_, value))| *slot = value);
        }
        Ok(bound)
    }

    /// The value of a marker of the statement for which the values were bound.
    pub(crate) fn get(&self, index: usize) -> Value<'a> {
        if self.spilled.is_empty() { self.inline[index] } else { self.spilled[index] }
    }
}

impl Default for BoundValues<'_> {
    fn default() -> Self {
        BoundValues { inline: [Value::Null; INLINE_MAX], spilled: Vec::new() }
    }
}

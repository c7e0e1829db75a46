//! What a client sent for the markers of a statement.

use smallvec::SmallVec;
use wire::cql::{Value, Values};

use super::markers::Marker;
use crate::cql::error::CqlError;

/// Values kept without an allocation.
const INLINE_MAX: usize = 16;

/// One value per marker, borrowed from the request.
#[derive(Debug, Clone, Default)]
pub struct BoundValues<'a> {
    values: SmallVec<[Value<'a>; INLINE_MAX]>,
}

impl<'a> BoundValues<'a> {
    /// Brings the values into the order of the markers. There must be one for each.
    pub fn new(values: &Values<'a>, markers: &[Marker]) -> Result<Self, CqlError> {
        let count_is_wrong = || CqlError::invalid("Invalid amount of bind variables");
        let values: SmallVec<_> = if values.are_named() {
            let find = |marker: &Marker| {
                let mut named = values.iter();
                named.find(|(name, _)| *name == Some(marker.name.as_str())).map(|(_, value)| value)
            };
            markers.iter().map(find).collect::<Option<_>>().ok_or_else(count_is_wrong)?
        } else {
            values.iter().map(|(_, value)| value).collect()
        };
        if values.len() != markers.len() {
            return Err(count_is_wrong());
        }
        Ok(BoundValues { values })
    }

    /// The value of a marker of the statement that the values were bound for.
    pub fn get(&self, index: usize) -> Value<'a> {
        self.values[index]
    }
}

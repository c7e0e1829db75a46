//! Items of sets and entries of maps as cells.
//!
//! The store keys a cell by the ordered bytes of its item or map key, so that equal values share
//! one cell. Decimals that differ only in trailing zeros are equal, but clients see the zeros. If
//! an item or key contains decimals, the cell's value also holds its bytes as last written.

use std::borrow::Cow;

use cql::type_name::Native;
use cql::types::CqlType;
use cql::value::collection::{put_part, take_part};
use cql::value::comparable;
use store::CellView;

/// Whether equal values of the type may have different bytes.
fn has_decimal(of: &CqlType) -> bool {
    match of {
        CqlType::Native(native) => *native == Native::Decimal,
        CqlType::Frozen(inner)
        | CqlType::List(inner)
        | CqlType::Set(inner)
        | CqlType::Vector(inner, _) => has_decimal(inner),
        CqlType::Map(key, value) => has_decimal(key) || has_decimal(value),
        CqlType::Tuple(parts) => parts.iter().any(has_decimal),
        CqlType::UserDefined(user) => user.fields.iter().any(|(_, field)| has_decimal(field)),
    }
}

/// The cell value for an item of a set.
pub(super) fn of_set<'a>(item: &'a [u8], of: &CqlType) -> &'a [u8] {
    if has_decimal(of) { item } else { &[] }
}

/// The cell value for an entry of a map.
pub(super) fn of_map<'a>(key: &[u8], value: Cow<'a, [u8]>, of: &CqlType) -> Cow<'a, [u8]> {
    if !has_decimal(of) {
        return value;
    }
    let mut bytes = Vec::with_capacity(4 + key.len() + value.len());
    put_part(Some(key), &mut bytes);
    bytes.extend_from_slice(&value);
    Cow::Owned(bytes)
}

/// Decodes a cell as an item of a set. `None`: the cell is corrupt.
pub(super) fn set_item<'r>(cell: CellView<'r>, of: &CqlType) -> Option<Cow<'r, [u8]>> {
    if !cell.bytes.is_empty() {
        return Some(Cow::Borrowed(cell.bytes));
    }
    comparable::decode(&mut cell.item?, of, false).map(Cow::Owned)
}

/// Decodes a cell as an entry of a map. `None`: the cell is corrupt.
pub(super) fn map_entry<'r>(cell: CellView<'r>, of: &CqlType) -> Option<(Cow<'r, [u8]>, &'r [u8])> {
    if has_decimal(of) {
        let mut value = cell.bytes;
        let key = take_part(&mut value).ok()??;
        return Some((Cow::Borrowed(key), value));
    }
    Some((Cow::Owned(comparable::decode(&mut cell.item?, of, false)?), cell.bytes))
}

/// Decodes only the value of a map entry.
pub(super) fn map_value<'r>(cell: CellView<'r>, of: &CqlType) -> Option<&'r [u8]> {
    if !has_decimal(of) {
        return Some(cell.bytes);
    }
    map_entry(cell, of).map(|(_, value)| value)
}

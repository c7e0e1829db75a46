//! Items of sets and entries of maps as cells.
//!
//! The store keeps a cell under the ordered bytes of its item or key, so that equal ones are one cell.
//! Decimals are equal when they differ in zeros at their end, which clients see: where such are in an
//! item or a key, it is in the value of the cell, too, as it was written last.

use std::borrow::Cow;

use cql::type_name::Native;
use cql::types::CqlType;
use cql::value::collection::{put_part, take_part};
use cql::value::comparable;
use store::CellView;

/// Whether values of the type that are equal may have different bytes.
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

/// The value of the cell of a set's item.
pub(super) fn of_set<'a>(item: &'a [u8], of: &CqlType) -> &'a [u8] {
    if has_decimal(of) { item } else { &[] }
}

/// The value of the cell of a map's entry.
pub(super) fn of_map<'a>(key: &[u8], value: Cow<'a, [u8]>, of: &CqlType) -> Cow<'a, [u8]> {
    if !has_decimal(of) {
        return value;
    }
    let mut bytes = Vec::with_capacity(4 + key.len() + value.len());
    put_part(Some(key), &mut bytes);
    bytes.extend_from_slice(&value);
    Cow::Owned(bytes)
}

/// The item of a set that a cell is. None: the cell is damaged.
pub(super) fn set_item<'r>(cell: CellView<'r>, of: &CqlType) -> Option<Cow<'r, [u8]>> {
    if !cell.bytes.is_empty() {
        return Some(Cow::Borrowed(cell.bytes));
    }
    comparable::decode(&mut cell.item?, of, false).map(Cow::Owned)
}

/// The entry of a map that a cell is. None: the cell is damaged.
pub(super) fn map_entry<'r>(cell: CellView<'r>, of: &CqlType) -> Option<(Cow<'r, [u8]>, &'r [u8])> {
    if has_decimal(of) {
        let mut value = cell.bytes;
        let key = take_part(&mut value).ok()??;
        return Some((Cow::Borrowed(key), value));
    }
    Some((Cow::Owned(comparable::decode(&mut cell.item?, of, false)?), cell.bytes))
}

/// The value alone.
pub(super) fn map_value<'r>(cell: CellView<'r>, of: &CqlType) -> Option<&'r [u8]> {
    if !has_decimal(of) {
        return Some(cell.bytes);
    }
    map_entry(cell, of).map(|(_, value)| value)
}

//! Parts of values that selectors take: `m[k]`, `m[a..b]`, `u.f`. They have no names in CQL.

use super::{Call, Function, Shape};
use crate::error::CqlError;
use crate::types::CqlType;
use crate::value::collection::fields;
use crate::value::order::{element, slice};

type Outcome = Result<Option<Vec<u8>>, CqlError>;

const fn part(name: &'static str, run: fn(&Call<'_>) -> Outcome) -> Function {
    Function { name, older_name: None, shape: Shape::Fixed(&[]), doc: "", run }
}

/// The value of a key in a map, or the item of a set if the set contains it.
pub(crate) static ELEMENT: Function = part("_element", |call| {
    let Some(key) = call.argument(1) else {
        return Err(CqlError::invalid("Invalid null value for element selection"));
    };
    let found = call.argument(0).and_then(|bytes| element(bytes, key, &call.types[0]));
    Ok(found.map(<[u8]>::to_vec))
});

/// The value itself, with the type of a hint.
pub(crate) static HINT: Function = part("_hint", |call| Ok(call.argument(0).map(<[u8]>::to_vec)));

/// From one key to another; null is an open end. For a collection with one cell per item, an empty
/// result is null.
pub(crate) static SLICE: Function = part("_slice", |call| {
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    let cut = slice(bytes, call.argument(1), call.argument(2), &call.types[0]);
    let is_absent = call.types[0].is_multi_cell() && cut == 0_i32.to_be_bytes();
    Ok((!is_absent).then_some(cut))
});

/// A field of a user-defined type, by its index.
pub(crate) static FIELD: Function = part("_field", |call| {
    let CqlType::UserDefined(user) = call.types[0].unfrozen() else {
        unreachable!("fields are of user-defined types");
    };
    let place = call.fixed::<4>(1).map(i32::from_be_bytes);
    let place = place.and_then(|place| usize::try_from(place).ok());
    let (Some(bytes), Some(place)) = (call.argument(0), place) else { return Ok(None) };
    let fields = fields(bytes, user.fields.len());
    let fields = fields.map_err(|error| CqlError::invalid(error.to_string()))?;
    Ok(fields.get(place).copied().flatten().map(<[u8]>::to_vec))
});

//! The value of a collection, also of one that is not in a stripe.

use base::time::UnixMs;

use crate::change::Kind;
use crate::object::Object;
use crate::types::{Compact, Malformed};
use crate::value::Value;

/// The value without the fields of a hash that have expired at `now`.
pub(crate) fn value_of(object: &Object, now: UnixMs) -> Value<'_> {
    match object {
        Object::Hash(hash) => Value::Hash(hash.at(now).into()),
        Object::List(list) => Value::List(list.into()),
        Object::Set(set) => Value::Set(set.into()),
        Object::ZSet(zset) => Value::ZSet(zset.into()),
        Object::Stream(stream) => Value::Stream(stream),
        Object::Series(series) => Value::Series(series),
    }
}

/// Passes the collection of a [`crate::Change::Put`] to `read`, with the elements that have expired
/// since.
pub fn read_encoded<R>(
    kind: Kind,
    encoded: &[u8],
    read: impl FnOnce(Value<'_>) -> R,
) -> Result<R, Malformed> {
    let object = Object::decode(kind, encoded, &Compact::default())?;
    Ok(read(value_of(&object, UnixMs(0))))
}

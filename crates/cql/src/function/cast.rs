//! `CAST(value AS type)` of selectors.

use super::number::{NUMERIC, Number};
use super::{Call, Function, Shape, Signature, time};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;
use crate::value::number::Decimal;
use crate::value::text::native_to_text;
use crate::value::time::format_timestamp;

/// A function for each target type of a cast, with a signature for each source type.
macro_rules! casts {
    ($(($native:ident, $name:literal, [$($from:ident),* $(,)?])),* $(,)?) => {
        &[$(
            Function {
                name: concat!("cast_as_", $name),
                older_name: Some(concat!("castas", $name)),
                shape: Shape::Fixed(&[$(
                    Signature { arguments: &[Native::$from], returns: Native::$native },
                )*]),
                doc: concat!("The result of `CAST(value AS ", $name, ")`."),
                run,
            },
        )*]
    };
}

// Source: Cassandra 5.0, CastFcts
pub(crate) static FUNCTIONS: &[Function] = casts!(
    (Tinyint, "tinyint", [Smallint, Int, Bigint, Float, Double, Decimal, Counter, Varint]),
    (Smallint, "smallint", [Tinyint, Int, Bigint, Float, Double, Decimal, Counter, Varint]),
    (Int, "int", [Tinyint, Smallint, Bigint, Float, Double, Decimal, Counter, Varint]),
    (Bigint, "bigint", [Tinyint, Smallint, Int, Float, Double, Decimal, Counter, Varint]),
    (Float, "float", [Tinyint, Smallint, Int, Bigint, Double, Decimal, Counter, Varint]),
    (Double, "double", [Tinyint, Smallint, Int, Bigint, Float, Decimal, Counter, Varint]),
    (Decimal, "decimal", [Tinyint, Smallint, Int, Bigint, Float, Double, Counter, Varint]),
    (Varint, "varint", [Tinyint, Smallint, Int, Bigint, Float, Double, Decimal, Counter]),
    (
        Text,
        "text",
        [
            Tinyint, Smallint, Int, Bigint, Float, Double, Decimal, Counter, Varint, Ascii, Inet,
            Boolean, Timeuuid, Timestamp, Date, Time, Uuid,
        ]
    ),
    (
        Ascii,
        "ascii",
        [
            Tinyint, Smallint, Int, Bigint, Float, Double, Decimal, Counter, Varint, Inet, Boolean,
            Timeuuid, Timestamp, Date, Time, Uuid,
        ]
    ),
    (Date, "date", [Timeuuid, Timestamp]),
    (Timestamp, "timestamp", [Timeuuid, Date]),
);

fn run(call: &Call<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let (CqlType::Native(from), CqlType::Native(to)) = (&call.types[0], call.returns) else {
        unreachable!("casts are of native types");
    };
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    match to {
        Native::Text | Native::Ascii => Ok(text(bytes, *from).map(String::into_bytes)),
        Native::Date => Ok(time::to_date(call)),
        Native::Timestamp => Ok(time::to_timestamp(call)),
        _ => {
            debug_assert!(NUMERIC.contains(from));
            let Some(number) = Number::decode(bytes, *from) else { return Ok(None) };
            if let (Number::Float(value), Native::Decimal) = (&number, to)
                && value.is_finite()
            {
                // The digits of the float itself, not those of the double of the same value.
                let digits = native_to_text(bytes, *from).and_then(|text| Decimal::parse(&text));
                return Ok(digits.map(|decimal| decimal.encode()));
            }
            let bytes = number.encode(*to).map_err(|error| CqlError::invalid(error.to_string()))?;
            Ok(Some(bytes))
        }
    }
}

/// Unlike elsewhere, a timestamp has a T between day and time.
// Source: Cassandra 5.0, CastFcts.CastAsTextFunction
fn text(bytes: &[u8], from: Native) -> Option<String> {
    if from != Native::Timestamp {
        return native_to_text(bytes, from);
    }
    <[u8; 8]>::try_from(bytes).ok().map(|bytes| format_timestamp(i64::from_be_bytes(bytes), 'T'))
}

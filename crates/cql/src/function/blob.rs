//! Values as their bytes, and bytes as values.

use super::{Call, Function, Shape, Signature};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::value::check::check;

/// Two functions for each type: to bytes, and from bytes.
macro_rules! conversions {
    ($(($native:ident, $name:literal)),* $(,)?) => {
        &[$(
            Function {
                name: concat!($name, "_as_blob"),
                older_name: Some(concat!($name, "asblob")),
                shape: Shape::Fixed(&[Signature {
                    arguments: &[Native::$native],
                    returns: Native::Blob,
                }]),
                doc: concat!("The bytes of a value of type `", $name, "`."),
                run: |call| Ok(call.argument(0).map(<[u8]>::to_vec)),
            },
            Function {
                name: concat!("blob_as_", $name),
                older_name: Some(concat!("blobas", $name)),
                shape: Shape::Fixed(&[Signature {
                    arguments: &[Native::Blob],
                    returns: Native::$native,
                }]),
                doc: concat!("The value of type `", $name, "` with these bytes."),
                run: from_blob,
            },
        )*]
    };
}

// Source: Cassandra 5.0, BytesConversionFcts
pub(super) static FUNCTIONS: &[Function] = conversions!(
    (Ascii, "ascii"),
    (Bigint, "bigint"),
    (Boolean, "boolean"),
    (Counter, "counter"),
    (Date, "date"),
    (Decimal, "decimal"),
    (Double, "double"),
    (Duration, "duration"),
    (Float, "float"),
    (Inet, "inet"),
    (Int, "int"),
    (Smallint, "smallint"),
    (Text, "text"),
    (Text, "varchar"),
    (Time, "time"),
    (Timestamp, "timestamp"),
    (Timeuuid, "timeuuid"),
    (Tinyint, "tinyint"),
    (Uuid, "uuid"),
    (Varint, "varint"),
);

fn from_blob(call: &Call<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    check(bytes, call.returns).map_err(|_| {
        CqlError::invalid(format!(
            "In call to function system.{}, value 0x{} is not a valid binary representation for type {}",
            call.called,
            base::hex::hex(bytes),
            call.returns
        ))
    })?;
    Ok(Some(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn values_of_every_type_are_their_bytes() {
        for (term, of, expected) in [
            ("int_as_blob(1)", "blob", "0x00000001"),
            ("intAsBlob(1)", "blob", "0x00000001"),
            ("blobAsInt(0x00000001)", "int", "1"),
            ("blob_as_bigint(bigint_as_blob(-1))", "bigint", "-1"),
            ("text_as_blob('ä')", "blob", "0xc3a4"),
            ("varcharAsBlob('a')", "blob", "0x61"),
            ("blobAsText(0x61)", "text", "a"),
            ("blobasduration(duration_as_blob(1h))", "duration", "1h"),
            ("blob_as_inet(0x7f000001)", "inet", "127.0.0.1"),
            ("int_as_blob(null)", "blob", "null"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        assert_eq!(FUNCTIONS.len(), 40);
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        for called in ["blob_as_int", "blobasint"] {
            let refusal = format!(
                "In call to function system.{called}, value 0x0001 is not a valid binary \
                 representation for type int"
            );
            assert_eq!(refused(&format!("{called}(0x0001)"), "int"), refusal);
        }
    }
}

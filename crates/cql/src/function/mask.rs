//! Masking functions.

use md5::Md5;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};

use super::signature::Returns;
use super::{Call, Function, Parameter, Shape};
use crate::duration::Duration;
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;
use crate::value::check_size;
use crate::value::collection::{put_count, put_part};
use crate::value::constant::encode_days;
use crate::value::number::Decimal;
use crate::value::vector::{fixed_width, put_element};

type Outcome = Result<Option<Vec<u8>>, CqlError>;

const fn row(
    name: &'static str,
    parameters: &'static [Parameter],
    returns: Returns,
    doc: &'static str,
    run: fn(&Call<'_>) -> Outcome,
) -> Function {
    let shape = Shape::Inferred { parameters, returns };
    Function { name, older_name: None, shape, doc, run }
}

/// Returns the type of the masked value.
const FIRST: Returns = |types, _| Ok(types[0].clone());
const PARTIAL: &[Parameter] = &[
    Parameter::String,
    Parameter::Native(Native::Int),
    Parameter::Native(Native::Int),
    Parameter::OptionalNative(Native::Text),
];

// Source: Cassandra 5.0, MaskingFcts
pub(super) static FUNCTIONS: &[Function] = &[
    row("mask_null", &[Parameter::AnyLikeReceiver], FIRST, "Always null.", |_| Ok(None)),
    row(
        "mask_default",
        &[Parameter::Any],
        FIRST,
        "A constant for all values of a type: `****`, zero, false, 1970, an empty collection.",
        |call| masked(call.returns).map(Some),
    ),
    row(
        "mask_replace",
        &[Parameter::AnyLikeReceiver, Parameter::LikeFirst],
        FIRST,
        "The second argument.",
        |call| Ok(call.argument(1).map(<[u8]>::to_vec)),
    ),
    row(
        "mask_inner",
        PARTIAL,
        FIRST,
        "The text with all except the given numbers of first and last characters replaced by `*` or the given character.",
        |call| partial(call, |at, begin, end| at >= begin && at <= end),
    ),
    row(
        "mask_outer",
        PARTIAL,
        FIRST,
        "The text with the given numbers of first and last characters replaced by `*` or the given character.",
        |call| partial(call, |at, begin, end| at < begin || at > end),
    ),
    row(
        "mask_hash",
        &[Parameter::Any, Parameter::OptionalNative(Native::Text)],
        |_, _| Ok(CqlType::Native(Native::Blob)),
        "The hash of the value's bytes: SHA-256, or the given algorithm.",
        hash,
    ),
];

// Source: Cassandra 5.0, PartialMaskingFunction
fn partial(call: &Call<'_>, is_hidden: fn(i64, i64, i64) -> bool) -> Outcome {
    let Some(text) = call.argument(0) else { return Ok(None) };
    // The bytes have been checked to be text.
    let text = String::from_utf8_lossy(text);
    let count = |nth| call.fixed::<4>(nth).map_or(0, i32::from_be_bytes);
    let padding = match call.argument(3) {
        None => '*',
        Some(bytes) => {
            let given = String::from_utf8_lossy(bytes);
            let mut chars = given.chars();
            let (Some(padding), None) = (chars.next(), chars.next()) else {
                return Err(CqlError::invalid(format!(
                    "The padding argument for function system.{} should be single-character, but '{given}' has {} characters.",
                    call.called,
                    given.chars().count()
                )));
            };
            padding
        }
    };
    let length = i64::try_from(text.chars().count()).expect("texts fit memory");
    let (begin, end) = (i64::from(count(1)), length - 1 - i64::from(count(2)));
    let hidden = text
        .chars()
        .zip(0..)
        .map(|(character, at)| if is_hidden(at, begin, end) { padding } else { character });
    let hidden: String = hidden.collect();
    if *call.returns == CqlType::Native(Native::Ascii) && !hidden.is_ascii() {
        return Err(CqlError::invalid("Invalid byte for ascii"));
    }
    Ok(Some(hidden.into_bytes()))
}

fn hash(call: &Call<'_>) -> Outcome {
    let algorithm = call.argument(1).map_or("SHA-256".into(), String::from_utf8_lossy);
    let digest: fn(&[u8]) -> Vec<u8> = match algorithm.to_uppercase().as_str() {
        "MD5" => |bytes| Md5::digest(bytes).to_vec(),
        "SHA-224" => |bytes| Sha224::digest(bytes).to_vec(),
        "SHA-256" => |bytes| Sha256::digest(bytes).to_vec(),
        "SHA-384" => |bytes| Sha384::digest(bytes).to_vec(),
        "SHA-512" => |bytes| Sha512::digest(bytes).to_vec(),
        "SHA-512/224" => |bytes| Sha512_224::digest(bytes).to_vec(),
        "SHA-512/256" => |bytes| Sha512_256::digest(bytes).to_vec(),
        _ => return Err(CqlError::invalid(format!("Hash algorithm not found: {algorithm}"))),
    };
    Ok(call.argument(0).map(digest))
}

/// The mask of a type.
// Source: Cassandra 5.0, AbstractType.getMaskedValue of each type
fn masked(of: &CqlType) -> Result<Vec<u8>, CqlError> {
    let mut out = Vec::new();
    match of.unfrozen() {
        CqlType::Native(native) => return Ok(masked_native(*native)),
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => put_count(0, &mut out),
        CqlType::Tuple(parts) => {
            for part in parts {
                put_part(Some(&masked(part)?), &mut out);
                check_size(out.len())?;
            }
        }
        CqlType::UserDefined(user) => {
            for (_, part) in &user.fields {
                put_part(Some(&masked(part)?), &mut out);
                check_size(out.len())?;
            }
        }
        CqlType::Vector(element, dimensions) => {
            let part = masked(element)?;
            for _ in 0..*dimensions {
                put_element(&part, fixed_width(element), &mut out);
                check_size(out.len())?;
            }
        }
        CqlType::Frozen(_) => unreachable!("frozen types are never nested directly"),
    }
    Ok(out)
}

fn masked_native(native: Native) -> Vec<u8> {
    match native {
        Native::Text | Native::Ascii => b"****".to_vec(),
        Native::Blob => Vec::new(),
        Native::Boolean | Native::Tinyint | Native::Varint => vec![0],
        Native::Smallint => vec![0; 2],
        Native::Int | Native::Float | Native::Inet => vec![0; 4],
        Native::Bigint | Native::Counter | Native::Double | Native::Time | Native::Timestamp => {
            vec![0; 8]
        }
        Native::Date => encode_days(0).expect("1970 is a date"),
        Native::Decimal => Decimal { unscaled: num_bigint::BigInt::ZERO, scale: 0 }.encode(),
        Native::Duration => Duration::default().encode(),
        Native::Uuid => vec![0; 16],
        Native::Timeuuid => {
            let mut uuid = vec![0; 16];
            uuid[6] = 0x10;
            uuid
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn values_of_every_type_are_hidden() {
        for (term, of, expected) in [
            ("mask_null(1)", "int", "null"),
            ("mask_default('Alice')", "text", "****"),
            ("mask_default(123)", "int", "0"),
            ("mask_default((tinyint) 1)", "tinyint", "0"),
            ("mask_default((smallint) 1)", "smallint", "0"),
            ("mask_default((bigint) 1)", "bigint", "0"),
            ("mask_default((varint) 1)", "varint", "0"),
            ("mask_default((decimal) 1.5)", "decimal", "0"),
            ("mask_default((float) 1.5)", "float", "0.0"),
            ("mask_default(1.5)", "double", "0.0"),
            ("mask_default(true)", "boolean", "false"),
            ("mask_default(0xff)", "blob", "0x"),
            ("mask_default((inet) '127.0.0.1')", "inet", "0.0.0.0"),
            ("mask_default((date) '2011-02-03')", "date", "1970-01-01"),
            ("mask_default((time) '01:02:03')", "time", "00:00:00.000000000"),
            ("mask_default((timestamp) 5)", "timestamp", "1970-01-01 00:00:00.000Z"),
            ("mask_default(1h)", "duration", ""),
            ("mask_default(uuid())", "uuid", "00000000-0000-0000-0000-000000000000"),
            ("mask_default(now())", "timeuuid", "00000000-0000-1000-0000-000000000000"),
            ("mask_default([1, 2])", "list<int>", "[]"),
            ("mask_default((map<int, int>) {1: 2})", "map<int, int>", "{}"),
            ("mask_default((vector<int, 2>) [1, 2])", "vector<int, 2>", "[0, 0]"),
            ("mask_default((tuple<int, text>) (1, 'a'))", "tuple<int, text>", r#"[0, "****"]"#),
            ("mask_replace('a', 'b')", "text", "b"),
            ("mask_inner('Alice', 1, 2)", "text", "A**ce"),
            ("mask_inner('Alice', 1, null)", "text", "A****"),
            ("mask_inner('Alice', 2, 1, '#')", "text", "Al##e"),
            ("mask_outer('Alice', 1, 2)", "text", "*li**"),
            ("mask_outer('Alice', 10, 2)", "text", "*****"),
            ("mask_inner('', 1, 2)", "text", ""),
            (
                "mask_hash(0x)",
                "blob",
                "0xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            ("mask_hash('', 'md5')", "blob", "0xd41d8cd98f00b204e9800998ecf8427e"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        for (term, of, expected) in [
            ("mask_hash(1, 'none')", "blob", "Hash algorithm not found: none"),
            (
                "mask_inner('a', 1, 1, 'xy')",
                "text",
                "The padding argument for function system.mask_inner should be single-character, but 'xy' has 2 characters.",
            ),
            (
                "mask_inner(1, 1, 1)",
                "text",
                "Function system.mask_inner requires an argument of type [text|varchar|ascii], but found argument 1 of type int",
            ),
        ] {
            assert_eq!(refused(term, of), expected, "{term}");
        }
    }
}

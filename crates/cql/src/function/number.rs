//! Numbers of all types, with Java's conversions between them.

use num_bigint::BigInt;

use crate::type_name::Native;
use crate::value::number::{Decimal, float_text, low_bits};

/// A value of a numeric type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Number {
    /// A value of `tinyint`, `smallint`, `int`, `bigint` or `counter`.
    Integer(i64),
    Varint(BigInt),
    Float(f32),
    Double(f64),
    Decimal(Decimal),
}

/// Why a number cannot be a decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotDecimal {
    #[error("A NaN cannot be converted into a decimal")]
    Nan,
    #[error("An infinite number cannot be converted into a decimal")]
    Infinite,
}

/// All numeric types.
pub(crate) const NUMERIC: [Native; 9] = [
    Native::Tinyint,
    Native::Smallint,
    Native::Int,
    Native::Bigint,
    Native::Float,
    Native::Double,
    Native::Decimal,
    Native::Varint,
    Native::Counter,
];

impl Number {
    /// None for an empty value, and for a type that is not numeric.
    pub(crate) fn decode(bytes: &[u8], native: Native) -> Option<Number> {
        Some(match native {
            Native::Tinyint => Number::Integer(i8::from_be_bytes(bytes.try_into().ok()?).into()),
            Native::Smallint => Number::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            Native::Int => Number::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            Native::Bigint | Native::Counter => {
                Number::Integer(i64::from_be_bytes(bytes.try_into().ok()?))
            }
            Native::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            Native::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            Native::Varint if bytes.is_empty() => return None,
            Native::Varint => Number::Varint(BigInt::from_signed_bytes_be(bytes)),
            Native::Decimal => Number::Decimal(Decimal::decode(bytes)?),
            _ => return None,
        })
    }

    /// The bytes for a numeric type: a value out of range is truncated as in Java.
    // Source: java.lang.Number of each class, byteValue to doubleValue
    pub(crate) fn encode(&self, native: Native) -> Result<Vec<u8>, NotDecimal> {
        Ok(match native {
            Native::Tinyint => self.low_bytes::<1>(),
            Native::Smallint => self.low_bytes::<2>(),
            Native::Int => self.low_bytes::<4>(),
            Native::Float => self.to_f32().to_be_bytes().to_vec(),
            Native::Double => self.to_f64().to_be_bytes().to_vec(),
            Native::Varint => match self {
                Number::Varint(value) => value.to_signed_bytes_be(),
                _ => BigInt::from(self.to_i64()).to_signed_bytes_be(),
            },
            Native::Decimal => self.to_decimal()?.encode(),
            _ => self.to_i64().to_be_bytes().to_vec(),
        })
    }

    /// The last bytes of the integer. Floats are first converted to an `int`, if it is at least as
    /// wide.
    fn low_bytes<const WIDTH: usize>(&self) -> Vec<u8> {
        let whole = match self {
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as in Java")]
            Number::Float(value) => i64::from(*value as i32),
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as in Java")]
            Number::Double(value) => i64::from(*value as i32),
            _ => self.to_i64(),
        };
        whole.to_be_bytes()[8 - WIDTH..].to_vec()
    }

    pub(crate) fn to_i64(&self) -> i64 {
        match self {
            Number::Integer(value) => *value,
            Number::Varint(value) => low_bits(value),
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as in Java")]
            Number::Float(value) => *value as i64,
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as in Java")]
            Number::Double(value) => *value as i64,
            Number::Decimal(value) => value.whole_low_bits(),
        }
    }

    pub(crate) fn to_bigint(&self) -> BigInt {
        match self {
            Number::Varint(value) => value.clone(),
            _ => BigInt::from(self.to_i64()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "rounds, as in Java")]
    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Number::Integer(value) => *value as f64,
            Number::Varint(value) => value.to_string().parse().expect("digits are a number"),
            Number::Float(value) => f64::from(*value),
            Number::Double(value) => *value,
            Number::Decimal(value) => value.to_string().parse().expect("digits are a number"),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "rounds, as in Java")]
    pub(crate) fn to_f32(&self) -> f32 {
        match self {
            Number::Integer(value) => *value as f32,
            Number::Varint(value) => value.to_string().parse().expect("digits are a number"),
            Number::Float(value) => *value,
            #[expect(clippy::cast_possible_truncation, reason = "rounds, as in Java")]
            Number::Double(value) => *value as f32,
            Number::Decimal(value) => value.to_string().parse().expect("digits are a number"),
        }
    }

    /// Converts a float to the decimal with the fewest digits that reads back as the same float.
    // Source: Cassandra 5.0, DecimalType.toBigDecimal
    pub(crate) fn to_decimal(&self) -> Result<Decimal, NotDecimal> {
        let of_double = |value: f64| {
            if value.is_nan() {
                return Err(NotDecimal::Nan);
            }
            let decimal = Decimal::parse(&float_text(value));
            decimal.ok_or(NotDecimal::Infinite)
        };
        match self {
            Number::Integer(value) => Ok(Decimal { unscaled: BigInt::from(*value), scale: 0 }),
            Number::Varint(value) => Ok(Decimal { unscaled: value.clone(), scale: 0 }),
            Number::Float(value) => of_double(f64::from(*value)),
            Number::Double(value) => of_double(*value),
            Number::Decimal(value) => Ok(value.clone()),
        }
    }

    /// As an operand next to a decimal, an integer has one decimal place, as if it were a double;
    /// integers that doubles cannot represent stay exact here.
    // Source: Cassandra 5.0, NumberType.toBigDecimal
    pub(crate) fn to_operand(&self) -> Result<Decimal, NotDecimal> {
        /// Doubles represent all integers up to this one.
        const EXACT_MAX: u64 = 1 << 53;
        match self {
            Number::Integer(value) if value.unsigned_abs() <= EXACT_MAX => {
                Number::Double(self.to_f64()).to_decimal()
            }
            _ => self.to_decimal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_as_java_cuts_them() {
        let decimal = |text: &str| Number::Decimal(Decimal::parse(text).unwrap());
        for (number, native, expected) in [
            (Number::Integer(300), Native::Tinyint, &[44][..]),
            (Number::Integer(-1), Native::Smallint, &[0xff, 0xff]),
            (Number::Double(1e10), Native::Int, &[0x7f, 0xff, 0xff, 0xff]),
            (Number::Double(300.9), Native::Tinyint, &[44]),
            (Number::Double(1e10), Native::Tinyint, &[0xff]),
            (Number::Double(f64::NAN), Native::Int, &[0; 4]),
            (Number::Float(-1.9), Native::Bigint, &[0xff; 8]),
            (
                Number::Varint((BigInt::from(1) << 64) + 5),
                Native::Bigint,
                &[0, 0, 0, 0, 0, 0, 0, 5],
            ),
            (decimal("-1.9"), Native::Int, &[0xff; 4]),
            (decimal("1e100"), Native::Int, &[0; 4]),
            (decimal("1.5"), Native::Double, &1.5_f64.to_be_bytes()),
            (Number::Double(1.5), Native::Decimal, &[0, 0, 0, 1, 15]),
            (Number::Integer(5), Native::Varint, &[5]),
            (Number::Integer(5), Native::Float, &5_f32.to_be_bytes()),
        ] {
            assert_eq!(number.encode(native).as_deref(), Ok(expected), "{number:?} {native:?}");
        }
        assert_eq!(Number::Double(f64::NAN).encode(Native::Decimal), Err(NotDecimal::Nan));
        let infinite = Number::Float(f32::INFINITY).encode(Native::Decimal);
        assert_eq!(infinite, Err(NotDecimal::Infinite));
    }

    #[test]
    fn values_of_numeric_types_are_numbers() {
        for native in NUMERIC {
            let bytes = Number::Integer(7).encode(native).unwrap();
            let number = Number::decode(&bytes, native).unwrap();
            assert_eq!(number.to_i64(), 7);
            assert_eq!(Number::decode(&[], native), None);
        }
        assert_eq!(Number::decode(b"a", Native::Text), None);
    }
}

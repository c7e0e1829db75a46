//! Mathematics of single numbers; results have the type of the argument.

use num_bigint::BigInt;

use super::number::Number;
use super::{Call, Function, Shape, Signature, decimal};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;
use crate::value::number::Decimal;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a signature keeps the slice")]
const fn same(native: &'static [Native; 1]) -> Signature {
    Signature { arguments: native, returns: native[0] }
}

/// One signature for each numeric type.
const FORMS: &[Signature] = &[
    same(&[Native::Tinyint]),
    same(&[Native::Smallint]),
    same(&[Native::Int]),
    same(&[Native::Float]),
    same(&[Native::Bigint]),
    same(&[Native::Double]),
    same(&[Native::Varint]),
    same(&[Native::Decimal]),
    same(&[Native::Counter]),
];

const fn row(
    name: &'static str,
    doc: &'static str,
    run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
) -> Function {
    Function { name, older_name: None, shape: Shape::Fixed(FORMS), doc, run }
}

// Source: Cassandra 5.0, MathFcts
pub(super) static FUNCTIONS: &[Function] = &[
    row("abs", "The absolute value.", |call| compute(call, &ABSOLUTE)),
    row("exp", "e to the power of the number.", |call| compute(call, &EXPONENTIAL)),
    row("log", "The natural logarithm.", |call| compute(call, &LOGARITHM)),
    row("log10", "The logarithm to the base ten.", |call| compute(call, &LOGARITHM_10)),
    row(
        "round",
        "The nearest integer; a half is rounded up, or away from zero for decimals.",
        |call| compute(call, &ROUND),
    ),
];

/// A function for each kind of number.
struct Kinds {
    integer: fn(i64) -> Number,
    varint: fn(&BigInt) -> Result<BigInt, decimal::DecimalError>,
    /// Also used for floats.
    double: fn(f64) -> f64,
    decimal: fn(&Decimal) -> Result<Decimal, decimal::DecimalError>,
}

static ABSOLUTE: Kinds = Kinds {
    integer: |value| Number::Integer(value.wrapping_abs()),
    varint: |value| Ok(BigInt::from(value.magnitude().clone())),
    double: f64::abs,
    decimal: |value| {
        let unscaled = BigInt::from(value.unscaled.magnitude().clone());
        Ok(Decimal { unscaled, scale: value.scale })
    },
};

static EXPONENTIAL: Kinds = Kinds {
    integer: |value| Number::Double(Number::Integer(value).to_f64().exp()),
    varint: |value| whole(value, decimal::exp),
    double: f64::exp,
    decimal: decimal::exp,
};

static LOGARITHM: Kinds = Kinds {
    integer: |value| Number::Double(Number::Integer(value).to_f64().ln()),
    varint: |value| whole(value, decimal::ln),
    double: f64::ln,
    decimal: decimal::ln,
};

static LOGARITHM_10: Kinds = Kinds {
    integer: |value| Number::Double(Number::Integer(value).to_f64().log10()),
    varint: |value| whole(value, decimal::log10),
    double: f64::log10,
    decimal: decimal::log10,
};

static ROUND: Kinds = Kinds {
    integer: Number::Integer,
    varint: |value| Ok(value.clone()),
    double: |value| {
        let below = value.floor();
        if value - below >= 0.5 { below + 1.0 } else { below }
    },
    decimal: decimal::round,
};

/// The integer part of a decimal function's result.
fn whole(
    value: &BigInt,
    compute: fn(&Decimal) -> Result<Decimal, decimal::DecimalError>,
) -> Result<BigInt, decimal::DecimalError> {
    decimal::whole_part(&compute(&Decimal { unscaled: value.clone(), scale: 0 })?)
}

fn compute(call: &Call<'_>, kinds: &Kinds) -> Result<Option<Vec<u8>>, CqlError> {
    let CqlType::Native(native) = *call.returns else {
        unreachable!("signatures have native types only");
    };
    let Some(number) = call.argument(0).and_then(|bytes| Number::decode(bytes, native)) else {
        return Ok(None);
    };
    let failed = |error: decimal::DecimalError| CqlError::invalid(error.to_string());
    let result = match &number {
        Number::Integer(value) => (kinds.integer)(*value),
        Number::Varint(value) => Number::Varint((kinds.varint)(value).map_err(failed)?),
        Number::Float(value) => Number::Double((kinds.double)(f64::from(*value))),
        Number::Double(value) => Number::Double((kinds.double)(*value)),
        Number::Decimal(value) => Number::Decimal((kinds.decimal)(value).map_err(failed)?),
    };
    let bytes = result.encode(native).map_err(|error| CqlError::invalid(error.to_string()))?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn numbers_of_every_type_are_computed() {
        for (term, of, expected) in [
            ("abs(-5)", "int", "5"),
            ("abs((tinyint) -128)", "tinyint", "-128"),
            ("abs((bigint) -5)", "bigint", "5"),
            ("abs(-1.5)", "double", "1.5"),
            ("abs((float) -1.5)", "float", "1.5"),
            ("abs((varint) -99999999999999999999)", "varint", "99999999999999999999"),
            ("abs((decimal) -1.50)", "decimal", "1.50"),
            ("exp(2)", "int", "7"),
            ("exp(0.0)", "double", "1.0"),
            ("exp((decimal) 1)", "decimal", "2.7182818284590452353602874713527"),
            ("exp((varint) 3)", "varint", "20"),
            ("log(1.0)", "double", "0.0"),
            ("log(0)", "int", "-2147483648"),
            ("log((decimal) 2)", "decimal", "0.69314718055994530941723212145818"),
            ("log10(1000.0)", "double", "3.0"),
            ("log10((smallint) 1000)", "smallint", "3"),
            ("log10((decimal) 100)", "decimal", "2"),
            ("round(2.5)", "double", "3.0"),
            ("round(-2.5)", "double", "-2.0"),
            ("round((float) 1.4)", "float", "1.0"),
            ("round((decimal) -2.5)", "decimal", "-3"),
            ("round(5)", "int", "5"),
            ("abs((int) null)", "int", "null"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        assert_eq!(refused("log((decimal) 0)", "decimal"), "Illegal log(x) for x <= 0");
    }
}

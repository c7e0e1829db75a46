//! Texts of numbers as C's `printf` writes them.

/// Text of `%.{precision}g`.
pub(super) fn general(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format's exponent is a number");
    let precision = i32::try_from(precision).expect("a few digits");
    if exponent < -4 || exponent >= precision {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(precision - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// Removes zeros at the end of the fraction.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Text of a number that a script passes to a command.
// Source: Redis 7.2 `script_lua.c`, `luaArgsToRedisArgv`
#[expect(clippy::cast_possible_truncation, reason = "the value is an integer of that range")]
pub(super) fn argument_text(value: f64) -> String {
    /// Integers of a double up to here are exact.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        return (value as i64).to_string();
    }
    general(value, 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_c() {
        // Written by `printf`.
        for (value, precision, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (3.0, 17, "3"),
            (3.15, 17, "3.1499999999999999"),
            (3.15, 14, "3.15"),
            (0.1, 17, "0.10000000000000001"),
            (1e15, 14, "1e+15"),
            (1e13, 14, "10000000000000"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (1e-4, 14, "0.0001"),
            (1e-5, 14, "1e-05"),
            (1.5e300, 17, "1.5000000000000001e+300"),
            (-2.5, 3, "-2.5"),
            (9.999_999, 3, "10"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (f64::NAN, 14, "nan"),
        ] {
            assert_eq!(general(value, precision), text, "{value} {precision}");
        }
        assert_eq!(argument_text(-3.0), "-3");
        assert_eq!(argument_text(0.5), "0.5");
        assert_eq!(argument_text(1e300), "1.0000000000000001e+300");
    }
}

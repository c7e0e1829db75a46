//! Amounts as people write them: bytes with a unit, percentages, and the short form that INFO
//! prints.

use std::fmt;

/// Bytes in one `kb`, `mb`, `gb`.
pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not digits followed by a known unit.
    #[error("not an amount such as 1048576, 64kb, 512mb or 2gb")]
    Malformed,
    /// Not digits, perhaps with a decimal multiple.
    #[error("not a count such as 2000000, 2M or 500k")]
    Count,
    /// More than `u64` can hold.
    #[error("larger than 64 bits can hold")]
    TooLarge,
    /// A percentage outside 1 to 100.
    #[error("a percentage must be between 1 and 100")]
    Percent,
}

/// Reads bytes as Redis writes them: digits and an optional unit, in any case.
///
/// `k`, `m`, `g` are powers of 1000; `kb`, `mb`, `gb` are powers of 1024; `b` or no unit is one
/// byte. No sign, no fraction, no blanks. Unlike in Redis, a number that does not fit 64 bits is an
/// error instead of wrapping around.
pub fn parse_bytes(text: &str) -> Result<u64, AmountError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    if digits.is_empty() {
        return Err(AmountError::Malformed);
    }
    let factor = unit_bytes(unit).ok_or(AmountError::Malformed)?;
    let count: u64 = digits.parse().map_err(|_| AmountError::TooLarge)?;
    count.checked_mul(factor).ok_or(AmountError::TooLarge)
}

/// Reads a number of things: `2000000`, `2M`, `2_000k`, with decimal multiples.
pub fn parse_count(text: &str) -> Result<u64, AmountError> {
    let text = text.replace('_', "");
    match text.trim_start_matches(|c: char| c.is_ascii_digit()) {
        // `k`, `m` and `g` are decimal there too.
        "" | "k" | "K" | "M" | "G" if text.starts_with(|c: char| c.is_ascii_digit()) => {
            parse_bytes(&text)
        }
        _ => Err(AmountError::Count),
    }
}

fn unit_bytes(unit: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1_000),
        ("kb", KIB),
        ("m", 1_000_000),
        ("mb", MIB),
        ("g", 1_000_000_000),
        ("gb", GIB),
    ];
    UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|&(_, bytes)| bytes)
}

/// The shortest text that [`parse_bytes`] reads back as exactly this number: `64mb`, `1000`.
pub fn exact_bytes(bytes: u64) -> String {
    for (unit, factor) in [("gb", GIB), ("mb", MIB), ("kb", KIB)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// The rounded form of INFO's `_human` fields: `842B`, `1.05M`, `3.00G`.
pub fn human_bytes(bytes: u64) -> String {
    const STEPS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < KIB {
        return format!("{bytes}B");
    }
    let step = ((bytes.ilog2() / 10) as usize).min(STEPS.len());
    // An f64 carries 53 bits, far more than the two decimals that are shown.
    #[allow(clippy::cast_precision_loss)]
    let scaled = bytes as f64 / (1_u64 << (10 * step)) as f64;
    format!("{scaled:.2}{}", STEPS[step - 1])
}

/// An upper bound: none, bytes, or a share of a larger whole.
///
/// As text: `0` means no bound, `512mb` is bytes, `-5` is 5 percent of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limit {
    #[default]
    None,
    Bytes(u64),
    /// 1 to 100.
    Percent(u8),
}

impl Limit {
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        if let Some(percent) = text.strip_prefix('-') {
            return match percent.parse::<u8>() {
                Ok(percent @ 1..=100) if !text.starts_with("-+") => Ok(Self::Percent(percent)),
                Ok(_) => Err(AmountError::Percent),
                Err(_) if !percent.is_empty() && percent.bytes().all(|b| b.is_ascii_digit()) => {
                    Err(AmountError::Percent)
                }
                Err(_) => Err(AmountError::Malformed),
            };
        }
        Ok(match parse_bytes(text)? {
            0 => Self::None,
            bytes => Self::Bytes(bytes),
        })
    }

    /// The bound in bytes, given the whole; a share of an unbounded whole is unbounded.
    pub fn resolve(self, whole_bytes: Option<u64>) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => whole_bytes.map(|whole| percent_of(whole, percent)),
        }
    }
}

impl fmt::Display for Limit {
    /// The form that [`Limit::parse`] reads, bytes as plain digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "-{percent}"),
        }
    }
}

/// `percent` hundredths of `whole`, rounded down, without overflow.
pub fn percent_of(whole: u64, percent: u8) -> u64 {
    let percent = u64::from(percent);
    (whole / 100).saturating_mul(percent).saturating_add(whole % 100 * percent / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_as_redis_reads_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("7b", 7),
            ("1k", 1_000),
            ("1kb", 1_024),
            ("1K", 1_000),
            ("1Kb", 1_024),
            ("100mb", 104_857_600),
            ("3m", 3_000_000),
            ("1g", 1_000_000_000),
            ("1GB", 1_073_741_824),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn malformed_amounts_of_bytes_are_rejected() {
        for text in ["", "kb", "-1", "+1", " 1", "1 mb", "1.5gb", "10xx", "1mbb", "0x10", "1é"] {
            assert_eq!(parse_bytes(text), Err(AmountError::Malformed), "{text}");
        }
        for text in ["18446744073709551616", "99999999999gb"] {
            assert_eq!(parse_bytes(text), Err(AmountError::TooLarge), "{text}");
        }
    }

    #[test]
    fn human_form_as_info_prints_it() {
        for (bytes, text) in [
            (0, "0B"),
            (1_023, "1023B"),
            (1_024, "1.00K"),
            (1_101_005, "1.05M"),
            (3 * GIB, "3.00G"),
            (5 << 40, "5.00T"),
            (u64::MAX, "16.00E"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn limits_are_bytes_or_percent() {
        for (text, limit) in [
            ("0", Limit::None),
            ("64kb", Limit::Bytes(65_536)),
            ("-5", Limit::Percent(5)),
            ("-100", Limit::Percent(100)),
        ] {
            assert_eq!(Limit::parse(text), Ok(limit), "{text}");
        }
        for text in ["-0", "-101", "-300"] {
            assert_eq!(Limit::parse(text), Err(AmountError::Percent), "{text}");
        }
        for text in ["", "-", "-5mb", "5%", "--5"] {
            assert_eq!(Limit::parse(text), Err(AmountError::Malformed), "{text}");
        }
        assert_eq!(Limit::Percent(5).resolve(Some(1_000)), Some(50));
        assert_eq!(Limit::Percent(5).resolve(None), None);
        assert_eq!(Limit::Bytes(7).resolve(None), Some(7));
    }

    proptest! {
        #[test]
        fn exact_form_reads_back(bytes: u64, shift in 0_u32..64) {
            let bytes = bytes >> shift;
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            if let Ok(limit) = Limit::parse(&text) {
                prop_assert_eq!(Limit::parse(&limit.to_string()), Ok(limit));
            }
        }

        #[test]
        fn percent_is_within_the_whole(whole: u64, percent in 0_u8..=100) {
            let expected = u128::from(whole) * u128::from(percent) / 100;
            prop_assert_eq!(u128::from(percent_of(whole, percent)), expected);
        }
    }
}

//! Accepted differences: the reference server has version 7.0, and Myriad behaves as 7.2.

use crate::resp::Value;

/// Errors that 7.2 changed: the text of 7.2, and that of 7.0.
const ERRORS: [(&str, &str); 2] = [
    // The name of the command instead of XREAD, and of XREADGROUP the other sign.
    (
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.",
        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
    ),
    (
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
    ),
];
/// Errors of 7.2 where 7.0 may succeed: the data of the two is not the same afterwards.
const NEW_ERRORS: [&str; 1] =
    ["ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"];
/// Lengths of texts of doubles with all their digits: 7.0 always prints 17 digits, 7.2 as many as
/// are needed.
const DOUBLE_BYTES: std::ops::RangeInclusive<usize> = 16..=26;

/// Where a `HyperLogLog` has its count.
const COUNT: std::ops::Range<usize> = 8..16;

/// The form of a reply that is the same for both.
pub(super) fn normal(value: &Value) -> Value {
    match value {
        // A score of -0 is 0.
        Value::Bulk(Some(bytes)) if bytes == b"-0" => Value::Bulk(Some(b"0".to_vec())),
        Value::Scalar(text) if text == ",-0" => Value::Scalar(",0".to_owned()),
        // The count in a HyperLogLog: PFCOUNT of Redis stores it.
        Value::Bulk(Some(bytes)) if bytes.starts_with(b"HYLL") && bytes.len() >= COUNT.end => {
            let mut bytes = bytes.clone();
            bytes[COUNT].fill(0);
            Value::Bulk(Some(bytes))
        }
        Value::Bulk(Some(bytes)) => match double(bytes) {
            Some(double) => Value::Bulk(Some(format!("{double}").into_bytes())),
            None => value.clone(),
        },
        Value::Scalar(text) => {
            match text.strip_prefix(',').and_then(|text| text.parse::<f64>().ok()) {
                Some(double) => Value::Scalar(format!(",{double}")),
                None => value.clone(),
            }
        }
        Value::Array(Some(elements)) => Value::Array(Some(elements.iter().map(normal).collect())),
        Value::Set(elements) => Value::Set(elements.iter().map(normal).collect()),
        Value::Map(elements) => Value::Map(elements.iter().map(normal).collect()),
        other => other.clone(),
    }
}

/// Whether two errors are those of the two versions.
pub(super) fn are_same_errors(myriad: &Value, other: &Value) -> bool {
    let (Value::Error(new), Value::Error(old)) = (myriad, other) else { return false };
    let (new, old) = (String::from_utf8_lossy(new), String::from_utf8_lossy(old));
    ERRORS.iter().any(|(of_new, of_old)| {
        let rest = (new.strip_prefix(of_new), old.strip_prefix(of_old));
        matches!(rest, (Some(new), Some(old)) if new == old)
    })
}

/// Whether the sequence ends here, without a difference.
pub(super) fn is_end(myriad: &Value) -> bool {
    match myriad {
        Value::Error(text) => NEW_ERRORS.iter().any(|error| text.starts_with(error.as_bytes())),
        Value::Array(Some(replies)) => replies.iter().any(is_end),
        _ => false,
    }
}

fn double(bytes: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(bytes).ok()?;
    if !DOUBLE_BYTES.contains(&text.len()) || !text.contains('.') {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_equal_as_numbers() {
        let bulk = |text: &str| normal(&Value::Bulk(Some(text.as_bytes().to_vec())));
        assert_eq!(bulk("534.0162595945558"), bulk("534.01625959455578"));
        assert_ne!(bulk("534.0162595945558"), bulk("534.0162595945559"));
        assert_ne!(bulk("1.0"), bulk("1.00"));
        assert_eq!(bulk("-0"), bulk("0"));
    }

    #[test]
    fn errors_differ_as_listed() {
        let error = |text: &str| Value::Error(text.as_bytes().to_vec());
        let [new, old] = ERRORS.map(|(new, old)| [new, old].map(error))[0].clone();
        assert!(are_same_errors(&new, &old));
        assert!(!are_same_errors(&old, &new));
        assert!(!are_same_errors(&error("ERR something"), &old));
    }
}

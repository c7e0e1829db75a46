//! Encoding of histograms in rows: HDR V2, base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Three digits: values have an error of at most 0.1 %.
const DIGITS: u8 = 3;

/// A malformed histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a histogram: {reason}")]
pub struct HistogramError {
    reason: String,
}

/// Returns an empty histogram that grows with its values. In nanoseconds, an hour takes 256 KiB.
pub fn empty() -> Histogram<u64> {
    let mut histogram = Histogram::new(DIGITS).expect("3 digits are allowed");
    histogram.auto(true);
    histogram
}

/// Encodes to text. Empty buckets take almost no space.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to a vector cannot fail, and 3 digits fit the format");
    STANDARD.encode(bytes)
}

/// Decodes text, compressed or not; empty text is an empty histogram.
pub fn decode(text: &str) -> Result<Histogram<u64>, HistogramError> {
    if text.is_empty() {
        return Ok(empty());
    }
    let fault = |reason: String| HistogramError { reason };
    let bytes = STANDARD.decode(text).map_err(|error| fault(error.to_string()))?;
    let mut histogram = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| fault(error.to_string()))?;
    histogram.auto(true);
    Ok(histogram)
}

/// Merges histograms, for example of the repeats of a cell.
pub fn merge<'text>(
    texts: impl IntoIterator<Item = &'text str>,
) -> Result<Histogram<u64>, HistogramError> {
    let mut all = empty();
    for text in texts {
        let histogram = decode(text)?;
        all.add(&histogram).map_err(|error| HistogramError { reason: error.to_string() })?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram<u64> {
        let mut histogram = empty();
        for value in values {
            histogram.record(*value).unwrap();
        }
        histogram
    }

    #[test]
    fn merging_counts_all() {
        let texts = [encode(&of(&[1, 2, 3])), encode(&of(&[4_000_000_000])), String::new()];
        let all = merge(texts.iter().map(String::as_str)).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all.value_at_quantile(0.5), 2);
        assert!(all.equivalent(all.max(), 4_000_000_000));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["%", "AAAA", &encode(&of(&[5]))[..20]] {
            assert!(decode(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn encoding_round_trips(values in prop::collection::vec(0..1u64 << 40, 0..100)) {
            let histogram = of(&values);
            prop_assert_eq!(decode(&encode(&histogram)).unwrap(), histogram);
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&STANDARD.encode(bytes));
        }
    }
}

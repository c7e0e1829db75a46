//! Values of vectors: elements of fixed width are adjacent, others follow their lengths.

use crate::type_name::Native;
use crate::types::CqlType;
use crate::vint::{put_unsigned_vint, take_unsigned_vint};

/// Bytes of a value of the type, if all values have the same length.
pub(crate) fn fixed_width(of: &CqlType) -> Option<usize> {
    let native = match of.unfrozen() {
        CqlType::Native(native) => native,
        CqlType::Vector(element, dimensions) => {
            return fixed_width(element)?.checked_mul(*dimensions);
        }
        _ => return None,
    };
    match native {
        Native::Boolean => Some(1),
        Native::Int | Native::Float => Some(4),
        Native::Bigint | Native::Double | Native::Timestamp => Some(8),
        Native::Uuid | Native::Timeuuid => Some(16),
        _ => None,
    }
}

/// The elements; None if their number differs from `dimensions`.
// Source: native_protocol_v5.spec 6 "vector"
pub(crate) fn split_vector(
    mut bytes: &[u8],
    dimensions: usize,
    width: Option<usize>,
) -> Option<Vec<&[u8]>> {
    if let Some(width) = width {
        let whole = bytes.len() == width.checked_mul(dimensions)?;
        return whole.then(|| bytes.chunks(width).collect());
    }
    // Every element takes at least a byte.
    let mut found = Vec::with_capacity(dimensions.min(bytes.len()));
    for _ in 0..dimensions {
        let length = usize::try_from(take_unsigned_vint(&mut bytes)?).ok()?;
        let (part, rest) = bytes.split_at_checked(length)?;
        found.push(part);
        bytes = rest;
    }
    bytes.is_empty().then_some(found)
}

/// Appends one element.
pub(crate) fn put_element(element: &[u8], width: Option<usize>, out: &mut Vec<u8>) {
    if width.is_none() {
        put_unsigned_vint(element.len() as u64, out);
    }
    out.extend_from_slice(element);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_are_read_back(
            elements in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5)
        ) {
            let mut bytes = Vec::new();
            for element in &elements {
                put_element(element, None, &mut bytes);
            }
            let found = split_vector(&bytes, elements.len(), None).unwrap();
            prop_assert_eq!(found, elements.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(split_vector(&bytes, elements.len() + 1, None), None);
        }
    }

    #[test]
    fn fixed_elements_are_adjacent() {
        assert_eq!(split_vector(&[1, 2, 3, 4], 2, Some(2)), Some(vec![&[1, 2][..], &[3, 4]]));
        assert_eq!(split_vector(&[1, 2, 3], 2, Some(2)), None);
        assert_eq!(fixed_width(&CqlType::TEXT), None);
        let vector = |element, count| CqlType::Vector(Box::new(element), count);
        assert_eq!(fixed_width(&vector(vector(CqlType::INT, 2), 3)), Some(24));
        assert_eq!(fixed_width(&vector(CqlType::TEXT, 3)), None);
    }
}

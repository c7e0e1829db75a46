//! Similarity of two vectors.

use super::signature::Returns;
use super::{Call, Function, Parameter, Shape};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;

const fn row(
    name: &'static str,
    doc: &'static str,
    run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
) -> Function {
    const PARAMETERS: &[Parameter] = &[Parameter::FloatVector, Parameter::FloatVector];
    let shape = Shape::Inferred { parameters: PARAMETERS, returns: RETURNS };
    Function { name, older_name: None, shape, doc, run }
}

const RETURNS: Returns = |types, _| {
    if types[0].unfrozen() == types[1].unfrozen() {
        return Ok(CqlType::Native(Native::Float));
    }
    Err(CqlError::invalid("All arguments must have the same vector dimensions"))
};

// Source: Cassandra 5.0, VectorFcts; jvector, VectorSimilarityFunction
pub(super) static FUNCTIONS: &[Function] = &[
    row("similarity_cosine", "From 0 to 1: (1 + cosine of the angle) / 2.", |call| {
        similarity(call, |left, right| {
            if left.iter().all(|x| *x == 0.0) || right.iter().all(|x| *x == 0.0) {
                return None;
            }
            let lengths = dot(left, left) * dot(right, right);
            Some(f64::midpoint(1.0, dot(left, right) / lengths.sqrt()))
        })
    }),
    row("similarity_euclidean", "From 0 to 1: 1 / (1 + square of the distance).", |call| {
        similarity(call, |left, right| {
            let difference: Vec<f64> = left.iter().zip(right).map(|(a, b)| a - b).collect();
            Some(1.0 / (1.0 + dot(&difference, &difference)))
        })
    }),
    row("similarity_dot_product", "(1 + scalar product) / 2.", |call| {
        similarity(call, |left, right| Some(f64::midpoint(1.0, dot(left, right))))
    }),
];

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|bytes| f64::from(f32::from_be_bytes(*bytes))).collect()
}

fn similarity(
    call: &Call<'_>,
    compute: fn(&[f64], &[f64]) -> Option<f64>,
) -> Result<Option<Vec<u8>>, CqlError> {
    let (Some(left), Some(right)) = (call.argument(0), call.argument(1)) else { return Ok(None) };
    let found = compute(&numbers(left), &numbers(right)).ok_or_else(|| {
        CqlError::invalid(format!(
            "Function system.{} doesn't support all-zero vectors.",
            call.called
        ))
    })?;
    #[expect(clippy::cast_possible_truncation, reason = "the result is a float")]
    let found = found as f32;
    Ok(Some(found.to_be_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn vectors_are_compared() {
        for (term, expected) in [
            ("similarity_cosine([1, 0], [1, 0])", "1.0"),
            ("similarity_cosine([1, 0], [0, 2])", "0.5"),
            ("similarity_cosine([1, 0], [-1, 0])", "0.0"),
            ("similarity_euclidean([1, 2], [1, 2])", "1.0"),
            ("similarity_euclidean([0, 0], [0, 1])", "0.5"),
            ("similarity_dot_product([1, 2], [3, 4])", "6.0"),
            ("similarity_dot_product((vector<float, 1>) [1], null)", "null"),
        ] {
            assert_eq!(evaluated(term, "float"), expected, "{term}");
        }
        for (term, expected) in [
            (
                "similarity_cosine([0, 0], [1, 0])",
                "Function system.similarity_cosine doesn't support all-zero vectors.",
            ),
            (
                "similarity_euclidean([0], [1, 0])",
                "All arguments must have the same vector dimensions",
            ),
            (
                "similarity_euclidean('a', [1, 0])",
                "Function system.similarity_euclidean requires a float vector argument, but found argument 'a' of type ascii",
            ),
        ] {
            assert_eq!(refused(term, "float"), expected, "{term}");
        }
    }
}

//! Ranges of the token ring that a SELECT requests.

use cql::error::CqlError;
use cql::expression::Evaluated;
use cql::plan::{Edge, Tokens};

use super::values::EvalContext;

/// Requested tokens, both ends included; empty if the first is greater than the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Ring {
    pub(super) const WHOLE: Ring = Ring { first: i64::MIN, last: i64::MAX };

    pub(super) fn new<'v>(wanted: &'v Tokens, cx: &EvalContext<'v>) -> Result<Ring, CqlError> {
        let mut tokens = Ring::WHOLE;
        if let Some(edge) = &wanted.lower {
            let token = value(edge, cx)?;
            match (edge.is_inclusive, token.checked_add(1)) {
                (true, _) => tokens.first = token,
                (false, Some(next)) => tokens.first = next,
                (false, None) => tokens.last = i64::MIN,
            }
        }
        if let Some(edge) = &wanted.upper {
            let token = value(edge, cx)?;
            // Clients denote the end of the ring by the lowest number, which no partition has.
            if token != i64::MIN {
                let last = if edge.is_inclusive { token } else { token - 1 };
                tokens.last = tokens.last.min(last);
            }
        }
        Ok(tokens)
    }

    pub(super) fn holds(self, token: i64) -> bool {
        (self.first..=self.last).contains(&token)
    }
}

/// Tokens that named keys must have. Unlike a scan's range, the span wraps around the ring if the
/// first bound is greater than the last, and the lowest number has no special meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenSpan {
    lower: Option<Bound>,
    upper: Option<Bound>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    token: i64,
    is_inclusive: bool,
}

impl TokenSpan {
    pub(super) fn new<'v>(wanted: &'v Tokens, cx: &EvalContext<'v>) -> Result<TokenSpan, CqlError> {
        let bound = |edge: &'v Option<Edge>| -> Result<Option<Bound>, CqlError> {
            let Some(edge) = edge else { return Ok(None) };
            Ok(Some(Bound { token: value(edge, cx)?, is_inclusive: edge.is_inclusive }))
        };
        Ok(TokenSpan { lower: bound(&wanted.lower)?, upper: bound(&wanted.upper)? })
    }

    // Source: Cassandra 5.0, TokenFilter.toRangeSet
    pub(super) fn holds(self, token: i64) -> bool {
        let is_above =
            |lower: Bound| token > lower.token || lower.is_inclusive && token == lower.token;
        let is_below =
            |upper: Bound| token < upper.token || upper.is_inclusive && token == upper.token;
        match (self.lower, self.upper) {
            (Some(lower), Some(upper)) if lower.token > upper.token => {
                is_above(lower) || is_below(upper)
            }
            (lower, upper) => lower.is_none_or(is_above) && upper.is_none_or(is_below),
        }
    }
}

fn value<'v>(edge: &'v Edge, cx: &EvalContext<'v>) -> Result<i64, CqlError> {
    if cx.evaluate(&edge.value)? == Evaluated::Null {
        return Err(CqlError::invalid("Invalid null token value"));
    }
    let token = cx.integer(&edge.value, "token")?;
    token.ok_or_else(|| CqlError::invalid("Invalid unset value for partition key token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_wrap_around_the_ring() {
        let bound = |token, is_inclusive| Some(Bound { token, is_inclusive });
        let check = |lower, upper, expected: &[i64]| {
            let span = TokenSpan { lower, upper };
            let tokens = [i64::MIN, -1, 0, 1, i64::MAX];
            let held: Vec<i64> = tokens.into_iter().filter(|token| span.holds(*token)).collect();
            assert_eq!(held, expected, "{span:?}");
        };
        check(None, None, &[i64::MIN, -1, 0, 1, i64::MAX]);
        check(bound(0, false), None, &[1, i64::MAX]);
        check(None, bound(0, true), &[i64::MIN, -1, 0]);
        check(bound(-1, false), bound(1, true), &[0, 1]);
        check(bound(0, true), bound(0, true), &[0]);
        check(bound(0, true), bound(0, false), &[]);
        check(bound(0, false), bound(-1, true), &[i64::MIN, -1, 1, i64::MAX]);
        check(bound(0, false), bound(i64::MIN, true), &[i64::MIN, 1, i64::MAX]);
        check(None, bound(i64::MIN, false), &[]);
    }
}

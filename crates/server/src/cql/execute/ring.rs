//! Ranges of the ring that a SELECT asks for.

use super::values::Cx;
use crate::cql::error::CqlError;
use crate::cql::plan::{Edge, Tokens};

/// Tokens that are wanted, both included; none if the first is above the last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Ring {
    pub(super) const WHOLE: Ring = Ring { first: i64::MIN, last: i64::MAX };

    pub(super) fn new<'v>(wanted: &'v Tokens, cx: &Cx<'v>) -> Result<Ring, CqlError> {
        let value = |edge: &'v Edge| -> Result<i64, CqlError> {
            let token = cx.integer(&edge.value, "token")?;
            token.ok_or_else(|| CqlError::invalid("Invalid unset value for partition key token"))
        };
        let mut tokens = Ring::WHOLE;
        if let Some(edge) = &wanted.lower {
            let token = value(edge)?;
            match (edge.is_inclusive, token.checked_add(1)) {
                (true, _) => tokens.first = token,
                (false, Some(next)) => tokens.first = next,
                (false, None) => tokens.last = i64::MIN,
            }
        }
        if let Some(edge) = &wanted.upper {
            let token = value(edge)?;
            // Clients say "to the end" by the lowest number, which no partition has.
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

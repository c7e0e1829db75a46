//! USING TTL and TIMESTAMP.

use crate::cql::parser::{Parser, Result};
use crate::cql::term::{Constant, Term};

/// When a write was made and how long it lasts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Using {
    /// Microseconds since the Unix epoch.
    pub timestamp: Option<Term>,
    /// Seconds.
    pub ttl: Option<Term>,
}

impl Using {
    pub fn parse(parser: &mut Parser<'_>) -> Result<Using> {
        let mut using = Using::default();
        if !parser.take_word("using") {
            return Ok(using);
        }
        loop {
            let token = parser.peek();
            let slot = if parser.take_word("timestamp") {
                &mut using.timestamp
            } else if parser.take_word("ttl") {
                &mut using.ttl
            } else {
                return parser.unexpected("TIMESTAMP or TTL");
            };
            if slot.is_some() {
                return parser.fault(token, format!("{} is said twice", token.text));
            }
            let value = parser.peek();
            *slot = match Term::parse(parser)? {
                term @ (Term::Marker(_) | Term::Constant(Constant::Integer(_))) => Some(term),
                _ => return parser.fault(value, "expected an integer or a marker"),
            };
            if !parser.take_word("and") {
                return Ok(using);
            }
        }
    }
}

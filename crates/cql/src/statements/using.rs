//! USING TTL and TIMESTAMP.

use crate::parser::{Parser, Result};
use crate::term::{Constant, Term};

/// Timestamp and TTL of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Using {
    /// Microseconds since the Unix epoch.
    pub(crate) timestamp: Option<Term>,
    /// Seconds.
    pub(crate) ttl: Option<Term>,
}

impl Using {
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Using> {
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
                return token.fault(format!("{} is specified twice", token.text));
            }
            let value = parser.peek();
            *slot = match Term::parse(parser)? {
                term @ (Term::Marker(_) | Term::Constant(Constant::Integer(_))) => Some(term),
                _ => return value.fault("expected an integer or a marker"),
            };
            if !parser.take_word("and") {
                return Ok(using);
            }
        }
    }
}

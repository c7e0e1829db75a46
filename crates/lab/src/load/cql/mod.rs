//! Load over CQL.

mod conversation;
mod message;
mod statement;

pub(crate) use conversation::{Conversation, prepare_schema};
pub(crate) use message::{Message, UNPREPARED, error_name, next, unprepared_id};
pub(crate) use statement::Statements;

use wire::cql::{Consistency, RequestEncoder, Version};

use super::spec::CqlConsistency;

/// The default protocol version of most drivers; without checksums.
pub(crate) const ENCODER: RequestEncoder =
    RequestEncoder { version: Version::V4, compression: None };
/// The language version in STARTUP; servers accept any of version 3.
pub(crate) const STARTUP: [(&str, &str); 1] = [("CQL_VERSION", "3.0.0")];

/// Returns the response to a login request.
// Source: RFC 4616 2
pub(crate) fn login_token(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

impl CqlConsistency {
    pub(crate) fn on_the_wire(self) -> Consistency {
        match self {
            CqlConsistency::Any => Consistency::Any,
            CqlConsistency::One => Consistency::One,
            CqlConsistency::Two => Consistency::Two,
            CqlConsistency::Three => Consistency::Three,
            CqlConsistency::Quorum => Consistency::Quorum,
            CqlConsistency::All => Consistency::All,
            CqlConsistency::LocalQuorum => Consistency::LocalQuorum,
            CqlConsistency::EachQuorum => Consistency::EachQuorum,
            CqlConsistency::LocalOne => Consistency::LocalOne,
        }
    }
}

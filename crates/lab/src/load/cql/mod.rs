//! What a load over CQL is made of.

mod conversation;
mod message;
mod statement;

pub(crate) use conversation::{Conversation, prepare_schema};
pub(crate) use message::{Message, UNPREPARED, error_name, next, unprepared_id};
pub(crate) use statement::Statements;

use wire::cql::{Consistency, RequestEncoder, Version};

use super::spec::CqlConsistency;

/// What drivers speak that were not told otherwise to most servers; no checksums.
pub(crate) const ENCODER: RequestEncoder =
    RequestEncoder { version: Version::V4, compression: None };
/// The language, which clients name in STARTUP; servers take any of the 3rd.
pub(crate) const STARTUP: [(&str, &str); 1] = [("CQL_VERSION", "3.0.0")];

/// What answers a request for user and password.
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

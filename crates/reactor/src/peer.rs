//! What a connection is called, and where it comes from.

use std::net::SocketAddr;

/// Name of a connection: unique in the process for ever, and the same after the connection has
/// moved to another reactor. It is what clients see as their client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Who is on the other side, and through which listener it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub remote: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    /// Position in the list of listeners given to [`crate::Group::start`], or [`Peer::ADOPTED`].
    pub listener: usize,
}

impl Peer {
    /// The `listener` of connections that came through a [`crate::Adopter`].
    pub const ADOPTED: usize = usize::MAX;
}

//! Identity and origin of a connection.

use std::net::SocketAddr;

/// Identifies a connection: unique during the lifetime of the process, and unchanged when the
/// connection moves to another reactor. Clients see it as their client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The remote side, and the listener through which it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `None`, like `local`, for the peer of a Unix socket.
    pub remote: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    /// Position in the list of listeners given to [`crate::Group::start`], or [`Peer::ADOPTED`].
    pub listener: usize,
}

impl Peer {
    /// The `listener` of connections from a [`crate::Adopter`].
    pub const ADOPTED: usize = usize::MAX;
}

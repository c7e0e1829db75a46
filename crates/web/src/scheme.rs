//! The protocol of an address.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    Http,
    /// HTTP inside TLS.
    Https,
    /// HTTP, for the operator: counters instead of the site.
    Status,
}

impl Scheme {
    pub(crate) const ALL: [Scheme; 3] = [Scheme::Http, Scheme::Https, Scheme::Status];

    /// Returns the name used in URLs, and in the line that reports the listening addresses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Status => "status",
        }
    }

    /// Returns the position in [`Scheme::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) scheme: Scheme,
    /// Number of its address, assigned by the master.
    pub(crate) address: u32,
    pub(crate) socket: OwnedFd,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_in_the_list() {
        assert_eq!(Scheme::ALL.map(Scheme::index), [0, 1, 2]);
        assert_eq!(Scheme::ALL.map(Scheme::name), ["http", "https", "status"]);
    }
}

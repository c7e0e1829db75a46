//! What is spoken at an address: HTTP as it is, or inside of TLS.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) const ALL: [Scheme; 2] = [Scheme::Http, Scheme::Https];

    /// As in URLs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// Position in [`Scheme::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Scheme::Http => 0,
            Scheme::Https => 1,
        }
    }
}

/// A listening socket, and what is spoken there.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) scheme: Scheme,
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
        assert_eq!(Scheme::ALL.map(Scheme::index), [0, 1]);
        assert_eq!(Scheme::ALL.map(Scheme::name), ["http", "https"]);
    }
}

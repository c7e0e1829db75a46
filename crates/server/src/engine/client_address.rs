//! The remote address of a client, as lists and logs show it.

use std::net::SocketAddr;

use crate::config::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClientAddress {
    /// The client of a test, or of a session that has no connection.
    #[default]
    Unknown,
    Internet(SocketAddr),
    /// The Unix socket of the server: its peers share the address.
    UnixSocket,
}

impl From<Option<SocketAddr>> for ClientAddress {
    fn from(address: Option<SocketAddr>) -> ClientAddress {
        address.map_or(ClientAddress::Unknown, ClientAddress::Internet)
    }
}

impl ClientAddress {
    pub(crate) fn internet(self) -> Option<SocketAddr> {
        match self {
            ClientAddress::Internet(address) => Some(address),
            ClientAddress::Unknown | ClientAddress::UnixSocket => None,
        }
    }

    /// Whether the client is on this machine.
    pub(crate) fn is_local(self) -> bool {
        match self {
            ClientAddress::Unknown => false,
            ClientAddress::Internet(address) => address.ip().is_loopback(),
            ClientAddress::UnixSocket => true,
        }
    }

    /// The address with its port; `None` if it is unknown.
    // Source: Redis 7.2 `networking.c`, `genClientAddrString`
    pub(crate) fn text(self, settings: &Settings) -> Option<String> {
        match self {
            ClientAddress::Unknown => None,
            ClientAddress::Internet(address) => Some(address.to_string()),
            ClientAddress::UnixSocket => Some(format!("{}:0", settings.unixsocket.display())),
        }
    }
}

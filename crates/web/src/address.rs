//! Addresses in options: a host, which may be a name, and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use base::address::{AddressError, resolve_host, split};
use options::{Value, ValueError};

/// A host and a port. A name is resolved only when needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// Without brackets.
    host: String,
    port: u16,
}

impl HostPort {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, unless the host is a name.
    pub(crate) fn literal(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    /// Returns the address; a name is resolved to its current address. Blocks for the system's
    /// resolver.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, AddressError> {
        resolve_host(&self.host, self.port)
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> HostPort {
        HostPort { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostPort, AddressError> {
        let (host, port) = split(text)?;
        Ok(HostPort { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl Value for HostPort {
    fn read(text: &str) -> Result<HostPort, ValueError> {
        text.parse().map_err(ValueError::explained)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["127.0.0.1:80", "[::1]:0", "localhost:1", "a-b.example:65535", "my_app:80"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        let address = |text: &str| text.parse::<HostPort>().unwrap();
        assert_eq!(address("[::1]:7").literal(), "[::1]:7".parse().ok());
        assert_eq!(address("localhost:7").literal(), None);
        assert!(address("localhost:7").resolve().unwrap().ip().is_loopback());
        assert!("25005".parse::<HostPort>().is_err());
    }
}

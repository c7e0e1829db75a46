//! Network addresses as people write them: `127.0.0.1:6379`, `[::1]:6379`, `cache.internal:6379`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Why a text is not the address of a host and a port.
///
/// The message contains its cause, so there is no `source`: an error chain would print it twice.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("{0:?} is not HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")]
    Malformed(String),
    #[error("could not resolve host {host:?}: {cause}")]
    Lookup { host: String, cause: io::Error },
    #[error("host {0:?} has no address")]
    NoAddress(String),
}

/// Splits `HOST:PORT`. The brackets around an IPv6 address are required, and removed.
pub fn split(text: &str) -> Result<(&str, u16), AddressError> {
    let malformed = || AddressError::Malformed(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    // `parse` accepts a plus sign.
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number).ok_or_else(malformed)?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':')),
        None => Some(host).filter(|host| !host.contains([':', ']'])),
    };
    match host {
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => Ok((host, port)),
        _ => Err(malformed()),
    }
}

/// Whether the Host of a request is an address, `localhost`, or empty (HTTP/1.0), with any port.
/// Another site can make its own name resolve to this machine (DNS rebinding), and a browser then
/// attributes pages under that name to the site. An address and `localhost` cannot be claimed that
/// way.
pub fn is_local_host(host: &[u8]) -> bool {
    let name = match host.iter().rposition(|byte| *byte == b':') {
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
        _ => host,
    };
    let name = std::str::from_utf8(name).unwrap_or("?");
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| !address.is_unspecified())
}

/// Reads `HOST:PORT`. A name is looked up, which may block for seconds; of several addresses the
/// first IPv4 address is used, otherwise the first. `localhost` is 127.0.0.1 on every machine.
pub fn resolve(text: &str) -> Result<SocketAddr, AddressError> {
    let (host, port) = split(text)?;
    resolve_host(host, port)
}

/// Like [`resolve`], for a host (without brackets) and a port that are known separately.
pub fn resolve_host(host: &str, port: u16) -> Result<SocketAddr, AddressError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::from((ip, port)));
    }
    // Source: RFC 6761, 6.3: localhost is always the loopback address.
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|cause| AddressError::Lookup { host: host.to_owned(), cause })?;
    let found: Vec<SocketAddr> = found.collect();
    let best = found.iter().find(|address| address.is_ipv4()).or_else(|| found.first());
    best.copied().ok_or_else(|| AddressError::NoAddress(host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_need_no_lookup() {
        for (text, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:65535", "[::1]:65535"),
            ("localhost:1", "127.0.0.1:1"),
            ("LOCALHOST:1", "127.0.0.1:1"),
        ] {
            assert_eq!(resolve(text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn malformed_addresses_are_rejected() {
        for text in [
            "",
            "8080",
            ":8080",
            "host",
            "host:",
            "host:x",
            "host:+1",
            "host:65536",
            "::1:80",
            "[::1]",
            "[::1:80",
            "::1]:80",
            "[]:80",
            "[host]:80",
            "a b:80",
        ] {
            let error = split(text).unwrap_err();
            assert!(matches!(error, AddressError::Malformed(_)), "{text}: {error}");
        }
        assert_eq!(split("[fe80::1]:7").unwrap(), ("fe80::1", 7));
    }

    #[test]
    fn unknown_hosts_are_named() {
        // Source: RFC 6761, 6.4: names under `invalid` never resolve.
        let error = resolve("no-such-host.invalid:80").unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}

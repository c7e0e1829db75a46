//! A server to copy from or to: `redis://user:password@host:port`, `cassandra://...`.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::config::MasterAddress;

const REDIS: Scheme = Scheme { prefix: "redis://", default_port: 6379 };
const CASSANDRA: Scheme = Scheme { prefix: "cassandra://", default_port: 9042 };
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a read or write returns, so that the caller can do something else.
const READ_SLICE: Duration = Duration::from_millis(100);

struct Scheme {
    prefix: &'static str,
    default_port: u16,
}

/// A server, and the account to use there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub address: MasterAddress,
    /// Empty: the default user.
    pub user: String,
    pub password: Option<String>,
}

impl Place {
    /// Whether a text is the address of a server instead of the name of a file.
    pub fn is_url(text: &str) -> bool {
        text.contains("://")
    }

    /// Whether a text is the address of a server of CQL.
    pub fn is_cassandra(text: &str) -> bool {
        text.starts_with(CASSANDRA.prefix)
    }

    /// Parses `[redis://][user[:password]@]host[:port]`. Bytes in user and password may be written as
    /// in URLs: `%40`.
    pub fn parse(text: &str) -> Result<Place, &'static str> {
        let rest = text.strip_prefix(REDIS.prefix).unwrap_or(text);
        if Place::is_url(rest) {
            return Err("the address of a server begins with redis:// or cassandra://");
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?']) {
            return Err("all databases are copied: the address has no path");
        }
        Place::of(rest, &REDIS)
    }

    /// Parses `[cassandra://][user[:password]@]host[:port][/keyspace]`. Returns the keyspace, too.
    pub fn parse_cassandra(text: &str) -> Result<(Place, Option<String>), &'static str> {
        let rest = text.strip_prefix(CASSANDRA.prefix).unwrap_or(text);
        if Place::is_url(rest) {
            return Err("the address of a server of CQL begins with cassandra://");
        }
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains(['/', '?']) {
            return Err("the path of an address is one keyspace");
        }
        let keyspace = decoded(path).ok_or("malformed % in a keyspace")?;
        Ok((Place::of(server, &CASSANDRA)?, Some(keyspace).filter(|name| !name.is_empty())))
    }

    fn of(rest: &str, scheme: &Scheme) -> Result<Place, &'static str> {
        let (account, server) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let bracketed = server.ends_with(']') || !server.contains(':');
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !bracketed => {
                (host, port.parse().map_err(|_| "the port of a server is a number up to 65535")?)
            }
            _ => (server, scheme.default_port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err("the address of a server has a host: HOST:PORT");
        }
        Ok(Place {
            address: MasterAddress { host: host.to_owned(), port },
            user: decoded(user).ok_or("malformed % in a user name")?,
            password: match password {
                "" => None,
                text => Some(decoded(text).ok_or("malformed % in a password")?),
            },
        })
    }

    /// The address without the account.
    pub(super) fn shown(&self) -> String {
        let MasterAddress { host, port } = &self.address;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The words of AUTH, if there is a password.
    pub(super) fn login(&self) -> Option<Vec<&[u8]>> {
        let password = self.password.as_ref()?.as_bytes();
        Some(match self.user.as_str() {
            "" => vec![b"AUTH", password],
            user => vec![b"AUTH", user.as_bytes(), password],
        })
    }

    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let MasterAddress { host, port } = &self.address;
        let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(READ_SLICE))?;
                    socket.set_write_timeout(Some(READ_SLICE))?;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Decodes `%40`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: (&str, u16, &str, Option<&str>)) {
        let place = Place::parse(text).unwrap();
        let MasterAddress { host, port } = &place.address;
        assert_eq!((&**host, *port, &*place.user, place.password.as_deref()), expected, "{text}");
    }

    #[test]
    fn addresses_have_accounts_and_ports() {
        check("redis://host:7000", ("host", 7000, "", None));
        check("redis://host/", ("host", 6379, "", None));
        check("10.0.0.1:1", ("10.0.0.1", 1, "", None));
        check("redis://[::1]:7000", ("::1", 7000, "", None));
        check("redis://[::1]", ("::1", 6379, "", None));
        check("redis://:secret@host", ("host", 6379, "", Some("secret")));
        check("redis://me:a%40b:c@host:1", ("host", 1, "me", Some("a@b:c")));
        check("redis://me@host:1", ("host", 1, "me", None));
    }

    #[test]
    fn addresses_of_cql_have_a_keyspace() {
        for (text, host, port, keyspace) in [
            ("cassandra://host", "host", 9042, None),
            ("host:9043/", "host", 9043, None),
            ("cassandra://me:s@[::1]:1/Shop", "::1", 1, Some("Shop")),
            ("cassandra://host/a%2fb", "host", 9042, Some("a/b")),
        ] {
            let (place, found) = Place::parse_cassandra(text).unwrap();
            assert_eq!((&*place.address.host, place.address.port), (host, port), "{text}");
            assert_eq!(found.as_deref(), keyspace, "{text}");
        }
        for text in ["redis://host", "host/a/b", "host/a?b", "/shop", "host/%", "cassandra://"] {
            assert!(Place::parse_cassandra(text).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "redis://",
            ":1",
            "host:0",
            "host:x",
            "host:99999",
            "redis://host/3",
            "rediss://host",
            "redis://:%4@host",
            "redis://:%zz@host",
            "redis://:%ff@h",
        ] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }
}

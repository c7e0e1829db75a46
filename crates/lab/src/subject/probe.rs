//! Queries a server, with a new connection each time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::spec::Kind;

/// A server on this machine normally responds immediately.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for INFO, which has a few KiB.
const INFO_BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MAX: u64 = 4 << 10;
/// Counters of the server that are reported per operation.
const COUNTER_PREFIXES: [&str; 2] = ["syscalls_", "lock_"];

/// Succeeds if the server accepts a connection and responds to a request.
pub(super) fn answers(kind: Kind, address: SocketAddr) -> io::Result<()> {
    if kind == Kind::Cassandra {
        let answer = crate::load::Conversation::connect(address);
        return answer.map(|_| ()).map_err(io::Error::other);
    }
    let mut stream = connect(address)?;
    let question: &[u8] = match kind {
        Kind::Memcached => b"version\r\n",
        Kind::Web | Kind::Nginx => b"GET /hello HTTP/1.0\r\n\r\n",
        _ => b"PING\r\n",
    };
    stream.get_mut().write_all(question)?;
    let line = read_line(&mut stream)?;
    let is_wrong = kind.is_web() && !line.starts_with("HTTP/1.1 200");
    if is_wrong || line.starts_with("-LOADING") {
        return Err(io::Error::other(line));
    }
    Ok(())
}

/// Returns a section of INFO.
pub(super) fn info(
    address: SocketAddr,
    password: Option<&str>,
    section: &str,
) -> io::Result<String> {
    let mut stream = connect(address)?;
    if let Some(password) = password {
        stream.get_mut().write_all(&request(&["AUTH", password]))?;
        let line = read_line(&mut stream)?;
        if !line.starts_with('+') {
            return Err(io::Error::other(line));
        }
    }
    stream.get_mut().write_all(&request(&["INFO", section]))?;
    read_bulk(&mut stream)
}

/// Parses lines `name:number` with the names of counters.
pub(super) fn counters(text: &str) -> BTreeMap<String, f64> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .filter(|(name, _)| COUNTER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

/// Counts the replicas that have the data, in the section `replication`.
pub(super) fn replicas_online(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// Reads a line without its terminator.
fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("truncated line: {line:?}")))
        }
    }
}

fn read_bulk(stream: &mut impl BufRead) -> io::Result<String> {
    let line = read_line(stream)?;
    let bytes = line.strip_prefix('$').and_then(|digits| digits.parse().ok());
    let bytes = bytes.filter(|bytes| *bytes <= INFO_BYTES_MAX);
    let bytes: usize = bytes.ok_or_else(|| io::Error::other(line))?;
    let mut text = vec![0; bytes + 2];
    stream.read_exact(&mut text)?;
    text.truncate(bytes);
    String::from_utf8(text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    /// A server that sends these bytes on every connection.
    fn answering(bytes: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 512];
            assert!(stream.read(&mut question).unwrap() > 0);
            stream.write_all(bytes).unwrap();
        });
        address
    }

    #[test]
    fn a_server_is_up_when_it_answers() {
        answers(Kind::RedisServer, answering(b"+PONG\r\n")).unwrap();
        answers(Kind::RedisServer, answering(b"-NOAUTH Authentication required.\r\n")).unwrap();
        answers(Kind::Memcached, answering(b"VERSION 1.6.18\r\n")).unwrap();
        answers(Kind::Nginx, answering(b"HTTP/1.1 200 OK\r\n\r\n")).unwrap();
        assert!(answers(Kind::Web, answering(b"HTTP/1.1 404 Not Found\r\n\r\n")).is_err());
        for bytes in [&b"-LOADING Redis is loading\r\n"[..], b"", b"+PON"] {
            assert!(answers(Kind::RedisServer, answering(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn info_is_one_bulk() {
        let text = info(answering(b"$9\r\na:1\r\nb:2.\r\n"), None, "counters").unwrap();
        assert_eq!(text, "a:1\r\nb:2.");
        for bytes in [&b"-ERR unknown\r\n"[..], b"$99999999\r\n", b"$5\r\nab", b"$-1\r\n"] {
            assert!(info(answering(bytes), None, "counters").is_err(), "{bytes:?}");
        }
        let error = info(answering(b"-WRONGPASS no\r\n"), Some("x"), "counters").unwrap_err();
        assert_eq!(error.to_string(), "-WRONGPASS no");
    }

    #[test]
    fn replicas_with_the_data_are_counted() {
        let text = "role:master\r\nconnected_slaves:2\r\n\
            slave0:ip=127.0.0.1,port=1,state=online,offset=0,lag=0\r\n\
            slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n";
        assert_eq!(replicas_online(text), 1);
    }

    #[test]
    fn counters_are_numbers_with_their_names() {
        let found = counters(
            "# Reactors\r\nreactors:2\r\nsyscalls_read:12\r\nlock_wait_ns:3\r\nlock_note:x\r\n",
        );
        let expected = [("lock_wait_ns".to_owned(), 3.0), ("syscalls_read".to_owned(), 12.0)];
        assert_eq!(found, BTreeMap::from(expected));
    }
}

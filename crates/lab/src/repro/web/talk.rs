//! A client that sends exact bytes and waits for the response.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// The response to [`GET`], byte for byte.
pub(super) const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nHello from Tom HTTP Server\n";
pub(super) const GET: &[u8] = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
/// Request of the source's load: the connection ends with the response.
pub(super) const GET_OLD: &[u8] = b"GET /hello HTTP/1.0\r\n\r\n";
/// The bytes after the head of [`HELLO`].
pub(super) const HELLO_BODY_BYTES: usize = 27;
/// A server on this machine normally responds immediately.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit for responses: no experiment needs longer ones.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Connects, with a timeout for all reads.
pub(super) fn connect(address: SocketAddr, patience: Duration) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)
        .with_context(|| format!("could not connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Sends `request` on a new connection, and returns everything until the server closes it. A reset
/// also counts as the end. An endless response is truncated by the timeout.
pub(super) fn ask(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(address, PATIENCE)?;
    let mut answer = Vec::new();
    match stream.write_all(request) {
        // The server may close early, after its response.
        Err(error) if is_end(&error) => {}
        sent => sent.context("could not send a request")?,
    }
    let mut part = vec![0; 64 * 1024];
    while answer.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_end(&error) || is_timeout(&error) => break,
            Err(error) => return Err(error).context("could not read a response"),
        }
    }
    Ok(answer)
}

/// Whether exactly [`HELLO`] is received within the stream's timeout.
pub(super) fn receives_hello(stream: &mut TcpStream) -> Result<bool> {
    let mut answer = [0; HELLO.len()];
    match stream.read_exact(&mut answer) {
        Ok(()) => Ok(answer == HELLO),
        Err(error) if is_end(&error) || is_timeout(&error) => Ok(false),
        Err(error) => Err(error).context("could not read a response"),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that sends `answer` to the first client, and closes the connection.
    fn answering(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(answer).unwrap();
        });
        address
    }

    #[test]
    fn answers_end_with_their_connection() {
        assert_eq!(ask(answering(HELLO), GET).unwrap(), HELLO);
        assert_eq!(ask(answering(b""), GET).unwrap(), b"");
        let mut stream = connect(answering(HELLO), PATIENCE).unwrap();
        stream.write_all(GET).unwrap();
        assert!(receives_hello(&mut stream).unwrap());
        assert!(!receives_hello(&mut stream).unwrap(), "the connection has ended");
        let mut stream = connect(answering(b"HTTP/1.1 503 "), PATIENCE).unwrap();
        stream.write_all(GET).unwrap();
        assert!(!receives_hello(&mut stream).unwrap());
    }
}

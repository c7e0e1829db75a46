//! Raw connections, and the expected answers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::set_socket_linger;

use super::HANG_TIMEOUT;
use crate::resp::Value;

/// Maximum number of bytes of an unexpected answer in an error.
const SHOWN_BYTES_MAX: usize = 200;

/// A connection without a protocol.
pub(super) fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANG_TIMEOUT))?;
    stream.set_write_timeout(Some(HANG_TIMEOUT))?;
    Ok(stream)
}

/// Reads up to the end of the connection. A reset ends it too: the bytes before it are returned.
pub(super) fn read_to_end(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(bytes),
            Err(error) => {
                let got = shown(&bytes);
                return Err(error)
                    .with_context(|| format!("the connection stays open after {got}"));
            }
        }
    }
}

/// Sends `bytes`, shuts down our side, and reads everything.
pub(super) fn say_and_leave(address: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(address)?;
    // The server may have closed the connection half-way, which the answer shows.
    if stream.write_all(bytes).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    read_to_end(&mut stream)
}

/// Sends `bytes`; the server must answer exactly `expected` and close the connection by itself.
pub(super) fn expect_closed(address: &str, bytes: &[u8], expected: &[u8]) -> Result<()> {
    let mut stream = connect(address)?;
    // As above.
    let _ = stream.write_all(bytes);
    let answer = read_to_end(&mut stream)?;
    same(&answer, expected).with_context(|| format!("after {}", shown(bytes)))
}

/// Reads exactly `expected`.
pub(super) fn expect_bytes(stream: &mut TcpStream, expected: &[u8]) -> Result<()> {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).with_context(|| format!("wait for {}", shown(expected)))?;
    same(&answer, expected)
}

/// Checks that no byte has arrived and that the connection is open.
pub(super) fn expect_silence(stream: &mut TcpStream) -> Result<()> {
    stream.set_nonblocking(true)?;
    let mut buffer = [0; 64];
    let result = stream.read(&mut buffer);
    stream.set_nonblocking(false)?;
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error).context("wait in silence"),
        Ok(count) => bail!("expected silence, got {}", shown(&buffer[..count])),
    }
}

/// Ends a connection by a reset.
pub(super) fn reset(stream: TcpStream) -> Result<()> {
    set_socket_linger(&stream, Some(Duration::ZERO)).context("set linger")?;
    drop(stream);
    Ok(())
}

pub(super) fn expect_simple(value: &Value, text: &str) -> Result<()> {
    expect(value, &Value::Simple(text.as_bytes().to_vec()))
}

pub(super) fn expect_error(value: &Value, text: &str) -> Result<()> {
    expect(value, &Value::Error(text.as_bytes().to_vec()))
}

pub(super) fn expect_bulk(value: &Value, bytes: &[u8]) -> Result<()> {
    expect(value, &Value::Bulk(Some(bytes.to_vec())))
}

pub(super) fn expect_integer(value: &Value, number: u64) -> Result<()> {
    expect(value, &Value::Scalar(format!(":{number}")))
}

fn expect(value: &Value, expected: &Value) -> Result<()> {
    if value == expected {
        return Ok(());
    }
    let [value, expected] = [value, expected].map(|it| {
        let text = format!("{it:?}");
        text.chars().take(SHOWN_BYTES_MAX).collect::<String>()
    });
    bail!("expected {expected}, got {value}")
}

fn same(answer: &[u8], expected: &[u8]) -> Result<()> {
    if answer == expected {
        return Ok(());
    }
    bail!("expected {}, got {}", shown(expected), shown(answer))
}

/// Bytes as readable text, and their number.
pub(super) fn shown(bytes: &[u8]) -> String {
    let part = bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii();
    format!("\"{part}\" ({} bytes)", bytes.len())
}

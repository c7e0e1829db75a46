//! A small blocking RESP client: enough for transcripts and for identifying a server.
//!
//! It does not use crate `wire` on purpose: a mistake in our codec must not be hidden by a test
//! that uses the same codec.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A reply that takes longer is a failure: no transcript has a blocking command.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest reply line (simple string, error, number) that is accepted.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// The longest bulk string that is accepted.
const BULK_BYTES_MAX: i64 = 64 << 20;
/// The most elements of one aggregate that are accepted.
const ELEMENTS_MAX: i64 = 1 << 22;
/// The deepest nesting of aggregates that is accepted.
const DEPTH_MAX: usize = 16;

/// One reply, as the protocol types it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    /// A reply that is one line and needs no decoding, with its type byte: `:1`, `,1.5`, `#t`, `(9`.
    Scalar(String),
    /// `None` is `$-1`.
    Bulk(Option<Vec<u8>>),
    /// With its three-letter format: `txt:...`.
    Verbatim(Vec<u8>),
    /// `None` is `*-1`.
    Array(Option<Vec<Value>>),
    /// Keys and values alternate.
    Map(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// RESP3's `_`.
    Null,
}

/// One request as an array of bulk strings.
pub(crate) fn request<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The lines `name:value` of INFO.
#[derive(Debug)]
pub(crate) struct Info(String);

impl Info {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        let value = self.get(name).with_context(|| format!("INFO has no {name}"))?;
        value.parse().with_context(|| format!("INFO {name}: {value}"))
    }
}

/// One connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to `address` (`host:port`).
    pub(crate) fn open(address: &str) -> Result<Self> {
        Self::open_within(address, REPLY_TIMEOUT)
    }

    /// Like [`Connection::open`]; a reply that takes longer than the timeout is a failure.
    pub(crate) fn open_within(address: &str, reply_timeout: Duration) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply_timeout))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends one request as an array of bulk strings and reads one reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value> {
        self.send(args)?;
        self.read()
    }

    /// Sends one request as an array of bulk strings.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<()> {
        self.send_raw(&request(args))
    }

    /// A section of INFO.
    pub(crate) fn info(&mut self, section: &str) -> Result<Info> {
        match self.call(&["INFO", section])? {
            Value::Verbatim(text) | Value::Bulk(Some(text)) => {
                Ok(Info(String::from_utf8_lossy(&text).into_owned()))
            }
            other => bail!("INFO is answered {other:?}"),
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader.get_mut().write_all(bytes).context("send request")
    }

    /// Reads one reply of any type.
    pub(crate) fn read(&mut self) -> Result<Value> {
        self.read_nested(0)
    }

    /// True if the server has closed the connection and sent no more bytes.
    pub(crate) fn is_closed(&mut self) -> Result<bool> {
        match self.reader.fill_buf() {
            Ok(bytes) => Ok(bytes.is_empty()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(true),
            Err(error) => Err(error).context("wait for the connection's end"),
        }
    }

    fn read_nested(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            bail!("reply is nested deeper than {DEPTH_MAX}");
        }
        let line = self.read_line()?;
        let (kind, rest) = line.split_first().context("empty reply line")?;
        let text = String::from_utf8_lossy(rest).into_owned();
        Ok(match kind {
            b'+' => Value::Simple(rest.to_vec()),
            b'-' => Value::Error(rest.to_vec()),
            b':' | b',' | b'#' | b'(' => Value::Scalar(format!("{}{text}", char::from(*kind))),
            b'_' => Value::Null,
            b'$' => Value::Bulk(self.read_bulk(&text)?),
            b'=' => Value::Verbatim(self.read_bulk(&text)?.context("null verbatim string")?),
            b'*' if text == "-1" => Value::Array(None),
            b'*' => Value::Array(Some(self.read_elements(&text, 1, depth)?)),
            b'~' => Value::Set(self.read_elements(&text, 1, depth)?),
            b'>' => Value::Push(self.read_elements(&text, 1, depth)?),
            b'%' => Value::Map(self.read_elements(&text, 2, depth)?),
            _ => bail!("unknown reply type in {:?}", String::from_utf8_lossy(&line)),
        })
    }

    fn read_elements(&mut self, count: &str, per_entry: i64, depth: usize) -> Result<Vec<Value>> {
        let count: i64 = count.parse().with_context(|| format!("aggregate length {count:?}"))?;
        if !(0..=ELEMENTS_MAX).contains(&count) {
            bail!("aggregate length {count}");
        }
        (0..count * per_entry).map(|_| self.read_nested(depth + 1)).collect()
    }

    fn read_bulk(&mut self, length: &str) -> Result<Option<Vec<u8>>> {
        let length: i64 = length.parse().with_context(|| format!("bulk length {length:?}"))?;
        if length == -1 {
            return Ok(None);
        }
        if !(0..=BULK_BYTES_MAX).contains(&length) {
            bail!("bulk length {length}");
        }
        let mut bytes = vec![0; usize::try_from(length)? + 2];
        self.reader.read_exact(&mut bytes).context("read bulk string")?;
        if !bytes.ends_with(b"\r\n") {
            bail!("bulk string without CRLF at its end");
        }
        bytes.truncate(bytes.len() - 2);
        Ok(Some(bytes))
    }

    fn read_line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).context("read reply")?;
        if line.is_empty() {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(error).context("connection closed by the server");
        }
        if !line.ends_with(b"\n") && (line.len() as u64) < LINE_BYTES_MAX {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(error).context("connection closed within a reply");
        }
        if !line.ends_with(b"\r\n") {
            bail!("reply line without CRLF: {:?}", String::from_utf8_lossy(&line));
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }
}

//! A connection that checks the form of replies without keeping them: they may be large and deep.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::resp::request;

/// A server that is silent for this long hangs: a busy machine may halt it for seconds.
const HANG_TIMEOUT: Duration = Duration::from_mins(1);
/// No reply of the server has a longer line: an error may quote what it is about.
const LINE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the beginning of a line that are kept.
const KEPT_BYTES_MAX: usize = 200;

/// What the end of a reply shows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Error(String),
    /// A bulk string that is short, or another line.
    Text(Vec<u8>),
    Other,
}

#[derive(Debug)]
pub(super) struct Line {
    reader: BufReader<TcpStream>,
}

/// Why no reply has arrived.
#[derive(Debug)]
pub(super) enum Missing {
    /// The connection was closed.
    Closed,
    Failed(anyhow::Error),
}

impl Missing {
    pub(super) fn of(error: std::io::Error) -> Missing {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                Missing::Closed
            }
            _ => Missing::Failed(anyhow::Error::new(error).context("wait for a reply")),
        }
    }
}

impl Line {
    pub(super) fn open(address: &str) -> Result<Line> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG_TIMEOUT))?;
        stream.set_write_timeout(Some(HANG_TIMEOUT))?;
        Ok(Line { reader: BufReader::new(stream) })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// One request, which must not be refused.
    pub(super) fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Reply> {
        self.send(&request(words))?;
        match self.read() {
            Ok(Reply::Error(error)) => bail!("{}: {error}", show(words)),
            Ok(reply) => Ok(reply),
            Err(Missing::Closed) => bail!("{}: the connection was closed", show(words)),
            Err(Missing::Failed(error)) => Err(error.context(show(words))),
        }
    }

    /// Sends requests and reads their replies. Returns how many were refused.
    pub(super) fn ask_all(&mut self, requests: &[Vec<u8>]) -> Result<u64, Missing> {
        /// Replies that fit in the buffers of the sockets.
        const UNREAD_MAX: usize = 200;
        let mut refused = 0;
        for chunk in requests.chunks(UNREAD_MAX) {
            self.send(&chunk.concat()).map_err(|_| Missing::Closed)?;
            for _ in chunk {
                refused += u64::from(matches!(self.read()?, Reply::Error(_)));
            }
        }
        Ok(refused)
    }

    /// Reads one reply, and checks its form.
    pub(super) fn read(&mut self) -> Result<Reply, Missing> {
        let mut first = None;
        let mut values_left = 1_u64;
        while values_left > 0 {
            let line = self.line()?;
            let (inner, reply) = self.value(&line).map_err(Missing::Failed)?;
            values_left = values_left - 1 + inner;
            first.get_or_insert(reply);
        }
        Ok(first.unwrap_or(Reply::Other))
    }

    /// What begins with a line: the number of values in it, and its appearance.
    fn value(&mut self, line: &[u8]) -> Result<(u64, Reply)> {
        let (kind, rest) = line.split_first().context("an empty line")?;
        let number = || -> Result<i64> {
            let text = std::str::from_utf8(rest)?;
            text.parse().with_context(|| format!("a length of {text:?}"))
        };
        let count = |factor: u64| -> Result<(u64, Reply)> {
            Ok((u64::try_from(number()?.max(0))? * factor, Reply::Other))
        };
        match kind {
            b'+' | b':' | b',' | b'(' | b'#' | b'_' => Ok((0, Reply::Text(rest.to_vec()))),
            b'-' => Ok((0, Reply::Error(String::from_utf8_lossy(rest).into_owned()))),
            b'$' | b'=' | b'!' => {
                let length = number()?;
                ensure!(length >= -1, "a length of {length}");
                Ok((0, self.blob(length)?))
            }
            b'*' | b'~' | b'>' => count(1),
            b'%' | b'|' => count(2),
            _ => bail!("no kind of reply: {:?}", String::from_utf8_lossy(line)),
        }
    }

    fn blob(&mut self, length: i64) -> Result<Reply> {
        let Ok(length) = u64::try_from(length) else { return Ok(Reply::Other) };
        let mut text = Vec::new();
        let kept = usize::try_from(length)?.min(KEPT_BYTES_MAX);
        (&mut self.reader).take(kept as u64).read_to_end(&mut text)?;
        let mut rest = (&mut self.reader).take(length - kept as u64);
        let skipped = std::io::copy(&mut rest, &mut std::io::sink())?;
        ensure!(skipped == length - kept as u64, "the connection was closed in a string");
        let mut end = [0; 2];
        self.reader.read_exact(&mut end)?;
        ensure!(&end == b"\r\n", "a string ends with {end:?}");
        Ok(Reply::Text(text))
    }

    /// The beginning of the next line, without its end.
    fn line(&mut self) -> Result<Vec<u8>, Missing> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) => return Err(Missing::Closed),
            Ok(_) => {}
            Err(error) => return Err(Missing::of(error)),
        }
        if !line.ends_with(b"\r\n") {
            // A connection that is closed for its unread output ends anywhere.
            return Err(Missing::Closed);
        }
        line.truncate((line.len() - 2).min(KEPT_BYTES_MAX));
        Ok(line)
    }
}

/// The beginning of a request.
pub(super) fn show<A: AsRef<[u8]>>(words: &[A]) -> String {
    const WORDS_MAX: usize = 8;
    const BYTES_MAX: usize = 200;
    let shown = words.iter().take(WORDS_MAX).map(|word| {
        let word = word.as_ref();
        String::from_utf8_lossy(&word[..word.len().min(BYTES_MAX)]).into_owned()
    });
    format!("{:?}", shown.collect::<Vec<_>>())
}

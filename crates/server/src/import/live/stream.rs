//! The connection on which the source sends its data and its writes, as to a replica.
//!
//! Source: Redis 7.2 `replication.c`: `syncWithMaster`, `readSyncBulkPayload`

use std::io::{self, BufRead, ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use wire::resp::encode_request;

use super::SILENCE_MAX;
use super::failure::Failure;
use super::peer::is_timeout;
use super::progress::note;
use crate::import::place::Place;

const READ_BYTES: usize = 256 << 10;
/// The source ends a connection after 60 s without a sign of life. Source: Redis 7.2 `config.c`,
/// `repl-timeout`
const SIGN_INTERVAL: Duration = Duration::from_secs(1);
const LINE_BYTES_MAX: usize = 4096;
const MARK_BYTES: usize = 40;
/// A source sends one each second while it prepares data: a day.
const EMPTY_LINES_MAX: u32 = 86_400;
/// A source sends the data in a form that the replica's version can read.
const VERSION: &str = "9.1.0";

/// Where a copy of the source is: after `offset` bytes of a history of writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) history: String,
    pub(super) offset: u64,
    /// The database that the last SELECT in the stream chose.
    pub(super) db: u64,
}

/// How the source answers a request for its stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// With all data, as of an offset of a history.
    Full(Position),
    /// From the position on, which may be that of another history.
    Continues { history: Option<String> },
}

/// How the end of the data is marked.
#[derive(Debug)]
pub(super) enum End {
    Length(u64),
    Mark([u8; MARK_BYTES]),
}

/// What the source sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing yet: it waits, or makes its copy.
    Preparing { since: Instant },
    /// The data.
    Copying,
    /// The writes; the target has those up to this offset.
    Following { acknowledged: u64 },
}

/// The stream. Reads fail with an error of the kind `TimedOut` after a time of silence.
pub(super) struct Stream<'a> {
    socket: TcpStream,
    buffer: Vec<u8>,
    used: usize,
    is_stopped: &'a dyn Fn() -> bool,
    signed: Instant,
    phase: Phase,
}

impl<'a> Stream<'a> {
    /// Connects, logs in, and requests the stream after a position, or all data.
    pub(super) fn open(
        source: &Place,
        from: Option<&Position>,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> Result<(Stream<'a>, Answer), Failure> {
        let socket = source.connect().map_err(Failure::Source)?;
        socket.set_write_timeout(Some(SILENCE_MAX)).map_err(Failure::Source)?;
        let mut stream = Stream::new(socket, is_stopped, Instant::now());
        if let Some(words) = source.login() {
            stream.expect_ok(&words)?;
        }
        stream.expect_ok(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        // Redis does not know this one.
        stream.ask(&[b"REPLCONF", b"version", VERSION.as_bytes()])?;
        let answer = match from {
            None => stream.ask(&[b"PSYNC", b"?", b"-1"])?,
            Some(Position { history, offset, .. }) => {
                let next = (offset + 1).to_string();
                stream.ask(&[b"PSYNC", history.as_bytes(), next.as_bytes()])?
            }
        };
        let answer = parse_answer(&answer)?;
        if from.is_none() && matches!(answer, Answer::Continues { .. }) {
            return Err(anyhow!("the source continues a stream that was not requested").into());
        }
        Ok((stream, answer))
    }

    fn new(socket: TcpStream, is_stopped: &'a dyn Fn() -> bool, now: Instant) -> Stream<'a> {
        let phase = Phase::Preparing { since: now };
        Stream { socket, buffer: Vec::new(), used: 0, is_stopped, signed: now, phase }
    }

    fn expect_ok(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        let reply = self.ask(words)?;
        if reply.starts_with('+') {
            return Ok(());
        }
        Err(anyhow!("the source refused {}: {reply}", words[0].escape_ascii()).into())
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<String, Failure> {
        let mut request = Vec::new();
        encode_request(words, &mut request);
        self.socket.write_all(&request).map_err(Failure::Source)?;
        self.line()
    }

    /// The next line that is not empty: while a source prepares data, it sends empty ones.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        for _ in 0..EMPTY_LINES_MAX {
            let mut limited = (&mut *self).take(LINE_BYTES_MAX as u64);
            limited.read_until(b'\n', &mut line).map_err(Failure::Source)?;
            if !line.ends_with(b"\n") {
                return Err(anyhow!("the source sends a line of more than 4 KiB").into());
            }
            let text = line.trim_ascii_end();
            if !text.is_empty() {
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
            line.clear();
        }
        Err(anyhow!("the source sends nothing but empty lines").into())
    }

    /// Reads how long the data is, which precedes it.
    pub(super) fn read_end(&mut self) -> Result<End, Failure> {
        let line = self.line()?;
        self.phase = Phase::Copying;
        let malformed = || anyhow!("the source sends no data, but: {line}");
        let text = line.strip_prefix('$').ok_or_else(malformed)?;
        if let Some(mark) = text.strip_prefix("EOF:") {
            let mark = mark.as_bytes().try_into().map_err(|_| malformed())?;
            return Ok(End::Mark(mark));
        }
        Ok(End::Length(text.parse().map_err(|_| malformed())?))
    }

    /// Checks that the data ends after `read_bytes`.
    pub(super) fn check_end(&mut self, end: &End, read_bytes: u64) -> Result<(), Failure> {
        let is_right = match end {
            End::Length(bytes) => *bytes == read_bytes,
            End::Mark(mark) => {
                let mut found = [0; MARK_BYTES];
                self.read_exact(&mut found).map_err(Failure::Source)?;
                found == *mark
            }
        };
        if is_right { Ok(()) } else { Err(anyhow!("the data of the source has no end").into()) }
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.used < self.buffer.len()
    }

    /// Waits a moment for bytes.
    pub(super) fn poll(&mut self) -> Result<bool, Failure> {
        match self.receive() {
            Ok(()) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(Failure::Source(error)),
        }
    }

    /// Once a second: a sign of life for the source or, while it prepares its copy, one for the
    /// operator.
    ///
    /// The source must hear nothing before its copy begins: it begins when its replicas have been
    /// silent for `repl-diskless-sync-delay` seconds.
    // Source: Redis 7.2 `replication.c`, `shouldStartChildReplication`
    fn give_sign(&mut self, now: Instant) -> io::Result<()> {
        if now.duration_since(self.signed) < SIGN_INTERVAL {
            return Ok(());
        }
        self.signed = now;
        match self.phase {
            Phase::Preparing { since } => {
                let waited_s = now.duration_since(since).as_secs();
                note(&format!("waiting for the source to make its copy, {waited_s} s"));
                Ok(())
            }
            Phase::Copying => self.socket.write_all(b"\n"),
            Phase::Following { acknowledged } => {
                let mut request = Vec::new();
                let offset = acknowledged.to_string();
                encode_request(&[b"REPLCONF", b"ACK", offset.as_bytes()], &mut request);
                self.socket.write_all(&request)
            }
        }
    }

    /// What the next sign of life acknowledges.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        self.phase = Phase::Following { acknowledged: offset };
    }

    /// One read, up to the timeout of the socket.
    fn receive(&mut self) -> io::Result<()> {
        self.give_sign(Instant::now())?;
        self.buffer.resize(READ_BYTES, 0);
        let read = self.socket.read(&mut self.buffer);
        self.buffer.truncate(read.as_ref().map_or(0, |count| *count));
        self.used = 0;
        if read? == 0 {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the source has closed it"));
        }
        Ok(())
    }
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let began = Instant::now();
        while !self.has_bytes() {
            match self.receive() {
                Ok(()) => {}
                Err(_) if (self.is_stopped)() => return Err(io::Error::other("interrupted")),
                Err(error) if is_timeout(&error) && began.elapsed() < SILENCE_MAX => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.buffer[self.used..])
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes;
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(bytes.len());
        bytes[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

// Source: Redis 7.2 `replication.c`, `slaveTryPartialResynchronization`
fn parse_answer(line: &str) -> Result<Answer, Failure> {
    let mut words = line.split(' ');
    let answer = match (words.next(), words.next(), words.next()) {
        (Some("+FULLRESYNC"), Some(history), Some(offset)) => {
            let history = history.to_owned();
            offset.parse().ok().map(|offset| Answer::Full(Position { history, offset, db: 0 }))
        }
        (Some("+CONTINUE"), history, _) => {
            Some(Answer::Continues { history: history.map(str::to_owned) })
        }
        _ => None,
    };
    let check = |history: &str| history.len() == MARK_BYTES;
    let is_right = match &answer {
        None => false,
        Some(Answer::Full(position)) => check(&position.history),
        Some(Answer::Continues { history }) => history.as_deref().is_none_or(check),
    };
    let Some(answer) = answer.filter(|_| is_right) else {
        return Err(refused(line));
    };
    Ok(answer)
}

fn refused(line: &str) -> Failure {
    let text = line.strip_prefix('-').unwrap_or(line);
    // A replica whose link to its own master is down, or a server that is still loading.
    if text.starts_with("NOMASTERLINK") || text.starts_with("LOADING") {
        return Failure::Source(io::Error::other(text.to_owned()));
    }
    anyhow!("the source refused PSYNC: {text}").into()
}

/// Fails for an empty history of positions that a target has stored.
pub(super) fn parse_position(text: &str) -> anyhow::Result<Position> {
    let words: Vec<&str> = text.split(' ').collect();
    let [history, offset, db] = words[..] else { bail!("unknown position {text}") };
    Ok(Position { history: history.to_owned(), offset: offset.parse()?, db: db.parse()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn answers_are_full_or_continue() {
        let full = parse_answer(&format!("+FULLRESYNC {HISTORY} 70")).unwrap();
        let position = Position { history: HISTORY.to_owned(), offset: 70, db: 0 };
        assert_eq!(full, Answer::Full(position));
        assert_eq!(parse_answer("+CONTINUE").unwrap(), Answer::Continues { history: None });
        let other = Answer::Continues { history: Some(HISTORY.to_owned()) };
        assert_eq!(parse_answer(&format!("+CONTINUE {HISTORY}")).unwrap(), other);
    }

    #[test]
    fn other_answers_are_refused() {
        for line in ["", "+", "+OK", "+FULLRESYNC", "+FULLRESYNC x 1", "+CONTINUE x", "-NOPERM no"]
        {
            assert!(matches!(parse_answer(line), Err(Failure::Final(_))), "{line}");
        }
        let unready = parse_answer("-LOADING Redis is loading the dataset in memory");
        assert!(matches!(unready, Err(Failure::Source(_))));
    }

    /// A source that makes its copy only for a silent replica would never begin.
    #[test]
    fn the_source_hears_nothing_before_its_copy() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut source, _) = listener.accept().unwrap();
        let began = Instant::now();
        let mut stream = Stream::new(socket, &|| false, began);
        let after_s = |stream: &mut Stream<'_>, s| {
            stream.give_sign(began + Duration::from_secs(s)).unwrap();
        };
        for s in [1, 2, 60] {
            after_s(&mut stream, s);
        }
        source.write_all(b"$9\r\n").unwrap();
        assert!(matches!(stream.read_end(), Ok(End::Length(9))));
        after_s(&mut stream, 61);
        stream.acknowledge(7);
        after_s(&mut stream, 62);
        drop(stream);
        let mut heard = String::new();
        source.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "\n*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n7\r\n");
    }

    #[test]
    fn stored_positions_are_parsed() {
        let position = Position { history: HISTORY.to_owned(), offset: 7, db: 3 };
        assert_eq!(parse_position(&format!("{HISTORY} 7 3")).unwrap(), position);
        assert!(parse_position("x 7").is_err());
    }
}

//! The commands of an append-only file, as they are.

use std::io::{self, BufRead, Read};

use thiserror::Error;

/// Arguments of one command, and bytes of one argument and of all: the server takes no more.
const ARGUMENTS_MAX: u64 = 1 << 20;
const ARGUMENT_BYTES_MAX: u64 = 512 << 20;
const COMMAND_BYTES_MAX: u64 = 1 << 30;
const LINE_BYTES_MAX: u64 = 64;
/// Comments, such as times.
const COMMENT_BYTES_MAX: u64 = 1024;
/// Bytes of arguments that are kept apart.
const SHORT_BYTES_MAX: usize = 64;

/// Why the next command cannot be read.
#[derive(Debug, Error)]
pub(super) enum AofError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file ends within a command, as after a crash of the server that wrote it.
    #[error("the file ends within the command at offset {start}")]
    Truncated { start: u64 },
    #[error("malformed command at offset {start}: {what}")]
    Malformed { start: u64, what: &'static str },
}

/// A command in a buffer of the caller.
#[derive(Debug, Default)]
pub(super) struct Command {
    /// In upper case.
    pub(super) name: String,
    /// If it is short.
    pub(super) first_argument: Vec<u8>,
    /// Offset in the file.
    pub(super) start: u64,
}

/// Reads commands one after another.
#[derive(Debug)]
pub(super) struct AofReader<R> {
    from: R,
    offset: u64,
}

impl<R: BufRead> AofReader<R> {
    /// `offset`: of the next byte of `from` in its file.
    pub(super) fn new(from: R, offset: u64) -> AofReader<R> {
        AofReader { from, offset }
    }

    pub(super) fn source(&mut self) -> &mut R {
        &mut self.from
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends the next command to `out`, in the form of the protocol. `None` at the end of the
    /// file. After an error `out` has a part of a command.
    // Source: Redis 7.2 `aof.c`, `loadSingleAppendOnlyFile`
    pub(super) fn read(&mut self, out: &mut Vec<u8>) -> Result<Option<Command>, AofError> {
        loop {
            match self.from.fill_buf()?.first() {
                None => return Ok(None),
                Some(b'#') => self.skip_comment()?,
                Some(_) => break,
            }
        }
        let start = self.offset;
        let count = self.number(start, b'*', ARGUMENTS_MAX, out)?;
        if count == 0 {
            return Err(AofError::Malformed { start, what: "a command without a name" });
        }
        let mut command = Command { start, ..Command::default() };
        for index in 0..count {
            let len = self.number(start, b'$', ARGUMENT_BYTES_MAX, out)?;
            let from = out.len();
            if self.offset - start + len > COMMAND_BYTES_MAX {
                return Err(AofError::Malformed { start, what: "a command of more than 1 GiB" });
            }
            self.bytes(start, len, out)?;
            let short = out.get(from..).filter(|bytes| bytes.len() <= SHORT_BYTES_MAX);
            match index {
                0 => {
                    let name = short.unwrap_or_default().to_ascii_uppercase();
                    command.name = name.escape_ascii().to_string();
                }
                1 => command.first_argument = short.unwrap_or_default().to_vec(),
                _ => {}
            }
            let end = out.len();
            self.bytes(start, 2, out)?;
            if out[end..] != *b"\r\n" {
                return Err(AofError::Malformed { start, what: "no end after an argument" });
            }
        }
        Ok(Some(command))
    }

    fn skip_comment(&mut self) -> Result<(), AofError> {
        let mut line = Vec::new();
        let start = self.offset;
        let read = self.from.by_ref().take(COMMENT_BYTES_MAX).read_until(b'\n', &mut line)?;
        self.offset += read as u64;
        if line.ends_with(b"\n") { Ok(()) } else { Err(AofError::Truncated { start }) }
    }

    /// A line of a mark and a number up to `max`.
    fn number(
        &mut self,
        start: u64,
        mark: u8,
        max: u64,
        out: &mut Vec<u8>,
    ) -> Result<u64, AofError> {
        let from = out.len();
        let read = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', out)? as u64;
        self.offset += read;
        let malformed = AofError::Malformed { start, what: "no number of arguments or bytes" };
        let Some(line) = out[from..].strip_suffix(b"\r\n") else {
            let begins = out[from..].first().is_none_or(|first| *first == mark);
            let is_cut = begins && read < LINE_BYTES_MAX && !out[from..].ends_with(b"\n");
            return Err(if is_cut { AofError::Truncated { start } } else { malformed });
        };
        let digits = line.strip_prefix(&[mark]).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= max);
        number.ok_or(malformed)
    }

    fn bytes(&mut self, start: u64, len: u64, out: &mut Vec<u8>) -> Result<(), AofError> {
        let read = self.from.by_ref().take(len).read_to_end(out)? as u64;
        self.offset += read;
        if read == len { Ok(()) } else { Err(AofError::Truncated { start }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[u8]) -> (Vec<(String, u64)>, Result<(), AofError>) {
        let mut reader = AofReader::new(data, 100);
        let (mut commands, mut out) = (Vec::new(), Vec::new());
        loop {
            match reader.read(&mut out) {
                Ok(Some(command)) => commands.push((command.name, command.start)),
                Ok(None) => return (commands, Ok(())),
                Err(error) => return (commands, Err(error)),
            }
        }
    }

    const FILE: &[u8] = b"#TS:1\r\n*2\r\n$6\r\nselect\r\n$1\r\n9\r\n*1\r\n$4\r\nPING\r\n";

    #[test]
    fn commands_have_names_and_places() {
        let (commands, end) = read(FILE);
        assert!(end.is_ok());
        assert_eq!(commands, [("SELECT".to_owned(), 107), ("PING".to_owned(), 130)]);
        let mut out = Vec::new();
        let command = AofReader::new(FILE, 0).read(&mut out).unwrap().unwrap();
        assert_eq!(command.first_argument, b"9");
        assert_eq!(out, b"*2\r\n$6\r\nselect\r\n$1\r\n9\r\n");
    }

    #[test]
    fn a_cut_file_is_told_from_a_damaged_one() {
        for cut in 31..FILE.len() {
            let (commands, end) = read(&FILE[..cut]);
            assert_eq!(commands.len(), 1);
            assert!(matches!(end, Err(AofError::Truncated { start: 130 })), "{cut}: {end:?}");
        }
        for damaged in [
            &b"*0\r\n"[..],
            b"*1\r\n$4\r\nPINGxx",
            b"*1\r\n$x\r\n",
            b"*1\n$4\n",
            b"SET k v\r\n",
            b"hello",
            b"*1\r\n*4\r\n",
            b"*99999999999\r\n",
            &[b'*'; 70],
        ] {
            let (_, end) = read(damaged);
            assert!(matches!(end, Err(AofError::Malformed { start: 100, .. })), "{damaged:?}");
        }
        // No memory for the bytes that are not there.
        assert!(matches!(read(b"*1\r\n$400000000\r\nx").1, Err(AofError::Truncated { .. })));
    }
}

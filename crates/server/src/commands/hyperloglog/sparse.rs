//! Registers as runs of equal values.
//!
//! - `00llllll`: up to 64 registers that are 0; `l` is the length less one;
//! - `01llllll llllllll`: up to 16,384 registers that are 0, the high bits of the length first;
//! - `1vvvvvll`: up to 4 registers of the same value, 1 to 32; `v` is the value less one.
// Source: Redis 7.2 `hyperloglog.c`, the comment at its top

use smallvec::SmallVec;

use super::hash::Place;
use super::sketch::{HEADER_BYTES, REGISTERS, SketchError};

const SHORT_ZEROS_MAX: usize = 64;
const VALUES_MAX: usize = 4;
const VALUE_MAX: u8 = 32;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    value: u8,
    registers: usize,
    bytes: usize,
}

impl Run {
    /// Reads the first run.
    fn read(bytes: &[u8]) -> Result<Run, SketchError> {
        let first = *bytes.first().ok_or(SketchError::Corrupt)?;
        let low = usize::from(first & 0x3f);
        Ok(match first >> 6 {
            0 => Run { value: 0, registers: low + 1, bytes: 1 },
            1 => {
                let second = *bytes.get(1).ok_or(SketchError::Corrupt)?;
                Run { value: 0, registers: (low << 8 | usize::from(second)) + 1, bytes: 2 }
            }
            _ => Run {
                value: (first >> 2 & 0x1f) + 1,
                registers: usize::from(first & 3) + 1,
                bytes: 1,
            },
        })
    }
}

/// The bytes of up to three runs.
type Bytes = SmallVec<[u8; 8]>;

fn values(value: u8, registers: usize) -> u8 {
    let len = u8::try_from(registers - 1).expect("at most four");
    0x80 | (value - 1) << 2 | len
}

fn zeros(registers: usize) -> Bytes {
    let len = u16::try_from(registers - 1).expect("at most 16,384").to_be_bytes();
    if registers <= SHORT_ZEROS_MAX {
        Bytes::from_slice(&len[1..])
    } else {
        Bytes::from_slice(&[len[0] | 0x40, len[1]])
    }
}

/// Appends a run of zeros.
pub(super) fn push_zeros(out: &mut Vec<u8>, registers: usize) {
    out.extend_from_slice(&zeros(registers));
}

/// Calls `visit` with each register that is not 0. At most 16,384 runs are read.
pub(super) fn decode(mut body: &[u8], mut visit: impl FnMut(usize, u8)) -> Result<(), SketchError> {
    let mut at = 0;
    while !body.is_empty() {
        let run = Run::read(body)?;
        let end = at + run.registers;
        if end > REGISTERS {
            return Err(SketchError::Corrupt);
        }
        if run.value > 0 {
            (at..end).for_each(|register| visit(register, run.value));
        }
        at = end;
        body = &body[run.bytes..];
    }
    if at == REGISTERS { Ok(()) } else { Err(SketchError::Corrupt) }
}

/// The runs as text, for PFDEBUG DECODE.
pub(super) fn shown(mut body: &[u8]) -> Result<String, SketchError> {
    use std::fmt::Write as _;
    decode(body, |_, _| ())?;
    let mut text = String::new();
    while !body.is_empty() {
        let Run { value, registers, bytes } = Run::read(body)?;
        // Writing to a `String` cannot fail, hence `let _`.
        let _ = match (value, bytes) {
            (0, 1) => write!(text, "z:{registers} "),
            (0, _) => write!(text, "Z:{registers} "),
            _ => write!(text, "v:{value},{registers} "),
        };
        body = &body[bytes..];
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raised {
    Yes,
    No,
    /// The sketch must become dense.
    DoesNotFit,
}

/// Raises one register in the value of a sketch, whose header is left as it is.
// Source: Redis 7.2 `hyperloglog.c`, `hllSparseSet`: the same runs, so that the bytes are the same
pub(super) fn raise(
    value: &mut Vec<u8>,
    place: Place,
    bytes_max: usize,
) -> Result<Raised, SketchError> {
    if place.rank > VALUE_MAX {
        return Ok(Raised::DoesNotFit);
    }
    let (mut at, mut previous, mut first) = (HEADER_BYTES, None, 0);
    let run = loop {
        let run = Run::read(&value[at..])?;
        if place.register < first + run.registers {
            break run;
        }
        previous = Some(at);
        at += run.bytes;
        first += run.registers;
    };
    if run.value >= place.rank {
        return Ok(Raised::No);
    }
    let new = split(run, place.register - first, place.rank);
    if new.len() > run.bytes && value.len() + new.len() - run.bytes > bytes_max {
        return Ok(Raised::DoesNotFit);
    }
    value.splice(at..at + run.bytes, new);
    merge(value, previous.unwrap_or(HEADER_BYTES));
    Ok(Raised::Yes)
}

/// Returns the runs that replace one, in which one register gets another value.
fn split(run: Run, at: usize, rank: u8) -> Bytes {
    let part = |registers: usize| match (registers, run.value) {
        (0, _) => Bytes::new(),
        (_, 0) => zeros(registers),
        (_, value) => Bytes::from_slice(&[values(value, registers)]),
    };
    let mut new = part(at);
    new.push(values(rank, 1));
    new.extend(part(run.registers - at - 1));
    new
}

/// Joins runs of the same value that follow each other, among the first five from `at` on.
fn merge(value: &mut Vec<u8>, mut at: usize) {
    const STEPS: usize = 5;
    for _ in 0..STEPS {
        let Ok(run) = value.get(at..).map_or(Err(SketchError::Corrupt), Run::read) else { return };
        let next = value.get(at + run.bytes..).map_or(Err(SketchError::Corrupt), Run::read);
        match next {
            Ok(next)
                if run.value > 0
                    && next.value == run.value
                    && run.registers + next.registers <= VALUES_MAX =>
            {
                value[at] = values(run.value, run.registers + next.registers);
                value.remove(at + 1);
            }
            _ => at += run.bytes,
        }
    }
}

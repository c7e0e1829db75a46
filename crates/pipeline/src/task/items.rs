//! Items of commands and their outcomes as bytes. Their records differ in length.
//!
//! ```text
//! an item      length u32, bytes
//! an outcome   id u64, whether it failed u8, attempts u32, length u32, bytes
//!              the bytes of a failure: length of the reason u16, reason, item
//! ```

use std::ops::Range;

use crate::task::input::mix;
use crate::task::{DeadLetter, Ids, TaskError};

/// Maximum length of an item, and of an answer. With it a batch of 64 fits in a frame.
pub const ITEM_BYTES_MAX: usize = 1_000_000;
/// Reasons are cut to this length.
const REASON_BYTES_MAX: usize = 1_000;
/// Maximum size of a record.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 8 + 1 + 4 + 4;

const _: () = assert!(HEADER_BYTES + 2 + REASON_BYTES_MAX + ITEM_BYTES_MAX <= RECORD_BYTES_MAX);
const _: () = assert!(REASON_BYTES_MAX <= u16::MAX as usize);

/// Appends an item to the inputs of a batch.
pub(crate) fn append_item(item: &[u8], inputs: &mut Vec<u8>) {
    inputs.extend_from_slice(&length(item).to_be_bytes());
    inputs.extend_from_slice(item);
}

/// Returns the items of a batch.
pub(super) fn split_items(ids: Ids, inputs: &[u8]) -> Result<Vec<&[u8]>, TaskError> {
    let shape = TaskError::Shape { count: ids.count, bytes: inputs.len() };
    let mut items = Vec::with_capacity(ids.len().min(inputs.len()));
    let mut rest = inputs;
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).expect("32 bits fit");
        let item = more.split_at_checked(length).filter(|_| length <= ITEM_BYTES_MAX);
        let Some((item, more)) = item else { return Err(shape) };
        items.push(item);
        rest = more;
    }
    if items.len() != ids.len() || !rest.is_empty() {
        return Err(shape);
    }
    Ok(items)
}

/// Writes the outcomes of a batch into a buffer that has space for all of them.
#[derive(Debug)]
pub(super) struct OutcomeWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> OutcomeWriter<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, used: 0 }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn answer(&mut self, id: u64, attempts: u32, answer: &[u8]) {
        self.head(id, 0, attempts, answer.len());
        self.put(answer);
    }

    pub(super) fn failure(&mut self, id: u64, attempts: u32, reason: &str, item: &[u8]) {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        self.head(id, 1, attempts, 2 + reason.len() + item.len());
        self.put(&u16::try_from(reason.len()).expect("cut to the limit").to_be_bytes());
        self.put(reason);
        self.put(item);
    }

    fn head(&mut self, id: u64, failed: u8, attempts: u32, length: usize) {
        self.put(&id.to_be_bytes());
        self.put(&[failed]);
        self.put(&attempts.to_be_bytes());
        self.put(&u32::try_from(length).expect("below the record limit").to_be_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }
}

/// The outcome of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome<'a> {
    pub(super) id: u64,
    attempts: u32,
    content: Content<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content<'a> {
    Answer(&'a [u8]),
    Failure { reason: &'a [u8], item: &'a [u8] },
}

impl<'a> Outcome<'a> {
    /// Reads the outcome at the start of `bytes`. Returns it and its length; `None` if the bytes
    /// are malformed.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (id, rest) = bytes.split_first_chunk::<8>()?;
        let (failed, rest) = rest.split_first()?;
        let (attempts, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if length > RECORD_BYTES_MAX - HEADER_BYTES {
            return None;
        }
        let content = rest.get(..length)?;
        let content = match failed {
            0 => Content::Answer(content),
            1 => {
                let (reason_length, rest) = content.split_first_chunk::<2>()?;
                let reason_length = usize::from(u16::from_be_bytes(*reason_length));
                let (reason, item) = rest.split_at_checked(reason_length)?;
                Content::Failure { reason, item }
            }
            _ => return None,
        };
        let (id, attempts) = (u64::from_be_bytes(*id), u32::from_be_bytes(*attempts));
        Some((Self { id, attempts, content }, HEADER_BYTES + length))
    }

    pub(super) fn answer(&self) -> Option<&'a [u8]> {
        match self.content {
            Content::Answer(answer) => Some(answer),
            Content::Failure { .. } => None,
        }
    }

    pub(super) fn dead_letter(&self) -> Option<DeadLetter<'a>> {
        match self.content {
            Content::Answer(_) => None,
            Content::Failure { reason, item } => {
                Some(DeadLetter { id: self.id, item, attempts: self.attempts, reason })
            }
        }
    }
}

/// Iterates over the outcomes of a batch, and ends at the first malformed one.
pub(super) fn outcomes(mut bytes: &[u8]) -> impl Iterator<Item = (Outcome<'_>, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (outcome, length) = Outcome::read(bytes)?;
        bytes = &bytes[length..];
        at += length;
        Some((outcome, at - length..at))
    })
}

/// Checks that a batch has an outcome for each id, in order. Returns the sum of their hashes.
pub(super) fn inspect(ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
    let (mut sum, mut end) = (0_u64, 0);
    let mut expected = ids.iter();
    for (outcome, range) in outcomes(outputs) {
        match expected.next() {
            Some(id) if id == outcome.id => {}
            Some(id) => return Err(TaskError::Input { id }),
            None => return Err(TaskError::Shape { count: ids.count, bytes: outputs.len() }),
        }
        end = range.end;
        sum = sum.wrapping_add(hash(&outputs[range]));
    }
    if expected.next().is_some() || end != outputs.len() {
        return Err(TaskError::Shape { count: ids.count, bytes: outputs.len() });
    }
    Ok(sum)
}

fn hash(record: &[u8]) -> u64 {
    let (words, rest) = record.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // A record contains its length, so the zeros at the end are not ambiguous.
    let words = words.iter().chain([&last]).map(|word| u64::from_be_bytes(*word));
    words.fold(1, |hash, word| mix(hash ^ word))
}

fn length(item: &[u8]) -> u32 {
    assert!(item.len() <= ITEM_BYTES_MAX);
    u32::try_from(item.len()).expect("below the limit of an item")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(outcomes: &[(bool, Vec<u8>)]) -> Vec<u8> {
        let mut buffer = vec![0; outcomes.len() * RECORD_BYTES_MAX];
        let mut writer = OutcomeWriter::new(&mut buffer);
        for (id, (failed, bytes)) in (7..).zip(outcomes) {
            if *failed {
                writer.failure(id, 3, "no answer", bytes);
            } else {
                writer.answer(id, 1, bytes);
            }
        }
        let used = writer.used();
        buffer.truncate(used);
        buffer
    }

    #[test]
    fn the_longest_records_fit() {
        let longest = vec![b'x'; ITEM_BYTES_MAX];
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        let mut writer = OutcomeWriter::new(&mut buffer);
        writer.failure(1, 2, &"\u{e4}".repeat(REASON_BYTES_MAX), &longest);
        let used = writer.used();
        let (outcome, length) = Outcome::read(&buffer).unwrap();
        assert_eq!(length, used);
        assert_eq!(outcome.dead_letter().unwrap().reason.len(), REASON_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn items_are_read_back(
            items in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..64),
        ) {
            let mut inputs = Vec::new();
            for item in &items {
                append_item(item, &mut inputs);
            }
            let ids = Ids { first: 3, count: u32::try_from(items.len()).unwrap() };
            prop_assert_eq!(split_items(ids, &inputs).unwrap(), items);
            prop_assert!(split_items(ids, &inputs[..inputs.len() - 1]).is_err());
            inputs.push(0);
            prop_assert!(split_items(ids, &inputs).is_err());
        }

        /// Outcomes are read back, and every cut or changed byte of a batch is noticed: it is
        /// malformed, or its hash differs.
        #[test]
        fn outcomes_are_read_back(
            given in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 1..9),
            changed: prop::sample::Index,
        ) {
            let mut bytes = written(&given);
            let ids = Ids { first: 7, count: u32::try_from(given.len()).unwrap() };
            let sum = inspect(ids, &bytes).unwrap();
            for ((outcome, _), (failed, content)) in outcomes(&bytes).zip(&given) {
                let letter = outcome.dead_letter().map(|letter| letter.item);
                prop_assert_eq!(letter.is_some(), *failed);
                let found = letter.or(outcome.answer()).unwrap();
                prop_assert_eq!(found, content);
            }
            prop_assert_eq!(outcomes(&bytes).count(), given.len());
            prop_assert!(inspect(ids, &bytes[..bytes.len() - 1]).is_err());
            let at = changed.index(bytes.len());
            bytes[at] ^= 1;
            prop_assert_ne!(inspect(ids, &bytes), Ok(sum));
        }

        #[test]
        fn other_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let ids = Ids { first: 0, count: 2 };
            let _ = split_items(ids, &bytes);
            let _ = inspect(ids, &bytes);
        }
    }
}

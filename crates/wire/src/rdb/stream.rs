//! Streams: entries in listpacks, consumer groups, and what is pending.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use super::error::RdbError;
use super::input::Input;
use super::packed::{ELEMENT_BYTES, Listpack, Malformed, Sink, TOO_MANY};
use super::strings::Strings;

/// The name of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    pub id: StreamId,
    /// Shared by the entries of a part of the stream that have the same fields: short entries may
    /// have long fields.
    pub fields: Arc<Strings>,
    /// One of each field.
    pub values: Strings,
}

impl StreamEntry {
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().zip(self.values.iter())
    }
}

/// An entry that a consumer got and has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub id: StreamId,
    pub delivered_unix_ms: u64,
    pub deliveries: u64,
    /// Index of the consumer in its group.
    pub consumer: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    pub name: Vec<u8>,
    pub seen_unix_ms: u64,
    /// `None`: never active, or written before Redis 7.2.
    pub active_unix_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: Vec<u8>,
    pub last_id: StreamId,
    /// `None`: unknown.
    pub entries_read: Option<u64>,
    pub consumers: Vec<Consumer>,
    /// In the order of the file, which is that of the ids.
    pub pending: Vec<Pending>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// In the order of their ids.
    pub entries: Vec<StreamEntry>,
    pub last_id: StreamId,
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
    pub groups: Vec<Group>,
}

/// Bytes of an id in a name of a part, and in lists of pending entries.
const RAW_ID_BYTES: usize = 16;

/// What a value in memory takes beyond its strings: an entry with its own names of fields, ...
const ENTRY_BYTES: u64 = (size_of::<StreamEntry>() + 2 * size_of::<Strings>() + 64) as u64;
/// ... a group, a consumer ...
const GROUP_BYTES: usize = 2 * size_of::<Group>();
const CONSUMER_BYTES: usize = 2 * size_of::<Consumer>();
/// ... and a pending entry, of which the list and that of its consumers exist at the same time.
const PENDING_BYTES: usize = 3 * size_of::<Pending>();

fn raw_id(bytes: [u8; RAW_ID_BYTES]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    let low = u128::from(u64::MAX);
    let half = |bits: u128| u64::try_from(bits).expect("64 bits of 128");
    StreamId { ms: half(number >> 64), sequence: half(number & low) }
}

fn read_id<R: Read>(input: &mut Input<R>) -> Result<StreamId, RdbError> {
    Ok(StreamId { ms: input.number()?, sequence: input.number()? })
}

/// Reads a stream. `form`: 1 to 3, of Redis 5.0, 7.0 and 7.2.
// Source: Redis 7.2 `rdb.c`, `rdbLoadObject`
pub(super) fn read_stream<R: Read>(input: &mut Input<R>, form: u8) -> Result<Stream, RdbError> {
    let mut entries = Vec::new();
    for _ in 0..input.number()? {
        let name = input.owned_string()?;
        let name = <[u8; RAW_ID_BYTES]>::try_from(name.as_slice());
        let first = raw_id(name.map_err(|_| input.malformed("name of a part of a stream"))?);
        let mut names = Strings::default();
        input.unpack(&mut names, |bytes, sink| read_entries(bytes, first, &mut entries, sink))?;
    }
    let len = input.number()?;
    if len != entries.len() as u64 {
        return Err(input.malformed("wrong number of entries of a stream"));
    }
    if !entries.is_sorted_by(|a, b| a.id < b.id) {
        return Err(input.malformed("entries of a stream without order"));
    }
    let last_id = read_id(input)?;
    let (mut max_deleted_id, mut entries_added) = (StreamId::default(), len);
    if form >= 2 {
        // The first id, which the entries show.
        read_id(input)?;
        max_deleted_id = read_id(input)?;
        entries_added = input.number()?;
    }
    let mut stream = Stream { entries, last_id, max_deleted_id, entries_added, groups: Vec::new() };
    for _ in 0..input.number()? {
        input.take_part(stream.groups.len(), GROUP_BYTES)?;
        let mut group = read_group(input, form)?;
        if form < 2 {
            group.entries_read = estimated_read(&stream, group.last_id);
        }
        stream.groups.push(group);
    }
    if has_twice(stream.groups.iter().map(|group| &group.name)) {
        return Err(input.malformed("a stream with two groups of one name"));
    }
    Ok(stream)
}

fn has_twice<'a>(names: impl ExactSizeIterator<Item = &'a Vec<u8>>) -> bool {
    let count = names.len();
    names.collect::<HashSet<_>>().len() < count
}

/// How many entries of a stream of which none was deleted have ids up to this one, where that is
/// known without counting them.
// Source: Redis 7.2 `t_stream.c`, `streamEstimateDistanceFromFirstEverEntry`
fn estimated_read(stream: &Stream, id: StreamId) -> Option<u64> {
    let Some(first) = stream.entries.first() else { return Some(0) };
    if id == stream.last_id {
        return Some(stream.entries_added);
    }
    match id.cmp(&first.id) {
        Ordering::Less => Some(0),
        Ordering::Equal => Some(1),
        Ordering::Greater => None,
    }
}

// Source: as `read_stream`
fn read_group<R: Read>(input: &mut Input<R>, form: u8) -> Result<Group, RdbError> {
    let (name, last_id) = (input.owned_string()?, read_id(input)?);
    let entries_read = if form >= 2 { input.number()? } else { u64::MAX };
    // A number with a sign: -1 is an unknown one.
    let entries_read = Some(entries_read).filter(|count| count.cast_signed() >= 0);
    // All pending entries, then those of each consumer.
    let mut times = Vec::new();
    for _ in 0..input.number()? {
        input.take_part(times.len(), PENDING_BYTES)?;
        let id = raw_id(input.array()?);
        times.push((id, input.time_ms()?, input.number()?));
    }
    if !times.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(input.malformed("pending entries of a group without order"));
    }
    let (mut consumers, mut owners) = (Vec::new(), vec![None; times.len()]);
    for consumer in 0..input.number()? {
        let consumer = usize::try_from(consumer).unwrap_or(usize::MAX);
        input.take_part(consumer, CONSUMER_BYTES)?;
        let (name, seen_unix_ms) = (input.owned_string()?, input.time_ms()?);
        let active = if form >= 3 { input.time_ms()? } else { u64::MAX };
        let active_unix_ms = Some(active).filter(|at| at.cast_signed() >= 0);
        consumers.push(Consumer { name, seen_unix_ms, active_unix_ms });
        for _ in 0..input.number()? {
            let id = raw_id(input.array()?);
            let place = times.binary_search_by_key(&id, |(id, ..)| *id);
            let owner = place.ok().and_then(|place| owners.get_mut(place));
            match owner {
                Some(owner @ None) => *owner = Some(consumer),
                _ => return Err(input.malformed("a consumer's entry that is not the group's")),
            }
        }
    }
    if has_twice(consumers.iter().map(|consumer| &consumer.name)) {
        return Err(input.malformed("a group with two consumers of one name"));
    }
    let owned = times.into_iter().zip(owners);
    let pending = owned.map(|((id, delivered_unix_ms, deliveries), consumer)| {
        Some(Pending { id, delivered_unix_ms, deliveries, consumer: consumer? })
    });
    let pending = pending.collect::<Option<Vec<_>>>();
    let pending = pending.ok_or_else(|| input.malformed("a pending entry without a consumer"))?;
    Ok(Group { name, last_id, entries_read, consumers, pending })
}

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Reads the entries of a listpack, whose first one only has the names of fields. Entries share the
/// names, but each counts with them: a short part may stand for a long stream.
// Source: Redis 7.2 `t_stream.c`, the comment in `streamAppendItem`
fn read_entries(
    bytes: &[u8],
    first: StreamId,
    out: &mut Vec<StreamEntry>,
    sink: &mut Sink<'_>,
) -> Result<(), Malformed> {
    let mut listpack = Listpack::new(bytes)?;
    let (live, deleted) = (listpack.number()?, listpack.number()?);
    let count = live.checked_add(deleted).filter(|_| live >= 0 && deleted >= 0);
    let count = count.ok_or("negative number of entries of a stream")?;
    for _ in 0..listpack.number()? {
        listpack.push_to(sink)?;
    }
    let common = Arc::new(std::mem::take(sink.out));
    let names_bytes = common.iter().map(|field| field.len() as u64 + ELEMENT_BYTES).sum::<u64>();
    if listpack.number()? != 0 {
        return Err("no end of the first entry of a part of a stream");
    }
    for _ in 0..count {
        let flags = listpack.number()?;
        let (ms, sequence) = (listpack.number()?, listpack.number()?);
        // The distances are differences modulo 2^64.
        let id = StreamId {
            ms: first.ms.wrapping_add_signed(ms),
            sequence: first.sequence.wrapping_add_signed(sequence),
        };
        if out.len() >= sink.elements_max {
            return Err(TOO_MANY);
        }
        sink.room.take(ENTRY_BYTES)?;
        let (mut fields, mut values) = (Arc::clone(&common), Strings::default());
        if flags & SAME_FIELDS == 0 {
            let mut own = Strings::default();
            for _ in 0..listpack.number()? {
                listpack.push_to(&mut sink.to(&mut own))?;
                listpack.push_to(&mut sink.to(&mut values))?;
            }
            fields = Arc::new(own);
        } else {
            sink.room.take(names_bytes)?;
            for _ in 0..common.len() {
                listpack.push_to(&mut sink.to(&mut values))?;
            }
        }
        // The number of elements of this entry, to walk backwards.
        listpack.number()?;
        if flags & DELETED == 0 {
            out.push(StreamEntry { id, fields, values });
        }
    }
    match listpack.element()? {
        None => Ok(()),
        Some(_) => Err("more elements than entries in a part of a stream"),
    }
}

//! Writes streams in the form of Redis 7.0.

use super::stream::{Group, Stream, StreamEntry, StreamId};
use super::strings::Strings;
use super::write::{put_length, put_string};

// Source: Redis 7.2 `redis.conf`, defaults of `stream-node-max-entries` and `stream-node-max-bytes`
const PART_ENTRIES_MAX: usize = 100;
const PART_BYTES_MAX: usize = 4096;

/// Elements of a listpack, encoded.
#[derive(Debug, Default)]
struct Listpack {
    elements: Vec<u8>,
    count: usize,
}

impl Listpack {
    // Source: Redis 7.2 `listpack.c`, `lpEncodeIntegerGetType`
    fn put_number(&mut self, number: i64) {
        let start = self.elements.len();
        if let Ok(small) = u8::try_from(number)
            && small < 0x80
        {
            self.elements.push(small);
        } else if let Ok(number) = i16::try_from(number) {
            self.elements.push(0xf1);
            self.elements.extend_from_slice(&number.to_le_bytes());
        } else {
            self.elements.push(0xf4);
            self.elements.extend_from_slice(&number.to_le_bytes());
        }
        self.end(start);
    }

    // Source: Redis 7.2 `listpack.c`, `lpEncodeString`
    fn put_text(&mut self, text: &[u8]) {
        let start = self.elements.len();
        let [low, high, ..] = text.len().to_le_bytes();
        match text.len() {
            0..0x40 => self.elements.push(0x80 | low),
            0x40..0x1000 => self.elements.extend_from_slice(&[0xe0 | high, low]),
            len => {
                let len = u32::try_from(len).expect("a string of a stream has less than 4 GiB");
                self.elements.push(0xf0);
                self.elements.extend_from_slice(&len.to_le_bytes());
            }
        }
        self.elements.extend_from_slice(text);
        self.end(start);
    }

    /// The length of the element at `start`, to walk backwards.
    // Source: Redis 7.2 `listpack.c`, `lpEncodeBacklen`
    fn end(&mut self, start: usize) {
        let len = self.elements.len() - start;
        let bytes = super::packed::back_bytes(len);
        for place in (0..bytes).rev() {
            let bits = (len >> (7 * place)).to_le_bytes()[0] & 0x7f;
            let mark = if place + 1 == bytes { 0 } else { 0x80 };
            self.elements.push(bits | mark);
        }
        self.count += 1;
    }

    fn put_to(&self, out: &mut Vec<u8>) {
        const UNKNOWN_COUNT: u16 = u16::MAX;
        const HEADER_BYTES: usize = 6;
        let len = HEADER_BYTES + self.elements.len() + 1;
        put_length(out, len as u64);
        let len = u32::try_from(len).expect("a part of a stream has less than 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(UNKNOWN_COUNT);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.elements);
        out.push(0xff);
    }
}

fn raw(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.sequence)).to_be_bytes()
}

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_length(out, id.ms);
    put_length(out, id.sequence);
}

/// The number of entries of the next part: at least one.
fn part_len(entries: &[StreamEntry]) -> usize {
    let mut bytes = 0usize;
    let fits = |entry: &&StreamEntry| {
        let parts = entry.pairs().map(|(field, value)| field.len() + value.len());
        bytes = bytes.saturating_add(parts.sum());
        bytes <= PART_BYTES_MAX
    };
    entries.iter().take(PART_ENTRIES_MAX).take_while(fits).count().max(1)
}

/// One part: the names of the fields of its first entry, then its entries.
// Source: Redis 7.2 `t_stream.c`, the comment in `streamAppendItem`
fn put_part(out: &mut Vec<u8>, entries: &[StreamEntry]) {
    const SAME_FIELDS: i64 = 2;
    let (first, mut listpack) = (&entries[0], Listpack::default());
    let number = |count: usize| i64::try_from(count).expect("fewer than 2^63 elements");
    let names: &Strings = &first.fields;
    listpack.put_number(number(entries.len()));
    listpack.put_number(0);
    listpack.put_number(number(names.len()));
    names.iter().for_each(|name| listpack.put_text(name));
    listpack.put_number(0);
    for entry in entries {
        let is_same = *entry.fields == *names;
        listpack.put_number(if is_same { SAME_FIELDS } else { 0 });
        listpack.put_number(entry.id.ms.wrapping_sub(first.id.ms).cast_signed());
        listpack.put_number(entry.id.sequence.wrapping_sub(first.id.sequence).cast_signed());
        let count = entry.values.len();
        if is_same {
            entry.values.iter().for_each(|value| listpack.put_text(value));
            listpack.put_number(number(count + 3));
        } else {
            listpack.put_number(number(count));
            for (field, value) in entry.pairs() {
                listpack.put_text(field);
                listpack.put_text(value);
            }
            listpack.put_number(number(2 * count + 4));
        }
    }
    put_string(out, &raw(first.id));
    listpack.put_to(out);
}

/// Appends a stream. A time at which a consumer was active is not part of this form.
// Source: Redis 7.0 `rdb.c`, `rdbSaveObject`
pub fn put_stream(out: &mut Vec<u8>, stream: &Stream) {
    let (mut parts, mut rest) = (Vec::new(), &stream.entries[..]);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(part_len(rest));
        parts.push(part);
        rest = after;
    }
    put_length(out, parts.len() as u64);
    for part in parts {
        put_part(out, part);
    }
    put_length(out, stream.entries.len() as u64);
    put_id(out, stream.last_id);
    put_id(out, stream.entries.first().map_or(StreamId::default(), |entry| entry.id));
    put_id(out, stream.max_deleted_id);
    put_length(out, stream.entries_added);
    put_length(out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| put_group(out, group));
}

// Source: Redis 7.0 `rdb.c`, `rdbSaveStreamPEL` and `rdbSaveStreamConsumers`
fn put_group(out: &mut Vec<u8>, group: &Group) {
    put_string(out, &group.name);
    put_id(out, group.last_id);
    put_length(out, group.entries_read.unwrap_or(u64::MAX));
    put_length(out, group.pending.len() as u64);
    for pending in &group.pending {
        out.extend_from_slice(&raw(pending.id));
        out.extend_from_slice(&pending.delivered_unix_ms.to_le_bytes());
        put_length(out, pending.deliveries);
    }
    let mut owned = vec![Vec::new(); group.consumers.len()];
    for pending in &group.pending {
        owned[pending.consumer].push(raw(pending.id));
    }
    put_length(out, group.consumers.len() as u64);
    for (consumer, ids) in group.consumers.iter().zip(owned) {
        put_string(out, &consumer.name);
        out.extend_from_slice(&consumer.seen_unix_ms.to_le_bytes());
        put_length(out, ids.len() as u64);
        for id in ids {
            out.extend_from_slice(&id);
        }
    }
}

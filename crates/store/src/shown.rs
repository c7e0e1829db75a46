//! Mutations as text, for readers of a log.

use crate::change::Change;
use crate::items::Items;
use crate::key::PartitionKey;
use crate::mutation::Mutation;
use crate::stream_change::{Assignment, StreamChange};
use crate::types::{CellValue, RowKey, Write};
use crate::versions::{Given, Version};

/// Database, key and change, for reading: keys and values are cut to [`SHOWN_BYTES_MAX`].
impl std::fmt::Display for Mutation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mutation::Flush { db: None } => f.write_str("flush all"),
            Mutation::Flush { db: Some(db) } => write!(f, "flush db={db}"),
            Mutation::Swap { dbs: [first, second] } => write!(f, "swap db={first} db={second}"),
            Mutation::Key { db, key, change } => {
                write!(f, "db={db} key={} {change}", Shown(key.bytes))
            }
            Mutation::Partition { key, writes } => {
                write!(f, "{}", ShownPlace(*key))?;
                writes.iter().try_for_each(|write| write!(f, "; {}", ShownWrite(write)))
            }
            Mutation::Purge { key, now, gc_before } => {
                write!(f, "{} purge now={now} gc-before={gc_before}", ShownPlace(*key))
            }
            Mutation::Truncate { table } => write!(f, "table={:032x} truncate", table.0),
            Mutation::Version { db, key, given: Given { version, seen } } => {
                let (key, Version { time, server }) = (Shown(key.bytes), *version);
                write!(f, "db={db} key={key} version={time} server={server}")?;
                match *seen {
                    Version::NONE => Ok(()),
                    Version { time, server } => write!(f, " after={time} of={server}"),
                }
            }
            Mutation::Floor { db, version: Version { time, server } } => {
                write!(f, "floor db={db} version={time} server={server}")
            }
            Mutation::Origin { server, newest_timestamp } => {
                write!(f, "origin server={server} newest={newest_timestamp}")
            }
        }
    }
}

/// Bytes that are shown of a key or value.
const SHOWN_BYTES_MAX: usize = 64;

/// Bytes as a quoted, escaped string of bounded length.
struct Shown<'a>(&'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if self.0.len() > shown.len() { write!(f, "...({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

struct ShownPlace<'a>(PartitionKey<'a>);

impl std::fmt::Display for ShownPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PartitionKey { table, token, bytes } = self.0;
        write!(f, "table={:032x} token={token} key={}", table.0, Shown(bytes))
    }
}

struct ShownWrite<'a>(Write<'a>);

impl std::fmt::Display for ShownWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = |row: RowKey<'_>| match row {
            RowKey::Static => "static".to_owned(),
            RowKey::Clustering(row) => format!("row={}", Shown(row)),
        };
        match self.0 {
            Write::DeletePartition(stamp) => write!(f, "delete at={}", stamp.timestamp),
            Write::DeleteRange { start, end, stamp } => {
                write!(f, "delete from={}", Shown(start))?;
                end.map_or(Ok(()), |end| write!(f, " below={}", Shown(end)))?;
                write!(f, " at={}", stamp.timestamp)
            }
            Write::DeleteRow { row, stamp } => {
                write!(f, "delete row={} at={}", Shown(row), stamp.timestamp)
            }
            Write::InsertRow { row, timestamp, .. } => {
                write!(f, "insert row={} at={timestamp}", Shown(row))
            }
            Write::DeleteItems { row: key, column, stamp } => {
                write!(f, "delete {} column={column} at={}", row(key), stamp.timestamp)
            }
            Write::Cell { row: key, column, item, timestamp, value } => {
                write!(f, "{} column={column}", row(key))?;
                item.map_or(Ok(()), |item| write!(f, "[{}]", Shown(item)))?;
                match value {
                    CellValue::Live { bytes, .. } => write!(f, "={}", Shown(bytes))?,
                    CellValue::Deleted { .. } => f.write_str(" deleted")?,
                }
                write!(f, " at={timestamp}")
            }
        }
    }
}

impl std::fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items = |f: &mut std::fmt::Formatter<'_>, name: &str, items: Items<'_>| {
            write!(f, "{name}")?;
            items.iter().try_for_each(|item| write!(f, " {}", Shown(item)))
        };
        match *self {
            Change::Set { value, expiry } => {
                write!(f, "set {}", Shown(value))?;
                expiry.map_or(Ok(()), |at| write!(f, " expiry={}", at.0))
            }
            Change::Edit { offset, bytes } => write!(f, "edit at={offset} {}", Shown(bytes)),
            Change::Delete => f.write_str("delete"),
            Change::Expire { at: None } => f.write_str("persist"),
            Change::Expire { at: Some(at) } => write!(f, "expire at={}", at.0),
            Change::HashSet { pairs } => items(f, "hash-set", pairs),
            Change::HashUpdate { pairs } => items(f, "hash-update", pairs),
            Change::HashExpire { at: None, fields } => items(f, "hash-persist", fields),
            Change::HashExpire { at: Some(at), fields } => {
                items(f, &format!("hash-expire at={}", at.0), fields)
            }
            Change::HashRemove { fields } => items(f, "hash-remove", fields),
            Change::ListPush { end, values } => items(f, &format!("list-push {end:?}"), values),
            Change::ListPop { end, count } => write!(f, "list-pop {end:?} count={count}"),
            Change::ListSet { index, value } => write!(f, "list-set {index} {}", Shown(value)),
            Change::ListInsert { index, value } => {
                write!(f, "list-insert {index} {}", Shown(value))
            }
            Change::ListRemove { count, value } => {
                write!(f, "list-remove count={count} {}", Shown(value))
            }
            Change::ListTrim { start, count } => write!(f, "list-trim from={start} count={count}"),
            Change::SetAdd { members } => items(f, "set-add", members),
            Change::SetRemove { members } => items(f, "set-remove", members),
            Change::ZSetAdd { members } => {
                f.write_str("zset-add")?;
                members.iter().try_for_each(|(score, m)| write!(f, " {score} {}", Shown(m)))
            }
            Change::ZSetRemove { members } => items(f, "zset-remove", members),
            Change::SeriesAdd { points, expiry } => {
                f.write_str("series-add")?;
                let mut points = points.iter();
                points.try_for_each(|(at, value)| write!(f, " {at}={}", Shown(value)))?;
                expiry.map_or(Ok(()), |at| write!(f, " expiry={}", at.0))
            }
            Change::SeriesRemove { timestamps } => {
                f.write_str("series-remove")?;
                timestamps.iter().try_for_each(|at| write!(f, " {at}"))
            }
            Change::SeriesPurge { at, first, last } => {
                write!(f, "series-purge now={} from={first} to={last}", at.0)
            }
            Change::Stream(change) => write!(f, "{}", change.get()),
            Change::Put { kind, encoded, expiry } => {
                write!(f, "put {kind:?} bytes={}", encoded.len())?;
                expiry.map_or(Ok(()), |at| write!(f, " expiry={}", at.0))
            }
        }
    }
}

impl std::fmt::Display for StreamChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let read = |entries: Option<u64>| entries.map_or("?".to_owned(), |it| it.to_string());
        match *self {
            StreamChange::Add { id, fields } => {
                write!(f, "stream-add {id}")?;
                fields.iter().try_for_each(|item| write!(f, " {}", Shown(item)))
            }
            StreamChange::Trim { count } => write!(f, "stream-trim count={count}"),
            StreamChange::Delete { ids } => {
                f.write_str("stream-delete")?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
            StreamChange::SetIds { last_id, entries_added, max_deleted_id } => {
                write!(f, "stream-set-ids last={last_id}")?;
                entries_added.map_or(Ok(()), |added| write!(f, " added={added}"))?;
                max_deleted_id.map_or(Ok(()), |id| write!(f, " max-deleted={id}"))
            }
            StreamChange::SetGroup { group, read: it } => {
                let (group, entries) = (Shown(group), read(it.entries_read));
                write!(f, "stream-set-group {group} last={} read={entries}", it.last_id)
            }
            StreamChange::DeleteGroup { group } => {
                write!(f, "stream-delete-group {}", Shown(group))
            }
            StreamChange::SetConsumer { group, consumer, seen_ms } => {
                let (group, consumer) = (Shown(group), Shown(consumer));
                write!(f, "stream-set-consumer {group} {consumer} seen={seen_ms}")
            }
            StreamChange::DeleteConsumer { group, consumer } => {
                write!(f, "stream-delete-consumer {} {}", Shown(group), Shown(consumer))
            }
            StreamChange::Assign(assigned) => {
                let Assignment { group, consumer, seen_ms, delivered_ms, .. } = assigned;
                write!(f, "stream-assign {} {}", Shown(group), Shown(consumer))?;
                write!(f, " seen={seen_ms} delivered={delivered_ms}")?;
                if let Some(it) = assigned.read {
                    write!(f, " last={} read={}", it.last_id, read(it.entries_read))?;
                }
                let mut entries = assigned.entries.iter();
                entries.try_for_each(|(id, count)| write!(f, " {id}x{count}"))
            }
            StreamChange::Acknowledge { group, ids } => {
                write!(f, "stream-acknowledge {}", Shown(group))?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
        }
    }
}

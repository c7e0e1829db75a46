//! A change to a partition, and its log encoding.

use super::cell::{CellValue, Expiry, Stamp, Timestamp};
use crate::types::Malformed;
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// A row within its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKey<'a> {
    /// The cells that all rows share.
    Static,
    Clustering(&'a [u8]),
}

/// One write. A statement is a list of them; order and number mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write<'a> {
    DeletePartition(Stamp),
    /// Rows from `start` on and below `end`; without `end` to the last.
    DeleteRange {
        start: &'a [u8],
        end: Option<&'a [u8]>,
        stamp: Stamp,
    },
    DeleteRow {
        row: &'a [u8],
        stamp: Stamp,
    },
    /// The row is there even if all its cells are null.
    InsertRow {
        row: &'a [u8],
        timestamp: Timestamp,
        expiry: Option<Expiry>,
    },
    /// All items of a collection, before others are written.
    DeleteItems {
        row: RowKey<'a>,
        column: u32,
        stamp: Stamp,
    },
    Cell {
        row: RowKey<'a>,
        column: u32,
        /// Which item of a collection.
        item: Option<&'a [u8]>,
        timestamp: Timestamp,
        value: CellValue<'a>,
    },
}

const DELETE_PARTITION: u8 = 0;
const DELETE_RANGE: u8 = 1;
const DELETE_ROW: u8 = 2;
const INSERT_ROW: u8 = 3;
const DELETE_ITEMS: u8 = 4;
const CELL: u8 = 5;
/// Flags in the upper half of the byte that holds the kind.
const HAS_END: u8 = 0x10;
const IS_STATIC: u8 = 0x20;
const HAS_ITEM: u8 = 0x40;
const HAS_EXPIRY: u8 = 0x80;
const IS_DELETED: u8 = 0x10;

const _: () = assert!(CELL & (HAS_END | IS_STATIC | HAS_ITEM | HAS_EXPIRY | IS_DELETED) == 0);
const _: () = assert!(IS_DELETED & (IS_STATIC | HAS_ITEM | HAS_EXPIRY) == 0, "a cell has all four");

impl<'a> Write<'a> {
    /// Appends the write. Integers are little-endian, `v` is a LEB128 varint: kind and flags u8; a
    /// stamp is timestamp i64 and seconds u32; keys, items and values are length v and bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Write::DeletePartition(stamp) => {
                out.push(DELETE_PARTITION);
                put_stamp(stamp, out);
            }
            Write::DeleteRange { start, end, stamp } => {
                out.push(DELETE_RANGE | flag(HAS_END, end.is_some()));
                put_bytes(out, start);
                if let Some(end) = end {
                    put_bytes(out, end);
                }
                put_stamp(stamp, out);
            }
            Write::DeleteRow { row, stamp } => {
                out.push(DELETE_ROW);
                put_bytes(out, row);
                put_stamp(stamp, out);
            }
            Write::InsertRow { row, timestamp, expiry } => {
                out.push(INSERT_ROW | flag(HAS_EXPIRY, expiry.is_some()));
                put_bytes(out, row);
                out.extend_from_slice(&timestamp.to_le_bytes());
                put_expiry(expiry, out);
            }
            Write::DeleteItems { row, column, stamp } => {
                out.push(DELETE_ITEMS | flag(IS_STATIC, row == RowKey::Static));
                put_row(row, out);
                put_varint(out, column.into());
                put_stamp(stamp, out);
            }
            Write::Cell { row, column, item, timestamp, value } => {
                let flags = flag(IS_STATIC, row == RowKey::Static)
                    | flag(HAS_ITEM, item.is_some())
                    | match value {
                        CellValue::Live { expiry, .. } => flag(HAS_EXPIRY, expiry.is_some()),
                        CellValue::Deleted { .. } => IS_DELETED,
                    };
                out.push(CELL | flags);
                put_row(row, out);
                put_varint(out, column.into());
                if let Some(item) = item {
                    put_bytes(out, item);
                }
                out.extend_from_slice(&timestamp.to_le_bytes());
                match value {
                    CellValue::Live { bytes, expiry } => {
                        put_expiry(expiry, out);
                        put_bytes(out, bytes);
                    }
                    CellValue::Deleted { at } => out.extend_from_slice(&at.to_le_bytes()),
                }
            }
        }
    }

    /// Takes a write off the front.
    pub fn decode(input: &mut &'a [u8]) -> Result<Write<'a>, Malformed> {
        let (&kind, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        let has = |flag: u8| kind & flag != 0;
        let (write, known) = match kind & 0x0F {
            DELETE_PARTITION => (Write::DeletePartition(take_stamp(input)?), 0),
            DELETE_RANGE => {
                let start = take_bytes(input)?;
                let end = if has(HAS_END) { Some(take_bytes(input)?) } else { None };
                (Write::DeleteRange { start, end, stamp: take_stamp(input)? }, HAS_END)
            }
            DELETE_ROW => {
                (Write::DeleteRow { row: take_bytes(input)?, stamp: take_stamp(input)? }, 0)
            }
            INSERT_ROW => {
                let row = take_bytes(input)?;
                let timestamp = take_i64(input)?;
                let expiry = take_expiry(has(HAS_EXPIRY), input)?;
                (Write::InsertRow { row, timestamp, expiry }, HAS_EXPIRY)
            }
            DELETE_ITEMS => {
                let row = take_row(has(IS_STATIC), input)?;
                let column = take_column(input)?;
                (Write::DeleteItems { row, column, stamp: take_stamp(input)? }, IS_STATIC)
            }
            CELL => {
                let row = take_row(has(IS_STATIC), input)?;
                let column = take_column(input)?;
                let item = if has(HAS_ITEM) { Some(take_bytes(input)?) } else { None };
                let timestamp = take_i64(input)?;
                let value = if has(IS_DELETED) {
                    CellValue::Deleted { at: take_u32(input)? }
                } else {
                    let expiry = take_expiry(has(HAS_EXPIRY), input)?;
                    CellValue::Live { bytes: take_bytes(input)?, expiry }
                };
                let last = if has(IS_DELETED) { IS_DELETED } else { HAS_EXPIRY };
                let known = IS_STATIC | HAS_ITEM | last;
                (Write::Cell { row, column, item, timestamp, value }, known)
            }
            _ => return Err(Malformed),
        };
        if kind & 0xF0 & !known == 0 { Ok(write) } else { Err(Malformed) }
    }
}

fn flag(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

fn put_stamp(stamp: Stamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&stamp.timestamp.to_le_bytes());
    out.extend_from_slice(&stamp.at.to_le_bytes());
}

fn put_expiry(expiry: Option<Expiry>, out: &mut Vec<u8>) {
    if let Some(Expiry { at, ttl }) = expiry {
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&ttl.to_le_bytes());
    }
}

fn put_row(row: RowKey<'_>, out: &mut Vec<u8>) {
    if let RowKey::Clustering(key) = row {
        put_bytes(out, key);
    }
}

fn take_i64(input: &mut &[u8]) -> Result<i64, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(i64::from_le_bytes(*bytes))
}

fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(u32::from_le_bytes(*bytes))
}

fn take_stamp(input: &mut &[u8]) -> Result<Stamp, Malformed> {
    Ok(Stamp { timestamp: take_i64(input)?, at: take_u32(input)? })
}

fn take_expiry(is_there: bool, input: &mut &[u8]) -> Result<Option<Expiry>, Malformed> {
    if !is_there {
        return Ok(None);
    }
    Ok(Some(Expiry { at: take_u32(input)?, ttl: take_u32(input)? }))
}

fn take_row<'a>(is_static: bool, input: &mut &'a [u8]) -> Result<RowKey<'a>, Malformed> {
    if is_static { Ok(RowKey::Static) } else { Ok(RowKey::Clustering(take_bytes(input)?)) }
}

fn take_column(input: &mut &[u8]) -> Result<u32, Malformed> {
    u32::try_from(take_varint(input)?).map_err(|_| Malformed)
}

//! Partition keys: conversion between values, bytes and tokens.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cql::error::CqlError;
use cql::plan::Choices;
use cql::schema::{Column, Table};
use cql::token::token;
use cql::value::comparable;
use smallvec::{SmallVec, smallvec};
use store::{PartitionKey, TableId};

use super::ring::TokenSpan;
use super::values::EvalContext;

/// A partition key in the store's encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) bytes: SmallVec<[u8; 64]>,
    pub(super) token: i64,
}

/// Limit of the partitions that one statement may name.
const KEYS_MAX: usize = 65_536;
/// Limit of the bytes of value combinations from IN: some milliseconds of a reactor's time.
const PRODUCT_BYTES_MAX: usize = 16 << 20;
/// Limit of the serialized key, as in Cassandra.
pub(super) const KEY_BYTES_MAX: usize = 65_535;

impl Key {
    /// Builds a key from its parts.
    pub(super) fn new(parts: &[Cow<'_, [u8]>]) -> Result<Key, CqlError> {
        let key = Self::named(parts)?;
        key.check()?;
        Ok(key)
    }

    fn check(&self) -> Result<(), CqlError> {
        if self.bytes.is_empty() {
            return Err(CqlError::invalid("Key may not be empty"));
        }
        Ok(())
    }

    /// Builds a key that a statement names, which may be empty.
    // Source: Cassandra 5.0, CompositeType: each part follows its length and precedes a zero
    fn named(parts: &[Cow<'_, [u8]>]) -> Result<Key, CqlError> {
        let mut bytes = SmallVec::new();
        if let [part] = parts {
            bytes.extend_from_slice(part);
        } else {
            for part in parts {
                let length = u16::try_from(part.len()).map_err(|_| too_long(part.len()))?;
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(part);
                bytes.push(0);
            }
        }
        if bytes.len() > KEY_BYTES_MAX {
            return Err(too_long(bytes.len()));
        }
        let token = token(&bytes);
        Ok(Key { bytes, token })
    }

    pub(super) fn place(&self, table: TableId) -> PartitionKey<'_> {
        PartitionKey { table, token: self.token, bytes: &self.bytes }
    }
}

pub(super) fn too_long(bytes: usize) -> CqlError {
    CqlError::invalid(format!("Key length of {bytes} is longer than maximum of {KEY_BYTES_MAX}"))
}

pub(super) fn table_id(table: &Table) -> TableId {
    TableId(table.id.as_u128())
}

/// Splits a key into its parts; returns fewer if its bytes are corrupt.
pub(super) fn split<'k>(key: &'k [u8], table: &Table) -> SmallVec<[&'k [u8]; 4]> {
    let count = table.partition_key().len();
    let mut parts = SmallVec::new();
    if count == 1 {
        parts.push(key);
        return parts;
    }
    let mut rest = key;
    while parts.len() < count {
        let Some((length, behind)) = rest.split_first_chunk() else { break };
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((part, behind)) = behind.split_at_checked(length) else { break };
        parts.push(part);
        rest = behind.get(1..).unwrap_or_default();
    }
    parts
}

/// The keys that a statement names, without duplicates, in the order of their values.
pub(super) fn partition_keys(
    choices: &[Choices],
    table: &Table,
    cx: &EvalContext<'_>,
) -> Result<SmallVec<[Key; 1]>, CqlError> {
    let keys = named_keys(choices, table, cx)?;
    keys.iter().try_for_each(Key::check)?;
    Ok(keys)
}

/// Like [`partition_keys`], but only the keys within the span: others need not be valid.
// Source: Cassandra 5.0, TokenFilter.values
pub(super) fn partition_keys_within(
    span: TokenSpan,
    choices: &[Choices],
    table: &Table,
    cx: &EvalContext<'_>,
) -> Result<SmallVec<[Key; 1]>, CqlError> {
    let mut keys = named_keys(choices, table, cx)?;
    keys.retain(|key| span.holds(key.token));
    keys.iter().try_for_each(Key::check)?;
    Ok(keys)
}

fn named_keys(
    choices: &[Choices],
    table: &Table,
    cx: &EvalContext<'_>,
) -> Result<SmallVec<[Key; 1]>, CqlError> {
    let columns = table.partition_key();
    let is_single = choices.iter().all(|choices| matches!(choices, Choices::One(_)));
    if is_single {
        let parts: SmallVec<[Cow<'_, [u8]>; 4]> = choices
            .iter()
            .zip(columns)
            .map(|(choices, column)| cx.one(choices, &column.name))
            .collect::<Result<_, _>>()?;
        return Ok(smallvec![Key::named(&parts)?]);
    }
    let mut found: Vec<Ordered<'_>> = vec![(Vec::new(), Vec::new())];
    for (choices, column) in choices.iter().zip(columns) {
        let values = cx.choose(choices, &column.name)?;
        let prefix_bytes = found
            .iter()
            .map(|(order, parts)| order.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        check_product(prefix_bytes, values.iter().map(|value| 2 * value.len()))?;
        found = product(&found, &values, column);
    }
    let sorted: BTreeMap<Vec<u8>, Vec<Cow<'_, [u8]>>> = found.into_iter().collect();
    sorted.values().map(|parts| Key::named(parts)).collect()
}

/// Parts of a key, preceded by the bytes that determine its order.
type Ordered<'v> = (Vec<u8>, Vec<Cow<'v, [u8]>>);

fn product<'v>(
    prefixes: &[Ordered<'v>],
    values: &[Cow<'v, [u8]>],
    column: &Column,
) -> Vec<Ordered<'v>> {
    let mut found = Vec::with_capacity(prefixes.len() * values.len());
    for (order, parts) in prefixes {
        for value in values {
            let mut order = order.clone();
            comparable::encode(value, &column.column_type, false, &mut order);
            let mut parts = parts.clone();
            parts.push(value.clone());
            found.push((order, parts));
        }
    }
    found
}

/// Limits the combinations from IN, in number and in bytes. The iterators return the bytes of each
/// prefix and each value.
pub(super) fn check_product(
    prefixes: impl ExactSizeIterator<Item = usize>,
    values: impl ExactSizeIterator<Item = usize>,
) -> Result<(), CqlError> {
    let counts = [prefixes.len(), values.len()];
    let count = counts[0].saturating_mul(counts[1]);
    if count > KEYS_MAX {
        return Err(CqlError::invalid(format!(
            "The IN restrictions name {count} combinations of values, more than {KEYS_MAX}"
        )));
    }
    let (prefixes, values): (usize, usize) = (prefixes.sum(), values.sum());
    let bytes = prefixes.saturating_mul(counts[1]).saturating_add(values.saturating_mul(counts[0]));
    if counts[0] > 1 && counts[1] > 1 && bytes > PRODUCT_BYTES_MAX {
        return Err(CqlError::invalid(format!(
            "The IN restrictions name combinations of {bytes} bytes, more than {PRODUCT_BYTES_MAX}"
        )));
    }
    Ok(())
}

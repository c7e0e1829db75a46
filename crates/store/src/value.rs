//! Values as commands read them.

use std::borrow::Cow;

use base::time::UnixMs;

use crate::change::{Change, Kind};
use crate::small::{EqualList, Small, SmallKind};
use crate::types::{Series, Stream, Text};
use crate::views::{HashRef, ListRef, SetRef, ZSetRef};

/// A value, borrowed for as long as its stripe stays locked.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    String(Text<'a>),
    Hash(HashRef<'a>),
    List(ListRef<'a>),
    Set(SetRef<'a>),
    ZSet(ZSetRef<'a>),
    Stream(&'a Stream),
    Series(&'a Series),
}

/// The types, with the names that Redis gives them; it has no time series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    String,
    Hash,
    List,
    Set,
    ZSet,
    Stream,
    Series,
}

impl ValueKind {
    pub fn name(self) -> &'static str {
        match self {
            ValueKind::String => "string",
            ValueKind::Hash => "hash",
            ValueKind::List => "list",
            ValueKind::Set => "set",
            ValueKind::ZSet => "zset",
            ValueKind::Stream => "stream",
            ValueKind::Series => "timeseries",
        }
    }
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn of_small(kind: SmallKind, small: Small<'a>) -> Value<'a> {
        match kind {
            SmallKind::Hash => Value::Hash(HashRef::small(small)),
            SmallKind::List => Value::List(ListRef::small(small)),
            SmallKind::EqualList => Value::List(ListRef::equal(EqualList::new(small))),
            SmallKind::Set => Value::Set(SetRef::small(small)),
            SmallKind::Integers => Value::Set(SetRef::integers(small)),
            SmallKind::ZSet => Value::ZSet(ZSetRef::small(small)),
        }
    }

    /// The type of a collection; `None` for a string.
    pub(crate) fn collection_kind(&self) -> Option<Kind> {
        match self {
            Value::String(_) => None,
            Value::Hash(_) => Some(Kind::Hash),
            Value::List(_) => Some(Kind::List),
            Value::Set(_) => Some(Kind::Set),
            Value::ZSet(_) => Some(Kind::ZSet),
            Value::Stream(_) => Some(Kind::Stream),
            Value::Series(_) => Some(Kind::Series),
        }
    }

    /// Appends the bytes of a collection as in [`crate::Change::Put`]; nothing for a string.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::String(_) => {}
            Value::Hash(hash) => hash.encode(out),
            Value::List(list) => list.encode(out),
            Value::Set(set) => set.encode(out),
            Value::ZSet(zset) => zset.encode(out),
            Value::Stream(stream) => stream.encode(out),
            Value::Series(series) => series.encode(out),
        }
    }

    /// The change that sets another key to this value. `encoded` is overwritten.
    pub(crate) fn to_change<'b>(
        self,
        expiry: Option<UnixMs>,
        encoded: &'b mut Vec<u8>,
    ) -> Change<'b>
    where
        'a: 'b,
    {
        let kind = match (self, self.collection_kind()) {
            (_, Some(kind)) => kind,
            (Value::String(text), None) => {
                let value = match text.into_cow() {
                    Cow::Borrowed(bytes) => bytes,
                    Cow::Owned(number) => {
                        *encoded = number;
                        encoded
                    }
                };
                return Change::Set { value, expiry };
            }
            (_, None) => unreachable!("all kinds but strings are collections"),
        };
        encoded.clear();
        self.encode(encoded);
        Change::Put { kind, encoded, expiry }
    }

    pub fn kind(&self) -> ValueKind {
        match self {
            Value::String(_) => ValueKind::String,
            Value::Hash(_) => ValueKind::Hash,
            Value::List(_) => ValueKind::List,
            Value::Set(_) => ValueKind::Set,
            Value::ZSet(_) => ValueKind::ZSet,
            Value::Stream(_) => ValueKind::Stream,
            Value::Series(_) => ValueKind::Series,
        }
    }

    /// Elements of a collection, or bytes of a string; of a stream its entries and pending entries;
    /// of a time series also expired points.
    pub fn len(&self) -> usize {
        match self {
            Value::String(bytes) => bytes.len(),
            Value::Hash(hash) => hash.len(),
            Value::List(list) => list.len(),
            Value::Set(set) => set.len(),
            Value::ZSet(zset) => zset.len(),
            Value::Stream(stream) => stream.elements(),
            Value::Series(series) => series.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

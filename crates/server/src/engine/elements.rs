//! Cost of commands and statements in elements, which `elements-per-command-max` limits: no request
//! may occupy its reactor for long.

use store::ValueKind;

/// Cost of a member that is looked up in a set, or added to it.
pub(crate) const SET_COST: usize = 8;
/// Cost of a member that is looked up in a sorted set, or added to it.
pub(crate) const ZSET_COST: usize = 16;
/// Cost of an argument.
pub(crate) const ARGUMENT_COST: usize = 4;
/// Cost of an argument that may be a key, whose stripe is locked and whose entry is found and
/// changed, or a member of a sorted set.
pub(crate) const LARGE_ARGUMENT_COST: usize = 16;
/// Cost of an argument that may be a channel or a watched key, which is added to several tables, or
/// a key whose change is also published.
pub(crate) const NOTED_ARGUMENT_COST: usize = 32;
/// Cost of a queued command.
pub(crate) const QUEUED_COST: usize = 8;
/// Cost of a queued command whose change is also published.
pub(crate) const QUEUED_COST_WITH_EVENTS: usize = 16;

/// Bytes of a string that cost as much as one element if they are read, or filled with zeros: of
/// 512 MB, the longest string, all bits can be counted.
pub(crate) const SCANNED_BYTES: usize = 512;
/// Bytes of strings that cost as much as one element if a new string is computed from them.
pub(crate) const COMBINED_BYTES: usize = 128;

/// Bytes that cost as much as one element if a record repeats them: 16 MB by default.
pub(crate) const REPEATED_BYTES: usize = 16;

/// Cost of a point of a time series that is added or removed: its chunk of 2 KiB may be built again.
pub(crate) const POINT_COST: usize = 128;
/// Cost of a field that is read together with its expiry: a second lookup.
pub(crate) const FIELD_TIME_COST: usize = 8;
/// Cost of a field that changes together with its expiry: found several times, sorted among the
/// others of the request, and moved in the heap of times.
pub(crate) const TIMED_FIELD_COST: usize = 32;

/// Cost of an entry of a stream in a reply, besides its fields.
pub(crate) const ENTRY_COST: usize = 8;

/// Cost of an entry that becomes or stays pending, besides its fields.
pub(crate) const DELIVERY_COST: usize = 8;

/// Cost of a pending entry that changes its consumer: measured as 1.2 us, 12 elements, before its
/// record is written.
pub(crate) const CLAIM_COST: usize = 24;

/// Cost of reading all registers of a `HyperLogLog`: 15 us.
pub(crate) const SKETCH_COST: usize = 256;
/// Cost of changing a register of a `HyperLogLog`, which may be in a list of 3,000 bytes.
pub(crate) const SKETCH_CHANGE_COST: usize = 16;

/// Cost of rebuilding one element of a collection.
pub(crate) fn copy_cost(kind: ValueKind) -> usize {
    match kind {
        ValueKind::String => 1,
        ValueKind::List | ValueKind::Stream | ValueKind::Series => 2,
        ValueKind::Hash | ValueKind::Set => SET_COST,
        ValueKind::ZSet => ZSET_COST,
    }
}

/// Whether a request may process the given number of elements; a limit of 0 means none.
#[inline]
pub(crate) fn may_process(elements: usize, elements_max: usize) -> bool {
    elements <= elements_max || elements_max == 0
}

//! What commands and statements cost in elements, which `elements-per-command-max` limits: no request may
//! occupy its reactor for long.

use store::ValueKind;

/// A member that is looked up in a set, or added to one.
pub(crate) const SET_COST: usize = 8;
/// The same of a sorted set.
pub(crate) const ZSET_COST: usize = 16;
/// An argument.
pub(crate) const ARGUMENT_COST: usize = 4;
/// An argument that may be a key, whose stripe is locked, whose entry is found and changed, or a member
/// of a sorted set.
pub(crate) const LARGE_ARGUMENT_COST: usize = 16;
/// An argument that may be a channel or a watched key, which several tables note, or a key whose change is
/// published as well.
pub(crate) const NOTED_ARGUMENT_COST: usize = 32;
/// A queued command.
pub(crate) const QUEUED_COST: usize = 8;
/// A queued command whose change is published as well.
pub(crate) const TOLD_QUEUED_COST: usize = 16;

/// What it costs to build an element of a collection again.
pub(crate) fn copy_cost(kind: ValueKind) -> usize {
    match kind {
        ValueKind::String => 1,
        ValueKind::List => 2,
        ValueKind::Hash | ValueKind::Set => SET_COST,
        ValueKind::ZSet => ZSET_COST,
    }
}

/// Whether a request may process so many elements; a limit of 0 is none.
#[inline]
pub(crate) fn may_process(elements: usize, elements_max: usize) -> bool {
    elements <= elements_max || elements_max == 0
}

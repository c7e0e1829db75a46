//! Plans on the store: what statements read and write.
//!
//! Reading order: `values` (expressions to values), `keys` and `ranges` (which partitions and rows),
//! `row`, `filter`, `result`, `paging` and `select` (reading), `change`, `document`,
//! `condition` and `write` (writing), `source` (computed rows), `describe`.

mod change;
mod clock;
mod condition;
mod describe;
mod document;
mod filter;
mod keys;
mod paging;
mod ranges;
mod result;
mod row;
mod run;
mod select;
mod source;
#[cfg(test)]
mod tests;
mod values;
mod write;

pub(crate) use clock::WriteClock;

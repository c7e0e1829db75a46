//! Executes plans on the store: reads and writes of statements.
//!
//! Runs before the rest: `ahead` (prefetches the partitions of upcoming requests).
//!
//! Reading order: `run` (a plan to its kind), `values` (expressions to values), `keys` and `ranges`
//! (which partitions and rows), `row`, `filter`, `result`, `paging`, `ring`, `row_scan`,
//! `table_scan`, `index`, `item`, `lookup`, `pause` and `select` (reading), `change`, `document`,
//! `condition`, `batch_limits` and `write` (writing), `source` (computed rows), `redis` (values of
//! the Redis protocol), `describe`, `roles`, `trace`, `sample` (used partitions).

mod ahead;
mod batch_limits;
mod change;
mod condition;
mod describe;
mod document;
mod filter;
mod index;
mod item;
mod keys;
mod lookup;
mod paging;
mod pause;
mod ranges;
mod redis;
mod result;
mod ring;
mod roles;
mod row;
mod row_scan;
mod run;
mod sample;
mod select;
mod source;
mod table_scan;
#[cfg(test)]
pub(crate) mod tests;
mod trace;
mod values;
mod write;

pub(crate) use ahead::Places;
pub(crate) use index::install_indexes;
pub(crate) use pause::Paused;
pub(crate) use write::check_writes;

//! The execution of CQL statements, whatever protocol they arrive by. The crate `cql` implements the
//! language itself.
//!
//! `executor` (statements and batches on the state of a reactor), `execute` (plans on the store),
//! `result_sink` (where results go), `scan_queue` (paused reads), `stored_schema` and
//! `schema_change` (schema and roles in the store and in the log), `virtual_tables` (computed
//! tables), `traces` (rows of traces), `redaction` (texts without passwords).

pub(crate) mod execute;
pub(crate) mod executor;
pub(crate) mod redaction;
pub(crate) mod result_sink;
pub(crate) mod scan_queue;
pub(crate) mod schema_change;
mod state;
pub(crate) mod stored_schema;
pub(crate) mod traces;
pub(crate) mod virtual_tables;

pub(crate) use state::StatementState;

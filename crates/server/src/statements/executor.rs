//! The CQL executor: prepares statements, and runs statements and batches.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use cql::roles::Access;
use store::Locked;
use wire::cql::Parameters;

use super::execute::Paused;
use super::result_sink::ResultSink;
use super::state::StatementState;
use crate::config::Durability;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::refusal::STALE;
use crate::engine::replication::Role;
use crate::engine::running_scripts::FEW_KEYS;

/// Settings of one connection, owned by its session.
#[derive(Debug, Clone)]
pub(crate) struct ClientState {
    /// The keyspace selected by USE.
    pub(crate) keyspace: Option<String>,
    /// The logged-in role and its permissions; `None` if logins are not required.
    pub(crate) access: Option<Box<Access>>,
    pub(crate) durability: Durability,
    /// The server address that the client connected to, shown in `system.local`.
    pub(crate) local: Option<SocketAddr>,
}

/// Runs statements on the reactor's state and the state of statements.
#[derive(Debug)]
pub(crate) struct CqlExecutor<'a> {
    pub(crate) context: ReactorContext<'a>,
    pub(crate) statements: &'a StatementState,
    /// Whether a statement of few keys fails with [`CqlError::Contended`] instead of delaying its
    /// reactor. Its caller then runs it again.
    pub(crate) defers: bool,
}

impl<'a> Deref for CqlExecutor<'a> {
    type Target = ReactorContext<'a>;

    fn deref(&self) -> &ReactorContext<'a> {
        &self.context
    }
}

impl DerefMut for CqlExecutor<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.context
    }
}

/// The part of a statement that runs in one turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Maximum rows to examine before it pauses; 0: no limit.
    pub(crate) rows_max: usize,
    /// The progress from earlier turns.
    pub(crate) begun: Option<Box<Paused>>,
}

/// The outcome of a statement.
#[derive(Debug)]
pub(crate) enum Executed {
    /// The result is written, and must wait for this gate.
    Done(Gate),
    /// Nothing is written: the statement continues in a later turn.
    Paused(Box<Paused>),
}

impl CqlExecutor<'_> {
    /// Parses and plans a statement. Has no side effects and uses no cache.
    pub(crate) fn prepare(
        &self,
        text: &str,
        keyspace: Option<&str>,
    ) -> Result<PreparedStatement, CqlError> {
        PreparedStatement::new(text, keyspace, self.shared.catalog.load_full())
    }

    /// Runs a statement and writes its result. On error, nothing is written.
    pub(crate) fn execute(
        &mut self,
        client: &mut ClientState,
        statement: &PreparedStatement,
        parameters: &Parameters<'_>,
        turn: Turn,
        reply: &mut dyn ResultSink,
    ) -> Result<Executed, CqlError> {
        self.check_data()?;
        self.run(client, statement, parameters, turn, reply)
    }

    /// Runs the statements of a batch atomically. `find` returns a prepared statement by its ID.
    pub(crate) fn batch<'k>(
        &mut self,
        client: &mut ClientState,
        batch: &wire::cql::Batch<'_>,
        find: &dyn Fn(&[u8]) -> Option<&'k Arc<PreparedStatement>>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.check_data()?;
        self.run_batch(client, batch, find, reply)
    }

    /// Checks that this server has all data, as new as it must be: drivers try another one after
    /// this error.
    fn check_data(&self) -> Result<(), CqlError> {
        let replication = &self.shared.replication;
        let reason = match replication.role() {
            Role::Copying => replication.incomplete(),
            Role::Replica if replication.is_stale(&self.reactor.settings) => STALE,
            Role::Master | Role::Replica => return Ok(()),
        };
        Err(CqlError::Overloaded(reason.to_owned()))
    }

    /// Locks data of a statement that has `keys` keys or partitions. `lock` is passed the check whether
    /// it gives up its wait for other reactors.
    pub(super) fn lock_with<'l>(
        &self,
        keys: usize,
        lock: impl FnOnce(&dyn Fn(u64) -> bool) -> Option<Locked<'l>>,
    ) -> Result<Locked<'l>, CqlError> {
        let defers = self.defers && keys <= FEW_KEYS;
        let scripts = &self.shared.running_scripts;
        let (patience, is_too_slow) = (self.reactor.patience(scripts), scripts.until_too_slow());
        let gave_up_for_script = Cell::new(false);
        let gives_up = |waited_ns| {
            gave_up_for_script.set(is_too_slow(waited_ns));
            gave_up_for_script.get() || defers && patience(waited_ns)
        };
        let is_contended = || defers && !gave_up_for_script.get();
        lock(&gives_up)
            .ok_or_else(|| if is_contended() { CqlError::Contended } else { held_by_script() })
    }

    /// Locks the stripe of one of the keys or partitions of a statement; `keys`: their number.
    pub(super) fn lock_one(&self, hash: u64, keys: usize) -> Result<Locked<'_>, CqlError> {
        let (keyspace, params) = (&self.shared.keyspace, self.params);
        self.lock_with(keys, |gives_up| keyspace.lock_one_unless(hash, params, gives_up))
    }

    /// Locks a stripe, unless a script holds it for too long.
    pub(super) fn lock_stripe(&self, stripe: usize) -> Result<Locked<'_>, CqlError> {
        let is_too_slow = self.shared.running_scripts.until_too_slow();
        let locked = self.shared.keyspace.lock_stripe_unless(stripe, self.params, is_too_slow);
        locked.ok_or_else(held_by_script)
    }
}

/// Drivers retry a statement after this error.
pub(super) fn held_by_script() -> CqlError {
    CqlError::Overloaded("A script of the Redis protocol holds the data; try again".to_owned())
}

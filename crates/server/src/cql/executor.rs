//! What a session asks of CQL: to prepare a statement, to run one, to run a batch.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use cql::roles::Access;
use wire::cql::Parameters;

use super::execute::Paused;
use super::reply::ResultSink;
use super::state::CqlState;
use crate::config::Durability;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;

/// What one connection has chosen; owned by its session.
#[derive(Debug, Clone)]
pub(crate) struct ClientState {
    /// USE.
    pub(crate) keyspace: Option<String>,
    /// Who has logged in, and what he may do; none where nobody has to have a role.
    pub(crate) access: Option<Box<Access>>,
    pub(crate) durability: Durability,
    /// The address that the client has dialled: `system.local` shows it.
    pub(crate) local: Option<SocketAddr>,
}

/// Runs statements: what the reactor lends, and the state of CQL.
#[derive(Debug)]
pub(crate) struct CqlExecutor<'a> {
    pub(crate) context: ReactorContext<'a>,
    pub(crate) cql: &'a CqlState,
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

/// How far a statement runs before it pauses, and where it begins.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Rows that it may examine; 0: it runs to its end.
    pub(crate) rows_max: usize,
    /// What it has done in earlier turns.
    pub(crate) begun: Option<Box<Paused>>,
}

/// What became of a statement.
#[derive(Debug)]
pub(crate) enum Executed {
    /// Its result is written, and waits for this gate.
    Done(Gate),
    /// Nothing is written: it continues in a later turn.
    Paused(Box<Paused>),
}

impl CqlExecutor<'_> {
    /// Parses and plans. No cache, no effect.
    pub(crate) fn prepare(
        &self,
        text: &str,
        keyspace: Option<&str>,
    ) -> Result<PreparedStatement, CqlError> {
        PreparedStatement::new(text, keyspace, self.shared.catalog.load_full())
    }

    /// Runs a statement and writes its result. On an error nothing was written.
    pub(crate) fn execute(
        &mut self,
        client: &mut ClientState,
        statement: &PreparedStatement,
        parameters: &Parameters<'_>,
        turn: Turn,
        reply: &mut dyn ResultSink,
    ) -> Result<Executed, CqlError> {
        self.run(client, statement, parameters, turn, reply)
    }

    /// Runs the statements of a batch as one. `find` knows prepared statements by their ids.
    pub(crate) fn batch<'k>(
        &mut self,
        client: &mut ClientState,
        batch: &wire::cql::Batch<'_>,
        find: &dyn Fn(&[u8]) -> Option<&'k Arc<PreparedStatement>>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.run_batch(client, batch, find, reply)
    }
}

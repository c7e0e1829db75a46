//! What a session asks of CQL: to prepare a statement, to run one, to run a batch.

use std::net::SocketAddr;
use std::sync::Arc;

use base::time::Now;
use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use cql::roles::Access;
use store::Params;
use wire::cql::{Parameters, ResponseEncoder};

use super::state::CqlState;
use crate::commit::Record;
use crate::config::Durability;
use crate::gate::Gate;
use crate::shared::Shared;
use crate::worker::Worker;

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

/// Everything a request needs that is not its connection's. Lives for one read of one connection.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cql: &'a CqlState,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
    pub(crate) now: Now,
}

/// Where the response of one request goes.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) encoder: ResponseEncoder<'a>,
    pub(crate) stream: i16,
    pub(crate) out: &'a mut Vec<u8>,
    /// Version 5: the client knows other columns of the result than the statement has, and is to be
    /// told the new ones with their id (`RowsMetadata::new_metadata_id`).
    pub(crate) has_old_metadata: bool,
}

impl Engine<'_> {
    /// Parses and plans. No cache, no effect.
    pub(crate) fn prepare(
        &self,
        text: &str,
        keyspace: Option<&str>,
    ) -> Result<PreparedStatement, CqlError> {
        PreparedStatement::new(text, keyspace, self.shared.catalog.load_full())
    }

    /// Runs a statement and appends the response. Returns the log position that must be durable
    /// before the response leaves; 0: none. On an error nothing was appended.
    pub(crate) fn execute(
        &mut self,
        client: &mut ClientState,
        statement: &PreparedStatement,
        parameters: &Parameters<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Gate, CqlError> {
        self.run(client, statement, parameters, reply)
    }

    /// Runs the statements of a batch as one. `find` knows prepared statements by their ids.
    pub(crate) fn batch<'k>(
        &mut self,
        client: &mut ClientState,
        batch: &wire::cql::Batch<'_>,
        find: &dyn Fn(&[u8]) -> Option<&'k Arc<PreparedStatement>>,
        reply: &mut Reply<'_>,
    ) -> Result<Gate, CqlError> {
        self.run_batch(client, batch, find, reply)
    }
}

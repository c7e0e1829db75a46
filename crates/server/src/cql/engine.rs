//! What a session asks of CQL: to prepare a statement, to run one, to run a batch.

use std::net::SocketAddr;
use std::sync::Arc;

use base::time::Now;
use md5::{Digest, Md5};
use store::Params;
use wire::cql::{Column, Columns, Parameters, Prepared, ResponseEncoder};

use super::error::CqlError;
use super::expression::Marker;
use super::plan::Plan;
use super::roles::{Access, hashes_password};
use super::schema::Catalog;
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

/// The columns of a result, or the markers of a statement, as clients are told of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) columns: Vec<Column>,
}

impl Description {
    pub(crate) fn columns(&self) -> Columns<'_> {
        Columns { keyspace: &self.keyspace, table: &self.table, columns: &self.columns }
    }
}

/// A statement that can be run any number of times, by any reactor.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    pub(crate) id: [u8; 16],
    pub(crate) text: String,
    /// The keyspace that names without one were looked up in.
    pub(crate) keyspace: Option<String>,
    /// Whether all names have their own keyspaces: the statement is then the same whichever one is in
    /// use, `keyspace` is none, and so is the keyspace of its id.
    pub(crate) is_qualified: bool,
    pub(crate) markers: Description,
    /// The types of the values that must come with a request.
    pub(crate) values: Vec<Marker>,
    /// Which markers make up the partition key, in its order; empty if not all are markers.
    pub(crate) partition_key: Vec<u16>,
    /// None for statements that give no rows.
    pub(crate) result: Option<Description>,
    /// Says which columns `result` has.
    pub(crate) result_metadata_id: [u8; 16],
    pub(crate) plan: Plan,
    /// The schema that it was planned against.
    pub(crate) catalog: Arc<Catalog>,
}

impl PreparedStatement {
    /// Whether nothing that it depends on has changed since. One comparison unless the schema has
    /// changed.
    pub(crate) fn is_current(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) || self.plan.is_current(catalog)
    }

    /// Whether it takes tens of milliseconds.
    pub(crate) fn takes_long(&self) -> bool {
        match &self.plan {
            Plan::Other(statement) => hashes_password(statement).is_some(),
            _ => false,
        }
    }

    /// The answer to PREPARE.
    pub(crate) fn reply(&self) -> Prepared<'_> {
        Prepared {
            id: &self.id,
            result_metadata_id: &self.result_metadata_id,
            markers: self.markers.columns(),
            partition_key: &self.partition_key,
            result: self.result.as_ref().map(Description::columns),
        }
    }
}

/// The name of a prepared statement: the same on every server and in every life of it.
// Source: Cassandra 5.0, QueryProcessor.computeId
pub(crate) fn statement_id(text: &str, keyspace: Option<&str>) -> [u8; 16] {
    let mut hash = Md5::new();
    hash.update(keyspace.unwrap_or_default());
    hash.update(text);
    hash.finalize().into()
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

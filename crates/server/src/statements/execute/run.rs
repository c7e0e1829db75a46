//! Runs a request: combines the state of the session and the engine into what reads and writes
//! need.

use std::ops::Deref;
use std::sync::Arc;

use cql::error::CqlError;
use cql::expression::BoundValues;
use cql::moment::Moment;
use cql::plan::prepared::PreparedStatement;
use cql::plan::{BatchPlan, NOT_A_WRITE, Plan, WritePlan, check_batch};
use cql::roles::changes_roles;
use cql::schema::{Event, Table, Target, Verb, changes_schema, replication_warning};
use cql::statements::{BatchKind, Statement};
use store::{Mutation, Seconds};
use wire::cql::{BatchKind as WireKind, BatchStatement, Consistency, Parameters};

use super::document::Document;
use super::keys::table_id;
use super::pause::{Paused, When};
use super::select::{Select, Selected};
use super::values::EvalContext;
use super::write::{BoundWrite, SEVERAL_PARTITIONS};
use crate::engine::commit::Unit;
use crate::engine::gate::Gate;
use crate::engine::reactor_state::is_gated;
use crate::statements::executor::{ClientState, CqlExecutor, Executed, Turn, held_by_script};
use crate::statements::result_sink::ResultSink;

/// Limit of the unprepared statements in a BATCH message. Planning cannot pause, so their number is
/// limited.
const BATCH_TEXTS_MAX: usize = 16_384;

/// A statement of a batch. Prepared ones are not counted as used, because reactors would write to
/// the same memory.
enum Part<'k> {
    StatementCache(&'k PreparedStatement),
    Own(Box<PreparedStatement>),
}

impl Deref for Part<'_> {
    type Target = PreparedStatement;

    fn deref(&self) -> &PreparedStatement {
        match self {
            Part::StatementCache(statement) => statement,
            Part::Own(statement) => statement,
        }
    }
}

/// Collects the writes of a conditional batch, and refuses a second partition before it reads the
/// statements after it.
// Source: Cassandra 5.0, BatchStatement.makeCasRequest
fn together<'w>(
    writes: impl Iterator<Item = Result<BoundWrite<'w>, CqlError>>,
    is_conditional: bool,
) -> Result<Vec<BoundWrite<'w>>, CqlError> {
    let mut found: Vec<BoundWrite<'w>> = Vec::new();
    for write in writes {
        let write = write?;
        if is_conditional && found.first().is_some_and(|first| first.keys != write.keys) {
            return Err(CqlError::invalid(SEVERAL_PARTITIONS));
        }
        found.push(write);
    }
    Ok(found)
}

// Source: Cassandra 5.0, ConsistencyLevel.validateForCas
fn check_serial(consistency: Option<Consistency>) -> Result<(), CqlError> {
    match consistency {
        None | Some(Consistency::Serial | Consistency::LocalSerial) => Ok(()),
        Some(_) => Err(CqlError::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        )),
    }
}

impl CqlExecutor<'_> {
    pub(in crate::statements) fn run(
        &mut self,
        client: &mut ClientState,
        statement: &PreparedStatement,
        parameters: &Parameters<'_>,
        turn: Turn,
        reply: &mut dyn ResultSink,
    ) -> Result<Executed, CqlError> {
        self.authorize(client, statement)?;
        let values = BoundValues::new(&parameters.values, &statement.values)?;
        let Turn { rows_max, begun } = turn;
        let (begun, when) = match begun {
            None => (None, self.when(parameters.now_in_seconds)),
            Some(paused) => (Some(paused.done), paused.when),
        };
        let When { moment, now } = when;
        let cx =
            EvalContext { values: &values, document: None, left_out: &[], moment: &moment, now };
        if let Plan::Select(plan) = &statement.plan {
            let asked = Select { statement, plan, parameters, rows_max };
            return Ok(match self.select(client, &asked, begun, cx, reply)? {
                Selected::Done(gate) => Executed::Done(gate),
                Selected::Paused(done) => {
                    Executed::Paused(Box::new(Paused { done, when: When { moment, now } }))
                }
            });
        }
        self.run_at_once(client, statement, parameters, cx, reply).map(Executed::Done)
    }

    /// Runs a statement that never pauses: any except SELECT.
    fn run_at_once(
        &mut self,
        client: &mut ClientState,
        statement: &PreparedStatement,
        parameters: &Parameters<'_>,
        cx: EvalContext<'_>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        match &statement.plan {
            Plan::Select(_) => unreachable!("the caller runs SELECT"),
            Plan::Write(plan) => {
                self.admit_change(client, plan.only_deletes())?;
                if plan.is_conditional() {
                    check_serial(parameters.serial_consistency)?;
                }
                let timestamp = Self::timestamp(parameters.timestamp, plan.is_conditional());
                let document = Document::read(plan, &cx)?;
                let cx = Document::within(document.as_ref(), cx);
                let write = BoundWrite::new(plan, &statement.catalog, cx, timestamp)?;
                self.write(client, &mut [write], None, reply)
            }
            Plan::Batch(plan) => {
                self.batch_text(client, statement, plan, cx, parameters.timestamp, reply)
            }
            Plan::Truncate(table) => self.truncate(client, table, reply),
            Plan::Use(keyspace) => {
                client.keyspace = Some(keyspace.clone());
                reply.set_keyspace(keyspace)?;
                Ok(self.schema_gate(client))
            }
            Plan::Other(other) if changes_schema(other) => {
                self.change_schema(client, other, statement.keyspace.as_deref(), reply)
            }
            Plan::Other(other) if changes_roles(other) => {
                self.change_roles(client, other, statement.keyspace.as_deref(), reply)
            }
            Plan::Other(other) => match &**other {
                Statement::List(list) => {
                    self.list_roles(client, list, statement.keyspace.as_deref(), reply)
                }
                Statement::Describe(describe) => {
                    let keyspace = statement.keyspace.as_deref().or(client.keyspace.as_deref());
                    self.describe(client, keyspace, describe, reply)
                }
                _ => Err(CqlError::invalid("This statement is not supported")),
            },
        }
    }

    fn change_schema(
        &mut self,
        client: &ClientState,
        statement: &Statement,
        keyspace: Option<&str>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.admit_change(client, matches!(statement, Statement::Drop(_)))?;
        let access = client.access.as_deref();
        let (event, gate) = self.commit_schema_change(statement, keyspace, access)?;
        match event {
            Some(event) => {
                let warning = self.keyspace_warning(&event);
                let warnings: Vec<&str> = warning.as_deref().into_iter().collect();
                reply.schema_changed(&event.wire(), &warnings)?;
            }
            None => reply.void(&[])?,
        }
        Ok(if is_gated(client.durability) { gate } else { Gate::OPEN })
    }

    fn keyspace_warning(&self, event: &Event) -> Option<String> {
        let is_defined = event.target == Target::Keyspace && event.verb != Verb::Dropped;
        let catalog = self.context.shared.catalog.load();
        let keyspace = catalog.keyspace(&event.keyspace).filter(|_| is_defined);
        keyspace.and_then(|keyspace| replication_warning(keyspace))
    }

    /// Checks that the client may run the statement. Free when roles are not required.
    fn authorize(
        &self,
        client: &mut ClientState,
        statement: &PreparedStatement,
    ) -> Result<(), CqlError> {
        let Some(access) = &mut client.access else { return Ok(()) };
        access.refresh(&self.context.shared.roles);
        // Resolves names now, not at PREPARE: they may refer to other objects since then.
        let catalog = self.context.shared.catalog.load();
        access.check(&statement.plan, &catalog, statement.keyspace.as_deref())
    }

    /// The time of a statement that begins now.
    fn when(&mut self, asked: Option<i32>) -> When {
        When { moment: self.moment(), now: self.seconds(asked) }
    }

    fn moment(&mut self) -> Moment {
        Moment::new(self.context.now.unix_us(), self.context.reactor.random())
    }

    fn seconds(&self, asked: Option<i32>) -> Seconds {
        let own = || Seconds::try_from(self.context.now.unix.0 / 1000).unwrap_or(Seconds::MAX);
        asked.and_then(|seconds| Seconds::try_from(seconds).ok()).unwrap_or_else(own)
    }

    /// The timestamp of a write that specifies none. Conditions are evaluated on the server, so
    /// conditional writes get its timestamp, as do those of clients that send none.
    fn timestamp(asked: Option<i64>, is_conditional: bool) -> Option<i64> {
        asked.filter(|asked| !is_conditional && *asked != i64::MIN)
    }

    fn batch_text(
        &mut self,
        client: &ClientState,
        statement: &PreparedStatement,
        plan: &BatchPlan,
        cx: EvalContext<'_>,
        timestamp: Option<i64>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.admit_change(client, plan.writes.iter().all(WritePlan::only_deletes))?;
        let own = match &plan.timestamp {
            None => None,
            Some(expression) => cx.integer(expression, "timestamp")?,
        };
        let is_conditional = plan.writes.iter().any(WritePlan::is_conditional);
        let timestamp = Self::timestamp(own.or(timestamp), is_conditional);
        let documents = plan.writes.iter().map(|write| Document::read(write, &cx));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        let writes = plan.writes.iter().zip(&documents).map(|(write, document)| {
            let cx = Document::within(document.as_ref(), cx);
            BoundWrite::new(write, &statement.catalog, cx, timestamp)
        });
        let mut writes = together(writes, is_conditional)?;
        self.write(client, &mut writes, Some(plan.kind), reply)
    }

    pub(in crate::statements) fn run_batch<'k>(
        &mut self,
        client: &mut ClientState,
        batch: &wire::cql::Batch<'_>,
        find: &dyn Fn(&[u8]) -> Option<&'k Arc<PreparedStatement>>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.admit_deletion(client)?;
        let texts = batch.statements.iter().filter(|(it, _)| matches!(it, BatchStatement::Text(_)));
        if texts.count() > BATCH_TEXTS_MAX {
            return Err(CqlError::invalid(format!(
                "Batch too large: it has more than {BATCH_TEXTS_MAX} statements that are not prepared"
            )));
        }
        let mut statements = Vec::with_capacity(batch.statements.len());
        for (statement, values) in batch.statements.iter() {
            let statement = match statement {
                BatchStatement::Text(text) => {
                    let keyspace = batch.keyspace.or(client.keyspace.as_deref());
                    Part::Own(Box::new(self.prepare(text, keyspace)?))
                }
                BatchStatement::Prepared(id) => {
                    Part::StatementCache(find(id).ok_or_else(|| CqlError::Unprepared(id.to_vec()))?)
                }
            };
            self.authorize(client, &statement)?;
            let values = BoundValues::new(&values, &statement.values)?;
            statements.push((statement, values));
        }
        let mut plans = Vec::with_capacity(statements.len());
        for (statement, values) in &statements {
            let Plan::Write(plan) = &statement.plan else {
                return Err(CqlError::invalid(NOT_A_WRITE));
            };
            plans.push((&**plan, &statement.catalog, values));
        }
        if !plans.iter().all(|(plan, ..)| plan.only_deletes()) {
            self.check_room()?;
        }
        let kind = match batch.kind {
            WireKind::Logged => BatchKind::Logged,
            WireKind::Unlogged => BatchKind::Unlogged,
            WireKind::Counter => BatchKind::Counter,
        };
        check_batch(kind, false, plans.iter().map(|(plan, ..)| *plan))?;
        let moment = self.moment();
        let now = self.seconds(batch.now_in_seconds);
        let is_conditional = plans.iter().any(|(plan, ..)| plan.is_conditional());
        let timestamp = Self::timestamp(batch.timestamp, is_conditional);
        let context =
            |values| EvalContext { values, document: None, left_out: &[], moment: &moment, now };
        let documents =
            plans.iter().map(|(plan, _, values)| Document::read(plan, &context(*values)));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        let writes = plans.iter().zip(&documents).map(|((plan, catalog, values), document)| {
            let cx = Document::within(document.as_ref(), context(*values));
            BoundWrite::new(plan, catalog, cx, timestamp)
        });
        let mut writes = together(writes, is_conditional)?;
        self.write(client, &mut writes, Some(kind), reply)
    }

    /// Empties a table in all stripes at once.
    fn truncate(
        &mut self,
        client: &ClientState,
        table: &Table,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.admit_deletion(client)?;
        if self.context.shared.hub.server != 0 {
            let reason = "TRUNCATE is not possible on a server with a server-id: delete the rows";
            return Err(CqlError::Invalid(reason.to_owned()));
        }
        let shared = self.context.shared;
        let is_too_slow = shared.running_scripts.until_too_slow();
        let locked = shared.keyspace.lock_all_unless(self.context.params, is_too_slow);
        let locked = locked.ok_or_else(held_by_script)?;
        let mut unit =
            Unit::of_client(self.context.shared, self.context.reactor, self.context.record, locked);
        let mutation = Mutation::Truncate { table: table_id(table) };
        unit.change(&mutation).map_err(|error| CqlError::Server(error.to_string()))?;
        let gate = unit.commit(self.context.reactor);
        reply.void(&[])?;
        Ok(if is_gated(client.durability) { gate } else { Gate::OPEN })
    }
}

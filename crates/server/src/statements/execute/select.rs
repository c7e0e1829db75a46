//! Runs SELECT: from a request to its response.

use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use cql::plan::{PartitionRestriction, SelectPlan};
use cql::schema::TableSource;
use smallvec::SmallVec;
use wire::cql::Parameters;

use super::filter::Filters;
use super::keys::{partition_keys, partition_keys_within};
use super::lookup::terms;
use super::paging::PagingState;
use super::pause::Done;
use super::ranges::rows;
use super::result::{Next, Results};
use super::ring::{Ring, TokenSpan};
use super::source;
use super::table_scan::Scan;
use super::values::EvalContext;
use crate::engine::gate::Gate;
use crate::engine::reactor_state::is_gated;
use crate::statements::executor::{ClientState, CqlExecutor};
use crate::statements::result_sink::{ResultRows, ResultSink};
use crate::statements::virtual_tables;

/// A SELECT to run.
pub(super) struct Select<'a> {
    pub(super) statement: &'a PreparedStatement,
    pub(super) plan: &'a SelectPlan,
    pub(super) parameters: &'a Parameters<'a>,
    /// Rows to examine before it pauses; 0: it runs to its end.
    pub(super) rows_max: usize,
}

/// The outcome of a SELECT.
pub(super) enum Selected {
    /// The result is written and waits for this gate.
    Done(Gate),
    Paused(Box<Done>),
}

impl CqlExecutor<'_> {
    /// Writes the result, unless the statement pauses. `begun`: its earlier progress.
    pub(super) fn select(
        &mut self,
        client: &ClientState,
        select: &Select<'_>,
        begun: Option<Box<Done>>,
        cx: EvalContext<'_>,
        reply: &mut dyn ResultSink,
    ) -> Result<Selected, CqlError> {
        let Select { statement, plan, parameters, rows_max } = *select;
        let page_rows_max = parameters
            .page_size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size > 0);
        let resume = if let Some(done) = &begun {
            Some(done.at.clone())
        } else {
            let state = parameters.paging_state;
            state.map(|state| PagingState::decode(state, &plan.table)).transpose()?
        };
        let filters = Filters::new(&plan.restrictions.filters, &plan.table, &cx)?;
        let terms = terms(plan, &filters, &cx)?;
        let out = std::mem::take(&mut self.record.rows);
        let mut scan = Scan {
            plan,
            terms,
            rows: rows(&plan.restrictions.clustering, &plan.table, &cx)?,
            results: Results::new(plan, cx, filters, out, page_rows_max)?,
            resume,
            gathering: None,
        };
        scan.check_sorted(page_rows_max)?;
        let mut gate = Gate::OPEN;
        if let Some(done) = begun {
            gate = done.gate;
            scan.gathering = done.gathering;
            scan.results.restore(done.progress);
        } else if let Some(state) = &scan.resume {
            scan.results.resume(state);
        }
        // Computed tables are read in one turn; a small Redis value is read as a whole.
        let turn = if plan.table.is_virtual() { 0 } else { rows_max };
        scan.results.set_turn(turn, plan.table.source == TableSource::Stored);
        let end = self.scan(client, &mut scan, &cx, &mut gate)?;
        if end == Next::Pause {
            let (at, progress) = scan.results.pause();
            let gathering = scan.gathering.take();
            return Ok(Selected::Paused(Box::new(Done { at, progress, gathering, gate })));
        }
        self.reactor.tally.totals.rows_examined += scan.results.examined();
        let next_page = scan.results.finish(end)?.map(|state| state.encode(&plan.table));
        let result = statement.result.as_ref().expect("SELECT has a result");
        let warnings: SmallVec<[&str; 1]> = plan.warning().into_iter().collect();
        reply.rows(&ResultRows {
            columns: result.columns(),
            paging_state: next_page.as_deref(),
            cells: &scan.results.out,
            count: scan.results.count,
            warnings: &warnings,
        })?;
        self.record.reuse_rows(std::mem::take(&mut scan.results.out));
        Ok(Selected::Done(if is_gated(client.durability) { gate } else { Gate::OPEN }))
    }

    /// Visits the requested rows. Raises the log position that the response waits for.
    fn scan<'s>(
        &mut self,
        client: &ClientState,
        scan: &mut Scan<'s>,
        cx: &EvalContext<'s>,
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        let plan = scan.plan;
        let is_redis = match plan.table.source {
            TableSource::Virtual => {
                let rows = virtual_tables::rows(&plan.table, &self.virtual_cx(client));
                return scan.computed(&source::partitions(&plan.table, rows), cx);
            }
            TableSource::Redis => true,
            TableSource::Stored => false,
        };
        let tokens = match &plan.restrictions.partition {
            PartitionRestriction::Keys { keys, tokens } => {
                // Source: Cassandra 5.0, SelectStatement.getSliceCommands
                if scan.rows.is_empty() {
                    return Ok(Next::Continue);
                }
                let keys = match tokens {
                    None => partition_keys(keys, &plan.table, cx)?,
                    Some(tokens) => {
                        let span = TokenSpan::new(tokens, cx)?;
                        partition_keys_within(span, keys, &plan.table, cx)?
                    }
                };
                self.sample_keys(&plan.table, &keys);
                if is_redis {
                    return scan.redis_keys(self, &keys, gate);
                }
                return scan.keys(self, &keys, gate);
            }
            PartitionRestriction::Any => Ring::WHOLE,
            PartitionRestriction::Tokens(tokens) => Ring::new(tokens, cx)?,
        };
        self.sample_keys(&plan.table, &[]);
        if is_redis { scan.redis_scan(self, tokens, gate) } else { scan.scan(self, tokens, gate) }
    }
}

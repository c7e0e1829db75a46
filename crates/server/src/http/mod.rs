//! HTTP: the data by REST, health and metrics.
//!
//! Reading order: `session` (what a connection remembers), `exchange` (one request and its answer),
//! `route` (the table of everything that can be asked for), `access` (who may ask), `target` (paths and
//! queries); then what is answered: `command` (one command or several, by the REST
//! dialect of hosted Redis; `pipeline` runs those that may pause), `reply` (errors as JSON), `kv` (values as they are), `cql` (statements; `column` their types),
//! `changes` (the log as events), `subscribe` (channels as events),
//! `health` (and `early`, before recovery is over), `metrics`, `api` and the `console` made of it.
//!
//! A connection serves one request after the other and keeps nothing of them: commands run in a session
//! that lasts for one request. `check` holds the properties that the fuzzers test.

mod access;
mod api;
pub(crate) mod changes;
pub mod check;
mod column;
mod command;
mod console;
mod cql;
pub(crate) mod early;
mod exchange;
pub(crate) mod feeds;
mod health;
mod kv;
mod metrics;
mod pipeline;
mod reply;
mod route;
mod session;
mod subscribe;
mod target;

pub(crate) use cql::{PausedStatement, resume as resume_statement, statement_error};
pub(crate) use exchange::{Exchange, Outcome, Scratch, Terms, client_of};
pub(crate) use pipeline::{Pipeline, PipelineStop};
pub(crate) use route::{ROUTES, find};
pub(crate) use session::{Delayed, Phase, Session, Wait};
pub(crate) use subscribe::Encoding;

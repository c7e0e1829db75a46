//! HTTP: the REST API, health checks, metrics and the console.
//!
//! Reading order: `session` (the state of a connection), `exchange` (one request and its response),
//! `route` (the table of all routes), `access` (authentication and same-origin checks), `target`
//! (paths and query strings). Then the handlers: `command` (one command or several, in the REST
//! dialect of hosted Redis; `pipeline` runs several, with pauses), `reply` (errors as JSON), `kv`
//! (raw values), `cql` (statements; `column`: their types), `changes` (the log as events),
//! `subscribe` (channels as events), `health` (and `early`, during recovery), `metrics`, `api`, and
//! the `console` that uses it.
//!
//! A connection serves one request at a time and keeps no state between requests: each command runs
//! in a session that lasts for one request. `check` holds the properties that the fuzzers test.

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
pub(crate) mod metrics;
mod pipeline;
mod reply;
mod route;
mod session;
mod subscribe;
mod target;
mod trace;

pub(crate) use cql::{PausedStatement, resume as resume_statement, statement_error};
pub(crate) use exchange::{Exchange, Response, ResponseOptions, Scratch, client_of};
pub(crate) use pipeline::{Pipeline, PipelineStop};
pub(crate) use route::{ROUTES, find};
pub(crate) use session::{Delayed, Phase, Session, Wait};
pub(crate) use subscribe::Encoding;

//! The Cassandra Query Language: parser, plans, types, values and functions, schemas and roles.
//!
//! This crate contains no connections, no log and no locks: it determines the meaning of a
//! statement, and `server` executes it.
//!
//! Reading order: `lexer` (text to tokens), `parser` (the cursor over them), `type_name`, `term`
//! and `relation` (the parts of statements), `statements` (one file and one row each); `types`
//! (resolved type names), `value` (bytes, text, order), `token` (the position on the ring);
//! `schema` (keyspaces, tables and types); `roles` (roles and permissions); `expression` and
//! `function` (typed terms, and their evaluation); `plan` (statements with all names resolved),
//! `prepared` (a plan with its description); `error` (why a request fails).
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod analysis;
pub mod check;
mod duration;
pub mod error;
pub mod expression;
pub mod function;
pub mod json_limits;
pub mod lexer;
mod markdown;
pub mod moment;
pub mod options;
pub mod parser;
pub mod plan;
pub mod relation;
pub mod roles;
pub mod schema;
pub mod statements;
pub mod term;
pub mod token;
pub mod type_name;
pub mod types;
pub mod value;
mod vint;

pub use markdown::markdown;

//! The Cassandra query language.
//!
//! Reading order: `lexer` (text to tokens), `parser` (the cursor over them), `type_name`, `term` and
//! `relation` (what statements are made of), `statements` (one file and one row each); `types` (names
//! looked up), `value` (bytes, text, order), `token` (the place on the ring); `schema` (what keyspaces,
//! tables and types there are); `expression` and `function` (terms with their types, and what they come
//! to); `plan` (statements with all names looked up), `execute` (plans on the store), `engine` (what a
//! session asks of both); `error` (why a request fails).

pub(crate) mod engine;
pub mod error;
pub mod expression;
pub mod function;
pub mod lexer;
pub mod parser;
mod plan;
pub mod relation;
pub mod schema;
pub mod statements;
pub mod term;
pub mod token;
pub mod type_name;
pub mod types;
pub mod value;

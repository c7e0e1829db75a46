//! Statements of CQL from any text: lexer, parser, plan. Run: `cargo +nightly fuzz run cql_statement`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cql::check::check_statement(data));

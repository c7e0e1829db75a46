//! Tests of the lab as its users start it. It measures the `myriad` of its own folder: `cargo test
//! --workspace` builds that too, `cargo test -p myriad-lab` needs `-p myriad` beside it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod generate;
mod run;

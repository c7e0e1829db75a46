//! Tests of the lab as its users start it. It measures the `myriad` in its own folder: `cargo test
//! --workspace` builds that too, `cargo test -p myriad-lab` also needs `-p myriad`.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

mod generate;
mod run;

//! Tests of the lab as its users start it. It measures the `myriad` of its own folder: `cargo test
//! Tests of the lab as its users start it. It measures the `myriad` in its own folder: `cargo test
//! --workspace` builds that too, `cargo test -p myriad-lab` also needs `-p myriad`.

mod generate;
mod run;

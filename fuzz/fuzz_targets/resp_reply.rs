//! Replies of RESP from any bytes. Run: `cargo +nightly fuzz run resp_reply`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wire::resp::check::check_reply(data));

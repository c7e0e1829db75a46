//! Requests of RESP from any bytes, in pieces of any size. Run: `cargo +nightly fuzz run resp_request`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wire::resp::check::check_requests(data));

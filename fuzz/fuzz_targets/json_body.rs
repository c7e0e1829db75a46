//! Bodies of the data server's JSON routes from any bytes. Run: `cargo +nightly fuzz run json_body`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| server::http_check::check_body(data));

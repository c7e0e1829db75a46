//! RDB files and payloads from any bytes. Run: `cargo +nightly fuzz run rdb`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    wire::rdb::check::check_file(data);
    wire::rdb::check::check_payload(data);
});

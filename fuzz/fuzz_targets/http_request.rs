//! Requests of HTTP from any bytes, in pieces of any size, as both servers take them. Run:
//! `cargo +nightly fuzz run http_request`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    wire::http::check::check_requests(data);
    server::http_check::check_heads(data);
    web::check::check_heads(data);
});

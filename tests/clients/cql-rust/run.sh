#!/usr/bin/env bash
# Runs the suite with the Rust driver of ScyllaDB against CQL_ADDR.
source "$(dirname "$0")/../prepare.sh" CQL_ADDR
export CARGO_TARGET_DIR="$deps/rust"
"$retry" cargo build --quiet --locked
exec "$CARGO_TARGET_DIR/debug/suite"

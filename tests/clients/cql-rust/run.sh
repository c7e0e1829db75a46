#!/usr/bin/env bash
# Runs the suite with the Rust driver of ScyllaDB against CQL_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${CQL_ADDR:?CQL_ADDR=host:port of the server is needed}"
mkdir -p ../../.deps
CARGO_TARGET_DIR=$(cd ../../.deps && pwd)/rust
export CARGO_TARGET_DIR
../../../scripts/retry.sh cargo build --quiet --locked
exec "$CARGO_TARGET_DIR/debug/suite"

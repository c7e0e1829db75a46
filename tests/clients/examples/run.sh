#!/usr/bin/env bash
# Runs suite.py: the commands of examples/README.md against ADDR, CQL_ADDR and HTTP_ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR CQL_ADDR HTTP_ADDR
export CARGO_TARGET_DIR="$deps/rust"
exec python3 -B suite.py

#!/usr/bin/env bash
# Runs suite.py with Cassandra's Python driver and cqlsh against CQL_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${CQL_ADDR:?CQL_ADDR=host:port of the server is needed}"
venv=../../.deps/cql-python
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" -B -W ignore "${1:-suite.py}"

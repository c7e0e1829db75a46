#!/usr/bin/env bash
# Runs suite.py with Cassandra's Python driver and cqlsh against CQL_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${CQL_ADDR:?CQL_ADDR=host:port of the server is needed}"
venv=../../.deps/cql-python
# Suites that run side by side share it.
mkdir -p ../../.deps
exec {lock}>../../.deps/cql-python.lock
flock "$lock"
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec {lock}>&-
exec "$venv/bin/python" -B -W ignore "${1:-suite.py}"

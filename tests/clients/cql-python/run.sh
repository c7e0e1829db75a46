#!/usr/bin/env bash
# Runs suite.py with Cassandra's Python driver and cqlsh against CQL_ADDR.
source "$(dirname "$0")/../prepare.sh" CQL_ADDR
use_venv cql-python
exec "$venv/bin/python" -B -W ignore "${1:-suite.py}"

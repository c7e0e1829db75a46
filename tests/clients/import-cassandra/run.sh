#!/usr/bin/env bash
# Runs suite.py: `myriad import` from a running Cassandra, with the packages of `cql-python`.
set -euo pipefail
exec bash "$(dirname "$0")/../cql-python/run.sh" ../import-cassandra/suite.py

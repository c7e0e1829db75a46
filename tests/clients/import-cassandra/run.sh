#!/usr/bin/env bash
# Runs suite.py: `myriad import` from a running Cassandra, with the packages of `cql-python`.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
"$folder/../../../scripts/retry.sh" "$folder/../../../scripts/peers/cassandra.sh" install
exec bash "$folder/../cql-python/run.sh" ../import-cassandra/suite.py

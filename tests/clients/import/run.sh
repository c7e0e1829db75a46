#!/usr/bin/env bash
# Runs suite.py: `myriad import` from a running redis-server and Valkey, with the packages of `rdb`.
set -euo pipefail
exec bash "$(dirname "$0")/../rdb/run.sh" ../import/suite.py "$@"

#!/usr/bin/env bash
# Runs suite.py: RDB files of redis-server and Valkey, imported and exported by the program MYRIAD.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
venv=../../.deps/rdb
mkdir -p ../../.deps
exec {lock}>../../.deps/rdb.lock
flock "$lock"
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec {lock}>&-
exec "$venv/bin/python" -B -W ignore "${1:-suite.py}"

#!/usr/bin/env bash
# Runs suite.py with redis-py against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
venv=../../.deps/python
mkdir -p ../../.deps
exec {lock}>../../.deps/python.lock
flock "$lock"
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec {lock}>&-
exec "$venv/bin/python" -B -W ignore::DeprecationWarning suite.py

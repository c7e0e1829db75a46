#!/usr/bin/env bash
# Runs suite.py: redis-cli, curl, redis-py and Cassandra's Python driver with TLS against a server that it
# starts from the program MYRIAD, with certificates that the openssl command makes for it.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
venv=../../.deps/tls
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" -B -W ignore suite.py

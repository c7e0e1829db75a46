#!/usr/bin/env bash
# Runs suite.py: Redis Sentinel watches servers of the program MYRIAD and fails over.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
venv=../../.deps/sentinel
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" -B -W ignore suite.py

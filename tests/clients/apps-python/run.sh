#!/usr/bin/env bash
# Runs suite.py, Celery, RQ, Huey and locks of redis-py, against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
venv=../../.deps/apps-python
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" -B -W ignore::DeprecationWarning suite.py

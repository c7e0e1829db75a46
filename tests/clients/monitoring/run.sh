#!/usr/bin/env bash
# Runs suite.py: Prometheus, the dashboards, the rules and redis_exporter on servers of the program MYRIAD.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
venv=../../.deps/monitoring
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" -B suite.py

#!/usr/bin/env bash
# Runs suite.py with Prometheus' own parser against HTTP_ADDR.
source "$(dirname "$0")/../prepare.sh" HTTP_ADDR
use_venv http-python
exec "$venv/bin/python" -B suite.py

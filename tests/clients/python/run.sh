#!/usr/bin/env bash
# Runs suite.py with redis-py against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
use_venv python
exec "$venv/bin/python" -B -W ignore::DeprecationWarning suite.py

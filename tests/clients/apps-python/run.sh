#!/usr/bin/env bash
# Runs suite.py, Celery, RQ, Huey and locks of redis-py, against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
use_venv apps-python
exec "$venv/bin/python" -B -W ignore::DeprecationWarning suite.py

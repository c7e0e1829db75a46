#!/usr/bin/env bash
# Runs suite.py: Redis Sentinel watches servers of the program MYRIAD and fails over.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv sentinel
exec "$venv/bin/python" -B -W ignore suite.py

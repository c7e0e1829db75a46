#!/usr/bin/env bash
# Runs suite.py: RDB files of redis-server and Valkey, imported and exported by the program MYRIAD.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv rdb
exec "$venv/bin/python" -B -W ignore "${@:-suite.py}"

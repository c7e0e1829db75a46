#!/usr/bin/env bash
# Runs suite.py: redis-cli, curl, redis-py and Cassandra's Python driver with TLS against a server that it
# starts from the program MYRIAD, with certificates that the openssl command makes for it.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv tls
exec "$venv/bin/python" -B -W ignore suite.py

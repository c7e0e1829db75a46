#!/usr/bin/env bash
# Runs suite.py: Cassandra's Python and Java drivers with a master and its replica, of the program
# MYRIAD.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv cql-replicas
use_maven Writer
exec "$venv/bin/python" -B -W ignore suite.py

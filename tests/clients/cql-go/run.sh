#!/usr/bin/env bash
# Runs the suite with gocql against CQL_ADDR.
source "$(dirname "$0")/../prepare.sh" CQL_ADDR
run_go cql-suite

#!/usr/bin/env bash
# Runs the suite with go-redis against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
run_go suite

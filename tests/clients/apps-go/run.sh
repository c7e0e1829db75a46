#!/usr/bin/env bash
# Runs applications on asynq and rueidis against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
run_go apps

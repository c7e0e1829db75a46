#!/usr/bin/env bash
# Runs suite.js with ioredis and node-redis against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
use_npm ci
exec node suite.js

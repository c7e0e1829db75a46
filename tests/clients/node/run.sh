#!/usr/bin/env bash
# Runs suite.js with ioredis and node-redis against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
if ! cmp -s package-lock.json node_modules/installed.json; then
    ../../../scripts/retry.sh npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed.json
fi
exec node suite.js

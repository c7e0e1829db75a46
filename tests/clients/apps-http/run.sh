#!/usr/bin/env bash
# Runs suite.js, rate limits of @upstash/ratelimit, against HTTP_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${HTTP_ADDR:?HTTP_ADDR=host:port of the server is needed}"
if ! cmp -s package-lock.json node_modules/installed.json; then
    ../../../scripts/retry.sh npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed.json
fi
exec node suite.js

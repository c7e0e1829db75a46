#!/usr/bin/env bash
# Runs suite.js, job queues on BullMQ, against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
if ! cmp -s package-lock.json node_modules/installed.json; then
    # `npm ci` wants the optional packages of other platforms in the lock file, which npm omits there.
    ../../../scripts/retry.sh npm install --no-save --omit=optional --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed.json
fi
exec node suite.js

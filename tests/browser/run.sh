#!/usr/bin/env bash
# Runs a script of this folder: run.sh SCRIPT ARGUMENTS...
set -euo pipefail
folder=$(dirname "$0")
if ! cmp -s "$folder/package-lock.json" "$folder/node_modules/installed.json"; then
    "$folder/../../scripts/retry.sh" npm ci --prefix "$folder" --silent --no-audit --no-fund
    cp "$folder/package-lock.json" "$folder/node_modules/installed.json"
fi
script=$1
shift
exec node "$folder/$script" "$@"

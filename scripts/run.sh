#!/usr/bin/env bash
# Starts the built server with all three protocols on loopback. On a terminal it prints how to
# connect.
#
# Arguments go to the server: scripts/run.sh --resp 127.0.0.1:7000 --dir data/other
set -euo pipefail
cd "$(dirname "$0")/.."
exec target/release/myriad serve --cql 127.0.0.1:9042 --http 127.0.0.1:8080 "$@"

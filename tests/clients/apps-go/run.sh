#!/usr/bin/env bash
# Runs applications on asynq and rueidis against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
mkdir -p ../../.deps
deps=$(cd ../../.deps && pwd)
export GOMODCACHE="$deps/go/mod" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"
../../../scripts/retry.sh go build -o "$deps/go/apps" .
exec "$deps/go/apps"

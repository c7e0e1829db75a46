#!/usr/bin/env bash
# Runs the suite with gocql against CQL_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${CQL_ADDR:?CQL_ADDR=host:port of the server is needed}"
mkdir -p ../../.deps
deps=$(cd ../../.deps && pwd)
export GOMODCACHE="$deps/go/mod" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"
../../../scripts/retry.sh go build -o "$deps/go/cql-suite" .
exec "$deps/go/cql-suite"

#!/usr/bin/env bash
# Runs suite.py: the commands of examples/README.md against ADDR, CQL_ADDR and HTTP_ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
: "${CQL_ADDR:?CQL_ADDR=host:port of the server is needed}"
: "${HTTP_ADDR:?HTTP_ADDR=host:port of the server is needed}"
mkdir -p ../../.deps/maven
deps=$(cd ../../.deps && pwd)
# The downloads and builds of the other suites.
export GOMODCACHE="$deps/go/mod" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"
export MAVEN_OPTS="-Dmaven.repo.local=$deps/maven" CARGO_TARGET_DIR="$deps/rust"
exec python3 -B suite.py

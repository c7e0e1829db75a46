#!/usr/bin/env bash
# Runs suite.py: `myriad backup` and `myriad restore` of the program MYRIAD, with a bucket of s3proxy,
# which is started from the jars of pom.xml, and over TLS, with certificates of the openssl command.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
deps=../../.deps/backup
if ! cat requirements.txt pom.xml | cmp -s - "$deps/installed.txt"; then
    mkdir -p ../../.deps
    python3 -m venv --clear "$deps"
    ../../../scripts/retry.sh "$deps/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    ../../../scripts/retry.sh mvn --quiet --batch-mode dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/$deps/jars"
    cat requirements.txt pom.xml >"$deps/installed.txt"
fi
exec "$deps/bin/python" -B -W ignore suite.py

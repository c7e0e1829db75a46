#!/usr/bin/env bash
# Runs suite.py: `myriad backup` and `myriad restore` of the program MYRIAD, with a bucket of s3proxy,
# which is started from the jars of pom.xml, and over TLS, with certificates of the openssl command.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv backup
if ! cmp -s pom.xml "$venv/installed.xml"; then
    "$retry" mvn --quiet --batch-mode dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$venv/jars"
    cp pom.xml "$venv/installed.xml"
fi
exec "$venv/bin/python" -B -W ignore suite.py

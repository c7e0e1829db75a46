#!/usr/bin/env bash
# Runs suite.py: Cassandra's Python and Java drivers with a master and its replica, of the program
# MYRIAD.
set -euo pipefail
cd "$(dirname "$0")"
: "${MYRIAD:?MYRIAD=path of the program is needed}"
venv=../../.deps/cql-replicas
mkdir -p ../../.deps/maven
if ! cmp -s requirements.txt "$venv/installed.txt"; then
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
fi
repository=$(cd ../../.deps/maven && pwd)
if [[ ! target/built -nt pom.xml || ! target/built -nt src/main/java/Writer.java ]]; then
    ../../../scripts/retry.sh flock "$repository" mvn --batch-mode --quiet -Dstyle.color=never \
        -Dmaven.repo.local="$repository" clean compile dependency:copy-dependencies -DoutputDirectory=target/jars
    touch target/built
fi
exec "$venv/bin/python" -B -W ignore suite.py

#!/usr/bin/env bash
# Runs Suite.java with Jedis against ADDR.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
mkdir -p ../../.deps/maven
repository=$(cd ../../.deps/maven && pwd)
if [[ ! target/built -nt pom.xml || ! target/built -nt src/main/java/Suite.java ]]; then
    ../../../scripts/retry.sh flock "$repository" mvn --batch-mode --quiet -Dstyle.color=never \
        -Dmaven.repo.local="$repository" clean compile dependency:copy-dependencies -DoutputDirectory=target/jars
    touch target/built
fi
exec java -cp 'target/classes:target/jars/*' Suite

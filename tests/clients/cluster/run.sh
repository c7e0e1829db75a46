#!/usr/bin/env bash
# Clients of a cluster against ADDR, a server with cluster-view: redis-cli, redis-benchmark,
# redis-py, ioredis.
set -euo pipefail
cd "$(dirname "$0")"
: "${ADDR:?ADDR=host:port of the server is needed}"
host=${ADDR%:*}
port=${ADDR##*:}
passed=0
failed=0

cli() { redis-cli -h "$host" -p "$port" "$@"; }

# check NAME EXPECTED GOT: EXPECTED is a shell pattern.
check() {
    # shellcheck disable=SC2053
    if [[ $3 == $2 ]]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        echo "wanted: $2"
        echo "got: $3"
    fi
}

cli FLUSHALL >/dev/null
node=$(cli CLUSTER NODES | awk 'END { sub(/@.*/, "", $2); sub(/.*:/, "", $2); print $2 }')
check "redis-cli -c" $'OK\n1\n2\n3' \
    "$(printf 'MSET a 1 b 2 c 3\nGET a\nGET b\nGET c\n' | redis-cli -c -h "$host" -p "$node")"
check "redis-cli --cluster check" '*All nodes agree*All 16384 slots covered*' \
    "$(redis-cli --cluster check "$host:$node")"
check "redis-cli --cluster call" '*: PONG*' "$(redis-cli --cluster call "$host:$port" PING)"
# redis-benchmark refuses a cluster of one node. Each line of --csv is "test","requests per second",...
if [[ $(cli CLUSTER INFO) != *cluster_size:1[!0-9]* ]]; then
    check "redis-benchmark --cluster" 4 \
        "$(redis-benchmark -h "$host" -p "$port" --cluster --csv -n 4000 -c 20 -P 4 -r 1000 -t set,get,incr,hset 2>&1 |
            grep -c '^"[^"]*","[0-9.]*"')"
fi
cli FLUSHALL >/dev/null
echo "$passed passed, $failed failed"

venv=../../.deps/python
mkdir -p ../../.deps
exec {lock}>../../.deps/python.lock
flock "$lock"
if ! cmp -s ../python/requirements.txt "$venv/installed.txt"; then
    python3 -m venv --clear "$venv"
    ../../../scripts/retry.sh "$venv/bin/pip" install --quiet --disable-pip-version-check -r ../python/requirements.txt
    cp ../python/requirements.txt "$venv/installed.txt"
fi
exec {lock}>&-
"$venv/bin/python" -B suite.py || failed=1
if ! cmp -s package-lock.json node_modules/installed.json; then
    ../../../scripts/retry.sh npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/installed.json
fi
node suite.js || failed=1
[[ $failed == 0 ]]

#!/usr/bin/env bash
# Clients of a cluster against ADDR, a server with cluster-view: redis-cli, redis-benchmark,
# redis-py, ioredis.
source "$(dirname "$0")/../prepare.sh" ADDR
host=${ADDR%:*}
port=${ADDR##*:}

cli() { redis-cli -h "$host" -p "$port" "$@"; }

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

use_venv python ../python/requirements.txt
"$venv/bin/python" -B suite.py || failed=1
use_npm ci
node suite.js || failed=1
[[ $failed == 0 ]]

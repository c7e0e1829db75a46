#!/bin/sh
# Makes the files of this folder again: make.sh REDIS_SERVER_7_0 VALKEY_SERVER_9. Needs redis-cli.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
socket=$work/socket

# make NAME SERVER OPTION...: sends the commands of standard input, then keeps the file as NAME.rdb.
make() {
    name=$1 server=$2
    shift 2
    "$server" --port 0 --unixsocket "$socket" --dir "$work" --save '' --enable-debug-command yes "$@" \
        >"$work/log" &
    pid=$!
    until redis-cli -s "$socket" PING 2>/dev/null | grep -q PONG; do sleep 0.1; done
    redis-cli -s "$socket" >/dev/null
    redis-cli -s "$socket" SAVE >/dev/null
    kill "$pid"
    wait "$pid" || true
    mv "$work/dump.rdb" "$here/$name.rdb"
}

values() {
    long=$(printf 'long %.0s' $(seq 60))
    cat <<END
SET raw "two words"
SET int8 -7
SET int16 3000
SET int32 2000000
SET int64 9000000000
SET compressed "$long"
SET expires later PXAT 4102444800123
RPUSH list a 1 -70000 "$long" b
HSET hash f v 2 3 g "$long"
HSET small f v 2 3
SADD integers 1 -5 70000
SADD members a 1 b
ZADD zset 1 a -inf b +inf c 2.5 d
XADD stream 5-1 f v g w
XADD stream 5-2 f v2 g w2
XADD stream 6-0 other 1
XADD stream 7-0 f v3 g w3
XDEL stream 6-0
XGROUP CREATE stream readers 0
XREADGROUP GROUP readers one COUNT 2 STREAMS stream >
XREADGROUP GROUP readers two COUNT 1 STREAMS stream >
XACK stream readers 5-1
XGROUP CREATE stream idle 5-2
SELECT 9
SET elsewhere 1
END
}

library='#!lua name=lib\nredis.register_function("f", function() return 1 end)'
{ values; printf 'FUNCTION LOAD "%s"\n' "$(printf %s "$library" | sed 's/"/\\"/g')"; } |
    make redis-7.0 "$1"
{ echo 'DEBUG quicklist-packed-threshold 100b'; values; } | make redis-7.0-large "$1" --hash-max-listpack-entries 1 --set-max-intset-entries 1 \
    --zset-max-listpack-entries 1 --list-max-listpack-size 2 --maxmemory-policy allkeys-lru \
    --rdbcompression no
values | make redis-7.0-lfu "$1" --maxmemory-policy allkeys-lfu --rdbchecksum no
{ values; printf 'SELECT 0\nHEXPIREAT hash 4102444800 FIELDS 1 f\n'; } | make valkey-9.1 "$2"

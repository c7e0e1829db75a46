#!/usr/bin/env bash
# redis-cli and redis-benchmark (Debian's redis-tools) against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
host=${ADDR%:*}
port=${ADDR##*:}

cli() { redis-cli -h "$host" -p "$port" "$@"; }

cli FLUSHALL >/dev/null
check "ping" PONG "$(cli PING)"
check "set and get" $'OK\nv' "$(printf 'SET k v\nGET k\n' | cli)"
check "formatted reply" $'1) "a"\n2) "b"' "$(cli RPUSH l a b >/dev/null; cli --no-raw LRANGE l 0 -1)"
check "RESP3 map" '1# "f" => "v"' "$(cli HSET h f v >/dev/null; cli -3 --no-raw HGETALL h)"
check "error" '*ERR unknown command*' "$(cli NONSENSE)"
check "another database" '(integer) 0' "$(cli -n 1 --no-raw DBSIZE)"
check "last argument from stdin" OK "$(printf 'a\0b' | cli -x SET bin)"
check "binary value" '"a\\x00b"' "$(cli --no-raw GET bin)"
check "repeat" $'1\n2\n3' "$(cli -r 3 INCR n)"
check "pipe mode" '*errors: 0, replies: 1000' \
    "$(for i in $(seq 1000); do printf '*3\r\n$3\r\nSET\r\n$%d\r\np%d\r\n$1\r\nv\r\n' $((${#i} + 1)) "$i"; done | cli --pipe)"
check "scan" 1000 "$(cli --scan --pattern 'p*' | sort -u | wc -l | tr -d ' ')"
check "bigkeys" '*Sampled 1005 keys*' "$(cli --bigkeys)"
check "info" '*redis_version:*' "$(cli INFO server)"
check "transaction" $'OK\nQUEUED\nQUEUED\nOK\n2' "$(printf 'MULTI\nSET t 1\nINCR t\nEXEC\n' | cli)"

# Each line of --csv is "test","requests per second",...: all tests must have run and none failed.
tests=ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset
benchmark() { redis-benchmark -h "$host" -p "$port" --csv "$@" 2>&1; }
# 16 tests, and the LPUSH that LRANGE needs before it.
check "benchmark" 17 "$(benchmark -n 2000 -c 20 -t "$tests" | grep -c '^"[^"]*","[0-9.]*"')"
check "benchmark with a pipeline" 2 "$(benchmark -n 20000 -c 20 -P 64 -r 1000 -t set,get | grep -c '^"[^"]*","[0-9.]*"')"
check "benchmark with RESP3" 2 "$(benchmark -3 -n 2000 -c 20 -t set,get | grep -c '^"[^"]*","[0-9.]*"')"

check "wrong password" '*WRONGPASS*' "$(cli CONFIG SET requirepass secret >/dev/null; cli -a wrong --no-auth-warning PING 2>&1)"
check "no password" '*NOAUTH*' "$(cli PING)"
check "right password" PONG "$(cli -a secret --no-auth-warning PING)"
check "password away" OK "$(cli -a secret --no-auth-warning CONFIG SET requirepass '')"
cli FLUSHALL >/dev/null

echo "$passed passed, $failed failed"
[[ $failed == 0 ]]

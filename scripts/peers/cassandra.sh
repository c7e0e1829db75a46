#!/usr/bin/env bash
# A Cassandra 5 on loopback to compare with, from Maven Central: needs Java 17, Maven, 1.3 GB of memory.
#
#   scripts/peers/cassandra.sh install | start | stop | run [--port PORT] [--dir DIR] [--commitlog-sync HOW] [--heap SIZE]
#
# Everything is kept in target/peers/cassandra. `start` prints `ready cql=127.0.0.1:PORT` and continues
# in the background until `stop`. `run` stays in the foreground, with data and settings in DIR, until it is
# ended; `myriad-lab` uses this form. CQL_PORT: where CQL listens (19042). COMMITLOG_SYNC: `batch` makes it sync
# before it acknowledges, `periodic` (its default) does not. HEAP: the heap of Java (1G).
# AUTHENTICATOR and AUTHORIZER: `PasswordAuthenticator` and `CassandraAuthorizer` require clients to authenticate.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
home=${CARGO_TARGET_DIR:-$root/target}/peers/cassandra
# Data and settings.
place=$home
command=${1:-}
[[ $# == 0 ]] || shift
while [[ $# -gt 1 ]]; do
    case $1 in
    --port) CQL_PORT=$2 ;;
    --dir) place=$(cd "$2" && pwd) ;;
    --commitlog-sync) COMMITLOG_SYNC=$2 ;;
    --heap) HEAP=$2 ;;
    *) command= ;;
    esac
    shift 2
done
[[ $# -eq 0 ]] || command=
cql_port=${CQL_PORT:-19042}
# Next to CQL's port, so that several servers can run.
storage_port=$((cql_port + 1))
jmx_port=$((cql_port + 2))
version=5.0.9

install() {
    [[ -f $home/libs/cassandra-all-$version.jar ]] && return
    mkdir -p "$home"
    cat >"$home/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>cassandra</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
    (cd "$home" && mvn -q -B -Dmaven.repo.local="$home/packages" dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime)
}

configure() {
    mkdir -p "$place/conf"
    cat >"$place/conf/cassandra.yaml" <<YAML
cluster_name: peer
num_tokens: 4
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [$place/data/data]
commitlog_directory: $place/data/commitlog
saved_caches_directory: $place/data/saved_caches
hints_directory: $place/data/hints
cdc_raw_directory: $place/data/cdc
commitlog_sync: ${COMMITLOG_SYNC:-periodic}
commitlog_segment_size: 32MiB
commitlog_disk_access_mode: legacy
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "127.0.0.1:$storage_port"}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: $storage_port
start_native_transport: true
native_transport_port: $cql_port
endpoint_snitch: SimpleSnitch
authenticator: ${AUTHENTICATOR:-AllowAllAuthenticator}
authorizer: ${AUTHORIZER:-AllowAllAuthorizer}
auto_snapshot: false
memtable_heap_space: 128MiB
memtable_offheap_space: 128MiB
file_cache_size: 64MiB
concurrent_compactors: 1
YAML
    if [[ ${COMMITLOG_SYNC:-periodic} == periodic ]]; then
        echo "commitlog_sync_period: 10000ms" >>"$place/conf/cassandra.yaml"
    fi
    cat >"$place/conf/logback.xml" <<'XML'
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
XML
}

# The program and its arguments, in `java`.
arguments() {
    local heap=${HEAP:-1G} package
    java=(java -Xms"$heap" -Xmx"$heap" -XX:+UseG1GC -XX:-UsePerfData -Xss512k)
    for package in java.base/java.{lang,util,nio,io,lang.module,lang.reflect} java.base/sun.nio.ch \
        java.base/jdk.internal.{loader,ref,reflect,math,module,util.jar} \
        jdk.management/com.sun.management.internal; do
        java+=("--add-opens=$package=ALL-UNNAMED")
    done
    for package in java.base/jdk.internal.misc java.base/java.lang.ref java.sql/java.sql \
        java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.{registry,server} \
        jdk.unsupported/sun.misc jdk.attach/sun.tools.attach; do
        java+=("--add-exports=$package=ALL-UNNAMED")
    done
    java+=(-Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true
        -Djava.net.preferIPv4Stack=true -Dcassandra.ring_delay_ms=5000
        -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra-foreground=yes
        -javaagent:"$(echo "$home"/libs/jamm-*.jar)" -Dcassandra.config="file://$place/conf/cassandra.yaml"
        -Dcassandra.storagedir="$place/data" -Dcassandra.logdir="$place/data"
        -Dlogback.configurationFile=conf/logback.xml -Dcassandra.jmx.local.port="$jmx_port"
        -cp "conf:$home/libs/*" org.apache.cassandra.service.CassandraDaemon)
}

start() {
    install
    if [[ -f $home/pid ]] && kill -0 "$(cat "$home/pid")" 2>/dev/null; then
        echo "cassandra: runs already, as process $(cat "$home/pid")" >&2
        exit 1
    fi
    rm -rf "$home/data"
    configure
    arguments
    cd "$home"
    nohup "${java[@]}" >out.log 2>&1 </dev/null &
    echo $! >pid
    for _ in $(seq 600); do
        if grep -qE 'Starting listening for CQL clients|Startup complete' out.log; then
            echo "ready cql=127.0.0.1:$cql_port"
            return
        fi
        if ! kill -0 "$(cat pid)" 2>/dev/null; then
            tail -5 out.log >&2
            echo "cassandra: ended; all it said is in $home/out.log" >&2
            exit 1
        fi
        sleep 0.2
    done
    echo "cassandra: not ready after two minutes; what it said is in $home/out.log" >&2
    exit 1
}

run() {
    install
    configure
    arguments
    cd "$place"
    exec "${java[@]}"
}

stop() {
    [[ -f $home/pid ]] || return 0
    local pid
    pid=$(cat "$home/pid")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 300); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    rm -f "$home/pid"
}

case $command in
install | start | stop | run) "$command" ;;
--version) echo "Cassandra $version" ;;
*)
    sed -n '4,9p' "$0" >&2
    exit 2
    ;;
esac

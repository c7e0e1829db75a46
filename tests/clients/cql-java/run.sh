#!/usr/bin/env bash
# Runs Suite.java with Cassandra's Java driver against CQL_ADDR.
source "$(dirname "$0")/../prepare.sh" CQL_ADDR
use_maven Suite
exec java -cp 'target/classes:target/jars/*' Suite

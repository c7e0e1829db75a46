#!/usr/bin/env bash
# Runs Suite.java with Jedis against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
use_maven Suite
exec java -cp 'target/classes:target/jars/*' Suite

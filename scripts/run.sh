#!/usr/bin/env bash
# Starts the built server on its defaults, and says how to talk to it once it accepts.
#
# Arguments go to the server: scripts/run.sh --resp 127.0.0.1:7000 --dir /var/lib/myriad
set -euo pipefail
cd "$(dirname "$0")/.."

target/release/myriad serve "$@" | while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line == "ready resp="* ]]; then
        address=${line#ready resp=}
        address=${address%% *}
        port=${address##*:}
        echo
        echo "Myriad is ready. In another terminal:"
        echo "  redis-cli -p $port SET greeting hello"
        echo "  redis-cli -p $port GET greeting"
        echo "  redis-benchmark -p $port -t set,get -P 16 -q"
        echo "Stop it with Ctrl-C; what was acknowledged is on disk."
    fi
done

#!/usr/bin/env bash
# Starts the built server on its defaults, and prints how to connect once it accepts connections.
#
# Arguments go to the server: scripts/run.sh --resp 127.0.0.1:7000 --dir data/other
set -euo pipefail
cd "$(dirname "$0")/.."

# Shows the server's lines, and a greeting after the line that reports readiness.
show() {
    # Ctrl-C is for the server: its last lines are still shown.
    trap '' INT
    local line address port
    while IFS= read -r line; do
        printf '%s\n' "$line"
        if [[ $line == "ready resp="* ]]; then
            address=${line#ready resp=}
            port=${address%% *}
            port=${port##*:}
            cat <<END

Myriad is ready. In another terminal:
  redis-cli -p $port SET greeting hello
  redis-cli -p $port GET greeting
  redis-benchmark -p $port -t set,get -P 16 -q
Stop it with Ctrl-C; what was acknowledged is on disk.
END
        fi
    done
}

target/release/myriad serve "$@" | show

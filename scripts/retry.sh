#!/usr/bin/env bash
# Runs a command that fetches something, and once more if it fails: networks do now and then.
#
#   scripts/retry.sh COMMAND...
set -uo pipefail
for pause_s in 2 10 30; do
    "$@" && exit 0
    echo "retry: failed, once more in $pause_s s: $*" >&2
    sleep "$pause_s"
done
exec "$@"

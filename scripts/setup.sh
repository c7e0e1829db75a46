#!/usr/bin/env bash
# Installs what is missing, and only that.
#
#   scripts/setup.sh build   the Rust toolchain and a linker: enough for `make run`
#   scripts/setup.sh test    also redis-server, redis-tools, wrk, memcached, Prometheus, the languages of tests/clients and a browser
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-build}

missing=()

# need COMMAND PACKAGE: notes Debian's package when the command is not there.
need() {
    if ! command -v "$1" >/dev/null 2>&1; then
        missing+=("$2")
    fi
}

need cc build-essential
if [[ $purpose == test ]]; then
    need redis-server redis-server
    need redis-cli redis-tools
    need redis-benchmark redis-tools
    need cmp diffutils
    need curl curl
    need openssl openssl
    need wrk wrk
    need memcached memcached
    need prometheus prometheus
    need promtool prometheus
    need prometheus-redis-exporter prometheus-redis-exporter
    need ss iproute2
    need python3 python3
    need node nodejs
    need npm npm
    need go golang-go
    need javac default-jdk-headless
    need mvn maven
    need chromium chromium
    # Debian keeps what a virtual environment needs in a package of its own.
    if command -v python3 >/dev/null 2>&1 && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        missing+=(python3-venv)
    fi
fi

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

may_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null
}

if ((${#missing[@]} > 0)); then
    if ! may_install; then
        echo "setup: these Debian packages are missing, and this user may not install them:" >&2
        echo "setup:   sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    as_root scripts/retry.sh apt-get update -qq
    # Debian would start servers of its own on the default ports: the tests bring theirs.
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        scripts/retry.sh apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# at_least WHAT FOUND LEAST: refuses a version that is too old for the pinned clients.
at_least() {
    if [[ $(printf '%s\n%s\n' "$2" "$3" | sort -V | head -n 1) != "$3" ]]; then
        echo "setup: $1 $3 or newer is needed, found $2: install it from its makers" >&2
        exit 1
    fi
}

if [[ $purpose == test ]]; then
    at_least node "$(node -p process.versions.node)" 20
    # From here on Go fetches the version that go.mod asks for by itself.
    at_least go "$(go version | sed 's/.* go\([0-9.]*\).*/\1/')" 1.21
    at_least java "$(javac -version 2>&1 | sed 's/javac //')" 17
    at_least redis-server "$(redis-server --version | sed 's/.* v=\([0-9.]*\).*/\1/')" 7.0
fi

if ! command -v cargo >/dev/null 2>&1 && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
    echo "setup: cargo is installed but not on the PATH: . \"\${CARGO_HOME:-\$HOME/.cargo}/env\"" >&2
    exit 1
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "setup: Rust is missing: install rustup from https://rustup.rs, it reads rust-toolchain.toml" >&2
    exit 1
fi

wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
if command -v rustup >/dev/null 2>&1; then
    if ! rustup toolchain list | grep -q "^$wanted-"; then
        echo "setup: installing Rust $wanted"
        scripts/retry.sh rustup toolchain install "$wanted" --profile minimal --component rustfmt --component clippy
    fi
elif [[ $(cargo --version) != "cargo $wanted "* ]]; then
    echo "setup: Rust $wanted is needed, found $(cargo --version); rustup would install it" >&2
    exit 1
fi

# The server needs none of them; the greeting of `make run` shows how to use both.
if [[ $purpose == build ]]; then
    clients=()
    command -v redis-cli >/dev/null 2>&1 || clients+=("redis-cli: apt install redis-tools")
    command -v cqlsh >/dev/null 2>&1 || clients+=("cqlsh: pipx install cqlsh")
    for client in "${clients[@]}"; do
        echo "setup: not installed, and optional: $client"
    done
fi

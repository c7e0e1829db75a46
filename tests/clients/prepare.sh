# Sourced by the run.sh of each suite with the names of the variables that it needs: goes to the folder of the
# suite, and defines how it gets its packages. They are in tests/.deps, where the suites share them.
set -euo pipefail
cd "$(dirname "$0")"
for name in "$@"; do
    if [[ -z ${!name:-} ]]; then
        echo "$name is needed: see tests/clients/README.md" >&2
        exit 2
    fi
done
clients=$(cd .. && pwd)
retry=$clients/../../scripts/retry.sh
deps=$clients/../.deps
mkdir -p "$deps/maven"
deps=$(cd "$deps" && pwd)
export PYTHONPATH="$clients" MAVEN_OPTS="-Dmaven.repo.local=$deps/maven"
export GOMODCACHE="$deps/go/mod" GOFLAGS="-mod=readonly -modcacherw -buildvcs=false"

# use_venv NAME [REQUIREMENTS]: sets `venv`. Suites that run side by side may have the same one.
use_venv() {
    local requirements=${2:-requirements.txt} lock
    venv=$deps/$1
    exec {lock}>"$venv.lock"
    flock "$lock"
    if ! cmp -s "$requirements" "$venv/installed.txt"; then
        python3 -m venv --clear "$venv"
        "$retry" "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
        cp "$requirements" "$venv/installed.txt"
    fi
    exec {lock}>&-
}

# use_npm COMMAND OPTIONS: fills node_modules.
use_npm() {
    if ! cmp -s package-lock.json node_modules/installed.json; then
        "$retry" npm "$@" --silent --no-audit --no-fund
        cp package-lock.json node_modules/installed.json
    fi
}

# run_go NAME: builds the suite as this program, and runs it.
run_go() {
    "$retry" go build -o "$deps/go/$1" .
    exec "$deps/go/$1"
}

# use_maven CLASS: compiles it to target/classes, with its packages in target/jars.
use_maven() {
    if [[ ! target/built -nt pom.xml || ! target/built -nt src/main/java/$1.java ]]; then
        "$retry" flock "$deps/maven" mvn --batch-mode --quiet -Dstyle.color=never \
            clean compile dependency:copy-dependencies -DoutputDirectory=target/jars
        touch target/built
    fi
}

passed=0
failed=0

# check NAME EXPECTED GOT: EXPECTED is a shell pattern.
check() {
    # shellcheck disable=SC2053
    if [[ $3 == $2 ]]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        echo "wanted: $2"
        echo "got: $3"
    fi
}

#!/usr/bin/env bash
# Compares `myriad pipeline run` with GNU parallel on the same items: lines that are answered as they
# are. Needs Debian's package parallel, and target/release/myriad or the program MYRIAD. Each result is
# compared with the input.
#
#   benchmarks/pipeline_parallel.sh [ROUNDS]
#
# A round runs each case once, so that all cases share what disturbs the machine. The table has the
# median of the rounds, and the lowest and highest rate. A case with a process for each item has
# fewer items: both programs reach their rates within a second.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
myriad=${MYRIAD:-$PWD/target/release/myriad}
lines=1000000
processes=1000
workers=$(nproc)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
seq -f 'item %.0f' "$lines" >lines
head -n "$processes" lines >few
# It asks for a citation once.
mkdir -p home/.parallel
touch home/.parallel/will-cite
export HOME=$folder/home LC_ALL=C

pipeline() { "$myriad" pipeline run --threads "$workers" --json --order input "$@" --existing replace --results out >/dev/null; }

# Name, input, command.
cases=(
    "pipeline exec:cat|lines|pipeline --task exec:cat --input lines"
    "parallel --pipe cat|lines|parallel --pipe -k -j $workers cat <lines >out"
    "parallel --pipe -N1 cat|few|parallel --pipe -N1 -k -j $workers cat <few >out"
    "pipeline each:echo|few|pipeline --task 'each:echo {}' --input few"
    "parallel echo|few|parallel -k -j $workers echo {} <few >out"
)
for ((round = 1; round <= rounds; round++)); do
    for at in "${!cases[@]}"; do
        IFS='|' read -r name input command <<<"${cases[at]}"
        rm -f out
        started=$(date +%s%N)
        eval "$command"
        ended=$(date +%s%N)
        cmp "$input" out || { echo "$name: the result is not the input" >&2; exit 1; }
        count=$(wc -l <"$input")
        echo $((count * 1000000000 / (ended - started))) >>"rates.$at"
    done
done

echo "| case | items | items per second: median | lowest to highest of $rounds |"
echo "|---|---|---|---|"
for at in "${!cases[@]}"; do
    IFS='|' read -r name input _ <<<"${cases[at]}"
    mapfile -t rates < <(sort -n "rates.$at")
    echo "| \`$name\` | $(wc -l <"$input") | ${rates[rounds / 2]} | ${rates[0]} to ${rates[-1]} |"
done

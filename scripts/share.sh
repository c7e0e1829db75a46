#!/usr/bin/env bash
# Makes what packages contain besides the program, in target/share: manual pages and completions.
#
#   scripts/share.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1

share=target/share
rm -rf "$share"
mkdir -p "$share/completions"
"$program" man "$share/man"
"$program" completion bash >"$share/completions/myriad"
"$program" completion zsh >"$share/completions/_myriad"
"$program" completion fish >"$share/completions/myriad.fish"

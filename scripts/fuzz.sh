#!/usr/bin/env bash
# Runs every fuzzer of the module, one after another, for the time given (10s). A failure ends the run: go prints the command
# that replays it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}

fuzzers=$(git ls-files -co --exclude-standard '*_test.go' | xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]+' | sort || true)
if [ -z "$fuzzers" ]; then
	echo "fuzz: no fuzzer found" >&2
	exit 1
fi
count=0
while IFS=: read -r file function; do
	name=${function#func }
	echo "== $(dirname "$file") $name ($time)"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null
	count=$((count + 1))
done <<<"$fuzzers"
echo "fuzz: $count fuzzers, nothing found"

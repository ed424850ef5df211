#!/usr/bin/env bash
# A new user's way, typed and timed: from `make serve` to the first edit that an agent makes.
#
# The embedded model is too small for edits to be relied on: by default the tests' scripted backend
# stands behind the gateway, so the time is that of the machinery and of the typing's order. ENGINE=1
# starts `make serve` itself, its engine included; the edit then may not come. On a machine that was
# used before, VENV=/new/folder XDG_CACHE_HOME=/new/folder make it a new one.
#
#   AGENT    client of `agentspec connect` (default aider)
#   ENGINE   1: the embedded engine instead of the script
#   LIMIT    most seconds for the agent (default 300)
#   JSON     file for the result (default build/first-edit.json)
set -euo pipefail
cd "$(dirname "$0")/.."

agent=${AGENT:-aider}
json=${JSON:-build/first-edit.json}
port=${PORT:-8123}
venv=${VENV:-.venv}
work=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait || true
  rm -rf "$work"
}
trap finish EXIT
mkdir -p build "$work/home" "$work/project"
begun=$(date +%s%N)
steps=()

step() {
  local at_ms=$((($(date +%s%N) - begun) / 1000000))
  steps+=("{\"step\": \"$1\", \"at_s\": $((at_ms / 1000)).$((at_ms % 1000 / 100))}")
  echo "$((at_ms / 1000)) s: $1"
}

type_it() {
  echo "\$ $*"
}

type_it make serve
make --no-print-directory setup
step "environment made"
if [ "${ENGINE:-0}" = 1 ]; then
  make --no-print-directory serve PORT="$port" ARGS="--data-dir $work/data" >"$work/log" 2>&1 &
else
  "$venv/bin/python" -m tests.clients.serve_script "$port" "$work/project" "$agent" >"$work/log" 2>&1 &
fi
server=$!
until "$venv/bin/python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/ready')" 2>/dev/null; do
  kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
  sleep 0.2
done
step "endpoint ready"

ONLY=$agent bash scripts/clients.sh
step "agent installed"

type_it "agentspec connect $agent --write"
shown=$(HOME=$work/home "$venv/bin/agentspec" connect "$agent" --url "http://127.0.0.1:$port" --write)
echo "$shown"
step "agent connected, checked by a real call"

typed=$(echo "$shown" | sed -n '/^type:/{n;s/^ *//p}')
type_it "$typed"
"$venv/bin/python" -m tests.clients.first_edit "$agent" "$work" "${LIMIT:-300}" "$typed"
step "first edit"
printf '{"agent": "%s", "engine": %s, "commit": "%s", "results": [%s]}\n' "$agent" "${ENGINE:-0}" \
  "$(git rev-parse HEAD 2>/dev/null)" "$(IFS=,; echo "${steps[*]}")" >"$json"

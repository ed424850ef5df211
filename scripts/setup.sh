#!/usr/bin/env bash
# Makes the virtual environment: the lock, then torch alone, then this checkout. Quick when nothing
# changed: a stamp in the environment holds the hash of everything it was made from.
#
#   PYTHON  interpreter (default: the first of python3, python3.11 ... that is new enough)
#   VENV    folder (default .venv)
#   TORCH   torch version, 2.11 to 2.14 (default 2.13.0)
#   TORCH_ARGS  further pip arguments for torch alone, such as the index of its CPU builds
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
torch=${TORCH:-2.13.0}
lock=requirements.lock

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: Python 3.11 or newer is needed (set PYTHON=...)" >&2
  return 1
}

python=$(find_python)
key=$({ cat "$lock" pyproject.toml "$0"; echo "$torch"; "$python" -VV; pwd; } | sha256sum | cut -c1-64)
stamp=$venv/.setup-stamp
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$key" ]; then
  exit 0
fi

echo "setup: $("$python" -V) into $venv (some minutes the first time)"
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

pip install -qq --progress-bar off --no-deps --require-hashes -r "$lock"
echo "setup: torch $torch"
# shellcheck disable=SC2086  # several arguments may stand in TORCH_ARGS
pip install -qq --progress-bar off --no-deps ${TORCH_ARGS:-} "torch==$torch"
# The build backend and its editable support are in the lock: nothing unhashed is fetched here.
pip install -qq --progress-bar off --no-deps --no-build-isolation --editable .
if ! pip check; then
  # A CUDA build of torch names its own libraries; they belong to that build, not to the lock.
  echo "setup: fetching what this build of torch asks for"
  # shellcheck disable=SC2086
  pip install -qq --progress-bar off ${TORCH_ARGS:-} "torch==$torch"
  pip check
fi
echo "$key" >"$stamp"

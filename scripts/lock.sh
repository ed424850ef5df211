#!/usr/bin/env bash
# Writes requirements.lock: everything but torch, with hashes, for every supported Python.
#
# torch stays out because the right build depends on the machine (CPU, CUDA 12, CUDA 13); what its
# metadata asks for beside CUDA libraries is named here, so that `pip check` passes afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if command -v uv >/dev/null; then
  uv=uv
else
  "${PYTHON:-python3}" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet uv
  uv="$work/venv/bin/uv"
fi

# A requirement that no Python meets: uv leaves torch out, wherever it is asked for.
echo 'torch; python_version < "0"' >"$work/override.txt"
# Requires-Dist of torch 2.11 to 2.14 on a CPU.
cat >"$work/torch.in" <<'REQUIREMENTS'
filelock
fsspec>=0.8.5
jinja2
networkx>=2.5.1
setuptools>=77.0.3
sympy>=1.13.3
typing-extensions>=4.10
REQUIREMENTS

"$uv" pip compile pyproject.toml "$work/torch.in" --extra engine --extra dev \
  --universal --python-version 3.11 --override "$work/override.txt" \
  --generate-hashes --no-annotate --no-emit-index-url --quiet \
  --custom-compile-command "make lock" --output-file requirements.lock "$@"
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"

#!/usr/bin/env bash
# Makes .peers/: the engines that `agentspec bench engine` compares with, apart from our own
# environment. llama-server is built from the source package of llama-cpp-python (the Python
# package itself is not installed), for this machine's instruction set: a fair peer.
#
#   .peers/bin/llama-server      .peers/venv (transformers)
#   .peers/bin/llama-perplexity  .peers/bin/llama-replay (peer_replay.cpp)  .peers/versions.txt
#
#   LLAMA_CPP   version of llama-cpp-python (default 0.3.36)
#   TRANSFORMERS, TORCH   versions in the peers' venv; TORCH_ARGS as in setup.sh
#   XGRAMMAR    version for `agentspec bench grammar`, beside transformers and torch
#   ONLY        "llamacpp", "transformers" or "grammar" (which needs transformers): make that one
set -euo pipefail
cd "$(dirname "$0")/.."

llama_cpp=${LLAMA_CPP:-0.3.36}
transformers=${TRANSFORMERS:-5.24.0}
torch=${TORCH:-2.13.0}
xgrammar=${XGRAMMAR:-0.2.9}
only=${ONLY:-all}
peers=$PWD/.peers
mkdir -p "$peers/bin" "$peers/src"

[ -x "$peers/venv/bin/pip" ] || "${PYTHON:-python3}" -m venv "$peers/venv"
pip() { "$peers/venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

build_llama() {
  local source=$peers/src/llama_cpp_python-$llama_cpp
  if [ ! -d "$source" ]; then
    echo "peers: source of llama-cpp-python $llama_cpp"
    pip install -qq cmake ninja
    pip download -qq --no-deps --no-binary :all: --dest "$peers/src" "llama-cpp-python==$llama_cpp"
    tar -xzf "$peers/src/llama_cpp_python-$llama_cpp.tar.gz" -C "$peers/src"
  fi
  echo "peers: building llama-server and llama-perplexity (some minutes)"
  export PATH=$peers/venv/bin:$PATH
  cmake -S "$source/vendor/llama.cpp" -B "$peers/build" -G Ninja -Wno-dev \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_CURL=OFF >"$peers/build.log" 2>&1
  cmake --build "$peers/build" --target llama-server llama-perplexity -j "${JOBS:-$(nproc)}" \
    >>"$peers/build.log" 2>&1 || {
    tail -30 "$peers/build.log" >&2
    return 1
  }
  cp "$peers/build/bin/llama-server" "$peers/build/bin/llama-perplexity" "$peers/bin/"
  build_replay "$source/vendor/llama.cpp"
}

# Linked with what llama-server is linked with.
build_replay() {
  local build=$peers/build ssl=()
  if grep -q '^OPENSSL_SSL_LIBRARY:FILEPATH=/' "$build/CMakeCache.txt"; then
    ssl=(-lssl -lcrypto)
  fi
  "${CXX:-c++}" -O2 -std=c++17 -I"$1/common" -I"$1/include" -I"$1/ggml/include" -I"$1/vendor" \
    scripts/peer_replay.cpp -o "$peers/bin/llama-replay" \
    "$build"/common/libllama-common.a "$build"/common/libllama-common-base.a \
    "$build"/src/libllama.a \
    "$build"/ggml/src/libggml.a "$build"/ggml/src/libggml-cpu.a "$build"/ggml/src/libggml-base.a \
    "$build"/vendor/*/lib*.a "${ssl[@]}" -fopenmp -pthread -ldl
}

if [ "$only" = all ] || [ "$only" = llamacpp ]; then
  build_llama
fi
if [ "$only" = all ] || [ "$only" = transformers ]; then
  echo "peers: transformers $transformers"
  # shellcheck disable=SC2086  # several arguments may stand in TORCH_ARGS
  pip install -qq ${TORCH_ARGS:-} "torch==$torch"
  pip install -qq "transformers==$transformers" gguf accelerate
fi

if [ "$only" = all ] || [ "$only" = grammar ]; then
  echo "peers: xgrammar $xgrammar"
  # Its own requirements would replace the torch that is here by one for CUDA.
  pip install -qq --no-deps "xgrammar==$xgrammar" apache-tvm-ffi
  pip install -qq pydantic numpy
fi

{
  # llama-server's own --version is no help: it was built outside llama.cpp's repository.
  [ ! -x "$peers/bin/llama-server" ] || echo "llama-cpp-python $llama_cpp"
  pip list --format freeze | sed -n 's/^\(transformers\)==/\1 /p; s/^torch==/transformers-torch /p; s/^\(xgrammar\)==/\1 /p'
} >"$peers/versions.txt"
cat "$peers/versions.txt"

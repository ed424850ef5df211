# Everything here starts from a bare checkout: `make serve` and `make test` set up what they need.
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=
VENV ?= .venv
BIN := $(VENV)/bin

export VENV

.PHONY: help setup serve test test-exact test-soak test-fuzz test-formats test-peers test-clients check bench lock clean

help:  ## show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup:  ## make .venv from requirements.lock (quick when nothing changed)
	@bash scripts/setup.sh

serve: setup  ## fetch the model, start engine and gateway (HOST, PORT, ARGS)
	@$(BIN)/agentspec model get
	@exec $(BIN)/agentspec serve --host $(HOST) --port $(PORT) $(ARGS)

test:  ## the whole test suite; ARGS go to pytest
	@bash scripts/system.sh
	@bash scripts/setup.sh
	@ONLY=mini-swe-agent bash scripts/clients.sh
	@$(BIN)/python -m pytest $(ARGS)

test-exact: setup  ## the whole identity suite, on every instruction set that runs here (minutes)
	@$(BIN)/python -m pytest -m exact --log-cli-level=info tests/exact $(ARGS)

test-soak: setup  ## 20 minutes of load with random aborts: integrity, memory, longest wait
	@$(BIN)/agentspec bench soak --minutes 20 --concurrency 16 $(ARGS)

test-fuzz: setup  ## 50,000 cases of the translators and of SSE parsing, 10,000 schemas, seeded
	@$(BIN)/python -m pytest -m fuzz --log-cli-level=info tests/fuzz tests/engine/constrain $(ARGS)

test-formats: setup  ## tool-call formats against the models' own chat templates (after scripts/peers.sh)
	@$(BIN)/python -m pytest -m peers tests/grammars $(ARGS)

test-peers: setup  ## real servers, faults on the wire (llama-server: scripts/peers.sh); some minutes
	@$(BIN)/python -m pytest -m peers tests/peers $(ARGS)

test-clients: setup  ## real coding agents (npm, PyPI) against a script and the engine; half an hour
	@bash scripts/clients.sh
	@$(BIN)/python tests/clients/loopback.py $(BIN)/python -m pytest -m clients tests/clients $(ARGS)
	@$(BIN)/python -m tests.clients.pages

check: setup  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: setup  ## the engine and the gateway beside their peers (make the peers with scripts/peers.sh)
	@mkdir -p build
	$(BIN)/agentspec bench engine --json build/bench-engine.json $(ARGS)
	$(BIN)/agentspec bench gateway --json build/bench-gateway.json $(ARGS)

lock:  ## resolve pyproject.toml anew into requirements.lock
	@bash scripts/lock.sh

clean:  ## remove what make, pytest and the builds left behind (not data/, .peers/ or .clients/)
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.peers/*' -not -path './.clients/*' -prune -exec rm -rf {} +

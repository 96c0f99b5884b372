# Two commands for users: `make demo` and `make test`. Everything lives in .venv, made on first use.
PYTHON ?= python3
# The newest jax needs Python 3.12: found on PATH, else among pyenv's versions. Empty when there is none.
PYTHON312 ?= $(shell python3.12 -c 'import sys; print(sys.executable)' 2>/dev/null || \
  ls -d "$$(pyenv root 2>/dev/null)"/versions/3.12*/bin/python3.12 2>/dev/null | tail -n 1)

VENV := .venv
VENV_LATEST := .venv-latest
VENV_PEERS := .venv-peers
NATIVE := setup.py $(wildcard jax_mx/_native/*.cc jax_mx/_native/*.h)

.PHONY: demo train test lint types test-latest fixtures bench bench-peers clean

demo: $(VENV)/installed
	$(VENV)/bin/python examples/transformer_mlp.py --out out

train: $(VENV)/installed
	$(VENV)/bin/python examples/train_mx.py --out=out

test: lint types
	$(VENV)/bin/python -m pytest

lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed
	$(VENV)/bin/mypy

test-latest: $(VENV_LATEST)/installed
	$(VENV_LATEST)/bin/python -m pytest

fixtures: $(VENV)/installed
	$(VENV)/bin/python -m hlo_fixtures.generate
	$(VENV)/bin/python -m hlo_fixtures.sharded
	$(VENV)/bin/python -m hlo_fixtures.bir.generate

bench: $(VENV)/installed
	$(VENV)/bin/python -m benchmarks.quantize
	$(VENV)/bin/python -m benchmarks.passes
	$(VENV)/bin/python -m benchmarks.bir_simulator
	$(VENV)/bin/python -m benchmarks.memory
	$(VENV)/bin/python -m benchmarks.scaling

$(VENV)/installed: pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV_LATEST)/installed: pyproject.toml $(NATIVE)
	@test -n "$(PYTHON312)" || { echo "make test-latest: no Python 3.12 found; set PYTHON312=/path/to/python3.12" >&2; exit 2; }
	$(PYTHON312) -m venv $(VENV_LATEST)
	$(VENV_LATEST)/bin/python -m pip install --quiet --upgrade --editable '.[test]'
	touch $@

# Other libraries, in an environment of their own: the project depends on none of them.
bench-peers: $(VENV_PEERS)/installed
	OMP_WAIT_POLICY=passive $(VENV_PEERS)/bin/python -m benchmarks.peers --memory=fresh
	OMP_WAIT_POLICY=passive $(VENV_PEERS)/bin/python -m benchmarks.peers --memory=reused --chart=out/peers_reused.png

$(VENV_PEERS)/installed: pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV_PEERS)
	$(VENV_PEERS)/bin/python -m pip install --quiet --editable . matplotlib torch==2.13.0 torchao==0.18.0
	$(VENV_PEERS)/bin/python -m pip install --quiet ggml-py || echo "ggml-py cannot be built here: left out"
	touch $@

clean:
	rm -rf $(VENV) $(VENV_LATEST) $(VENV_PEERS) jax_mx/_native/*.so out build *.egg-info

.PHONY: print-python312
print-python312:
	@echo $(PYTHON312)

# Everything a newcomer needs: `make demo`, `make test`. Both create .venv with the system's Python first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test docs pictures audit check format bench soak lock clean

demo: $(VENV)/run.stamp
	$(BIN)/fedbandit demo --out results/demo

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -n auto --dist worksteal

# The documentation, into site/: open site/index.html.
docs: $(VENV)/dev.stamp
	$(BIN)/python -m tools.site

# The pictures of README and documentation (two minutes; Chromium for those of the live page).
pictures: $(VENV)/dev.stamp
	$(BIN)/python -m tools.pictures
	FEDBANDIT_PICTURES=docs $(BIN)/python -m pytest -q tests/network/coordinator/test_pictures.py

# Attack every private preset, and those that protect contexts too only if asked; fails if a claim does.
audit: $(VENV)/run.stamp
	$(BIN)/fedbandit audit
	$(BIN)/fedbandit audit dp-linucb --delta 1e-5
	$(BIN)/fedbandit audit feducb --trust sums --own released
	$(BIN)/fedbandit audit feducb --trust coordinator --own released

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks

# A million steps on a network that loses, repeats, delays and crashes (make test does 100,000), twenty kills on each store,
# and a coordinator that is stopped for thirty seconds.
soak: $(VENV)/dev.stamp
	FEDBANDIT_STEPS=1000000 FEDBANDIT_KILLS=20 FEDBANDIT_STOPPED=30 $(BIN)/python -m pytest -q -n auto tests/testing/test_faulty.py tests/testing/test_faulty_sums.py tests/testing/test_take_overs.py tests/testing/test_faulty_servers.py tests/testing/test_faulty_relay.py tests/network/test_kill.py tests/network/test_coordinators.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "fedbandit needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --python "$(PYTHON)" $(VENV); else $(PYTHON) -m venv $(VENV); fi

# $(call install,requirement file): uv if it is there, pip if not.
install = if command -v uv >/dev/null 2>&1; \
	then uv pip install --quiet --python $(BIN)/python -r $(1) && uv pip install --quiet --python $(BIN)/python --no-deps -e .; \
	else $(BIN)/python -m pip install --quiet -r $(1) && $(BIN)/python -m pip install --quiet --no-deps -e .; fi

$(VENV)/run.stamp: requirements/run.txt pyproject.toml $(VENV)/bin/python
	@$(call install,requirements/run.txt)
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml $(VENV)/bin/python
	@$(call install,requirements/dev.txt)
	@touch $@ $(VENV)/run.stamp

# Pin the newest versions that work together; needs uv.
lock:
	uv pip compile --quiet --upgrade --universal --no-header --no-annotate --no-emit-index-url --extra dev pyproject.toml -o requirements/dev.txt
	uv pip compile --quiet --universal --no-header --no-annotate --no-emit-index-url --extra fast --extra secure --extra server --extra plots --extra frames --extra studies --extra data -c requirements/dev.txt pyproject.toml -o requirements/run.txt

clean:
	rm -rf $(VENV) results dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

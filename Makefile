# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := out

.PHONY: demo test bench validate check figures clean soak

demo: $(VENV)/.installed
	@mkdir -p $(OUT)
	$(BIN)/kvsweep sweep --stack h200 --total-blocks 200000 --placement auto \
	    --p95-seconds 5:60:n100 --request-rate 0.002:0.2:n100 --hit-ratio 0:1:0.01 \
	    --output $(OUT)/demo.nc --report $(OUT)/demo.html --force --summary

test: $(VENV)/.installed
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

bench: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[test,bench]'
	$(BIN)/python -m benchmarks.run $(AREAS)
	$(BIN)/python -m benchmarks.readme

# Against published figures; KVSWEEP_DATA names the folder of the data, without which areas are skipped.
validate: $(VENV)/.installed
	$(BIN)/python -m benchmarks.validate $(AREAS)
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.published
	$(BIN)/python -m benchmarks.profiles

soak: $(VENV)/.installed
	POLICY_SOAK=10000 $(BIN)/pytest tests/policies/test_positional.py $(ARGS)

figures: $(VENV)/.installed
	$(BIN)/python figures/make_gallery.py

check: $(VENV)/.installed-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvsweep needs Python 3.11 or later")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing kvsweep and what it needs into $(VENV), a minute or two:"
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[test,check]'
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info

# Everything runs in .venv, made here once. Needs only make and Python ≥ 3.11.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 2

.DEFAULT_GOAL := exam
.PHONY: exam test check format docs release bench faults clean

exam: .venv/installed
	$(BIN)/eyechart exam --effort quick

test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The figures come from two exams, run once: all that is quick, and a little of what is not.
docs: .venv/installed
	$(BIN)/eyechart exam --effort quick --out runs/docs
	$(BIN)/eyechart exam zoo:vit zoo:vit-gap zoo:resnet --effort quick --out runs/docs-slow --limit 32 \
	  --measures depth_similarity,lesion,corruption,landscape --set landscape.images=32 --set landscape.steps=3 \
	  --set lesion.images=32 --set corruption.images=16
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

release: .venv/installed
	$(BIN)/python scripts/release.py

bench: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/shared_passes.py

faults: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python scripts/faults.py

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "eyechart needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (torch is large: a few minutes, once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv runs build dist .mypy_cache .ruff_cache .pytest_cache

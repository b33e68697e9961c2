# make tune      set up .venv and tune: the recorded problems, or this machine's NVIDIA GPU if it has one
# make test      set up .venv for development and run the tests; ARGS="-k name" goes to pytest
# make lint      style, types, import rules, and the documentation's links
# make docs      write docs/commands.md, docs/python-api.md, the tables of docs/campaign-keys.md, docs/schemas, the outputs in docs/quickstart-*.md, build the site in .site, check all documents
# make releases  run the tests that depend on torch under each supported release; large downloads, see tests/releases/run.py
# make mutants   change the source in one place at a time and count how often the tests notice; see tests/mutants/run.py
# make develop   set up .venv for development, and no more
# make clean     remove .venv and everything built; `out/` holds measurements and stays
#
# PYTHON=python3.14 chooses the Python of a new .venv. CONSTRAINTS= VENV=.venv-newest uses the newest of every dependency,
# in an environment of its own. PIP='uv pip install' installs with uv, which unpacks on all cores; .ci/run does.

# Python writes the bytecode of what it imports, whatever the caller's environment says: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
ARGS ?=
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
# One more than there are cores: tests wait a third of their time. Four on two cores take a minute more than three.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PIP ?= $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input
INSTALL := $(PIP) $(CONSTRAINTS:%=--constraint %)

# An install is done when its stamp exists. A stamp's name holds a checksum of what the install reads, so a checkout that
# only touches these files installs nothing again, and one that changes them does.
KEY := $(shell cat pyproject.toml $(CONSTRAINTS) | cksum | cut -d ' ' -f 1)
CORE := $(VENV)/.core-$(KEY)
TRITON := $(VENV)/.triton-$(KEY)
DEV := $(VENV)/.dev-$(KEY)
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
READY := $(if $(wildcard /dev/nvidia0),$(TRITON),$(CORE))

.PHONY: tune test lint docs releases mutants clean develop
.NOTPARALLEL:

tune: $(READY)
	@$(BIN)/gemmtune tune --out out

test: $(DEV)
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 15 $(ARGS)

lint: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(SITE)

docs: $(DEV)
	@TERM=dumb $(BIN)/python -m typer gemmtune.engine.cli.commands utils docs --name gemmtune --output docs/commands.md >/dev/null
	@$(BIN)/python docs/site/campaign_keys.py
	@$(BIN)/python docs/site/python_api.py
	@$(BIN)/python docs/site/schemas.py
	@CUDA_VISIBLE_DEVICES= $(BIN)/python docs/site/journeys.py
	@$(SITE)
	@$(BIN)/pytest --quiet --no-header --numprocesses 0 tests/docs

releases:
	@$(PYTHON) tests/releases/run.py $(ARGS)

mutants: $(DEV)
	@$(BIN)/python tests/mutants/run.py $(ARGS)

develop: $(DEV)

clean:
	@echo "removing $(VENV) and what was built"
	@rm -rf $(VENV) .site build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Runs under any Python, so that an old one gets the message and not a syntax error.
CHECK = $(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 14) else \
	"gemmtune needs Python 3.11 to 3.14 and $(PYTHON) is %d.%d; choose another: make PYTHON=python3.12" % v)'

# $(call install,EXTRAS,STAMPS,FLAGS). Without build isolation: the build uses the setuptools pinned here, and fetches none.
define install
@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
	{ $(CHECK) && echo "creating $(VENV) with $(PYTHON)" && $(PYTHON) -m venv --clear $(VENV); }
@rm -f $(VENV)/.core-* $(VENV)/.triton-* $(VENV)/.dev-*
@echo "installing gemmtune$(1) into $(VENV)"
@$(INSTALL) --upgrade pip setuptools
@$(INSTALL) $(3) --no-build-isolation --editable '.$(1)'
@touch $(2)
endef

$(CORE):
	$(call install,[report],$(CORE))

$(TRITON):
	$(call install,[report,triton],$(CORE) $(TRITON))

# Without bytecode ahead: tests import a tenth of what is installed, and Python compiles that when it first does.
$(DEV):
	$(call install,[dev],$(CORE) $(TRITON) $(DEV),--no-compile)

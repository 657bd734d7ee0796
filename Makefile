# `make run` serves and `make test` tests; both set up what they need in .venv, from the locks in requirements/.
# An active virtual environment is ignored. PYTHON=python3.12 chooses an interpreter, which gets a .venv-3.12 of its own;
# ARGS are handed on: make test ARGS="tests/wire -k scrape".

OLDEST := 3.11
PYTHONS := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3)
ifdef PYTHON
VERSION := $(shell $(PYTHON) -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv-$(if $(VERSION),$(VERSION),none)
else
VENV := .venv
endif
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check install
LOCKED := --require-hashes --no-build-isolation --use-pep517
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock"
# Tests wait more than they compute; those marked serial measure, and run alone. Named files run in one process, which starts
# sooner than several.
PROCESSES := $(shell expr 2 \* `getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1` + 1)
PARALLEL := $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal --serial without
SERIAL := $(BIN)/python -m pytest --numprocesses 0 --serial only
ONE_PROCESS := $(BIN)/python -m pytest --numprocesses 0
# Python runs, and the environment still lies where it was made (scripts in it name their place).
SOUND := $(shell $(BIN)/python -I -c '' 2>/dev/null && [ "`cat $(VENV)/.made`" = "$(CURDIR)" ] && echo yes)

unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONSTARTUP
# Each file is compiled once: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PIP_REQUIREMENT PIP_CONSTRAINT PIP_NO_DEPS

.PHONY: help run test test-parallel test-serial test-all lint lint-rules lint-format lint-types lint-lua format docs site screenshots bench bench-scale profile mutate chaos soak slow-clients fuzz lock audit clean which-python always
.NOTPARALLEL:
.SUFFIXES:

help:
	@echo "make run      set up, and serve on port 6969"
	@echo "make test     set up, and run the tests       ARGS='-m \"not slow\"' for the quick ones, '-n 0' one by one"
	@echo "make test-all all tests, chaos experiments, long fuzzing: at most 45 minutes"
	@echo "make lint     ruff, mypy and luacheck         make format formats the code"
	@echo "make docs     write docs/settings.md and the tables of docs/troubleshooting.md"
	@echo "make site     build the documents as a site, into site/"
	@echo "make screenshots  pictures of the dashboard: ARGS=--docs those of docs/, ARGS=folder every page in four looks"
	@echo "make bench    the benchmark                   bench-scale: large swarms and high load; profile: CPU time by part"
	@echo "make chaos    fault experiments               ARGS=--list lists them, ARGS=store-killed runs one; make soak: half an hour of load"
	@echo "make slow-clients  thousands of slow clients beside normal ones"
	@echo "make fuzz     coverage-guided input            ARGS='--seconds 60 http_request' for one target; default: each for a minute"
	@echo "make mutate   changes single conditions and tells which the tests do not notice: ARGS=tracker/core/clients.py"
	@echo "make lock     update the lock files in requirements/"
	@echo "make audit    known vulnerabilities in them   ARGS=--strict fails if there are any"
	@echo "make clean    remove the files these commands created, except data"

run: $(VENV)/.run
	@exec $(BIN)/tracker serve $(ARGS)

# pytest ends with 5 where no test is selected.
test: $(VENV)/.dev
ifneq ($(findstring .py,$(ARGS)),)
	@exec $(ONE_PROCESS) $(ARGS)
else
	@$(PARALLEL) $(ARGS); parallel=$$?; case $$parallel in 0|1|5) ;; *) exit $$parallel ;; esac; \
	$(SERIAL) $(ARGS); serial=$$?; \
	case $$parallel,$$serial in 0,0|0,5|5,0) ;; 5,5) exit 5 ;; *) exit 1 ;; esac
endif

test-parallel: $(VENV)/.dev
	@exec $(PARALLEL) $(ARGS)

test-serial: $(VENV)/.dev
	@exec $(SERIAL) $(ARGS)

test-all: $(VENV)/.dev
	@$(BIN)/python tools/test_all.py $(ARGS)

mutate: $(VENV)/.dev
	@exec $(BIN)/python tools/mutate.py $(ARGS)

lint: lint-rules lint-format lint-types lint-lua

lint-rules: $(VENV)/.dev
	$(BIN)/ruff check .

lint-format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint-types: $(VENV)/.dev
	$(BIN)/mypy --strict

lint-lua: $(VENV)/.dev
	@$(BIN)/python tools/lint_lua.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshots: $(VENV)/.dev
	$(BIN)/python -m loadtest.screenshots $(ARGS)

docs: $(VENV)/.run
	$(BIN)/python -c "from tracker.settings import reference as page; print(page.as_markdown(), end='')" > docs/settings.md
	$(BIN)/python -m tools.reasons_page

site: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)

bench: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.bench.run $(ARGS)

bench-scale: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.bench.scale $(ARGS)

profile: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.bench.profile $(ARGS)

chaos: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.chaos $(ARGS)

slow-clients: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.clients.slow_clients $(ARGS)

fuzz: $(VENV)/.dev
	@exec $(BIN)/python -m fuzz $(ARGS)

soak: $(VENV)/.dev
	@exec $(BIN)/python -m loadtest.chaos.soak $(ARGS)

lock: $(VENV)/.dev
	$(LOCK) requirements/build.in --output-file requirements/build.txt
	$(LOCK) pyproject.toml --constraint requirements/build.txt --output-file requirements/run.txt
	$(LOCK) pyproject.toml --extra seed --constraint requirements/build.txt --constraint requirements/run.txt \
		--output-file requirements/seed.txt
	$(LOCK) pyproject.toml --extra site --constraint requirements/build.txt --constraint requirements/run.txt \
		--output-file requirements/site.txt
	$(LOCK) pyproject.toml --extra dev --extra seed --extra site --constraint requirements/build.txt --constraint requirements/run.txt \
		--constraint requirements/seed.txt --constraint requirements/site.txt --output-file requirements/dev.txt
	$(LOCK) requirements/audit.in --output-file requirements/audit.txt
	$(LOCK) tests/frontends/work/libraries.in --output-file tests/frontends/work/libraries.txt

audit: $(VENV)-audit/.made
	@$(VENV)-audit/bin/python tools/audit.py $(ARGS) requirements/*.txt

clean:
	rm -rf .venv .venv-* build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

which-python: $(VENV)/.made
	@$(BIN)/python -c 'import sys; print(sys._base_executable)'

# Each stamp is touched last, so that what was interrupted is done again.
$(VENV)/.made: $(if $(SOUND),,always)
	@found=; for python in $(PYTHONS); do \
		if "$$python" -I -c 'import sys, venv, ensurepip; sys.exit("%d.%02d" % sys.version_info[:2] < "$(OLDEST)")' 2>/dev/null; \
		then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "None of $(PYTHONS) is a Python of at least $(OLDEST) with its venv module." >&2; \
		echo "Install one (on Debian and Ubuntu: apt install python3-venv), or name one: PYTHON=/path/to/python make ..." >&2; \
		exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$found: about a minute, once" >&2; \
	"$$found" -I -m venv --clear $(VENV)
	@printf '%s' "$(CURDIR)" > $@

$(VENV)/.run: $(VENV)/.made requirements/build.txt requirements/run.txt pyproject.toml
	@$(PIP) $(LOCKED) -r requirements/build.txt
	@$(PIP) $(LOCKED) -r requirements/run.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(PIP) $(LOCKED) -r requirements/dev.txt
	@touch $@

$(VENV)-audit/.made: $(VENV)/.made requirements/audit.txt
	@$(BIN)/python -I -m venv --clear $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip --quiet --quiet --disable-pip-version-check install \
		--require-hashes --only-binary :all: -r requirements/audit.txt
	@touch $@

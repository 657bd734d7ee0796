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
# Python runs, and the environment still lies where it was made (scripts in it name their place).
SOUND := $(shell $(BIN)/python -I -c '' 2>/dev/null && [ "`cat $(VENV)/.made`" = "$(CURDIR)" ] && echo yes)

unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONSTARTUP
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PIP_REQUIREMENT PIP_CONSTRAINT PIP_NO_DEPS

.PHONY: help run test lint lint-rules lint-format lint-types format docs site bench bench-scale profile drill soak rude fuzz lock audit clean which-python always
.NOTPARALLEL:
.SUFFIXES:

help:
	@echo "make run      set up, and serve on port 6969"
	@echo "make test     set up, and run all tests       ARGS='-m \"not slow\"' for the quick ones, '-n 0' one by one"
	@echo "make lint     ruff and mypy                   make format puts the layout right"
	@echo "make docs     write docs/settings.md and docs/keys.md from the code"
	@echo "make site     build the documents as a site, into site/"
	@echo "make bench    the benchmark                   bench-scale for large swarms and much load, profile for where it goes"
	@echo "make drill    break things on purpose         ARGS=--list names the drills, ARGS=store-killed holds one; make soak runs long"
	@echo "make rude     slow and rude clients beside honest ones"
	@echo "make fuzz     coverage-guided input            ARGS='--seconds 60 query', else every target for a minute"
	@echo "make lock     renew the locks in requirements/"
	@echo "make audit    known vulnerabilities in them   ARGS=--strict fails when there are any"
	@echo "make clean    remove what these commands made; data stays"

run: $(VENV)/.run
	@exec $(BIN)/tracker serve $(ARGS)

test: $(VENV)/.dev
	@exec $(BIN)/python -m pytest --numprocesses 2 $(ARGS)

lint: lint-rules lint-format lint-types

lint-rules: $(VENV)/.dev
	$(BIN)/ruff check .

lint-format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint-types: $(VENV)/.dev
	$(BIN)/mypy --strict tracker tests

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.run
	$(BIN)/python -c "from tracker import settings_page as page; print(page.as_markdown(), end='')" > docs/settings.md
	$(BIN)/python -c "from tracker.store import key_table as keys; print(keys.as_markdown(), end='')" > docs/keys.md

site: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)

bench: $(VENV)/.dev
	@exec $(BIN)/python -m bench.run $(ARGS)

bench-scale: $(VENV)/.dev
	@exec $(BIN)/python -m bench.scale $(ARGS)

profile: $(VENV)/.dev
	@exec $(BIN)/python -m bench.profile $(ARGS)

drill: $(VENV)/.dev
	@exec $(BIN)/python -m drills $(ARGS)

rude: $(VENV)/.dev
	@exec $(BIN)/python -m drills.rude $(ARGS)

fuzz: $(VENV)/.dev
	@exec $(BIN)/python -m fuzz $(ARGS)

soak: $(VENV)/.dev
	@exec $(BIN)/python -m drills.soak $(ARGS)

lock: $(VENV)/.dev
	$(LOCK) requirements/build.in --output-file requirements/build.txt
	$(LOCK) pyproject.toml --constraint requirements/build.txt --output-file requirements/run.txt
	$(LOCK) pyproject.toml --extra dev --constraint requirements/build.txt --constraint requirements/run.txt \
		--output-file requirements/dev.txt
	$(LOCK) requirements/audit.in --output-file requirements/audit.txt

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

# One command each; `make` alone lists them. Nothing but Python 3.11 or later, with pip and venv, has to be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"
TOOLS := mkfs.ext4 bwrap curl vi top tinyproxy
PACKAGES := e2fsprogs bubblewrap curl vim-tiny procps tinyproxy-bin
# What slides and documents are tested with: Chromium, LaTeX, the fonts of the image `office`, and LibreOffice to read back.
OFFICE_TOOLS := chromium-headless-shell pdflatex pdftotext soffice
OFFICE_PACKAGES := chromium-headless-shell fontconfig texlive-latex-base texlive-latex-recommended texlive-fonts-recommended lmodern \
	fonts-liberation fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji fonts-inter fonts-jetbrains-mono \
	fonts-crosextra-carlito fonts-crosextra-caladea libreoffice-impress poppler-utils
# A proxy, for the page about it. Where systemd runs, its package would start one for the whole machine.
ifeq ($(wildcard /run/systemd/system),)
TOOLS += nginx
PACKAGES += nginx
endif

# Several at once: types, packages and everything else each take about as long, on one core.
BESIDE := $(MAKE) --no-print-directory --jobs 2 --output-sync=target

# Installs the packages of the second list where a program of the first is missing, and says so where that cannot be.
define bring
missing=; for tool in $(1); do \
	PATH="$$PATH:/usr/sbin:/sbin" command -v $$tool >/dev/null || missing="$$missing $$tool"; \
done; \
if [ -z "$$missing" ]; then exit 0; fi; \
install() { DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $(2) >/dev/null; }; \
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	install 2>/dev/null || { apt-get update --quiet=2 && install; } && exit 0; \
fi; \
echo "not installed:$$missing. Tests that need them say so and are skipped; the packages are $(2)" >&2
endef

# Whom this machine trusts, a company's proxy for example, uv shall trust too.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= true
endif

# Where nothing compiled may be kept, everything is compiled again by each of thousands of processes.
unexport PYTHONDONTWRITEBYTECODE

# The guest is built and booted apart: minutes, and root.
WITHOUT_VM := --ignore tests/vm

.PHONY: help setup tools check types rules compiled format test test-all test-rest test-vm bench-vm pythons test-pythons security bench soak pauses mcp-suites serve lock docs docs-site picture sdk clean
.DEFAULT_GOAL := help

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv with everything in it, and .venv/bin/warren

$(INSTALLED): pyproject.toml requirements/setup.lock requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Warren needs Python 3.11 or later: run 'make setup PYTHON=/path/to/python3.11'" >&2; exit 1; }
	@$(PYTHON) -c 'import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' || \
		{ echo "Warren copies processes, which needs the interpreter's lock: take a Python without free threading" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip $(VENV) || \
		{ echo "There is no venv: on Debian and Ubuntu, 'apt-get install python3-venv' brings it" >&2; exit 1; }
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then pip="$(PYTHON) -m pip --python $(BIN)/python"; \
	else echo "There is no pip: on Debian and Ubuntu, 'apt-get install python3-venv' brings it" >&2; exit 1; fi; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r requirements/setup.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable '.[server]'
	@# Else the first commands compile what they import: half a second before their first word.
	@$(BIN)/python -m compileall -q src
	@touch $@
	@echo "Ready. Try: $(BIN)/warren run -c 'print(1 + 1)'"

tools: # what the tests run beside Python: mkfs.ext4 for disk quotas, bubblewrap to compare with, curl for the examples
	@$(call bring,$(TOOLS),$(PACKAGES))
	@$(call bring,$(OFFICE_TOOLS),$(OFFICE_PACKAGES))

check: setup ## lint, formatting, types, layers, house rules
	@$(BESIDE) types rules

types: setup
	$(BIN)/mypy

rules: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/lint-imports
	$(BIN)/pytest --quiet tests/house

# Compiles the tests, which else each process that runs them does for itself.
compiled: setup rules
	@$(BIN)/pytest --collect-only -qq $(WITHOUT_VM) tests >/dev/null || $(BIN)/pytest --collect-only --quiet $(WITHOUT_VM) tests

format: setup ## write the code as ruff likes it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Files that take long come first (tests/suites/seconds.json), so that all workers end with short ones. More workers than
# cores, because tests wait for processes, for deadlines and for the disk: on 2 cores, 4 took 10:07 min and 6 took 9:24.
PYTEST := $(BIN)/pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder --ignore tests/house $(WITHOUT_VM)

test: setup ## check, then the tests: 10 minutes on 2 cores
	@$(BESIDE) tools types compiled
	$(PYTEST) --part first tests

test-all: test test-rest ## `test`, and what CONTRIBUTING names: both engines, the generated client, long attacks

test-rest: setup
	$(PYTEST) --part rest tests
	@$(BIN)/python tests/suites/parts.py record

test-vm: setup ## as root: a stock Debian under qemu, and what Warren does on it as root, as a service and as a user
	PYTHONPATH=tests $(BIN)/python -m vm build
	$(BIN)/pytest --verbose --capture=no --timeout 1800 --durations 0 tests/vm

bench-vm: setup ## as root: what sandboxes cost on cgroup v2 and on v1, in the same guest
	PYTHONPATH=tests $(BIN)/python -m vm compare

pythons: # which versions of Python are found here
	@$(PYTHON) tests/suites/pythons.py --list

test-pythons: tools ## what other versions of Python could change, on each that is there, or on those of PYTHONS
	@$(PYTHON) tests/suites/pythons.py

security: setup tools ## the attacks only; from root, also as an ordinary user
	$(BIN)/pytest tests/security
	if [ "$$(id -u)" = 0 ]; then tests/security/as_user.sh; fi

bench: setup tools ## the numbers of SPECIFICATION.md
	$(BIN)/python -m benchmarks

soak: setup tools ## half an hour of mixed load on a service, and whether anything grew
	$(BIN)/python -m benchmarks.soak

pauses: setup tools ## the tests, while their processes are stopped for a moment at random: finds races
	$(BIN)/python tests/suites/pauses.py

mcp-suites: setup ## the official conformance suite and Inspector of MCP, from npm
	PYTHONPATH=tests $(BIN)/python tests/suites/mcp_suites.py

serve: setup ## set up and run the service on 127.0.0.1:8000
	$(BIN)/warren serve

lock: setup ## choose package versions anew: ours, and those of the images
	echo uv | $(LOCK) --upgrade --no-annotate - -o requirements/setup.lock
	$(LOCK) --upgrade pyproject.toml --extra server -o requirements/base.lock
	$(LOCK) --upgrade pyproject.toml --extra server --extra dev --extra bench --extra otel --extra render -c requirements/setup.lock -o requirements/dev.lock
	for spec in images/*.toml; do \
		$(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(sys.stdin.buffer)["packages"], sep="\n")' < $$spec | \
		$(LOCK) --upgrade - -o $${spec%.toml}.lock || exit 1; \
	done
	for lock in images/*.npm.json; do \
		folder=$$(mktemp -d) && $(BIN)/python -c 'import json, sys, tomllib; \
			wanted = tomllib.load(sys.stdin.buffer)["node"]["packages"]; \
			print(json.dumps({"name": "image", "private": True, "dependencies": dict(each.split("==") for each in wanted)}))' \
			< $${lock%.npm.json}.toml > $$folder/package.json && \
		npm install --prefix $$folder --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund && \
		mv $$folder/package-lock.json $$lock && rm -r $$folder || exit 1; \
	done

docs: setup ## write the reference pages that come from the code
	$(BIN)/python tests/house/settings_page.py docs/reference/settings.md
	$(BIN)/python -m warren.cli.reference > docs/reference/cli.md
	$(BIN)/python tests/house/sdk_page.py docs/reference/sdk.md
	$(BIN)/python tests/house/mcp_page.py docs/reference/mcp.md

docs-site: setup ## build the documentation site, which the service shows at /docs/
	$(BIN)/mkdocs build --quiet --strict --clean

picture: setup ## run the commands of the README's picture, and draw it from what they print
	$(BIN)/python docs/pictures/terminal.py docs/pictures/terminal.svg $(wildcard .cache/tests)

sdk: setup ## make the client without await, and its tests, from those with it
	$(BIN)/python tests/house/sync_client.py

clean: ## remove what setup and the tools made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .schemathesis build dist src/warren/site
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

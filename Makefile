# For people who change barnabas. Users need pip only (README.md).
VENV ?= .venv
PY := $(VENV)/bin/python
# pytest keeps the rewritten modules of the tests for the next run.
export PYTHONDONTWRITEBYTECODE :=
# One process more than the machine has cores: tests wait, too. They take whole files in turn, the longest first.
QUICK := not slow and not java and not spark_session
PARALLEL := -n $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder

help:               ## this list
	@sed -n 's/^\([a-z]*\):[^#]*##/\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

.PHONY: help dev build test long mutants lint types yellow races sanitize fuzz soak docs onefile release clean
# The package gssapi is compiled with the headers of Kerberos (libkrb5-dev).
KERBEROS := $(shell command -v krb5-config >/dev/null && echo ,kerberos)
dev: $(PY)          ## a virtual environment with barnabas installed in place
	$(VENV)/bin/pip install -q "setuptools>=77" wheel "Cython>=3.1"
	$(VENV)/bin/pip install -q --no-build-isolation -e '.[test,docs$(KERBEROS)]'
$(PY):
	python3 -m venv $(VENV)
build:              ## compile what changed
	$(PY) setup.py -q build_ext --inplace
test: build         ## the quick tests, against the tree in place (4 minutes at most)
	$(VENV)/bin/pytest -q -m "$(QUICK) and not alone" $(PARALLEL) --durations 9 --durations-min 2
	$(VENV)/bin/pytest -q -m "$(QUICK) and alone" $$(grep -rl 'mark\.alone' tests --include 'test_*.py')
long:               ## what CI runs, with the long form of random, exhaustive and killing tests
	bash tests/run --long
mutants: build      ## planted bugs, and which tests catch them
	$(PY) tests/mutants/run.py
lint:               ## style
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
types:              ## mypy, through build/links that `make build` makes
	$(VENV)/bin/mypy -p barnabas
yellow:             ## no Python call inside nogil code of the hot modules
	$(PY) tests/layering/yellow.py
races:              ## ThreadSanitizer over what threads share
	VENV=$(VENV) tests/sanitizers/run thread
sanitize:           ## AddressSanitizer and UndefinedBehaviorSanitizer over the same
	VENV=$(VENV) tests/sanitizers/run address
FUZZ = $(if $(PARSER),--parser $(PARSER)) $(if $(RUNS),--runs $(RUNS)) $(if $(SECONDS),--seconds $(SECONDS))
fuzz:               ## a fuzzer with coverage over each parser of bytes from outside (PARSER=name RUNS=n|goal SECONDS=n; needs clang)
	VENV=$(VENV) tests/sanitizers/run fuzz $(FUZZ)
# v0.1.0, the first version
FORMER ?= f31beca
MINUTES ?= 480
soak: build         ## one node under load for eight hours (MINUTES=480), with an upgrade from v0.1.0 and back: build/soak
	tests/soak/former $(FORMER) build/former
	cd tests && ../$(PY) -m soak.run --minutes $(MINUTES) --former ../build/former/venv/bin/python --out ../build/soak
docs:               ## the manual as a site with search: dist/docs/index.html
	$(VENV)/bin/sphinx-build -q -n -W --keep-going -c etc/docs -d build/docs . dist/docs
onefile:            ## dist/barnabas: one executable with the interpreter (needs libzstd-dev)
	release/onefile
release:            ## dist/: wheels, the one file, sdist, bill of materials, checksums (docs/release.md)
	release/all
clean:              ## removes what builds have made
	rm -rf build dist *.egg-info && find broker cext plugins clients \( -name '*.c' -o -name '*.so' -o -name '*.html' \) -delete

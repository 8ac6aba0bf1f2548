# make book    build the book: makes .venv, fetches the model, executes every chapter
# make test    build the book, then run every check
# make lab     open JupyterLab on labs/
# make serve   serve the built book on this machine (PORT=8000)
# make labs    build the labs from their masters
# make instructor  build a course's files: nbgrader, Gradescope, a container
# make bench   run the benches; each prints its table and stores its rows
# make print   PDF, ePub, zipped HTML and the two-page cheat-sheet, into _build/print
# make screenshots  pictures of every built page and figure, into _build/screenshots
# make traces  run the real model for the figures that show a run (NAME=… for one)
# make stored  after `make book`: keep the kernel pages' outputs for machines that have no Triton
# make bench-peers   install what the benches compare with (vLLM's CPU build) in .venv-peers
# make gpu     on a machine with a GPU: tests, kernels, the engine and labs on it (gpu-dry: the same script without one)
# make rows    refresh stored rows that take too long for `make test`
# make clean   remove what was built (distclean removes .venv and fetched scripts too)

EXTRAS := book,labs,test
VENV   := .venv
PYTHON := $(VENV)/bin/python
READY  := $(VENV)/ready
PORT   := 8000

# Nothing from the shell's own Python may leak in.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX
unexport PIP_TARGET PIP_USER PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV JUPYTER_PATH JUPYTER_CONFIG_PATH
export PYTHONNOUSERSITE := 1
export JUPYTER_PREFER_ENV_PATH := 1

.PHONY: help book test lab labs instructor serve bench traces stored print screenshots gpu gpu-dry rows clean distclean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(READY): pyproject.toml constraints.txt tools/make_venv.sh
	@sh tools/make_venv.sh "$(VENV)" "$(EXTRAS)"

book: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/build_book.py

test: book
	@$(PYTHON) tools/run_tests.py

lab: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/book_vendor.py
	@$(PYTHON) -m jupyter lab --ip 127.0.0.1 labs

labs: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/build_labs.py

instructor: $(READY)
	@$(PYTHON) tools/build_instructor.py

serve: $(READY)
	@$(PYTHON) tools/serve_book.py --port $(PORT)

bench: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@set -e; for bench in bench/bench_*.py; do echo "== $$bench"; $(PYTHON) $$bench; done

print: book
	@$(PYTHON) tools/build_print.py

screenshots: $(READY)
	@$(PYTHON) tools/screenshots.py

traces: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/make_traces.py $(NAME)

stored: $(READY)
	@$(PYTHON) tools/book_stored.py

bench-peers:
	@sh tools/make_peers.sh

gpu: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/gpu_check.py

gpu-dry: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/gpu_check.py --dry

rows: $(READY)
	@$(PYTHON) -m kvedu.fetch
	@$(PYTHON) tools/refresh_rows.py

clean:
	@rm -rf _build build dist src/*.egg-info

distclean: clean
	@rm -rf $(VENV) .venv-peers book/vendor/node_modules book/_static/vendor

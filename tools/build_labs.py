"""Build the labs: from each master the learner's notebook and the solution, both executed.

    python tools/build_labs.py [NAME …] [--root FOLDER] [--check]

``--check`` runs nothing: it says whether what is committed is what the masters give. Outputs of the
solutions are compared by nbval in `make test`.
"""

import argparse
import os
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path

import nbformat
from labs_master import Lab, MasterError, leaks, read_master, tags_of
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from kvedu.viz.explore import WIDGET

FAILS = "raises-exception"
UNWRITTEN = {"NotYet", "NotImplementedError", "InterpreterError"}
"""Errors that come of an exercise not being written. Any other in a learner's notebook is a fault of the lab."""


def main() -> int:
    """Build or check; 0 where all is well."""
    parser = argparse.ArgumentParser(description="Build the labs from their masters.")
    parser.add_argument("names", nargs="*", help="masters to build, such as 02_memory_math; all without one")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true", help="compare what is committed with the masters, run nothing")
    options = parser.parse_args()
    labs = options.root.resolve() / "labs"
    masters = sorted((labs / "masters").glob("[0-9][0-9]_*.py"))
    if unknown := {name.removesuffix(".py") for name in options.names} - {path.stem for path in masters}:
        print(f"kvedu: no master {', '.join(sorted(unknown))} in {labs / 'masters'}", file=sys.stderr)
        return 1
    chosen = [path for path in masters if not options.names or path.stem in {name.removesuffix(".py") for name in options.names}]
    try:
        if options.check:
            problems = [problem for path in chosen for problem in check_lab(labs, read_master(path))]
            problems += [] if options.names else strangers(labs, masters)
            print("\n".join(problems) or f"{len(chosen)} labs are what their masters give.")
            return 1 if problems else 0
        for path in chosen:
            build_lab(labs, read_master(path))
    except MasterError as error:
        print(f"kvedu: {error}", file=sys.stderr)
        return 1
    return 0


def build_lab(labs: Path, lab: Lab) -> None:
    """Execute both notebooks and write them; raises ``MasterError`` before anything is written."""
    start = time.perf_counter()
    print(f"{lab.name} …", end=" ", flush=True)
    execute(lab.solution, labs.parent)
    print(f"solution {time.perf_counter() - start:.1f} s,", end=" ", flush=True)
    execute(lab.learner, labs.parent, allow_errors=True)
    for cell in lab.learner.cells:
        if failed(cell):
            cell.metadata["tags"] = sorted(tags_of(cell) | {FAILS})
    print(f"both {time.perf_counter() - start:.1f} s", flush=True)
    if problems := faults(lab, lab.learner, lab.solution):
        raise MasterError(problems[0])
    for path, notebook in zip(paths(labs, lab), (lab.learner, lab.solution)):
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.validate(notebook)
        nbformat.write(notebook, path)


def execute(notebook: NotebookNode, root: Path, *, allow_errors: bool = False) -> None:
    """Run a notebook in a folder of its own, in place; nothing of this run's time or place stays in it."""
    os.environ |= {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "SOURCE_DATE_EPOCH": "0",  # no date in figures
    }
    metadata = deepcopy(notebook.metadata)
    with tempfile.TemporaryDirectory() as folder:
        _quiet_profile(Path(folder) / "ipython")
        os.environ["KVEDU_PROGRESS"] = str(Path(folder) / "progress.json")  # not the builder's own
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", record_timing=False, allow_errors=allow_errors,
            coalesce_streams=True, resources={"metadata": {"path": folder}},
        )  # fmt: skip
        try:
            client.execute()
        except CellExecutionError as error:
            raise MasterError(f"the solution fails: {error}") from None
    notebook.metadata = metadata  # less the kernel's version
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)  # its kernel is gone; the text beside it stays
            if output.output_type == "error":  # which line failed says nothing here; what it says is its last line
                output.traceback = [line.replace(f"{root}{os.sep}", "") for line in output.traceback[-1:]]


def _quiet_profile(folder: Path) -> None:
    """A profile of this run's own: no startup files of the user's, no kernel warnings."""
    profile = folder / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(folder)


def failed(cell: NotebookNode) -> bool:
    """Whether a cell's outputs hold an error."""
    return any(output.output_type == "error" for output in cell.get("outputs", []))


def faults(lab: Lab, learner: NotebookNode, solution: NotebookNode) -> list[str]:
    """What is wrong with a pair of executed notebooks, a sentence each."""
    problems = [f"{lab.name}: the learner's notebook gives away {line!r}" for line in leaks(lab, learner)]
    for cell in learner.cells:
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            problems.append(f"{lab.name}: {cell.id} of the learner's notebook was never run")
        if failed(cell) != (FAILS in tags_of(cell)):
            problems.append(f"{lab.name}: {cell.id} of the learner's notebook has an error or the tag {FAILS}, not both")
        if other := {o.ename for o in cell.get("outputs", []) if o.output_type == "error"} - UNWRITTEN:
            problems.append(f"{lab.name}: {cell.id} of the learner's notebook fails with {', '.join(sorted(other))}, not for want of an answer")
        if failed(cell) and "setup" in tags_of(cell):
            problems.append(f"{lab.name}: the setup cell fails")
        if "check" in tags_of(cell) and not failed(cell):
            problems.append(f"{lab.name}: the check {cell.id} passes an untouched starter")
    for cell in solution.cells:
        if failed(cell):
            problems.append(f"{lab.name}: {cell.id} of the solution fails")
    if not any(cell.get("outputs") for cell in solution.cells):
        problems.append(f"{lab.name}: the solution holds no outputs")
    return problems


def check_lab(labs: Path, lab: Lab) -> list[str]:
    """How the committed notebooks of a lab differ from what its master gives."""
    committed = []
    for path, fresh in zip(paths(labs, lab), (lab.learner, lab.solution)):
        if not path.is_file():
            return [f"{lab.name}: {path.relative_to(labs.parent)} is missing; run `make labs`"]
        committed.append(nbformat.read(path, as_version=4))
        if bare(committed[-1]) != bare(fresh):
            return [f"{lab.name}: {path.relative_to(labs.parent)} is not what its master gives; run `make labs`"]
    return faults(lab, *committed)


def bare(notebook: NotebookNode) -> list[object]:
    """What a master decides of a notebook: its cells less what running them added."""
    cells = [(cell.id, cell.cell_type, cell.source, tags_of(cell) - {FAILS}) for cell in notebook.cells]
    return [notebook.metadata, *cells]


def paths(labs: Path, lab: Lab) -> tuple[Path, Path]:
    """Where a lab's learner's notebook and its solution stand."""
    return labs / f"{lab.name}.ipynb", labs / "solutions" / f"{lab.name}.ipynb"


def strangers(labs: Path, masters: list[Path]) -> list[str]:
    """Notebooks without a master."""
    known = {path.stem.replace("_", "-") for path in masters}
    found = sorted([*labs.glob("*.ipynb"), *(labs / "solutions").glob("*.ipynb")])
    return [f"{path.relative_to(labs.parent)} has no master" for path in found if path.stem not in known]


if __name__ == "__main__":
    sys.exit(main())

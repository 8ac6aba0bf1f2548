"""The solved kernels of the labs compile for a GPU, with the arguments that their graders give: what runs in the interpreter may not."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from labs_master import read_master

from kvedu.grading.batch import grade_all
from kvedu.grading.running import Limits, Starter
from kvedu.kernels.launch import missing

ROOT = Path(__file__).resolve().parents[2]
KERNEL_LABS = [path for path in sorted((ROOT / "labs" / "masters").glob("[0-9]*.py")) if "kernel_device()" in path.read_text("utf-8")]
COMPILE = """
import ast, linecache, sys
import triton, triton.language as tl
from kvedu.grading.find import exercises, find_exercise
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin
from kvedu.kernels.ahead import compile_ahead
from kvedu.kernels.launch import Launch

lab, source = sys.argv[1], sys.stdin.read()
names = {"triton": triton, "tl": tl}
linecache.cache["<lab>"] = (len(source), None, source.splitlines(keepends=True), "<lab>")
exec(compile(source, "<lab>", "exec"), names)
for name in exercises(lab):
    kernel = names.get(find_exercise(name).defines or name.split(".")[1])
    if kernel is None:
        continue
    exercise, given = find_exercise(name), {}
    for case in exercise.cases(Fresh(0))[:2]:
        exercise.observe(Twin(lambda **args: given.update(args)), *case.args)
        constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
        launch = Launch(kernel, (1,), {k: v for k, v in given.items() if k not in constants}, constants)
        print(name, case.name, compile_ahead(launch, 90).registers)
"""


def kernels_of(master: Path) -> str:
    """The functions under @triton.jit of a solved lab, and nothing else: its other cells would want a GPU."""
    text = jupytext.writes(read_master(master).solution, fmt="py:percent")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and "triton.jit" in map(ast.unparse, node.decorator_list)]
    return "\n\n".join(f"@triton.jit\n{ast.get_source_segment(text, node)}" for node in functions)


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
@pytest.mark.parametrize("master", KERNEL_LABS, ids=lambda path: path.stem)
def test_a_labs_kernels_compile_for_a_gpu(master: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    lab = f"lab{master.name[:2]}"
    done = subprocess.run([sys.executable, "-c", COMPILE, lab], input=kernels_of(master), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(rf"^{lab}\.\w+ .* \d+$", done.stdout, re.MULTILINE), "no kernel was compiled"


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
def test_kernels_in_cells_are_graded_in_a_process_of_their_own() -> None:
    """Triton reads a kernel's source: it finds that of a notebook's cell in the locked-up shell of the grader too."""
    notebooks = [ROOT / "labs" / "solutions" / f"{path.stem.replace('_', '-')}.ipynb" for path in KERNEL_LABS]
    scores, starter = {}, Starter(Limits(timeout=120))
    try:
        grade_all(notebooks, starter, [5], done=lambda path, score: scores.update({path.name: score}))
    finally:
        starter.close()
    failed = {name: [str(part.verdict) for part in score.parts if not part.verdict.passed] for name, score in scores.items()}
    assert len(scores) == len(notebooks) and not any(failed.values()), failed

"""A learner's kernel at work: what it left, what it touched wrongly, and a grader's answers that are no kernels."""

import json
import linecache

import pytest
import torch

from kvedu.book import gpu_rows
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.judge import Known, judge
from kvedu.grading.kernel_run import Twin, _check_kernel, _gaps_whole, _moved, empty, hollow, left, run_kernel
from kvedu.grading.observe import outcomes
from kvedu.kernels.launch import missing, runs_on

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()}")

KERNEL = """
@triton.jit
def softmax(x, out, x_n, out_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    s = tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))
    p = tl.exp(s - tl.max(s, 0))
    tl.store(out + n * out_n + i, p / tl.sum(p, 0), mask=i < V)
"""


def observe(kernel, x_NV):
    out_NV = empty(*x_NV.shape)
    args = dict(x=x_NV, out=out_NV, x_n=x_NV.stride(0), out_n=out_NV.stride(0), V=x_NV.shape[1])
    return run_kernel(kernel, (len(x_NV),), args, ("out",), dict(BLOCK=32))


def right(x, out, x_n, out_n, V, BLOCK):
    out.copy_(torch.softmax(x, -1))


def unscaled(x, out, **rest):
    out.copy_((x - x.amax(-1, keepdim=True)).exp())


EXERCISE = Exercise(
    "softmax", "book/x", "a hint", "three rows of 17",
    cases=lambda fresh: [Case("3 rows", (hollow(fresh.normal(3, 17)),))], observe=observe, compared=left,
    right=Twin(right), mistakes=(Mistake(Twin(unscaled), "the weights are not divided by their sum"),),
)  # fmt: skip


def made(source, name="softmax"):
    import triton
    import triton.language as tl

    names, file = {"triton": triton, "tl": tl}, f"<learner {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names[name]


def graded(source):
    return judge("lab00.softmax", EXERCISE, outcomes(EXERCISE, made(source), 1), Known(1))


@needs_triton
@pytest.mark.parametrize(
    "old, new, says",
    [
        ("", "", "passed"),
        (" / tl.sum(p, 0)", "", "not divided by their sum"),
        (', mask=i < V, other=float("-inf")', "", "reads 15 places that belong to no tensor"),
        (', other=float("-inf")', "", "NaN at (0, 0)"),
        ("p / tl.sum(p, 0), mask=i < V", "p / tl.sum(p, 0)", "writes 15 places"),
        ("n * x_n", "n * V", "strides (50, 1)"),
        ("tl.store(out + n * out_n", "tl.store(x + n * x_n", "the kernel writes to x; store to out only"),
        ("@triton.jit", "", "leave the line `@triton.jit`"),
        ("x_n, out_n, V", "x_n, out_n, N", "it lacks V: keep its parameters"),
        ("tl.max(", "tl.maxx(", "AttributeError"),
        ("    n = tl.program_id(0)\n", '    raise NotImplementedError("your code here")\n    n = 0\n', "raise NotImplementedError"),
    ],
)
def test_a_kernel_is_judged(old, new, says):
    assert says in str(graded(KERNEL.replace(old, new) if old else KERNEL))


@needs_triton
def test_a_starter_is_told_before_a_compiler_stumbles_over_it():
    starter = made(KERNEL.replace("    n = tl.program_id(0)\n", '    raise NotImplementedError("your code here")\n'))
    with pytest.raises(NotImplementedError, match="your code here"):
        _check_kernel(starter, ("x", "out"))


@needs_triton
def test_bytes_are_counted_where_they_can_be():
    seen = observe(made(KERNEL), hollow(torch.randn(3, 17)))
    assert (seen["asked"], seen["written"]) == ((3 * 17 * 4,) * 2 if DEVICE == "cpu" else (None, None))
    assert observe(Twin(right), torch.zeros(1, 2))["asked"] is None


@needs_triton
def test_a_device_function_is_handed_to_a_kernel_as_a_constant():
    step = made("@triton.jit\ndef step(s, m):\n    return tl.maximum(m, tl.max(s, 0))\n", "step")
    use = made(
        "@triton.jit\ndef use(x, out, V, BLOCK: tl.constexpr, STEP: tl.constexpr):\n"
        "    i = tl.arange(0, BLOCK)\n    tl.store(out, STEP(tl.load(x + i, mask=i < V, other=float('-inf')), 0.0))\n", "use",
    )  # fmt: skip
    x = torch.tensor([0.5, 3.0, 1.0])
    assert run_kernel(use, (1,), dict(x=x, out=(out := empty(1)), V=3), ("out",), dict(BLOCK=4, STEP=step))["left"][0].item() == 3 == out.item()


def test_hollow_keeps_values_and_leaves_gaps():
    x = torch.randn(2, 3, 5)
    assert torch.equal(hollow(x), x) and hollow(x).stride(-1) == 1 and not hollow(x).is_contiguous()
    assert hollow(torch.arange(3)).tolist() == [0, 1, 2] and empty(2, 2).isnan().all()


def test_a_tensor_moves_with_its_gaps_and_they_are_watched():
    """What is done on a GPU, where no access can be seen: strides stay, and a store between the elements shows."""
    x = empty(3, 5)
    moved = _moved(x, "cpu")
    assert moved.stride() == x.stride() and moved.data_ptr() != x.data_ptr() and _gaps_whole(moved.copy_(torch.ones(3, 5)))
    moved.as_strided((3, 6), moved.stride(), moved.storage_offset())[1, 5] = 1.0  # one behind a row
    assert not _gaps_whole(moved)


def test_rows_of_a_gpu(tmp_path, monkeypatch):
    """A page's number of a GPU is read from a row that a GPU made, or said to be missing."""
    monkeypatch.setenv("KVEDU_ROWS", str(tmp_path))
    value = {"ceilings": {"copy": 4.0e12}, "cases": [{"name": "prefill", "of_ceiling": 0.53}]}
    row = {"name": "kernels", "command": "python x", "values": value, "machine": {"cpu": "a", "cores": 2}, "date": "2026-01-01", "versions": {"python": "3"}, "commit": "abc"}
    ask = ("kernels", "cases", "prefill", "of_ceiling")
    assert gpu_rows.gpu_text(*ask) == gpu_rows.gpu_source("gpu") == gpu_rows.NOT_YET
    (tmp_path / "kernels.json").write_text(json.dumps([row]))
    assert gpu_rows.gpu_value(*ask) is None, "a row of a CPU is no number of a GPU"
    row["machine"] |= {"gpu": "NVIDIA Test"}
    (tmp_path / "kernels.json").write_text(json.dumps([row]))
    (tmp_path / "gpu_nvidia_test.json").write_text(json.dumps([row | {"values": {"gpu": {"copy_gb_per_s": 4321.0}}}]))
    assert gpu_rows.gpu_text(*ask, form="{:.0%}") == "53%"
    assert gpu_rows.gpu_text("kernels", "ceilings", "copy", form="{:.1f} TB/s", times=1e-12) == "4.0 TB/s"
    assert gpu_rows.gpu_text("gpu", "gpu", "copy_gb_per_s") == "4,321"
    assert gpu_rows.gpu_text("kernels", "cases", "another") == gpu_rows.NOT_YET
    assert gpu_rows.gpu_source("kernels").startswith("NVIDIA Test, 2026-01-01")

"""Watching a kernel: what it touched, by program and tensor, and what it should not have touched."""

import pytest
import torch
from scenes import hollow

from kvedu.kernels.launch import interpreted
from kvedu.kernels.softmax import softmax
from kvedu.kernels.watch import StrayAccess, watching

pytestmark = pytest.mark.skipif(not interpreted(), reason="accesses are seen in Triton's interpreter")


def rows(n, width):
    return hollow((n, width), torch.float32, 2).copy_(torch.randn(n, width))


def test_every_access_has_its_program_and_its_places():
    x = rows(2, 5)
    with watching(x=x) as seen:
        softmax(x, triton=True, block=4)
    assert [(a.program[0], a.places.tolist()) for a in seen.of("x")] == [
        (n, [n * x.stride(0) + i for i in tile]) for n in (0, 1) for tile in 2 * [range(4), range(4, 5)]
    ]
    assert [(a.name, a.kind, len(a.places)) for a in seen.accesses if a.kind == "store"] == [("", "store", n) for n in (4, 1, 4, 1)]
    assert (seen.asked, seen.read, seen.written) == (2 * 2 * 5 * 4, 2 * 5 * 4, 2 * 5 * 4)
    assert sum(a.nbytes for a in seen.of("x")) == seen.asked


def kernel(source):
    """A kernel from text, with a file that ``inspect`` can read."""
    import linecache

    import triton
    import triton.language as tl

    names, file = {"triton": triton, "tl": tl}, f"<kernel {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["copy"]


COPY = """
@triton.jit
def copy(x, out, x_n, out_n, V, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    s = tl.load(x + tl.program_id(0) * x_n + i, mask=i < V, other=0.0)
    tl.store(out + tl.program_id(0) * out_n + i, s, mask=i < V)
"""


def run(source, x, out):
    from triton.runtime.errors import InterpreterError

    with watching(strict=True, x=x, out=out):
        try:
            kernel(source)[(len(x),)](x, out, x.stride(0), out.stride(0), x.shape[1], BLOCK=8)
        except InterpreterError as error:
            raise error.__cause__ from None


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("i, mask=i < V, other=0.0)", "i)", r"program \(0, 0, 0\) of the kernel reads 3 places .* the first at x \+ 5"),
        ("i, s, mask=i < V)", "i, s)", r"program \(0, 0, 0\) of the kernel writes 3 places .* the first at out \+ 5"),
        ("* x_n", "* V", r"program \(1, 0, 0\) of the kernel reads .* the first at x \+ 5; x has shape \(2, 5\) and strides"),
    ],
)
def test_a_stray_access_is_an_error_with_its_place(old, new, says):
    """C094: a forgotten mask is seen even where what lies behind a row would do no harm."""
    x, out = rows(2, 5), rows(2, 5)
    run(COPY, x, out)
    assert torch.equal(x, out)
    with pytest.raises(StrayAccess, match=says):
        run(COPY.replace(old, new), x, out)


def test_what_a_masked_load_leaves_out_is_not_a_number():
    """Triton promises nothing about it; its interpreter's zeros would hide that."""
    out = rows(2, 5)
    run(COPY.replace(", other=0.0", "").replace("s, mask=i < V", "s + 0 * tl.sum(s, 0), mask=i < V"), rows(2, 5), out)
    assert out.isnan().all()


def test_watching_ends():
    x = rows(1, 4)
    with watching() as seen:
        softmax(x, triton=True)
    softmax(x, triton=True)
    assert seen.asked == 2 * 4 * 4


def test_the_tensor_that_is_named_is_the_one_that_was_read():
    """Whatever the allocator put beside it: the result lies nearer to the stray place here than what was read."""
    store = torch.zeros(12)
    with pytest.raises(StrayAccess, match=r"reads 1 places that belong to no tensor, the first at x \+ 6; x has shape \(1, 4\)"):
        run(COPY.replace("x_n + i", "x_n + 3 * i"), store[:4].view(1, 4), store[7:11].view(1, 4))

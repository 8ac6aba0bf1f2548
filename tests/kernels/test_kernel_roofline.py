"""A kernel moves what its formula says: bytes and FLOPs counted in the interpreter, byte for byte."""

import pytest
import torch
from counting import counting
from scenes import DEVICE, make_scene
from test_quantized_attention import Made

from kvedu.caches.formats import float8, integer
from kvedu.kernels import attention, draw, invariant, rmsnorm, rope_write, softmax, swiglu
from kvedu.kernels import quantized_attention as quantized
from kvedu.kernels.cascade import SharedPrefix, cascade_attention
from kvedu.kernels.cascade import cost as cascade_cost
from kvedu.kernels.launch import interpreted
from kvedu.kernels.paged_attention import PagedLayout, paged_attention
from kvedu.kernels.quantized_pages import Exact, quantized_write, quantized_write_reference
from kvedu.kernels.quantized_pages import cost as write_cost
from kvedu.kernels.rope import cos_sin
from kvedu.kernels.traffic import attention_traffic
from kvedu.rope_config import RopeConfig
from kvedu.units import Cost

pytestmark = pytest.mark.skipif(not interpreted(), reason="loads are counted in Triton's interpreter")
H, K, D = 6, 2, 16
F16 = torch.float16


def total(costs) -> Cost:
    return sum(costs, Cost())


@pytest.mark.parametrize("lengths", [[64], [1, 17, 64]])
def test_decode_reads_each_key_and_value_once_per_kv_head(lengths):
    """The whole group in one block: bytes are the floor of ``attention.cost``; only FLOPs are padded to 16 rows."""
    scene = make_scene([(1, n - 1) for n in lengths], H, K, D, 16)
    with counting() as counted:
        paged_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, block_m=16, block_s=16, splits=1)
    floor = total(attention.cost(1, n - 1, H, K, D) for n in lengths)
    tiled = attention_traffic([(1, n - 1) for n in lengths], H, K, D, 16, 16)
    assert counted.read == counted.asked == floor.read == tiled.read
    assert counted.written == floor.written
    assert counted.flops == tiled.flops and floor.flops < tiled.flops


def test_splits_read_nothing_twice_and_leave_one_part_each():
    scene = make_scene([(1, 63)], H, K, D, 16)
    with counting() as counted:
        paged_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, block_m=16, block_s=16, splits=2)
    floor, merging = attention.cost(1, 63, H, K, D), softmax.merge_cost(1, H, 2, D)
    queries_again = 1 * H * D * 2
    assert counted.asked == floor.read + merging.read + queries_again
    assert counted.written == floor.written + merging.read


@pytest.mark.parametrize("edges", [True, False])
def test_prefill_reads_keys_once_per_block(edges):
    steps = [(20, 0), (9, 30)]
    scene = make_scene(steps, H, K, D, 16)
    with counting() as counted:
        paged_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, block_m=32, block_s=16, splits=1, edges=edges)
    tiled = attention_traffic(steps, H, K, D, 32, 16)
    floor = total(attention.cost(new, old, H, K, D) for new, old in steps)
    assert counted.asked == tiled.read > floor.read == counted.read
    assert counted.flops == tiled.flops > floor.flops


def test_a_window_reads_the_window():
    """Whole tiles of 16 keys: 20 visible ones lie in two."""
    scene = make_scene([(1, 95)], H, K, D, 16)
    with counting() as counted:
        paged_attention(scene.q, scene.k, scene.v, scene.layout, 20, triton=True, block_m=16, block_s=16, splits=1)
    assert counted.read == (2 * 32 * K * D + H * D) * 2


def test_a_shared_prefix_is_read_once():
    scene = make_scene([(1, 4), (1, 9), (1, 0)], H, K, D, 16, spare=4)
    spare = [page for page in range(len(scene.k)) if page not in scene.layout.tables.flatten().tolist()]
    prefix = SharedPrefix.of(spare[:2], 32, 3)
    scene.k.nan_to_num_(), scene.v.nan_to_num_()
    with counting() as counted:
        cascade_attention(scene.q, scene.k, scene.v, prefix, scene.layout, triton=True, splits=(1, 1), block_m=16, block_s=16)
    rests = sum(n for n in (5, 10, 1))
    floor = cascade_cost(1, 32, rests, H, K, D)  # keys and values of 32 + 16 tokens
    assert counted.read - softmax.merge_cost(3, H, 2, D).read == floor.read + 2 * H * D * 2


@pytest.mark.parametrize("format", [integer(8, 64), integer(4, 64, symmetric=True), integer(4, 16), float8(), integer(4, 16, "tokens")], ids=str)
def test_codes_are_read_as_codes(format):
    """Bits of codes and scales, nothing decoded on the way; the query and its own exact token besides."""
    made = Made(format, format, F16, counts=(1,), starts=(64,)).write(quantized_write_reference)
    with counting() as counted:
        made.attend(lambda *args: quantized.quantized_attention(*args, triton=True, block_m=16, block_s=16, splits=1))
    bits = format.sized.bits_per_element
    floor = quantized.cost(64, 6, 2, 64, bits, bits)
    exact = (2 * 1 * 2 * 64 + 6 * 64) * 2
    assert counted.read == floor.read + exact


@pytest.mark.parametrize("fresh", [32, 20])
@pytest.mark.parametrize(
    "format",
    [integer(8, 64), integer(8, 64, symmetric=True), integer(4, 16), float8(), float8("e5m2", 32), integer(4, 16, "tokens"), integer(2, 64)],
    ids=str,
)
def test_codes_are_written_once(format, fresh):
    """Each of 32 tokens is read once, from the step or from its tail; codes, scales and zero points go out once."""
    made = Made(format, format, F16, counts=(fresh,), starts=(32 - fresh,), residual=32)
    side, exact = made.sides[0], made.exact[0]
    units = torch.tensor(made.units(side, 0, 0, 32))
    with counting() as counted:
        quantized_write(side, Exact(*exact), made.layout.rows, units, triton=True)
    floor = write_cost(32, 2, 64, format.sized.bits_per_element)
    assert (counted.read, counted.written) == (floor.read, floor.written)


def test_rows():
    """Norm, residual, SwiGLU, softmax, rotation and write, draw, product."""
    x, residual, weight = (torch.randn(3, 64).to(F16) for _ in "xrw")
    with counting() as counted:
        rmsnorm.add_rmsnorm(x, residual, weight[0], 1e-5, triton=True)
    assert (counted.read, counted.written) == (rmsnorm.add_cost(3, 64).read, rmsnorm.add_cost(3, 64).written)
    with counting() as counted:
        rmsnorm.rmsnorm(x, weight[0], 1e-5, triton=True)
    assert (counted.read, counted.written) == (rmsnorm.cost(3, 64).read, rmsnorm.cost(3, 64).written)
    with counting() as counted:
        swiglu.swiglu(x, triton=True)
    assert (counted.asked, counted.written) == (swiglu.cost(3, 32).read, swiglu.cost(3, 32).written)
    with counting() as counted:
        softmax.softmax(x, triton=True)
    assert (counted.asked, counted.written) == (softmax.cost(3, 64).read, softmax.cost(3, 64).written)
    q, k = torch.randn(3, H, D).to(F16), torch.randn(3, K, D).to(F16)
    pages = torch.zeros(2, 4, K, D, dtype=F16)
    cos, sin = cos_sin(RopeConfig(dim=D), torch.arange(3), torch.float32)
    with counting() as counted:
        rope_write.rope_write(q, k, k.clone(), cos, sin, pages, pages.clone(), torch.tensor([0, 5, 7]), triton=True)
    floor = rope_write.cost(3, H, K, D)
    assert (counted.read, counted.written) == (floor.read - 3 * 8, floor.written)  # slots are counted as indices
    logits = torch.randn(2, 100)
    with counting() as counted:
        draw.draw(logits, torch.zeros(2), torch.arange(2), triton=True, block=64)
    assert draw.cost(2, 100).read <= counted.read <= draw.cost(2, 100).read + 2 * 4 + 2 * 2 * 4
    with counting() as counted:
        invariant.invariant_linear(x, residual, triton=True, rows=16, outs=16, depth=16)
    assert counted.read == invariant.cost(3, 64, 3).read and counted.flops == 2 * 16 * 16 * 64


def test_what_is_counted_is_what_is_masked_in():
    """The counter itself: one lane off changes the count."""
    layout = PagedLayout.of([[0]], [(0, 1, 7)], device=DEVICE)
    scene = make_scene([(1, 8)], H, K, D, 16)
    with counting() as counted:
        paged_attention(scene.q, scene.k, scene.v, PagedLayout(scene.layout.tables, layout.rows), triton=True, block_m=16, block_s=16, splits=1)
    assert counted.read == attention.cost(1, 7, H, K, D).read

"""The Triton kernels on this GPU: time, bytes a second, share of what the chip can copy or multiply, ratio to PyTorch's own.

    python bench/bench_kernels.py [--save] [--tune] [--only decode]
    TRITON_INTERPRET=1 python bench/bench_kernels.py --dry      # no GPU: tiny sizes, every result checked, no times

Every case is compared with its reference first. Ceilings are measured in the same run. Shapes are those of an 8B Llama
(32 query heads, 8 KV heads of 128) in bf16, or fp16 where there is no bf16.

Where to look first when a row misses its target on an H200 (132 multiprocessors, some 25 kB in flight on each keep its memory busy;
``kernels.schedule`` and ``kernels.splits`` say what runs where):

1. Decode, 32 x 4,096 (85 % of copy). Blocks of 16 x 64, 4 warps, 5 stages: two buffers, as a page's number takes half of the stages
   (3 and 4 are one buffer, and then nothing is loaded while a tile is computed). Three programs fit a multiprocessor, 768 programs are
   two whole rounds. A row of a tile is 256 bytes, loaded 16 bytes a thread. Try ``splits=1`` (no merge), ``block_s=32`` with
   ``stages=7``, then ``warps=2``: 16 rows, of which 4 are real, leave little to share out.
2. Decode, 1 x 32,768 (60 %). 66 splits are 528 programs, a round and a third of three a multiprocessor; with two buffers even one
   program keeps its multiprocessor loading, so ``splits=49``, one whole round, should gain little. The merge is a launch of its own, some microseconds of a hundred; a last-come-merges counter would save it.
3. Prefill (50 % of matmul). 128 x 64, 8 warps, wgmma; the softmax between the two products is not overlapped with them, which
   Triton does not do without warp specialization. ``block_s=128`` (``stages`` 3 or 5; 250 registers) halves the passes over the running maximum.
4. Codes (1.6x bf16 at 32K). Half the bytes, but each must become a number: count what a tile costs in instructions
   (tests/kernels/test_instructions.py) before its bytes. ``block_s=128``, then fewer splits.
5. Rows (80 % of copy). One program a row: try more rows of a program where the width is small, and ``warps=8`` where it is large.
6. Unequal lengths. The grid is static, so a long sequence ends last; splits soften it. Programs that fetch their next piece of work
   from a counter (persistent) are the next step, not the first.

``--tune`` tries blocks for the attention rows (``kernels.tune``; minutes, so not by default) and adds what was best, with its time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from peers.attention import peers_of

from kvedu.book.rows import save_row
from kvedu.caches.formats import Format, float8, integer
from kvedu.engine.graphs import cuda_graph
from kvedu.kernels import (
    attention, cascade, draw, filtered_draw, invariant, paged_attention, quantized_attention, quantized_pages,
    rmsnorm, rope_write, softmax, swiglu,
)  # fmt: skip
from kvedu.kernels.codes import encode
from kvedu.kernels.launch import Launch, chip_of, interpreted, missing, runs_on
from kvedu.kernels.quantized_pages import CodedPages, Exact, quantized_write
from kvedu.kernels.rope import cos_sin
from kvedu.kernels.tune import ATTENTION_CANDIDATES, tune
from kvedu.rope_config import RopeConfig
from kvedu.units import Cost

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Case:
    """A kernel on some tensors, its cost, what PyTorch has for the same, and the reference that judges it."""

    name: str
    run: Callable[[], Any]
    cost: Cost
    bound: str
    """What is expected to bound it: "copy" or "matmul"."""
    reference: Callable[[], Any]
    peer: Callable[[], Any] | None = None
    plan: Callable[..., Sequence[Launch]] | None = None
    """Its launches for given blocks, where there are blocks to choose."""
    others: Callable[[], dict[str, Callable[[], Callable[[], Any]]]] = dict
    """What makes the calls of other libraries that are installed here, for the same."""


@dataclass(frozen=True)
class Sizes:
    """How large: the real ones, or those for the interpreter."""

    sequences: int
    cached: int
    long: int
    prompt: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    mlp: int
    vocabulary: int
    rows: int
    pages: tuple[int, ...]


REAL = Sizes(32, 4096, 32_768, 4096, 32, 8, 128, 4096, 14_336, 128_256, 4096, (16, 64, 256))
TINY = Sizes(2, 40, 96, 40, 6, 2, 64, 96, 80, 300, 3, (16, 32))


class Bench:
    """Makes the cases of one device and dtype; random numbers, tables shuffled."""

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> None:
        self.sizes, self.device, self.dtype = sizes, device, dtype
        torch.manual_seed(0)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self.dtype, device=self.device)

    def step(self, B: int, new: int, old: int, C: int) -> tuple[Tensor, Tensor, Tensor, paged_attention.PagedLayout]:
        """Queries, pages and layout of B sequences of ``new`` tokens after ``old``."""
        s, J = self.sizes, -(-(new + old) // C)
        order = torch.randperm(B * J).view(B, J).tolist()
        layout = paged_attention.PagedLayout.of(order, [(b * new, new, old) for b in range(B)], device=self.device)
        k, v = (self.random(B * J, C, s.kv_heads, s.head_dim) for _ in "kv")
        return self.random(B * new, s.heads, s.head_dim), k, v, layout

    def dense(self, x: Tensor, layout: paged_attention.PagedLayout, length: int) -> Tensor:
        """A sequence's pages side by side, ``[B, K, S, D]``: what PyTorch's attention reads."""
        return x[layout.tables.long()].flatten(1, 2)[:, :length].transpose(1, 2).contiguous()

    def attention(self, name: str, B: int, new: int, old: int, C: int, bound: str, **blocks: int) -> Case:
        s = self.sizes
        q, k, v, layout = self.step(B, new, old, C)
        one = attention.cost(new, old, s.heads, s.kv_heads, s.head_dim, q.element_size())
        keys, values = (self.dense(x, layout, new + old) for x in (k, v))
        q_BHTD = q.unflatten(0, (B, new)).transpose(1, 2).contiguous()
        return Case(
            name, lambda: paged_attention.paged_attention(q, k, v, layout, triton=True, **blocks), B * one, bound,
            lambda: paged_attention.paged_attention_reference(q, k, v, layout),
            lambda: scaled_dot_product_attention(q_BHTD, keys, values, is_causal=new > 1 and not old, enable_gqa=True),
            lambda **some: plan_attention(q, k, v, layout, **some), lambda: peers_of(q, k, v, layout.tables, new, old),
        )  # fmt: skip

    def quantized(self, name: str, format: Format, B: int, old: int, C: int) -> Case:
        s, J = self.sizes, -(-old // C)
        pages = [CodedPages(format, B * J, C, s.kv_heads, s.head_dim, self.device) for _ in "kv"]
        none = self.random(1, 0, s.kv_heads, s.head_dim)
        tables = torch.arange(B * J, dtype=torch.int32, device=self.device).view(B, J)
        for b in range(B):
            x = self.random(old, s.kv_heads, s.head_dim)
            units = torch.tensor([[pages[0].unit_at(range(b * J, b * J + J), t), 0, t] for t in range(0, old, format.step)])
            row = torch.tensor([[0, old, 0, 0]], device=self.device)
            for side in pages:
                quantized_write(side, Exact(x, none), row, units.to(self.device), triton=True)
        own = [Exact(self.random(B, s.kv_heads, s.head_dim), none) for _ in "kv"]
        rows = torch.tensor([[b, 1, old, 0] for b in range(B)], device=self.device)
        layout = quantized_attention.QuantizedLayout(tables, rows, one_each=True)
        q = self.random(B, s.heads, s.head_dim)
        bits = format.sized.bits_per_element
        cost = B * quantized_attention.cost(old, s.heads, s.kv_heads, s.head_dim, bits, bits)
        plain = self.attention("", B, 1, old - 1, C, "copy")
        return Case(
            name, lambda: quantized_attention.quantized_attention(q, *pages, *own, layout, triton=True), cost, "copy",
            lambda: quantized_attention.quantized_attention_reference(q, *pages, *own, layout), plain.run,
        )  # fmt: skip

    def cases(self) -> Iterator[Callable[[], Case]]:
        """One after the other, each made when it is its turn."""
        s = self.sizes
        for C in s.pages:
            yield lambda C=C: self.attention(f"decode {s.sequences} x {s.cached}, pages of {C}", s.sequences, 1, s.cached - 1, C, "copy")
        yield lambda: self.attention(f"decode 1 x {s.long}, split", 1, 1, s.long - 1, s.pages[0], "copy")
        yield lambda: self.attention(f"prefill 2 x {s.prompt}", 2, s.prompt, 0, s.pages[0], "matmul")
        for name, format in (("int8", integer(8, s.head_dim)), ("e4m3", float8()), ("int4", integer(4, s.head_dim))):
            yield lambda n=name, f=format: self.quantized(f"decode over {n}, against {self.dtype}", f, max(1, s.sequences // 4), s.long, s.pages[0])
        yield self.shared
        yield lambda: self.same_bits_attention(s.sequences)
        yield from (self.merge, self.softmax, self.write, self.write_codes, self.norm, self.swiglu, self.product, self.draw, self.draw_filtered)

    def shared(self) -> Case:
        s, C = self.sizes, self.sizes.pages[0]
        rest = s.cached // 16 // C * C + C
        q, k, v, layout = self.step(s.sequences, 1, rest - 1, C)
        n, J = len(k), -(-s.cached // C)
        k, v = (torch.cat((x, self.random(J, *x.shape[1:]))) for x in (k, v))
        prefix = cascade.SharedPrefix.of(range(n, n + J), s.cached // C * C, s.sequences, self.device)
        together = [[*range(n, n + s.cached // C), *table] for table in layout.tables.tolist()]
        rows = [(b, 1, s.cached // C * C + rest - 1) for b in range(s.sequences)]
        whole = paged_attention.PagedLayout.of(together, rows, device=self.device)
        return Case(
            f"decode behind a shared prefix of {s.cached}, against plain paged", lambda: cascade.cascade_attention(q, k, v, prefix, layout, triton=True),
            cascade.cost(s.sequences, s.cached // C * C, rest, s.heads, s.kv_heads, s.head_dim, q.element_size()), "copy",
            lambda: cascade.cascade_attention_reference(q, k, v, prefix, layout),
            lambda: paged_attention.paged_attention(q, k, v, whole, triton=True),
        )  # fmt: skip

    def same_bits_attention(self, B: int) -> Case:
        s = self.sizes
        q, k, v, layout = self.step(B, 1, s.cached - 1, s.pages[0])
        places = layout.tables.shape[1] * s.pages[0]
        cost = invariant.attention_cost(B, s.heads, s.kv_heads, s.head_dim, places, s.cached - 1, q.element_size())
        return Case(
            "batch-invariant decode, against plain paged", lambda: invariant.invariant_attention(q, k, v, layout, triton=True), cost, "copy",
            lambda: paged_attention.paged_attention_reference(q, k, v, layout), lambda: paged_attention.paged_attention(q, k, v, layout, triton=True),
        )  # fmt: skip

    def merge(self) -> Case:
        """Parts of decode steps cut in 32, log-sums apart by up to some powers of two."""
        s, S = self.sizes, 32
        parts = torch.randn(s.sequences, s.heads, S, s.head_dim, device=self.device)
        logs = torch.randn(s.sequences, s.heads, S, device=self.device) * 3
        return Case(
            "merge of 32 parts", lambda: softmax.merge(parts, logs, self.dtype, triton=True),
            softmax.merge_cost(s.sequences, s.heads, S, s.head_dim, self.dtype.itemsize), "copy",
            lambda: softmax.merge_reference(parts, logs), lambda: softmax.merge(parts, logs, self.dtype, triton=False),
        )  # fmt: skip

    def softmax(self) -> Case:
        s = self.sizes
        logits = self.random(s.sequences, s.vocabulary).float()
        return Case(
            "softmax of logits", lambda: softmax.softmax(logits, triton=True), softmax.cost(s.sequences, s.vocabulary, 4), "copy",
            lambda: softmax.softmax_reference(logits), lambda: softmax.softmax(logits, triton=False),
        )  # fmt: skip

    def write(self) -> Case:
        s, C = self.sizes, self.sizes.pages[0]
        qkv = self.random(s.rows, s.heads + 2 * s.kv_heads, s.head_dim)
        q, k, v = qkv.split((s.heads, s.kv_heads, s.kv_heads), 1)
        cos, sin = cos_sin(RopeConfig(dim=s.head_dim), torch.arange(s.rows, device=self.device), torch.float32)
        pages = [self.random(-(-s.rows // C), C, s.kv_heads, s.head_dim) for _ in "kv"]
        slots = torch.randperm(s.rows).to(self.device)
        args = (q, k, v, cos, sin, *pages, slots)
        cost = rope_write.cost(s.rows, s.heads, s.kv_heads, s.head_dim, q.element_size())
        by_torch = lambda: rope_write.rope_write(*args, triton=False)  # noqa: E731
        return Case("rotate and write", lambda: rope_write.rope_write(*args, triton=True), cost, "copy", by_torch, by_torch)

    def write_codes(self) -> Case:
        """Keys of a chunk into pages of int8; beside PyTorch's ``encode`` of the same numbers, which puts them nowhere."""
        s, C, format = self.sizes, self.sizes.pages[0], integer(8, self.sizes.head_dim)
        pages = CodedPages(format, -(-s.rows // C), C, s.kv_heads, s.head_dim, self.device)
        exact = Exact(self.random(s.rows, s.kv_heads, s.head_dim), self.random(1, 0, s.kv_heads, s.head_dim))
        row, order = torch.tensor([[0, s.rows, 0, 0]], device=self.device), torch.arange(s.rows, device=self.device)
        units, codes = torch.stack((order, 0 * order, order), dim=1), pages.coded.codes.flatten(0, 1)[: s.rows]
        cost = quantized_pages.cost(s.rows, s.kv_heads, s.head_dim, format.sized.bits_per_element, exact.fresh.element_size())
        by_torch = lambda: encode(exact.fresh, format).codes  # noqa: E731
        return Case("write int8 codes", lambda: quantized_write(pages, exact, row, units, triton=True) or codes, cost, "copy", by_torch, by_torch)

    def norm(self) -> Case:
        s = self.sizes
        x, residual, weight = self.random(s.rows, s.width), self.random(s.rows, s.width), self.random(s.width)
        return Case(
            "add and RMSNorm", lambda: rmsnorm.add_rmsnorm(x, residual, weight, 1e-5, triton=True)[0],
            rmsnorm.add_cost(s.rows, s.width, x.element_size()), "copy", lambda: rmsnorm.add_rmsnorm_reference(x, residual, weight, 1e-5)[0],
            lambda: torch.nn.functional.rms_norm(x + residual, (s.width,), weight, 1e-5),
        )  # fmt: skip

    def swiglu(self) -> Case:
        s = self.sizes
        x = self.random(s.rows, 2 * s.mlp)
        cost = swiglu.cost(s.rows, s.mlp, x.element_size())
        return Case("SwiGLU", lambda: swiglu.swiglu(x, triton=True), cost, "copy", lambda: swiglu.swiglu_reference(x), lambda: swiglu.swiglu(x, triton=False))

    def product(self) -> Case:
        s = self.sizes
        x, weight = self.random(s.rows, s.width), self.random(s.width, s.width) / s.width**0.5
        cost = invariant.cost(s.rows, s.width, s.width, x.element_size())
        return Case(
            "batch-invariant product", lambda: invariant.invariant_linear(x, weight, triton=True), cost, "matmul",
            lambda: x.float() @ weight.float().T, lambda: x @ weight.T,
        )  # fmt: skip

    def draw(self) -> Case:
        s = self.sizes
        logits = self.random(s.sequences, s.vocabulary).float()
        heat, seeds = torch.ones(s.sequences, device=self.device), torch.arange(s.sequences, device=self.device)
        return Case(
            "draw a token", lambda: draw.draw(logits, heat, seeds, triton=True), draw.cost(s.sequences, s.vocabulary), "copy",
            lambda: draw.draw_reference(logits, heat, seeds), lambda: torch.multinomial(torch.softmax(logits, -1), 1),
        )  # fmt: skip

    def draw_filtered(self) -> Case:
        """Beside PyTorch's softmax, sort and sum alone."""
        s = self.sizes
        logits = self.random(s.sequences, s.vocabulary)
        row = torch.tensor([0.8, 50, 0.95, 0.0, 0.5], dtype=torch.float64, device=self.device)
        settings = row.expand(s.sequences, -1).contiguous()
        return Case(
            "draw a token behind top-k and top-p", lambda: filtered_draw.filtered_draw(logits, settings, triton=True),
            filtered_draw.cost(s.sequences, s.vocabulary), "copy", lambda: filtered_draw.filtered_draw(logits, settings, triton=False),
            lambda: torch.softmax(logits.float(), -1).sort(-1, descending=True)[0].cumsum(-1),
        )  # fmt: skip


def plan_attention(q: Tensor, k: Tensor, v: Tensor, layout: paged_attention.PagedLayout, **blocks: int) -> Sequence[Launch]:
    """The launches of a paged attention call."""
    from kvedu.kernels.paged_attention_triton import plan_attention as plan

    return plan(q, k, v, layout.tables, layout.rows, torch.empty_like(q), chip=chip_of(q), one_each=layout.one_each, **blocks)


def best_blocks(case: Case, dry: bool) -> dict[str, Any]:
    """The quickest blocks of those that fit, and their time; in the interpreter two of them are run, and none is timed."""
    candidates = ATTENTION_CANDIDATES[:2] if dry else [b | s for b in ATTENTION_CANDIDATES for s in ({}, {"splits": 1}, {"splits": 49})]
    with tempfile.TemporaryDirectory() as folder:
        time = (lambda run: run() or 0.0) if dry else milliseconds
        blocks = tune("bench", case.plan, candidates, case.name, time=time, folder=Path(folder))
    launches = case.plan(**blocks)
    return {"blocks": blocks, "ms": None if dry else milliseconds(lambda: [launch.run() for launch in launches])}


def error(case: Case) -> float:
    """Largest difference to the reference, over the largest number in it."""
    got, wanted = case.run().float().cpu(), case.reference().float().cpu()
    return ((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9)).item()


def milliseconds(function: Callable[[], Any]) -> float:
    """Median time of a call, by device events, the cache flushed between calls; a call that can be is recorded once and replayed.

    Planning and launching two kernels takes Python 100 µs and more, which a step of the engine does not pay either. Between two
    events the device would wait for them: the flush before takes it 60 µs, and decoding one sequence 40.
    """
    from triton.testing import do_bench

    return do_bench(recorded(function), warmup=50, rep=200, return_mode="median")


def recorded(function: Callable[[], Any]) -> Callable[[], Any]:
    """A replay of the call's launches; the call itself where there are no CUDA graphs, or it asks the host something on its way."""
    if not torch.cuda.is_available():
        return function
    try:
        return cuda_graph(function).replay
    except Exception:
        torch.cuda.synchronize()
        return function


def ceilings(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Bytes a second of a copy (read plus written) and FLOPs a second of a large product, on random numbers."""
    x = torch.randn(2**30, device=device, dtype=torch.float32)
    y = torch.empty_like(x)
    copied = 2 * x.nbytes / (milliseconds(lambda: y.copy_(x)) / 1e3)
    del x, y
    a, b = (torch.randn(8192, 8192, device=device, dtype=dtype) for _ in "ab")
    return {"copy": copied, "matmul": 2 * 8192**3 / (milliseconds(lambda: a @ b) / 1e3)}


def main() -> int:
    """Check and time every case; end with status 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description="The Triton kernels: right, and how fast.")
    parser.add_argument("--dry", action="store_true", help="tiny sizes in the interpreter, results checked, nothing timed")
    parser.add_argument("--save", action="store_true", help="store the table as a row of bench/results")
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    parser.add_argument("--tune", action="store_true", help="try blocks for the attention rows too")
    options = parser.parse_args()
    device = torch.device("cpu" if options.dry else "cuda" if torch.cuda.is_available() else "xpu" if torch.xpu.is_available() else "cpu")
    if not runs_on(device) or (device.type == "cpu") != options.dry:
        print(f"nothing to time: {missing() or 'no GPU is here'}. TRITON_INTERPRET=1 and --dry check the kernels without one.")
        return 0
    dtype = torch.float16 if options.dry or not chip_of(torch.empty(1, device=device)).bf16 else torch.bfloat16
    tops = {} if options.dry else ceilings(device, dtype)
    for name, value in tops.items():
        print(f"{name}: {value / (1e9 if name == 'copy' else 1e12):,.0f} {'GB/s' if name == 'copy' else 'TFLOP/s'} measured")
    print(f"{'':58}{'error':>9}{'ms':>9}{'rate':>14}{'of ceiling':>12}{'PyTorch':>9}")
    rows, wrong, failed = [], 0, 0
    command = "python bench/bench_kernels.py" + "".join(f" {argument}" for argument in sys.argv[1:])
    with torch.inference_mode():
        for make in Bench(TINY if options.dry else REAL, device, dtype).cases():
            try:
                case = make()
                if options.only.lower() not in case.name.lower():
                    continue
                row = measure(case, tops)
                if options.tune and case.plan is not None:
                    row["tuned"] = best_blocks(case, options.dry)
                    print(f"{'':4}best: {row['tuned']}", flush=True)
            except Exception:  # one kernel that does not run here takes no other with it
                failed += 1
                traceback.print_exc()
                continue
            wrong += row["error"] > 0.03
            rows.append(row)
            if options.save and tops:  # one by one: who stops this in the middle keeps what was measured
                RESULTS.mkdir(exist_ok=True)
                save_row("kernels", {"ceilings": tops, "cases": rows}, command=command, folder=RESULTS)
    assert not options.dry or interpreted()
    if not rows and not failed:
        print(f"no case has {options.only!r} in its name")
        return 1
    said = [f"{wrong} results are wrong"] * bool(wrong) + [f"{failed} case{'s' * (failed > 1)} failed"] * bool(failed)
    print(", ".join(said) or "every result agrees with its reference")
    return 1 if said else 0


def measure(case: Case, tops: dict[str, float]) -> dict[str, Any]:
    """One line of the table."""
    row: dict[str, Any] = {"name": case.name, "error": error(case), "bytes": case.cost.bytes, "flops": case.cost.flops, "bound": case.bound}
    line = f"{case.name:58}{row['error']:>9.1e}"
    if tops:
        row["ms"] = milliseconds(case.run)
        work = case.cost.bytes if case.bound == "copy" else case.cost.flops
        row["rate"] = work / row["ms"] * 1e3
        row["of_ceiling"] = row["rate"] / tops[case.bound]
        row["peer_ms"] = None if case.peer is None else milliseconds(case.peer)
        rate = f"{row['rate'] / 1e9:,.0f} GB/s" if case.bound == "copy" else f"{row['rate'] / 1e12:,.0f} TFLOP/s"
        row["others_ms"] = {}
        for name, make in case.others().items():
            try:
                row["others_ms"][name] = milliseconds(make())
            except Exception as wrong:  # what another library cannot do here is no fault of the table
                row["others_ms"][name] = f"{type(wrong).__name__}: {str(wrong)[:80]}"
        line += f"{row['ms']:>9.3f}{rate:>14}{row['of_ceiling']:>12.0%}" + ("" if row["peer_ms"] is None else f"{row['peer_ms'] / row['ms']:>8.2f}x")
    for name, ms in row.get("others_ms", {}).items():
        line += f"  {name} {ms / row['ms']:.2f}x" if isinstance(ms, float) else f"  {name}: {ms}"
    print(line, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())

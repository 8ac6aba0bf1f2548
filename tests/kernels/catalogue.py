"""Every Triton kernel as it is launched for real: the shapes of an 8B Llama (32 / 8 heads), on tensors without memory.

    python tests/kernels/catalogue.py 90        # compile all for capability 9.0, print registers, stack, shared memory
    python tests/kernels/catalogue.py gfx942    # a few for a chip of AMD's

Run without TRITON_INTERPRET; needs no GPU.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import torch

from kvedu.caches.formats import float8, integer
from kvedu.kernels.ahead import compile_ahead, described
from kvedu.kernels.cascade import SharedPrefix
from kvedu.kernels.cascade_triton import plan_cascade
from kvedu.kernels.draw_triton import plan_draw
from kvedu.kernels.filtered_draw_triton import plan_filtered_draw
from kvedu.kernels.invariant import LINEAR, attention_blocks
from kvedu.kernels.invariant_triton import plan_linear
from kvedu.kernels.launch import Chip, Launch
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.kernels.paged_attention_triton import plan_attention
from kvedu.kernels.quantize_triton import plan_quantize
from kvedu.kernels.quantized_attention_triton import plan_quantized_attention
from kvedu.kernels.quantized_pages import CodedPages, Exact
from kvedu.kernels.rmsnorm_triton import plan_rmsnorm
from kvedu.kernels.rope_write_triton import plan_rope_write
from kvedu.kernels.softmax_triton import plan_softmax
from kvedu.kernels.swiglu_triton import plan_swiglu

H, K, C = 32, 8, 16


def meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def attention(chip: Chip, dtype: torch.dtype, D: int, N: int, B: int, **options) -> list[Launch]:
    """A step of N rows in B sequences over 4,096 places each."""
    q, pages = meta(N, H, D, dtype=dtype), meta(9000, C, K, D, dtype=dtype)
    tables, rows = meta(B, 256, dtype=torch.int32), meta(B, 3, dtype=torch.int64)
    if options.pop("tree", False):
        options["family_NW"] = meta(N, 1, dtype=torch.int64)
    return plan_attention(q, pages, pages, tables, rows, torch.empty_like(q), chip=chip, one_each=N == B, **options)


def attention_kinds(chip: Chip, dtype: torch.dtype, D: int) -> dict[str, list[Launch]]:
    """The variants that a model meets."""
    return {
        "decode": attention(chip, dtype, D, 32, 32),
        "decode, one sequence": attention(chip, dtype, D, 1, 1),
        "prefill": attention(chip, dtype, D, 4096, 2),
        "prefill, window": attention(chip, dtype, D, 4096, 2, window=1024),
        "tree": attention(chip, dtype, D, 128, 4, tree=True),
        "batch-invariant": attention(chip, dtype, D, 128, 4, **attention_blocks(D, dtype, chip)),
    }


def cascade(chip: Chip, dtype: torch.dtype, D: int) -> list[Launch]:
    """32 sequences behind one prefix of 4,096 tokens, each with 512 places of its own."""
    q, pages = meta(32, H, D, dtype=dtype), meta(9000, C, K, D, dtype=dtype)
    prefix = SharedPrefix(meta(1, 256, dtype=torch.int32), meta(1, 3, dtype=torch.int64))
    layout = PagedLayout(meta(32, 32, dtype=torch.int32), meta(32, 3, dtype=torch.int64), one_each=True)
    return plan_cascade(q, pages, pages, prefix, layout, torch.empty_like(q), chip=chip)


FORMATS = {
    "int8": (integer(8, 128), integer(8, 128)),
    "int4": (integer(4, 128), integer(4, 128)),
    "e4m3": (float8(), float8()),
    "KIVI": (integer(4, 16, "tokens"), integer(4, 32)),
}


def quantized(chip: Chip, dtype: torch.dtype, D: int) -> dict[str, list[Launch]]:
    """Decode over codes, and the way in."""
    found = {}
    for name, formats in FORMATS.items():
        sides = [CodedPages(f if f.group != 128 else integer(f.bits, D), 2, C, K, D, torch.device("cpu")) for f in formats]
        exact = Exact(meta(32, K, D, dtype=dtype), meta(32, 16, K, D, dtype=dtype))
        q, tables, rows = meta(32, H, D, dtype=dtype), meta(32, 256, dtype=torch.int32), meta(32, 4, dtype=torch.int64)
        found[f"decode over {name}"] = plan_quantized_attention(
            q, *sides, exact, exact, tables, rows, torch.empty_like(q), chip=chip, residual=8, unit=sides[0].format.step, one_each=True
        )[:1]
        found[f"into {name}"] = [plan_quantize(sides[0], exact, rows, meta(32, 3, dtype=torch.int64))]
    return found


def others(chip: Chip, dtype: torch.dtype, D: int) -> dict[str, list[Launch]]:
    """Row kernels, product and draw."""
    x, wide, pages = meta(32, 4096, dtype=dtype), meta(32, 28672, dtype=dtype), meta(9000, C, K, D, dtype=dtype)
    q, k, table = meta(32, H, D, dtype=dtype), meta(32, K, D, dtype=dtype), meta(32, 1, D, dtype=torch.float32)
    logits, ids, floats = meta(32, 128256, dtype=torch.float32), meta(32, dtype=torch.int64), meta(32, dtype=torch.float32)
    weight = meta(4096, dtype=dtype)
    return {
        "rotate and write": [plan_rope_write(q, k, k, table, table, pages, pages, ids, torch.empty_like(q))],
        "norm": [plan_rmsnorm(x, None, weight, 1e-5, torch.empty_like(x), None)],
        "add and norm": [plan_rmsnorm(x, torch.empty_like(x), weight, 1e-5, torch.empty_like(x), torch.empty_like(x))],
        "SwiGLU": [plan_swiglu(wide, meta(32, 14336, dtype=dtype))],
        "softmax": [plan_softmax(logits, torch.empty_like(logits))],
        "batch-invariant product": [plan_linear(x, meta(4096, 4096, dtype=dtype), torch.empty_like(x), **LINEAR)],
        "draw": plan_draw(logits, floats, ids, floats, torch.empty_like(ids)),
        "draw behind filters": [plan_filtered_draw(meta(32, 128256, dtype=dtype), meta(32, 5, dtype=torch.float64), ids)],
        "draw behind filters, with a penalty": [plan_filtered_draw(logits.to(torch.float64), meta(32, 5, dtype=torch.float64), ids)],
    }


def few(capability: int) -> dict[str, list[Launch]]:
    """What differs on the smaller chips of a generation: 99 KiB of shared memory, no wgmma on 12.0, e4m3 in hardware on 8.9."""
    chip, dtype = Chip.known(capability), torch.bfloat16
    found = {"prefill, D = 256": attention(chip, dtype, 256, 4096, 2), "tree, D = 256": attention(chip, dtype, 256, 128, 4, tree=True)}
    if capability == 89:
        return {"decode, D = 256": attention(chip, dtype, 256, 32, 32), "decode over e4m3": quantized(chip, dtype, 128)["decode over e4m3"]}
    if capability == 120:
        found |= {"prefill, D = 192": attention(chip, dtype, 192, 4096, 2), "prefill": attention(chip, dtype, 128, 4096, 2)}
        found |= {"decode, D = 256": attention(chip, dtype, 256, 32, 32)}
    return found


def launches(capability: int) -> dict[str, Launch]:
    """Name -> launch: every kernel with heads of 64 and 128 in each 16-bit precision of the chip; some of it at 8, 80, 96, 256, and in fp32."""
    chip = Chip.known(capability)
    if capability in (86, 89, 120):
        return named(few(capability))
    dtype = torch.bfloat16 if chip.bf16 else torch.float16
    found = {}
    for precision in (dtype, torch.float16)[: 1 + chip.bf16]:
        half = "" if precision == dtype else " in fp16"
        for D in (128, 64):
            kinds = attention_kinds(chip, precision, D) | quantized(chip, precision, D) | {"behind a prefix": cascade(chip, precision, D)[:1]}
            rows = others(chip, precision, D)
            kinds |= rows if D == 128 else {"rotate and write": rows["rotate and write"]}  # the other rows know no heads
            found |= {f"{name}{half}{'' if D == 128 else f', D = {D}'}": group for name, group in kinds.items()}
    wide = {k: attention_kinds(chip, dtype, 256)[k] for k in ("decode", "prefill", "prefill, window", "tree")} | {
        k: v for k, v in quantized(chip, dtype, 256).items() if k in ("decode over int8", "decode over e4m3")
    }
    found |= {f"{name}, D = 256": group for name, group in wide.items()}
    found["decode in fp32, D = 256"] = attention(chip, torch.float32, 256, 32, 32)
    for wide, precision in ((256, dtype), (128, torch.float32), (256, torch.float32)):
        exact = attention_blocks(wide, precision, chip)
        found[f"batch-invariant in {precision}, D = {wide}"] = attention(chip, precision, wide, 128, 4, **exact)[:1]
    found["decode, D = 80"] = attention(chip, dtype, 80, 32, 32)[:1]
    found["prefill, D = 96"] = attention(chip, dtype, 96, 4096, 2)[:1]
    found["decode, D = 8"] = attention(chip, dtype, 8, 32, 32)
    found["decode in fp32"] = attention(chip, torch.float32, 128, 32, 32)
    return named(found)


def named(found: dict[str, list[Launch]]) -> dict[str, Launch]:
    """The same, a launch each."""
    return {f"{name} ({launch.kernel.__name__})": launch for name, group in found.items() for launch in group}


def for_amd(arch: str) -> list[dict[str, object]]:
    """A few kernels as a chip of AMD's gets them, by its compiler in Triton's wheel: whether matrix cores are used, shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    chip, dtype, found = Chip(0, 104, 64 * 1024), torch.float16, []
    kinds = {
        "decode": attention(chip, dtype, 128, 32, 32), "prefill": attention(chip, dtype, 64, 256, 2)[:1], "decode, D = 8": attention(chip, dtype, 8, 32, 32)[:1],
        "batch-invariant product": others(chip, dtype, 128)["batch-invariant product"],
    }  # fmt: skip
    for name, group in kinds.items():
        for launch in group:
            options = {"num_warps": launch.warps, "num_stages": launch.stages}
            done = triton.compile(ASTSource(launch.kernel, *described(launch)), target=GPUTarget("hip", arch, 64), options=options)
            found.append({"name": f"{name} ({launch.kernel.__name__})", "mfma": "v_mfma" in done.asm["amdgcn"], "shared": done.metadata.shared})
    return found


if __name__ == "__main__":
    if sys.argv[1].startswith("gfx"):
        print(*map(json.dumps, for_amd(sys.argv[1])), sep="\n")
        sys.exit()
    capability = int(sys.argv[1])
    wanted = sys.argv[2:]
    for name, launch in launches(capability).items():
        if not wanted or any(word in name for word in wanted):
            used = asdict(compile_ahead(launch, capability))
            text = used.pop("assembly")
            product = next((word for word in ("wgmma", "tcgen05.mma", "mma.sync") if word in text), "fma")
            blocks = {k: v for k, v in launch.constants.items() if k.startswith("BLOCK")}
            print(json.dumps({"name": name, **used, "product": product, "blocks": blocks, "warps": launch.warps, "stages": launch.stages}), flush=True)

"""Random steps over shuffled pages whose unused places are full of NaN: what every attention law is tried on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvedu.kernels.paged_attention import PagedLayout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float16, torch.float32]
"""What every law is tried in; bf16 too where there is a GPU that has it (the interpreter's products in it are garbage)."""
if DEVICE == "cuda" and torch.cuda.get_device_capability() >= (8, 0):
    DTYPES.append(torch.bfloat16)


@dataclass(frozen=True)
class Scene:
    """Queries, pages, layout, and each sequence's keys and values side by side."""

    q: Tensor
    k: Tensor
    v: Tensor
    layout: PagedLayout
    dense: list[tuple[Tensor, Tensor]]

    @property
    def exact(self) -> "Scene":
        """The same in fp32."""
        return Scene(self.q.float(), self.k.float(), self.v.float(), self.layout, self.dense)


def make_scene(
    spec, H=4, K=2, D=32, C=16, *, DV=None, dtype=torch.float16, seed=0, parents=(), window=None, stretch=1, spare=3
) -> Scene:
    """Sequences of (new, committed) tokens; ``stretch`` > 1 leaves gaps of NaN between pages, tokens, heads and queries."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-(new + old) // C) for new, old in spec]
    order = torch.randperm(sum(needed) + spare, generator=generator).tolist()
    DV = DV or D
    k, v = (hollow((len(order), C, K, width), dtype, stretch) for width in (D, DV))
    tables, rows, first, dense = [], [], 0, []
    for (new, old), n in zip(spec, needed):
        tables.append([order.pop() for _ in range(n)])
        rows.append((first, new, old))
        first += new
        k_SKD, v_SKD = (torch.randn(old + new, K, width, generator=generator).to(dtype) for width in (D, DV))
        place = torch.arange(old + new)
        pages = torch.tensor(tables[-1])[place // C]
        k[pages, place % C], v[pages, place % C] = k_SKD, v_SKD
        dense.append((k_SKD, v_SKD))
    q = hollow((first, H, D), dtype, stretch)
    q.copy_(torch.randn(first, H, D, generator=generator))
    return Scene(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), PagedLayout.of(tables, rows, parents, window, DEVICE), dense)


def hollow(shape, dtype, stretch):
    """NaN everywhere; with ``stretch`` every axis but the last has room around it."""
    room = [n * stretch + (stretch > 1) for n in shape[:-1]] + [shape[-1] + 8 * (stretch > 1)]
    x = torch.full(room, torch.nan, dtype=dtype)
    return x[tuple(slice(0, n * stretch, stretch) for n in shape[:-1])][..., : shape[-1]]

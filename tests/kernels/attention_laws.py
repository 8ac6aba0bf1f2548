"""What every attention kernel must keep, as functions of the kernel: so that a broken copy can be put in its place."""

from typing import Callable

import torch
from scenes import Scene

from kvedu.kernels.attention import attention_grouped
from kvedu.kernels.paged_attention import _visible, paged_attention_reference

Run = Callable[..., torch.Tensor]


def law_equals_definition(run: Run, scene: Scene, window: int | None = None, **blocks) -> None:
    """Error against fp32 at most twice that of plain attention in the scene's own precision; fp32 within 1e-5 (C093)."""
    got = run(scene.q, scene.k, scene.v, scene.layout, window, **blocks).float()
    exact = paged_attention_reference(*(x.float().cpu() for x in (scene.q, scene.k, scene.v)), scene.layout.to("cpu"), window)
    allowed = 1e-5 if scene.q.dtype == torch.float32 else 2 * (plain(scene, window) - exact).abs().max().item()
    error = (got.cpu() - exact).abs().max().item()
    assert error <= allowed, f"off by {error:.2e}, {allowed:.2e} are allowed"


def plain(scene: Scene, window: int | None) -> torch.Tensor:
    """The same step by PyTorch in the scene's precision, sequence by sequence."""
    outs, layout = [], scene.layout.to("cpu")
    for (first, new, old), (k_SKD, v_SKD) in zip(layout.rows.tolist(), scene.dense):
        seen_BTS = _visible(layout, first, new, old, window)[None]
        q_BTHD = scene.q[first : first + new][None].cpu()
        outs.append(attention_grouped(q_BTHD, k_SKD.transpose(0, 1)[None], v_SKD.transpose(0, 1)[None], seen_BTS)[0])
    return torch.cat(outs).float()

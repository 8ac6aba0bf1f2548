"""A linear map whose weight lies in panels of 32 outputs, as the CPU's vector units read it; bf16 or fp32.

The kernel is ``native/linear.cpp``. Each output is one chain of sums in a fixed order, whatever
the number of rows: a row gives the same bits alone and in any batch. For one row the weight
streams through once, which is all that a decode step can hope for; for many rows a panel stays in
a core's cache while the rows go by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.kernels.arena import Arena

PANEL = 32


def panels_pay(dtype: torch.dtype, device: torch.device | str = "cpu") -> bool:
    """Whether panels are the fastest layout here: on a CPU with the native kernels, in bf16 only without matrix tiles (AMX).

    With AMX, oneDNN's bf16 products of many rows are several times what a dot product can do.
    """
    if dtype not in (torch.bfloat16, torch.float32) or torch.device(device).type != "cpu":
        return False
    if dtype == torch.bfloat16 and "amx_bf16" in native.cpu_features():
        return False
    return not isinstance(native.library(), native.Unavailable)


def step(dtype: torch.dtype) -> int:
    """Inputs that lie side by side in a panel: what a lane of a register takes at once."""
    return 2 if dtype == torch.bfloat16 else 1


class PanelWeight:
    """A weight ``[out, in]`` (``in`` even in bf16) in panels, for ``x W^T``; made once, read by the kernel, given back by ``plain``.

    ``gated`` weights are gate and up of a SwiGLU, one after the other, ``[2F, in]``: each panel holds
    16 rows of the gate and the same 16 of up, so that their product is taken in registers.
    """

    def __init__(self, weight_OI: Tensor, *, gated: bool = False, arena: Arena | None = None) -> None:
        self.n_out, self.n_in = weight_OI.shape
        self.gated = gated
        if gated:
            self.n_out //= 2
            gate, up = (_padded(part, PANEL // 2).unflatten(0, (-1, PANEL // 2)) for part in weight_OI.chunk(2))
            rows = torch.cat((gate, up), dim=1)
        else:
            rows = _padded(weight_OI, PANEL).unflatten(0, (-1, PANEL))
        panels = rows.unflatten(-1, (-1, step(rows.dtype))).transpose(1, 2)  # [panels, in / step, 32, step]
        take = torch.empty if arena is None else arena.take
        self.panels = take(tuple(panels.shape), dtype=panels.dtype).copy_(panels)

    def plain(self) -> Tensor:
        """The weight as it came, bit for bit."""
        rows = self.panels.transpose(1, 2).flatten(2)  # [panels, 32, in]
        if not self.gated:
            return rows.flatten(0, 1)[: self.n_out].contiguous()
        halves = rows.unflatten(1, (2, PANEL // 2)).transpose(0, 1).flatten(1, 2)  # [2, F padded, in]
        return halves[:, : self.n_out].flatten(0, 1).contiguous()

    def bias(self, bias_O: Tensor) -> Tensor:
        """A bias in the order of the panels, padded with zeros."""
        if not self.gated:
            return _padded(bias_O, PANEL)
        return torch.cat([_padded(part, PANEL // 2).unflatten(0, (-1, PANEL // 2)) for part in bias_O.chunk(2)], 1).flatten()


def _padded(x: Tensor, multiple: int) -> Tensor:
    missing = -len(x) % multiple
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def panel_linear(
    x_NI: Tensor, weight: PanelWeight, bias: Tensor | None = None, residual_NO: Tensor | None = None
) -> Tensor:
    """``x W^T + b`` (+ residual, before the one rounding), or ``silu(x G^T) * (x U^T)`` of a gated weight: ``[N, out]``.

    ``x_NI`` is ``[N, in]`` in the weight's dtype; ``bias`` comes from ``weight.bias``; a gated weight takes no residual.
    """
    if x_NI.dtype is not weight.panels.dtype:
        raise ValueError(f"the weight is {weight.panels.dtype}, x is {x_NI.dtype}; convert one of them")
    N = x_NI.shape[0]
    x_NI, y_NO = x_NI.contiguous(), x_NI.new_empty((N, weight.n_out))
    if residual_NO is not None:
        residual_NO = residual_NO.contiguous()
    native.library().kvedu_linear(
        weight.panels.dtype is torch.float32, x_NI.data_ptr(), weight.panels.data_ptr(), None if bias is None else bias.data_ptr(),
        None if residual_NO is None else residual_NO.data_ptr(), y_NO.data_ptr(),
        N, weight.n_in, weight.n_out, weight.gated, torch.get_num_threads(),
    )  # fmt: skip
    return y_NO

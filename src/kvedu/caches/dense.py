"""Attention for caches that can hand out a sequence's keys and values as dense tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.caches.view import View
from kvedu.kernels.attention import attention_grouped


class DenseView(View):
    """One attention call per sequence over ``[S, K, D]`` keys and values, by the fast path."""

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        window = self.window(layer)
        outs = []
        for row in self.rows:
            k_BKSD, v_BKSD = (x_SKD.transpose(0, 1)[None] for x_SKD in self.cache._read(layer, row.seq, row.total))
            sees_all = row.count == 1 and not window
            causal = row.start == 0 and row.parents is None and not window
            mask = None if sees_all or causal else self.visible(row, window)[None]
            outs.append(attention_grouped(q_NHD[row.rows][None], k_BKSD, v_BKSD, mask, causal=causal)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs)

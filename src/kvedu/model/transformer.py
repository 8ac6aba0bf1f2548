"""A Llama-family transformer that knows nothing about caches: it is handed a view and fills it.

All tensors of a step are ragged: N new tokens of any sequences, one row each. A rectangular
batch is the special case that every sequence brings the same number.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from kvedu.caches.view import View
from kvedu.config import ModelConfig
from kvedu.errors import RequestError
from kvedu.kernels.arena import Arena
from kvedu.kernels.packed_linear import packing_pays
from kvedu.kernels.panel_linear import PANEL
from kvedu.model.attention import Attention
from kvedu.model.attention_latent import LatentAttention
from kvedu.model.experts import Experts
from kvedu.model.fused_decode import fused_hidden, fuses
from kvedu.model.layers import Linear, Mlp, RMSNorm


class Embedding(nn.Module):
    """Token id to vector: ``[V, M]`` rows."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width))

    def forward(self, ids_N: Tensor) -> Tensor:
        return embedding(ids_N, self.weight)


class Block(nn.Module):
    """One layer: ``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.M, config.norm_eps)
        self.attn = Attention(config, layer) if config.latent is None else LatentAttention(config, layer)
        self.mlp_norm = RMSNorm(config.M, config.norm_eps)
        self.mlp = Experts(config) if config.has_experts(layer) else Mlp(config)

    def forward(self, x_NM: Tensor, view: View) -> Tensor:
        x_NM = self.attn(self.attn_norm(x_NM), x_NM, view)
        return self.mlp(self.mlp_norm(x_NM), x_NM)


class Transformer(nn.Module):
    """Embedding, L blocks, a norm and the output head (the embedding itself when ``config.tied``)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config.V, config.M)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.L))
        self.norm = RMSNorm(config.M, config.norm_eps)
        self.head = Linear(config.M, config.V)
        self.tokenizer = None
        if config.tied:
            self.tie()

    def tie(self) -> None:
        """Make the head use the embedding's own matrix."""
        self.head.weight = self.embed.weight

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the weights."""
        return self.embed.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.weight.device

    def forward(self, ids_N: Tensor, view: View, rows: Tensor | None = None) -> Tensor:
        """Logits ``[R, V]`` of the chosen rows (all N if None) of one step.

        ``ids_N`` are the step's token ids in the view's order. Keys and values go into the
        view's cache; logits of a sequence's next token are those of its last row
        (``view.last_rows``). Cost: ``analysis.flops``.
        """
        x_NM = self.hidden(ids_N, view)
        return self.logits(x_NM if rows is None else x_NM[rows])

    def hidden(self, ids_N: Tensor, view: View, *, fused: bool | None = None) -> Tensor:
        """Output of the last block, before the final norm: ``[N, M]``. ``fused`` as for ``tapped``."""
        x_NM = self._embed(ids_N, view)
        if fuses(self, fused):
            return fused_hidden(self, x_NM, view)[0]
        for block in self.layers:
            x_NM = block(x_NM, view)
        return x_NM

    def tapped(self, ids_N: Tensor, view: View, taps: Sequence[int], *, fused: bool | None = None) -> tuple[Tensor, Tensor]:
        """``hidden``, and the outputs of the blocks ``taps`` side by side, ``[N, len(taps) M]``: what a draft head reads.

        Blocks are counted from 1; block ``config.L`` gives ``hidden`` itself. ``fused``: by ``fused_blocks``, fewer passes over memory;
        None: on a GPU, where nobody wants gradients. Raises ``RequestError`` for a block that is not there.
        """
        if any(not 1 <= tap <= self.config.L for tap in taps):
            raise RequestError(f"blocks are counted from 1 to {self.config.L}; asked for the outputs of {list(taps)}")
        if not taps:
            x_NM = self.hidden(ids_N, view) if fused is None else self.hidden(ids_N, view, fused=fused)
            return x_NM, x_NM[:, :0]
        x_NM, outputs = self._embed(ids_N, view), {}
        if fuses(self, fused):
            x_NM, outputs = fused_hidden(self, x_NM, view, taps)
        else:
            for number, block in enumerate(self.layers, 1):
                x_NM = outputs[number] = block(x_NM, view)
        return x_NM, torch.cat([outputs[tap] for tap in taps], dim=-1)

    def _embed(self, ids_N: Tensor, view: View) -> Tensor:
        if len(ids_N) != len(view.positions):
            raise RequestError(f"the step is laid out for {len(view.positions)} tokens, got {len(ids_N)} ids")
        return self.embed(ids_N)

    def logits(self, hidden_RM: Tensor) -> Tensor:
        """Final norm and head: ``[R, V]``, in the model's dtype."""
        return self.head(self.norm(hidden_RM))

    def pack(self) -> Transformer:
        """Switch to the fast CPU path: linear weights in a layout made for this CPU, where that pays.

        The same maths by the same class; the plain weights are let go (``unpack`` brings them
        back), except a tied embedding, which is still looked up row by row. Nothing happens
        where the layout does not exist. Returns the model.
        """
        if packing_pays(self.dtype, self.device):
            linears = [m for m in self.modules() if isinstance(m, Linear) and m.packed is None]
            arena = Arena(sum((m.n_out + 2 * PANEL) * m.n_in * self.dtype.itemsize for m in linears))
            for module in linears:
                module.pack(keep_weight=module is self.head and self.config.tied, arena=arena)
        return self

    def unpack(self) -> Transformer:
        """Undo ``pack``: plain, trainable weights again."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.unpack()
        return self

    def tensors(self) -> list[Tensor]:
        """Every tensor that the model holds, packed ones included (a packed one has no storage of its own to ask)."""
        packed = [t for m in self.modules() if isinstance(m, Linear) and m.packed is not None for t in m.packed.tensors]
        return [*self.parameters(), *packed]

    @property
    def nbytes(self) -> int:
        """Bytes of the weights held, a shared matrix counted once."""
        return sum(t.numel() * t.element_size() for t in {id(t): t for t in self.tensors()}.values())

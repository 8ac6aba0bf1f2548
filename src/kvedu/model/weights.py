"""The weight plan: which tensors of a checkpoint make each parameter of the model, and nothing left over.

Names of a checkpoint are Hugging Face's (GGUF files are renamed first). Q, K and V
are stacked into one matrix and so are gate and up: one matrix product instead of
three, and of two. Strict both ways: a parameter without its tensors, a tensor
without a parameter and a shape that does not fit are errors with names.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable, Mapping

import torch
from torch import Tensor

from kvedu.config import ModelConfig
from kvedu.errors import LoadError
from kvedu.model.weight_parts import Part, Shape
from kvedu.model.weights_experts import expert_plan
from kvedu.model.weights_latent import latent_plan

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_LEFTOVERS = (".rotary_emb.inv_freq",)
"""Endings of tensors that old checkpoints hold and no model needs: the config gives RoPE's frequencies."""
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def plan(config: ModelConfig) -> dict[str, tuple[Part, ...]]:
    """For every parameter of the model, the checkpoint's tensors that are stacked (first axis) to make it.

    Biases follow the config. A tied head has no entry: it is the embedding.
    """
    M, F, V = config.M, config.F, config.V
    made = {"embed.weight": (Part(EMBEDDING, (V, M)),), "norm.weight": (Part("model.norm.weight", (M,)),)}
    if not config.tied:
        made["head.weight"] = (Part(HEAD, (V, M)),)

    def linear(target: str, source: str, rows: dict[str, int], columns: int, bias: bool) -> None:
        names = {f"{source}.{name}": n for name, n in rows.items()}
        made[f"{target}.weight"] = tuple(Part(f"{name}.weight", (n, columns)) for name, n in names.items())
        if bias:
            made[f"{target}.bias"] = tuple(Part(f"{name}.bias", (n,)) for name, n in names.items())

    for i in range(config.L):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"
        made[f"{ours}.attn_norm.weight"] = (Part(f"{theirs}.input_layernorm.weight", (M,)),)
        made[f"{ours}.mlp_norm.weight"] = (Part(f"{theirs}.post_attention_layernorm.weight", (M,)),)
        attn, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
        value_width = config.D if config.latent is None else config.latent.value_width
        linear(f"{ours}.attn.out", attn, {"o_proj": M}, config.H * value_width, config.out_bias)
        width, to, inside = F, f"{ours}.mlp", mlp
        if config.has_experts(i):
            made |= expert_plan(config, to, mlp)
            width, to, inside = config.experts.width * config.experts.shared, f"{to}.shared", f"{mlp}.shared_experts"
        if width:
            linear(f"{to}.gate_up", inside, {"gate_proj": width, "up_proj": width}, M, config.mlp_bias)
            linear(f"{to}.down", inside, {"down_proj": M}, width, config.mlp_bias)
        if config.latent is not None:
            made |= latent_plan(config, f"{ours}.attn", attn)
            continue
        heads = {"q_proj": config.H} | ({"k_proj": config.K, "v_proj": config.K} if config.reads_own(i) else {})
        linear(f"{ours}.attn.qkv", attn, {name: n * config.D for name, n in heads.items()}, M, config.qkv_bias)
        if config.qk_norm:
            for norm in ("q_norm", "k_norm")[: 2 if config.reads_own(i) else 1]:
                made[f"{ours}.attn.{norm}.weight"] = (Part(f"{attn}.{norm}.weight", (config.D,)),)
    return made


def state_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Name and shape of every parameter that ``assemble`` makes."""
    return {
        target: (sum(part.made[0] for part in parts), *parts[0].made[1:]) for target, parts in plan(config).items()
    }


def check_shapes(config: ModelConfig, found: Mapping[str, Shape]) -> None:
    """Compare a checkpoint's names and shapes with the plan, before any weight is read.

    Raises ``LoadError`` naming what is missing, what is left over, or what has another shape.
    A head beside tied embeddings is let through here; ``assemble`` compares its values.
    """
    wanted = {part.name: part.shape for parts in plan(config).values() for part in parts}
    allowed = wanted | ({HEAD: wanted[EMBEDDING]} if config.tied else {})
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        hint = ""
        if HEAD in missing:
            hint = "; the config does not tie the head to the embedding, so the file must hold one"
        raise LoadError(f"the checkpoint lacks {_some(missing)}{hint}")
    extra = sorted(name for name in found.keys() - allowed.keys() if not name.endswith(_LEFTOVERS))
    if extra:
        raise LoadError(
            f"the checkpoint holds {_some(extra)}, which a {config.family} model with this config has no place for; "
            "loading without them would give another model"
        )
    for name in sorted(found.keys() & allowed.keys()):
        if tuple(found[name]) != allowed[name]:
            raise LoadError(
                f"{name} has shape {list(found[name])}, the config asks for {list(allowed[name])}: "
                "file and config belong to different models"
            )


def assemble(
    config: ModelConfig, found: Mapping[str, Shape], read: Callable[[str], Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """The model's state: every parameter of ``plan``, contiguous, in ``dtype``.

    ``found`` gives all names and shapes of the checkpoint, ``read`` one tensor by name.
    Raises ``LoadError`` as ``check_shapes`` does; also for a tied head that differs from
    the embedding, for integer (quantized) tensors and for values that ``dtype`` cannot hold.
    Cost: one read of the checkpoint, one write of the state, on a few threads (dequantizing is work);
    peak memory is the state plus a few parameters.
    """
    check_shapes(config, found)
    if config.tied and HEAD in found and not torch.equal(read(HEAD), read(EMBEDDING)):
        raise LoadError(
            f"the config ties head and embedding, yet {HEAD} differs from {EMBEDDING}; "
            "set tie_word_embeddings to false in config.json if the head is meant"
        )
    def make(parts: tuple[Part, ...]) -> Tensor:
        pieces = [part.of(converted(part.name, read(part.name), dtype)) for part in parts]
        return pieces[0].contiguous() if len(pieces) == 1 else torch.cat(pieces)

    made = plan(config)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return dict(zip(made, pool.map(make, made.values())))


def converted(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in ``dtype``; the tensor itself if it is so already.

    Raises ``LoadError`` for integer (quantized) tensors and for values that fp16 cannot hold.
    """
    if tensor.dtype not in _FLOATS:
        raise LoadError(f"{name} is stored as {tensor.dtype}; kvedu reads fp32, fp16, bf16 and fp64 weights")
    made = tensor.to(dtype)
    if dtype is torch.float16 and tensor.dtype is not dtype and not torch.isfinite(made).all():
        raise LoadError(f"{name} has values beyond fp16's 65,504; load with dtype=torch.float32 or torch.bfloat16")
    return made


def _some(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

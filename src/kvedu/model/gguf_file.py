"""A GGUF file: metadata as plain values, tensors dequantized and under Hugging Face names.

Files of the ``llama`` architecture store the rows of Q and K in another order:
neighbors rotate together there, halves do here. ``unpermute`` puts them right,
with the number of query heads for Q and of KV heads for K. The ``qwen`` files keep
the half-split order.

Sources: ggml ``docs/gguf.md`` (format, names), llama.cpp ``convert_hf_to_gguf.py``
(the permutation), the ``gguf`` package (reading, dequantization).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from kvedu.config import ModelConfig
from kvedu.config_gguf import config_from_gguf
from kvedu.errors import LoadError
from kvedu.model.weights import EMBEDDING, HEAD

_TOP = {"token_embd.weight": EMBEDDING, "output_norm.weight": "model.norm.weight", "output.weight": HEAD}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class GgufFile:
    """A GGUF checkpoint: ``metadata``, ``config``, ``shapes`` by Hugging Face name, ``read`` one tensor.

    Raises ``LoadError`` for a file that is no GGUF, is cut short or is one part of a
    split model, and ``ConfigError`` for an architecture or a setting that kvedu does not know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        reader = _open(path)
        self.metadata: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
        if self.metadata.get("split.count", 1) > 1:
            raise LoadError(f"{path} is one of {self.metadata['split.count']} parts; merge them with llama-gguf-split first")
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        factors = tensors.pop(_ROPE_FACTORS, None)
        self.config: ModelConfig = config_from_gguf(
            self.metadata,
            tied="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            rope_factors=None if factors is None else factors.data.astype("float64").tolist(),
        )
        self._tensors = {hugging_face_name(name): tensor for name, tensor in tensors.items()}
        # GGUF lists dimensions fastest first; shapes here are rows first.
        self.shapes = {name: tuple(int(n) for n in reversed(tensor.shape)) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        """One tensor in fp32, Q and K in half-split order. Raises ``LoadError`` for a quantization gguf cannot undo."""
        tensor = self._tensors[name]
        try:
            values = gguf.quants.dequantize(np.asarray(tensor.data), tensor.tensor_type)
        except NotImplementedError as error:
            raise LoadError(f"{tensor.name} in {self.path} is {tensor.tensor_type.name}: {error}") from error
        values_DM = torch.from_numpy(values if values.flags.writeable else values.copy()).float()
        if self.config.family != "llama":
            return values_DM
        module = name.rsplit(".", 1)[0]
        if module.endswith("self_attn.q_proj"):
            return unpermute(values_DM, self.config.n_heads)
        if module.endswith("self_attn.k_proj"):
            return unpermute(values_DM, self.config.n_kv_heads)
        return values_DM


def hugging_face_name(name: str) -> str:
    """``blk.3.attn_q.weight`` as ``model.layers.3.self_attn.q_proj.weight``; unknown names stay as they are."""
    if name in _TOP:
        return _TOP[name]
    match name.split("."):
        case ["blk", layer, part, ("weight" | "bias") as kind] if part in _IN_LAYER and layer.isdigit():
            return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"
    return name


def permute(rows: Tensor, n_heads: int) -> Tensor:
    """Half-split row order to GGUF's: row j and row j + D/2 of a head become neighbors 2j and 2j + 1.

    ``rows`` is ``[n_heads * D, …]``, a weight or a bias.
    """
    halves = rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def unpermute(rows: Tensor, n_heads: int) -> Tensor:
    """GGUF's row order to half-split, the inverse of ``permute`` with the same number of heads."""
    pairs = rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _open(path: Path) -> gguf.GGUFReader:
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise LoadError(f"{path} is not a GGUF file: it does not start with the letters GGUF")
        return _QuickReader(path)
    except LoadError:
        raise
    except (ValueError, IndexError, KeyError, struct.error, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise LoadError(
            f"{path} is damaged or cut short ({path.stat().st_size} bytes): {error}; download it again"
        ) from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error}") from error


class _QuickReader(gguf.GGUFReader):
    """gguf's reader, with long arrays read in one go instead of one NumPy view per element.

    A vocabulary of 49,152 tokens and its merges take the plain reader over two seconds.
    """

    def _get_field_parts(self, orig_offs: int, raw_type: int, *rest: Any) -> Any:
        """Size in bytes, parts, which parts are data, types: what gguf's reader wants of one field."""
        array, string = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING
        if raw_type != array or self.byte_order != "I":
            return super()._get_field_parts(orig_offs, raw_type, *rest)
        item_raw, length = self._get(orig_offs, "uint32"), self._get(orig_offs + 4, "uint64")
        item, count, start = gguf.GGUFValueType(item_raw[0]), int(length[0]), orig_offs + 12
        if item in self.gguf_scalar_to_np:
            values = self._get(start, self.gguf_scalar_to_np[item], count)
            if len(values) < count:
                raise ValueError(f"an array of {count} values ends after {len(values)}")
            return 12 + values.nbytes, [item_raw, length, values], [2], [array, item]
        if item != string:
            return super()._get_field_parts(orig_offs, raw_type, *rest)
        whole, at, strings = memoryview(self.data), start, []
        for _ in range(count):
            (size,) = struct.unpack_from("<Q", whole, at)
            strings.append(whole[at + 8 : at + 8 + size])
            at += 8 + size
        return at - orig_offs, [item_raw, length, *strings], range(2, 2 + count), [array, string]

"""The memory formula against caches that exist: what they hold, to the byte, for published shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import tiny_config

from kvedu.analysis.known_models import known_model, known_models
from kvedu.analysis.memory import kv_bytes_per_token, kv_bytes_per_token_per_layer, kv_cache_bytes
from kvedu.analysis.shape import AttentionShape
from kvedu.caches.concat import ConcatCache
from kvedu.caches.contract import Cache
from kvedu.caches.static import StaticCache
from kvedu.config import ModelConfig
from kvedu.errors import ConfigError
from kvedu.model.transformer import Transformer
from kvedu.units import GB, GiB, binary, decimal

RUNNABLE = [known.name for known in known_models() if known.config]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def filled(config: ModelConfig, tokens: int, dtype: torch.dtype, kind: type[Cache], layers: int | None = None) -> Cache:
    """A cache of ``layers`` layers that took in ``tokens`` tokens of one sequence, in two steps, and is then full."""
    size = {"max_length": tokens} if kind is StaticCache else {}
    cache = kind(config, dtype=dtype, n_layers=layers, **size)
    seq = cache.add()
    for count in (tokens - 1, 1) if tokens > 1 else (1,):
        with cache.step({seq: count}) as view:
            for layer in range(cache.n_layers):
                k_NKD, v_NKD = torch.randn(2, count, config.K, config.D)
                view.append(layer, k_NKD, v_NKD)
    return cache


def held(cache: Cache) -> int:
    """Bytes of all tensors that hang from a cache, found without asking it; each storage once."""
    storages: dict[int, int] = {}
    todo: list[object] = [vars(cache)]
    while todo:
        thing = todo.pop()
        if isinstance(thing, torch.Tensor):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, list | tuple):
            todo += thing
    return sum(storages.values())


@pytest.mark.parametrize("kind", [ConcatCache, StaticCache])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("H, K, D", [(9, 9, 64), (9, 3, 64), (9, 1, 64), (4, 2, 6), (1, 1, 2)])
def test_formula_is_what_a_cache_holds(kind: type[Cache], dtype: torch.dtype, H: int, K: int, D: int) -> None:
    config = tiny_config(H=H, K=K, D=D, L=3)
    for tokens in (1, 2, 13):
        cache = filled(config, tokens, dtype, kind)
        assert cache.nbytes == held(cache) == kv_cache_bytes(config, tokens, bytes_per_element=dtype.itemsize)


@pytest.mark.parametrize("name", RUNNABLE)
def test_published_shapes(name: str) -> None:
    """C033, C035: one layer at the model's own width, and all its layers."""
    config = known_model(name).config
    assert filled(config, 3, torch.bfloat16, StaticCache, layers=1).nbytes == 3 * kv_bytes_per_token_per_layer(config)
    assert filled(config, 3, torch.bfloat16, ConcatCache).nbytes == 3 * kv_bytes_per_token(config)


@pytest.mark.parametrize("kind", [ConcatCache, StaticCache])
def test_a_batch_and_its_places(kind: type[Cache]) -> None:
    """A static cache holds all its places, taken or not; a growing one what came."""
    config = tiny_config()
    size = {"max_sequences": 5, "max_length": 11} if kind is StaticCache else {}
    cache = kind(config, dtype=torch.bfloat16, **size)
    assert cache.nbytes == held(cache) == (kv_cache_bytes(config, 11, 5) if size else 0)
    for tokens in (4, 7):
        with cache.step({cache.add(): tokens}) as view:
            for layer in range(config.L):
                view.append(layer, *torch.randn(2, tokens, config.K, config.D))
    want = kv_cache_bytes(config, 11, 5) if size else kv_cache_bytes(config, 4) + kv_cache_bytes(config, 7)
    assert cache.nbytes == held(cache) == want


def test_head_size_is_given_not_derived() -> None:
    """C033: Qwen3-4B's 32 heads of 128 are wider than its 2,560; width / heads would give 92,160 bytes per token."""
    config = known_model("Qwen3-4B").config
    assert (config.L, config.M, config.H, config.K, config.D) == (36, 2560, 32, 8, 128)
    assert kv_bytes_per_token(config) == 147_456
    cache = filled(config, 2, torch.bfloat16, ConcatCache)
    assert cache.nbytes == 2 * 147_456 and binary(cache.nbytes // 2, 0) == "144 KiB"
    slip = 2 * config.L * config.K * (config.M // config.H) * 2
    assert slip == 92_160 != cache.nbytes // 2
    with torch.device("meta"):
        attn = Transformer(replace(config, n_layers=1)).layers[0].attn
    assert attn.out.weight.shape == (2560, 4096)
    assert attn.qkv.weight.shape == (4096 + 2 * 1024, 2560)


@pytest.mark.parametrize(("kv_heads", "right", "slip"), [(8, 4096, 2048), (4, 2048, 4096)])
def test_kv_heads_are_not_queries_per_kv_head(kv_heads: int, right: int, slip: int) -> None:
    """C035: 32 heads in fp16, one layer; the estimator is called with the model's own config."""
    config = tiny_config(H=32, K=kv_heads, D=128, L=1)
    assert kv_bytes_per_token(config) == right
    assert filled(config, 5, torch.float16, StaticCache).nbytes == 5 * right
    assert 2 * config.G * config.D * 2 == slip != right


def test_shapes_that_mix_them_up_are_refused_where_they_can_be() -> None:
    """C035: 9 KV heads' worth of groups in a model with 12 heads cannot be; the message says which is which."""
    with pytest.raises(ConfigError, match="KV heads.*not queries per KV head"):
        AttentionShape(n_layers=1, n_heads=12, n_kv_heads=9, head_dim=8)


def test_units_are_named() -> None:
    """C036: 80 layers, 32,768 tokens, bf16: 10.00 GiB is 10.74 GB; MHA is 8 times that; one layer shows it for real."""
    gqa, mha = AttentionShape(80, 64, 8, 128), AttentionShape(80, 64, 64, 128)
    total = kv_cache_bytes(gqa, 32_768)
    assert total == 10_737_418_240 == 10 * GiB != 10 * GB
    assert (binary(total), decimal(total)) == ("10.00 GiB", "10.74 GB")
    assert binary(kv_cache_bytes(mha, 32_768)) == "80.00 GiB"
    assert kv_cache_bytes(mha, 32_768) == 8 * total
    llama = known_model("Llama-3-70B").config
    layer = StaticCache(llama, max_length=32_768 // 64, dtype=torch.bfloat16, n_layers=1)
    assert layer.nbytes * 64 * llama.L == total


def test_a_latent_is_one_vector() -> None:
    """C038: DeepSeek-V3 keeps 61 x (512 + 64) elements per token, not twice the latent, not per-head keys and values."""
    shape = known_model("DeepSeek-V3").shape
    assert kv_bytes_per_token(shape) == 61 * 576 * 2 == 70_272
    assert kv_bytes_per_token(shape) not in (61 * 2 * 512 * 2, 61 * 2 * 128 * 128 * 2)
    assert 61 * 2 * 512 * 2 == 124_928

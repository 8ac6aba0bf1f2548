"""8,192 tokens in every format: the storages that are found, what the cache says and what ``analysis.memory`` says, within 1 %."""

import pytest
import torch

from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches.concat import ConcatCache
from kvedu.caches.formats import float8, integer, rotated, with_apart
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.quantized import QuantizedCache
from test_paged_quantized import held
from tiny import tiny_config

TOKENS, CHUNK = 8192, 2048
CONFIG = tiny_config(H=9, K=3, D=64, L=2)
APART = torch.tensor([[[1, 5, 9]] * 3] * 2)
FORMATS = {
    "int8": KVFormat.int8(),
    "int8, symmetric, fp32 scales": KVFormat(*[integer(8, 32, symmetric=True, scale_dtype=torch.float32)] * 2),
    "int4": KVFormat(integer(4, 32), integer(4, 64)),
    "int4 rotated": KVFormat(rotated(integer(4, 64)), integer(4, 64), residual=32),
    "int4, channels apart": KVFormat(with_apart(integer(4, 64), 3), integer(4, 64), apart=APART),
    "KIVI, 4 bits": KVFormat.kivi(bits=4),
    "KIVI, 2 bits": KVFormat.kivi(bits=2),
    "fp8": KVFormat.fp8(),
    "fp8, groups": KVFormat(float8("e5m2", 32, "tokens"), float8("e4m3", 64)),
}


@torch.inference_mode()
def filled(cache):
    """One sequence of 8,192 tokens."""
    k_NKD, v_NKD = torch.randn(2, CHUNK, CONFIG.K, CONFIG.D, generator=torch.Generator().manual_seed(0)).bfloat16()
    seq = cache.add()
    for _ in range(TOKENS // CHUNK):
        with cache.step({seq: CHUNK}) as view:
            for layer in range(CONFIG.L):
                view.append(layer, k_NKD, v_NKD)
    return cache


@pytest.mark.parametrize("name", FORMATS)
def test_a_growing_cache(name):
    """Codes, scales and the tail: exactly the formula's bytes, but for the list of channels apart."""
    format = FORMATS[name]
    cache = filled(
        QuantizedCache(
            CONFIG, keys=format.keys, values=format.values, residual=format.residual, apart=format.apart, dtype=torch.bfloat16
        )
    )
    sides = {"keys": format.keys.sized, "values": format.values.sized}
    formula = kv_cache_bytes(CONFIG, TOKENS, 1, 2, **sides, residual=format.residual)
    assert held(cache) == cache.nbytes and abs(cache.nbytes / formula - 1) < (0.01 if format.apart is not None else 1e-12)
    plain = kv_cache_bytes(CONFIG, TOKENS, 1, 2)
    assert 0.15 * plain < cache.nbytes < 0.6 * plain


@pytest.mark.parametrize("name", FORMATS)
def test_pages(name):
    """All pages as codes, and one tail beside them."""
    format = FORMATS[name]
    cache = PagedQuantizedCache(CONFIG, format=format, n_pages=TOKENS // 64, page_size=64, max_sequences=1, dtype=torch.bfloat16)
    formula = kv_cache_bytes(CONFIG, TOKENS, 1, 2, keys=format.keys.sized, values=format.values.sized)
    formula += kv_cache_bytes(CONFIG, cache.window_kept, 1, 2)
    assert held(filled(cache)) == cache.nbytes and abs(cache.nbytes / formula - 1) < 0.01


def test_what_would_be_forgotten():
    """The slip that this guards against: 4-bit codes alone are a fifth less than what is stored."""
    format = FORMATS["int4"]
    cache = filled(QuantizedCache(CONFIG, keys=format.keys, values=format.values, dtype=torch.bfloat16))
    codes_alone = kv_cache_bytes(CONFIG, TOKENS, 1, 2) // 4
    assert cache.nbytes > 1.15 * codes_alone
    assert filled(ConcatCache(CONFIG, dtype=torch.bfloat16)).nbytes == 4 * codes_alone

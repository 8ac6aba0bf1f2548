"""KV cache bytes against numbers written by hand, published ones where they exist."""

import pytest
from hypothesis import given, strategies as st

from kvedu.analysis.known_models import known_model, known_models
from kvedu.analysis.memory import (
    AttentionShape,
    Quantized,
    kv_bytes_per_token,
    kv_bytes_per_token_per_layer,
    kv_cache_bytes,
    max_batch,
    max_tokens_in,
)
from kvedu.errors import ConfigError, KveduError
from kvedu.units import GiB, KiB, binary, decimal

BYTES_PER_TOKEN_BF16 = {
    "SmolLM2-135M": 23_040,
    "SmolLM2-360M": 40_960,
    "SmolLM2-1.7B": 196_608,
    "Llama-2-7B": 524_288,  # 512 KiB
    "Llama-2-70B": 327_680,  # 320 KiB
    "Llama-3-8B": 131_072,  # 128 KiB
    "Llama-3-70B": 327_680,
    "Mistral-7B-v0.1": 131_072,
    "Mistral-Nemo-12B": 163_840,  # 160 KiB; width / heads would give 200 KiB
    "Qwen2.5-0.5B": 12_288,
    "Qwen2.5-7B": 57_344,  # 56 KiB
    "Qwen2.5-72B": 327_680,
    "Qwen3-0.6B": 114_688,  # 112 KiB
    "Qwen3-4B": 147_456,  # 144 KiB
    "DeepSeek-67B": 389_120,  # 380 KiB
    "Gemma-2B": 18_432,
    "Gemma-7B": 458_752,  # 448 KiB: 16 KV heads of 16, not MQA
    "Gemma-2-9B": 344_064,
    "gpt-oss-20b": 49_152,
    "Falcon-7B": 8_192,  # one KV head
    "Falcon-40B": 122_880,  # eight KV heads, not one
    "OPT-13B": 819_200,  # 800 KiB, the PagedAttention paper's example
    "GPT-3-175B": 4_718_592,  # 4.5 MiB
    "DeepSeek-V2": 69_120,
    "DeepSeek-V3": 70_272,
}


def test_every_known_model_is_checked():
    assert {model.name for model in known_models()} == set(BYTES_PER_TOKEN_BF16)


@pytest.mark.parametrize("name", BYTES_PER_TOKEN_BF16)
def test_bytes_per_token(name):
    model = known_model(name)
    assert kv_bytes_per_token(model.shape) == BYTES_PER_TOKEN_BF16[name]
    if model.config is not None:
        assert kv_bytes_per_token(model.config) == BYTES_PER_TOKEN_BF16[name]


def test_head_size_is_the_configs_own():
    """C033: Qwen3-4B's head size is 128; hidden / heads = 80 gives 92,160."""
    model = known_model("Qwen3-4B")
    assert kv_bytes_per_token(model.config) == 147_456 == 144 * KiB
    slip = AttentionShape(36, 32, 8, head_dim=2560 // 32)
    assert kv_bytes_per_token(slip) == 92_160
    assert (model.config.H * model.config.D, model.config.M) == (4096, 2560)  # shape of the Q projection


def test_kv_heads_are_not_queries_per_kv_head():
    """C035: 32 heads and 8 KV heads (4 queries each): 4,096 bytes; 4 KV heads: 2,048."""
    assert kv_bytes_per_token_per_layer(AttentionShape(1, 32, n_kv_heads=8, head_dim=128)) == 4096
    assert kv_bytes_per_token_per_layer(AttentionShape(1, 32, n_kv_heads=4, head_dim=128)) == 2048
    with pytest.raises(ConfigError, match="queries per KV head"):
        AttentionShape(1, 32, n_kv_heads=5, head_dim=128)


def test_units_are_named_and_ratios_exact():
    """C036: 10,737,418,240 bytes are 10.00 GiB and 10.74 GB; MHA is exactly 8 times as much."""
    gqa = kv_cache_bytes(AttentionShape(80, 64, 8, 128), 32_768)
    mha = kv_cache_bytes(AttentionShape(80, 64, 64, 128), 32_768)
    assert gqa == 10_737_418_240
    assert (binary(gqa), decimal(gqa)) == ("10.00 GiB", "10.74 GB")
    assert binary(mha) == "80.00 GiB" and mha == 8 * gqa


def test_latent_is_one_vector_with_its_rope_part():
    """C038: 61 x 576 x 2 = 70,272; twice the latent without the rope part would be 124,928."""
    shape = known_model("DeepSeek-V3").shape
    assert kv_bytes_per_token(shape) == 70_272 == 61 * 576 * 2
    assert kv_bytes_per_token(shape) != 61 * 2 * 512 * 2 == 124_928
    full_heads = AttentionShape(61, 128, 128, 128)
    assert kv_bytes_per_token(full_heads) == 61 * 2 * 128 * 128 * 2


def test_document_figures():
    """Llama-3-8B: 4 KiB per token and layer; 0.25, 1, 4, 16 GiB. A 70B model: 10 GiB with MHA, 1.25 without."""
    llama = known_model("Llama-3-8B").shape
    assert kv_bytes_per_token_per_layer(llama) == 4 * KiB
    for tokens, gib in ((2048, 0.25), (4096, 0.5), (8192, 1), (32_768, 4), (131_072, 16)):
        assert kv_cache_bytes(llama, tokens) == gib * GiB
    assert kv_cache_bytes(known_model("Llama-2-70B").config, 4096) == 1.25 * GiB
    assert kv_cache_bytes(known_model("Llama-2-70B").config.with_kv_heads(64), 4096) == 10 * GiB
    for kv_heads, gib in ((32, 16), (8, 4), (1, 0.5)):  # MHA, GQA, MQA at 32K
        assert kv_cache_bytes(AttentionShape(32, 32, kv_heads, 128), 32_768) == gib * GiB


def test_deepseek_v2_saving_as_published():
    """93.3 % less than DeepSeek-67B holds with the 6 bits per element that the paper stores; in 16 bit it is 82 %."""
    latent, dense = known_model("DeepSeek-V2").shape, known_model("DeepSeek-67B").shape
    same_bits = 1 - kv_bytes_per_token(latent) / kv_bytes_per_token(dense)
    six_bits = Quantized(bits=6, group=576, scale_bytes=0)
    published = 1 - kv_bytes_per_token(latent, keys=six_bits) / kv_bytes_per_token(dense)
    assert (round(same_bits, 3), round(published, 3)) == (0.822, 0.933)


def test_window_bounds_the_cache():
    mistral = known_model("Mistral-7B-v0.1").config
    per_token = 131_072
    assert kv_cache_bytes(mistral, 4095) == 4095 * per_token
    assert kv_cache_bytes(mistral, 4096) == kv_cache_bytes(mistral, 4097) == kv_cache_bytes(mistral, 100_000) == 4096 * per_token
    gemma = known_model("Gemma-2-9B").shape  # half of the layers are windowed
    assert kv_cache_bytes(gemma, 8192) == 344_064 // 2 * (8192 + 4096)
    assert kv_cache_bytes(known_model("gpt-oss-20b").shape, 131_072) == 49_152 // 2 * (131_072 + 128)


def test_quantized_counts_scales_and_short_groups():
    shape = AttentionShape(1, 1, 1, head_dim=80)
    int8 = Quantized(bits=8, group=32)  # 80 = 32 + 32 + 16: three scales
    assert kv_bytes_per_token(shape, keys=int8, values=int8) == 2 * (80 + 3 * 2)
    int4 = Quantized(bits=4, group=32, zero_bytes=2)
    assert kv_bytes_per_token(shape, keys=int4, values=int4) == 2 * (40 + 3 * 4)
    assert kv_bytes_per_token(shape, keys=int4) == (40 + 3 * 4) + 80 * 2  # values stay bf16
    odd = Quantized(bits=3, group=7, scale_bytes=1)
    assert odd.bytes_of(1, 1, 10) == 4 + 2  # 30 bits in 4 bytes, two groups
    assert Quantized(bits=8, group=64).bits_per_element == 8.25


def test_quantized_along_tokens():
    """Keys per channel, as in KIVI: 40 tokens are one full and one short group of 32 per channel."""
    shape = AttentionShape(1, 2, 2, head_dim=64)
    keys = Quantized(bits=2, group=32, zero_bytes=2, along="tokens")
    values = Quantized(bits=2, group=32, zero_bytes=2)
    channels, tokens = 2 * 64, 40
    expected = channels * (10 + 2 * 4) + tokens * 2 * (16 + 2 * 4)
    assert kv_cache_bytes(shape, tokens, keys=keys, values=values) == expected
    with pytest.raises(KveduError, match="kv_cache_bytes"):
        kv_bytes_per_token(shape, keys=keys)


def test_budget():
    llama = known_model("Llama-3-8B").shape
    assert max_tokens_in(16 * GiB, llama) == 131_072
    assert max_tokens_in(16 * GiB - 1, llama) == 131_071
    assert max_tokens_in(16 * GiB, llama, batch=4) == 32_768
    assert max_tokens_in(0, llama) == 0
    assert max_batch(16 * GiB, llama, 4096) == 32
    assert max_batch(16 * GiB - 1, llama, 4096) == 31
    mistral = known_model("Mistral-7B-v0.1").shape
    window = 4096 * 131_072
    assert max_tokens_in(window, mistral) is None
    assert max_tokens_in(window - 1, mistral) == 4095


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda s: kv_cache_bytes(s, -1), "negative"),
        (lambda s: kv_bytes_per_token(s, 0), "at least 1 byte"),
        (lambda s: max_tokens_in(-1, s), "subtract weights"),
        (lambda s: max_batch(10, s, 0), "at least 1 token"),
        (lambda s: Quantized(bits=16, group=32), "1 to 8 bits"),
        (lambda s: Quantized(bits=4, group=0), "at least 1 element"),
        (lambda s: Quantized(bits=4, group=8, along="channel"), "per channel"),
        (lambda s: kv_bytes_per_token(known_model("DeepSeek-V3").shape, values=Quantized(8, 64)), "one vector"),
        (lambda s: AttentionShape(2, 2, 2, 8, windowed_layers=1), "no window"),
        (lambda s: AttentionShape(2, 2, 2, 8, window=4, windowed_layers=3), "model of 2 layers"),
        (lambda s: AttentionShape(2, 2, 2, 8, rope_width=4), "latent"),
        (lambda s: known_model("Llama-9"), "Llama-3-8B"),
    ],
)
def test_errors_teach(call, words):
    with pytest.raises(KveduError, match=words):
        call(AttentionShape(2, 4, 2, 8))


shapes = st.builds(
    lambda layers, groups, kv_heads, head_dim, window, windowed: AttentionShape(
        layers, groups * kv_heads, kv_heads, head_dim, window, min(windowed, layers) if window else None
    ),
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.integers(1, 130),
    st.none() | st.integers(1, 50), st.integers(0, 9),
)  # fmt: skip
formats = st.none() | st.builds(
    Quantized, st.integers(1, 8), st.integers(1, 70), st.integers(0, 4), st.integers(0, 4), st.sampled_from(["head", "tokens"])
)


@given(shapes, st.integers(0, 200), st.integers(0, 5), formats, formats)
def test_more_tokens_never_take_less_and_batches_are_linear(shape, tokens, batch, keys, values):
    one = kv_cache_bytes(shape, tokens, keys=keys, values=values)
    assert kv_cache_bytes(shape, tokens + 1, keys=keys, values=values) >= one
    assert kv_cache_bytes(shape, tokens, batch, keys=keys, values=values) == batch * one


@given(shapes, st.integers(0, 200), st.sampled_from([1, 2, 4]))
def test_plain_cache_equals_the_count_of_its_elements(shape, tokens, size):
    """Layer by layer, token by token, head by head: the slow truth."""
    elements = 0
    windowed = 0 if shape.window is None else shape.n_layers if shape.windowed_layers is None else shape.windowed_layers
    for layer in range(shape.n_layers):
        held = [t for t in range(tokens) if layer >= windowed or t >= tokens - shape.window]
        elements += len(held) * shape.n_kv_heads * shape.head_dim * 2
    assert kv_cache_bytes(shape, tokens, 1, size) == elements * size


@given(shapes, st.integers(0, 10**6), st.integers(1, 4), formats, formats)
def test_max_tokens_fits_and_one_more_does_not(shape, budget, batch, keys, values):
    most = max_tokens_in(budget, shape, batch, keys=keys, values=values)
    if most is None:
        assert kv_cache_bytes(shape, 10**9, batch, keys=keys, values=values) <= budget
    else:
        assert kv_cache_bytes(shape, most, batch, keys=keys, values=values) <= budget
        assert kv_cache_bytes(shape, most + 1, batch, keys=keys, values=values) > budget


def test_a_full_precision_tail():
    """KIVI at 200 tokens, D 64: of 72 that may be coded, keys code 2 groups of 32, values all; the rest is bf16."""
    shape = AttentionShape(n_layers=1, n_heads=1, n_kv_heads=1, head_dim=64)
    keys = Quantized(bits=2, group=32, zero_bytes=2, along="tokens")
    values = Quantized(bits=2, group=32, zero_bytes=2)
    bytes_of_keys = 64 * (16 + 2 * 4) + (200 - 64) * 128  # per channel 64 codes of 2 bits and 2 scales with zeros
    bytes_of_values = 72 * (16 + 2 * 4) + 128 * 128
    assert kv_cache_bytes(shape, 200, keys=keys, values=values, residual=128) == bytes_of_keys + bytes_of_values
    assert kv_cache_bytes(shape, 128, keys=keys, values=values, residual=128) == kv_cache_bytes(shape, 128)
    assert kv_cache_bytes(shape, 64, keys=keys, values=values, residual=0) == kv_cache_bytes(shape, 64, keys=keys, values=values)
    with pytest.raises(KveduError, match="cannot be negative"):
        kv_cache_bytes(shape, 1, residual=-1)


def test_a_budget_bounds_the_cache():
    shape = AttentionShape(n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64)
    assert kv_cache_bytes(shape, 100, held=260) == kv_cache_bytes(shape, 100)
    assert kv_cache_bytes(shape, 100_000, held=260) == kv_cache_bytes(shape, 260) == 260 * 23_040

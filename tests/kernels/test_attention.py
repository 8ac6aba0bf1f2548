"""Attention: the reference by hand, and the fast path against it in every corner."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvedu.kernels.attention import (
    attention_grouped,
    attention_reference,
    causal_in_blocks,
    cost,
    visible_causal,
)

HEADS = [(12, 12), (32, 8), (28, 4), (8, 1), (4, 2), (9, 3)]


@pytest.mark.parametrize("H, K", HEADS)
def test_query_head_reads_its_own_kv_head(H, K):
    """C001: with V of KV head j equal to j, query head h gives exactly h // (H / K)."""
    q, k = torch.randn(5, H, 8), torch.randn(5, K, 8)
    v = torch.arange(K, dtype=torch.float32)[None, :, None].expand(5, K, 8)
    visible = visible_causal(torch.arange(5), torch.arange(5))
    wanted = (torch.arange(H) // (H // K)).float()[None, :, None].expand(5, H, 8)
    torch.testing.assert_close(attention_reference(q, k, v, visible), wanted)
    grouped = attention_grouped(q[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], causal=True)[0]
    torch.testing.assert_close(grouped, wanted)
    lone = attention_grouped(q[None, -1:], k.transpose(0, 1)[None], v.transpose(0, 1)[None])[0]
    torch.testing.assert_close(lone, wanted[-1:])


@pytest.mark.parametrize("T, S", [(1, 4), (2, 7)])
def test_queries_are_the_last_tokens(T, S):
    """C002: one query over 4 keys sees all 4; a chunk of 2 after 5 cached sees 6, then 7, as the full pass does."""
    visible = visible_causal(torch.arange(S - T, S), torch.arange(S))
    assert visible.sum(-1).tolist() == list(range(S - T + 1, S + 1))
    q, k, v = torch.randn(S, 4, 8), torch.randn(S, 2, 8), torch.randn(S, 2, 8)
    full = attention_reference(q, k, v, visible_causal(torch.arange(S), torch.arange(S)))
    torch.testing.assert_close(attention_reference(q[-T:], k, v, visible), full[-T:])
    grouped = attention_grouped(q[None, -T:], k.transpose(0, 1)[None], v.transpose(0, 1)[None], visible[None])[0]
    torch.testing.assert_close(grouped, full[-T:])


@pytest.mark.parametrize("window, counts", [(4, [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]), (1, [1] * 10), (0, None), (None, None), (10, None), (99, None)])
def test_a_window_counts_the_query_itself(window, counts):
    """C075: token i sees i-W+1 .. i; 0 and None are full causal, W >= S changes nothing."""
    seen = visible_causal(torch.arange(10), torch.arange(10), window).sum(-1).tolist()
    assert seen == (counts or list(range(1, 11)))


@settings(max_examples=60, deadline=None)
@given(
    G=st.integers(1, 5), K=st.integers(1, 4), D=st.sampled_from([1, 3, 8]), T=st.integers(1, 6), past=st.integers(0, 9),
    B=st.integers(1, 3), window=st.sampled_from([None, 1, 3]), seed=st.integers(0, 99),
)
def test_grouped_equals_the_reference(G, K, D, T, past, B, window, seed):
    generator = torch.Generator().manual_seed(seed)
    S, H = past + T, G * K
    q, k, v = (torch.randn(B, *shape, D, generator=generator) for shape in ((T, H), (K, S), (K, S)))
    visible = visible_causal(torch.arange(past, S), torch.arange(S), window)
    mask = visible[None].expand(B, -1, -1)
    wanted = torch.stack([attention_reference(q[b], k[b].transpose(0, 1), v[b].transpose(0, 1), visible) for b in range(B)])
    torch.testing.assert_close(attention_grouped(q, k, v, mask), wanted, rtol=1e-4, atol=1e-5)
    additive = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None].expand(B, -1, -1)
    torch.testing.assert_close(attention_grouped(q, k, v, additive), wanted, rtol=1e-4, atol=1e-5)
    if past == 0 and not window:
        torch.testing.assert_close(attention_grouped(q, k, v, causal=True), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("T", [1, 7, 8, 9, 30])
@pytest.mark.parametrize("K, G", [(1, 1), (3, 3), (2, 1)])
def test_blocks_equal_the_reference(T, K, G):
    """Every edge of a block: shorter, just full, one more, several."""
    generator = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(n, T, 8, generator=generator) for n in (K * G, K, K))
    visible = visible_causal(torch.arange(T), torch.arange(T))
    wanted = attention_reference(*(x.transpose(0, 1) for x in (q, k, v)), visible)
    got = causal_in_blocks(q.unflatten(0, (K, G)), k, v, block=8)
    torch.testing.assert_close(got.flatten(0, 1).transpose(0, 1), wanted, rtol=1e-4, atol=1e-5)


def test_blocks_in_bf16_err_no_more_than_the_plain_product():
    """DESIGN 5's rule: error against fp32 at most twice that of the same operation in plain bf16 PyTorch; and dispatch uses it."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 200, 64, generator=generator).bfloat16() for n in (9, 3, 3))
    visible = visible_causal(torch.arange(200), torch.arange(200))
    exact = attention_reference(*(x.transpose(0, 1).float() for x in (q, k, v)), visible)
    kk, vv = (x.repeat_interleave(3, dim=0) for x in (k, v))
    plain = torch.softmax((q @ kk.transpose(1, 2) / 8).masked_fill(~visible, -torch.inf), -1) @ vv
    got = attention_grouped(q.transpose(0, 1)[None], k[None], v[None], causal=True)[0]
    assert torch.equal(got, causal_in_blocks(q.unflatten(0, (3, 3)), k, v).flatten(0, 1).transpose(0, 1))
    error = (got.float() - exact).abs()
    plain_error = (plain.transpose(0, 1).float() - exact).abs()
    assert error.max() <= 2 * plain_error.max() and error.mean() <= 2 * plain_error.mean()


def test_no_copy_of_keys_per_query_head():
    """Grouped attention gives SDPA views of the cache itself: the same storage, stride 0 along the group."""
    seen = []
    import kvedu.kernels.attention as module

    original = module.scaled_dot_product_attention
    module.scaled_dot_product_attention = lambda q, k, v, **kw: seen.append((k, v)) or original(q, k, v, **kw)
    try:
        k, v = torch.randn(2, 3, 50, 8), torch.randn(2, 3, 50, 8)
        attention_grouped(torch.randn(2, 1, 9, 8), k[:, :, :20], v[:, :, :20])
        attention_grouped(torch.randn(2, 4, 9, 8), k[:, :, :20], v[:, :, :20], torch.ones(2, 4, 20, dtype=torch.bool))
    finally:
        module.scaled_dot_product_attention = original
    assert len(seen) == 3
    for kk, vv in seen:
        assert kk.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
        assert vv.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()


def test_cost_counts_causal_pairs():
    work = cost(new_tokens=3, cached_tokens=2, heads=4, kv_heads=2, head_dim=8, bytes_per_element=2)
    pairs = sum(2 + i + 1 for i in range(3))
    assert work.flops == 4 * 8 * 4 * pairs
    assert work.read == (2 * 5 * 2 * 8 + 3 * 4 * 8) * 2 and work.written == 3 * 4 * 8 * 2

"""Allocations are traced: temporaries and what stays, and inside fused operations too."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvedu.book.allocated import peak_bytes


def test_what_is_freed_in_between_counts_at_its_time_only():
    def work():
        for _ in range(3):
            x = torch.zeros(1000)
            y = x.exp()
            del x, y
        return torch.zeros(10)

    assert peak_bytes(work) == 8000
    assert peak_bytes(lambda: None) == 0


def test_inside_a_fused_operation():
    """The scores of untiled attention, to the byte; of PyTorch's fused one more than its result, and linear in the length."""
    for n in (128, 256):
        q = torch.randn(1, 2, n, 16)
        assert peak_bytes(lambda: torch.softmax(q @ q.mT, -1) @ q) == 2 * 2 * n * n * 4
    one, two = (peak_bytes(lambda n=n: scaled_dot_product_attention(*(torch.randn(1, 2, n, 16) for _ in "qkv"), is_causal=True)) for n in (1024, 4096))
    assert 4 * 2 * 1024 * 16 * 4 < one and two < 4.2 * one

"""Lab 3, exercise 4: which KV head the three attentions read, as arithmetic."""

from __future__ import annotations

from typing import Any

WRONG = ("a", "c")


def heads_read(version: str, H: int, K: int) -> list[int]:
    """The KV head that each query head reads; an index past K - 1 raises ``IndexError``, as it does in the lab."""
    group = H // K
    read = {
        "a": [h // K if group > 1 else h for h in range(H)],
        "b": [h // group for h in range(H)],
        "c": [h % K for h in range(H)],
    }[version]
    if max(read) >= K:
        raise IndexError(f"KV head {max(read)} of {K}")
    return read


def is_pair(pair: Any) -> bool:
    """Whether it is two whole numbers above 0, of which the second divides the first."""
    return type(pair) is tuple and len(pair) == 2 and all(type(n) is int and 0 < n < 10_000 for n in pair) and pair[0] % pair[1] == 0

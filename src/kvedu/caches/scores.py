"""Eviction policies: which tokens a layer's heads should keep, each policy one pure function.

A policy is given what one layer of one sequence holds and returns a score ``[S, K]`` for each of S
tokens of each of K KV heads; the higher is kept. It changes nothing, and says by ``watches`` how much
attention it wants to have seen, and by ``wants_moments`` that it wants the queries' mean and spread.
``caches.evicting`` does the rest.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from kvedu.caches.moments import Moments
from kvedu.errors import CacheError
from kvedu.kernels.rope import cos_sin, rotate
from kvedu.rope_config import RopeConfig

ALL = -1
"""``watches(ALL)``: the weights of every query so far, added up."""


class Held(NamedTuple):
    """What one layer of a sequence holds. Row i of two heads may be two different tokens; rows ascend in the text.

    ``weights_QSK`` are attention weights of the last Q queries (Q = 1: a sum, for ``ALL``), mean over
    the G query heads that share a KV head; queries before a token came gave it 0. ``moments`` are those of all queries.
    """

    k_SKD: Tensor
    v_SKD: Tensor
    positions_SK: Tensor
    weights_QSK: Tensor
    moments: Moments | None = None

    @property
    def attention_QSK(self) -> Tensor:
        """The weights. Raises ``CacheError`` where the cache keeps none."""
        if not len(self.weights_QSK):
            raise CacheError(
                "this policy looks at attention, but the cache keeps none for it: decorate the function with "
                "@watches(1) for the last query's weights, @watches(n) for the last n, @watches(ALL) for the sum over all"
            )
        return self.weights_QSK

    @property
    def queries(self) -> Moments:
        """The moments. Raises ``CacheError`` where the cache keeps none."""
        if self.moments is None:
            raise CacheError(
                "this policy asks what queries are like, but the cache keeps no sums of them for it: decorate the function "
                "with @wants_moments"
            )
        return self.moments


Score = Callable[[Held], Tensor]


def watches(queries: int) -> Callable[[Score], Score]:
    """Mark a policy that looks at the attention of the last ``queries`` queries, or of ``ALL``."""
    if queries < 1 and queries != ALL:
        raise CacheError(f"a policy watches 1 query or more, or ALL, not {queries}")

    def mark(score: Score) -> Score:
        score.queries = queries
        return score

    return mark


def wants_moments(score: Score) -> Score:
    """Mark a policy that looks at the mean and the spread of the queries so far."""
    score.moments = True
    return score


def recent(held: Held) -> Tensor:
    """The last tokens of the text; with sinks this is what a window cache holds."""
    return held.positions_SK.to(torch.float32)


def random(held: Held) -> Tensor:
    """Tokens drawn without looking: a hash of the position, so that a token's lot is drawn once. A baseline."""
    x = (held.positions_SK.to(torch.int64) + 1) * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407
    x = (x ^ (x >> 31)) * 1_181_783_497_276_652_981
    return ((x >> 40) & 0xFFFFFF).to(torch.float32)


def key_norm(held: Held) -> Tensor:
    """Keys of small L2 norm, which tend to draw attention; rotation does not change a norm.

    In the first layer the same token has the same norm wherever it stands; such ties go by the last bit.
    Source: Devoto et al. 2024, A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression.
    """
    return -held.k_SKD.to(torch.float32).norm(dim=-1)


@watches(ALL)
def h2o(held: Held) -> Tensor:
    """Heavy hitters: the attention that a token has drawn from all queries since it came.

    The paper spends half of the budget on the last tokens: ``EvictingCache(recent=budget // 2)``.
    Source: Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference.
    """
    return held.attention_QSK[0]


@watches(1)
def tova(held: Held) -> Tensor:
    """The attention of the last query, mean over the heads: all heads of a layer keep the same tokens.

    Source: Oren et al. 2024, Transformers are Multi-State RNNs.
    """
    return held.attention_QSK[-1].mean(-1, keepdim=True).expand_as(held.positions_SK)


@watches(32)
def snapkv(held: Held) -> Tensor:
    """The attention of the last 32 queries (the observation window), each token credited with its best neighbor's.

    The largest sum among 7 neighbors counts, so that runs of text stay together. The paper
    applies it once, to the prompt, and keeps the observed window: ``EvictingCache(recent=32)``; here
    generated tokens are judged too. Source: Li et al. 2024, SnapKV: LLM Knows What You are Looking for Before Generation.
    """
    drawn_KS = held.attention_QSK.sum(0).T
    return max_pool1d(drawn_KS, kernel_size=7, stride=1, padding=3).T


def expected_attention(rope: RopeConfig, future: int = 512, epsilon: float = 0.0) -> Score:
    """A policy: the attention that the next ``future`` queries can be expected to pay, times the size of the value.

    Queries to come are taken to be normal with the mean and covariance of those so far, turned by RoPE to the
    places that they will stand at, on average over these places. A key k then draws exp(k m / sqrt(D) + k C k / 2 D), m and
    C the mean and covariance after the turn; softmax over the tokens, mean over the G heads, plus ``epsilon``, times the
    norm of the value. Nothing is asked of attention itself, so a kernel that keeps no weights will do. Cost: O(S D D)
    a head and eviction. Raises ``CacheError`` for no queries to expect.
    Source: Devoto et al. 2025, Expected Attention: KV Cache Compression by Estimating Attention from Future Queries Distribution.
    """
    if future < 1:
        raise CacheError(f"the attention of {future} queries to come is nothing to go by; expect at least 1")

    @wants_moments
    def score(held: Held) -> Tensor:
        if not held.queries.count:  # nothing is known yet, as where a cache is filled without attending
            return recent(held)
        k_SKD, next_ = held.k_SKD.to(torch.float32), int(held.positions_SK.max()) + 1
        D = k_SKD.shape[-1]
        mean_KGD, cov_KGDD = turned(held.queries, rope, range(next_, next_ + future), k_SKD.device)
        log_KGS = torch.einsum("kgd,skd->kgs", mean_KGD, k_SKD) / D**0.5
        log_KGS += torch.einsum("skd,kgde,ske->kgs", k_SKD, cov_KGDD, k_SKD) / (2 * D)
        drawn_SK = torch.softmax(log_KGS, dim=-1).mean(1).T
        return (drawn_SK + epsilon) * held.v_SKD.to(torch.float32).norm(dim=-1)

    return score


def turned(queries: Moments, rope: RopeConfig, places: range, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and covariance of queries turned by the average of RoPE's rotations to these places.

    A rotation is linear, and so is a mean of rotations: it shortens what turns fast and leaves what turns slowly.
    """
    cos, sin = (x.mean(0) for x in cos_sin(rope, torch.tensor(places, device=device), torch.float32, places.stop))
    cov_KGDD = rotate(rotate(queries.covariance_KGDD, cos, sin).transpose(-1, -2), cos, sin)
    return rotate(queries.mean_KGD, cos, sin), cov_KGDD

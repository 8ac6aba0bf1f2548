"""A mixture of experts as numbers: many small MLPs in a layer, of which each token runs a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from kvedu.errors import ConfigError


@dataclass(frozen=True)
class ExpertsConfig:
    """The experts of every layer from ``first`` on; layers before it have one MLP.

    Of ``count`` experts of ``width`` each token runs the ``chosen`` with the best scores, beside one MLP as wide as
    ``shared`` experts that every token runs. Experts stand in ``groups``; only the best ``top_groups`` of them
    are looked at. ``scoring`` is ``"softmax"`` (V2: a group is as good as its best expert) or ``"sigmoid"`` (V3: as its
    best two, and a bias per expert decides who is chosen but not by how much). Weights of the chosen are their
    scores, ``normalized`` to a sum of 1 or not, times ``scale``.

    Raises ``ConfigError`` for numbers that contradict each other. Source: DeepSeek-V2 (2024), DeepSeek-V3 (2024).
    """

    count: int
    chosen: int
    width: int
    shared: int
    first: int
    scoring: str = "softmax"
    groups: int = 1
    top_groups: int = 1
    normalized: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("count", "chosen", "width", "groups", "top_groups"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"experts: {name} must be a positive integer, not {value!r}")
        if self.shared < 0 or self.first < 0:
            raise ConfigError(f"experts: shared and first count things: {self.shared} and {self.first} cannot be negative")
        if self.scoring not in ("softmax", "sigmoid"):
            raise ConfigError(f'experts are scored by "softmax" or "sigmoid", not {self.scoring!r}')
        if self.count % self.groups or self.top_groups > self.groups:
            raise ConfigError(f"{self.count} experts in {self.groups} groups, of which {self.top_groups} are looked at, cannot be")
        if self.chosen > self.count // self.groups * self.top_groups:
            raise ConfigError(f"{self.chosen} experts a token, but its {self.top_groups} groups have {self.count // self.groups} each")
        if self.scoring == "sigmoid" and self.count // self.groups < 2:
            raise ConfigError("a group is scored by its best two experts, so it has at least 2")

    def parameters(self, model_width: int, biased: bool = False) -> int:
        """Numbers of one layer: router, experts, shared MLP (``biased`` or not)."""
        M, F = model_width, self.width
        shared = 3 * M * F * self.shared + (2 * F * self.shared + M if biased and self.shared else 0)
        return self.count * (M + 3 * M * F + (self.scoring == "sigmoid")) + shared


def experts_from_hf(raw: Mapping[str, Any], family: str) -> ExpertsConfig | None:
    """The experts of a DeepSeek ``config.json``; None where every layer has one MLP. Defaults are transformers'.

    Raises ``ConfigError`` naming the key of a setting that is not implemented, or on which the published
    implementations disagree.
    """
    v3 = family == "deepseek_v3"
    first = raw.get("first_k_dense_replace", 3 if v3 else 0)
    if first >= raw["num_hidden_layers"] or raw.get("n_routed_experts", 0) is None:
        return None
    if raw.get("moe_layer_freq", 1) != 1:
        raise ConfigError(f"moe_layer_freq is {raw['moe_layer_freq']}; kvedu has experts in every layer from first_k_dense_replace on")
    method = raw.get("topk_method", "noaux_tc" if v3 else "greedy")
    known = ("noaux_tc",) if v3 else ("greedy", "group_limited_greedy")
    if method not in known:
        raise ConfigError(f"topk_method {method!r} is not known for {family}; kvedu knows {', '.join(known)}")
    scoring = "sigmoid" if v3 else "softmax"
    if raw.get("scoring_func", scoring) != scoring:
        raise ConfigError(f"scoring_func is {raw['scoring_func']!r}; {family} scores experts by {scoring}")
    normalized = bool(raw.get("norm_topk_prob", v3))
    if normalized and not v3:
        raise ConfigError(
            "norm_topk_prob is true in a deepseek_v2 config: published implementations disagree on what that does; kvedu "
            "takes false"
        )
    grouped = method != "greedy"
    return ExpertsConfig(
        count=raw.get("n_routed_experts", 256 if v3 else 64),
        chosen=raw.get("num_experts_per_tok", 8 if v3 else None),
        width=raw.get("moe_intermediate_size", 2048 if v3 else 1407),
        shared=raw.get("n_shared_experts", 1 if v3 else 2) or 0,
        first=first,
        scoring=scoring,
        groups=raw.get("n_group", 8 if v3 else None) if grouped else 1,
        top_groups=raw.get("topk_group", 4 if v3 else None) if grouped else 1,
        normalized=normalized,
        scale=float(raw.get("routed_scaling_factor", 2.5 if v3 else 1.0)),
    )

"""Which tensors of a DeepSeek checkpoint make a layer's router and experts."""

from __future__ import annotations

from kvedu.config import ModelConfig
from kvedu.model.weight_parts import Part


def expert_plan(config: ModelConfig, ours: str, theirs: str) -> dict[str, tuple[Part, ...]]:
    """Router and experts of one layer, all experts one below the other."""
    experts, M, F = config.experts, config.M, config.experts.width
    made = {f"{ours}.router.weight": (Part(f"{theirs}.gate.weight", (experts.count, M)),)}
    if experts.scoring == "sigmoid":
        made[f"{ours}.router.bias"] = (Part(f"{theirs}.gate.e_score_correction_bias", (experts.count,)),)
    names = [f"{theirs}.experts.{e}" for e in range(experts.count)]
    made[f"{ours}.gate_up"] = tuple(Part(f"{name}.{side}_proj.weight", (F, M)) for name in names for side in ("gate", "up"))
    made[f"{ours}.down"] = tuple(Part(f"{name}.down_proj.weight", (M, F)) for name in names)
    return made

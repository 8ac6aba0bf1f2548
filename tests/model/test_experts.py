"""Mixtures of experts, so that checkpoints with latent attention load whole: transformers' own numbers, router and all."""

import json

import pytest
import torch

from kvedu.analysis.memory import parameter_count
from kvedu.analysis.weights import matrix_parameters
from kvedu.caches.latent import LatentCache
from kvedu.config_experts import ExpertsConfig
from kvedu.config_hf import config_from_hf
from kvedu.config_json import config_from_json, config_to_json
from kvedu.errors import ConfigError, KveduError, LoadError
from kvedu.model.load import load
from kvedu.model.loops import greedy_cached, greedy_uncached
from kvedu.model.weights import state_shapes
from tiny import random_ids
from tiny_checkpoints import make_deepseek_v2, make_deepseek_v3

MIXED = {"num_experts_per_tok": 3, "n_routed_experts": 8, "moe_intermediate_size": 8}
V2 = {
    "greedy": {}, "all layers": {"first_k_dense_replace": 0}, "scaled, one shared": {"routed_scaling_factor": 2.5, "n_shared_experts": 1},
    "groups": {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}, "biased": {"mlp_bias": True},
}  # fmt: skip
V3 = {
    "one group": {"n_group": 1, "topk_group": 1}, "groups": {"n_group": 4, "topk_group": 2}, "all layers": {"first_k_dense_replace": 0, "n_group": 2, "topk_group": 1},
    "not normalized": {"norm_topk_prob": False, "n_group": 2, "topk_group": 2}, "two shared": {"n_shared_experts": 2, "n_group": 2, "topk_group": 2},
}  # fmt: skip
CASES = [(make_deepseek_v2, changes) for changes in V2.values()] + [(make_deepseek_v3, changes) for changes in V3.values()]


@pytest.mark.parametrize("maker, changes", CASES, ids=[*(f"v2, {name}" for name in V2), *(f"v3, {name}" for name in V3)])
def test_logits_equal_transformers(tmp_path, maker, changes):
    """C029: every tensor of the file is used, the bias that only chooses included; logits and parameter count are theirs."""
    folder, theirs = maker(tmp_path, **{"first_k_dense_replace": 1} | MIXED | changes)
    model = load(folder, device="cpu")
    ids = random_ids(40, V=96)
    with torch.inference_mode():
        wanted, cache = theirs(torch.tensor([ids])).logits[0], LatentCache(model.config)
        with cache.step({cache.add(): 40}) as view:
            torch.testing.assert_close(model(torch.tensor(ids), view), wanted, rtol=1e-4, atol=1e-4)
    biases = sum(b.numel() for name, b in theirs.named_buffers() if name.endswith("e_score_correction_bias"))
    assert parameter_count(model.config) == sum(p.numel() for p in model.parameters()) == theirs.num_parameters() + biases
    assert state_shapes(model.config) == {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert greedy_cached(model, ids[:9], 12, LatentCache(model.config)) == greedy_uncached(model, ids[:9], 12)


def test_the_bias_chooses_and_does_not_weigh(tmp_path):
    """A bias that favors one expert changes who runs; with weights not normalized, the others' shares stay their scores."""
    folder, _ = make_deepseek_v3(tmp_path, **MIXED, **V3["one group"], norm_topk_prob=False)
    model = load(folder, device="cpu")
    assert model.config.experts is None, "two dense layers of two"
    folder, _ = make_deepseek_v3(tmp_path / "mixed", **MIXED | V3["one group"], norm_topk_prob=False, first_k_dense_replace=1)
    router = load(folder, device="cpu").layers[1].mlp.router
    x_NM = torch.randn(20, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain, before = router(x_NM)
        router.bias[5] += 10
        weights, after = router(x_NM)
        scores = torch.sigmoid(x_NM @ router.weight.T)
    assert (after == 5).any(1).all() and not (before == 5).any(1).all()
    torch.testing.assert_close(weights, scores.gather(1, after) * 2.5)
    torch.testing.assert_close(plain, scores.gather(1, before) * 2.5)


@pytest.mark.parametrize("maker, changes, message", [
    (make_deepseek_v2, {"moe_layer_freq": 2}, "moe_layer_freq is 2"), (make_deepseek_v2, {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
    (make_deepseek_v3, {"topk_method": "greedy"}, "topk_method 'greedy'.*noaux_tc"), (make_deepseek_v3, {"scoring_func": "softmax"}, "scoring_func"),
    (make_deepseek_v2, {"norm_topk_prob": True}, "norm_topk_prob is true in a deepseek_v2"),
    (make_deepseek_v2, {"num_experts_per_tok": None}, "chosen must be a positive integer, not None"),
    (make_deepseek_v3, {"n_group": 3}, "8 experts in 3 groups"), (make_deepseek_v3, {"n_group": 8, "topk_group": 4}, "best two experts"),
    (make_deepseek_v3, {"n_group": 4, "topk_group": 1}, "3 experts a token, but its 1 groups have 2 each"),
])  # fmt: skip
def test_refused(tmp_path, maker, changes, message):
    folder, _ = maker(tmp_path, **MIXED, n_group=2, topk_group=2, first_k_dense_replace=1)
    raw = json.loads((folder / "config.json").read_text())
    with pytest.raises(ConfigError, match=message):
        config_from_hf(raw | changes)


def test_files_and_counts_that_do_not_fit(tmp_path):
    folder, _ = make_deepseek_v3(tmp_path, **MIXED, n_group=2, topk_group=2, first_k_dense_replace=1)
    config, raw = load(folder).config, json.loads((folder / "config.json").read_text())
    assert config_from_json(config_to_json(config)) == config and isinstance(config.experts, ExpertsConfig)
    with pytest.raises(KveduError, match="depends on its tokens"):
        matrix_parameters(config)
    for changes, message in [({"n_routed_experts": 10}, r"lacks .*experts\.8"), ({"n_routed_experts": 6}, r"holds .*experts\.6|has shape")]:
        (folder / "config.json").write_text(json.dumps(raw | changes))
        with pytest.raises(LoadError, match=message):
            load(folder)

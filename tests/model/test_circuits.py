"""QK and OV matrices, from the weights alone, give the scores and the outputs that the model computes step by step."""

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.caches.dense import DenseView
from kvedu.errors import ConfigError
from kvedu.kernels.rmsnorm import rmsnorm_reference
from kvedu.model.attention_maps import attention_maps
from kvedu.model.circuits import ov_matrix, qk_matrix
from tiny import random_ids, tiny_config, tiny_model

IDS = random_ids(9)
SHAPES = [(4, 4), (4, 2), (9, 3), (5, 1)]


def streams(model):
    """The residual stream before each layer, and after: ``[M]`` rows of each token."""
    cache, kept = ConcatCache(model.config), []
    hooks = [block.register_forward_pre_hook(lambda block, args: kept.append(args[0])) for block in model.layers]
    with torch.no_grad(), cache.step({cache.add(): len(IDS)}) as view:
        model.hidden(torch.tensor(IDS), view)
    for hook in hooks:
        hook.remove()
    return kept


@pytest.mark.parametrize(("H", "K"), SHAPES)
def test_qk_gives_the_attention_weights(H, K):
    """Softmax of x_t QK(t - s) x_s is the model's own attention, for every head, wherever the tokens stand."""
    model = tiny_model(tiny_config(H, K))
    maps = attention_maps(model, IDS)
    for layer, x_NM in enumerate(streams(model)):
        x_NM = rmsnorm_reference(x_NM, torch.ones(x_NM.shape[-1]), model.config.norm_eps)
        for head in range(H):
            by_distance = [qk_matrix(model, layer, head, d) for d in range(len(IDS))]
            for t in range(len(IDS)):
                scores = torch.stack([x_NM[t] @ by_distance[t - s] @ x_NM[s] for s in range(t + 1)])
                torch.testing.assert_close(scores.softmax(0), maps[layer, head, t, : t + 1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("H", "K"), SHAPES)
def test_ov_gives_what_attention_adds(H, K):
    """The attention block's output is the sum over heads and tokens of weight times x_s OV."""
    model = tiny_model(tiny_config(H, K))
    maps, before, added = attention_maps(model, IDS), streams(model), []
    hooks = [
        block.attn.register_forward_hook(lambda attn, args, out: added.append(out - args[1])) for block in model.layers
    ]
    streams(model)
    for hook in hooks:
        hook.remove()
    for layer, (x_NM, out_NM) in enumerate(zip(before, added, strict=True)):
        x_NM = rmsnorm_reference(x_NM, torch.ones(x_NM.shape[-1]), model.config.norm_eps)
        mine = sum(maps[layer, head] @ (x_NM @ ov_matrix(model, layer, head)) for head in range(H))
        torch.testing.assert_close(mine, out_NM, rtol=1e-3, atol=1e-4)


def test_rank_is_the_head_size():
    model = tiny_model()
    for matrix in (qk_matrix(model, 1, 3, 2), ov_matrix(model, 1, 3)):
        assert matrix.shape == (32, 32) and torch.linalg.matrix_rank(matrix) == model.config.D


def test_a_group_shares_the_half_that_is_cached():
    """Heads 0 and 1 read one KV head: their OV matrices see the same D directions of the stream; head 2's are others."""
    model = tiny_model(tiny_config(4, 2))
    seen = [torch.linalg.matrix_rank(torch.cat([ov_matrix(model, 0, 0), ov_matrix(model, 0, other)], dim=1)) for other in (1, 2)]
    assert seen == [model.config.D, 2 * model.config.D]


def test_packed_weights_give_the_same():
    model = tiny_model()
    plain = qk_matrix(model, 0, 1, 5), ov_matrix(model, 0, 1)
    model.pack()
    torch.testing.assert_close((qk_matrix(model, 0, 1, 5), ov_matrix(model, 0, 1)), plain)


@pytest.mark.parametrize(("change", "sign"), [({"qkv_bias": True}, "have biases"), ({"qk_norm": True}, "are normed")])
def test_scores_that_are_no_bilinear_form(change, sign):
    with pytest.raises(ConfigError, match=sign):
        qk_matrix(tiny_model(tiny_config(**change)), 0, 0)


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (-1, 0), (0, 4)])
def test_heads_that_do_not_exist(layer, head):
    for make in (qk_matrix, ov_matrix):
        with pytest.raises(ConfigError, match="layers are 0 .. 1, query heads 0 .. 3"):
            make(tiny_model(), layer, head)

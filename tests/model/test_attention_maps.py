"""Attention maps are the attention that the model really pays."""

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.caches.dense import DenseView
from kvedu.errors import RequestError
from kvedu.kernels.attention import attention_reference
from kvedu.model.attention_maps import attention_maps, weight_back
from tiny import random_ids, tiny_config, tiny_model

IDS = random_ids(13)


def test_maps_explain_what_attention_gives():
    """Weights times values are the output of attention, head by head: so they are the weights that were used."""
    model = tiny_model()
    maps = attention_maps(model, IDS)
    config, seen = model.config, []

    class Outputs(DenseView):
        def attend(self, layer, q_NHD):
            out = super().attend(layer, q_NHD)
            seen.append((self.gather(layer, self.rows[0].seq)[1], out))
            return out

    cache = ConcatCache(config)
    cache.view = Outputs
    with torch.no_grad(), cache.step({cache.add(): len(IDS)}) as view:
        model.hidden(torch.tensor(IDS), view)
    assert maps.shape == (config.L, config.H, 13, 13)
    for weights_HTS, (v_SKD, out_THD) in zip(maps, seen, strict=True):
        for h in range(config.H):
            torch.testing.assert_close(weights_HTS[h] @ v_SKD[:, h // config.G], out_THD[:, h], rtol=1e-4, atol=1e-5)


def test_rows_sum_to_one_and_look_back_only():
    maps = attention_maps(tiny_model(), IDS)
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
    assert maps.triu(1).abs().max() == 0


def test_a_window_of_the_model_is_its_own():
    maps = attention_maps(tiny_model(tiny_config(sliding_window=4, windowed_layers=(True, True))), IDS)
    assert maps.tril(-4).abs().max() == 0 and maps.tril(-3).abs().max() > 0


def test_keep_makes_it_small():
    model = tiny_model()
    small = attention_maps(model, IDS, keep=lambda w_HTS: w_HTS[:, -1, 0])
    assert small.shape == (model.config.L, model.config.H)
    torch.testing.assert_close(small, attention_maps(model, IDS)[:, :, -1, 0])


def test_how_far_back_a_head_looks():
    """Heads made by hand: one looks 1 back, one 3 back, one at token 0."""
    T, t = 10, torch.arange(10)
    maps = torch.zeros(3, T, T)
    maps[0, t, (t - 1).clamp(min=0)] = 1
    maps[1, t, (t - 3).clamp(min=0)] = 1
    maps[2, :, 0] = 1
    assert weight_back(maps, 1, 1).tolist() == pytest.approx([1, 1 / 9, 1 / 9])  # token 1 has but one to look back at
    assert weight_back(maps, 3, 4).tolist() == [0, 1, 0]
    assert weight_back(maps[None], 3, 4).shape == (1, 3)


@pytest.mark.parametrize(("back", "start"), [(3, 2), (-1, 4), (0, 10)])
def test_a_query_needs_a_token_there(back, start):
    with pytest.raises(RequestError, match="0 <= back <= start < T"):
        weight_back(torch.ones(2, 10, 10), back, start)


def test_an_empty_text():
    with pytest.raises(RequestError, match="no tokens"):
        attention_maps(tiny_model(), [])

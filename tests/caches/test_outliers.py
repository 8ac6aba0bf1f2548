"""Key channels set apart, and keys rotated: where plain codes per token fail, both lose less."""

import pytest
import torch

from cache_cases import contents, feed
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.caches.concat import ConcatCache
from kvedu.caches.formats import Format, integer, rotated, with_apart
from kvedu.caches.outliers import find_outliers, outlier_channels
from kvedu.caches.quantized import QuantizedCache
from kvedu.errors import CacheError
from kvedu.kernels.codes import decode, encode
from test_memory_math import held
from tiny import random_ids, tiny_config, tiny_model

APART = torch.tensor([[[1, 6], [0, 3]], [[2, 5], [4, 7]]])


def spiky(T=48, K=2, D=32):
    """Keys with two channels that stand out, others in each head."""
    k_TKD = torch.randn(T, K, D, generator=torch.Generator().manual_seed(5))
    k_TKD[:, 0, [3, 19]] *= 40
    k_TKD[:, 1, [0, 30]] = 60 + k_TKD[:, 1, [0, 30]]
    return k_TKD


def test_the_channels_that_stand_out_are_found():
    assert outlier_channels(spiky(), 2).tolist() == [[3, 19], [0, 30]]
    assert outlier_channels(spiky(), 0).shape == (2, 0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_few_channels_apart_give_the_others_their_bits_back(symmetric):
    """Attention scores of 4-bit keys per token: off by far; with 2 channels apart nearly right; rotated, in between."""
    k_TKD, q_KD = spiky(), torch.randn(2, 32, generator=torch.Generator().manual_seed(6))
    true = torch.einsum("tkd,kd->tk", k_TKD, q_KD)

    def off(format: Format, channels=None) -> float:
        back = decode(encode(k_TKD, format, channels), format, 32, channels_Kn=channels)
        return (torch.einsum("tkd,kd->tk", back, q_KD) - true).square().mean().sqrt().item()

    four = integer(4, 32, symmetric=symmetric)
    plain, apart, turned = off(four), off(with_apart(four, 2), outlier_channels(k_TKD, 2)), off(rotated(four))
    assert plain > 8 * apart and 0.8 * plain > turned > apart


def test_what_is_apart_comes_back_as_its_own_type_holds_it():
    format = with_apart(integer(2, 4), 2)
    x = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(7)) * 100
    coded = encode(x, format, APART[0])
    assert coded.apart.shape == (5, 2, 2) and coded.apart.dtype == torch.float16
    back = decode(coded, format, 8, channels_Kn=APART[0])
    index = APART[0].expand(5, -1, -1)
    assert torch.equal(back.gather(2, index), x.gather(2, index).half().float())
    assert not torch.equal(back, x)


@pytest.mark.parametrize("residual", [0, 3])
def test_bytes_of_a_cache_with_channels_apart(residual):
    config, format = tiny_config(D=8), with_apart(integer(4, 4), 2)
    cache = QuantizedCache(config, keys=format, values=integer(4, 4), residual=residual, apart=APART)
    feed(cache, {(seq := cache.add()): random_ids(9)})
    feed(cache, {seq: random_ids(4)})
    formula = kv_cache_bytes(config, 13, 1, 4, keys=format.sized, values=integer(4, 4).sized, residual=residual)
    assert cache.nbytes == held(cache) == formula + APART.numel() * 8
    assert contents(cache, seq, 1)[0].shape == (13, 2, 8)


def test_calibration_reads_the_models_own_keys():
    model = tiny_model(tiny_config(D=8))
    found = find_outliers(model, model.config, ids := random_ids(20), 3)
    assert found.shape == (model.config.L, model.config.K, 3) and found.dtype == torch.int64
    cache = ConcatCache(model.config)
    seq = cache.add()
    with torch.inference_mode(), cache.step({seq: 20}) as view:
        model(torch.tensor(ids), view)
    assert torch.equal(found[1], outlier_channels(contents(cache, seq, 1)[0], 3))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda c: with_apart(integer(4, 4, "tokens"), 1), "scale of its own already"),
        (lambda c: with_apart(rotated(integer(4, 4)), 1), "leaves none that stands out"),
        (lambda c: with_apart(integer(4, 4), -1), "at least 0"),
        (lambda c: with_apart(integer(4, 4), 9).check_head(8), "9 channels cannot be set apart from a head of 8"),
        (lambda c: QuantizedCache(c, keys=with_apart(integer(4, 4), 2), values=integer(4, 4)), "none were given"),
        (lambda c: QuantizedCache(c, keys=integer(4, 4), values=integer(4, 4), apart=APART), r"sets 0 channels apart.*got"),
        (lambda c: QuantizedCache(c, keys=integer(4, 4), values=with_apart(integer(4, 4), 1)), "set apart from keys"),
        (lambda c: QuantizedCache(c, keys=with_apart(integer(4, 4), 2), values=integer(4, 4), apart=APART + 1), "0 .. 7"),
        (lambda c: QuantizedCache(c, keys=with_apart(integer(4, 4), 2), values=integer(4, 4), apart=APART // 9), "different"),
    ],
)
def test_refused(make, message):
    with pytest.raises(CacheError, match=message):
        make(tiny_config(D=8))

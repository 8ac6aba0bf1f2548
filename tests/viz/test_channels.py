"""The channels figure codes as ``kvedu.kernels.codes`` does, and says what was measured."""

import json
from pathlib import Path

import pytest
import torch

from kvedu.caches.formats import integer
from kvedu.kernels.codes import decode, encode
from kvedu.viz import channels, still
from kvedu.viz.node import evaluate

STORED = json.loads((Path(__file__).resolve().parents[2] / "book" / "figures" / "12_channels.json").read_text("utf-8"))


def table(seed: int) -> torch.Tensor:
    """64 tokens of 64 channels, one of them large, one constant."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
    x[:, 5] += 9
    x[:, 40] = 3.0
    return x


def back_of(x: torch.Tensor, bits: int, along: str) -> torch.Tensor:
    """The library's own way, with scales that are not rounded."""
    form = integer(bits, channels.GROUP, along, scale_dtype=torch.float32)
    return decode(encode(x[:, None], form), form, x.shape[1])[:, 0]


@pytest.mark.parametrize("along", ["head", "tokens"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_comes_back(bits: int, along: str) -> None:
    """C016: a constant channel comes back as it is."""
    x = table(bits)
    wanted = back_of(x, bits, along)
    ((got, error),) = [evaluate("channels", [("coded", [x.tolist(), bits, along, channels.GROUP]), ("relativeError", [x.tolist(), wanted.tolist()])])]
    assert (torch.tensor(got) - wanted).abs().max() < 1e-4
    assert error == pytest.approx(((wanted - x).norm() / x.norm()).item(), rel=1e-4)
    if along == "tokens":
        assert (torch.tensor(got)[:, 40] == 3).all()


def test_sixteen_bits_are_not_coded() -> None:
    x = table(0).tolist()
    assert evaluate("channels", [("coded", [x, 16, "head", 32]), ("relativeError", [x, x])]) == [x, 0]


def test_the_sentence_has_the_measured_numbers() -> None:
    """The whole grid was measured, and the figure says the head's own error beside the model's perplexity."""
    assert {(m["side"], m["along"], m["bits"]) for m in STORED["measured"]} == {
        (side, along, bits) for side in ("keys", "values") for along in ("head", "tokens") for bits in (2, 4, 8)
    }
    for m in STORED["measured"]:
        said = still("channels", STORED, {"side": m["side"], "along": m["along"], "bits": m["bits"]}).say
        assert f"to {m['perplexity']:.4g}".rstrip("0") in said
        x = torch.tensor(STORED["heads"][0][m["side"]])
        error = ((back_of(x, m["bits"], m["along"]) - x).norm() / x.norm()).item()
        shown = float(said.split("what comes back is ")[1].split(" %")[0]) / 100
        assert shown == pytest.approx(error, rel=0.02)
    assert "Not coded" in still("channels", STORED).say


def test_stored_keys_have_a_channel_that_stands_out() -> None:
    keys = torch.tensor(STORED["heads"][0]["keys"]).abs().mean(0)
    values = torch.tensor(STORED["heads"][0]["values"]).abs().mean(0)
    assert keys.max() > 8 * keys.median() and values.max() < 5 * values.median()

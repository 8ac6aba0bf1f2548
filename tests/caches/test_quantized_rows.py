"""What the stored rows say of quantized caches: the promises in numbers, read from the rows that the book shows."""

import pytest

from kvedu.book.rows import load_row

TEXTS = ("prose", "code")


@pytest.fixture(scope="module")
def quality():
    return load_row("quantized_quality").values


@pytest.mark.parametrize("text", TEXTS)
def test_few_bits_cost_little_where_scales_are_shared_well(quality, text):
    """int8 within 0.5 % of full perplexity; 4 bits, keys per channel and values per token, within 3 %."""
    assert abs(quality[text]["int8 per token"]["loss"]) < 0.005
    for name in ("int4 keys per channel", "KIVI, 4 bits", "KIVI, 4 bits, residual 32"):
        assert abs(quality[text][name]["loss"]) < 0.03


@pytest.mark.parametrize("text", TEXTS)
def test_two_bits_per_token_are_worse_than_kivis(quality, text):
    of = quality[text]
    assert of["int2 per token"]["loss"] > 2 * of["KIVI, 2 bits"]["loss"] > 0
    assert of["int2 both per channel"]["loss"] > 1.5 * of["KIVI, 2 bits"]["loss"]


@pytest.mark.parametrize("text", TEXTS)
def test_minding_outliers_makes_most_of_the_loss_go_away(quality, text):
    """Per token and whole heads: rotated, or with 4 key channels apart, less than half is lost."""
    of = quality[text]
    plain = of["int4 per token, whole heads"]["loss"]
    assert of["int4 per token, keys rotated"]["loss"] < plain / 2
    assert of["int4 per token, 4 key channels apart"]["loss"] < plain / 3


def test_keys_want_channels_and_values_tokens():
    """Keys per channel: less than half the error. Values: per channel the output of attention suffers more."""
    errors = load_row("quantized_error").values["errors"]
    for bits in (8, 4, 2):
        token, channel = errors[f"{bits} bits, per token"], errors[f"{bits} bits, per channel"]
        assert channel["keys"] < token["keys"] / 2 and channel["output_of_keys"] < token["output_of_keys"] / 1.9
        assert channel["output_of_values"] > 1.4 * token["output_of_values"]


def test_a_process_grows_by_what_the_formula_says():
    """Half a gigabyte and more in each format, within 5 %."""
    rows = load_row("quantized_memory").values["rows"]
    assert len(rows) >= 5
    for row in rows:
        assert row["formula_bytes"] >= 500e6 and abs(row["ratio"] - 1) < 0.05

"""The drafts that come with kvedu: they load, are as small as promised, keep the text, and are often right."""

import hashlib

import pytest
import torch

import kvedu
from kvedu import generate, speculate
from kvedu.errors import LoadError
from kvedu.speculative import shipped
from tiny import tiny_config, tiny_model

NEW = 24
PROMPTS = (
    'class Account:\n    """Money that belongs to somebody."""\n\n    def __init__(self, owner, balance=0):\n',
    "def test_addition():\n    assert add(1, 2) == 3\n\n\ndef test_subtraction():\n",
    "import os\nimport sys\nfrom pathlib import Path\n\n\ndef main():\n    parser =",
)
LEAST = {"eagle": 1.5, "medusa": 1.1, "mtp": 1.2, "draft": 1.1}
"""Tokens a round on these prompts, at the least; loose, since rounding differs between machines."""
DEEP = {"eagle": 3, "medusa": 3, "mtp": 2, "draft": 3}


@pytest.fixture(scope="module")
def model():
    return kvedu.load(dtype=torch.float32)


@pytest.fixture(scope="module")
def plain(model):
    return [done.token_ids for done in generate(model, list(PROMPTS), max_new_tokens=NEW, ignore_eos=True)]


@pytest.mark.parametrize("name", LEAST)
def test_the_text_is_plain_greedys_in_fewer_rounds(name, model, plain):
    """Must hold 1 of speculation, for the trained parts; and their acceptance, counted."""
    proposer = getattr(shipped, name)(model)
    done = speculate(model, list(PROMPTS), proposer, max_new_tokens=NEW, ignore_eos=True)
    assert [one.completion.token_ids for one in done] == plain
    rounds = [r for one in done for r in one.rounds]
    assert sum(r.emitted for r in rounds) / len(rounds) >= LEAST[name]


def test_files_are_what_the_table_says_and_small():
    table = shipped.table()
    assert set(table["heads"]) == set(LEAST)
    total = 0
    for name, row in table["heads"].items():
        data = (shipped.FOLDER / f"{name}.safetensors").read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["file_sha256"] and len(data) == row["file_bytes"]
        assert row["stages"] and row["commit"] and row["versions"] and set(row["held_out"]) == {"code", "prose"}
        assert len(row["held_out"]["code"]["by_position"]) == DEEP[name]
        total += len(data)
    assert total < 40e6
    assert all(len(table["texts"][part]["ids_sha256"]) == 64 for part in ("written", "more", "read", "held_out"))
    assert 0 < table["minutes_on_two_cores"] < 60 and all(stage["cpu_s"] >= 0 for stage in table["seconds"].values())


@pytest.mark.parametrize("name", LEAST)
def test_another_model_is_refused_with_the_numbers(name):
    with pytest.raises(LoadError, match="width 576, 49152 tokens and 30 blocks.* 32, 97 and 2"):
        getattr(shipped, name)(tiny_model(tiny_config()))


def test_packed_and_bf16_targets_get_packed_bf16_heads(model):
    packed = kvedu.load(dtype=torch.bfloat16).pack()
    proposer = shipped.eagle(packed)
    assert proposer.head.fuse.weight is None or proposer.head.fuse.weight.dtype == torch.bfloat16
    assert (proposer.head.fuse.packed is None) == (packed.head.packed is None)
    done = speculate(packed, PROMPTS[0], proposer, max_new_tokens=8, ignore_eos=True)
    assert len(done.completion.token_ids) == 8


@pytest.mark.parametrize("name", LEAST)
def test_a_file_that_is_not_there_says_where_it_is(name, tmp_path):
    """As ``mtp`` in a wheel, which leaves those modules out."""
    with pytest.raises(LoadError, match=rf"no {name}.safetensors in .*leaves mtp.safetensors out.*--only {name}"):
        getattr(shipped, name)(tiny_model(tiny_config()), folder=tmp_path)

"""A head comes back from its file as it was written, for its own target only."""

from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from kvedu.errors import LoadError
from kvedu.speculative.eagle_head import EagleHead, fresh_head
from kvedu.speculative.head_files import read_head, write_head
from tiny import tiny_config, tiny_model
from tiny_heads import most_of, shape

MODEL = tiny_model(tiny_config(L=3))
TAPS = (1, 3)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "eagle.safetensors"
    write_head(file, "eagle", fresh_head(shape(MODEL, TAPS), MODEL), most_of(MODEL), MODEL, taps=list(TAPS))
    return file


def empty_head(taps=TAPS):
    wanted = shape(MODEL, taps)
    with torch.device("meta"):
        return EagleHead(wanted)


def test_weights_come_back_to_half_a_step_of_their_row(path):
    file = read_head(path, "eagle")
    file.check(MODEL)
    assert file.vocabulary().ids == most_of(MODEL).ids and file.facts["taps"] == list(TAPS)
    head, wanted = file.fill(empty_head(), MODEL), fresh_head(shape(MODEL, TAPS), MODEL)
    for (name, got), want in zip(head.named_parameters(), wanted.parameters(), strict=True):
        want = want.detach()
        if want.ndim == 2:
            step = want.abs().amax(dim=1, keepdim=True) / 127
            assert bool(((got - want).abs() <= 0.5001 * step).all()) and not torch.equal(got, want), name
        else:
            assert torch.equal(got, want.to(torch.bfloat16).float()), name
        assert not got.requires_grad and got.dtype == MODEL.dtype


def test_a_matrix_is_a_byte_a_weight(path):
    with safe_open(path, framework="pt") as file:
        kinds = {name: file.get_tensor(name).dtype for name in file.keys()}
    assert kinds["fuse.weight"] == torch.int8 and kinds["step.norm.weight"] == torch.bfloat16


@pytest.mark.parametrize("changed, numbers", [({"width": 40}, "width 32.*width|32.*40"), ({"vocab_size": 60}, "97.*60"), ({"n_layers": 2}, "3 blocks.* 2")])
def test_another_target_is_refused_with_the_numbers(path, changed, numbers):
    with pytest.raises(LoadError, match=numbers):
        read_head(path, "eagle").check(tiny_model(replace(MODEL.config, **changed)))


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(LoadError, match="holds a eagle head, wanted medusa|eagle.*wanted medusa"):
        read_head(path, "medusa")
    with pytest.raises(LoadError, match="no head file"):
        read_head(tmp_path / "none.safetensors", "eagle")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LoadError, match="no head file"):
        read_head(broken, "eagle")
    with pytest.raises(LoadError, match="disagree.*tap_norms.1"):
        read_head(path, "eagle").fill(empty_head((3,)), MODEL)

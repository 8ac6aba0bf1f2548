"""The loop that trains the heads: its loss has the right gradient, a stopped run goes on as one that never stopped."""

import time

import pytest
import torch

from head_clock import clock, spent
from head_features import Features
from head_start import begin_mtp
from head_training import Lesson, Schedule, Teacher, draft_loss, eagle_loss, medusa_loss, mtp_loss, order, taught, train
from kvedu.caches.concat import ConcatCache
from kvedu.speculative.eagle_head import fresh_head
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.medusa_heads import fresh_medusa
from kvedu.speculative.mtp_heads import fresh_mtp
from tiny import random_ids, tiny_config, tiny_model
from tiny_heads import most_of, shape

MODEL = tiny_model(tiny_config(L=3), scale=0.12)
TAPS = (1, 2, 3)
LENGTHS = (12, 9, 12, 5)


@pytest.fixture(scope="module")
def teacher():
    return Teacher(MODEL, most_of(MODEL))


@pytest.fixture(scope="module")
def text(teacher):
    ids_BT = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int32)
    features_BTE = torch.zeros(*ids_BT.shape, 3 * MODEL.config.M)
    for b, length in enumerate(LENGTHS):
        ids = random_ids(length, seed=b)
        cache = ConcatCache(MODEL.config)
        with torch.no_grad(), cache.step({cache.add(): length}) as view:
            features_BTE[b, :length] = MODEL.tapped(torch.tensor(ids), view, TAPS)[1]
        ids_BT[b, :length] = torch.tensor(ids)
    return taught(teacher, Features(ids_BT, torch.tensor(LENGTHS), features_BTE, MODEL.config.M))


def head():
    return fresh_head(shape(MODEL, TAPS), MODEL)


def test_the_gradient_is_that_of_the_divergence(teacher):
    generator = torch.Generator().manual_seed(1)
    f_NM = torch.randn(6, MODEL.config.M, generator=generator).requires_grad_()
    p_NL, places_NL = teacher.likely(torch.randn(6, MODEL.config.M, generator=generator))
    weight_N = torch.tensor([0.5, 1, 0, 2, 1, 1])
    lesson = Lesson(teacher, p_NL, places_NL, 3)
    value, _ = lesson.loss(f_NM, weight_N)
    (got,) = torch.autograd.grad(value, f_NM)
    log_q = torch.log_softmax(f_NM @ lesson.rows_CM.float().T, -1)
    wanted_value = (torch.nn.functional.kl_div(log_q, lesson.p_NC, reduction="none").sum(-1) * weight_N).sum()
    (wanted,) = torch.autograd.grad(wanted_value, f_NM)
    assert float(value.detach()) == pytest.approx(float(wanted_value.detach()), rel=0.02)
    torch.testing.assert_close(got, wanted, rtol=0.1, atol=0.02)  # the head's products are bf16


def test_padding_and_places_without_a_past_teach_nothing(teacher, text):
    """The same sequences with other numbers where the padding is: the same loss."""
    loss = eagle_loss(head(), teacher, text, 3)(torch.arange(4))[0]
    other = text.features.features_BTE.clone()
    for b, length in enumerate(LENGTHS):
        other[b, length:] = 7.0
    changed = taught(teacher, Features(text.features.ids_BT, text.features.lengths_B, other, MODEL.config.M))
    changed.p_BTL[:], changed.places_BTL[:] = text.p_BTL, text.places_BTL
    assert float(eagle_loss(head(), teacher, changed, 3)(torch.arange(4))[0].detach()) == pytest.approx(float(loss.detach()), rel=1e-5)


@pytest.mark.parametrize("name", ["eagle", "medusa", "mtp", "draft"])
def test_every_kind_learns(name, teacher, text, tmp_path):
    if name == "eagle":
        module = head()
        loss = eagle_loss(module, teacher, text, 2)
    elif name == "medusa":
        module = fresh_medusa(shape(MODEL), MODEL, 2)
        loss = medusa_loss(module, teacher, text)
    elif name == "mtp":
        module = fresh_mtp(shape(MODEL), MODEL, 2)
        loss = mtp_loss(module, teacher, text)
    else:
        module = first_layers(tiny_model(MODEL.config, scale=0.12), 1)
        module.requires_grad_(False)
        module.layers.requires_grad_(True)
        loss = draft_loss(module, teacher, text)
    before = float(loss(torch.arange(4))[0])
    schedule = Schedule(30, 4, 5e-3 if name == "eagle" else 2e-2, warmup=2, muon=name != "eagle")
    for _ in train(module, loss, 4, schedule, tmp_path / f"{name}.pt"):
        pass
    assert float(loss(torch.arange(4))[0]) < 0.85 * before


@pytest.mark.parametrize("muon", [False, True])
def test_a_stopped_run_goes_on_as_one_that_never_stopped(muon, teacher, text, tmp_path, monkeypatch):
    monkeypatch.setattr("head_training.SAVE_EVERY", 3)
    schedule, ends = Schedule(3, 2, 1e-3, muon=muon), []
    for stop in (False, True):
        module, path = head(), tmp_path / f"{stop}.pt"
        loss = eagle_loss(module, teacher, text, 1)
        if stop:
            next(train(module, loss, 4, schedule, path))  # three of six steps, then the run is cut off
            module = head()
            loss = eagle_loss(module, teacher, text, 1)
        for _ in train(module, loss, 4, schedule, path):
            pass
        ends.append(module.step.fc.weight.detach().clone())
    assert torch.equal(*ends)


def test_every_pass_takes_every_sequence_once():
    batches = order(10, Schedule(2, 5))
    assert len(batches) == 4 and all(sorted(torch.cat(batches[i : i + 2]).tolist()) == list(range(10)) for i in (0, 2))
    assert [b.tolist() for b in batches] == [b.tolist() for b in order(10, Schedule(2, 5))]
    assert [b.tolist() for b in batches] != [b.tolist() for b in order(10, Schedule(2, 5, seed=8))]


def test_a_linear_guess_is_a_better_beginning(teacher, text):
    """What least squares say is closer to the target than what fresh modules say, and the layers have no say yet."""
    module = fresh_mtp(shape(MODEL), MODEL, 2)
    loss = mtp_loss(module, teacher, text)
    before = float(loss(torch.arange(4))[0].detach())
    begin_mtp(module, teacher, text.features)
    assert float(loss(torch.arange(4))[0].detach()) < 0.9 * before
    for step in module.steps:
        assert not step.block.attn.out.weight.any() and not step.block.mlp.down.weight.any() and step.block.attn.qkv.weight.any()


def test_seconds_of_a_stage_add_up_over_a_stop(tmp_path):
    for _ in range(2):
        with clock(tmp_path, "one"):
            end = time.process_time() + 0.06
            while time.process_time() < end:
                pass
    with pytest.raises(KeyboardInterrupt), clock(tmp_path, "two"):
        raise KeyboardInterrupt
    found = spent(tmp_path)
    assert set(found) == {"one", "two"} and 0.1 <= found["one"]["cpu_s"] <= 1 and found["two"]["cpu_s"] == 0

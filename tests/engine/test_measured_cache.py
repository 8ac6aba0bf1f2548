"""A cache as large as a GPU's memory lets it be: measured, with a device that answers from a script."""

import pytest
import torch

import kvedu.engine.memory as memory
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.kv_format import KVFormat
from kvedu.engine.engine import Engine
from kvedu.errors import CacheFull, RequestError
from kvedu.model.transformer import Transformer
from kvedu.speculative.ngram import NGram
from kvedu.units import MiB
from tiny import tiny_config, tiny_model


class Bottomless(NGram):
    """A proposer that does not say how deep it goes."""

    def __init__(self):
        super().__init__()
        self.deepest = None


@pytest.fixture
def gpu(monkeypatch):
    """A device with 10 MiB free, of which a step takes 2 MiB; what was asked of it is kept."""

    class Told:
        free_bytes, step_bytes, said = 10 * MiB, 2 * MiB, []

        def __init__(self, device):
            self.device = device

        def free(self):
            self.said.append("free")
            return Told.free_bytes

        def peak(self, work):
            self.said.append("peak")
            work()
            return Told.step_bytes

    Told.said.clear()
    monkeypatch.setattr(memory, "DeviceMemory", Told)
    monkeypatch.setattr(memory, "_on_cpu", lambda model: False)
    return Told


def test_share_of_what_is_free_less_the_step(gpu):
    model = tiny_model()
    own = 64 * 16 * kv_bytes_per_token(model.config, 4)  # a page for each of 64 sequences of 8 tokens: no part of what a step takes
    assert memory.measured_cache_bytes(model, share=0.5) == 5 * MiB - (2 * MiB - own)
    assert memory.measured_cache_bytes(model) == 9 * MiB - (2 * MiB - own)
    assert memory.measured_cache_bytes(model, kv_format=KVFormat.int8(group=8)) == 7 * MiB
    assert gpu.said == ["free", "peak"] * 3, "what is free is asked before the step runs"


def test_an_engine_is_as_large_as_that(gpu):
    """Pages of one tensor a layer, never more than was measured, as many as that pays for."""
    model = tiny_model()
    engine = Engine(model, memory_share=0.5, page_size=4, max_running=8, token_budget=32)
    page = 4 * kv_bytes_per_token(model.config, 4)
    budget = 3 * MiB + 8 * page
    assert budget - page < engine.cache.nbytes <= budget and len(engine.cache.k) == model.config.L
    [done] = engine.generate([[5, 6, 7]], max_new_tokens=3)
    assert len(done.token_ids) == 3


def test_the_step_that_is_measured_is_the_largest(monkeypatch):
    """As many tokens and sequences as the scheduler lets into a step; a draw for each, of the kind that takes most; pages for no more than that."""
    model, seen = tiny_model(), {}
    hidden, draw = Transformer.hidden, memory.draw_rows

    def watched(self, ids_N, view):
        seen.update(tokens=len(ids_N), sequences=len(view.rows), pages=view.cache.n_blocks, dtype=view.cache.dtype)
        return hidden(self, ids_N, view)

    monkeypatch.setattr(Transformer, "hidden", watched)
    def drawn(draws, logits_RV):
        seen.update(rows=len(logits_RV), penalties=sum(one.sampler.sampling.repetition_penalty != 1 for one in draws))
        return draw(draws, logits_RV)

    monkeypatch.setattr(memory, "draw_rows", drawn)
    memory.largest_step(model, sequences=5, tokens=33, page_size=4)
    assert seen == {"tokens": 33, "sequences": 5, "pages": 10, "dtype": torch.float32, "rows": 5, "penalties": 5}


@pytest.mark.parametrize("tokens, guesses, rows", [(33, 4, 33), (600, 4, 256), (600, 99, 500), (600, 200, 600)])
def test_rows_of_guesses_and_scores_count(monkeypatch, tokens, guesses, rows):
    """A step that verifies has logits of each guess, one that scores a prompt those of a piece of it; never more rows than tokens."""
    seen, logits = [], Transformer.logits
    monkeypatch.setattr(Transformer, "logits", lambda self, x: (seen.append(len(x)), logits(self, x))[1])
    memory.largest_step(tiny_model(), sequences=5, tokens=tokens, page_size=4, guesses=guesses)
    assert seen == [rows]


@pytest.mark.parametrize("speculate, rows", [(None, 25), (NGram(k=2), 25), (NGram(k=7), 40), (Bottomless(), 85)])
def test_an_engine_that_guesses_leaves_room_for_its_guesses(gpu, monkeypatch, speculate, rows):
    """A row for each text and one for each of its guesses, as deep as its proposer goes; any request may come with a few of its own."""
    seen, logits = [], Transformer.logits
    monkeypatch.setattr(memory, "AT_ONCE", 1)
    monkeypatch.setattr(Transformer, "logits", lambda self, x: (seen.append(len(x)), logits(self, x))[1])
    Engine(tiny_model(), page_size=4, max_running=5, token_budget=512, speculate=speculate)
    assert seen == [rows]


def test_too_little_says_what_takes_it(gpu):
    model = tiny_model()
    gpu.step_bytes = 9 * MiB + 64 * 16 * kv_bytes_per_token(model.config, 4)
    with pytest.raises(CacheFull, match="90% of that, less 0.01 GiB for a step of 512 tokens of 64 sequences"):
        Engine(model)
    gpu.step_bytes -= 2 * 16 * kv_bytes_per_token(model.config, 4)
    assert Engine(model).cache.n_blocks == 2


def test_a_cpu_is_told():
    with pytest.raises(RequestError, match="on a CPU say how many bytes"):
        Engine(tiny_model(tiny_config()))


@pytest.mark.parametrize("share", [0, -0.1, 1.2])
def test_a_share_that_is_none(gpu, share):
    with pytest.raises(RequestError, match="memory_share"):
        Engine(tiny_model(), memory_share=share)


def test_what_pytorch_is_asked(monkeypatch):
    """Its own names, which exist, in an order that counts what the work alone takes; no call that only one maker's chips know."""
    said, held = [], {"now": 100, "most": 0}

    def told(name, value):
        assert hasattr(torch.accelerator, name)
        monkeypatch.setattr(torch.accelerator, name, lambda *device: said.append(name) or value())

    for name in ("empty_cache", "synchronize", "reset_peak_memory_stats"):
        told(name, lambda: None)
    told("memory_allocated", lambda: held["now"])
    told("max_memory_allocated", lambda: held["most"])
    monkeypatch.setattr(torch, "get_device_module", lambda device: type("module", (), {"mem_get_info": staticmethod(lambda device: (70, 90))}))
    device = memory.DeviceMemory(torch.device("cuda", 0))
    assert device.free() == 70 and device.peak(lambda: said.append("work") or held.update(most=130)) == 30
    assert said == ["empty_cache", "synchronize", "reset_peak_memory_stats", "memory_allocated", "work", "synchronize", "max_memory_allocated"]

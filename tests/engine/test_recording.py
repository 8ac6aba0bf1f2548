"""How recordings are made: of which sizes, on which device, in how much memory, and what happens where it does not suffice."""

import contextlib

import pytest
import torch

import kvedu.engine.graphs as graphs
import kvedu.kernels.launch as launch
from engines import engine_of, run_out, solo
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged import PagedCache
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.engine.graphs import LADDER, Again, DecodeGraphs, cuda_graph
from kvedu.errors import RequestError
from kvedu.kernels import native
from kvedu.model.transformer import Transformer
from tiny import random_ids, tiny_config, tiny_model

kernel = pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no paged kernel here to record, and no GPU")
planned = pytest.mark.skipif(launch.missing() is not None, reason="kernels of a GPU are planned here, and there is no Triton")
META = torch.device("meta")


@planned
@pytest.mark.parametrize("capability, most", [(75, 64), (90, 256)])
@pytest.mark.parametrize("format", [None, KVFormat.int8(group=16)], ids=["as they come", "int8"])
def test_rungs_that_no_kernel_takes_are_left_out(monkeypatch, capability, most, format):
    """On 7.5 a step of 65 rows attends through PyTorch, which asks the device: it cannot be recorded. Steps of 64 can."""
    monkeypatch.setattr(launch, "runs_on", lambda device: True)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip.known(capability))
    with META:
        model = Transformer(tiny_config(D=16, L=2)).eval().to(torch.float16)
    kind = dict(n_pages=70, dtype=torch.float16, device=META, spare=True)
    plain = format is None
    cache = PagedCache(model.config, **kind) if plain else PagedQuantizedCache(model.config, format=format, max_sequences=70, **kind)
    steps = DecodeGraphs(model, cache, record=Again)
    assert steps.ladder == tuple(rung for rung in LADDER if rung <= most)
    seqs = [cache.add() for _ in range(65)]
    for count in (64, 65):
        with contextlib.suppress(KeyboardInterrupt), cache.step({seq: 1 for seq in seqs[:count]}) as view:
            assert steps.takes(view) == (count <= most)
            raise KeyboardInterrupt
    assert DecodeGraphs(model, cache, ladder=(128,), record=Again).ladder == ((128,) if most > 64 else ())


class Short:
    """Memory for so many recordings; after that each says that there is none, in one of the ways in which that is said."""

    def __init__(self, error, enough):
        self.error, self.enough, self.tried = error, enough, 0

    def __call__(self, work):
        self.tried += 1
        if self.tried <= self.enough:
            return Again(work)
        if self.error is None:
            try:
                raise torch.OutOfMemoryError
            finally:
                raise RuntimeError("the capture was broken off")  # noqa: B012
        raise self.error


@kernel
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("format", [None, KVFormat.kivi(bits=2, group=4, residual=4)], ids=["as they come", "kivi"])
@pytest.mark.parametrize("enough", [0, 2])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), RuntimeError("CUDA is out of memory"), None], ids=["torch", "CUDA", "after"])
def test_without_memory_for_it_a_step_is_run_as_it_is(error, enough, format, overlap):
    """Nobody loses a token, and each size is tried once."""
    model, prompts = tiny_model(tiny_config(D=16)), [random_ids(4 + i, seed=i) for i in range(3)]
    settings = dict(pages=60 if format is None else 200, kv_format=format, overlap=overlap)

    def tokens(graphs):
        engine = engine_of(model, graphs=graphs, **settings)
        for i, prompt in enumerate(prompts):
            engine.add(prompt, max_new_tokens=6 + 5 * i, ignore_eos=True)
        run_out(engine)
        return engine, [engine.results(i)[0].token_ids for i in range(3)]

    short = Short(error, enough)
    engine, found = tokens(lambda model, cache: DecodeGraphs(model, cache, ladder=(1, 2, 4), record=short))
    assert found == tokens(False)[1]
    assert format is not None or found == [solo(model, prompt, 6 + 5 * i) for i, prompt in enumerate(prompts)]
    made = engine.executor.graphs
    assert len(made.recorded) == enough and short.tried == len(made._made) > 3


@kernel
def test_other_errors_are_said():
    broken = Short(RuntimeError("no"), 0)
    engine = engine_of(tiny_model(tiny_config(D=16)), graphs=lambda model, cache: DecodeGraphs(model, cache, record=broken))
    engine.add(random_ids(4), max_new_tokens=4)
    with pytest.raises(RuntimeError, match="no"):
        run_out(engine)


@kernel
def test_logits_of_all_sizes_lie_in_one_place():
    """As many rows as the largest step that is recorded has, however many sizes there are."""
    model = tiny_model(tiny_config(D=16))
    cache = PagedCache(model.config, n_pages=40, page_size=4, spare=True)
    seqs, places = [cache.add() for _ in range(4)], set()
    steps = DecodeGraphs(model, cache, ladder=(1, 2, 4), record=Again)
    with torch.inference_mode():
        for count in (1, 2, 3, 4) * 3:
            with cache.step({seq: 1 for seq in seqs[:count]}) as view:
                logits_BV = steps.logits([7] * count, view)
                assert logits_BV.shape == (count, model.config.V)
                places.add((logits_BV.data_ptr(), logits_BV.untyped_storage().nbytes()))
    assert len(steps.recorded) > 3 and len(places) == 1 and places.pop()[1] == 4 * model.config.V * 4


@kernel
@pytest.mark.parametrize("format", [None, KVFormat.kivi(bits=2, group=4, residual=4)], ids=["as they come", "kivi"])
def test_recordings_can_be_made_before_anybody_comes(format):
    """All sizes that these requests need, on spare rows alone; none is made later, and tokens are those of an engine without."""
    model = tiny_model(tiny_config(D=16))

    def tokens(graphs, warm):
        engine = engine_of(model, pages=200, kv_format=format, graphs=graphs)
        steps = engine.executor.graphs
        if warm:
            before = [pages[: engine.cache.n_blocks].clone() for pages in engine.cache.page_tensors]
            assert engine.warm(tokens=5 * engine.cache.page_size - 1, sequences=3) == 12
            assert all(torch.equal(a, b[: len(a)]) for a, b in zip(before, engine.cache.page_tensors))
            assert sorted(steps.recorded) == [(batch, width) for batch in (1, 2, 4) for width in (1, 2, 4, 8)]
        for i in range(3):
            engine.add(random_ids(4 + i, seed=i), max_new_tokens=6 + 4 * i, ignore_eos=True)
        with pytest.raises(RequestError, match="requests are running"):
            engine.warm(tokens=8)
        run_out(engine)
        assert not warm or len(steps.recorded) == 12
        assert graphs or engine.warm(tokens=8) == 0
        return [engine.results(i)[0].token_ids for i in range(3)]

    assert tokens(lambda model, cache: DecodeGraphs(model, cache, ladder=(1, 2, 4, 8), record=Again), True) == tokens(False, False)


@pytest.fixture
def cuda(monkeypatch):
    """A CUDA that only says what it was asked, and where: the thread's device is 0."""
    now = {"device": torch.device("cuda", 0), "stream": "its own of 0"}
    said = []

    class Stream:
        def __init__(self, device=None):
            self.device = now["device"] if device is None else device
            said.append(("stream of", self.device.index))

        def wait_stream(self, other):
            pass

    class Main(Stream):
        def __init__(self):
            self.device = now["device"]

    def within(name, value):
        @contextlib.contextmanager
        def inside():
            old, now[name] = now[name], value
            try:
                yield
            finally:
                now[name] = old

        return inside()

    def capture(graph, **settings):
        said.append(("record", now["device"].index, settings["stream"].device.index, settings["capture_error_mode"], settings["pool"]))
        return within("stream", settings["stream"])

    monkeypatch.setattr(torch.cuda, "device", lambda device: within("device", now["device"] if device is None else device))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: within("stream", stream))
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Main)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "graph")
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    return now, said


def test_a_recording_is_made_on_the_model_s_device(cuda):
    """Whatever the thread's is, on a stream of its own, which all recordings of a model share with their memory."""
    now, said = cuda
    record = graphs._on_cuda(torch.device("cuda", 1))
    for _ in range(2):
        assert record(lambda: said.append(("work", now["device"].index, now["stream"].device.index))) == "graph"
    once = [("work", 1, 1)] * 2 + [("record", 1, 1, "thread_local", "pool"), ("work", 1, 1)]
    assert said == [("stream of", 1), *once, *once] and now["device"].index == 0 and now["stream"] == "its own of 0"


def test_without_being_told_it_is_the_thread_s(cuda):
    now, said = cuda
    cuda_graph(lambda: said.append(now["device"].index))
    assert said == [("stream of", 0), 0, 0, ("record", 0, 0, "thread_local", None), 0]


@kernel
def test_replays_and_plain_steps_run_on_the_model_s_device(monkeypatch):
    """A thread of a server has device 0 as its own, wherever the model is."""
    inside, asked = [], []

    @contextlib.contextmanager
    def device_index(index):
        asked.append(index)
        inside.append(index)
        yield
        inside.pop()

    class Watched(Again):
        def replay(self):
            assert inside
            super().replay()

    hidden = Transformer.hidden
    monkeypatch.setattr(Transformer, "hidden", lambda *args, **kwargs: (inside[0], hidden(*args, **kwargs))[1])
    monkeypatch.setattr(torch.accelerator, "device_index", device_index)
    engine = engine_of(tiny_model(tiny_config(D=16)), graphs=lambda model, cache: DecodeGraphs(model, cache, record=Watched))
    engine.add(random_ids(4), max_new_tokens=4, ignore_eos=True)
    run_out(engine)
    assert engine.executor.graphs.recorded and set(asked) == {None} and not inside, "a CPU has no number"

"""A step on a GPU that is not there: nothing in it makes the host wait but the sampled ids, and those only when they are read.

Everything lies on PyTorch's meta device, which computes nothing and refuses to say what a number is, or which are true; kernels are planned, with
all their checks, and not launched. What goes between host and device is watched.
"""

import contextlib
import random

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import kvedu.engine.choose as choose
import kvedu.kernels.launch as launch
import kvedu.kernels.transfer as transfer
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.caches.formats import integer
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.engine.graphs import Again, DecodeGraphs
from kvedu.model.transformer import Transformer
from lives import settings
from tiny import random_ids, tiny_config

pytestmark = pytest.mark.skipif(launch.missing() is not None, reason="the kernels of a GPU are planned here, and Triton does not exist on this system")

META = torch.device("meta")


class Lists(TorchFunctionMode):
    """Sees lists of Python that become tensors of the device on the way, too early for ``Watch``."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None and torch.device(kwargs["device"]) == META:
            self.waits.append("torch.tensor of a list on the device")
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and args[0].device == META:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.waits += ["a list as an index"] * any(isinstance(part, list) for part in index)
        return func(*args, **kwargs)


class Watch(TorchDispatchMode):
    """Sees every operation; ``waits`` are those for which a host waits for its GPU, ``asked`` counts the others."""

    def __init__(self, pinned):
        super().__init__()
        self.pinned, self.waits, self.asked = pinned, [], 0
        self.lists = Lists(self.waits)

    def __enter__(self):
        self.lists.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.lists.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        named = dict(zip((argument.name for argument in func._schema.arguments), args)) | (kwargs or {})
        out, name = func(*args, **(kwargs or {})), func.name()
        tensors = [x for x in torch.utils._pytree.tree_leaves(named) if isinstance(x, torch.Tensor)]
        device, host = ([x for x in tensors if (x.device == META) == there] for there in (True, False))
        if name.startswith(("aten::_to_copy", "aten::to.")) and (out.device == META) != bool(device):
            self._copied(f"{name} to {out.device}", named, host)
        elif name.startswith("aten::copy_") and device and host:
            self._copied(name, named, [] if host[0] is named["self"] else host)
        elif device and any(x.dim() for x in host):
            self.waits.append(f"{name} with a tensor of the host")
        elif device and any(x.dtype == torch.bool for x in device[1:]) and name.startswith("aten::index"):
            self.waits.append(f"{name} with a mask")
        else:
            self.asked += bool(device)
        return out

    def _copied(self, what, named, host):
        if not (host and named.get("non_blocking") and host[0].data_ptr() in self.pinned):
            self.waits.append(what)


@pytest.fixture
def gpu(monkeypatch):
    """The meta device takes the part of a GPU; what is launched there, and what was pinned."""
    launched, pinned, kept = [], set(), []

    def pin(x, device):
        kept.append(x.clone())  # alive, so that no other tensor gets its address
        pinned.add(kept[-1].data_ptr())
        return kept[-1]

    class Ids:
        """The only thing that comes back, and what is reported of them."""

        def __init__(self, x):
            assert x.device == META and x.dim() == 1
            self.n, self.report = len(x), x.dtype == torch.float64

        def read(self):
            return [random.random() if self.report else random.randint(5, 90) for _ in range(self.n)]

    monkeypatch.setattr(launch, "runs_on", lambda device: True)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    monkeypatch.setattr(launch, "_chip", lambda device: launch.Chip.known(90))
    monkeypatch.setattr(launch.Launch, "run", lambda self: launched.append(self.kernel.fn.__name__ if hasattr(self.kernel, "fn") else "kernel"))
    monkeypatch.setattr(transfer, "pinned", pin)
    monkeypatch.setattr(choose, "Coming", Ids)
    return launched, pinned


def engine_on(gpu, **settings):
    with META:
        model = Transformer(tiny_config(D=16, L=2)).eval()
    model = model.to(torch.float16)
    page = 16 * kv_bytes_per_token(model.config, 2)
    return Engine(model, cache_bytes=60 * page, max_running=8, token_budget=16, **settings)


def serve(engine):
    """Prompts longer than a step, a fork on a shared page, draws of every kind, a shared prefix, ends in mid-batch."""
    for i, sampling in enumerate([*settings(1), *settings(2)]):
        engine.add(random_ids(20, seed=0) + random_ids(3 + i, seed=i), max_new_tokens=3 + i, ignore_eos=True, n=1 + (i in (1, 2)), sampling=sampling)
    while not engine.idle:
        engine.step()


FORMATS = {"as they come": None, "int8": KVFormat.int8(group=16), "kivi": KVFormat(integer(4, 16, "tokens"), integer(4, 16), 16)}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_nobody_waits(gpu, format, overlap, recorded):
    """Whole lives of an engine: each step asks, copies by pinned memory, and reads nothing but its ids."""
    launched, pinned = gpu
    graphs = (lambda model, cache: DecodeGraphs(model, cache, ladder=(2, 4, 8), record=Again)) if recorded else False
    reuse = HashReuse if FORMATS[format] is None else None
    engine = engine_on(gpu, reuse=reuse, kv_format=FORMATS[format], overlap=overlap, graphs=graphs)
    serve(engine)  # what is made once for all steps is made now
    with Watch(pinned) as watch:
        serve(engine)
    assert watch.waits == [] and watch.asked > 500 and launched
    assert (engine.executor.graphs is not None) == recorded
    assert {"turn_and_write", "gate"} <= set(launched), "the model was not fused"


@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.inference_mode])
@pytest.mark.parametrize("wait", [
    lambda x, rows: x[rows], lambda x, rows: x[[0, 1]], lambda x, rows: x[x > 0], lambda x, rows: x.to("meta", copy=True)[0] == 0 or x.sum().item(),
    lambda x, rows: torch.tensor([1], device=META), lambda x, rows: torch.zeros(2, dtype=torch.int64).to(META), lambda x, rows: x.copy_(torch.zeros(2, 2)), lambda x, rows: x.cpu(),
], ids=["index of the host", "list", "mask", "item", "list there", "to", "copy", "back"])  # fmt: skip
def test_the_watch_sees(gpu, wait, mode):
    """What makes a host wait is seen, or not even possible there."""
    x = torch.zeros(2, 2, device=META)
    with Watch(set()) as watch, mode():
        try:
            wait(x, torch.tensor([0, 1]))
        except (RuntimeError, NotImplementedError):
            return
    assert watch.waits

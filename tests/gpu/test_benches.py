"""The benches of `make gpu` keep what they measured: whatever fails, hangs or comes late beside it."""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import bench_kernels  # noqa: E402
import bench_nano  # noqa: E402
from peers import attention  # noqa: E402
from tiny import random_ids, tiny_config, tiny_model  # noqa: E402

from kvedu.errors import KveduError  # noqa: E402
from kvedu.kernels import native  # noqa: E402
from kvedu.kernels.launch import missing  # noqa: E402
from kvedu.units import Cost  # noqa: E402


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("KVEDU_ROWS", str(tmp_path))
    return lambda name: json.loads((tmp_path / f"{name}.json").read_text())[0]["values"]


def test_what_was_measured_is_kept_at_once(rows, monkeypatch, capsys):
    """The row holds a kind as soon as it is measured; one that fails is a line of it; after the time given nothing is begun."""
    seen = []

    def run(name):
        if name != "engine":
            seen.append(dict(rows("nano")))
        if name == "static":
            raise KveduError("no room")
        return {"tokens_per_s": 3.0}

    monkeypatch.setattr(bench_nano, "run_engine", lambda *args, **settings: run("engine"))
    monkeypatch.setattr(bench_nano, "run_static", lambda *args, **settings: run("static"))
    tiny = ["--device", "cpu", "--requests", "2", "--longest", "4", "--layers", "1", "--save", "--only", "engine,static"]
    assert bench_nano.main(tiny) == 0
    assert seen[0]["engine"] == {"tokens_per_s": 3.0} and "no room" in rows("nano")["static"]["failed"]
    assert bench_nano.main([*tiny, "--seconds", "0"]) == 0
    assert "static: not begun" in capsys.readouterr().out


def test_what_is_wanted_most_is_measured_first(monkeypatch, capsys):
    """With all asked for, time may run out before others' engines are reached, and not before the engine, its caches and its guesses."""
    for name in ("engine", "real", "static", "transformers"):
        monkeypatch.setattr(bench_nano, f"run_{name}", lambda *args, **settings: {"tokens_per_s": 3.0})
    monkeypatch.setattr(bench_nano, "random_model", lambda *args: None)
    assert bench_nano.main(["--device", "cpu", "--requests", "2", "--longest", "4"]) == 0
    seen = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert seen[0] == "engine" and seen[-2:] == ["static", "transformers"]
    assert set(bench_nano.WAYS) == {name.removeprefix("ways/") for name in seen if name.startswith("ways/")}
    most = ["ways/prefix reuse", "ways/int8 pages", "ways/fp8 pages", "ways/guesses", "real with guesses"]
    assert max(map(seen.index, most)) < min(seen.index(f"ways/{way}") for way in ("drawn", "no recordings", "no overlap", "neither"))
    with pytest.raises(KveduError, match="nothing here is called engines"):
        bench_nano.chosen(["engines"])


@pytest.mark.skipif(isinstance(native.library(), native.Unavailable), reason="no paged kernel on this CPU (no GPU needed)")
def test_prefix_reuse_measures_the_shared_page_alone():
    """What compiles before must not leave whole prompts for the measured run: each request finds the page that all begin with."""
    model = tiny_model(tiny_config(D=16, V=101, max_positions=256))
    prompts = [random_ids(70, seed=i) for i in range(3)]
    found = bench_nano.run_engine(model, prompts, [3] * 3, 1e9, 0.8, **bench_nano.WAYS["prefix reuse"])
    assert found["reused_tokens"] == 3 * 16
    assert bench_nano.run_engine(model, prompts, [3] * 3, 1e9, 0.8)["reused_tokens"] == 0


@pytest.mark.skipif(bool(missing()), reason=f"no Triton: {missing()} (no GPU needed)")
def test_a_kernel_that_fails_takes_no_other_with_it(monkeypatch, capsys):
    made = list(bench_kernels.Bench(bench_kernels.TINY, torch.device("cpu"), torch.float16).cases())
    norm = next(make for make in made if "add and RMSNorm" in make().name)

    def broken():
        raise RuntimeError("out of shared memory")

    monkeypatch.setattr(bench_kernels.Bench, "cases", lambda self: iter([broken, norm, norm]))
    monkeypatch.setattr(sys, "argv", ["bench_kernels.py", "--dry"])
    assert bench_kernels.main() == 1
    said = capsys.readouterr()
    assert said.out.count("add and RMSNorm") == 2 and said.out.endswith("1 case failed\n") and "out of shared memory" in said.err


def test_a_broken_peer_is_a_word_of_its_row(monkeypatch):
    """Libraries that are installed and cannot be imported: the kernel's own numbers stay, and so does the other's time."""
    monkeypatch.setattr(attention, "find_spec", lambda name: "there")
    monkeypatch.setattr(bench_kernels, "milliseconds", lambda call: call() and 2.0)
    monkeypatch.setattr(attention, "_flashinfer", lambda *tensors: lambda: True)
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    q = SimpleNamespace(device=torch.device("cuda"))
    peers = partial(attention.peers_of, q, torch.empty(1, 256, 1, 8), None, torch.zeros(1, 1), 1, 3)
    case = bench_kernels.Case("decode", lambda: torch.ones(1), Cost(1, 1), "copy", lambda: torch.ones(1), others=peers)
    monkeypatch.setattr(bench_kernels, "error", lambda case: 0.0)
    others = bench_kernels.measure(case, {"copy": 1.0})["others_ms"]
    assert "ModuleNotFoundError" in others["flash-attn"] and others["FlashInfer"] == 2.0


def test_transformers_is_asked_as_it_wants(monkeypatch):
    """Inside inference mode too, where its own thread is not; and requests that it drops are said, not counted as done."""
    import transformers
    import transformers.generation.continuous_batching.cache as batching
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    monkeypatch.setattr(batching, "get_device_and_memory_breakdown", lambda: (torch.device("cpu"), 8 * 10**9, 0, 0))
    config, prompts = tiny_config(H=4, K=2, D=8, L=1), [random_ids(5), random_ids(3)]
    run = partial(bench_nano.run_transformers, config, prompts, [4, 4], torch.device("cpu"), torch.float32)
    small = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=32)
    with torch.inference_mode():
        assert run(continuous_batching_config=small)["tokens"] == 8
    with pytest.raises(KveduError, match="run on CUDA only"):
        run()
    dropped = {"a": SimpleNamespace(generated_tokens=[], error="no such tensor"), "b": SimpleNamespace(generated_tokens=[1] * 4, error=None)}
    monkeypatch.setattr(transformers.Qwen3ForCausalLM, "generate_batch", lambda *args, **settings: dropped)
    with pytest.raises(KveduError, match="4 tokens of 8 came: no such tensor"):
        run(continuous_batching_config=small)

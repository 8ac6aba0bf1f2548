"""Benches, labs and engines on a pretend GPU, which refuses what CUDA refuses: nothing mixes tensors of the CPU and of the device.

Each runs in a process of its own, ``python tests/gpu/test_emulated_gpu.py RUN``, since a device cannot be taken back.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils import backend_registration

ROOM = Path(__file__).parent
ROOT = ROOM.parents[1]
sys.path[:0] = [str(ROOM), str(ROOT / "tools")]
if __name__ == "__main__":
    import emulated_gpu  # before kvedu

import gpu_check  # noqa: E402

from kvedu.kernels.launch import missing  # noqa: E402

MADE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
WHY = missing() or ("" if MADE else "this PyTorch has no devices made in Python")
pytestmark = pytest.mark.skipif(bool(WHY), reason=f"{WHY} (no GPU needed)")


def refusals(device):
    """What the pretend GPU must say no to, and may not."""
    import torch

    there, here = torch.zeros(3, 4, device=device), torch.ones(3, 4)
    generator = torch.Generator().manual_seed(0)
    refused = {
        "sum": lambda: there + here,
        "mask": lambda: there.masked_fill(here > 0, 1.0),
        "index": lambda: here[torch.tensor([0], device=device)],
        "put": lambda: there.__setitem__(torch.tensor([0]), here[:1]),
        "in place": lambda: torch.zeros(()).add_(there[0, 0]),
        "generator": lambda: torch.multinomial(there[0] + 1, 1, generator=generator),
        "numpy": lambda: there.numpy(),
    }
    allowed = {
        "number": lambda: there + torch.tensor(1.0),
        "index": lambda: there[torch.tensor([0, 2])],
        "copy": lambda: there.copy_(here),
        "list": lambda: there[[1, 2]].tolist(),
    }
    said = {}
    for name, function in {**refused, **{f"allowed {name}": function for name, function in allowed.items()}}.items():
        try:
            function()
            said[name] = "passed"
        except (RuntimeError, TypeError):
            said[name] = "refused"
    return said


def kernels(device):
    """Every case of the kernels' bench with its peer, in small: its error, or what went wrong."""
    import bench_kernels
    import torch

    sizes, said = replace(bench_kernels.TINY, cached=20, long=40, prompt=20, pages=(16,)), {}
    with torch.inference_mode():
        for make in bench_kernels.Bench(sizes, torch.device(device), torch.float16).cases():
            case = make()
            try:
                said[case.name] = bench_kernels.error(case)
                if case.peer is not None:
                    case.peer()
            except Exception as error:
                said[case.name] = f"{type(error).__name__}: {error}"
    return said


def engine(device):
    """Lives of the engine here and there; which are equal."""
    import torch
    from engines import engine_of, run_out
    from tiny import random_ids, tiny_config, tiny_model

    from kvedu.caches.kv_format import KVFormat
    from kvedu.caches.prefix_hash import HashReuse
    from kvedu.engine.preempt import Swap
    from kvedu.kernels import launch
    from kvedu.model.sampling import Sampling
    from kvedu.speculative.ngram import NGram

    launch.runs_on = lambda where: where.type == "cpu"  # through PyTorch: the kernels have a run of their own
    drawn = Sampling(temperature=0.8, top_p=0.9, seed=1, logprobs=2)
    ways = {
        "plain": ({}, {}), "drawn": ({"sampling": drawn}, {}), "no overlap": ({"sampling": drawn}, {"overlap": False}),
        "int8": ({}, {"kv_format": KVFormat.int8(group=16)}), "guesses": ({}, {"speculate": NGram()}),
        "shared": ({}, {"reuse": HashReuse}), "swapped": ({}, {"pages": 14, "preempt": Swap(2**20)}),
    }  # fmt: skip
    said = {}
    for name, (wants, settings) in ways.items():
        answers = []
        for where in ("cpu", device):
            with torch.inference_mode():
                one = engine_of(tiny_model(tiny_config(D=16)).to(where), **{"pages": 60, "overlap": True} | settings)
                for i in (0, 1, 2, 1):
                    one.add(random_ids(4, seed=i) * 3, max_new_tokens=6, ignore_eos=True, **wants)
                run_out(one)
            answers.append([one.results(i)[0].token_ids for i in range(4)])
        said[name] = answers[0] == answers[1]
    return said


SMALLER = {
    "01": [("(36, 250)", "(36,)"), ("[:250]", "[:40]"), ("600)", "60)"), ("800)", "80)"), ("range(1_000)", "range(9)")],
    "03": [
        ("[:384]", "[:40]"), ("4096, 64)", "64, 64)"), ("(0, 1, 15, 29)", "(0, 1)"),
        ("range(30)", "range(3)"), ("[28, 29]", "[1, 2]"), ("[5, 9, 26, 29]", "[0, 2]"),
    ],  # fmt: skip
    "06": [("n=10_000", "n=50"), ("range(200)", "range(9)"), (", 40, ", ", 9, "), ("max_new_tokens=40", "max_new_tokens=9")],
}
"""What long labs do less of: every line still runs."""


def shallow(model):
    """The first blocks of a model: what it says is another thing, where its tensors lie is not."""
    model.config = replace(model.config, n_layers=3)
    model.layers = model.layers[:3]
    return model


def labs(device, *numbers):
    """Labs as `make gpu` runs them, with less to do; those with kernels of their own ask where kernels run."""
    import kvedu
    import kvedu.kernels.interpret as interpret
    from kvedu.kernels import launch

    interpret.kernel_device = lambda: device
    launch.runs_on = lambda where: where.type == "cpu"
    load, said = kvedu.load, {}
    kvedu.load = lambda *args, **settings: shallow(load(*args, **settings))
    for number in numbers:
        text = next((ROOT / "labs" / "masters").glob(f"{number}_*.py")).read_text(encoding="utf-8")
        for old, new in SMALLER.get(number, []):
            assert old in text, f"lab {number} has no {old} any more"
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{number}.py"
            path.write_text(text, encoding="utf-8")
            sys.argv = ["-c", str(path), device]
            try:
                exec(compile(gpu_check.LAB, "lab", "exec"), {"__name__": "__main__"})
                said[number] = "passed"
            except Exception as error:
                said[number] = "".join(traceback.format_exception(error)[-3:])
    return said


LAWS = ("laws/test_cache_laws_there", "model/test_fused_decode", "kernels/test_paged_attention_triton")


def run(*words, environment={}):
    """A run in a process of its own; what it found."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([sys.executable, __file__, *words], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_it_refuses_what_cuda_refuses():
    said = run("refusals")
    assert {name: verdict for name, verdict in said.items() if (verdict == "passed") != name.startswith("allowed")} == {}


def test_every_case_of_the_kernels_bench():
    said = run("kernels")
    assert len(said) > 12
    assert {name: error for name, error in said.items() if not isinstance(error, float) or error > 0.03} == {}


def test_the_engine_says_what_it_says_on_a_cpu():
    said = run("engine")
    assert said and all(said.values()), said


def test_the_laws_that_a_gpu_keeps():
    """As the plugin of pytest, by the kernels: every cache's attention in fp32, paged ones in half precision too, and a fused step."""
    chosen = "attend_equals and (4-torch.float32 or (None-torch.float16 and paged and not int)) or half or (any_step and int8-True)"
    chosen += " or (every_branch and spec0-blocks0-None)"
    paths = [f"tests/{law}.py" for law in LAWS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "emulated_gpu", "-p", "no:cacheprovider", "-k", chosen, *paths]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOM)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_labs(tmp_path):
    numbers = [path.name[:2] for path in gpu_check.labs()]
    said = run("labs", *numbers, environment={"KVEDU_PROGRESS": str(tmp_path / "progress.json")})
    assert said == {number: "passed" for number in numbers}


if __name__ == "__main__":
    emulated_gpu.interpret_there()
    with emulated_gpu.emulated():
        found = globals()[sys.argv[1]](emulated_gpu.DEVICE, *sys.argv[2:])
    print(json.dumps(found))

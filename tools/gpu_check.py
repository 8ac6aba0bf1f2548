"""Everything that needs a GPU, in one run: machine, tests, kernels, the engine, labs; ends in a table and one JSON file.

    python tools/gpu_check.py [--dry] [--minutes 8] [--only tests,kernels] [--out FOLDER]

Each part is a command of its own with a limit on its time, so that one that fails or hangs does not take the others
with it. ``--dry`` runs the same parts on a CPU, kernels in Triton's interpreter, with tiny sizes: it shows that the script is
whole, not that anything is fast. Needs PyTorch, Triton, NumPy, safetensors, tokenizers, gguf and pytest; transformers where present.
The model's file is taken from ``KVEDU_MODEL_FILE`` or the cache, or joined from ``model.part-*`` beside this tree's root (see ``--split``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TREE = 60 * 2**20
"""Bytes of a tree that travels: all tracked files (the trained heads are most of them) and one part of the model's file."""
PARTS = "model.part-*"


@dataclass
class Part:
    """One command, the seconds that it may take, and what it gave."""

    name: str
    command: list[str]
    seconds: float
    environment: dict[str, str] = field(default_factory=dict)
    status: str = "not run"
    took: float = 0.0
    said: str = ""

    def run(self, left: float, environment: dict[str, str]) -> None:
        """Run it within its own limit and what is left of all; keep its last words."""
        limit, start = max(1.0, min(self.seconds, left)), time.perf_counter()
        try:
            done = subprocess.run(
                self.command, cwd=ROOT, env=environment | self.environment, capture_output=True, text=True, timeout=limit, check=False
            )
            self.said, self.status = done.stdout + done.stderr, "passed" if done.returncode == 0 else f"failed ({done.returncode})"
        except subprocess.TimeoutExpired as late:
            words = [w.decode(errors="replace") if isinstance(w, bytes) else w or "" for w in (late.stdout, late.stderr)]
            self.said, self.status = "".join(words), f"stopped after {limit:.0f} s"
        self.took = time.perf_counter() - start

    @property
    def last(self) -> str:
        """Its last line that says something."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        return lines[-1].strip()[:110] if lines else ""


CEILINGS = """
import json, sys, torch
from kvedu import machine
from kvedu.units import GiB, MiB
device, dry = torch.device(sys.argv[1]), sys.argv[2] == "dry"
facts = machine.describe(device)
dtype = "bf16" if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0) else "fp16" if device.type == "cuda" else "fp32"
facts["copy_gb_per_s"] = machine.copy_bandwidth(8 * MiB if dry else 4 * GiB, device) / 1e9
facts["read_gb_per_s"] = machine.read_bandwidth(8 * MiB if dry else 4 * GiB, device) / 1e9
facts["matmul_tflop_per_s"] = machine.matmul_flops(dtype, 128 if dry else 8192, device) / 1e12
facts["matmul_dtype"], facts["memory_bytes"] = dtype, machine.memory_bytes(device)
print(json.dumps(facts))
"""

LAB = """
import re, sys
source = open(sys.argv[1], encoding="utf-8").read().replace('device="cpu"', f'device="{sys.argv[2]}"')
exec(compile(source, sys.argv[1], "exec"), {"__name__": "__main__"})
"""


def parts(dry: bool, device: str) -> list[Part]:
    """What is run, in order."""
    python = sys.executable
    interpreter = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if dry else {}
    tests = ["tests/kernels/test_rows_triton.py"] if dry else ["tests/kernels", "tests/gpu"]
    found = [str(path) for path in map(ROOT.joinpath, tests) if path.exists()]
    made = [
        Part("machine", [python, "-c", CEILINGS, device, "dry" if dry else "real"], 60),
        Part("tests", [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(["-k", "norm"] if dry else []), *found], 150, interpreter),
    ]
    if sanitizer := sanitize(python):
        made.append(Part("sanitizer", sanitizer, 60))
    kernels = [python, "bench/bench_kernels.py", *(["--dry", "--only", "norm"] if dry else ["--save"])]
    made.append(Part("kernels", kernels, 150, interpreter))
    nano = ["--device", device, *(["--requests", "2", "--longest", "8", "--layers", "1", "--only", "engine,static"] if dry else ["--save"])]
    made.append(Part("engine", [python, "bench/bench_nano.py", *nano], 150))
    labs = sorted((ROOT / "labs" / "masters").glob("[0-9]*.py"))
    labs = [lab for lab in labs if re.match(r"0[1-8]|1[6-9]|20", lab.name)]
    made += [Part(f"lab {lab.name[:2]}", [python, "-c", LAB, str(lab), device], 60) for lab in (labs[1:2] if dry else labs)]
    for part in made:
        part.seconds *= 20 if dry else 1  # a busy machine without a GPU; nothing is measured there
    return made


def sanitize(python: str) -> list[str] | None:
    """compute-sanitizer over the smallest kernel test, where the tool exists."""
    tool = shutil.which("compute-sanitizer")
    return [tool, "--error-exitcode", "1", python, "-m", "pytest", "-q", "-x", "tests/kernels/test_rows_triton.py"] if tool else None


def model_file(root: Path) -> str | None:
    """The model's file joined from its parts, where they lie in the root; None where there are none."""
    halves = sorted(root.glob(PARTS))
    if not halves:
        return None
    whole = Path(tempfile.gettempdir()) / "kvedu-model.gguf"
    with whole.open("wb") as out:
        for half in halves:
            out.write(half.read_bytes())
    return str(whole)


def split(root: Path) -> list[Path]:
    """Write the model's file into the root in parts that can travel one at a time."""
    from kvedu import fetch

    data, made = Path(fetch.model_path()).read_bytes(), []
    parts = -(-len(data) // (TREE - tracked_bytes(root)))
    size = -(-len(data) // parts)
    for number, start in enumerate(range(0, len(data), size)):
        made.append(root / PARTS.replace("*", str(number)))
        made[-1].write_bytes(data[start : start + size])
    return made


def tracked_bytes(root: Path) -> int:
    """Bytes of the files that git knows in a tree."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return sum(path.stat().st_size for name in names if name and (path := root / name).is_file())


def table(done: list[Part]) -> str:
    """What was run, how it ended, and its last words."""
    width = max(len(part.name) for part in done)
    return "\n".join(f"{part.name:{width}}  {part.status:18}  {part.took:6.1f} s  {part.last}" for part in done)


def report(done: list[Part], dry: bool) -> dict[str, Any]:
    """The machine and every part's end, as the JSON file holds them; what benches measured stands in rows of their own."""
    said = next((part.said for part in done if part.name == "machine" and part.status == "passed"), "{}")
    ends = [{"name": part.name, "status": part.status, "seconds": round(part.took, 1), "last": part.last} for part in done]
    return {"gpu": json.loads(said.strip().splitlines()[-1]), "dry": dry, "parts": ends}


def store(made: dict[str, Any], out: Path | None, argv: list[str]) -> Path:
    """A row of ``bench/results`` named after the GPU; of a dry run a file under ``_build``."""
    name = re.sub(r"[^a-z0-9]+", "_", str(made["gpu"].get("device", "unknown")).lower()).strip("_")
    if not made["dry"]:
        sys.path.insert(0, str(ROOT / "src"))
        from kvedu.book.rows import save_row

        return save_row(f"gpu_{name}", made, command=" ".join(["python", "tools/gpu_check.py", *argv]), folder=out)
    path = (out or ROOT / "_build") / "gpu-dry.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return path


def main(argv: list[str]) -> int:
    """Run the parts; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="tiny sizes on a CPU, kernels in the interpreter")
    parser.add_argument("--minutes", type=float, default=8.0, help="limit for all parts together")
    parser.add_argument("--only", default="", help="names of parts, with commas between")
    parser.add_argument("--out", type=Path, help="folder of the JSON file, instead of bench/results")
    parser.add_argument("--split", action="store_true", help="only write the model's file in parts that can travel")
    options = parser.parse_args(argv)
    if options.split:
        print("\n".join(f"{path} ({path.stat().st_size / 2**20:.0f} MiB)" for path in split(ROOT)))
        return 0
    import torch

    device = "cpu" if options.dry else "cuda"
    if not options.dry and not torch.cuda.is_available():
        print("kvedu: no CUDA device here; `make gpu-dry` runs the same script on a CPU with tiny sizes.", file=sys.stderr)
        return 1
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}
    if (model := model_file(ROOT)) is not None:
        environment["KVEDU_MODEL_FILE"] = model
    chosen = [part for part in parts(options.dry, device) if not options.only or part.name in options.only.split(",")]
    deadline = time.perf_counter() + 60 * options.minutes * (20 if options.dry else 1)
    for part in chosen:
        left = deadline - time.perf_counter()
        if left > 1:
            part.run(left, environment)
        print(f"== {part.name}: {part.status}, {part.took:.0f} s", flush=True)
        if not part.status.startswith("passed"):
            print(part.said[-2000:], flush=True)
    print(f"\n{table(chosen)}\n{store(report(chosen, options.dry), options.out, argv)}")
    return 0 if all(part.status == "passed" for part in chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Everything that needs a GPU, in one run: machine, tests, kernels, the engine, labs; ends in a table and one JSON file.

    python tools/gpu_check.py [--dry] [--minutes 8] [--only tests,kernels] [--out FOLDER]
    python tools/gpu_check.py --pack FOLDER
    python tools/gpu_check.py --parts

Each part is a command of its own with a limit on its time, so that one that fails or hangs does not take the others
with it; tests of a file, and labs, run a few at a time. ``--dry`` runs the same parts on a CPU, kernels in Triton's interpreter, with
tiny sizes: it shows that the script is whole, not that anything is fast. Needs PyTorch, Triton, NumPy, safetensors, tokenizers, gguf and
pytest; transformers where present. The model's file is taken from ``KVEDU_MODEL_FILE`` or the cache, or joined from its parts. ``--out``
gets, beside the JSON file, every row that the run stored.

To a machine without a network the model travels in parts, with the packages that it may lack (``carried``) and the commit. ``--pack``
writes trees of less than 60 MiB to be sent one after the other: all of them hold what is needed here, each a part of the model's file.
``--parts`` leaves carried packages and parts beside this checkout, for one that is sent the checkout itself: with any one part it is as
small. A run keeps the part that came with its tree (``--only none`` does nothing else), and the last one has all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TREE = 60 * 2**20
"""Bytes of a tree that travels, with one part of the model's file."""
PARTS = "model.part-*"
PACKED = ("src", "tests", "bench", "tools", "labs/masters", "pyproject.toml", "constraints.txt", "README.md", "Makefile")
"""What travels; the trained heads, most bytes of the library, stay behind, since nothing here reads them."""
CARRIED = ("gguf",)
"""Packages that are needed, are Python alone, and are not on every machine with PyTorch and Triton."""
AT_A_TIME = 12
"""Parts of a group that run together."""
SHARD = 5500
"""Bytes of a test file that one part takes: most of the time goes into compiling each kernel in each of its forms, a core at a time."""


@dataclass
class Part:
    """One command, the seconds that it may take, and what it gave."""

    name: str
    command: list[str]
    seconds: float
    environment: dict[str, str] = field(default_factory=dict)
    group: str = ""
    """Parts of one group that follow each other run a few at a time."""
    spare: bool = False
    """Whether it may be stopped, or not be reached, and the run has still passed."""
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
    def well(self) -> bool:
        """Whether it passed, or did not get the time that it may do without."""
        return self.status == "passed" or (self.spare and not self.status.startswith("failed"))

    @property
    def lines(self) -> list[str]:
        """The last hundred lines that say something."""
        return [line.rstrip()[:400] for line in self.said.splitlines() if line.strip()][-100:]

    @property
    def last(self) -> str:
        """Its last line that says something."""
        return self.lines[-1].strip() if self.lines else ""


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
facts["launch_us"] = 1e6 * machine.launch_seconds(device)
facts["matmul_dtype"], facts["memory_bytes"] = dtype, machine.memory_bytes(device)
print(json.dumps(facts))
"""

LAB = """
import sys
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

PATH, DEVICE = sys.argv[1], sys.argv[2]


class There(TorchFunctionMode):
    # Tensors that the lab itself makes lie where its model does; a grader's, and the library's, where they say.
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in {*_device_constructors(), torch.multinomial} or "device" in kwargs or not self.asked():
            return function(*args, **kwargs)
        if kwargs.get("generator") is not None:  # it is the CPU's, as what it draws from must be
            return function(*(x.cpu() if isinstance(x, torch.Tensor) else x for x in args), **kwargs).to(DEVICE)
        if function is torch.multinomial:
            return function(*args, **kwargs)
        return function(*args, **kwargs, device=DEVICE)

    @staticmethod
    def asked():
        names, frame = [], sys._getframe(2)
        while frame is not None:
            names.append(frame.f_code.co_filename)
            frame = frame.f_back
        return names[0] == PATH and not any("grading" in name for name in names)


source = open(PATH, encoding="utf-8").read().replace('device="cpu"', f'device="{DEVICE}"')
with There():
    exec(compile(source, PATH, "exec"), {"__name__": "__main__"})
"""


def parts(dry: bool, device: str) -> list[Part]:
    """What is run, in order."""
    python = sys.executable
    interpreter = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if dry else {}
    made = [Part("machine", [python, "-c", CEILINGS, device, "dry" if dry else "real"], 60)]
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=20", *(["-k", "norm"] if dry else [])]
    for path in ["tests/kernels/test_rows_triton.py"] if dry else tests_on_a_gpu():
        name = "tests" if dry else f"tests {Path(path).stem.removeprefix('test_')}"
        shards = 1 if dry else -(-(ROOT / path).stat().st_size * (3 if "laws" in path else 1) // SHARD)  # a law is tried on every cache
        for shard in range(shards):
            which = f" {shard + 1}/{shards}" if shards > 1 else ""
            made.append(Part(name + which, [*pytest, path], 150, interpreter | {"KVEDU_SHARD": f"{shard}/{shards}"}, group="tests"))
    kernels = [python, "bench/bench_kernels.py", "--dry" if dry else "--save"]
    made.append(Part("kernels", kernels, 300 if dry else 120, interpreter))
    tiny = ["--requests", "2", "--longest", "6", "--layers", "1", "--only", "engine,ways,static"]
    made.append(Part("engine", [python, "bench/bench_nano.py", "--device", device, *(tiny if dry else ["--save", "--seconds", "200"])], 260))
    for lab in labs()[1:2] if dry else labs():
        made.append(Part(f"lab {lab.name[:2]}", [python, "-c", LAB, str(lab), device], 60, group="labs"))
    if sanitizer := sanitize(python):
        made.append(Part("sanitizer", sanitizer, 150, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, spare=True))
    for part in made:
        part.seconds *= 20 if dry else 1  # a busy machine without a GPU; nothing is measured there
    return made


def labs() -> list[Path]:
    """Masters of the labs that run a model or kernels."""
    return [lab for lab in sorted((ROOT / "labs" / "masters").glob("[0-9]*.py")) if re.match(r"0[1-8]|1[6-9]|20", lab.name)]


def tests_on_a_gpu() -> list[str]:
    """Test files whose kernels run where the GPU is; the longest first."""
    rooms = (path for room in ("kernels", "laws", "model") for path in (ROOT / "tests" / room).glob("test_*.py"))
    found = [path for path in rooms if "DEVICE" in path.read_text(encoding="utf-8")]
    paths = [ROOT / "tests" / "gpu" / "test_on_the_gpu.py", *found]
    return [str(path.relative_to(ROOT)) for path in sorted(paths, key=lambda path: -path.stat().st_size)]


def sanitize(python: str) -> list[str] | None:
    """compute-sanitizer over one small kernel, where the tool exists: of all kernels it would take minutes."""
    tool = shutil.which("compute-sanitizer")
    pytest = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "residual and dtype0", "tests/kernels/test_rows_triton.py"]
    return [tool, "--error-exitcode", "1", *pytest] if tool else None


def model_file(root: Path, kept: Path | None = None) -> str | None:
    """The model's file joined from its parts, those in the root and those kept before; None where some are missing.

    Parts are named ``model.part-<number>-of-<count>``.
    """
    kept = kept or Path(tempfile.gettempdir()) / "kvedu-parts"
    for part in root.glob(PARTS):
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(part, kept / part.name)
    parts = sorted(kept.glob(PARTS))
    if not parts or len(parts) < int(parts[0].name.rsplit("-", 1)[1]):
        return None
    whole = kept / "model.gguf"
    with whole.open("wb") as out:
        for part in parts:
            out.write(part.read_bytes())
    return str(whole)


def split(folder: Path, beside: int) -> list[Path]:
    """Write the model's file into a folder in equal parts, each of which fits into a tree that holds so many bytes ``beside`` it."""
    from kvedu import fetch

    data = Path(fetch.model_path()).read_bytes()
    count, made = -(-len(data) // (TREE - beside)), []
    for number in range(count):
        made.append(folder / PARTS.replace("*", f"{number}-of-{count}"))
        made[-1].write_bytes(data[number * len(data) // count : (number + 1) * len(data) // count])
    return made


def carry(root: Path) -> None:
    """Put the carried packages, and the commit that they are sent with, into ``root/carried``."""
    from kvedu.book.provenance import current_commit

    for name in CARRIED:
        for top in {Path(file.parts[0]) for file in importlib.metadata.files(name) or () if file.parts[0] != ".."}:
            found = importlib.metadata.distribution(name).locate_file(top)
            shutil.copytree(found, root / "carried" / top, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (root / "carried" / "commit").write_text(current_commit() + "\n", encoding="utf-8")


def pack(folder: Path) -> list[Path]:
    """Trees ``folder/0``, ``folder/1`` ...: what a GPU needs of this one, and a part of the model's file each."""
    first, left_out = folder / "0", ("__pycache__", "*.egg-info", "heads", ".pytest_cache", "*.so", "browser", "answers")
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, first / name, ignore=shutil.ignore_patterns(*left_out))
        else:
            shutil.copyfile(ROOT / name, first / name)
    carry(first)
    parts = split(folder, tree_bytes(first))
    trees = [first, *(Path(shutil.copytree(first, folder / str(number))) for number in range(1, len(parts)))]
    for tree, part in zip(trees, parts):
        shutil.move(part, tree / part.name)
    return trees


def leave_parts(root: Path = ROOT) -> list[Path]:
    """The same for a checkout that is sent itself: its own files, the carried packages and any one part are a tree."""
    for old in root.glob(PARTS):
        old.unlink()
    carry(root)
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    tracked = sum((root / name).stat().st_size for name in listed.split("\0") if name and (root / name).is_file())
    return split(root, tracked + tree_bytes(root / "carried"))


def made_environment(root: Path) -> dict[str, str]:
    """What every part finds: the library, carried packages where they are missing, the model's file and the commit that was sent."""
    paths = [str(root / "src"), *(os.environ.get("PYTHONPATH") or "").split(os.pathsep)]
    if any(find_spec(name) is None for name in CARRIED) and (root / "carried").is_dir():
        paths.append(str(root / "carried"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if (model := model_file(root)) is not None:
        environment["KVEDU_MODEL_FILE"] = model
    if (commit := root / "carried" / "commit").is_file() and not (root / ".git").exists():
        environment["KVEDU_COMMIT"] = commit.read_text(encoding="utf-8").strip()
    return environment


def gather(out: Path | None, begun: float) -> None:
    """Copy the rows that were stored since the run began to where its own goes."""
    for row in (ROOT / "bench" / "results").glob("*.json"):
        if out and row.stat().st_mtime >= begun and row.parent.resolve() != out.resolve():
            shutil.copyfile(row, out / row.name)


def tree_bytes(tree: Path) -> int:
    """Bytes of all files of a tree."""
    return sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())


TABLES = ("kernels", "engine")
"""Parts that print tables: they are shown and stored line by line, whatever became of the rows."""


def table(done: list[Part]) -> str:
    """What was run, how it ended, and its last words."""
    width = max(len(part.name) for part in done)
    return "\n".join(f"{part.name:{width}}  {part.status:18}  {part.took:6.1f} s  {part.last}" for part in done)


def report(done: list[Part], dry: bool) -> dict[str, Any]:
    """The machine and every part's end, as the JSON file holds them; what benches measured stands in rows of their own."""
    said = next((part.said for part in done if part.name == "machine" and part.status == "passed"), "{}")
    ends = [
        {"name": part.name, "status": part.status, "seconds": round(part.took, 1), "last": part.last} | ({"table": part.lines} if part.name in TABLES else {})
        for part in done
    ]
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
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="only write trees that can travel")
    parser.add_argument("--parts", action="store_true", help="only leave beside this checkout what travels with it")
    options = parser.parse_args(argv)
    if options.pack:
        print("\n".join(f"{tree}: {tree_bytes(tree) / 2**20:.1f} MiB" for tree in pack(options.pack)))
        return 0
    if options.parts:
        print("\n".join(f"{part.name}: {part.stat().st_size / 2**20:.1f} MiB, to be sent with this checkout and carried/" for part in leave_parts()))
        return 0
    import torch

    device = "cpu" if options.dry else "cuda"
    if not options.dry and not torch.cuda.is_available():
        print("kvedu: no CUDA device here; `make gpu-dry` runs the same script on a CPU with tiny sizes.", file=sys.stderr)
        return 1
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)  # now, not when all has been measured
    environment, begun = made_environment(ROOT), time.time()
    asked = options.only.split(",")
    chosen = [part for part in parts(options.dry, device) if not options.only or part.name in asked or part.group in asked]
    deadline = time.perf_counter() + 60 * options.minutes * (20 if options.dry else 1)

    def run(part: Part) -> None:
        left = deadline - time.perf_counter()
        if left > 1:
            part.run(left, environment)
        said = "\n" + "\n".join(part.lines) if part.name in TABLES else "" if part.status == "passed" else f"\n{part.said[-2000:]}"
        print(f"== {part.name}: {part.status}, {part.took:.0f} s{said}", flush=True)

    if not chosen:
        print(f"model: {environment.get('KVEDU_MODEL_FILE', 'not all parts of it are here yet')}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        environment["KVEDU_PROGRESS"] = str(Path(folder) / "progress.json")  # labs answer and run here; the user's record stays
        for _, together in groupby(chosen, lambda part: part.group or part.name):
            with ThreadPoolExecutor(1 if options.dry else AT_A_TIME) as pool:
                list(pool.map(run, together))
    os.environ |= {key: environment[key] for key in ("KVEDU_COMMIT",) if key in environment}
    print(f"\n{table(chosen)}\n{store(report(chosen, options.dry), options.out, argv)}")
    gather(options.out, begun)
    return 0 if all(part.well for part in chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

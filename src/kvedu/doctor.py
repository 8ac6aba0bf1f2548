"""One screen about this machine: ``python -m kvedu.doctor`` says what kvedu finds, chooses and misses.

Every line is looked up on its own and none can stop the others: a missing or broken
package is what the page is for.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Callable

from kvedu import fetch
from kvedu.folders import cache_folder

NEEDED = ("torch", "numpy", "safetensors", "tokenizers", "gguf", "jinja2")
OPTIONAL = ("triton", "transformers", "huggingface_hub")

_PROBE = '''
import torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
x = torch.arange(5.0, device="cuda" if torch.cuda.is_available() else "cpu")
y = torch.empty_like(x)
double[(1,)](x, y, 5, BLOCK=8)
assert y.tolist() == [0, 2, 4, 6, 8], y
print("kernel ran")
'''


def report() -> str:
    """The whole page as text. Never raises. Cost: some seconds, most of them importing PyTorch, twice."""
    lines = [(label, _looked_up(look)) for label, look in CHECKS]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _looked_up(look: Callable[[], str]) -> str:
    try:
        return look()
    except Exception as error:  # whatever is broken here is the answer
        return f"cannot tell: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def version(package: str) -> str | None:
    """The installed version of a package, or None; the package is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"


def _python() -> str:
    old = "" if sys.version_info >= (3, 11) else "; kvedu wants 3.11 or newer"
    return f"{platform.python_version()} at {sys.executable}{old}"


def _versions(packages: tuple[str, ...]) -> str:
    return ", ".join(f"{package} {version(package) or 'absent'}" for package in packages)


def _devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"CPU ({torch.get_num_threads()} threads); no CUDA GPU that PyTorch can use"
    return ", ".join(
        f"cuda:{i} {torch.cuda.get_device_name(i)} ({'.'.join(map(str, torch.cuda.get_device_capability(i)))})"
        for i in range(torch.cuda.device_count())
    )


def _dtype() -> str:
    from kvedu.model.dtype import choose_device, choose_dtype

    return choose_dtype(choose_device())[1]


def _fast_dtype() -> str:
    from kvedu.model.dtype import choose_device, fast_dtype

    return fast_dtype(choose_device())[1]


def compiler() -> str | None:
    """Path of the C++ compiler that ``torch.compile`` would use on the CPU, or None."""
    names = ("cl",) if sys.platform == "win32" else ("g++", "clang++", "c++")
    return next((path for name in (os.environ.get("CXX"), *names) if name and (path := shutil.which(name))), None)


def _compiler() -> str:
    return compiler() or "none: torch.compile and the CPU kernels in C++ are not used (install g++ to have them)"


def _native() -> str:
    from kvedu.kernels import native

    found = native.library()
    return f"none: {found}" if isinstance(found, native.Unavailable) else "bf16 kernels in C++ are compiled and loaded"


def triton_state() -> tuple[str, str]:
    """``"compiled"``, ``"interpreted"``, ``"absent"`` or ``"broken"``, and one sentence, from running a small kernel.

    The kernel runs in a process of its own, since the interpreter is chosen before Triton's import.
    """
    if find_spec("triton") is None:
        return "absent", "not installed; kernel pages show stored output and kernel tests are skipped"
    import torch

    compiled = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET", "0") != "1"
    env = os.environ | ({} if compiled else {"TRITON_INTERPRET": "1"})
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "probe.py"
        script.write_text(_PROBE)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=120)
    if "kernel ran" not in done.stdout:
        return "broken", f"a small kernel failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    if compiled:
        return "compiled", "a small kernel was compiled and ran on the GPU"
    return "interpreted", "a small kernel ran in the interpreter (TRITON_INTERPRET=1; slow, for tests)"


def _triton() -> str:
    return ": ".join(triton_state())


def _model() -> str:
    """Where the default model's file is; nothing is downloaded."""
    named = os.environ.get("KVEDU_MODEL_FILE")
    path = Path(named) if named else fetch.found_path()
    if path is None or not path.is_file():
        missing = f"KVEDU_MODEL_FILE names {named}, which is no file" if named else "not here yet"
        return f"{fetch.MODEL_NAME}: {missing}; `python -m kvedu.fetch` gets it (93 MB)"
    return f"{fetch.MODEL_NAME}: {path} ({path.stat().st_size / 1e6:.0f} MB)"


def _cache() -> str:
    folder = cache_folder()
    stores = [path for path in folder.glob("store/*/weights.safetensors")]
    held = sum(path.stat().st_size for path in stores)
    return f"{folder}: {len(stores)} fast form(s) of models, {held / 1e6:.0f} MB"


def _disk() -> str:
    folder = cache_folder()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    return f"{free / 1e9:.1f} GB free" + ("" if free > 1.5e9 else "; fetching and loading the model wants 1.5 GB")


def _to_install() -> str:
    missing = [package for package in NEEDED if version(package) is None]
    if missing:
        return f"pip install {' '.join(missing)}"
    if version("triton") is None and sys.platform == "linux":
        return "pip install triton, to run the kernels"
    return "nothing is missing"


CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("kvedu", lambda: version("kvedu") or "run from source, not installed"),
    ("system", _system),
    ("python", _python),
    ("needed", lambda: _versions(NEEDED)),
    ("optional", lambda: _versions(OPTIONAL)),
    ("device", _devices),
    ("dtype", _dtype),
    ("fast dtype", _fast_dtype),
    ("C++ compiler", _compiler),
    ("CPU kernels", _native),
    ("Triton", _triton),
    ("model", _model),
    ("cache", _cache),
    ("disk", _disk),
    ("to install", _to_install),
)

if __name__ == "__main__":
    print(report())

"""What importing kvedu needs and brings: no Triton, no GPU, nothing heavy beyond PyTorch."""

import os
import pkgutil
import subprocess
import sys

import kvedu

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(kvedu.__path__, "kvedu.") if not module.name.endswith("_triton")
)
"""All but the files that hold a kernel: those are loaded when it is first called."""


def run(code, **env):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_imports_without_triton_and_without_a_gpu():
    """C044: no module of kvedu needs Triton at its import."""
    assert len(MODULES) > 20
    code = (
        "import sys, importlib; sys.modules['triton'] = None\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
        "import torch; print(torch.cuda.is_available())"
    )
    assert run(code, CUDA_VISIBLE_DEVICES="") == "False"


def test_the_front_door_is_light():
    """``import kvedu`` beside PyTorch brings kvedu's own few files and nothing from other packages."""
    code = (
        "import sys, torch; before = set(sys.modules); import kvedu\n"
        "print(sorted(name for name in set(sys.modules) - before if name.split('.')[0] not in sys.stdlib_module_names))"
    )
    assert run(code) == "['kvedu']"


def test_the_first_model_brings_no_heavy_stranger():
    """Loading's imports: not gguf, transformers, Triton, matplotlib or widgets."""
    heavy = {"gguf", "transformers", "triton", "matplotlib", "ipywidgets", "pandas", "scipy", "huggingface_hub", "IPython"}
    code = f"import sys, kvedu; kvedu.load; print(sorted({heavy!r} & set(sys.modules)))"
    assert run(code) == "[]"

"""The interpreter is chosen before Triton is imported, or it is said why not."""

import os
import subprocess
import sys

import pytest

from kvedu.kernels.launch import missing


def python(code, **env):
    clean = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
def test_without_a_gpu_kernels_are_interpreted():
    code = "from kvedu.kernels.interpret import kernel_device; device = kernel_device()\nfrom kvedu.kernels.launch import interpreted\nprint(device, interpreted())"
    assert python(code, CUDA_VISIBLE_DEVICES="") == "cpu True"


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
def test_with_a_gpu_kernels_are_compiled_unless_the_environment_asks():
    code = "import torch; torch.cuda.is_available = lambda: True\nfrom kvedu.kernels.interpret import kernel_device; print(kernel_device())"
    assert python(code) == "cuda"
    assert python(code, TRITON_INTERPRET="1") == "cpu"


@pytest.mark.skipif(missing() is not None, reason=f"no Triton: {missing()}")
def test_too_late_is_said():
    code = "import triton\nfrom kvedu.kernels.interpret import use_interpreter\ntry: use_interpreter()\nexcept Exception as error: print(error)"
    assert "restart Python" in python(code)


def test_no_triton_is_said():
    """C044"""
    code = "import sys; sys.modules['triton'] = None\nfrom kvedu.kernels.interpret import kernel_device\ntry: kernel_device()\nexcept Exception as error: print(error)"
    assert "Triton is not installed" in python(code, CUDA_VISIBLE_DEVICES="")

"""Finding, compiling and doing without the native kernels; RMSNorm and RoPE through them."""

import subprocess
import sys

import pytest
import torch

from kvedu.kernels import native
from kvedu.kernels.arena import Arena
from kvedu.kernels.rmsnorm import rmsnorm, rmsnorm_reference
from kvedu.kernels.rope import cos_sin, rotate_pair, rotate_reference, rotates_pair
from kvedu.rope_config import RopeConfig

here = not isinstance(native.library(), native.Unavailable)
needs_native = pytest.mark.skipif(not here, reason=f"no native kernels: {native.library()} (no GPU needed)")


def reason(monkeypatch, tmp_path, **environment):
    """What is said where something is missing."""
    monkeypatch.setenv("KVEDU_CACHE", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(native.Unavailable) as caught:
        native._load(native._compiled())
    return str(caught.value)


def test_switched_off(monkeypatch, tmp_path):
    assert reason(monkeypatch, tmp_path, KVEDU_NATIVE="0") == "KVEDU_NATIVE=0 is set"


def test_another_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(native.sys, "platform", "linux")
    monkeypatch.setattr(native.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(native, "cpu_features", lambda: frozenset({"fma", "avx512f"}))
    assert reason(monkeypatch, tmp_path) == "this CPU has no avx512bw"
    monkeypatch.setattr(native.platform, "machine", lambda: "arm64")
    assert "on arm64" in reason(monkeypatch, tmp_path)


@needs_native
def test_no_compiler_a_broken_one_and_no_place(monkeypatch, tmp_path):
    """The reason is one sentence, and nothing half-made is left."""
    assert "no C++ compiler" in reason(monkeypatch, tmp_path, CXX="no-such-compiler")
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'linear.cpp:1: error: it is Monday' >&2; exit 1\n")
    broken.chmod(0o755)
    assert "does not compile them: linear.cpp:1: error: it is Monday" in reason(monkeypatch, tmp_path, CXX=str(broken))
    assert list((tmp_path / "native").iterdir()) == []
    monkeypatch.delenv("CXX")
    assert "could not be compiled into" in reason(monkeypatch, tmp_path / "g++")


@needs_native
def test_a_damaged_library_is_said_to_be_one(monkeypatch, tmp_path):
    path = tmp_path / "x.so"
    path.write_bytes(b"not a library")
    with pytest.raises(native.Unavailable, match="cannot be loaded"):
        native._load(path)


def test_everything_works_without_them():
    code = (
        "import torch; from kvedu.kernels.rmsnorm import rmsnorm; from kvedu.kernels import native\n"
        "x = torch.ones(2, 8, dtype=torch.bfloat16); print(rmsnorm(x, x[0], 1e-5).sum().item(), native.library())"
    )
    environment = {"KVEDU_NATIVE": "0", "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "16.0 KVEDU_NATIVE=0 is set", done.stderr


@needs_native
def test_what_is_usable():
    x = torch.zeros(4, 6, dtype=torch.bfloat16)
    assert native.usable(x, x[:, :3])
    assert native.usable(x.float()) and not native.usable(x, x.float()) and not native.usable(x.double())
    assert not native.usable(x.T) and not native.usable(x.to("meta"))
    weight = torch.nn.Parameter(x)
    assert not native.usable(weight)
    with torch.no_grad():
        assert native.usable(weight)


@needs_native
@pytest.mark.parametrize("dtype, step", [(torch.bfloat16, 2**-8), (torch.float32, 2**-22)])
@pytest.mark.parametrize("rows, width", [(1, 576), (40, 33), (3, 1), (17, 64)])
def test_rmsnorm(rows, width, dtype, step):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((rows, width), (width,)))
    exact = rmsnorm_reference(x.double().float(), weight.float(), 1e-5)
    assert (rmsnorm(x, weight, 1e-5).float() - exact).abs().max() <= step * exact.abs().max()


def test_rmsnorm_still_gives_gradients():
    weight = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    rmsnorm(torch.randn(2, 8).to(torch.bfloat16), weight, 1e-5).sum().backward()
    assert weight.grad is not None


@needs_native
@pytest.mark.parametrize("dtype, step", [(torch.bfloat16, 2**-8), (torch.float32, 2**-16)])
@pytest.mark.parametrize("N, H, K, D, dim", [(1, 9, 3, 64, 64), (30, 4, 2, 32, 12), (5, 2, 1, 8, 8), (3, 3, 3, 80, 80)])
def test_rotation(N, H, K, D, dim, dtype, step):
    """Partial rotary and strided heads too, closer to the definition than bf16 tables are."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(N, H + 2 * K, D, generator=generator).to(dtype)
    q, k, _ = qkv.split((H, K, K), dim=1)
    rope, positions = RopeConfig(dim=dim, theta=10_000.0), torch.arange(N) * 37
    assert rotates_pair(q, k)
    for got, x in zip(rotate_pair(q, k, *cos_sin(rope, positions, torch.float32)), (q, k)):
        exact = rotate_reference(x.float(), positions, rope)
        assert (got.float() - exact).abs().max() <= step * exact.abs().max()
        assert torch.equal(got[..., dim:], x[..., dim:])


def test_an_arena_gives_room_and_then_ordinary_memory():
    arena = Arena(4096)
    a, b = arena.take((3, 5), torch.bfloat16), arena.take((7,), torch.float32)
    a.fill_(1), b.fill_(2)
    assert a.sum() == 15 and b.sum() == 14 and a.data_ptr() % 64 == b.data_ptr() % 64 == 0
    assert a.untyped_storage().nbytes() == 30, "a storage of its own size, so that bytes can be counted"
    assert arena.take((5000,), torch.bfloat16).fill_(3).sum() == 15000, "more than there is: an ordinary tensor"
    del arena
    assert a.sum() == 15, "the memory lives as long as a tensor in it"

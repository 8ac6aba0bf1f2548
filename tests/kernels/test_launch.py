"""Where a kernel runs: by argument and device, with a reason where it cannot."""

import pytest
import torch

from kvedu.kernels import launch
from kvedu.kernels.ahead import compile_ahead, described
from kvedu.kernels.launch import Chip, KernelError, Launch, check_rows, check_whole, power_of_two, triton_wanted
from kvedu.kernels.swiglu import swiglu

CPU = torch.zeros(2, 4)


def test_a_cpu_runs_pytorch_unless_asked(monkeypatch):
    """C044: without Triton everything else works, and asking for it says what is missing."""
    assert not triton_wanted(None, CPU) and not triton_wanted(False, CPU)
    monkeypatch.setattr(launch, "missing", lambda: "Triton is not installed")
    assert swiglu(CPU).shape == (2, 2)
    with pytest.raises(KernelError, match="triton=True on cpu: Triton is not installed. Leave it out"):
        swiglu(CPU, triton=True)


def test_a_cpu_without_the_interpreter_says_how_to_have_it(monkeypatch):
    monkeypatch.setattr(launch, "missing", lambda: None)
    monkeypatch.setattr(launch, "interpreted", lambda: False)
    with pytest.raises(KernelError, match="kernels are compiled for GPUs.*TRITON_INTERPRET=1"):
        triton_wanted(True, CPU)
    assert launch.runs_on(torch.device("cuda")) and not launch.runs_on(torch.device("mps"))


def test_chips():
    """No bf16 and no asynchronous copies on 7.5; e4m3 in hardware from 8.9 on."""
    assert not Chip.known(75).bf16 and Chip.known(80).bf16
    assert (Chip.known(75).stages, Chip.known(80).stages, Chip().stages) == (1, 3, 3)
    assert [c for c in (75, 80, 86, 89, 90, 100, 120) if Chip.known(c).wgmma] == [90, 100]
    assert [Chip.known(c).float8 for c in (75, 80, 89, 90)] == [False, False, True, True]


def test_powers_of_two():
    assert [power_of_two(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]


def test_an_empty_grid_launches_nothing():
    Launch(None, (0, 3), {}, {}).run()


def test_rows_must_be_dense_and_together():
    with pytest.raises(KernelError, match="rows .2, 4. has strides .1, 2.; call .contiguous"):
        check_whole(rows=torch.zeros(4, 2).T)
    with pytest.raises(KernelError, match="last axis of x must be dense, its stride is 4"):
        check_rows(x=CPU.T)
    with pytest.raises(KernelError, match="y is on meta, x on cpu"):
        check_rows(x=CPU, y=torch.zeros(2, device="meta"))


def test_a_launch_as_the_compiler_sees_it():
    """1 is a constant, multiples of 16 are told, numbers beyond 32 bits are 64 wide."""

    class Kernel:
        arg_names = ["x", "n", "wide", "one", "scale", "BLOCK"]

    args = dict(x=CPU.half(), n=48, wide=2**31 + 1, one=1, scale=0.5)
    signature, constants, attributes = described(Launch(Kernel, (1,), args, {"BLOCK": 8}))
    assert signature == dict(x="*fp16", n="i32", wide="i64", one="constexpr", scale="fp32", BLOCK="constexpr")
    assert constants == {"one": 1, "BLOCK": 8} and set(attributes) == {(0,), (1,)}


@pytest.mark.skipif(not launch.interpreted(), reason="Triton does not interpret here")
def test_compiling_is_for_a_process_of_its_own():
    with pytest.raises(KernelError, match="compile in one without TRITON_INTERPRET"):
        compile_ahead(Launch(None, (1,), {}, {}), 90)

"""Measuring this machine: units, structure and bookkeeping; never a timing."""

import datetime
import doctest
import shutil
import subprocess

import pytest
import torch

from kvedu import machine
from kvedu.analysis.roofline import Hardware, ridge_point
from kvedu.errors import KveduError
from kvedu.units import MiB


def test_measure_gives_a_hardware_row():
    row = machine.measure(n_bytes=2 * MiB, matmul_size=32, repeats=2)
    assert isinstance(row, Hardware) and row.name == "this machine"
    assert set(row.flops) == {"fp32", "bf16"} and all(rate > 0 for rate in row.flops.values())
    assert row.bandwidth > 0 and row.memory > 64 * MiB and ridge_point(row, "fp32") > 0
    assert row.date == datetime.date.today().isoformat()
    assert torch.__version__ in row.source and "thread" in row.source
    assert set(machine.measure(n_bytes=64, matmul_size=4, dtypes=("fp32",), repeats=1).flops) == {"fp32"}


def test_rates_count_the_right_bytes_and_flops(monkeypatch):
    """With a clock that says two seconds for everything, only the counting is left."""
    monkeypatch.setattr(machine, "_median_seconds", lambda work, device, repeats: (work(), 2.0)[1])
    assert machine.read_bandwidth(4096) == 4096 / 2
    assert machine.copy_bandwidth(4096) == 2 * 4096 / 2
    assert machine.matmul_flops("bf16", 16) == 2 * 16**3 / 2


def test_a_launch_is_timed_on_the_host(monkeypatch):
    """Ten operations of a tenth of a second each by the clock, whatever the device does afterwards."""
    ticks = iter(range(100))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(machine, "_median_seconds", lambda work, device, repeats: [work() for _ in range(repeats + 1)])
    assert machine.launch_seconds(launches=10, repeats=3) == 0.1


def test_each_reader_reads_the_whole_buffer(monkeypatch):
    seen = []
    monkeypatch.setattr(machine, "_median_seconds", lambda work, device, repeats: seen.append(work().item()) or 1.0)
    machine.read_bandwidth(4096)
    assert seen == [1024.0, 512.0]  # a sum of 1,024 ones; a dot product of two halves


def test_buffers_are_written():
    """Pages never written all map to one page of zeros, and read absurdly fast."""
    buffer = machine._touched(4096, "cpu")
    assert buffer.nbytes == 4096 and bool((buffer == 1).all())


def test_median_is_of_single_calls(monkeypatch):
    ticks = iter([0.0, 0.6, 1.0, 1.1, 2.0, 2.2])
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(ticks))
    calls = []
    seconds = machine._median_seconds(lambda: calls.append(1), torch.device("cpu"), repeats=3)
    assert seconds == pytest.approx(0.2) and len(calls) == 1 + 3  # a warm-up that is not timed


def test_slow_work_is_not_repeated_for_long(monkeypatch):
    ticks = iter(range(0, 100, 3))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: float(next(ticks)))
    assert machine._median_seconds(lambda: None, torch.device("cpu"), repeats=50) == 3.0


def test_describe():
    facts = machine.describe()
    assert facts["cpu"] and facts["device"] == facts["cpu"] and facts["cores"] >= 1
    assert facts["threads"] == torch.get_num_threads() and facts["torch"] == torch.__version__


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_commit_is_of_the_repository_that_tracks_the_file(tmp_path):
    """A file that merely lies inside someone's repository has no commit; a tracked one has."""

    def git(*words):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(("git", "-C", tmp_path, *identity, *words), check=True, capture_output=True, text=True).stdout

    file, stray = tmp_path / "machine.py", tmp_path / "stray.py"
    file.write_text("a")
    stray.write_text("b")
    assert machine._commit(file) is None
    git("init", "-q")
    git("add", "machine.py")
    git("commit", "-q", "-m", "x")
    head = git("rev-parse", "HEAD").strip()
    assert machine._commit(file) == head[:12]
    assert machine._commit(stray) is None
    file.write_text("changed")
    assert machine._commit(file) == head[:12] + "+changes"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda():
    row = machine.measure("cuda", n_bytes=16 * MiB, matmul_size=256, repeats=2)
    assert {"fp32", "fp16"} <= set(row.flops)
    assert ("bf16" in row.flops) == (torch.cuda.get_device_capability() >= (8, 0))
    assert machine.describe("cuda")["device"] == torch.cuda.get_device_name()


@pytest.mark.parametrize("call, words", [
    (lambda: machine.matmul_flops("fp8"), "fp32, bf16, fp16"),
    (lambda: machine.matmul_flops("fp32", 0), "at least 1"),
    (lambda: machine.read_bandwidth(4), "at least 8 bytes"),
])  # fmt: skip
def test_errors_teach(call, words):
    with pytest.raises(KveduError, match=words):
        call()


def test_examples():
    result = doctest.testmod(machine)
    assert result.failed == 0 and result.attempted > 0

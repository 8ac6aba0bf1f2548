"""Numbers to a device and back: what is asked of PyTorch for a GPU, shown on a double; on a CPU ordinary tensors."""

import pytest
import torch

import kvedu.kernels.transfer as transfer
from kvedu.kernels.transfer import Coming, move, put, put_into


def test_on_a_cpu_it_is_an_ordinary_tensor():
    x = put([[1, 2], [3, 4]], torch.device("cpu"), torch.int32)
    assert x.dtype == torch.int32 and x.tolist() == [[1, 2], [3, 4]] and move(x, torch.device("cpu")) is x
    assert put([], torch.device("cpu")).tolist() == [] and Coming(x).read() == [[1, 2], [3, 4]]


def test_the_rest_of_a_longer_tensor_stays():
    x = torch.arange(5)
    put_into(x, [7, 8])
    assert x.tolist() == [7, 8, 2, 3, 4]
    table = torch.zeros(3, 2, dtype=torch.int32)
    put_into(table, [[1, 2]])
    assert table.tolist() == [[1, 2], [0, 0], [0, 0]]


def test_numbers_of_the_host_stay_there_whatever_the_default_device():
    """PyTorch's own default may be a device: what is put is made on the host, then moved to where it is told."""
    with torch.device("meta"):
        assert put([1], torch.device("cpu")).device.type == "cpu" and put([1], torch.device("meta")).device.type == "meta"


def test_what_is_read_is_waited_for_alone(monkeypatch):
    """A copy to pinned memory, an event behind it, and the wait is for that event."""
    said = []

    class Event:
        def __init__(self, device):
            said.append(f"event on {device}")

        def record(self):
            said.append("record")

        def synchronize(self):
            said.append("wait")

    class There:
        device = torch.device("cuda", 0)

        def to(self, where, non_blocking):
            said.append(f"to {where}, {'queued' if non_blocking else 'waited for'}")
            return torch.tensor([4, 5])

    monkeypatch.setattr(transfer.torch, "Event", Event)
    coming = Coming(There())
    assert said == ["to cpu, queued", "event on cuda:0", "record"]
    assert coming.read() == [4, 5] and said[-1] == "wait"


@pytest.mark.parametrize("kind, pinned", [("cuda", True), ("xpu", True), ("mps", False), ("meta", False)])
def test_only_some_devices_read_pinned_memory(kind, pinned, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: "pinned")
    x = torch.zeros(1)
    assert (transfer.pinned(x, torch.device(kind)) is not x) == pinned

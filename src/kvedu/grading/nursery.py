"""A process that is warm (PyTorch, kvedu and, once it is asked for, the model are in memory) and forks a child for each submission.

It knows no right answers and judges nothing; the grader talks to it over a socket. Where there is no
safe ``fork`` each submission gets a new Python, which is slower and does the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADER = struct.Struct("!I")


def serve(control: socket.socket) -> None:
    """Fork a child for every request until the other side hangs up; answers with the child's process id."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    import kvedu.grading.worker  # noqa: F401  (warm)

    model: list[Any] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, HEADER.size, 1)
        if len(message) < HEADER.size:
            os._exit(0)
        request = json.loads(_exactly(control, HEADER.unpack(message)[0]))
        if request["model"] and not model:
            model.append(_load())
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _child(request, descriptors[0], model)
        os.close(descriptors[0])
        control.sendall(HEADER.pack(child))


def _child(request: dict[str, Any], out: int, model: list[Any]) -> None:
    """The forked child: lock itself up, run the submission, end."""
    from kvedu.grading import sandbox

    code = 1
    try:
        sandbox.die_with_parent()
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        out = os.dup2(out, 3)
        os.closerange(4, 1 << 16)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        run_locked(request, out, model)
        code = 0
    finally:
        os._exit(code)


def run_locked(request: dict[str, Any], out: int, model: list[Any]) -> None:
    """Lock this process up and run the request's cells, writing framed events to ``out``."""
    from kvedu.grading import sandbox
    from kvedu.grading.wire import encode

    isolation = sandbox.enter(Path(request["folder"]), request["memory"], request["seconds"])

    def send(event: dict[str, Any]) -> None:
        data = encode(event)
        view = memoryview(HEADER.pack(len(data)) + data)
        while view:
            view = view[os.write(out, view) :]

    send({"event": "isolation", "text": str(isolation)})
    from kvedu.grading.worker import run

    if model:
        _give_once(model[0])
    run(request["cells"], request["lab"], request["seeds"], request["cell_seconds"], send)


def _load() -> Any:
    import torch

    from kvedu.model.load import load

    return load("smollm2-135m", dtype=torch.float32, device="cpu")


def _give_once(model: Any) -> None:
    """The first ``kvedu.load`` of the lab's model gives the one in memory; any other load is a real one."""
    import torch

    import kvedu.model.load as home

    real: Callable[..., Any] = home.load
    left = [model]

    def load(name: str = "smollm2-135m", *args: Any, **options: Any) -> Any:
        if left and name == "smollm2-135m" and not args and options == {"dtype": torch.float32, "device": "cpu"}:
            return left.pop()
        return real(name, *args, **options)

    home.load = sys.modules["kvedu"].load = load


def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = control.recv(min(1 << 20, size - len(data)))
        if not part:
            os._exit(0)
        data += part
    return bytes(data)


def main() -> None:
    """``python -m kvedu.grading.nursery FD``: serve on a socket; ``… FD alone``: one request from a socket, without forking."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if len(sys.argv) == 2:
        serve(control)
    request = json.loads(_exactly(control, HEADER.unpack(_exactly(control, HEADER.size))[0]))
    with contextlib.suppress(OSError):
        os.setsid()
    run_locked(request, control.fileno(), [])


if __name__ == "__main__":
    main()

"""Submissions in processes of their own: start one, take in what it reports, end it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvedu.grading.nursery import HEADER
from kvedu.grading.submission import Submission
from kvedu.grading.wire import WireError, decode

MOST_BYTES = 256 * 1000**2
"""Bytes that one submission may report."""


@dataclass(frozen=True)
class Limits:
    """Seconds on the clock for the whole notebook, bytes of memory, CPU seconds for one cell.

    By default a cell gets a quarter of the whole, 30 seconds at most, so that the cells after a hanging one still run.
    """

    timeout: float = 120.0
    memory: int = 4 * 1024**3
    cell: float = 0.0

    @property
    def cell_seconds(self) -> float:
        """CPU seconds for one cell."""
        return self.cell or min(30.0, self.timeout / 4)


@dataclass
class Running:
    """A submission that runs. ``events`` holds what it has reported so far."""

    source: socket.socket
    pid: int
    folder: Path
    deadline: float
    started: float = field(default_factory=time.monotonic)
    events: list[dict[str, Any]] = field(default_factory=list)
    _buffer: bytearray = field(default_factory=bytearray)
    _taken: int = 0

    def take_in(self) -> bool:
        """Read what is there; False at the end of it, or of patience with it."""
        try:
            data = self.source.recv(1 << 20)
        except OSError:
            return False
        self._taken += len(data)
        if not data or self._taken > MOST_BYTES:
            return False
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            size = HEADER.unpack(self._buffer[: HEADER.size])[0]
            if size > MOST_BYTES:
                return False
            if len(self._buffer) < HEADER.size + size:
                break
            frame = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            with contextlib.suppress(WireError):
                event = decode(frame)
                if isinstance(event, dict) and isinstance(event.get("event"), str):
                    self.events.append(event)
        return True

    def end(self) -> None:
        """Kill the process, whatever it is at, with all that it started, and remove its folder."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.source.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Starter:
    """Starts submissions: from a warm process that forks where the system has a safe ``fork``, else each in a new Python."""

    def __init__(self, limits: Limits, *, warm: bool | None = None) -> None:
        self.limits = limits
        self.warm = sys.platform == "linux" if warm is None else warm
        self._control: socket.socket | None = None
        self._nursery: subprocess.Popen[bytes] | None = None
        self._alone: list[subprocess.Popen[bytes]] = []

    def start(self, submission: Submission, seeds: list[int]) -> Running:
        """Start a submission in a temporary folder of its own."""
        folder = Path(tempfile.mkdtemp(prefix="kvedu-grade-"))
        request = json.dumps({
            "cells": submission.cells, "lab": submission.lab, "seeds": seeds, "folder": str(folder),
            "memory": self.limits.memory, "seconds": self.limits.timeout, "cell_seconds": self.limits.cell_seconds,
            "model": any(re.search(r"\bkvedu\.load\(", source) for _, source in submission.cells),
        }).encode()  # fmt: skip
        ours, theirs = socket.socketpair()
        pid = (self._fork if self.warm else self._spawn)(HEADER.pack(len(request)) + request, ours, theirs)
        theirs.close()
        return Running(ours, pid, folder, time.monotonic() + self.limits.timeout)

    def close(self) -> None:
        """End the warm process."""
        if self._control is not None:
            self._control.close()
        for process in [*self._alone, *([self._nursery] if self._nursery else [])]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()

    def _fork(self, message: bytes, ours: socket.socket, theirs: socket.socket) -> int:
        for _ in range(2):  # a nursery that died is replaced once
            try:
                if self._control is None:
                    self._hatch()
                socket.send_fds(self._control, [message[: HEADER.size]], [theirs.fileno()])
                self._control.sendall(message[HEADER.size :])
                answer = self._control.recv(HEADER.size, socket.MSG_WAITALL)
                if len(answer) == HEADER.size:
                    return HEADER.unpack(answer)[0]
            except OSError:
                pass
            self._control = None
        raise RuntimeError("the warm process could not be started: try `python -m kvedu.doctor`")

    def _hatch(self) -> None:
        self._control, theirs = socket.socketpair()
        self._nursery = self._python([str(theirs.fileno())], theirs)

    def _spawn(self, message: bytes, ours: socket.socket, theirs: socket.socket) -> int:
        process = self._python([str(theirs.fileno()), "alone"], theirs, new_session=True)
        self._alone.append(process)
        ours.sendall(message)
        return process.pid

    def _python(self, arguments: list[str], socket_: socket.socket, *, new_session: bool = False) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvedu.grading.nursery", *arguments], pass_fds=[socket_.fileno()],
            env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}, start_new_session=new_session,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None if not new_session else subprocess.DEVNULL,
        )  # fmt: skip
        if socket_.fileno() >= 0 and arguments[-1] != "alone":
            socket_.close()
        return process

"""A progress line for long work: tqdm's bar where tqdm is installed, a plain line where it is not."""

from __future__ import annotations

import sys
import time
from typing import Callable

Report = Callable[[int], None]


class _Plain:
    """``label 12/48`` on standard error, at most ten times a second."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done, self._shown = total, label, 0, 0.0

    def update(self, n: int) -> None:
        self.done += n
        now = time.monotonic()
        if self.done == self.total or now - self._shown > 0.1:
            self._shown = now
            sys.stderr.write(f"\r{self.label} {self.done}/{self.total}")
            sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


class Progress:
    """Counts to ``total`` in view: ``with Progress(48, "requests") as report: report(1)``.

    ``show`` None shows it where standard error is a terminal and there is more than one thing to do.
    """

    def __init__(self, total: int, label: str, show: bool | None = None) -> None:
        shown = (total > 1 and sys.stderr.isatty()) if show is None else show
        self._bar = _bar(total, label) if shown else None

    def __enter__(self) -> Report:
        return self._bar.update if self._bar is not None else lambda n: None

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(total: int, label: str) -> object:
    try:
        from tqdm import tqdm
    except ImportError:
        return _Plain(total, label)
    return tqdm(total=total, desc=label)

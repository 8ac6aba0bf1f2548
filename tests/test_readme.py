"""README.md is true: its example prints what it says, its map is current, its links and commands exist."""

import re
import subprocess
import sys
from pathlib import Path

from readme_map import ROOT, with_map

README = (ROOT / "README.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_example_works_as_printed(tmp_path: Path) -> None:
    code = block("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == block("text")


def test_map_is_current() -> None:
    assert README == with_map(README), "run python tools/readme_map.py"


def test_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|\$ )make (\w+)", README))
    assert {"book", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), (
            f"README names `make {target}`, which the Makefile lacks"
        )
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", README):
        assert (ROOT / link).exists(), f"README links to {link}, which does not exist"


def test_it_is_short_and_names_what_is_missing() -> None:
    assert "## What is not covered" in README and "CC-BY-4.0" in README

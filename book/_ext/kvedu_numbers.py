"""Figures are numbered within their chapter: the second figure of chapter 4 is Fig. 4.2.

Titles and file names carry the chapters' numbers, whatever order chapters are written in, so a figure's number stays
when another chapter gains one.
"""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def number_by_chapter(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Replace Sphinx's running numbers on chapters' pages; the pages that must be written again."""
    changed = []
    for page, kinds in env.toc_fignumbers.items():
        chapter = re.match(r"book/(\d\d)-", page)
        if chapter is None:
            continue
        for numbers in kinds.values():
            for place, (name, _) in enumerate(sorted(numbers.items(), key=lambda item: item[1]), start=1):
                numbers[name] = (int(chapter[1]), place)
        changed.append(page)
    return changed


def setup(app: Sphinx) -> dict[str, Any]:
    """After Sphinx has counted."""
    app.connect("env-get-updated", number_by_chapter, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

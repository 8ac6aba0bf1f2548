"""axe-core, installed by the book's lock file, asked about a page."""

from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "book" / "vendor" / "node_modules" / "axe-core" / "axe.min.js"
ASK = "(without) => axe.run({exclude: without.map((s) => [s])}, {resultTypes: ['violations']})"


def serious_findings(tab: Any, without: tuple[str, ...] = ()) -> list[str]:
    """Serious and critical findings of axe-core on the page as it stands: rule, where, why.

    ``without`` are CSS selectors of parts to leave out.
    """
    assert SCRIPT.is_file(), "axe-core is not installed; run `make book` or tools/book_vendor.py"
    tab.evaluate(SCRIPT.read_text("utf-8") + "; undefined")
    result = tab.evaluate(ASK, list(without))
    return [
        f"{finding['id']} ({finding['impact']}): {node['target'][0]}: {node['html'][:110]}: {node['failureSummary'].splitlines()[-1].strip()}"
        for finding in result["violations"]
        if finding["impact"] in ("serious", "critical")
        for node in finding["nodes"]
    ]

"""What every chapter must have, read from its source: ``python tools/chapter_anatomy.py [CHAPTER.md ...]``.

Prints what is missing and ends with status 1; a test runs it over all chapters of the contents.
"""

import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
HEADINGS = ("Your prediction", "Check yourself", "Where to go from here")
FIRST_CHAPTER = {
    "kvedu.caches.paged": 4, "kvedu.caches.block": 4, "kvedu.engine": 4, "kvedu.caches.prefix_": 5,
    "kvedu.speculative": 6, "kvedu.caches.quantized": 12, "kvedu.caches.evicting": 13, "kvedu.caches.latent": 13,
    "kvedu.kernels.interpret": 16, "kvedu.kernels.watch": 16, "kvedu.kernels.walk": 17,
}  # fmt: skip
"""Modules that a chapter introduces: earlier ones do not import them."""
NO_NEW_IDEA = {10}
"""Chapters that only look back. They measure nothing, so there is nothing to predict, break, take away or do in a lab."""
OF_AN_IDEA = ("no takeaway box", "its lab is not linked", "nothing of the library's source is shown", "no bench is named")
LABS_ELSEWHERE = {11, 14}
"""Chapters that look at the same things as others or gather from them, and link the others' labs."""
TERMS = 5
"""Glossary terms that a chapter links at least."""


def faults(path: Path) -> list[str]:
    """What is wrong with a chapter, one sentence each."""
    text = path.read_text("utf-8")
    number = int(path.name[:2])
    looks_back = number in NO_NEW_IDEA
    prose = re.sub(r"^```\{code-cell\}.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^```\{code-cell\}.*?\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    found = [f"no section {heading!r}" for heading in HEADINGS[looks_back:] if f"\n## {heading}\n" not in text]
    if len(re.findall(r"^# ", prose, re.MULTILINE)) != 1 or not re.search(rf"^# {number} · \S", prose, re.MULTILINE):
        found.append(f"its one title is '# {number} · …'")
    if not looks_back and not re.search(r"^## .*\b(broken|wrong|fails?|breaks?|mistakes?)\b", text, re.MULTILINE | re.IGNORECASE):
        found.append("no section in which it is broken on purpose")
    for what, pattern in (
        ("no takeaway box", r"```\{admonition\} Takeaway\n:class: takeaway\n"),
        ("no living figure", r"```\{live-figure\} \w+"),
        ("no check-yourself questions from data", rf"```\{{questions\}} questions/{number:02}\.py"),
        ("its lab is not linked", r"</?labs/\d\d-" if number in LABS_ELSEWHERE else rf"</?labs/{number:02}-"),
        ("nothing of the library's source is shown", r"```\{literalinclude\} \.\./src/kvedu/"),
        ("no sources at its end", r"\*\*Sources\.\*\*[^#]*\{cite\}"),
        ("no test is named", r"`tests/"),
        ("no bench is named", r"`(bench|tools)/"),
    ):
        if not (looks_back and what in OF_AN_IDEA) and not re.search(pattern, text):
            found.append(what)
    if (linked := len(set(re.findall(r"\{term\}`([^`]+)`", prose)))) < TERMS:
        found.append(f"{linked} glossary terms are linked, {TERMS} are wanted")
    for block in re.findall(r"```\{live-figure\}.*?```", text, re.DOTALL):
        if ":name:" not in block:
            found.append(f"a living figure without a name: {block.splitlines()[0]}")
    found += [fault for cell in cells for fault in _cell_faults(cell)]
    for module, first in FIRST_CHAPTER.items():
        if number < first and re.search(rf"^\s*(from|import) {re.escape(module)}", "\n".join(cells), re.MULTILINE):
            found.append(f"imports {module}, which chapter {first} introduces")
    return found


def _cell_faults(cell: str) -> list[str]:
    """A cell that draws says what is on the axes, and has a caption, a name and words for those who do not see it."""
    if "plt." not in cell or not re.search(r"plt\.(show|subplots)", cell):
        return []
    found, first = [], cell.strip().splitlines()[0]
    for key in ("alt:", "caption:", "name:"):
        if key not in cell:
            found.append(f"a drawn figure without {key[:-1]} (cell begins {first[:50]!r})")
    drawing = r"axis\([\"']off|xticks=\[\], yticks=\[\]"  # no axes: a drawing with its words inside
    for name, instead in (("xlabel", r"\.bar\("), ("ylabel", r"\.barh\(")):  # bars are named by their ticks
        if not re.search(rf"{name}|labelled_axes|{instead}|{drawing}", cell):
            found.append(f"no {name} (cell begins {first[:50]!r})")
    return found


def listed_chapters(root: Path = ROOT) -> list[Path]:
    """Chapters of the contents, in order."""
    names = re.findall(r"book/\d\d-[\w-]+", yaml.safe_dump(yaml.safe_load((root / "_toc.yml").read_text("utf-8"))))
    return [root / f"{name}.md" for name in sorted(set(names))]


def main(names: list[str]) -> int:
    """Report on the chapters named, or on all."""
    bad = 0
    for path in [Path(name) for name in names] or listed_chapters():
        for fault in faults(path):
            print(f"{path.name}: {fault}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

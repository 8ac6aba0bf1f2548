"""Every chapter has what a chapter must have, and the gate that says so sees each thing that is missing."""

import re
from pathlib import Path

import pytest
from chapter_anatomy import faults, listed_chapters


@pytest.mark.parametrize("path", listed_chapters(), ids=lambda path: path.stem)
def test_chapter(path: Path) -> None:
    assert not (found := faults(path)), "\n".join(found)


WHOLE = """# 3 · Heads

{term}`a` {term}`b` {term}`c` {term}`d` {term}`e`, `tests/x.py`, `bench/y.py`, {doc}`Lab 3 </labs/03-x>`

## Your prediction
## Broken on purpose

```{literalinclude} ../src/kvedu/x.py
```
```{live-figure} heads
:name: fig-heads
Caption.
```
```{code-cell} ipython3
---
mystnb: {image: {alt: "x"}, figure: {caption: "c", name: "n"}}
---
plt.subplots()
ax.set(xlabel="a", ylabel="b")
```
```{admonition} Takeaway
:class: takeaway
```

## Check yourself

```{questions} questions/03.py
```

## Where to go from here

**Sources.** {cite}`x`.
"""


def written(folder: Path, text: str) -> list[str]:
    path = folder / "03-heads.md"
    path.write_text(text)
    return faults(path)


def test_a_whole_chapter_passes(tmp_path: Path) -> None:
    assert written(tmp_path, WHOLE) == []


@pytest.mark.parametrize(
    ("gone", "sign"),
    [
        ("## Your prediction", "no section 'Your prediction'"), ("## Broken on purpose", "broken on purpose"),
        ("## Check yourself", "'Check yourself'"), ("3 · Heads", "its one title"), (":class: takeaway", "takeaway"),
        ("{live-figure}", "no living figure"), ("questions/03.py", "questions"), ("</labs/03-x>", "its lab"),
        ("{literalinclude}", "source is shown"), ("{cite}", "no sources"), ("`tests/x.py`", "no test"),
        ("`bench/y.py`", "no bench"), ("{term}`e`", "4 glossary terms"), (":name: fig-heads", "without a name"),
        ("alt:", "without alt"), ("caption:", "without caption"), ('ylabel="b"', "no ylabel"), ('xlabel="a"', "no xlabel"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(tmp_path: Path, gone: str, sign: str) -> None:
    found = written(tmp_path, WHOLE.replace(gone, "", 1))
    assert any(sign in fault for fault in found), found


def test_a_chapter_that_looks_back_needs_no_idea_of_its_own_but_all_else(tmp_path: Path) -> None:
    text = WHOLE.replace("# 3 ·", "# 10 ·").replace("questions/03.py", "questions/10.py")
    for gone in ("## Your prediction\n", "## Broken on purpose\n", ":class: takeaway", "`bench/y.py`", "</labs/03-x>", "{literalinclude}"):
        text = text.replace(gone, "")
    path = tmp_path / "10-back.md"
    path.write_text(text)
    assert faults(path) == []
    path.write_text(text.replace("{live-figure}", "").replace("questions/10.py", "questions/03.py"))
    assert [fault[:12] for fault in faults(path)] == ["no living fi", "no check-you"]


def test_an_import_from_a_later_chapter_is_named(tmp_path: Path) -> None:
    text = re.sub("plt.subplots", "from kvedu.engine.engine import Engine\nplt.subplots", WHOLE)
    assert written(tmp_path, text) == ["imports kvedu.engine, which chapter 4 introduces"]

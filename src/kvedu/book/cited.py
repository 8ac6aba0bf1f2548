"""Which chapters cite which works: counted over their sources."""

import re
from pathlib import Path

SEVEN = ("pope2022", "kwon2023", "yu2022", "leviathan2023", "ainslie2023", "shazeer2019", "zheng2024")
"""The works that document A lists as those that carry its material."""


def cited(folder: Path) -> dict[int, set[str]]:
    """Keys of the works that each chapter in ``folder`` cites, by the chapter's number."""
    found = {}
    for path in sorted(folder.glob("[0-9][0-9]-*.md")):
        roles = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        found[int(path.name[:2])] = {key.strip() for role in roles for key in role.split(",")}
    return found


def carried(by_chapter: dict[int, set[str]], works: tuple[str, ...] = SEVEN) -> tuple[list[int], list[int]]:
    """The chapters that cite one of the works, and those that cite others only; a chapter that cites nothing is in neither."""
    citing = {chapter: keys for chapter, keys in by_chapter.items() if keys}
    on_them = [chapter for chapter, keys in citing.items() if keys & set(works)]
    return on_them, [chapter for chapter in citing if chapter not in on_them]

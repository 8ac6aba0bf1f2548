"""The map of rooms in README.md, made from the modules' own docstrings: ``python tools/readme_map.py``."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kvedu"
BEGIN, END = "<!-- rooms: made by tools/readme_map.py -->", "<!-- end of rooms -->"

FLOORS: dict[int, tuple[str, ...]] = {
    0: ("errors", "config", "config_*", "rope_config", "dims", "units", "folders"),
    1: ("analysis", "kernels", "fetch", "texts"),
    2: ("caches", "machine"),
    3: ("model",),
    4: ("compress", "parallel"),
    5: ("speculative",),
    6: ("engine",),
    7: ("serve", "viz", "grading", "book"),
    8: ("__init__", "__main__", "doctor", "check", "grade"),
}
"""Which room stands on which floor; 8 is the edge, where a user comes in. Imports only go down."""


def floor_of(room: str) -> int:
    """The floor of a room. Raises ``KeyError`` for a room that has none yet."""
    for floor, rooms in FLOORS.items():
        if any(room == name or (name.endswith("*") and room.startswith(name[:-1])) for name in rooms):
            return floor
    raise KeyError(f"room {room!r} has no floor; give it one in tools/readme_map.py")


def rooms() -> list[tuple[int, str, str]]:
    """Floor, name as a path, and the first sentence of the docstring, of every room that exists."""
    found = []
    for path in sorted(PACKAGE.iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix == ".py" and source.is_file() and not path.name.startswith("_"):
            name = f"{path.name}/" if path.is_dir() else path.name
            found.append((floor_of(path.stem), name, first_sentence(source)))
    return sorted(found)


def first_sentence(source: Path) -> str:
    """The first paragraph of a module's docstring, on one line; reStructuredText's code marks become Markdown's."""
    text = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    if not text:
        raise ValueError(f"{source} has no docstring; its first line stands in README.md")
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def room_map() -> str:
    """The map as a Markdown table."""
    rows = [
        f"| {floor if floor < 8 else 'edge'} | [`{name}`](src/kvedu/{name}) | {text} |" for floor, name, text in rooms()
    ]
    return "\n".join(["| floor | room | what it holds |", "|---|---|---|", *rows])


def with_map(readme: str) -> str:
    """The README's text with a current map between the markers."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{room_map()}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Bring README.md up to date."""
    path = ROOT / "README.md"
    path.write_text(with_map(path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

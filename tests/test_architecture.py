"""Imports go down the floors, and rooms on one floor never import each other; read from the sources by AST."""

import ast
from pathlib import Path

import pytest
from readme_map import PACKAGE, floor_of


def room_of(path: Path) -> str:
    """The room of a source file: its folder in the package, or its own name."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(tree: ast.AST, path: Path) -> list[tuple[int, str]]:
    """Line and room of every import of kvedu in a file, those inside functions too."""
    package = ["kvedu", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "kvedu" else [module]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "kvedu":
                found.append((node.lineno, parts[1] if len(parts) > 1 else "__init__"))
    return found


def faults(path: Path, source: str) -> list[str]:
    """Imports of a file that go up or sideways. A name at the top of kvedu counts as the edge."""
    room = room_of(path)
    wrong = []
    for line, target in imported_rooms(ast.parse(source), path):
        known = (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").is_file()
        target = target if known else "__init__"
        if floor_of(room) == 8 or target == room:
            continue
        if floor_of(room) == 0 == floor_of(target):
            continue  # the ground floor is one room in several files
        if floor_of(target) >= floor_of(room):
            wrong.append(
                f"{path.name}:{line}: {room} (floor {floor_of(room)}) imports {target} (floor {floor_of(target)})"
            )
    return wrong


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    assert not (wrong := faults(path, path.read_text("utf-8"))), "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "source", "sign"),
    [
        ("caches/x.py", "from kvedu.model import generate", "caches (floor 2) imports model (floor 3)"),
        ("analysis/x.py", "def f():\n    from kvedu.kernels import rope", "imports kernels"),
        ("analysis/x.py", "from ..kernels import rope", "imports kernels"),
        ("kernels/x.py", "from kvedu import caches", "imports caches"),
        ("model/x.py", "import kvedu", "imports __init__"),
        ("model/x.py", "from kvedu import load", "imports __init__"),
        ("units.py", "import importlib\nimportlib.import_module('kvedu.texts')", "imports texts"),
    ],
)
def test_a_wrong_import_is_seen(file: str, source: str, sign: str) -> None:
    assert any(sign in fault for fault in faults(PACKAGE / file, source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/rope.py", "def rope():\n    from kvedu.kernels import rope_triton"),
        ("caches/x.py", "from kvedu.kernels.rope import rotate\nfrom . import y\nfrom kvedu.errors import CacheError"),
        ("doctor.py", "from kvedu.engine import Engine\nfrom kvedu import load"),
    ],
)
def test_a_right_import_passes(file: str, source: str) -> None:
    assert not faults(PACKAGE / file, source)


def test_triton_is_named_only_by_kernels() -> None:
    """C044: no file but ``*_triton.py`` imports Triton when it is itself imported."""
    for path in sorted(PACKAGE.rglob("*.py")):
        top = [
            node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        modules = {getattr(node, "module", "") or "" for node in top}
        names = {alias.name for node in top if isinstance(node, ast.Import) or node.module in ("kvedu.kernels", None) for alias in node.names}
        if not path.name.endswith("_triton.py"):
            assert not any(name.split(".")[0] == "triton" or name.endswith("_triton") for name in names | modules), path


def test_test_files_have_names_of_their_own():
    """pytest imports the files of a folder without ``__init__.py`` by their bare names; two of one name stop each other."""
    root = Path(__file__).parent
    names = [path.name for path in root.rglob("test_*.py") if not (path.parent / "__init__.py").is_file()]
    assert not {name for name in names if names.count(name) > 1}

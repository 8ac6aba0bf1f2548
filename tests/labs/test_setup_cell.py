"""The setup cell on a machine like Colab: old IPython and ipywidgets, kvedu missing; nothing that was there changes."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "labs" / "masters" / "setup.py"
OLD = ["ipython==7.34.0", "ipywidgets==7.7.1", "numpy==2.1.3"]
LEFT_OUT = ("kvedu", "__editable__", "gguf", "ipython", "ipywidgets", "numpy", "pip", "setuptools", "_distutils", "distutils", "__pycache__")
VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with this environment's packages, but Colab's IPython, ipywidgets and NumPy, and neither kvedu nor gguf."""
    folder = tmp_path_factory.mktemp("colab")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    shadow = folder / "packages"
    shadow.mkdir()
    for path in Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages").iterdir():
        if not path.name.lower().startswith(LEFT_OUT):
            (shadow / path.name).symlink_to(path)
    done = subprocess.run([python, "-m", "pip", "install", "-q", *OLD], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the package index could not be reached: {done.stderr[-200:]}")
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "the_rest.pth").write_text(f"{shadow}\n")
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); from pathlib import Path; "
                    f"from build_instructor import build_wheel; build_wheel(Path({str(folder / 'content')!r}))"], check=True)  # fmt: skip
    return folder


def run(folder: Path, code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP"))}
    python = folder / "venv" / "bin" / "python"
    done = subprocess.run([python, "-c", code], cwd=folder / "content", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_nothing_that_was_there_changes(colab: Path) -> None:
    """C042: packages that the process has imported already keep their versions, and a lab's first cells run without a restart."""
    before = json.loads(run(colab, VERSIONS))
    assert before["ipython"] == "7.34.0" and before["ipywidgets"] == "7.7.1" and before["numpy"] == "2.1.3" and "kvedu" not in before
    cell = (
        "import numpy, torch, IPython, ipywidgets\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        f"shell = InteractiveShell.instance()\nshell.run_cell(open({str(SETUP)!r}).read()).raise_error()\n"
        "shell.run_cell('def bytes_per_token(c, b): return 2 * c.L * c.K * c.D * b')\n"
        "shell.run_cell(\"kvedu.check('lab02.bytes_per_token', bytes_per_token)\").raise_error()\n"
        "assert numpy.__version__ == '2.1.3'"
    )
    out = run(colab, cell)
    assert "lab02.bytes_per_token: passed" in out and "kvedu 0" in out
    after = json.loads(run(colab, VERSIONS))
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) == {"kvedu", "gguf"}


def test_without_the_wheel_it_says_what_to_do(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['kvedu'] = None; exec(open({str(SETUP)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "upload the wheel" in done.stderr


def test_no_package_of_the_machine_is_named_for_installation() -> None:
    text = SETUP.read_text("utf-8")
    assert "--upgrade" not in text and "-U" not in text and "--no-deps" in text

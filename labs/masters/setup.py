import importlib
import importlib.metadata
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import kvedu
except ImportError:
    wheels = sorted(Path.cwd().glob("kvedu-*.whl"))
    if not wheels:
        raise ImportError(
            "kvedu is not installed here. In a clone of the project, start JupyterLab with "
            "`make lab`. Elsewhere (Colab), upload the wheel that `make book` puts beside the "
            "pages (kvedu-….whl) to this folder and run this cell again."
        ) from None
    present = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", str(wheels[-1])], check=True)
    importlib.invalidate_caches()
    needs = [
        re.match(r"[\w.-]+", text)[0].lower()
        for text in importlib.metadata.requires("kvedu")
        if "extra ==" not in text
    ]
    if missing := [name for name in needs if name not in present]:
        keep = Path(tempfile.mkdtemp()) / "keep.txt"  # whatever the machine brings stays as it is
        keep.write_text("".join(f"{name}=={version}\n" for name, version in present.items()))
        subprocess.run([*pip, "-c", str(keep), *missing], check=True)
        importlib.invalidate_caches()
    import kvedu
import torch

from kvedu import fetch

fetch.model_path(progress=print)
print(f"kvedu {kvedu.__version__}, torch {torch.__version__}, Python {platform.python_version()}")

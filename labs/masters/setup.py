import importlib.metadata
import platform
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
            "kvedu is not installed here. In a clone of the project, start JupyterLab with `make lab`. Elsewhere (Colab), "
            "upload the wheel that `make book` puts beside the pages (kvedu-….whl) to this folder and run this cell again."
        ) from None
    present = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    keep = Path(tempfile.mkdtemp()) / "keep.txt"  # what the machine brings stays as it is
    names = [name for name in ("torch", "triton", "numpy", "ipywidgets") if name in present]
    keep.write_text("".join(f"{name}=={present[name]}\n" for name in names))
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-c", str(keep), str(wheels[-1])], check=True)
    import kvedu
import torch

print(f"kvedu {kvedu.__version__}, torch {torch.__version__}, Python {platform.python_version()}")

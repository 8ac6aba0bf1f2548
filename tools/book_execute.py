"""Execute the book's notebooks, each once, into the cache that Jupyter Book reads."""

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from book_stored import StoredError, fill, is_kernel_page, stored_file, triton_here
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError


@dataclass(frozen=True)
class Failure:
    """A cell that failed: page, cell number (code cells only, from 1), its first line in the file, and why."""

    page: str
    cell: int
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.page}, code cell {self.cell} (line {self.line}): {self.why}"


def execute_pages(root: Path, build: Path, key: str, cell_timeout: int) -> list[Failure]:
    """Execute every notebook of the contents that the cache does not hold for ``key``; report failures.

    A failed notebook is not cached and does not stop the others. The executed notebooks lie under
    ``build/executed``; the ledger reads their verdicts.
    """
    cache_folder, executed = build / ".jupyter_cache", build / "executed"
    key_file = executed / "key"
    if not key_file.is_file() or key_file.read_text() != key:
        shutil.rmtree(cache_folder, ignore_errors=True)
        shutil.rmtree(executed, ignore_errors=True)
    executed.mkdir(parents=True, exist_ok=True)
    key_file.write_text(key)
    cache = get_cache(str(cache_folder))

    notebooks = [
        path for path in toc_pages(root) if path.suffix == ".md" and is_myst_markdown_notebook(path.read_text("utf-8"))
    ]
    wanted = {_kept(root, executed, path) for path in notebooks}
    for old in executed.rglob("*.ipynb"):
        if old not in wanted:
            old.unlink()

    failures = []
    for number, path in enumerate(notebooks, 1):
        page = path.relative_to(root)
        print(f"[{number}/{len(notebooks)}] {page} …", end=" ", flush=True)
        start = time.perf_counter()
        notebook = read_myst_markdown_notebook(path.read_text("utf-8"), add_source_map=True, path=path)
        if _in_cache(cache, notebook):
            _, merged = cache.merge_match_into_notebook(notebook)
            print("unchanged", flush=True)
        elif failure := _run(notebook, root, path, cell_timeout):
            failures.append(failure)
            _kept(root, executed, path).unlink(missing_ok=True)
            print("FAILED", flush=True)
            continue
        else:
            seconds = time.perf_counter() - start
            bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
            merged = notebook
            print(f"{seconds:.1f} s", flush=True)
        kept = _kept(root, executed, path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(merged, kept)
    return failures


def toc_pages(root: Path) -> list[Path]:
    """The files of ``_toc.yml``, in order."""
    entries = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    pages = []
    for name in _names(entries):
        found = [root / f"{name}{suffix}" for suffix in ("", ".md", ".ipynb") if (root / f"{name}{suffix}").is_file()]
        if found:
            pages.append(found[0])
    return pages


def _names(entry: Any) -> list[str]:
    if isinstance(entry, list):
        return [name for item in entry for name in _names(item)]
    if not isinstance(entry, dict):
        return []
    here = [entry[key] for key in ("root", "file") if key in entry]
    return here + [name for key in ("parts", "chapters", "sections") for name in _names(entry.get(key))]


def _kept(root: Path, executed: Path, path: Path) -> Path:
    return (executed / path.relative_to(root)).with_suffix(".ipynb")


def _in_cache(cache: Any, notebook: nbformat.NotebookNode) -> bool:
    try:
        cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    return True


def _run(notebook: nbformat.NotebookNode, root: Path, path: Path, timeout: int) -> Failure | None:
    """Execute a notebook in place; a kernel page without Triton gets its stored outputs."""
    current = 0

    def remember(cell: Any, cell_index: int) -> None:
        nonlocal current
        current = cell_index

    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.on_cell_start = remember
    try:
        if is_kernel_page(notebook) and not triton_here():
            fill(notebook, stored_file(root, path))
        else:
            client.execute()
    except StoredError as error:
        why = str(error)
    except CellTimeoutError:
        why = f"took longer than {timeout} s"
    except CellExecutionError as error:
        why = re.sub(r"\x1b\[[0-9;]*m", "", f"{error.ename}: {error.evalue}\n{error.traceback}")
    except DeadKernelError:
        why = "the kernel died (out of memory?)"
    else:
        return None
    number = sum(cell.cell_type == "code" for cell in notebook.cells[: current + 1])
    return Failure(str(path.relative_to(root)), number, notebook.metadata.source_map[current] + 1, why)

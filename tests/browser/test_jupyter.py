"""A figure in a real JupyterLab, started on loopback: alive with anywidget, a still picture without."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import TimeoutError

pytestmark = [pytest.mark.browser, pytest.mark.timing]  # two servers and a browser: not beside other tests
SHOW = "from kvedu.viz import show, memory\nfigure = show('memory', memory.data(), batch=8)\nfigure"
HIDE = "import sys; sys.modules['anywidget'] = None; import importlib.util as u; u.find_spec = lambda *a, **k: None\n"
TELL = "print('batch in Python:', figure.state['batch'])"
EXPLORE = "from kvedu.viz.explore import explore\nexplorer = explore(lambda tokens: f'{tokens} rows', tokens=(8, 64, 512))\nexplorer"
SET = "figure.state = figure.state | {'batch': 1024}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a JupyterLab of its own, with no token, on loopback only."""
    folder = tmp_path_factory.mktemp("lab")
    for name, cells in (("alive", [SHOW, TELL, SET]), ("still", [HIDE + SHOW]), ("explorer", [EXPLORE, "print('Python:', explorer.text)"])):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, folder / f"{name}.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={folder}"]
    config = os.environ | {"JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=config)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api", timeout=2).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.5)
        yield address, folder
    finally:
        server.terminate()
        server.wait(timeout=20)


def run_first_cell(browser: Any, address: str, name: str) -> Any:
    tab = browser.new_page(viewport={"width": 1200, "height": 1000})
    tab.goto(f"{address}/lab/tree/{name}.ipynb?reset", wait_until="domcontentloaded")
    first = tab.locator(".jp-Notebook .jp-CodeCell").first
    first.locator(".cm-content").click(timeout=90_000)
    tab.wait_for_function("document.body.innerText.includes('Python 3')", timeout=60_000)
    for _ in range(6):  # while JupyterLab is still opening the notebook, a key can go astray
        first.locator(".cm-content").click()
        tab.keyboard.press("Shift+Enter")
        try:
            first.locator(".jp-InputPrompt").get_by_text(re.compile(r"\[[*\d]")).wait_for(timeout=15_000)
            return tab
        except TimeoutError:
            continue
    raise AssertionError(f"the first cell of {name} was never started")


def test_alive(lab: tuple[str, Path], browser: Any) -> None:
    """A key moves a control, Python sees it; Python sets a control, the figure shows it."""
    tab = run_first_cell(browser, lab[0], "alive")
    say = tab.locator(".jp-OutputArea .kvfig-say")
    tab.locator(".kvfig-skip").click(timeout=90_000)
    assert "8 sequences of 4,096 tokens" in say.text_content()
    slider = tab.get_by_role("slider", name="Sequences")
    slider.focus()
    tab.keyboard.press("ArrowRight")
    assert "16 sequences of 4,096 tokens" in say.text_content()
    tab.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1).click()
    tab.keyboard.press("Shift+Enter")
    tab.get_by_text("batch in Python: 16", exact=True).wait_for(timeout=30_000)
    tab.keyboard.press("Shift+Enter")
    tab.wait_for_function("document.querySelector('.jp-OutputArea .kvfig-say').textContent.includes('1,024 sequences')", timeout=30_000)
    assert "Out of memory" in say.text_content() and slider.get_attribute("aria-valuetext") == "1,024"
    tab.close()


def test_still_without_anywidget(lab: tuple[str, Path], browser: Any) -> None:
    tab = run_first_cell(browser, lab[0], "still")
    tab.locator(".jp-OutputArea svg[role=img]").wait_for(timeout=90_000)
    text = tab.locator(".jp-OutputArea").first.inner_text()
    assert "8 sequences of 4,096 tokens" in text and "pip install anywidget" in text
    assert tab.locator(".jp-OutputArea input").count() == 0
    tab.close()


def test_an_explorer_follows_the_keys(lab: tuple[str, Path], browser: Any) -> None:
    """A lab's sliders: the text beside them and the object in Python follow."""
    tab = run_first_cell(browser, lab[0], "explorer")
    slider = tab.locator(".jp-OutputArea [role=slider]")
    slider.wait_for(timeout=90_000)
    said = tab.locator(".jp-OutputArea .widget-html pre")
    assert said.inner_text() == "8 rows" and "tokens" in tab.locator(".jp-OutputArea .widget-label").first.inner_text()
    slider.focus()
    tab.keyboard.press("ArrowUp")
    tab.wait_for_function("document.querySelector('.jp-OutputArea .widget-html pre').innerText === '64 rows'", timeout=30_000)
    tab.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1).click()
    tab.keyboard.press("Shift+Enter")
    tab.get_by_text("Python: 64 rows", exact=True).wait_for(timeout=30_000)
    tab.close()

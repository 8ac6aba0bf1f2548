"""The built book over http and file://, and a browser without a network."""

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def built_pages() -> Path:
    """The build to open: ``KVEDU_BOOK_HTML``, else the one that `make book` made."""
    return Path(os.environ.get("KVEDU_BOOK_HTML", ROOT / "_build" / "html")).resolve()


@pytest.fixture(scope="session")
def pages() -> Path:
    folder = built_pages()
    assert (folder / "index.html").is_file(), f"no built book in {folder}; run `make book` first"
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """An installed Chrome or Chromium, else Playwright's own; without either the tests are skipped."""
    from playwright.sync_api import Error, sync_playwright

    found = next((path for name in NAMES if (path := shutil.which(name))), MAC if Path(MAC).is_file() else None)
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        except Error as error:
            if found:
                raise
            pytest.skip(f"no Chrome or Chromium was found, nor Playwright's own ({str(error).splitlines()[0]})")
        yield started
        started.close()


@pytest.fixture(scope="session")
def origins(pages: Path) -> Iterator[dict[str, str]]:
    """Where the pages lie: ``http`` on loopback, and ``file``."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(pages)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield {"http": f"http://127.0.0.1:{server.server_port}", "file": pages.as_uri()}
    server.shutdown()
    server.server_close()

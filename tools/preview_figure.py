"""Look at one figure without building the book: ``python tools/preview_figure.py NAME [--data FILE] [--state JSON]``.

Writes ``_build/figures/NAME.html`` (open it from the disk) and, with ``--shots``, pictures of it: light, dark, 360
pixels wide.
"""

import argparse
import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from kvedu.viz.sources import RUNTIME, joined
from kvedu.viz.still import page_html

ROOT = Path(__file__).resolve().parents[1]
THEMES = {"light": "#fff; --pst-color-text-base: #222832", "dark": "#121212; --pst-color-text-base: #ced6dd"}


def standalone(name: str, data: dict[str, Any]) -> str:
    """A whole page with one figure; ``#dark`` in its address makes it dark."""
    css = (RUNTIME / "kvfig.css").read_text("utf-8")
    themes = "".join(f'html[data-theme="{key}"] {{background: {value}}}' for key, value in THEMES.items())
    return (
        f'<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width"><style>body {margin: 1rem auto; max-width: 44rem; '
        f"padding: 0 .8rem; font: 16px/1.5 system-ui, sans-serif}} {themes} {css}</style>"
        f'<script>document.documentElement.dataset.theme = location.hash.slice(1) || "light"</script>'
        f"<body><figure style='margin:0'>{page_html(name, data)}</figure>"
        f"<script>{joined(name, 'mount', 'page')}</script></body></html>"
    )


def shoot(page: Path, name: str) -> None:
    """Pictures of a page's figure as it stands after the prediction."""
    from playwright.sync_api import sync_playwright

    found = next((path for path in ("chromium", "google-chrome") if shutil.which(path)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which(found) if found else None, args=["--no-sandbox", "--disable-gpu"]
        )
        for kind, width, theme in (("light", 760, "light"), ("dark", 760, "dark"), ("narrow", 360, "light")):
            tab = browser.new_page(viewport={"width": width, "height": 800})
            tab.on("pageerror", lambda error: print("script error:", error))
            tab.goto(f"{page.as_uri()}#{theme}")
            tab.evaluate("document.querySelectorAll('.kvfig-skip').forEach((button) => button.click())")
            wide = tab.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                print(f"{kind}: {wide} pixels wide, more than {width}")
            target = page.with_name(f"{name}-{kind}.png")
            tab.screenshot(path=target, full_page=True)
            print(target)
            tab.close()
        browser.close()


def main() -> int:
    """Write the page, and pictures if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, help="a file of data; else the figure's own module makes it")
    parser.add_argument("--state", default="{}", help="controls to start with, as JSON")
    parser.add_argument("--shots", action="store_true")
    options = parser.parse_args()
    if options.data:
        data = json.loads(options.data.read_text("utf-8"))
    else:
        data = importlib.import_module(f"kvedu.viz.{options.name}").data()
    data["start"] = data.get("start", {}) | json.loads(options.state)
    page = ROOT / "_build" / "figures" / f"{options.data.stem if options.data else options.name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(standalone(options.name, data), encoding="utf-8")
    print(page)
    if options.shots:
        shoot(page, page.stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())

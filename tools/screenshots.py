"""Pictures of every built page and of every living figure: light, dark, 360 pixels wide. Look at them.

    python tools/screenshots.py [--html FOLDER] [--only WORD]

They go to ``_build/screenshots``, which is not committed. Prints what scrolls sideways or logs an error.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
VIEWS = (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light"), ("wide", 1600, "light"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def shoot(tab: Any, page: Path, name: str, target: Path) -> list[str]:
    """One page in one view: the whole of it, then each figure. Returns what is wrong."""
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(f"{name}: {error}"))
    tab.goto(page.as_uri())
    tab.evaluate("document.querySelectorAll('.kvfig-skip').forEach((button) => button.click())")
    tab.wait_for_timeout(250)
    width = tab.viewport_size["width"]
    if (wide := tab.evaluate("document.documentElement.scrollWidth")) > width:
        wrong.append(f"{name}: {wide} pixels wide at {width}")
    tab.screenshot(path=target / f"{name}.png", full_page=True)
    tab.add_style_tag(content=".bd-header-article, .skip-link { display: none !important }")
    for number, figure in enumerate(tab.locator("figure.kvfig-frame").all(), 1):
        figure.screenshot(path=target / f"{name}-figure{number}.png")
    return wrong


def is_page(path: Path, html: Path) -> bool:
    """Whether it is a page to look at: no part of a script, and none that only sends the reader on."""
    return "_static" not in path.relative_to(html).parts and 'http-equiv="refresh"' not in path.read_text("utf-8").lower()


def main() -> int:
    """Shoot all pages in all views; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Pictures of every page and figure.")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--only", default="", help="pages whose path holds this word")
    options = parser.parse_args()
    html = options.html.resolve()
    pages = [p for p in sorted(html.rglob("*.html")) if is_page(p, html) and options.only in str(p.relative_to(html))]
    if not pages:
        print(f"kvedu: no pages in {html}; run `make book` first.", file=sys.stderr)
        return 1
    target = ROOT / "_build" / "screenshots"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wrong: list[str] = []
    with sync_playwright() as playwright:
        found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for view, width, scheme in VIEWS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for page in pages:
                tab = context.new_page()
                name = f"{str(page.relative_to(html).with_suffix('')).replace('/', '-')}-{view}"
                wrong += shoot(tab, page, name, target)
                tab.close()
            context.close()
        browser.close()
    print("\n".join(wrong))
    print(f"{len(list(target.glob('*.png')))} pictures in {target}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

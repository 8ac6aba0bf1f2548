"""Every built page: no request leaves this machine, nothing is missing, nothing is logged as an error."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from .conftest import built_pages

pytestmark = pytest.mark.browser
HTML = [path.relative_to(built_pages()) for path in sorted(built_pages().rglob("*.html"))]
PAGES = [str(path) for path in HTML if "_static" not in path.parts and str(path) != "index.html"]


def test_index_leads_to_the_preface(browser: Any, origins: dict[str, str]) -> None:
    for origin in origins.values():
        tab = browser.new_page()
        tab.goto(f"{origin}/index.html")
        tab.wait_for_url("**/book/intro.html", timeout=5000)
        assert tab.text_content("h1").startswith("Preface")
        tab.close()
    assert "book/claims-ledger.html" in PAGES, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_page_is_clean(page: str, browser: Any, origins: dict[str, str]) -> None:
    """Over http and file://, light and dark: zero external requests, zero errors, zero missing files."""
    faults = [
        fault
        for name, origin in origins.items()
        for scheme in ("light", "dark")
        for fault in faults_of(browser, origin, page, scheme, name)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", PAGES)
def test_page_fits_a_phone(page: str, browser: Any, origins: dict[str, str]) -> None:
    """At 360 px nothing makes the page itself scroll sideways."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    tab = context.new_page()
    tab.goto(f"{origins['file']}/{page}")
    width = tab.evaluate("document.documentElement.scrollWidth")
    wide = tab.evaluate(
        "[...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > 361)"
        ".slice(0, 3).map(e => e.outerHTML.slice(0, 120))"
    )
    context.close()
    assert width <= 360, f"{page} is {width} px wide at 360 px; reaching out: {wide}"


@pytest.mark.parametrize("page", PAGES)
def test_no_widget_needs_a_kernel(page: str, pages: Path) -> None:
    """C097: no widget without its state, no 'kernel required' text, no blank output area."""
    html = (pages / page).read_text("utf-8")
    assert "widget-view+json" not in html or "widget-state+json" in html
    for phrase in ("kernel required", "A Jupyter widget could not be displayed", "Loading widget..."):
        assert phrase not in html
    blank = BlankOutputs()
    blank.feed(html)
    assert not blank.lines, f"{page}: blank output areas in lines {blank.lines}"


def test_the_check_sees_faults(browser: Any, tmp_path: Path) -> None:
    """The four kinds of fault, planted, are each found."""
    (tmp_path / "bad.html").write_text(
        "<img src='missing.png' alt=''><script>console.error('planted')</script><script>throw new Error('thrown')</script>"
        "<script src='https://cdn.example.org/x.js'></script>"
    )
    faults = "\n".join(faults_of(browser, tmp_path.as_uri(), "bad.html", "light", "file"))
    for sign in ("missing.png", "planted", "thrown", "cdn.example.org"):
        assert sign in faults


def faults_of(browser: Any, origin: str, page: str, scheme: str, name: str) -> list[str]:
    """What goes wrong while the page loads and is scrolled through; the network beyond ``origin`` is cut."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    where = f"{page} ({name}, {scheme})"

    def guard(route: Any) -> None:
        url = route.request.url
        if url.startswith((origin, "data:", "blob:")):
            route.continue_()
        else:
            faults.append(f"{where}: requests {url}")
            route.abort()

    context.route("**/*", guard)
    tab = context.new_page()
    tab.on(
        "console",
        lambda message: faults.append(f"{where}: console {message.text}") if message.type == "error" else None,
    )
    tab.on("pageerror", lambda error: faults.append(f"{where}: script error {error}"))
    tab.on(
        "response",
        lambda reply: faults.append(f"{where}: {reply.status} for {reply.url}") if reply.status >= 400 else None,
    )
    # What is still under way when the page is left is aborted; that is no fault of the page.
    tab.on(
        "requestfailed",
        lambda request: None if "ABORTED" in str(request.failure) else faults.append(f"{where}: failed {request.url}"),
    )
    tab.goto(f"{origin}/{page}", wait_until="load")
    tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    tab.wait_for_timeout(150)
    tab.goto("about:blank")
    context.close()
    return faults


class BlankOutputs(HTMLParser):
    """Finds ``div.output`` elements that hold neither text nor a picture, figure or table."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []
        self.open: list[list[Any]] = []  # depth of div, line, has content

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag == "div":
            for entry in self.open:
                entry[0] += 1
            if "output" in classes:
                self.open.append([1, self.getpos()[0], False])
        elif tag in ("img", "svg", "table", "canvas", "object", "input"):
            self._content()

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            for entry in self.open:
                entry[0] -= 1
            self.lines += [line for depth, line, content in self.open if depth == 0 and not content]
            self.open = [entry for entry in self.open if entry[0] > 0]

    def handle_data(self, data: str) -> None:
        if data.strip():
            self._content()

    def _content(self) -> None:
        for entry in self.open:
            entry[2] = True

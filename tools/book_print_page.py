"""Print one built page with Chromium: paper size, no navigation, formulas finished, pictures as they stand."""

import shutil
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PLAIN = """
.bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article, .bd-header, .prev-next-footer, .bd-footer-content,
.bd-footer, .skip-link, .headerlink, .copybtn, #pst-back-to-top, #jb-print-toc, .search-button__wrapper { display: none !important }
.bd-main, .bd-content, .bd-article-container, .bd-article, .bd-container, .bd-container__inner { display: block !important; max-width: none !important; padding: 0 !important; margin: 0 !important }
html, body { background: white !important; font-size: 10pt }
figure, .kvfig, table, .admonition, .kvq-question, .kv-verdict { break-inside: avoid }
mjx-container g { stroke: none !important }  /* a line of width 0 is a hairline in a PDF */
pre { white-space: pre-wrap !important; font-size: 8pt }
/* What could scroll is never cut at a page's end: it would leave an empty frame there. Code goes to the next page with its frame. */
pre, .highlight, .cell, .cell_input, .cell_output, .output, .literal-block-wrapper { overflow: visible !important; break-inside: auto !important; orphans: 4; widows: 4 }
div.cell_input, div.highlight { break-inside: avoid !important }
 :is(h1, h2, h3, h4) { break-after: avoid }
span[id^="document-book/"] + section { break-before: page }
span[id^="document-labs/solutions/"] + section { display: none }
span[id^="document-labs/"] + section :is(.traceback, .output.text_html:has(> div[role="status"])) { display: none }
details > *:not(summary) { display: block } details.above-input, details > summary .collapsed { display: none }
"""
SHEET = """
html, body { font-size: 8.3pt !important; line-height: 1.3 }
h1 { font-size: 15pt !important; margin: 0 0 2mm !important } h2 { font-size: 11pt !important; margin: 3mm 0 1mm !important; break-after: avoid }
p, dl, ul { margin: 0 0 1mm !important } dd { margin: 0 0 1mm 4mm !important } dt { font-weight: 600 }
dd p { margin: 0 !important }
table { width: 100% !important; font-size: 7.8pt; margin: 1mm 0 !important } td, th { padding: 0.4mm 1.2mm !important }
.cell, .cell_output, .cell_output .output { margin: 0 !important; padding: 0 !important } pre { padding: 1mm !important; margin: 0 !important }
.pst-scrollable-table-container { margin: 0 !important } td p { margin: 0 !important }
"""


def print_page(page: Path, target: Path, *, sheet: bool = False) -> Path:
    """Write ``page`` as the PDF ``target`` on A4; ``sheet`` sets it small. Raises ``SystemExit`` without a browser."""
    from playwright.sync_api import Error, sync_playwright

    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        except Error as error:
            raise SystemExit(f"kvedu: no Chrome or Chromium to print with ({str(error).splitlines()[0]})") from None
        tab = browser.new_page(color_scheme="light")
        missing: list[str] = []
        tab.on("requestfailed", lambda request: request.url.endswith("searchindex.js") or missing.append(request.url))
        tab.goto(page.as_uri())
        tab.wait_for_function("!window.MathJax || !MathJax.startup || MathJax.startup.promise.then(() => true)")
        tab.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        tab.add_style_tag(content=PLAIN + (SHEET if sheet else ""))
        missing += tab.evaluate("[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)")
        if missing:
            raise SystemExit(f"kvedu: {page.name} wants {len(missing)} files that are not there, the first of them {missing[0]}")
        margin = {side: "11mm" if sheet else "18mm" for side in ("top", "bottom", "left", "right")}
        tab.pdf(path=target, format="A4", margin=margin, print_background=True, outline=not sheet, tagged=True)
        browser.close()
    return target

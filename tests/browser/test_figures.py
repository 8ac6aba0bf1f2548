"""Every figure in a real browser, from the disk: asked first, moved by keys, announced, quiet where motion is unwanted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvedu.viz import still

from .axe import serious_findings
from .figure_cases import figure_data, write_page

pytestmark = pytest.mark.browser
DATA = figure_data()


@pytest.fixture(params=sorted(DATA))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any], str]:
    """Name, data and address of a figure's page."""
    name = request.param
    return name, DATA[name], write_page(tmp_path, name, DATA[name])


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page that fails the test where a script fails or something is asked of the network."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith("file:") else None)
    yield page
    context.close()
    assert not faults, faults


def reveal(tab: Any) -> None:
    """Past the prediction, without one."""
    if tab.locator(".kvfig-skip").count():
        tab.locator(".kvfig-skip").click()


def test_it_asks_before_it_shows(case: tuple[str, dict[str, Any], str], tab: Any) -> None:
    """The figure is hidden until a choice is made, by keyboard alone; right and wrong are told apart."""
    name, data, address = case
    predict = data.get("predict")
    if predict is None:
        pytest.skip("this run asks nothing")
    for choice in {0, predict["answer"]}:
        tab.goto(address)
        assert not tab.locator(".kvfig-body").is_visible()
        tab.locator(".kvfig-predict button").nth(choice).focus()
        tab.keyboard.press("Enter")
        assert tab.locator(".kvfig-picture svg").is_visible()
        verdict = tab.locator(".kvfig-verdict").text_content()
        assert verdict.startswith("Right" if choice == predict["answer"] else "Not so")
        assert predict["choices"][predict["answer"]] in verdict and predict["because"] in verdict


def test_keys_move_it_to_the_same_numbers(case: tuple[str, dict[str, Any], str], tab: Any) -> None:
    """A slider moved by an arrow key shows, says and announces what the still picture of that state says."""
    name, data, address = case
    tab.goto(address)
    reveal(tab)
    assert tab.locator(".kvfig-say").text_content() == still(name, data).say
    sliders = tab.locator("input[type=range]:visible")
    assert sliders.count() >= 1
    moved = 0
    for at in range(sliders.count()):
        slider = sliders.nth(at)
        before = slider.input_value()
        slider.focus()
        tab.keyboard.press("ArrowRight" if before != slider.get_attribute("max") else "ArrowLeft")
        moved += slider.input_value() != before
        assert slider.get_attribute("aria-valuetext")
    assert moved == sliders.count()
    state = tab.evaluate("document.querySelector('[data-kvfig]').kvfig.get()")
    wanted = still(name, data, state, width=680)
    assert tab.locator(".kvfig-say").text_content() == wanted.say
    shown = tab.locator(".kvfig-numbers dd").all_text_contents()
    assert shown == [value for _, value in wanted.readout]
    tab.wait_for_timeout(400)
    assert tab.locator(".kvfig-announce[aria-live=polite]").text_content() == wanted.say
    tab.locator(".kvfig-reset").click()
    assert tab.locator(".kvfig-say").text_content() == still(name, data).say


def test_every_control_has_a_name(case: tuple[str, dict[str, Any], str], tab: Any) -> None:
    """axe-core finds nothing serious, in light and dark, and the picture has its words."""
    name, data, address = case
    for theme in ("light", "dark"):
        tab.goto(f"{address}#{theme}")
        tab.reload()
        assert not (found := serious_findings(tab)), found
        reveal(tab)
        assert not (found := serious_findings(tab)), found
    assert still(name, data).say in tab.locator(".kvfig-picture svg").get_attribute("aria-label")


@pytest.mark.parametrize("width", [360, 1600])
def test_it_fits(case: tuple[str, dict[str, Any], str], tab: Any, width: int) -> None:
    """Nothing reaches out of a phone or a wide screen; the picture takes the width it is given, also after a turn."""
    tab.set_viewport_size({"width": 700, "height": 900})
    tab.goto(case[2])
    reveal(tab)
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_timeout(150)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    box = tab.locator(".kvfig-picture").bounding_box()
    assert abs(tab.locator(".kvfig-picture svg").bounding_box()["width"] - box["width"]) < 2


def test_still_where_motion_is_unwanted(browser: Any, tmp_path: Path) -> None:
    """Playing is offered only to readers who did not ask for less motion; stepping is, to all."""
    address = write_page(tmp_path, "growth", DATA["growth"])
    for motion, plays in (("reduce", 0), ("no-preference", 1)):
        context = browser.new_context(reduced_motion=motion)
        page = context.new_page()
        page.goto(address)
        reveal(page)
        assert page.locator(".kvfig-play").count() == plays
        assert page.get_by_role("button", name=re.compile("one forward")).count() == 1
        if plays:
            first = page.locator(".kvfig-say").text_content()
            page.locator(".kvfig-play").click()
            page.wait_for_function("(old) => document.querySelector('.kvfig-say').textContent !== old", arg=first, timeout=4000)
            page.locator(".kvfig-play").click()
            assert page.locator(".kvfig-play").text_content() == "Play"
        context.close()


def test_without_scripts_there_is_a_picture(browser: Any, tmp_path: Path) -> None:
    """The still picture of the start, its sentence, and for paper the question with its answer."""
    address = write_page(tmp_path, "memory", DATA["memory"])
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".kvfig svg[role=img]").is_visible()
    assert page.locator(".kvfig-say").is_visible() and page.locator("input").count() == 0
    page.emulate_media(media="print")
    assert page.locator(".kvfig-asked").is_visible()
    context.close()


def test_it_prints_after_scripts_ran(browser: Any, tmp_path: Path) -> None:
    """On paper: no controls, and the picture also where nobody has answered."""
    page = browser.new_page()
    page.goto(write_page(tmp_path, "memory", DATA["memory"]))
    page.emulate_media(media="print")
    assert page.locator(".kvfig-picture svg").is_visible() and not page.locator(".kvfig-controls").is_visible()
    page.close()


def test_scripts_in_the_book_are_these(pages: Path) -> None:
    """A page with a figure loads the scripts as files of the book; a page without one loads none."""
    with_figures = [path for path in pages.rglob("book/*.html") if "data-kvfig" in path.read_text("utf-8")]
    assert with_figures
    for path in pages.rglob("book/*.html"):
        text = path.read_text("utf-8")
        assert ("figures/d3.js" in text) == (path in with_figures)
        for found in re.findall(r'<script type="application/json" class="kvfig-data">(.*?)</script>', text):
            assert json.loads(found)["title"]


def test_a_slider_with_nothing_to_choose_is_not_shown(tab: Any, tmp_path: Path) -> None:
    """One wave of programs: no slider of waves. Several: there it is, and it goes when they are gone."""
    tab.goto(write_page(tmp_path, "splits", DATA["splits"]))
    reveal(tab)
    figure, wave = "document.querySelector('[data-kvfig]').kvfig", tab.get_by_role("slider", name="Wave", exact=True)
    for settings, shown in (({}, False), ({"batch": 64, "splits": 16}, True), ({"batch": 1, "splits": 1}, False)):
        tab.evaluate(f"settings => {figure}.set(settings)", settings)
        assert wave.is_visible() is shown, settings

"""The built book in a headless browser with the network cut: ``make pages``."""

import re

import pytest

from .conftest import HTML, pages

WIDTHS = (360, 768, 1440)
# The text of a page without code and formulas.
PROSE = """() => {
  const page = document.body.cloneNode(true);
  page.querySelectorAll("pre, code, script, style, .math").forEach((part) => part.remove());
  return page.textContent;
}"""


def open_page(page, name: str) -> None:
    page.goto((HTML / name).as_uri())
    page.wait_for_load_state("load")
    page.wait_for_function("!window.MathJax || !MathJax.startup || MathJax.startup.promise")
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")


@pytest.mark.parametrize("name", pages() or ["no book"])
def test_page_opens_offline(page, name: str) -> None:
    open_page(page, name)
    assert page.outside == []
    assert page.errors == []


@pytest.mark.parametrize("name", pages() or ["no book"])
def test_equations_are_drawn(page, name: str) -> None:
    open_page(page, name)
    written = page.locator(".math").count()
    assert page.locator(".math mjx-container").count() == written
    assert page.locator("mjx-merror").count() == 0
    text = page.evaluate(PROSE)
    assert not re.search(r"Traceback \(most|\\(frac|begin|sum|mathbf|top)\b|\$\$", text)
    assert page.locator(".cell_output .traceback").count() == 0


@pytest.mark.parametrize("name", pages() or ["no book"])
def test_no_sideways_scrolling(page, name: str) -> None:
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, name)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide - width} px too wide at {width} px"


def test_search_finds_a_word(page) -> None:
    page.goto((HTML / "search.html").as_uri() + "?q=backpropagation")
    page.wait_for_selector("#search-results li a", timeout=10_000)
    found = page.locator("#search-results li a").all_inner_texts()
    assert any("Fully connected" in title for title in found)


def test_root_leads_to_the_book(page) -> None:
    page.goto((HTML / "index.html").as_uri())
    page.wait_for_url("**/book/index.html")
    assert "Who Looks at Whom?" in page.title()

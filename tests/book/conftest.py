"""A browser without a network, looking at the built book over file://."""

import shutil
from pathlib import Path

import pytest

HTML = Path(__file__).parents[2] / "_build" / "html"


def pages() -> list[str]:
    """Every page of the built book, relative to its root."""
    found = (path.relative_to(HTML) for path in HTML.rglob("*.html"))
    return sorted(path.as_posix() for path in found if "_static" not in path.parts)


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest):
    if not request.config.option.built_book:
        pytest.skip("looks at the built book: run `make book`, then `make pages`")
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "install Chromium from the system's packages"
    assert HTML.exists(), "there is no built book: run `make book` first"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page, and on it the list ``page.outside`` of what it asked other hosts for."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.outside, page.errors = [], []
    page.on("request", lambda r: r.url.startswith("http") and page.outside.append(r.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda m: m.type == "error" and page.errors.append(m.text))
    yield page
    context.close()

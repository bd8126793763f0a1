"""Check a built book without a network: links, anchors, pictures, and nothing from outside.

    python tools/links.py _build/html

Every local address must exist, and the anchor in it; no script, style, font or picture may come
from another host; every picture has an alternative text that is a text; no page shows a
traceback or raw TeX.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
UNWANTED = {"traceback": r"Traceback \(most", "raw TeX": r"\\(frac|begin|sum|mathbf)\b"}
# What <link> names without loading it.
NOT_LOADED = {"canonical", "next", "prev", "search", "index"}


class Page(HTMLParser):
    """The anchors, links, pictures and visible text of one page."""

    def __init__(self, path):
        super().__init__()
        self.path, self.anchors, self.links, self.loads, self.pictures = path, set(), [], [], []
        self.text, self._hidden, self._math = [], 0, 0
        source = path.read_text(encoding="utf-8")
        self.figures_as_text = source.count("&lt;Figure size")
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        attrs = {name: value or "" for name, value in attrs}
        self.anchors.update(attrs[name] for name in ("id", "name") if name in attrs)
        self.links += [attrs[name] for name in ("href", "src") if name in attrs]
        if tag in LOADED and attrs.get("rel") not in NOT_LOADED and LOADED[tag] in attrs:
            self.loads.append(attrs[LOADED[tag]])
        if tag == "img":
            self.pictures.append((attrs.get("src", ""), attrs.get("alt")))
        if tag in ("script", "style", "pre", "code"):
            self._hidden += 1
        if "math" in attrs.get("class", "").split() or self._math:
            self._math += tag in ("span", "div")

    def handle_endtag(self, tag):
        if tag in ("script", "style", "pre", "code"):
            self._hidden -= 1
        if self._math and tag in ("span", "div"):
            self._math -= 1

    def handle_data(self, data):
        if not self._hidden and not self._math:
            self.text.append(data)


def problems(page, pages, root):
    """Yield what is wrong on one page, a line each."""
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or link.startswith("//"):
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"leads nowhere: {link}"
        elif target in pages and parts.fragment:
            anchors = pages[target].anchors
            yield from [] if unquote(parts.fragment) in anchors else [f"no such anchor: {link}"]
    for address in page.loads:
        if address.startswith(("http:", "https:", "//")):
            yield f"loads from another host: {address}"
    for source, alt in page.pictures:
        if not alt or re.fullmatch(r"\S*(/\S*|\.(png|svg|jpe?g))", alt):
            yield f"picture without a text: {source} (alt {alt!r})"
    if page.figures_as_text:
        yield f"{page.figures_as_text} figures are shown as text"
    text = " ".join(page.text)
    for pattern, name in (
        (r"Traceback \(most", "traceback"),
        (r"\\(frac|begin|sum|mathbf)\b", "raw TeX"),
    ):
        if re.search(pattern, text):
            yield f"{name} in the text"


def main(folder):
    """Print every problem; the exit status is 1 if there is one."""
    root = Path(folder).resolve()
    files = [f for f in root.rglob("*.html") if "_static" not in f.relative_to(root).parts]
    pages = {file: Page(file) for file in files}
    found = [
        f"{file.relative_to(root)}: {problem}"
        for file, page in sorted(pages.items())
        for problem in problems(page, pages, root)
    ]
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} problems"]))
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

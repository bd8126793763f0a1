"""The check of the built pages finds what it is for."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import links

SOUND = """<html><body id="top"><a href="other.html#there">there</a><a href="#top">up</a>
<img src="a.png" alt="Two curves that cross."><a href="https://example.org">out</a>
<pre>Traceback (most recent call last) in an example</pre>
<div class="math">\\frac{1}{2}</div></body></html>"""
FAULTS = {
    "leads nowhere: ": '<a href="gone.html">x</a>',
    "no such anchor: ": '<a href="other.html#gone">x</a>',
    "loads from another host: ": '<script src="https://example.org/a.js"></script>',
    "picture without a text: ": '<img src="a.png" alt="../_images/a.png">',
    "figures are shown as text": "<pre>&lt;Figure size 800x500 with 1 Axes&gt;</pre>",
    "traceback in the text": "<p>Traceback (most recent call last)</p>",
    "raw TeX in the text": "<p>$$\\frac{1}{2}$$</p>",
}


def write(folder: Path, more: str = "") -> int:
    (folder / "a.png").write_bytes(b"")
    (folder / "other.html").write_text('<p id="there">here</p>')
    (folder / "page.html").write_text(SOUND + more)
    return links.main(folder)


def test_sound_pages_pass(tmp_path: Path, capsys) -> None:
    assert write(tmp_path) == 0
    assert "2 pages, 0 problems" in capsys.readouterr().out


@pytest.mark.parametrize("said", FAULTS)
def test_faults_are_found(tmp_path: Path, capsys, said: str) -> None:
    assert write(tmp_path, FAULTS[said]) == 1
    out = capsys.readouterr().out
    assert said.strip('"') in out
    assert "1 problems" in out


def test_a_folder_without_pages_is_a_fault(tmp_path: Path) -> None:
    assert links.main(tmp_path) == 1

"""The chapters keep to the path that a reader learns in the first of them."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from repository import read_config, setup_cell  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
NOTEBOOKS = CHAPTERS + SOLUTIONS

PATH = (
    "## Setup",
    "## The idea in words",
    "## By hand",
    "## The package's version",
    "## Predict, then run",
    "## Where the story bends",
    "## The table so far",
    "## Exercises",
    "## Summary",
)
# The claims that the book puts to the test, and the chapter that measures each.
CLAIMS = {
    1: ["C01", "C02"],
    2: ["C03", "C04", "C05", "C06"],
    3: ["C07", "C08"],
    4: ["C09", "C10", "C11", "C12", "C13", "C14"],
    5: ["C15", "C16"],
    6: ["C17", "C18", "C19", "C20", "C21"],
    7: ["C22", "C23", "C24"],
    8: ["C25", "C26", "C27", "C28"],
    9: ["C29", "C30"],
    10: ["C31", "C32", "C33"],
    11: ["C34", "C35", "C36"],
    12: ["C37", "C38"],
    13: ["C39"],
}
VERDICTS = ("**holds**", "**holds, within limits**", "**does not hold as told**")


def cells(path: Path, kind: str) -> list[dict]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"text": "".join(cell["source"])} for cell in found if cell["cell_type"] == kind]


def each(paths: list[Path]):
    return pytest.mark.parametrize(
        "path", paths, ids=[p.relative_to(ROOT).as_posix() for p in paths]
    )


def number(path: Path) -> int:
    return int(path.name[:2])


@each(CHAPTERS)
def test_sections_come_in_order(path: Path) -> None:
    text = "\n".join(cell["text"] for cell in cells(path, "markdown"))
    assert len(re.findall(r"^# \S", text, flags=re.M)) == 1, "one title"
    found = [line for line in text.splitlines() if line.startswith("## ")]
    places = [[line.startswith(wanted) for line in found].index(True) for wanted in PATH]
    assert places == sorted(places), found


@each(NOTEBOOKS)
def test_first_cell_is_the_setup(path: Path) -> None:
    lines = [line for line in cells(path, "code")[0]["text"].splitlines() if line]
    assert lines == [line for line in setup_cell(read_config(ROOT)).splitlines() if line]
    assert len(lines) <= 5


@each(NOTEBOOKS)
def test_cells_are_short(path: Path) -> None:
    for index, cell in enumerate(cells(path, "code")):
        lines = [line for line in cell["text"].splitlines() if line.strip()]
        assert len(lines) <= 15, f"code cell {index} has {len(lines)} lines"


@each(NOTEBOOKS)
def test_no_file_beside_the_notebook(path: Path) -> None:
    """In Colab the notebook stands alone."""
    for cell in cells(path, "code"):
        assert not re.search(r"""["'](\.\.?/|/)\w|open\(|urlopen|wget|curl """, cell["text"])
    for cell in cells(path, "markdown"):
        assert not re.search(r"!\[[^]]*\]\((?!https?:|attachment:)", cell["text"])


@each(CHAPTERS)
def test_claims_are_tagged_and_asserted(path: Path) -> None:
    tagged = []
    for cell in cells(path, "code"):
        for tag in cell["metadata"].get("tags", []):
            if tag.startswith("claim-"):
                tagged.append(tag.removeprefix("claim-"))
                tree = ast.parse(cell["text"])
                assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), tag
    assert sorted(tagged) == CLAIMS.get(number(path), [])


def test_claims_page_has_every_claim_with_a_verdict() -> None:
    text = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
    rows = re.split(r"^\* - ", text, flags=re.M)[2:]
    written = [claim for path in CHAPTERS for claim in CLAIMS.get(number(path), [])]
    assert [re.match(r"\[(C\d\d)\]", row)[1] for row in rows] == written
    for row in rows:
        claim = re.match(r"\[(C\d\d)\]\(#(claim-c\d\d)\)", row)
        assert claim, row
        assert claim[1].lower() == claim[2].removeprefix("claim-"), row
        assert sum(verdict in row for verdict in VERDICTS) == 1, row


@each(CHAPTERS)
def test_exercises_have_checks_and_solutions(path: Path) -> None:
    solution = path.parent / "solutions" / path.name
    assert solution in SOLUTIONS
    asked = set(re.findall(r'check\(\s*"([a-z0-9_]+)"', path.read_text().replace('\\"', '"')))
    solved = set(re.findall(r'check\(\s*"([a-z0-9_]+)"', solution.read_text().replace('\\"', '"')))
    assert len(asked) >= 2
    assert asked <= solved, f"without a solution: {sorted(asked - solved)}"


@each(NOTEBOOKS)
def test_notebooks_are_in_the_book(path: Path) -> None:
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert path.relative_to(ROOT).with_suffix("").as_posix() in contents


@each(NOTEBOOKS)
def test_figures_say_what_is_to_be_seen(path: Path) -> None:
    """A cell that draws carries an alternative text and a caption."""
    for index, cell in enumerate(cells(path, "code")):
        last = cell["text"].strip().splitlines()[-1] if cell["text"].strip() else ""
        if re.match(r"(plots\.)(?!show_source|style)\w+\(", last):
            shown = cell["metadata"].get("mystnb", {})
            assert len(shown.get("image", {}).get("alt", "")) > 20, f"code cell {index}: {last}"

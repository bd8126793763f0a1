"""The repository's address stands once, in _config.yml, and everything else agrees with it."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "repository.py"
NAMES = runpy.run_path(str(TOOL))
OLD = "https://github.com/old-owner/old.name"
NEW = "https://github.com/New-Owner/new_name"

PYPROJECT = f'[project.urls]\nRepository = "{OLD}"\nIssues = "{OLD}/issues"\n'
CITATION = f"title: A book\nrepository-code: {OLD}\n"
README = f"""\
Read it at https://old-owner.github.io/old.name/, clone it with `git clone {OLD}.git`, or open
[chapter 1](https://colab.research.google.com/github/old-owner/old.name/blob/main/notebooks/01.ipynb).
[This line]({OLD}/blob/main/tutorial_lib/dense.py#L3), [its image]({OLD}/raw/main/a.png),
[raw](https://raw.githubusercontent.com/old-owner/old.name/main/a.png), [issues]({OLD}/issues).
A release keeps its tag: {OLD}/blob/v0.1.0/README.md, and a commit its hash: {OLD}/tree/0a1b2c3d/.
Not ours: https://github.com/old-owner/old.name-2, https://github.com/old-owner/old.name.js,
https://github.com/other/old.name/blob/main/x, https://github.com/old-owner/oldxname,
https://colab.research.google.com/github/other/course/blob/master/a.ipynb.
The end of a sentence: {OLD}.
"""
SETUP = '%pip install -q "tutorial-lib[plots,data] @ git+{}@{}"'


def config(url: object = NEW, branch: object = "trunk") -> str:
    return (
        f"title: A book\nrepository:\n  url: {url}\n  branch: {branch}\nsphinx:\n  config:\n"
        "    html_baseurl: https://old-owner.github.io/old.name/\n"
    )


def notebook(url: str, branch: str) -> bytes:
    """Unusual on purpose: one-space indent, an escape, CRLF, no last newline."""
    cells = [
        {"cell_type": "code", "source": [SETUP.format(url, branch)], "outputs": [], "id": "a-1"},
        {"cell_type": "markdown", "source": f"Ä [here]({url}/tree/{branch}/x) \x07"},
    ]
    return json.dumps({"cells": cells, "z": 1, "a": 1.0}, indent=1).replace("\n", "\r\n").encode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "notebooks" / "solutions").mkdir(parents=True)
    (tmp_path / "book").mkdir()
    (tmp_path / "_config.yml").write_text(config())
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "CITATION.cff").write_text(CITATION)
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "book" / "index.md").write_text("# Nothing of ours\r\nhttps://github.com/a/b\r\n")
    (tmp_path / "notebooks" / "01.ipynb").write_bytes(notebook(OLD, "main"))
    # Copied in from an older state: its address is neither the new one nor the last written.
    stale = notebook("https://github.com/older/oldest", "master")
    (tmp_path / "notebooks" / "solutions" / "01.ipynb").write_bytes(stale)
    return tmp_path


def lines(code: str) -> list[str]:
    """Without the empty ones: those are the formatter's."""
    return [line for line in code.splitlines() if line.strip()]


def tool(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, TOOL, "--root", root, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def content(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_check_names_the_files_that_differ_and_writes_nothing(project: Path) -> None:
    before = content(project)
    done = tool(project, "--check")
    assert done.returncode == 1
    named = {line.removeprefix("differs: ") for line in done.stdout.splitlines()}
    notebooks = {"notebooks/01.ipynb", "notebooks/solutions/01.ipynb"}
    assert named == {"_config.yml", "README.md", "CITATION.cff", "pyproject.toml"} | notebooks
    assert content(project) == before


def test_the_address_is_written_everywhere_and_nothing_else_moves(project: Path) -> None:
    before = content(project)
    assert tool(project).returncode == 0
    after = content(project)
    assert before.keys() == after.keys()
    assert after[project / "notebooks" / "01.ipynb"] == notebook(NEW, "trunk")
    assert after[project / "book" / "index.md"] == before[project / "book" / "index.md"]
    pyproject, citation = PYPROJECT.replace(OLD, NEW), CITATION.replace(OLD, NEW)
    assert after[project / "pyproject.toml"].decode() == pyproject
    assert after[project / "CITATION.cff"].decode() == citation
    assert (
        b"html_baseurl: https://new-owner.github.io/new_name/\n" in after[project / "_config.yml"]
    )
    ours, others = README.split("Not ours: ")
    others, last = others.split("The end")
    ours = ours.replace("old-owner.github.io", "new-owner.github.io")
    ours = ours.replace("old-owner", "New-Owner").replace("old.name", "new_name")
    for form in ("blob/{}/", "raw/{}/", "new_name/{}/a.png"):
        ours = ours.replace(form.format("main"), form.format("trunk"))
    wanted = ours + "Not ours: " + others + "The end" + last.replace(OLD, NEW)
    assert after[project / "README.md"].decode() == wanted
    setup = json.loads(after[project / "notebooks" / "solutions" / "01.ipynb"])["cells"][0]
    assert setup["source"] == [SETUP.format(NEW, "trunk")]


def test_a_second_run_changes_nothing(project: Path) -> None:
    tool(project)
    before = content(project)
    again = tool(project)
    assert (again.returncode, again.stdout) == (0, "")
    assert content(project) == before
    assert tool(project, "--check").returncode == 0


def test_a_new_branch_alone_is_written_too(project: Path) -> None:
    tool(project)
    (project / "_config.yml").write_text(
        (project / "_config.yml").read_text().replace("trunk", "x")
    )
    assert tool(project).returncode == 0
    assert (project / "notebooks" / "01.ipynb").read_bytes() == notebook(NEW, "x")


def test_an_interrupted_run_can_be_repeated(project: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    shutil.copytree(project, wanted)
    tool(wanted)
    # Some files are written, pyproject.toml is not.
    shutil.copy(wanted / "CITATION.cff", project / "CITATION.cff")
    shutil.copy(wanted / "README.md", project / "README.md")
    tool(project)
    for path in ("README.md", "CITATION.cff", "pyproject.toml", "notebooks/01.ipynb"):
        assert (project / path).read_bytes() == (wanted / path).read_bytes()


def test_a_dot_git_or_a_slash_at_the_end_of_the_address_is_left_out(project: Path) -> None:
    for end in (".git", "/", ".git/"):
        (project / "_config.yml").write_text(config(NEW + end))
        assert NAMES["read_config"](project).url == NEW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing"),
        ("title: A book\n", "repository.url must be"),
        (config("https://github.com/owner"), "got 'https://github.com/owner'"),
        (config("git@github.com:owner/name"), "got 'git@github.com:owner/name'"),
        (config("https://example.com/owner/name"), "repository.url must be"),
        (config(branch="''"), "repository.branch must be"),
        (config(branch="feature/x"), "got 'feature/x'"),
    ],
)
def test_a_config_without_an_address_is_an_error_before_anything_is_written(
    project: Path, text: str | None, said: str
) -> None:
    if text is None:
        (project / "_config.yml").unlink()
    else:
        (project / "_config.yml").write_text(text)
    before = content(project)
    done = tool(project)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert content(project) == before


def test_everything_in_the_project_agrees_with_the_config() -> None:
    done = tool(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("**/*.ipynb")), ids=lambda path: path.name
)
def test_every_notebook_begins_with_the_set_up_cell(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    wanted = NAMES["setup_cell"](NAMES["read_config"](ROOT))
    assert lines(first) == lines(wanted)
    assert len(lines(wanted)) <= 5

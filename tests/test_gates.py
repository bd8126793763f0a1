"""The gates close: a planted fault turns the notebooks and the book red, each time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
TOC = """format: jb-book
root: book/index
chapters:
  - file: notebooks/01_small
"""
CONFIG = """title: Small
execute: {execute_notebooks: cache, timeout: 60, stderr_output: remove-warn}
only_build_toc_files: true
sphinx:
  local_extensions: {execution_cache: book/_ext}
  config:
    include_patterns: ["book/**", "notebooks/**"]
    nb_execution_raise_on_error: true
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The project with one small notebook and one page in place of all."""
    for name in ("tutorial_lib", "book/_ext"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    (tmp_path / "tests").mkdir()
    for name in (
        "conftest.py",
        "pyproject.toml",
        "tests/nbval_sanitize.cfg",
        "tests/shape_check.py",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "_config.yml").write_text(CONFIG)
    (tmp_path / "book" / "index.md").write_text("# Small\n\nA page.\n")
    write(tmp_path, "import numpy as np", "from tutorial_lib.dense import softmax", SUM, FIGURE)
    return tmp_path


FIGURE = "from tutorial_lib import plots\nplots.curves({'a': [1.0, 2.0]})"
SUM = "assert np.allclose(softmax(np.array([[1.0, 2.0, 3.0]])).sum(), 1)"


def write(folder: Path, *sources: str) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook.cells = [nbformat.v4.new_markdown_cell("# Small"), *cells]
    (folder / "notebooks").mkdir(exist_ok=True)
    nbformat.write(notebook, folder / "notebooks" / "01_small.ipynb")


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    return subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        cwd=folder,
        env=keep | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def build(folder: Path) -> int:
    """As ``make book`` does it."""
    shutil.rmtree(folder / "_build" / "html", ignore_errors=True)
    shutil.rmtree(folder / "_build" / ".doctrees", ignore_errors=True)
    return run(folder, "jupyter-book", "build", ".", "-W", "-n", "--keep-going").returncode


@pytest.mark.slow
def test_fault_in_the_package_turns_the_notebook_red(small: Path) -> None:
    sound = run(small, "pytest", "notebooks", "--save-outputs", "-p", "no:cacheprovider")
    assert sound.returncode == 0, sound.stdout + sound.stderr
    stored = list((small / "_build" / ".jupyter_cache").rglob("*.ipynb"))
    assert len(stored) == 1
    assert '"image/png"' in stored[0].read_text(), "the figure was not kept as a picture"
    source = small / "tutorial_lib" / "dense.py"
    text = source.read_text()
    assert "def softmax(" in text
    source.write_text(
        text + "\n\n_right = softmax\n\n\ndef softmax(x):\n    return 2 * _right(x)\n"
    )
    for _ in range(2):
        assert run(small, "pytest", "notebooks", "-p", "no:cacheprovider").returncode == 1


@pytest.mark.slow
def test_failing_cell_and_warning_turn_the_book_red(small: Path) -> None:
    assert build(small) == 0
    assert (small / "_build" / "html" / "notebooks" / "01_small.html").exists()
    write(small, "assert 1 + 1 == 3")
    assert build(small) != 0
    assert build(small) != 0
    write(small, "1 + 1")
    (small / "book" / "index.md").write_text("# Small\n\n[nowhere](missing.md)\n")
    assert build(small) != 0
    assert build(small) != 0


def test_outputs_are_forgotten_when_the_package_changes(small: Path) -> None:
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    import execution_cache

    kept = small / execution_cache.CACHE / "kept"
    execution_cache.refresh(small)
    kept.mkdir(parents=True)
    execution_cache.refresh(small)
    assert kept.exists()
    (small / "tutorial_lib" / "runtime.py").write_text("# another\n")
    execution_cache.refresh(small)
    assert not kept.exists()

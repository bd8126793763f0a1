"""Set-up shared by tests, doctests and notebooks.

Two things have to happen before anything else is collected: the package's shape annotations
become checks, and the outputs that nbval sees are kept for the book.
"""

import copy
import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "book" / "_ext"), str(ROOT / "tests")]

# Every shape written in a signature is a shape verified, for the whole package.
# (An int serves where a float is asked for, as everywhere in Python.)
install_import_hook("tutorial_lib", "shape_check.check")
os.environ.pop("MPLBACKEND", None)  # a kernel that inherits it shows figures as text
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small nets, and two workers side by side
os.environ.setdefault("TUTORIAL_DATA", str(ROOT / "_build" / "data"))

EXECUTED = ROOT / "_build" / ".executed"
_outputs: dict[Path, dict[int, list]] = defaultdict(dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--save-outputs", action="store_true", help="keep what nbval saw for the book build"
    )
    parser.addoption(
        "--built-book", action="store_true", help="look at _build/html in a headless browser"
    )


def pytest_configure(config: pytest.Config) -> None:
    # The option is read relative to the working directory: make it work from any.
    rules = config.option.nbval_sanitize_with
    if rules and not os.path.isabs(rules):
        config.option.nbval_sanitize_with = str(config.rootpath / rules)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if call.when == "call" and report.passed and hasattr(item, "cell_num"):
        _outputs[item.path][item.cell_num] = copy.deepcopy(item.test_outputs)
    return report


def _executed(path: Path):
    """The notebook with the outputs that nbval saw; None unless every cell passed."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(cells) != len(_outputs[path]):
        return None
    for number, cell in enumerate(cells):
        cell.execution_count = number + 1
        cell.outputs = _outputs[path][number]
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
    nbformat.validate(notebook)
    return notebook


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Each worker leaves its notebooks in a folder; the main process stores them all."""
    if not session.config.option.save_outputs:
        return
    import execution_cache
    import nbformat

    EXECUTED.mkdir(parents=True, exist_ok=True)
    for path in _outputs:
        notebook = _executed(path)
        if notebook is not None:
            name = path.relative_to(ROOT).as_posix().replace("/", "@")
            nbformat.write(notebook, EXECUTED / name)
    if hasattr(session.config, "workerinput"):
        return
    execution_cache.refresh(ROOT)
    for file in sorted(EXECUTED.glob("*.ipynb")):
        path = ROOT / file.name.replace("@", "/")
        execution_cache.store(path, nbformat.read(file, as_version=4), ROOT)
        file.unlink()

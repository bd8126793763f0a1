"""The wheel holds the package, whole and alone, and works away from this folder."""

import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import tutorial_lib

ROOT = Path(__file__).parent.parent
LEFT_OUT = (".*", "_build", "build", "dist", "*.egg-info", "__pycache__", "mutants")


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-index", "--no-deps", "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing left by an earlier build can slip in."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    pip("wheel", "--no-build-isolation", "--wheel-dir", work / "wheels", source)
    (built,) = (work / "wheels").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        notes = {name.split(".dist-info/")[1] for name in archive.namelist() if name not in held}
    package = ROOT / "tutorial_lib"
    files = {path.relative_to(ROOT).as_posix() for path in package.rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name and "/." not in name}
    assert held == wanted
    assert "tutorial_lib/py.typed" in held
    assert {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"} <= notes
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_the_wheel_says_what_it_is_and_needs_little(metadata: Message) -> None:
    assert metadata["Name"] == "tutorial-lib"
    assert metadata["Requires-Python"] == ">=3.10"
    needs = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert {re.split(r"\W", need)[0] for need in needs} == {"torch", "numpy", "jaxtyping"}
    # A pin or an upper bound would change what Colab already has.
    assert all(re.fullmatch(r"\w+>=[\d.]+", need) for need in needs), needs
    assert {"plots", "data"} <= set(metadata.get_all("Provides-Extra"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert f"Repository, {config['repository']['url']}" in metadata.get_all("Project-URL")
    assert metadata.get_payload().strip(), "the README is missing"


@pytest.mark.slow
def test_one_version_everywhere(metadata: Message) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert newest is not None
    said = {metadata["Version"], tutorial_lib.__version__, citation["version"], newest[1]}
    assert said == {metadata["Version"]}


@pytest.mark.slow
def test_the_installed_wheel_works_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--target", target, wheel)
    program = """
import importlib, pkgutil, sys
from pathlib import Path
target = Path(sys.argv[1])
sys.path.insert(0, str(target))
import tutorial_lib
for module in pkgutil.walk_packages(tutorial_lib.__path__, "tutorial_lib."):
    if not module.name.endswith("__main__"):
        found = Path(importlib.import_module(module.name).__file__)
        assert target in found.parents, found
tutorial_lib.runtime.show_versions()
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, target],
        cwd=elsewhere,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"tutorial_lib {tutorial_lib.__version__} | ")

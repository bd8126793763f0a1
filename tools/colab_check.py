"""Open notebooks as Colab does: alone, in an empty folder, without our package installed.

    python tools/colab_check.py                            # every chapter
    python tools/colab_check.py notebooks/02_convolution.ipynb

A clean environment gets what Colab brings of what we use: torch, NumPy, matplotlib, IPython.
Then two things are checked.

1. Installing our wheel there adds the package, jaxtyping and its one need, and changes nothing.
2. Each notebook, copied alone into an empty folder and left as it is, runs to its end; its first
   cell installs the package from git. git reads a snapshot of this folder instead of the
   repository's address, so the code that is tested is the code that stands here.

It needs git and a package index; torch alone is some hundred megabytes.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from repository import ROOT, read_config

# Colab has these; the versions are those of requirements.txt where it names one.
COLAB = ("torch", "numpy", "matplotlib", "ipython", "ipykernel", "nbclient")
OURS = {"tutorial-lib", "jaxtyping", "wadler-lindig"}
LEFT_OUT = (".*", "_build", "build", "dist", "*.egg-info", "__pycache__", "mutants")


class FailedError(Exception):
    """Something that a reader in Colab would meet."""


def run(*command: str | Path, **options) -> str:
    """The output of ``command``; if it fails, what it printed is the error."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, errors="replace", **options
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise FailedError(f"{' '.join(map(str, command[:4]))} ...: exit {done.returncode}\n{said}")
    return done.stdout


def snapshot(target: Path, branch: str) -> Path:
    """A git repository in ``target`` that holds what stands in this folder, on ``branch``."""
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    git = ("git", "-C", target, "-c", "user.name=check", "-c", "user.email=check@localhost")
    run(*git, "init", "--quiet", "--initial-branch", branch)
    run(*git, "add", "--all")
    run(*git, "commit", "--quiet", "--no-gpg-sign", "--message", "what stands here")
    return target


def wanted() -> list[str]:
    """The lines of ``requirements.txt`` for what Colab has, or the bare name."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = {re.split(r"[^\w.-]", line)[0].lower(): line.split("#")[0].strip() for line in lines}
    return [pins.get(name, name) for name in COLAB]


class Environment:
    """A virtual environment that sees neither this one nor the user's settings."""

    def __init__(self, folder: Path, redirect: dict[str, str]) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        (folder / "home").mkdir()
        cache = [
            sys.executable,
            "-m",
            "pip",
            "cache",
            "dir",
        ]  # the home is empty, downloads are not
        cached = subprocess.run(cache, capture_output=True, text=True).stdout.strip()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JUPYTER"))}
        self.variables = kept | {
            "HOME": str(folder / "home"),
            "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}",
            "VIRTUAL_ENV": str(folder),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "GIT_CONFIG_COUNT": str(len(redirect)),
        }
        if cached:
            self.variables["PIP_CACHE_DIR"] = cached
        self.variables.pop("MPLBACKEND", None)
        for number, (address, path) in enumerate(redirect.items()):
            self.variables[f"GIT_CONFIG_KEY_{number}"] = f"url.{path}.insteadOf"
            self.variables[f"GIT_CONFIG_VALUE_{number}"] = address

    def python(self, *arguments: str | Path, **options) -> str:
        """What this environment's Python prints."""
        return run(self.bin / "python", *arguments, env=self.variables, **options)

    def freeze(self) -> dict[str, str]:
        """Each installed package and its line in ``pip freeze``."""
        lines = self.python("-m", "pip", "freeze", "--all").splitlines()
        return {re.split(r"==| @ ", line)[0].lower().replace("_", "-"): line for line in lines}


def changes(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The names that were added; fails if anything that was there is gone or other."""
    moved = [
        f"{line} -> {after.get(name, 'gone')}"
        for name, line in before.items()
        if after.get(name) != line
    ]
    if moved:
        raise FailedError("installing the package changed others:\n" + "\n".join(moved))
    return set(after) - set(before)


def check_wheel(environment: Environment, source: Path, work: Path) -> None:
    """The built wheel adds ours, and nothing else."""
    environment.python("-m", "pip", "wheel", "-q", "--no-deps", "-w", work / "wheels", source)
    (wheel,) = (work / "wheels").glob("*.whl")
    before = environment.freeze()
    environment.python("-m", "pip", "install", "-q", wheel)
    added = changes(before, environment.freeze())
    if added != OURS:
        raise FailedError(f"the wheel should add {sorted(OURS)}, and added {sorted(added)}")
    environment.python("-I", "-c", "import tutorial_lib.runtime as r; r.show_versions()", cwd=work)
    environment.python("-m", "pip", "uninstall", "-q", "-y", *sorted(OURS))
    if environment.freeze() != before:
        raise FailedError("uninstalling did not bring the environment back")
    print(f"wheel: added {', '.join(sorted(added))}; nothing changed", flush=True)


def check_notebook(environment: Environment, notebook: Path, folder: Path) -> None:
    """``notebook`` runs alone in ``folder``, and its first cell brings the package."""
    began = time.perf_counter()
    folder.mkdir(parents=True)
    shutil.copy(notebook, folder)
    before = environment.freeze()
    command = ("-m", "jupyter", "execute", "--timeout=600", "--kernel_name=python3", notebook.name)
    environment.python(*command, cwd=folder)
    after = environment.freeze()
    added = changes(before, after)
    if "@ git+" not in after.get("tutorial-lib", ""):
        raise FailedError("the first cell did not install the package from git")
    environment.python("-m", "pip", "uninstall", "-q", "-y", "tutorial-lib")
    seconds = time.perf_counter() - began
    print(f"{notebook.name}: ran in {seconds:.0f} s; added {', '.join(sorted(added))}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every chapter")
    options = parser.parse_args(arguments)
    notebooks = options.notebooks or sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    missing = [str(path) for path in notebooks if not path.is_file()]
    if missing or not notebooks:
        print(
            f"no such notebook: {', '.join(missing) or 'notebooks/[0-9]*.ipynb'}", file=sys.stderr
        )
        return 2
    repository = read_config()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folder goes in any case
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        try:
            source = snapshot(work / "source", repository.branch)
            environment = Environment(work / "colab", {repository.url: source.as_uri()})
            environment.python("-m", "pip", "install", "-q", *wanted())
            check_wheel(environment, source, work)
            for notebook in notebooks:
                check_notebook(environment, notebook.resolve(), work / "content" / notebook.stem)
        except FailedError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

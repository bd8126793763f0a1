"""Write the repository's address from ``_config.yml`` into everything else that needs it.

The address and the branch stand once, under ``repository`` in ``_config.yml``. Run this after
you change them there::

    python tools/repository.py           # write
    python tools/repository.py --check   # write nothing; exit 1 and name the files that differ

An address is ours, and is written anew, if it installs ``tutorial-lib``, if it stands in a field
that is about this repository (``[project.urls]``, ``repository-code``), or if it is the one that
``pyproject.toml`` holds, the last one written. Links to other repositories stay. Links to a
version tag or a commit keep it. Notebooks are edited as text, so that nothing else in them moves.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent

# pyproject.toml comes last: it remembers the old address until every other file is written.
FILES = (
    "_config.yml",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "book/**/*.md",
    "book/**/*.ipynb",
    "notebooks/**/*.ipynb",
    "tutorial_lib/**/*.py",
    ".github/**/*.md",
    ".github/**/*.yml",
    "pyproject.toml",
)

_URL = re.compile(r"https://github\.com/([A-Za-z0-9-]+)/([\w.-]+?)(?:\.git)?/?")
_RECORDED = re.compile(r'^Repository = "(https://github\.com/[^"]+)"', re.MULTILINE)
_FIXED = re.compile(r"v\d[\w.]*|[0-9a-f]{7,40}")  # a version tag or a commit


@dataclass(frozen=True)
class Repository:
    """Where the project lives.

    Args:
        owner: the account on GitHub.
        name: the repository's name.
        branch: the branch that readers see.
    """

    owner: str
    name: str
    branch: str

    @property
    def path(self) -> str:
        """Owner and name, as addresses hold them."""
        return f"{self.owner}/{self.name}"

    @property
    def url(self) -> str:
        """The address of the repository."""
        return f"https://github.com/{self.path}"

    @property
    def pages(self) -> str:
        """The address of the published book, without its scheme."""
        site = f"{self.owner.lower()}.github.io"
        return site if self.name.lower() == site else f"{site}/{self.name}"


def read_config(root: Path = ROOT) -> Repository:
    """The repository that ``_config.yml`` names.

    Args:
        root: the folder that holds ``_config.yml``.

    Returns:
        Owner, name and branch.

    Raises:
        ValueError: if the file is missing, or names no repository on GitHub, or no branch
            (without one, the launch buttons lead to ``master``).
    """
    path = root / "_config.yml"
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    entry = config.get("repository") or {}
    url, branch = str(entry.get("url", "")), str(entry.get("branch", ""))
    found = _URL.fullmatch(url)
    if not found:
        raise ValueError(
            f"{path}: repository.url must be https://github.com/OWNER/NAME, got {url!r}"
        )
    if not re.fullmatch(r"[\w.-]+", branch):
        raise ValueError(
            f"{path}: repository.branch must be a branch without a slash, got {branch!r}"
        )
    return Repository(found[1], found[2], branch)


def setup_cell(repository: Repository) -> str:
    """The first cell of every notebook: it installs the package only where it is missing."""
    source = f"git+{repository.url}@{repository.branch}"
    return (
        "import importlib.util\n"
        "\n"
        'if importlib.util.find_spec("tutorial_lib") is None:\n'
        f'    %pip install -q "tutorial-lib[plots,data] @ {source}"\n'
        "from tutorial_lib.runtime import show_versions\n"
        "\n"
        "show_versions()"
    )


def rewrite(text: str, new: Repository, old: Repository) -> str:
    """``text`` with every address of ours made that of ``new``.

    Args:
        text: the content of a file.
        new: where the project lives now.
        old: where it lived when the files were last written.

    Returns:
        The same text, other characters untouched.
    """

    def ref(found: str) -> str:
        return found if _FIXED.fullmatch(found) else new.branch

    def either(first: str, second: str) -> str:
        return rf"(?:{re.escape(first)}|{re.escape(second)})" + end

    end = r"(?![\w-])(?!\.(?!git\b)\w)"  # the name ends here: not the head of a longer one
    home = re.escape(new.path)

    # tutorial-lib[plots] @ git+https://github.com/OWNER/NAME@BRANCH
    text = re.sub(
        r"(tutorial-lib(?:\[[\w,-]*\])? ?@ ?git\+)https://[^\s\"'`\\@]+(?:@([\w.-]*\w))?",
        lambda m: f"{m[1]}{new.url}" + (f"@{ref(m[2])}" if m[2] else ""),
        text,
    )
    # Fields that are about this repository.
    text = re.sub(
        r'^((?:Repository|Source) = "|repository-code: *"?)https://github\.com/[^\s/"]+/[^\s/"]+',
        lambda m: m[1] + new.url,
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^( *(?:html_baseurl|ogp_site_url): *)https://[\w-]+\.github\.io(?:/[\w.-]+)?",
        lambda m: f"{m[1]}https://{new.pages}",
        text,
        flags=re.MULTILINE,
    )
    # Links: to the repository, to its files, to Colab.
    hosts = r"github\.com/|raw\.githubusercontent\.com/|colab\.research\.google\.com/github/"
    text = re.sub(
        rf"({hosts}){either(old.path, new.path)}", lambda m: m[1] + new.path, text, flags=re.I
    )
    text = re.sub(
        rf"(/{home}/(?:blob|tree|raw|edit)/|raw\.githubusercontent\.com/{home}/)([\w.-]+)(?=/)",
        lambda m: m[1] + ref(m[2]),
        text,
    )
    # The published book.
    pages = rf"(https://){either(old.pages, new.pages)}"
    return re.sub(pages, lambda m: m[1] + new.pages, text, flags=re.I)


def differing(root: Path = ROOT) -> dict[Path, bytes]:
    """The files whose address is not that of ``_config.yml``.

    Args:
        root: the project's folder.

    Returns:
        For each such file, what it should hold, in the order in which to write.

    Raises:
        ValueError: as ``read_config`` does.
    """
    new = read_config(root)
    pyproject = root / "pyproject.toml"
    recorded = _RECORDED.search(pyproject.read_text(encoding="utf-8") if pyproject.exists() else "")
    found = _URL.fullmatch(recorded[1]) if recorded else None
    old = Repository(found[1], found[2], new.branch) if found else new
    wanted = {}
    for pattern in FILES:
        for path in sorted(root.glob(pattern)):
            before = path.read_bytes()  # bytes: line ends stay as they are
            after = rewrite(before.decode("utf-8"), new, old).encode("utf-8")
            if after != before:
                wanted[path] = after
    return wanted


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    options = parser.parse_args(arguments)
    try:
        wanted = differing(options.root)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for path, content in wanted.items():
        print(f"{'differs' if options.check else 'written'}: {path.relative_to(options.root)}")
        if not options.check:
            path.write_bytes(content)
    if options.check and wanted:
        print("Run: python tools/repository.py", file=sys.stderr)
    return int(options.check and bool(wanted))


if __name__ == "__main__":
    sys.exit(main())

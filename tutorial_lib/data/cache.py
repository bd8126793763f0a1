"""One directory for data that takes seconds to make, so that it is made once."""

import hashlib
import io
import os
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tutorial_lib import _check

VARIABLE = "TUTORIAL_DATA"
CHECKSUM = "sha256"  # the name under which a file holds the checksum of its arrays

Arrays = dict[str, NDArray[Any]]


def cache_directory() -> Path:
    """Where data is kept: the user's cache directory, or what ``TUTORIAL_DATA`` names.

    Returns:
        The directory, which need not exist yet.

    Example:
        >>> from tutorial_lib.data import cache_directory
        >>> cache_directory().is_absolute()
        True
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    home, settings = Path.home(), os.environ
    if sys.platform == "win32":
        base = Path(settings.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(settings.get("XDG_CACHE_HOME") or home / ".cache")
    return base.absolute() / "tutorial_lib"


def cached(name: str, make: Callable[[], Arrays], version: int = 1) -> Arrays:
    """The arrays that ``make`` returns, from the cache where they are kept already.

    Several processes may ask at once: each writes a file of its own and moves it into place
    whole. A damaged file is made again, and one line on the error stream says so.

    Args:
        name: what the data is called: letters, digits and underscores.
        make: makes the data, as named arrays of plain numbers.
        version: raise it when ``make`` changes, so that older files are left aside.

    Returns:
        The arrays by name.

    Raises:
        ValueError: if ``name`` holds other characters, or ``make`` returns nothing.
        TypeError: if ``make`` returns an array of Python objects.
        OSError: if the directory cannot be written, before ``make`` is called.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.data import cached
        >>> cached("squares", lambda: {"x": np.arange(4) ** 2})["x"]
        array([0, 1, 4, 9])
    """
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name, re.ASCII):
        raise ValueError(f"name must hold letters, digits and underscores, got {name!r}")
    _check.integer("version", version)
    path = cache_directory() / f"{name}-{version}.npz"
    arrays = _read(path)
    if arrays is None:
        aside, file = _open_aside(path)
        try:
            with file:
                arrays = _plain(make())
                stored: dict[str, Any] = {**arrays, CHECKSUM: np.array(_checksum(arrays))}
                np.savez_compressed(file, **stored)
            _move(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    return arrays


def _read(path: Path) -> Arrays | None:
    """The arrays in the file, or None where there is no file or it is damaged."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if str(arrays.pop(CHECKSUM)) == _checksum(arrays):
            return arrays
    except Exception:
        pass  # a damaged archive raises almost anything, and the next line tells of it
    print(f"tutorial_lib: {path} is damaged and is made again", file=sys.stderr)  # noqa: T201
    return None


def _open_aside(path: Path) -> tuple[Path, BinaryIO]:
    """A new file beside ``path``: opened before any work, it proves that we may write."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return aside, aside.open("xb")
    except OSError as error:
        raise OSError(
            f"cannot write to the data directory {path.parent} ({error.strerror}): set the "
            f"environment variable {VARIABLE} to a directory that can be written"
        ) from error


def _move(aside: Path, path: Path) -> None:
    """Put the finished file in its place, unless another process holds it open (on Windows)."""
    try:
        os.replace(aside, path)
    except PermissionError:
        if not path.is_file():
            raise


def _plain(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays as a dict, none of them of Python objects, which only pickle could store."""
    if not arrays:
        raise ValueError("make must return at least one array, got none")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise TypeError(f"make must return arrays of plain numbers, but {name!r} is not one")
        if name == CHECKSUM:
            raise ValueError(f"make must not return an array named {CHECKSUM!r}")
    return dict(arrays)


def _checksum(arrays: Arrays) -> str:
    """A digest of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

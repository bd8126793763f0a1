"""The text behind Python's own ``help("...")``: real English that is on every machine."""

import importlib
import random
import re

from tutorial_lib import _check
from tutorial_lib.data.corpus import Corpus


def python_topics(keep_duplicates: bool = False, seed: int = 0) -> Corpus:
    """The pages that ``help("while")``, ``help("yield")`` and so on show, as one text.

    They come with Python (``pydoc_data.topics``), about 370,000 to 420,000 characters from 3.10
    to 3.13: each version words some pages anew, so figures that are measured on them hold "about".
    About a fifth of the pages as they come says again, word for word, what stands on another page.
    Paragraphs that differ from an earlier one in white space alone are left out.

    Args:
        keep_duplicates: leave repeated paragraphs where they are. A test on such a text measures
            memory: much of it stands in the training part too.
        seed: the order in which the pages follow one another; the paragraphs of a page stay as
            they are.

    Returns:
        Training, validation and test parts of about 80, 10 and 10 %, cut between paragraphs.

    Raises:
        ImportError: if this Python comes without ``pydoc_data``.
        TypeError: if ``keep_duplicates`` is not a bool or ``seed`` not an int.
        ValueError: if ``seed`` is negative.

    Source: the Python Language Reference and Library Reference, Python Software Foundation.

    Example:
        >>> from tutorial_lib.data import python_topics
        >>> corpus = python_topics()
        >>> 250_000 < len(corpus.train) < len(python_topics(keep_duplicates=True).train)
        True
    """
    _check.boolean("keep_duplicates", keep_duplicates)
    _check.integer("seed", seed, at_least=0)
    pages = [_paragraphs(page) for page in _pages().values()]
    if not keep_duplicates:
        pages = _without_repeats(pages)
    random.Random(seed).shuffle(pages)
    return Corpus.from_paragraphs([paragraph for page in pages for paragraph in page])


def _pages() -> dict[str, str]:
    try:
        pages: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError as error:
        raise ImportError(
            "python_topics reads pydoc_data.topics of Python's standard library, which this Python "
            f"came without: install a complete one, such as that of python.org ({error})"
        ) from error
    return pages


def _paragraphs(page: str) -> list[str]:
    """What stands between empty lines."""
    return [part.strip("\n") for part in re.split(r"\n\s*\n", page) if part.strip()]


def _without_repeats(pages: list[list[str]]) -> list[list[str]]:
    """Each paragraph once, where it occurs first."""
    seen: set[str] = set()
    kept: list[list[str]] = []
    for page in pages:
        kept.append([])
        for paragraph in page:
            words = " ".join(paragraph.split())
            if words not in seen:
                kept[-1].append(paragraph)
            seen.add(words)
    return kept

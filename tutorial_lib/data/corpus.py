"""A text in three parts: to learn from, to choose by, and to be judged by."""

from dataclasses import dataclass

from tutorial_lib import _check

GAP = "\n\n"  # between two paragraphs


@dataclass(frozen=True, repr=False)
class Corpus:
    r"""Three parts of one text, each of whole paragraphs, which one empty line divides.

    Args:
        train: the text to learn from.
        validation: the text by which settings are chosen.
        test: the text that is looked at once, at the end.

    Raises:
        TypeError: if a part is not a string.
        ValueError: if a part is empty.

    Example:
        >>> from tutorial_lib.data import Corpus
        >>> Corpus(train="one\n\ntwo", validation="three", test="four")
        Corpus(train 8, validation 5, test 4 characters)
    """

    train: str
    validation: str
    test: str

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a string, got {type(value).__name__}")
            if not value:
                raise ValueError(f"{name} must hold at least one character, got none")

    @classmethod
    def from_paragraphs(cls, paragraphs: list[str]) -> "Corpus":
        """Cut a text between paragraphs, into about 80, 10 and 10 % of its characters.

        Args:
            paragraphs: in their order, at least three.

        Raises:
            ValueError: if there are fewer than three.

        Example:
            >>> from tutorial_lib.data import Corpus
            >>> Corpus.from_paragraphs(["a sentence"] * 20)
            Corpus(train 190, validation 22, test 22 characters)
        """
        return cls(*_cut(paragraphs, [0.8, 0.1, 0.1]))

    @property
    def text(self) -> str:
        """All three parts, in their order."""
        return GAP.join((self.train, self.validation, self.test))

    def folds(self, count: int = 5) -> list[tuple[str, str]]:
        r"""Hold out each part of the whole text in turn: cross-validation.

        Args:
            count: into how many parts of about equal length the text is cut, between paragraphs.

        Returns:
            ``count`` pairs (the rest, the part held out).

        Raises:
            TypeError: if ``count`` is not an int.
            ValueError: if it is below 2, or there are not as many paragraphs.

        Example:
            >>> from tutorial_lib.data import Corpus
            >>> Corpus("one\n\ntwo", "six", "ten").folds(2)
            [('six\n\nten', 'one\n\ntwo'), ('one\n\ntwo', 'six\n\nten')]
        """
        _check.integer("count", count, at_least=2)
        pieces = _cut(self.text.split(GAP), [1 / count] * count)
        return [
            (GAP.join(piece for j, piece in enumerate(pieces) if j != i), held_out)
            for i, held_out in enumerate(pieces)
        ]

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name} {len(getattr(self, name)):,}" for name in ("train", "validation", "test")
        )
        return f"Corpus({sizes} characters)"


def _cut(paragraphs: list[str], shares: list[float]) -> list[str]:
    """The paragraphs as one text for each share, cut where the sum of the lengths passes it."""
    if len(paragraphs) < len(shares):
        raise ValueError(
            f"the text must have at least {len(shares)} paragraphs, one per part, "
            f"got {len(paragraphs)}"
        )
    total = sum(map(len, paragraphs))
    pieces, first, length, wanted = [], 0, 0, 0.0
    for i, share in enumerate(shares[:-1]):
        wanted += share * total
        last = first + 1  # one paragraph at least, and enough left for those to come
        length += len(paragraphs[first])
        while length < wanted and last < len(paragraphs) - (len(shares) - 1 - i):
            length += len(paragraphs[last])
            last += 1
        pieces.append(GAP.join(paragraphs[first:last]))
        first = last
    return [*pieces, GAP.join(paragraphs[first:])]

"""The late-clue task: a word at the start that only a later word makes clear."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from tutorial_lib import _check

AMBIGUOUS = "bank"
CLUES = ("river", "money", "blood", "snow")
FILLERS = (
    "the", "a", "and", "then", "on", "to", "by", "for", "dog", "car", "house", "tree", "red",
    "old", "warm", "far", "saw", "left", "took", "made",
)  # fmt: skip


@dataclass(frozen=True)
class LateClue:
    """Rows that begin with *bank*; one of four clues somewhere later says which kind it is.

    The net is to name the kind *at the first word*, or at every word. Which of the four it is
    stands nowhere before the clue, so who has read no further can only guess.

    Args:
        length: T, how many words a row has.
        everywhere: whether the kind is asked at every word, and not at the first alone.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if ``length`` is below 2.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import LateClue
        >>> task = LateClue(length=6)
        >>> tokens, targets = task.sample(1, torch.Generator().manual_seed(2))
        >>> " ".join(task.words(tokens[0]))
        'bank blood a on took made'
        >>> targets[0]
        tensor([   2, -100, -100, -100, -100, -100])
    """

    length: int = 24
    everywhere: bool = False

    def __post_init__(self) -> None:
        _check.integer("length", self.length, at_least=2)
        _check.boolean("everywhere", self.everywhere)

    @property
    def num_classes(self) -> int:
        """How many kinds there are."""
        return len(CLUES)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words in the order of their tokens, the ambiguous one, the clues, then all others."""
        return (AMBIGUOUS, *CLUES, *FILLERS)

    def words(self, tokens: Int64[Tensor, "T"]) -> list[str]:
        """The words of one row.

        Raises:
            TypeError: if ``tokens`` are no integers.
            ValueError: if one is outside the vocabulary, or there is more than one row.
        """
        _check.axes("tokens", tokens, "T")
        _check.ids("tokens", tokens, len(self.vocabulary))
        return [self.vocabulary[token] for token in tokens.tolist()]

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Int64[Tensor, "n T"], Int64[Tensor, "n T"]]:
        """Draw rows, all kinds and all places of the clue equally likely.

        Args:
            n: how many.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.

        Returns:
            The tokens and the targets, both (n, T), on the CPU. A target is the kind, from 0 to
            3, at the first word, and -100 (not asked) at the others unless ``everywhere``.

        Raises:
            TypeError: if ``n`` is not an int.
            ValueError: if it is below 1.

        Example:
            >>> from tutorial_lib.data import LateClue
            >>> tokens, targets = LateClue().sample(5)
            >>> tokens.shape, tokens[:, 0]
            (torch.Size([5, 24]), tensor([0, 0, 0, 0, 0]))
        """
        _check.integer("n", n)
        first_filler, end = 1 + self.num_classes, len(self.vocabulary)
        tokens = torch.randint(first_filler, end, (n, self.length), generator=generator)
        kind = torch.randint(self.num_classes, (n,), generator=generator)  # (n,)
        place = torch.randint(1, self.length, (n,), generator=generator)  # (n,)
        tokens[:, 0] = 0
        tokens[torch.arange(n), place] = 1 + kind
        if self.everywhere:
            return tokens, kind[:, None].repeat(1, self.length)
        targets = torch.full((n, self.length), -100)
        targets[:, 0] = kind
        return tokens, targets

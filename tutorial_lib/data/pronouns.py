"""The pronoun task: which of two names does *he* or *she* stand for?"""

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from tutorial_lib import _check
from tutorial_lib.data._places import below

HE_NAMES = ("Adam", "Ben", "Carl", "David")
SHE_NAMES = ("Emma", "Fay", "Gina", "Hana")
PRONOUNS = ("he", "she")
FILLERS = (
    "the", "a", "and", "then", "on", "to", "by", "for", "dog", "car", "house", "tree", "red",
    "old", "warm", "far", "saw", "left", "took", "made",
)  # fmt: skip


@dataclass(frozen=True)
class Pronouns:
    """Rows of words with one man's name, one woman's name, and one pronoun.

    At the pronoun the net is to say which name it stands for: the one of its gender, which stands
    ``distance`` words before it. The other name stands anywhere, and all other words say nothing.
    Who knows the pronoun alone and guesses is right one time in four.

    Args:
        length: T, how many words a row has.
        max_distance: the largest distance from the name to its pronoun that is drawn.

    Raises:
        TypeError: if an argument is not an int.
        ValueError: if ``length`` is below 3, or ``max_distance`` is not from 1 to ``length`` - 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import Pronouns
        >>> task = Pronouns(length=8, max_distance=4)
        >>> tokens, targets = task.sample(1, torch.Generator().manual_seed(1))
        >>> " ".join(task.words(tokens[0]))
        'made Hana dog she saw then old Ben'
        >>> targets[0]
        tensor([-100, -100, -100,    7, -100, -100, -100, -100])
    """

    length: int = 40
    max_distance: int = 24

    def __post_init__(self) -> None:
        _check.integer("length", self.length, at_least=3)
        _check.integer("max_distance", self.max_distance)
        self._fits("max_distance", self.max_distance)

    @property
    def num_classes(self) -> int:
        """How many names there are."""
        return len(HE_NAMES) + len(SHE_NAMES)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words in the order of their tokens, the names, the two pronouns, then all others."""
        return (*HE_NAMES, *SHE_NAMES, *PRONOUNS, *FILLERS)

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
        self, n: int, generator: torch.Generator | None = None, distance: int | None = None
    ) -> tuple[Int64[Tensor, "n T"], Int64[Tensor, "n T"]]:
        """Draw rows.

        Args:
            n: how many.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.
            distance: how many words after its name the pronoun stands, the same for all rows; if
                None, each from 1 to ``max_distance`` is equally likely.

        Returns:
            The tokens and the targets, both (n, T), on the CPU. A target is the token of the
            name at the pronoun, and -100 (not asked) everywhere else.

        Raises:
            TypeError: if a number is not an int.
            ValueError: if ``n`` is below 1, or the distance does not fit into a row.

        Example:
            >>> from tutorial_lib.data import Pronouns
            >>> tokens, targets = Pronouns().sample(5, distance=7)
            >>> tokens.shape, (targets >= 0).sum(1)
            (torch.Size([5, 40]), tensor([1, 1, 1, 1, 1]))
        """
        _check.integer("n", n)
        row, men = torch.arange(n), len(HE_NAMES)
        if distance is None:
            apart = torch.randint(1, self.max_distance + 1, (n,), generator=generator)
        else:
            _check.integer("distance", distance)
            self._fits("distance", distance)
            apart = torch.full((n,), distance)
        own = below(self.length - apart, generator)  # (n,), where the right name stands
        pronoun = own + apart  # (n,)
        other = below(torch.full((n,), self.length - 2), generator)  # among the places left
        other = other + (other >= own)
        other = other + (other >= pronoun)
        gender = torch.randint(2, (n,), generator=generator)  # (n,)
        right = men * gender + torch.randint(men, (n,), generator=generator)
        wrong = men * (1 - gender) + torch.randint(men, (n,), generator=generator)
        first_filler, end = self.num_classes + len(PRONOUNS), len(self.vocabulary)
        tokens = torch.randint(first_filler, end, (n, self.length), generator=generator)
        tokens[row, own], tokens[row, other] = right, wrong
        tokens[row, pronoun] = self.num_classes + gender
        targets = torch.full((n, self.length), -100)
        targets[row, pronoun] = right
        return tokens, targets

    def _fits(self, name: str, distance: int) -> None:
        if distance >= self.length:
            raise ValueError(
                f"{name} must be below length, got {name}={distance}, length={self.length}"
            )

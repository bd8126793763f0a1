"""The halves task: learn a pattern on the left, meet it again on the right."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tutorial_lib import _check

HALVES = ("left", "right", "any")


@dataclass(frozen=True)
class Halves:
    """Noise with one of a few short patterns added to it somewhere; the label says which.

    A net that has met the patterns in the left half alone is asked about the right half: what
    it knows about one place, does it know about the others?

    Args:
        length: how many numbers an example has; even.
        pattern_length: how many numbers a pattern has; at most half of ``length``.
        num_classes: how many patterns there are, all different.
        noise: the standard deviation of the noise; the patterns are of -1 and 1.
        seed: of the patterns.

    Raises:
        TypeError: if an argument has another type.
        ValueError: if ``length`` is odd, a pattern does not fit into a half, there are fewer
            than ``num_classes`` different patterns, or a number is negative.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import Halves
        >>> task = Halves()
        >>> x, y = task.sample(4000, "left", torch.Generator().manual_seed(1))
        >>> x.shape, task.patterns.shape
        (torch.Size([4000, 64]), torch.Size([4, 7]))
    """

    length: int = 64
    pattern_length: int = 7
    num_classes: int = 4
    noise: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        _check.integer("length", self.length)
        _check.integer("pattern_length", self.pattern_length)
        _check.integer("num_classes", self.num_classes)
        _check.number("noise", self.noise)
        _check.integer("seed", self.seed, at_least=0)
        if self.length % 2:
            raise ValueError(f"length must be even, got {self.length}")
        if 2 * self.pattern_length > self.length:
            raise ValueError(
                "pattern_length must be at most half of length, "
                f"got {self.pattern_length} and length={self.length}"
            )
        if self.num_classes > 2**self.pattern_length:
            raise ValueError(
                f"num_classes must be at most {2**self.pattern_length}, the number of patterns "
                f"of length {self.pattern_length}, got {self.num_classes}"
            )

    @cached_property
    def patterns(self) -> Float[Tensor, "num_classes pattern_length"]:
        """The patterns, a row of -1 and 1 for each class."""
        generator = torch.Generator().manual_seed(self.seed)
        rows: set[tuple[int, ...]] = set()
        patterns: list[tuple[int, ...]] = []
        while len(patterns) < self.num_classes:
            row = tuple(torch.randint(2, (self.pattern_length,), generator=generator).tolist())
            if row not in rows:
                rows.add(row)
                patterns.append(row)
        return 2.0 * torch.tensor(patterns) - 1

    def starts(self, half: str) -> range:
        """The places at which a pattern may begin, so that it lies wholly in ``half``.

        Args:
            half: ``"left"``, ``"right"``, or ``"any"``, which includes places across the middle.

        Returns:
            The positions, from 0.

        Raises:
            ValueError: if ``half`` is another word.

        Example:
            >>> from tutorial_lib.data import Halves
            >>> Halves().starts("right")
            range(32, 58)
        """
        _check.one_of("half", half, HALVES)
        first = self.length // 2 if half == "right" else 0
        end = self.length // 2 if half == "left" else self.length
        return range(first, end - self.pattern_length + 1)

    def sample(
        self, n: int, half: str = "any", generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n length"], Int64[Tensor, "n"]]:
        """Draw examples whose pattern lies in one half, all places equally likely.

        Args:
            n: how many.
            half: ``"left"``, ``"right"`` or ``"any"``.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.

        Returns:
            The examples (n, length) and their labels (n,), on the CPU.

        Raises:
            TypeError: if ``n`` is not an int.
            ValueError: if ``n`` is less than 1, or ``half`` is another word.

        Example:
            >>> from tutorial_lib.data import Halves
            >>> x, y = Halves(length=20, num_classes=3).sample(5, "right")
            >>> x.shape, y.shape
            (torch.Size([5, 20]), torch.Size([5]))
        """
        _check.integer("n", n)
        places = self.starts(half)
        start = torch.randint(places.start, places.stop, (n,), generator=generator)
        return self.sample_at(start, generator)

    def sample_at(
        self, start: Int64[Tensor, "n"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n length"], Int64[Tensor, "n"]]:
        """Draw one example for each given place of its pattern.

        Args:
            start: (n,), where each pattern begins, on the CPU.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.

        Returns:
            The examples (n, length) and their labels (n,), on the CPU.

        Raises:
            TypeError: if ``start`` holds no whole numbers.
            ValueError: if ``start`` is empty, or a pattern would reach over an end.

        Example:
            >>> import torch
            >>> from tutorial_lib.data import Halves
            >>> x, y = Halves(noise=0.0).sample_at(torch.tensor([10]))
            >>> x.nonzero()[:, 1]
            tensor([10, 11, 12, 13, 14, 15, 16])
        """
        _check.axes("start", start, "n")
        if len(start) == 0:
            raise ValueError("start must hold at least one place, got none")
        _check.ids("start", start, self.length - self.pattern_length + 1)
        n, patterns = len(start), self.patterns
        y = torch.randint(self.num_classes, (n,), generator=generator)  # (n,)
        x = self.noise * torch.randn(n, self.length, generator=generator)  # (n, length)
        place = start[:, None] + torch.arange(self.pattern_length)  # (n, pattern_length)
        return x.scatter_add(1, place, patterns[y]), y

"""The adding problem: remember one number until a second one comes, and add them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from tutorial_lib import _check


@dataclass(frozen=True)
class Adding:
    """Random numbers from 0 to 1, two of them marked: what is the sum of these two?

    One marked number stands in the first half, the other in the second. Who always answers 1, the
    mean, has a squared error of 1/6 on average.

    Args:
        length: T, how many numbers a row has; even.

    Raises:
        TypeError: if ``length`` is not an int.
        ValueError: if it is below 2 or odd.

    Source: Hochreiter & Schmidhuber, "Long Short-Term Memory" (1997), section 5.4, in the simpler
    form that later work uses.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import Adding
        >>> x, y = Adding(length=6).sample(3, torch.Generator().manual_seed(0))
        >>> x.shape, torch.allclose((x[..., 0] * x[..., 1]).sum(1), y)
        (torch.Size([3, 6, 2]), True)
    """

    length: int = 50

    def __post_init__(self) -> None:
        _check.integer("length", self.length, at_least=2)
        if self.length % 2:
            raise ValueError(f"length must be even, got {self.length}")

    @property
    def guess(self) -> float:
        """The mean squared error of the best constant answer."""
        return 1 / 6

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Float32[Tensor, "n T 2"], Float32[Tensor, "n"]]:
        """Draw rows, all places of the marks equally likely.

        Args:
            n: how many.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.

        Returns:
            The rows (n, T, 2), of each place the number and 1 where it is marked, else 0; and the
            sums (n,). On the CPU, in float32.

        Raises:
            TypeError: if ``n`` is not an int.
            ValueError: if it is below 1.

        Example:
            >>> from tutorial_lib.data import Adding
            >>> x, y = Adding().sample(5)
            >>> x[..., 1].sum(1)
            tensor([2., 2., 2., 2., 2.])
        """
        _check.integer("n", n)
        half = self.length // 2
        numbers = torch.rand(n, self.length, generator=generator, dtype=torch.float32)
        places = torch.randint(half, (n, 2), generator=generator) + torch.tensor([0, half])
        marks: Float[Tensor, "n T"] = torch.zeros_like(numbers).scatter(1, places, 1.0)
        return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(1)

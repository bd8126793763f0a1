"""The copying task: keep some symbols in mind, then write them down in order."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from tutorial_lib import _check


@dataclass(frozen=True)
class Copying:
    """Random symbols, then as many blanks, at which the symbols are to be repeated in order.

    When the first blank comes, whoever reads in order must have all symbols in the state.

    Args:
        count: how many symbols there are to copy; T is twice as much.
        num_symbols: how many different ones there are; the blank is one more token.

    Raises:
        TypeError: if an argument is not an int.
        ValueError: if ``count`` is below 1 or ``num_symbols`` below 2.

    (Source, with a pause between the two halves: Hochreiter & Schmidhuber 1997; in this form,
    Arjovsky, Shah & Bengio, "Unitary Evolution Recurrent Neural Networks", 2016.)

    Example:
        >>> import torch
        >>> from tutorial_lib.data import Copying
        >>> tokens, targets = Copying(count=3).sample(1, torch.Generator().manual_seed(0))
        >>> tokens
        tensor([[ 4,  9,  3, 10, 10, 10]])
        >>> targets
        tensor([[-100, -100, -100,    4,    9,    3]])
    """

    count: int = 8
    num_symbols: int = 10

    def __post_init__(self) -> None:
        _check.integer("count", self.count)
        _check.integer("num_symbols", self.num_symbols, at_least=2)

    @property
    def vocab_size(self) -> int:
        """The symbols, and the blank, which is the last token."""
        return self.num_symbols + 1

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> tuple[Int64[Tensor, "n T"], Int64[Tensor, "n T"]]:
        """Draw rows.

        Args:
            n: how many.
            generator: where the random numbers come from, on the CPU; PyTorch's own if None.

        Returns:
            The tokens and the targets, both (n, T) with T twice ``count``, on the CPU. The
            targets are -100 (not asked) in the first half.

        Raises:
            TypeError: if ``n`` is not an int.
            ValueError: if it is below 1.

        Example:
            >>> from tutorial_lib.data import Copying
            >>> tokens, targets = Copying(count=4).sample(5)
            >>> (tokens[:, :4] == targets[:, 4:]).all()
            tensor(True)
        """
        _check.integer("n", n)
        symbols = torch.randint(self.num_symbols, (n, self.count), generator=generator)
        blanks = torch.full_like(symbols, self.num_symbols)
        silent = torch.full_like(symbols, -100)
        return torch.cat([symbols, blanks], dim=1), torch.cat([silent, symbols], dim=1)

"""What the synthetic tasks over tokens share."""

import torch
from jaxtyping import Int64
from torch import Tensor


def below(high: Int64[Tensor, "n"], generator: torch.Generator | None) -> Int64[Tensor, "n"]:
    """For each entry a whole number from 0 to below it, all equally likely.

    Example:
        >>> import torch
        >>> from tutorial_lib.data._places import below
        >>> below(torch.ones(3, dtype=torch.int64), None)
        tensor([0, 0, 0])
    """
    drawn = torch.rand(len(high), generator=generator, dtype=torch.float64)
    return (drawn * high).long().clamp(max=high - 1)

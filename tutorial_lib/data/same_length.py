"""Batches of texts that are equally long: nothing is padded, nothing has to be packed."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tutorial_lib import _check

IGNORE = -100  # the target that no loss counts


class SameLengthBatches:
    """The batch of each step, all of whose first inputs have the same length.

    A recurrent net reads such a batch about twice as fast as one of mixed lengths (on a CPU). Each
    batch draws its length as often as it occurs among the examples, then its examples from those
    of that length, the same one perhaps twice. The batch of step n is a function of ``seed`` and n
    alone.

    The first input is cut to the length of the batch. The targets, and the inputs of their shape,
    are cut behind the last place at which a target of the batch counts.

    Args:
        inputs: tensors for ``model(*inputs)``, examples on the first axis, on one device; the
            first is padded on the right, ``(N, S)``.
        targets: ``(N, ...)``; those of two axes are -100 where nothing counts.
        lengths: of the first inputs, ``(N)``, from 1 to S.
        batch_size: examples in a batch.
        seed: which batches.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if there are no examples, their numbers differ, or a length is out of range.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import SameLengthBatches
        >>> texts = torch.tensor([[5, 6, 7], [8, 0, 0], [9, 0, 0]])
        >>> lengths = torch.tensor([3, 1, 1])
        >>> batches = SameLengthBatches((texts, lengths), torch.arange(3), lengths, batch_size=4)
        >>> (read, counted), targets = batches(0)
        >>> read.shape[1] == counted[0] == counted[3], targets.shape
        (tensor(True), torch.Size([4]))
    """

    def __init__(
        self,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        lengths: Int[Tensor, "N"],
        batch_size: int,
        seed: int = 0,
    ) -> None:
        _check.integer("batch_size", batch_size)
        _check.integer("seed", seed, at_least=0)
        if not isinstance(inputs, tuple) or not inputs:
            raise TypeError(f"inputs must be a tuple of tensors, got {type(inputs).__name__}")
        _check.axes("inputs[0]", inputs[0], "N S")
        _check.axes("lengths", lengths, "N")
        _check.ids("lengths", lengths, inputs[0].shape[1] + 1)
        N = len(lengths)
        if N == 0:
            raise ValueError("lengths must hold at least one example, got none")
        for name, tensor in (("targets", targets), *((f"inputs[{i}]", t) for i, t in
                                                     enumerate(inputs))):  # fmt: skip
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name} must be a Tensor, got {type(tensor).__name__}")
            if len(tensor) != N:
                raise ValueError(f"{name} must hold {N} examples like lengths, got {len(tensor)}")
        if int(lengths.min()) < 1:
            raise ValueError(f"lengths must be at least 1, got {int(lengths.min())}")
        self.inputs, self.targets, self.batch_size, self.seed = inputs, targets, batch_size, seed
        on_host = lengths.cpu()
        self._order = on_host.argsort(stable=True)  # (N)
        self._lengths = on_host[self._order]  # (N), from short to long

    def __repr__(self) -> str:
        return (
            f"SameLengthBatches(examples={len(self._order)}, batch_size={self.batch_size}, "
            f"seed={self.seed})"
        )

    def __call__(self, step: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """The batch of ``step``, counted from 0: inputs and targets."""
        _check.integer("step", step, at_least=0)
        mixed = int(np.random.SeedSequence([self.seed, step]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(mixed)
        length = self._lengths[torch.randint(len(self._order), (1,), generator=generator)]  # (1)
        first = int(torch.searchsorted(self._lengths, length))
        after = int(torch.searchsorted(self._lengths, length, right=True))
        drawn = torch.randint(first, after, (self.batch_size,), generator=generator)
        rows = self._order[drawn].to(self.targets.device)  # (B)
        inputs = [tensor[rows] for tensor in self.inputs]
        inputs[0] = inputs[0][:, : int(length)]
        targets, shape = self.targets[rows], self.targets.shape
        if targets.dim() == 2:
            counts = (targets != IGNORE).any(dim=0).nonzero()  # (places, 1)
            wide = int(counts[-1]) + 1 if len(counts) else 0
            targets = targets[:, :wide]
            inputs = [
                chosen[:, :wide] if i > 0 and whole.shape == shape else chosen
                for i, (chosen, whole) in enumerate(zip(inputs, self.inputs, strict=True))
            ]
        return tuple(inputs), targets

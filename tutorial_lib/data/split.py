"""A data set in two parts: examples to learn from, and others to be judged by."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test examples with their labels, on one device.

    Args:
        train_x: training inputs, one example per entry of the first axis.
        train_y: their labels, whole numbers from 0.
        test_x: test inputs, each of the shape and type of a training input.
        test_y: their labels.

    Raises:
        TypeError: if an argument is no tensor, the labels are not int64, or the types differ.
        ValueError: if a part is empty, labels and inputs differ in number, a label is negative,
            or a test input has another shape than a training input.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import Split
        >>> y = torch.tensor([0, 2, 1])
        >>> Split(torch.zeros(3, 5), y, torch.ones(3, 5), y)
        Split(train (3, 5), test (3, 5), 3 classes)
    """

    train_x: Shaped[Tensor, "train ..."]
    train_y: Int64[Tensor, "train"]
    test_x: Shaped[Tensor, "test ..."]
    test_y: Int64[Tensor, "test"]

    def __post_init__(self) -> None:
        _pair("train", self.train_x, self.train_y)
        _pair("test", self.test_x, self.test_y)
        train, test = self.train_x, self.test_x
        if train.shape[1:] != test.shape[1:]:
            raise ValueError(
                "test_x must hold examples of the shape of train_x, "
                f"got {tuple(test.shape[1:])} and {tuple(train.shape[1:])}"
            )
        if train.dtype != test.dtype:
            raise TypeError(
                f"test_x must have the dtype of train_x, got {test.dtype} and {train.dtype}"
            )

    @property
    def num_classes(self) -> int:
        """One more than the largest label of either part."""
        return int(torch.maximum(self.train_y.max(), self.test_y.max())) + 1

    def to(self, device: torch.device | str) -> "Split":
        """The same examples on ``device``.

        Args:
            device: where the copies go; tensors that are there already are not copied.

        Returns:
            A new split.
        """
        tensors = (self.train_x, self.train_y, self.test_x, self.test_y)
        return Split(*(tensor.to(device) for tensor in tensors))

    def __repr__(self) -> str:
        train, test = tuple(self.train_x.shape), tuple(self.test_x.shape)
        return f"Split(train {train}, test {test}, {self.num_classes} classes)"


def _pair(part: str, x: Tensor, y: Tensor) -> None:
    """Inputs and labels are tensors that belong together."""
    for name, value in ((f"{part}_x", x), (f"{part}_y", y)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a Tensor, got {type(value).__name__}")
    if y.dtype != torch.int64:
        raise TypeError(f"{part}_y must hold int64 labels, got dtype {y.dtype}")
    if y.dim() != 1 or x.dim() == 0 or len(x) != len(y):
        raise ValueError(
            f"{part}_y must hold one label per example of {part}_x, "
            f"got shapes {tuple(y.shape)} and {tuple(x.shape)}"
        )
    if len(y) == 0:
        raise ValueError(f"{part}_x must hold at least one example, got shape {tuple(x.shape)}")
    if y.min() < 0:
        raise ValueError(f"{part}_y must hold labels from 0, got {int(y.min())}")

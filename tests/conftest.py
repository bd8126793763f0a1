import random

import jaxtyping
import matplotlib
import numpy as np
import pytest
import torch

from tutorial_lib import runtime

# Not by MPLBACKEND: the notebooks' kernels would inherit it, and show figures as text.
matplotlib.use("agg")


@pytest.fixture(params=sorted({"cpu", runtime.device().type}))
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and the accelerator where there is one (or the one TUTORIAL_DEVICE names)."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  what a caller's global state is like
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _bad_input(request: pytest.FixtureRequest):
    """Wrong input must meet our own check, as it does for users, not the tests' shape check."""
    marked = request.node.get_closest_marker("bad_input") is not None
    jaxtyping.config.update("jaxtyping_disable", marked)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

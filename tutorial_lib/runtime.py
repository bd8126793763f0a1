"""Where the code runs, and with which random numbers: used by every chapter."""

import os
import platform
import random

import numpy as np
import torch

VARIABLE = "TUTORIAL_DEVICE"


def device() -> torch.device:
    """The accelerator if there is one, else the CPU.

    The environment variable ``TUTORIAL_DEVICE`` (``cpu``, ``cuda``, ``cuda:1``, ``mps``)
    overrides the choice.

    Returns:
        The device on which a notebook puts its models and data.

    Raises:
        ValueError: if ``TUTORIAL_DEVICE`` is not the name of a device, or this machine has none
            of that name.

    Example:
        >>> import torch
        >>> from tutorial_lib.runtime import device
        >>> torch.zeros(2, device=device()).sum().item()
        0.0
    """
    name = os.environ.get(VARIABLE, "").strip()
    present = _present()
    if not name:
        best = present[-1]
        # torchrun starts one process for each GPU and says by its number which is whose.
        rank = os.environ.get("LOCAL_RANK", "") if best == "cuda" else ""
        return torch.device(f"cuda:{rank}" if rank else best)
    try:
        chosen = torch.device(name)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in present:
        raise ValueError(f"{VARIABLE} must name a device of this machine {present}, got {name!r}")
    count = torch.cuda.device_count() if chosen.type == "cuda" else 1
    if chosen.index is not None and chosen.index >= count:
        raise ValueError(f"{VARIABLE}={name!r}, but this machine has {count} of type {chosen.type}")
    return chosen


def _present() -> list[str]:
    """The types of device on this machine, the fastest last."""
    found = ["cpu"]
    if torch.backends.mps.is_available():
        found.append("mps")
    if torch.cuda.is_available():
        found.append("cuda")
    return found


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's global random numbers, on every device.

    Args:
        seed: a whole number from 0 to 2**32 - 1 (NumPy takes no other).

    Raises:
        TypeError: if ``seed`` is not an int.
        ValueError: if ``seed`` is outside that range.

    Example:
        >>> import torch
        >>> from tutorial_lib.runtime import seed_everything
        >>> seed_everything(7); first = torch.rand(3)
        >>> seed_everything(7); torch.equal(first, torch.rand(3))
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {type(seed).__name__}: {seed!r}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to {2**32 - 1}, got {seed}")
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the global state is what we are asked to seed
    torch.manual_seed(seed)


def show_versions() -> None:
    """Print, on one line, the device and the versions that a result depends on.

    Example:
        >>> from tutorial_lib.runtime import show_versions
        >>> show_versions()
        tutorial_lib ... | Python ... | torch ... | NumPy ... | device ...
    """
    from tutorial_lib import __version__

    where = device()
    name = f" ({torch.cuda.get_device_name(where)})" if where.type == "cuda" else ""
    print(  # noqa: T201  printing is its purpose
        f"tutorial_lib {__version__} | Python {platform.python_version()} | "
        f"torch {torch.__version__} | NumPy {np.__version__} | device {where}{name}"
    )

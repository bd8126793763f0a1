"""Checks of arguments, shared by the whole package.

Each raises before any work is done, and names the argument, what came and what was wanted.
"""

import importlib
from collections.abc import Collection, Sequence
from types import ModuleType

import numpy as np
import torch
from torch import Tensor


def integer(name: str, value: object, at_least: int = 1) -> None:
    """``value`` is an int (not a bool) of ``at_least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}: {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")


def number(name: str, value: object, at_least: float = 0.0, below: float | None = None) -> None:
    """``value`` is a finite real number with ``at_least <= value`` (and ``value < below``)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}: {value!r}")
    wanted = f"at least {at_least}" + (f" and below {below}" if below is not None else "")
    if not (at_least <= value < (float("inf") if below is None else below)):
        raise ValueError(f"{name} must be {wanted}, got {value}")


def boolean(name: str, value: object) -> None:
    """``value`` is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}: {value!r}")


def one_of(name: str, value: object, options: Collection[object]) -> None:
    """``value`` is one of ``options``."""
    if value not in options:
        raise ValueError(f"{name} must be one of {sorted(map(str, options))}, got {value!r}")


def divides(name: str, value: int, whole_name: str, whole: int) -> None:
    """``value`` divides ``whole`` without a rest."""
    if whole % value:
        raise ValueError(
            f"{name} must divide {whole_name}, got {name}={value}, {whole_name}={whole}"
        )


def axes(name: str, tensor: Tensor, layout: str) -> None:
    """``tensor`` has as many axes as ``layout`` names, such as ``"B T D"``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a Tensor of shape ({layout}), got {type(tensor).__name__}")
    if tensor.dim() != len(layout.split()):
        raise ValueError(f"{name} must have shape ({layout}), got {tuple(tensor.shape)}")


def width(name: str, tensor: Tensor, size: int) -> None:
    """The last axis of ``tensor`` has ``size`` entries."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a Tensor, got {type(tensor).__name__}")
    if tensor.dim() == 0 or tensor.shape[-1] != size:
        raise ValueError(f"{name} must have last axis {size}, got shape {tuple(tensor.shape)}")


def ids(name: str, tensor: Tensor, size: int, ignore: int | None = None) -> None:
    """``tensor`` holds whole numbers in ``[0, size)``, or ``ignore`` where one is given.

    Without this check an id out of range is an opaque assertion on a GPU, after which the
    process cannot go on.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a Tensor of ids, got {type(tensor).__name__}")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must hold integer ids, got dtype {tensor.dtype}")
    if torch.compiler.is_compiling() or tensor.numel() == 0 or tensor.is_meta:
        return
    wrong = (tensor < 0) | (tensor >= size)
    if ignore is not None:
        wrong &= tensor != ignore
    if wrong.any():
        first = tensor[wrong][0].item()
        raise ValueError(f"{name} must hold ids from 0 to {size - 1}, got {first}")


def array(name: str, value: object, layout: str) -> None:
    """``value`` is a NumPy array of floats with as many axes as ``layout`` names."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be an array of shape ({layout}), got {type(value).__name__}")
    if not np.issubdtype(value.dtype, np.floating):
        raise TypeError(f"{name} must hold floats, got dtype {value.dtype}")
    if value.ndim != len(layout.split()):
        raise ValueError(f"{name} must have shape ({layout}), got {value.shape}")


def same_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """``tensor`` holds floats of the dtype of ``other``, unless autocast sees to that."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must hold floats, got dtype {tensor.dtype}")
    if tensor.dtype != other.dtype and not torch.is_autocast_enabled(tensor.device.type):
        raise TypeError(
            f"{name} must have the dtype of {other_name}, {other.dtype}, got {tensor.dtype}"
        )


def package(module: str, extra: str) -> ModuleType:
    """Import ``module``, or name the line that installs it: the package's ``extra``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise ImportError(
            f'{name} is needed here: pip install "tutorial-lib[{extra}]" ({error})'
        ) from error


def spreads(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """``tensor`` broadcasts to ``shape`` without widening it."""
    short = len(shape) - tensor.dim()
    fits = all(n in (1, wanted) for n, wanted in zip(tensor.shape, shape[short:], strict=False))
    if short < 0 or not fits:
        raise ValueError(f"{name} must spread over {tuple(shape)}, got {tuple(tensor.shape)}")


def mask(name: str, tensor: Tensor, shape: Sequence[int], device: torch.device) -> None:
    """``tensor`` is boolean, on ``device``, and spreads over ``shape``."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        came = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be a boolean Tensor, True = may look, got {came}")
    spreads(name, tensor, shape)
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device} like its inputs, got {tensor.device}")

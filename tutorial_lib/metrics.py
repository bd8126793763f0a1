"""What is measured after training: shares, bits, sizes, and error bars over seeds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from tutorial_lib import _check

# Two-sided 95 % quantile of Student's t with 1 to 30 degrees of freedom.
_T_95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


def accuracy(
    predictions: Shaped[Tensor, "..."], targets: Int[Tensor, "..."], ignore: int = -100
) -> float:
    """The share of targets that were predicted.

    Args:
        predictions: class ids of the targets' shape, or logits with one more axis, classes last.
        targets: class ids, ``(...)``.
        ignore: the target that is not counted.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: if the shapes do not fit, or no target is counted.
        TypeError: if ``targets`` are not integers, or predictions are neither ids nor logits.

    Example:
        >>> import torch
        >>> from tutorial_lib.metrics import accuracy
        >>> accuracy(torch.tensor([3, 1, 2, 0]), torch.tensor([3, 1, 0, -100]))
        0.6666666666666666
    """
    for name, tensor in (("predictions", predictions), ("targets", targets)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a Tensor, got {type(tensor).__name__}")
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"{name} must be numbers, got dtype {tensor.dtype}")
    if targets.is_floating_point():
        raise TypeError(f"targets must hold integer ids, got dtype {targets.dtype}")
    logits = predictions.is_floating_point()
    wanted = (*targets.shape, predictions.shape[-1]) if logits and predictions.dim() else None
    if tuple(predictions.shape) != (wanted if logits else tuple(targets.shape)):
        raise ValueError(
            "predictions must be ids of the targets' shape, or logits with one more axis, got "
            f"{tuple(predictions.shape)} ({predictions.dtype}) for {tuple(targets.shape)}"
        )
    chosen = predictions.argmax(-1) if logits else predictions
    counted = targets != ignore
    right, total = torch.stack([((chosen == targets) & counted).sum(), counted.sum()]).tolist()
    if total == 0:
        raise ValueError("targets must hold at least one that is counted, got none")
    return right / total


def perplexity(nats: float | Tensor, tokens: int) -> float:
    """How many equally likely tokens a model hesitates between: ``exp(nats / tokens)``.

    Args:
        nats: the summed cross entropy of a text.
        tokens: how many tokens it was summed over.

    Returns:
        A number of at least 1; infinite if it is too large to be written.

    Raises:
        ValueError: if ``nats`` is negative, infinite or NaN, or ``tokens`` is below 1.

    Example:
        >>> import math
        >>> from tutorial_lib.metrics import perplexity
        >>> round(perplexity(10 * math.log(8), tokens=10), 6)
        8.0
    """
    try:
        return math.exp(_nats(nats) / _whole("tokens", tokens))
    except OverflowError:
        return math.inf


def bits_per_character(nats: float | Tensor, characters: int) -> float:
    """The cross entropy of a text in bits per character: comparable whatever the tokens.

    Args:
        nats: the cross entropy, summed over the tokens of a text.
        characters: how many characters the same text has.

    Returns:
        Bits per character.

    Raises:
        ValueError: if ``nats`` is negative, infinite or NaN, or ``characters`` is below 1.

    Example:
        >>> import math
        >>> from tutorial_lib.metrics import bits_per_character
        >>> bits_per_character(10 * math.log(4), characters=10)
        2.0
    """
    return _nats(nats) / math.log(2) / _whole("characters", characters)


def _nats(value: float | Tensor) -> float:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"nats must be one number, got shape {tuple(value.shape)}")
        value = value.item()
    _check.number("nats", value)
    return float(value)


def _whole(name: str, value: int) -> int:
    _check.integer(name, value)
    return value


def count_parameters(model: nn.Module, trainable_only: bool = False) -> int:
    """How many numbers a model has learned, one that is used twice (tied) counted once.

    Args:
        model: any module.
        trainable_only: leave out the parameters that training does not change.

    Raises:
        TypeError: if ``model`` is not a module.

    Example:
        >>> import torch
        >>> from tutorial_lib.metrics import count_parameters
        >>> count_parameters(torch.nn.Linear(3, 5))
        20
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable_only)


@dataclass(frozen=True)
class Summary:
    """Results of one experiment over several seeds.

    Attributes:
        n: how many results.
        mean: their mean.
        std: their standard deviation, with n - 1.
        min: the lowest.
        max: the highest.
        interval: half the width of the mean's 95 % confidence interval (Student's t).

    Example:
        >>> from tutorial_lib.metrics import summarize
        >>> print(summarize([0.91, 0.93, 0.95]))
        0.93 ± 0.0497 (n = 3, from 0.91 to 0.95)
    """

    n: int
    mean: float
    std: float
    min: float
    max: float
    interval: float

    def __str__(self) -> str:
        return (
            f"{self.mean:.3g} ± {self.interval:.3g} "
            f"(n = {self.n}, from {self.min:.3g} to {self.max:.3g})"
        )


def summarize(values: Iterable[float]) -> Summary:
    """Mean, spread and error bar of the results of several seeds.

    Args:
        values: one result for each seed, at least two: one alone says nothing of the spread.

    Raises:
        ValueError: if there are fewer than two, or one is infinite or NaN.

    Example:
        >>> from tutorial_lib.metrics import summarize
        >>> summarize([1.0, 2.0, 3.0]).std
        1.0
    """
    numbers = [float(value) for value in values]
    n = len(numbers)
    if n < 2:
        raise ValueError(f"values must be at least 2, one for each seed, got {n}")
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"values must be finite, got {numbers}")
    mean = math.fsum(numbers) / n
    std = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / (n - 1))
    return Summary(n, mean, std, min(numbers), max(numbers), _t_95(n - 1) * std / math.sqrt(n))


def mean_and_interval(values: Iterable[float]) -> tuple[float, float]:
    """The mean of several seeds' results, and half the width of its 95 % interval.

    Args:
        values: one result for each seed, at least two.

    Raises:
        ValueError: if there are fewer than two, or one is infinite or NaN.

    Example:
        >>> from tutorial_lib.metrics import mean_and_interval
        >>> mean, half = mean_and_interval([1.0, 2.0, 3.0])
        >>> mean, round(half, 3)
        (2.0, 2.484)
    """
    summary = summarize(values)
    return summary.mean, summary.interval


def _t_95(freedom: int) -> float:
    """Student's t: from the table, and beyond it by the first terms of its expansion.

    Source: Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.7.5.
    """
    if freedom <= len(_T_95):
        return _T_95[freedom - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3

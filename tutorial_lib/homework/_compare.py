"""What was wanted beside what came, and the first place where they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

SMALL = 40  # entries of a tensor that is shown whole


@dataclass(frozen=True)
class Difference:
    """One line, the lines below it that show the numbers, and whether the kind of thing is off."""

    message: str
    detail: tuple[str, ...] = ()
    kind: bool = False  # nothing to compare: None, another type, another device


def difference(wanted: Any, came: Any, close: float, label: str = "") -> Difference | None:
    """Where ``came`` differs from ``wanted``; None where it does not."""
    what = f"{label} " if label else ""
    if came is None and wanted is not None:
        return Difference(f"{what or 'your answer '}is None: is a return missing?", kind=True)
    if isinstance(wanted, Mapping):
        return _items(wanted, came, close, what)
    if isinstance(wanted, (tuple, list)):
        return _entries(wanted, came, close, what)
    if isinstance(wanted, (Tensor, Number)):
        return _numbers(wanted, came, close, what)
    if wanted != came:
        return Difference(f"{what}wanted {_short(wanted)}, came {_short(came)}")
    return None


def _items(wanted: Any, came: Any, close: float, what: str) -> Difference | None:
    names = [str(name) for name in wanted]
    if isinstance(came, (tuple, list)) and len(came) == len(wanted):
        came = dict(zip(wanted, came, strict=True))  # in the same order, without the names
    if not isinstance(came, Mapping) or set(came) != set(wanted):
        got = f"the keys {sorted(map(str, came))}" if isinstance(came, Mapping) else _kind(came)
        return Difference(f"{what}wanted a dict of {', '.join(names)}, came {got}", kind=True)
    found = (difference(wanted[key], came[key], close, f"{what}{key}") for key in wanted)
    return next((one for one in found if one is not None), None)


def _entries(wanted: Sequence[Any], came: Any, close: float, what: str) -> Difference | None:
    if isinstance(came, Mapping):
        came = tuple(came.values())
    if not isinstance(came, (tuple, list)) or len(came) != len(wanted):
        got = f"{len(came)} of them" if isinstance(came, (tuple, list)) else _kind(came)
        return Difference(f"{what}wanted {len(wanted)} results, came {got}", kind=True)
    for place, (one, other) in enumerate(zip(wanted, came, strict=True)):
        found = difference(one, other, close, f"{what}result {place + 1}:")
        if found is not None:
            return found
    return None


def _numbers(wanted: Any, came: Any, close: float, what: str) -> Difference | None:
    if not isinstance(came, (Tensor, Number)):
        kind = "a Tensor" if isinstance(wanted, Tensor) else "a number"
        return Difference(f"{what}wanted {kind}, came {_kind(came)}", kind=True)
    wanted, came = (
        value.detach() if isinstance(value, Tensor) else torch.tensor(value, device="cpu")
        for value in (wanted, came)
    )
    if came.device.type != wanted.device.type:
        return Difference(
            f"{what}is on the device {came.device}, the input on {wanted.device}: "
            "make new tensors on the input's device",
            kind=True,
        )
    if came.layout != torch.strided:
        return Difference(f"{what}wanted a dense tensor, came {came.layout}", kind=True)
    if came.shape != wanted.shape:
        swapped = sorted(came.shape) == sorted(wanted.shape)
        return Difference(
            f"{what}wanted the shape {tuple(wanted.shape)}, came {tuple(came.shape)}"
            + (": the same sizes in another order" if swapped else "")
        )
    exact = torch.complex128 if wanted.is_complex() or came.is_complex() else torch.float64
    wanted, came = wanted.to(exact), came.to(exact)
    wrong = ~torch.isclose(came, wanted, rtol=close, atol=close / 10, equal_nan=True)
    return _values(wanted, came, wrong, what) if wrong.any() else None


def _values(wanted: Tensor, came: Tensor, wrong: Tensor, what: str) -> Difference:
    place = tuple(wrong.nonzero()[0].tolist())
    number, other = (_number(tensor[place]) for tensor in (wanted, came))
    if not place:
        return Difference(f"{what}wanted {number}, came {other}")
    bad = came.isnan() & ~wanted.isnan()
    share = f"{int(wrong.sum())} of {wrong.numel()} numbers differ"
    if bad.any():
        share = f"{int(bad.sum())} of {wrong.numel()} numbers are NaN"
    where = ", ".join(map(str, place))
    head = f"{what}{share}, the first at [{where}]: wanted {number}, came {other}"
    row = "" if wanted.numel() <= SMALL else f"[{', '.join(map(str, place[:-1]))}] "
    if row:
        wanted, came = wanted[place[:-1]], came[place[:-1]]
    return Difference(head, (*_show(f"wanted {row}", wanted), *_show(f"came   {row}", came)))


def _show(name: str, tensor: Tensor) -> list[str]:
    text = np.array2string(
        tensor.cpu().numpy(),
        precision=4,
        separator=", ",
        suppress_small=bool(tensor.abs().nan_to_num(posinf=0).max() < 1e4),
        max_line_width=84,
        threshold=SMALL,
        edgeitems=3,
        prefix=name,
    )
    return (name + text).split("\n")


def _number(value: Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " …"

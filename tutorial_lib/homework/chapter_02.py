"""The exercises of chapter 2: convolution."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import convolution
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, gradients, with_weights

# conv1d


def _conv1d_module(
    build: Callable[..., nn.Module],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Any:
    C_out, C_in, K = weight.shape
    layer = build(C_in, C_out, K, stride, padding, dilation)
    return with_weights(layer, {"weight": weight, "bias": bias}, x)


def _signal(draw: Draw) -> tuple[Tensor, Tensor]:
    """An input and a kernel; the input is long enough for each option."""
    K, (B, C_in, C_out) = draw.size(3, 5), draw.sizes(3, 2, 7)
    return draw.normal(B, C_in, draw.size(17, 23)), draw.normal(C_out, C_in, K)


def _changed(change: Callable[..., tuple[Any, ...]]) -> Callable[..., Tensor]:
    """PyTorch's convolution of other arguments: ``change`` gets ours, and returns those."""

    def conv1d(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
    ) -> Tensor:
        return F.conv1d(*change(x, weight, bias, stride, padding, dilation))

    return conv1d


def _by_loops(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Tensor:
    """One place of the output after the other."""
    x = torch.cat([x.new_zeros(*x.shape[:2], padding), x, x.new_zeros(*x.shape[:2], padding)], 2)
    span = dilation * (weight.shape[2] - 1) + 1
    y = x.new_zeros(len(x), len(weight), (x.shape[2] - span) // stride + 1)
    for t in range(y.shape[2]):
        window = x[:, None, :, t * stride : t * stride + span : dilation]  # (B, 1, C_in, K)
        y[:, :, t] = (window * weight).sum((2, 3)) + (0 if bias is None else bias)
    return y


def _as_a_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Tensor:
    """Unfold into columns, then one matrix product."""
    K, size = weight.shape[2], (1, weight.shape[2])
    columns = F.unfold(x[:, :, None], size, (1, dilation), (0, padding), (1, stride))
    y = torch.tensordot(weight.reshape(-1, x.shape[1] * K), columns, ([1], [1])).transpose(0, 1)
    return y if bias is None else y + bias[:, None]


def _last_window_lost(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Tensor:
    return F.conv1d(x, weight, bias, stride, padding, dilation)[..., :-1]


CONV1D = Exercise(
    name="conv1d",
    chapter=2,
    points=4,
    signature="conv1d(x, weight, bias=None, stride=1, padding=0, dilation=1)",
    statement=r"""
Convolution in one dimension, from its definition. `x` has the shape $(B, C_\text{in}, T)$, `weight`
$(C_\text{out}, C_\text{in}, K)$, `bias` $(C_\text{out})$ or `None`:

$$y_{bot} = b_o + \sum_{c, k} w_{ock}\, x_{b,c,\,ts + kd}$$

with stride $s$, dilation $d$, and `padding` zeros put on either end of `x` first. The kernel is not
turned round. The output has $\lfloor (T + 2p - d(K - 1) - 1) / s \rfloor + 1$ places.

You may write a class instead, made by
`Conv1d(in_channels, out_channels, kernel_size, stride, padding, dilation)`: an `nn.Module` with two
parameters, named as you like. It is given the weights and called with `x`.
""",
    reference=convolution.conv1d,
    as_module=_conv1d_module,
    right=[F.conv1d, nn.Conv1d, convolution.Conv1d, _by_loops, _as_a_product],
    cases=[
        Case(
            "windows, channels and bias",
            lambda draw: (*(pair := _signal(draw)), draw.normal(len(pair[1]))),
            hint="Sum over the window and over all channels of the input, and add the bias.",
        ),
        Case(
            "stride",
            lambda draw: (*_signal(draw), None, draw.integer(2, 3)),
            hint="Output t starts at place t * stride.",
        ),
        Case(
            "padding",
            lambda draw: (*_signal(draw), None, 1, draw.integer(2, 3)),
            hint="Put `padding` zeros on either end of x before anything else.",
        ),
        Case(
            "dilation",
            lambda draw: (*_signal(draw), None, 1, 0, draw.integer(2, 3)),
            hint="Tap k looks at place t + k * dilation.",
        ),
        Case(
            "gradients",
            _signal,
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "bias forgotten",
            _changed(lambda x, w, b, s, p, d: (x, w, None, s, p, d)),
            "Add bias[o] to each place of output channel o.",
        ),
        Wrong(
            "stride ignored",
            _changed(lambda x, w, b, s, p, d: (x, w, b, 1, p, d)),
            "Output t starts at place t * stride: keep every stride-th window.",
        ),
        Wrong(
            "padding ignored",
            _changed(lambda x, w, b, s, p, d: (x, w, b, s, 0, d)),
            "Put `padding` zeros on either end of x before anything else.",
        ),
        Wrong(
            "padding at the front alone",
            _changed(lambda x, w, b, s, p, d: (F.pad(x, (p, 0)), w, b, s, 0, d)),
            "Zeros belong on either end: the output is `padding` places short.",
        ),
        Wrong(
            "padding with the border's value",
            _changed(lambda x, w, b, s, p, d: (F.pad(x, (p, p), "replicate"), w, b, s, 0, d)),
            "Pad with zeros, not with the first and last value of x.",
        ),
        Wrong(
            "dilation ignored",
            _changed(lambda x, w, b, s, p, d: (x, w, b, s, p, 1)),
            "Tap k looks at place t + k * dilation, so the taps lie `dilation` apart.",
        ),
        Wrong(
            "dilation one too wide",
            _changed(lambda x, w, b, s, p, d: (x, w, b, s, p, d + (d > 1))),
            "Dilation is the distance between two taps, not the number of places skipped.",
        ),
        Wrong(
            "weights without gradient",
            _changed(lambda x, w, b, s, p, d: (x, w.data, b, s, p, d)),
            ".data and .detach() cut the gradient off: the kernel would never be learned.",
        ),
        Wrong(
            "kernel turned round",
            _changed(lambda x, w, b, s, p, d: (x, w.flip(-1), b, s, p, d)),
            "Mathematics turns the kernel round, deep learning does not: "
            "tap 0 meets the first place of the window.",
        ),
        Wrong(
            "first channel alone",
            _changed(lambda x, w, b, s, p, d: (x[:, :1], w[:, :1], b, s, p, d)),
            "Each output channel reads all channels of the input: sum over c as well.",
        ),
        Wrong(
            "last window lost",
            _last_window_lost,
            "T numbers hold T - K + 1 windows: the last one starts at T - K.",
        ),
    ],
)

# max_pool1d


def _pooled(
    default: Callable[[int], int] = lambda size: size,
    stride: Callable[[int, int], int] = lambda size, stride: stride,
    before: Callable[[Tensor], Tensor] = lambda x: x,
    pool: Callable[..., Tensor] = F.max_pool1d,
) -> Callable[..., Tensor]:
    """Pooling with one thing changed."""

    def max_pool1d(x: Tensor, kernel_size: int, given: int | None = None) -> Tensor:
        step = default(kernel_size) if given is None else stride(kernel_size, given)
        return pool(before(x), kernel_size, step)

    return max_pool1d


def _window_by_window(x: Tensor, size: int, stride: int | None = None) -> Tensor:
    starts = range(0, x.shape[2] - size + 1, stride or size)
    return torch.stack([x[:, :, start : start + size].amax(2) for start in starts], 2)


def _sequences(draw: Draw, sign: int, size: int) -> Tensor:
    """Numbers of one sign; the last window of ``size`` is not full."""
    B, C = draw.sizes(2, 2, 4)
    return sign * (draw.normal(B, C, size * draw.size(5, 9) + 1).abs() + 0.1)


MAX_POOL1D = Exercise(
    name="max_pool1d",
    chapter=2,
    points=2,
    signature="max_pool1d(x, kernel_size, stride=None)",
    statement=r"""
The largest number of each window. `x` has the shape $(B, C, T)$; return
$(B, C, T_\text{out})$, each channel on its own. Window $t$ starts at place
$t \cdot$ `stride`; where `stride` is `None`, windows lie side by side.
Numbers that do not fill a last window are left out.
""",
    reference=convolution.max_pool1d,
    right=[F.max_pool1d, _window_by_window],
    cases=[
        Case(
            "windows side by side",
            lambda draw: (_sequences(draw, 1, 3), 3),
            hint="Without a stride, the next window starts where the last one ended.",
        ),
        Case(
            "windows that overlap",
            lambda draw: (_sequences(draw, 1, 4), 4, draw.integer(2, 3)),
            hint="Window t starts at place t * stride.",
        ),
        Case(
            "negative numbers",
            lambda draw: (_sequences(draw, -1, 3), 3, 3),
            hint="The largest of negative numbers is negative: start from -inf, or use max.",
        ),
    ],
    wrong=[
        Wrong(
            "stride 1 by default",
            _pooled(default=lambda size: 1),
            "Where stride is None, it is kernel_size: windows lie side by side.",
        ),
        Wrong(
            "stride ignored",
            _pooled(stride=lambda size, stride: size),
            "Window t starts at place t * stride, and windows may overlap.",
        ),
        Wrong(
            "maximum started at 0",
            _pooled(before=torch.relu),
            "Among negative numbers 0 always wins: start from -inf, or from the first number.",
        ),
        Wrong(
            "mean for maximum",
            _pooled(pool=F.avg_pool1d),
            "This is the mean of each window: take the maximum.",
        ),
        Wrong(
            "minimum for maximum",
            _pooled(pool=lambda x, size, step: -F.max_pool1d(-x, size, step)),
            "This is the smallest number of each window: take the largest.",
        ),
        Wrong(
            "largest size for largest number",
            _pooled(before=torch.abs),
            "The sign counts: -5 is smaller than 2.",
        ),
        Wrong(
            "unfilled window kept",
            _pooled(pool=lambda x, size, step: F.max_pool1d(x, size, step, ceil_mode=True)),
            "The last window is not full: leave it out.",
        ),
        Wrong(
            "pooled over the channels",
            _pooled(
                pool=lambda x, *rest: (
                    F.max_pool1d(x, *rest).amax(1, True).expand((*x.shape[:2], -1))
                )
            ),
            "Each channel is pooled on its own.",
        ),
    ],
)

# receptive_field

Layers = Sequence[tuple[int, int, int]]


def _field(
    grow: Callable[[int, int, int, int], int], step: Callable[[int, int], int], start: int = 1
) -> Callable[[Layers], int]:
    """The sum over the layers of ``grow(kernel, stride, dilation, step)``."""

    def receptive_field(layers: Layers) -> int:
        field, jump = start, 1
        for kernel, stride, dilation in layers:
            field += grow(kernel, stride, dilation, jump)
            jump = step(jump, stride)
        return field

    return receptive_field


def _from_the_top(layers: Layers) -> int:
    """How many places of a layer's input its outputs need, from the last layer down."""
    field = 1
    for kernel, stride, dilation in reversed(layers):
        field = (field - 1) * stride + dilation * (kernel - 1) + 1
    return field


def _from_the_first(layers: Layers) -> int:
    return convolution.receptive_field(layers) if layers[0] else 1


def _stack(draw: Draw, strides: bool, dilations: bool) -> tuple[list[tuple[int, int, int]]]:
    def layer(last: bool) -> tuple[int, int, int]:
        stride = draw.integer(2, 3) if strides and not last else 1
        return draw.integer(3, 5), stride, draw.integer(2, 4) if dilations else 1

    return ([layer(last) for last in (False, False, True)],)


RECEPTIVE_FIELD = Exercise(
    name="receptive_field",
    chapter=2,
    points=2,
    signature="receptive_field(layers)",
    statement=r"""
How many places of the input can one output see? `layers` is a list of `(kernel, stride, dilation)`,
from the input up. Return a whole number: the distance from the first place seen to the last, both
included. Without any layer an output sees itself alone.
""",
    reference=convolution.receptive_field,
    right=[_from_the_top],
    cases=[
        Case("no layer", lambda draw: ([],), hint="Start from 1: a place sees itself."),
        Case(
            "stride",
            lambda draw: _stack(draw, True, False),
            hint="After a layer of stride s, one step of the next layer is s times as long.",
        ),
        Case(
            "dilation",
            lambda draw: _stack(draw, False, True),
            hint="A kernel of K taps, d apart, spans d * (K - 1) + 1 places.",
        ),
    ],
    wrong=[
        Wrong(
            "no answer for an empty list",
            _from_the_first,
            "layers[0] does not exist in an empty list. Start from 1, and add layer by layer.",
        ),
        Wrong(
            "stride ignored",
            _field(lambda k, s, d, jump: (k - 1) * d, lambda jump, s: 1),
            "After a layer of stride s, one step of the next layer is s places of the input.",
        ),
        Wrong(
            "a layer's stride applied to itself",
            _field(lambda k, s, d, jump: (k - 1) * d * jump * s, lambda jump, s: jump * s),
            "A stride spreads the layers above it, not its own kernel: multiply after adding.",
        ),
        Wrong(
            "only the last stride counts",
            _field(lambda k, s, d, jump: (k - 1) * d * jump, lambda jump, s: s),
            "Strides multiply: after 2 and 3 a step is 6 places of the input.",
        ),
        Wrong(
            "strides added",
            _field(lambda k, s, d, jump: (k - 1) * d * jump, lambda jump, s: jump + s - 1),
            "Strides multiply: after 2 and 3 a step is 6 places of the input.",
        ),
        Wrong(
            "dilation ignored",
            _field(lambda k, s, d, jump: (k - 1) * jump, lambda jump, s: jump * s),
            "A kernel of K taps, d apart, adds d * (K - 1) steps.",
        ),
        Wrong(
            "dilation times kernel",
            _field(lambda k, s, d, jump: (k * d - 1) * jump, lambda jump, s: jump * s),
            "Between K taps lie K - 1 gaps: they span d * (K - 1) + 1 places, not d * K.",
        ),
        Wrong(
            "started from 0",
            _field(lambda k, s, d, jump: (k - 1) * d * jump, lambda jump, s: jump * s, start=0),
            "Both ends count: start from 1.",
        ),
        Wrong(
            "whole kernels added",
            _field(lambda k, s, d, jump: k * d * jump, lambda jump, s: jump * s),
            "Windows of neighbors overlap: each layer adds K - 1 steps, not K.",
        ),
    ],
)

# toeplitz


def _ring(kernel: Tensor, length: int, stride: int = 1, padding: int = 0) -> Tensor:
    return convolution.toeplitz(kernel, length, stride, padding, padding_mode="circular")


def _impulses(kernel: Tensor, length: int, stride: int = 1, padding: int = 0) -> Tensor:
    """Column s is the convolution of a single 1 at place s."""
    impulses = torch.eye(length)[:, None]
    return F.conv1d(impulses, kernel[None, None], None, stride, padding)[:, 0].T


def _row_by_row(kernel: Tensor, length: int, stride: int = 1, padding: int = 0) -> Tensor:
    rows = []
    for start in range(0, length + 2 * padding - len(kernel) + 1, stride):
        row = F.pad(kernel, (start, length + 2 * padding - len(kernel) - start))
        rows.append(row[padding : padding + length])
    return torch.stack(rows)


def _rows_of_all_places(kernel: Tensor, length: int, stride: int = 1, padding: int = 0) -> Tensor:
    """One row per place of the input, the last ones running out of it."""
    return convolution.toeplitz(kernel, length + len(kernel) - 1, stride, padding)[:, :length]


def _table(draw: Draw, *rest: int) -> tuple[Any, ...]:
    return (draw.normal(draw.size(3, 5)), draw.size(10, 14), *rest)


TOEPLITZ = Exercise(
    name="toeplitz",
    chapter=2,
    points=3,
    signature="toeplitz(kernel, length, stride=1, padding=0)",
    statement=r"""
A convolution is a dense layer with most weights 0 and the others shared. Build its matrix: for a
`kernel` of $K$ numbers and an input of `length` $T$, return the matrix $M$ of shape
$(T_\text{out}, T)$ for which `M @ x` is the convolution of `x`. Row $t$ holds the kernel from
column $ts - p$ on, with stride $s$ and padding $p$; what would stand outside of the
matrix is left out.
There are $\lfloor (T + 2p - K) / s \rfloor + 1$ rows. Gradients must reach the kernel.
""",
    reference=convolution.toeplitz,
    right=[_impulses, _row_by_row],
    cases=[
        Case(
            "stride",
            lambda draw: _table(draw, draw.integer(2, 3)),
            hint="From one row to the next the kernel moves by `stride` columns.",
        ),
        Case(
            "padding",
            lambda draw: _table(draw, 1, 2),
            hint="The first row starts `padding` columns to the left of the matrix.",
        ),
        Case(
            "gradients",
            lambda draw: _table(draw),
            hint="Leave out .data, .detach(), .item() and torch.tensor(...): "
            "write the kernel itself into the matrix.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "stride ignored",
            lambda kernel, length, stride=1, padding=0: convolution.toeplitz(
                kernel, length, 1, padding
            ),
            "From one row to the next the kernel moves by `stride` columns.",
        ),
        Wrong(
            "padding ignored",
            lambda kernel, length, stride=1, padding=0: convolution.toeplitz(
                kernel, length, stride
            ),
            "The first row starts p columns to the left: a part of the kernel falls out.",
        ),
        Wrong(
            "kernel without gradient",
            lambda kernel, *rest: convolution.toeplitz(kernel.data, *rest),
            ".data, .item() and torch.tensor(...) cut the gradient off. "
            "Write the kernel itself into the matrix.",
        ),
        Wrong(
            "closed to a ring",
            _ring,
            "What leaves the matrix on one side must not come back on the other.",
        ),
        Wrong(
            "kernel turned round",
            lambda kernel, *rest: convolution.toeplitz(kernel.flip(0), *rest),
            "The first number of the kernel stands leftmost in its row.",
        ),
        Wrong(
            "transposed",
            lambda kernel, *rest: convolution.toeplitz(kernel, *rest).T,
            "Rows belong to outputs, columns to inputs: the shape is (T_out, T).",
        ),
        Wrong(
            "a row for each input",
            _rows_of_all_places,
            "Only windows that fit have a row: there are (T + 2p - K) // s + 1 of them.",
        ),
    ],
)

EXERCISES = (CONV1D, MAX_POOL1D, RECEPTIVE_FIELD, TOEPLITZ)

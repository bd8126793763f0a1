"""Chapter 1: the fully connected net, by hand in NumPy and as PyTorch modules.

The first half is the lesson: a forward pass that keeps every intermediate value, and
back-propagation through it, in arrays. The second half is the same net as modules.

Source: Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors",
Nature 323, 1986; Goodfellow, Bengio and Courville, "Deep Learning", 2016, section 6.5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import _check

Array = NDArray[Any]
ACTIVATIONS = ("relu", "tanh")


def activate(z: Float[Array, "*S"], activation: str = "relu") -> Float[Array, "*S"]:
    """Bend each number: ``relu`` cuts off below 0, ``tanh`` squeezes into (-1, 1).

    Args:
        z: the weighted sums of a layer, any shape.
        activation: ``"relu"`` or ``"tanh"``.

    Returns:
        An array of the same shape.

    Raises:
        ValueError: if ``activation`` is another name.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import activate
        >>> activate(np.array([-2.0, 0.0, 3.0]))
        array([0., 0., 3.])
    """
    _check.one_of("activation", activation, ACTIVATIONS)
    return np.maximum(z, 0) if activation == "relu" else np.tanh(z)


def slope(z: Float[Array, "*S"], activation: str = "relu") -> Float[Array, "*S"]:
    """The derivative of :func:`activate` at ``z``; for ``relu`` at 0 it is 0, as in PyTorch.

    Args:
        z: the weighted sums of a layer, any shape.
        activation: ``"relu"`` or ``"tanh"``.

    Returns:
        An array of the same shape.

    Raises:
        ValueError: if ``activation`` is another name.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import slope
        >>> slope(np.array([-2.0, 0.0, 3.0]))
        array([0., 0., 1.])
    """
    _check.one_of("activation", activation, ACTIVATIONS)
    return (z > 0).astype(z.dtype) if activation == "relu" else 1 - np.tanh(z) ** 2


def softmax(logits: Float[Array, "*N C"]) -> Float[Array, "*N C"]:
    """Turn scores into probabilities: exponentiate, then divide by the sum over the last axis.

    Args:
        logits: ``(..., C)``, one score per class. ``-inf`` is a class of probability 0.

    Returns:
        ``(..., C)``, probabilities that sum to 1 over the last axis.

    Raises:
        TypeError: if ``logits`` is not an array of floats.
        ValueError: if a row has no class, or no finite largest score.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import softmax
        >>> softmax(np.array([0.0, 0.0, np.log(2.0)]))
        array([0.25, 0.25, 0.5 ])
    """
    _check_logits(logits)
    # Only differences count, so the largest score may be moved to 0, where exp cannot overflow.
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))  # (..., C)
    return exp / exp.sum(axis=-1, keepdims=True)  # (..., C)


def cross_entropy(logits: Float[Array, "N C"], labels: Int[Array, "N"]) -> float:
    """The mean surprise at the right class: minus the logarithm of its probability.

    Args:
        logits: ``(N, C)``, one score per example and class.
        labels: ``(N,)``, the right class of each example, from 0 to C - 1.

    Returns:
        The loss in nats. It is 0 when each right class has probability 1, ``log(C)`` for an even
        guess.

    Raises:
        TypeError: if ``logits`` are not floats or ``labels`` not integers.
        ValueError: if the shapes do not fit, the batch is empty, or a label is out of range.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import cross_entropy
        >>> round(cross_entropy(np.zeros((1, 8)), np.array([3])), 3)
        2.079
    """
    _check_labels(logits, labels)
    shifted = logits - logits.max(axis=-1, keepdims=True)  # (N, C)
    # log(softmax) in one step: the logarithm of a probability that rounds to 0 would be -inf.
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (N, C)
    return float(-log_p[np.arange(len(labels)), labels].mean())


@dataclass(frozen=True)
class Trace:
    """What :func:`forward` computed, layer by layer: all that back-propagation needs.

    Attributes:
        inputs: ``inputs[l]``, of shape ``(N, D_in)``, is what layer l reads; ``inputs[0]`` is x.
        sums: ``sums[l]``, of shape ``(N, D_out)``, is its weighted sum, before the activation.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import forward
        >>> trace = forward(np.ones((1, 2)), [np.ones((3, 2))], [np.zeros(3)])
        >>> trace.logits
        array([[2., 2., 2.]])
    """

    inputs: list[Float[Array, "N _"]]
    sums: list[Float[Array, "N _"]]

    @property
    def logits(self) -> Float[Array, "N C"]:
        """The last layer's sums, ``(N, C)``: the scores of the classes."""
        return self.sums[-1]


def forward(
    x: Float[Array, "N D"],
    weights: Sequence[Float[Array, "_ _"]],
    biases: Sequence[Float[Array, "_"]],
    activation: str = "relu",
) -> Trace:
    """Run a fully connected net and keep every intermediate value.

    Args:
        x: ``(N, D)``, a batch of N examples.
        weights: one ``(D_out, D_in)`` matrix per layer, rows and columns as in ``nn.Linear``.
        biases: one ``(D_out,)`` vector per layer.
        activation: ``"relu"`` or ``"tanh"``, after each layer but the last.

    Returns:
        The :class:`Trace`; its ``logits`` are the output.

    Raises:
        TypeError: if an array does not hold floats.
        ValueError: if the shapes do not fit each other, or ``activation`` is another name.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import forward
        >>> x = np.array([[1.0, -1.0]])
        >>> weights = [np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([[1.0, 1.0]])]
        >>> trace = forward(x, weights, [np.zeros(2), np.zeros(1)])
        >>> trace.sums
        [array([[ 1., -3.]]), array([[1.]])]
    """
    _check_layers(x, weights, biases, activation)
    inputs: list[Array] = []
    sums: list[Array] = []
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs.append(x if layer == 0 else activate(sums[-1], activation))  # (N, D_in)
        sums.append(inputs[-1] @ weight.T + bias)  # (N, D_out)
    return Trace(inputs, sums)


def backward(
    trace: Trace,
    weights: Sequence[Float[Array, "_ _"]],
    labels: Int[Array, "N"],
    activation: str = "relu",
) -> tuple[list[Float[Array, "_ _"]], list[Float[Array, "_"]]]:
    """Back-propagation: the gradient of :func:`cross_entropy` for every weight and bias.

    ``delta`` is the gradient for a layer's weighted sums. At the output it is the probabilities
    minus the truth; one layer down it has passed the weights and the activation's slope.

    Args:
        trace: what :func:`forward` returned for these weights.
        weights: one ``(D_out, D_in)`` matrix per layer.
        labels: ``(N,)``, the right class of each example.
        activation: the one that :func:`forward` used.

    Returns:
        Two lists with one entry per layer, the gradients of the weights, ``(D_out, D_in)`` each,
        and those of the biases, ``(D_out,)`` each.

    Raises:
        TypeError: if ``labels`` are not integers, or an array does not hold floats.
        ValueError: if ``trace``, ``weights`` and ``labels`` do not fit each other, a label is
            out of range, or ``activation`` is another name.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import backward, forward
        >>> weights, labels = [np.zeros((2, 1))], np.array([0])
        >>> trace = forward(np.array([[4.0]]), weights, [np.zeros(2)])
        >>> backward(trace, weights, labels)
        ([array([[-2.], [ 2.]])], [array([-0.5, 0.5])])
    """
    _check_trace(trace, weights, labels, activation)
    rows, d_weights, d_biases = np.arange(len(labels)), [], []
    delta = softmax(trace.logits)  # (N, C)
    delta[rows, labels] -= 1
    delta /= len(labels)  # the loss is a mean over the batch
    for layer in reversed(range(len(weights))):
        d_weights.append(delta.T @ trace.inputs[layer])  # (D_out, D_in)
        d_biases.append(delta.sum(axis=0))  # (D_out,)
        if layer > 0:
            delta = delta @ weights[layer] * slope(trace.sums[layer - 1], activation)  # (N, D_in)
    return d_weights[::-1], d_biases[::-1]


def numerical_gradient(
    f: Callable[[Float[Array, "*S"]], float],
    array: Float[Array, "*S"] | Int[Array, "*S"],
    eps: float = 1e-5,
) -> Float[Array, "*S"]:
    """The gradient of ``f`` by central differences: slow, and right without any calculus.

    Args:
        f: takes an array of the shape of ``array``, returns one number. It must read the array
            that it is given: the original is not touched.
        array: the point at which to differentiate, any shape.
        eps: half the distance between the two points compared, in the units of ``array``.

    Returns:
        A float64 array of the same shape, with ``(f(array + eps) - f(array - eps)) / (2 * eps)``
        for each entry in turn.

    Raises:
        TypeError: if ``eps`` is not a number.
        ValueError: if ``eps`` is below 1e-12.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.dense import numerical_gradient
        >>> numerical_gradient(lambda a: float((a**2).sum()), np.array([1.0, 3.0])).round(6)
        array([2., 6.])
    """
    _check.number("eps", eps, at_least=1e-12)
    point = np.array(array, dtype=np.float64)  # a copy, in which one entry at a time is moved
    gradient = np.zeros_like(point)
    for place in np.ndindex(point.shape):
        kept = point[place]
        point[place] = kept + eps
        above = float(f(point))
        point[place] = kept - eps
        below = float(f(point))
        point[place] = kept
        gradient[place] = (above - below) / (2 * eps)
    return gradient


def fan_in_uniform(shape: Sequence[int], fan_in: int) -> nn.Parameter:
    """A parameter drawn evenly from ``±1/sqrt(fan_in)``: the start of PyTorch's own layers.

    With ``fan_in`` numbers to add up, each output then starts out of the order of its inputs,
    whatever the width. ``nn.Linear``, ``nn.Conv1d`` and ``nn.Conv2d`` draw weight and bias so.

    Args:
        shape: the parameter's shape.
        fan_in: how many inputs one output reads.

    Returns:
        The parameter, in PyTorch's default dtype and on its default device.

    Raises:
        TypeError: if ``fan_in`` is not an int.
        ValueError: if ``fan_in`` is below 1.

    Example:
        >>> from tutorial_lib.dense import fan_in_uniform
        >>> start = fan_in_uniform((3, 100), fan_in=100)
        >>> bool((start.abs() <= 0.1).all())
        True
    """
    _check.integer("fan_in", fan_in)
    bound = fan_in**-0.5
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class Linear(nn.Module):
    """One dense layer, ``y = x W^T + b``: equal to ``nn.Linear``, names and start included.

    Args:
        d_in: numbers that each output reads.
        d_out: outputs.
        bias: whether to add ``b``.

    Attributes:
        weight: ``(D_out, D_in)``; starts as :func:`fan_in_uniform`.
        bias: ``(D_out,)`` or None; starts likewise.

    Raises:
        TypeError: if a width is not an int, or the input's dtype is not the weight's.
        ValueError: if a width is below 1, or the input's last axis is not ``d_in``.

    Example:
        >>> import torch
        >>> from tutorial_lib.dense import Linear
        >>> layer = Linear(5, 3)
        >>> layer(torch.zeros(2, 7, 5)).shape
        torch.Size([2, 7, 3])
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        _check.integer("d_in", d_in)
        _check.integer("d_out", d_out)
        self.d_in, self.d_out = d_in, d_out
        self.weight = fan_in_uniform((d_out, d_in), d_in)
        self.bias = fan_in_uniform((d_out,), d_in) if bias else None

    def forward(self, x: Float[Tensor, "*B D_in"]) -> Float[Tensor, "*B D_out"]:
        """Apply the layer to the last axis: ``(..., D_in)`` to ``(..., D_out)``."""
        _check.width("x", x, self.d_in)
        _check.same_dtype("x", x, "weight", self.weight)
        y = x @ self.weight.T  # (..., D_out)
        # Under autocast the product is half as wide as the bias: keep it so, as nn.Linear does.
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"d_in={self.d_in}, d_out={self.d_out}, bias={self.bias is not None}"


class MLP(nn.Module):
    """A fully connected net: linear layers with an activation between them.

    Args:
        sizes: widths from input to output: ``[40, 100, 10]`` has one hidden layer of 100,
            ``[40, 10]`` none (logistic regression).
        activation: ``"relu"`` or ``"tanh"``, after each layer but the last.
        dropout: share of the hidden numbers set to 0 in training, from 0 to below 1.

    Attributes:
        layers: the :class:`Linear` layers.

    Raises:
        TypeError: if a width is not an int, ``dropout`` not a number, or the input's dtype is
            not the weights'.
        ValueError: if there are fewer than two widths or one is below 1, ``activation`` or
            ``dropout`` is out of range, or the input's last axis is not ``sizes[0]``.

    Example:
        >>> import torch
        >>> from tutorial_lib.dense import MLP
        >>> net = MLP([40, 100, 10])
        >>> net(torch.zeros(2, 40)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, sizes: Sequence[int], activation: str = "relu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ValueError(f"sizes must hold input and output width at least, got {list(sizes)}")
        for i, size in enumerate(sizes):
            _check.integer(f"sizes[{i}]", size)
        _check.one_of("activation", activation, ACTIVATIONS)
        _check.number("dropout", dropout, at_least=0.0, below=1.0)
        self.layers = nn.ModuleList(Linear(d_in, d_out) for d_in, d_out in pairwise(sizes))
        self.activation = nn.ReLU() if activation == "relu" else nn.Tanh()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*B D_in"]) -> Float[Tensor, "*B D_out"]:
        """Apply the net to the last axis: ``(..., D_in)`` to ``(..., D_out)``."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.dropout(self.activation(layer(x)))  # (..., D_hidden)
        return last(x)  # (..., D_out)


class Dense(nn.Module):
    """The dense layer as a sequence layer: each place has its own weights for every other.

    The sequence is flattened to one vector of T * D numbers, multiplied by one full matrix, and
    folded back. So the layer is tied to one length, and to each place in it.

    Args:
        d_model: D, the width of each position.
        length: T, the one length that this layer can read.
        causal: position t looks at positions up to t alone: the weights above the diagonal of
            blocks are 0 and stay so.
        bias: whether each output number has a bias.

    Attributes:
        weight: ``(T*D, T*D)``, row ``t*D + d`` makes number d of position t. Each row starts as
            :func:`fan_in_uniform` of the inputs that it may look at.
        bias: ``(T*D,)`` or None.
        may_look: ``(T*D, T*D)``, True where a weight counts, or None if all do.

    Raises:
        TypeError: if a size is not an int, or the input's dtype is not the weight's.
        ValueError: if a size is below 1, or the input is not ``(B, T, D)`` with just this T and D.

    Example:
        >>> import torch
        >>> from tutorial_lib.dense import Dense
        >>> layer = Dense(d_model=5, length=7, causal=True)
        >>> layer(torch.zeros(2, 7, 5)).shape
        torch.Size([2, 7, 5])
    """

    may_look: Tensor | None

    def __init__(self, d_model: int, length: int, causal: bool = False, bias: bool = True) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        _check.integer("length", length)
        self.d_model, self.length, self.causal = d_model, length, causal
        size = length * d_model
        place = torch.arange(size) // d_model  # (T*D,)
        everything = torch.ones(size, size, dtype=torch.bool)
        may_look = place[:, None] >= place if causal else everything  # (T*D, T*D)
        scale = may_look.sum(1) ** -0.5  # (T*D,)
        weight = fan_in_uniform((size, size), 1).detach() * scale[:, None]
        self.weight = nn.Parameter(weight * may_look)
        self.bias = nn.Parameter(fan_in_uniform((size,), 1).detach() * scale) if bias else None
        self.register_buffer("may_look", may_look if causal else None, persistent=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Mix all positions: ``(B, T, D)`` to ``(B, T, D)``."""
        _check.axes("x", x, "B T D")
        _check.width("x", x, self.d_model)
        _check.same_dtype("x", x, "weight", self.weight)
        if x.shape[1] != self.length:
            raise ValueError(
                f"x must have the length {self.length} that Dense was built for, got {x.shape[1]}"
            )
        weight = self.weight if self.may_look is None else self.weight * self.may_look
        y = F.linear(x.flatten(1), weight, self.bias)  # (B, T*D)
        return y.view_as(x)  # (B, T, D)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"d_model={self.d_model}, length={self.length}, causal={self.causal}"


def _check_logits(logits: Float[Array, "..."]) -> None:
    if not isinstance(logits, np.ndarray) or not np.issubdtype(logits.dtype, np.floating):
        raise TypeError(f"logits must be an array of floats, got {type(logits).__name__}")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits must have shape (..., C) with C >= 1, got {logits.shape}")
    if not np.isfinite(logits.max(axis=-1)).all():
        raise ValueError("logits must have a finite largest score in each row, got inf or nan")


def _check_labels(logits: Float[Array, "..."], labels: Int[Array, "..."]) -> None:
    _check.array("logits", logits, "N C")
    _check_logits(logits)
    if len(logits) == 0:
        raise ValueError("logits must hold at least one example, got none")
    if not isinstance(labels, np.ndarray) or labels.shape != logits.shape[:1]:
        got = getattr(labels, "shape", type(labels).__name__)
        raise ValueError(f"labels must be an array of shape ({len(logits)},), got {got}")
    _check.ids("labels", torch.from_numpy(labels), logits.shape[-1])


def _check_layers(
    x: Float[Array, "..."],
    weights: Sequence[Float[Array, "..."]],
    biases: Sequence[Float[Array, "..."]],
    activation: str,
) -> None:
    _check.array("x", x, "N D")
    _check.one_of("activation", activation, ACTIVATIONS)
    if len(weights) == 0 or len(weights) != len(biases):
        raise ValueError(
            "weights and biases must have one entry per layer, "
            f"got {len(weights)} weights and {len(biases)} biases"
        )
    width = x.shape[1]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        _check.array(f"weights[{i}]", weight, "D_out D_in")
        _check.array(f"biases[{i}]", bias, "D_out")
        if weight.shape[1] != width:
            raise ValueError(f"weights[{i}] must have {width} columns, got {weight.shape}")
        width = weight.shape[0]
        if len(bias) != width:
            raise ValueError(f"biases[{i}] must have {width} entries, got {len(bias)}")


def _check_trace(
    trace: Trace,
    weights: Sequence[Float[Array, "..."]],
    labels: Int[Array, "..."],
    activation: str,
) -> None:
    if not isinstance(trace, Trace):
        raise TypeError(f"trace must be what forward returned, got {type(trace).__name__}")
    if len(trace.sums) == 0:
        raise ValueError("trace must hold at least one layer, got none")
    _check.one_of("activation", activation, ACTIVATIONS)
    made_by = [(z.shape[1], x.shape[1]) for x, z in zip(trace.inputs, trace.sums, strict=True)]
    given = [weight.shape for weight in weights]
    if given != made_by:
        raise ValueError(f"weights must have the shapes that made trace, {made_by}, got {given}")
    _check_labels(trace.logits, labels)

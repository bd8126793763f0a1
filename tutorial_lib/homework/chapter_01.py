"""The exercises of chapter 1: fully connected nets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import dense
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, gradients, with_weights

# softmax

_BETWEEN_ROWS = "Divide each row by its own sum: sum over the last axis, with keepdims=True."


def _high(draw: Draw) -> tuple[Tensor]:
    rows, classes = draw.size(2, 3), draw.size(4, 8)
    return (torch.stack([1000 + 50.0 * draw.order(classes) for _ in range(rows)]),)


def _apart(draw: Draw) -> tuple[Tensor]:
    """Two rows, 120 apart: exp(60) and exp(-60) fit into 32 bits, exp(-120) rounds to 0."""
    classes = draw.size(3, 8)
    below, above = (20.0 * draw.order(classes) for _ in range(2))
    return (torch.stack([below - below.max() - 60, above - above.max() + 60]),)


SOFTMAX = Exercise(
    name="softmax",
    chapter=1,
    points=2,
    signature="softmax(logits)",
    statement=r"""
Turn scores into probabilities. `logits` has the shape $(B, C)$: a row of $C$ scores for each of
$B$ examples. Return the same shape, with

$$p_{bc} = \frac{e^{z_{bc}}}{\sum_{c'} e^{z_{bc'}}}.$$

Scores of a thousand must not break it, and a row must not feel what stands in another.
""",
    reference=dense.softmax,
    numpy=True,
    right=[
        lambda logits: torch.softmax(logits.double(), -1),
        lambda logits: np.stack(
            [np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in logits]
        ),
        lambda logits: (logits - logits.logsumexp(-1, keepdim=True)).exp(),
    ],
    cases=[
        Case(
            "ordinary scores",
            lambda draw: (draw.normal(*draw.sizes(2, 3)),),
            hint="Exponentiate, then divide by the sum over the last axis.",
        ),
        Case(
            "large scores",
            _high,
            hint="exp(1000) is infinite. Only differences count: take off each row's maximum.",
        ),
        Case(
            "rows of very different height",
            _apart,
            hint="Each row needs its own maximum: max over the last axis, with keepdims=True.",
        ),
    ],
    wrong=[
        Wrong(
            "exp of large scores overflows",
            lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True),
            "exp(1000) is infinite, and inf / inf is NaN. Only differences count: "
            "take off each row's maximum first.",
        ),
        Wrong(
            "one maximum for the whole batch",
            lambda z: np.exp(z - z.max()) / np.exp(z - z.max()).sum(-1, keepdims=True),
            "In a row far below the maximum all exponentials round to 0, and 0 / 0 is NaN. "
            "Take off each row's own maximum.",
        ),
        Wrong(
            "normalized over the batch",
            lambda z: np.exp(z - z.max(0)) / np.exp(z - z.max(0)).sum(0),
            f"The columns sum to 1, and the rows should. {_BETWEEN_ROWS}",
        ),
        Wrong(
            "one sum for the whole batch",
            lambda z: np.exp(z - z.max()) / np.exp(z - z.max()).sum(),
            f"All numbers together sum to 1, and each row should. {_BETWEEN_ROWS}",
        ),
        Wrong(
            "the largest takes all",
            lambda z: np.eye(z.shape[1], dtype=z.dtype)[z.argmax(-1)],
            "This is the one-hot of the largest score. Softmax leaves something to the others.",
        ),
        Wrong(
            "never divided by the sum",
            lambda z: np.exp(z - z.max(-1, keepdims=True)),
            "The rows do not sum to 1. Divide by the sum over the last axis.",
        ),
        Wrong(
            "scores divided without exp",
            lambda z: z / z.sum(-1, keepdims=True),
            "Probabilities cannot be negative: exponentiate the scores before you divide.",
        ),
        Wrong(
            "logarithm of the softmax",
            lambda z: np.log(dense.softmax(z)),
            "These are log-probabilities: leave out the logarithm.",
        ),
    ],
)

# cross_entropy


def _loss(pick: Callable[[Any, Any], Any], log_p: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda logits, labels: pick(log_p(logits), labels)


def _right(log_p: Any, labels: Any) -> Any:
    return log_p[np.arange(len(labels)), labels]


def _log_softmax(z: Any) -> Any:
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _scored(draw: Draw, scale: float) -> tuple[Tensor, Tensor]:
    batch, classes = draw.sizes(2, 3)
    return scale * draw.normal(batch, classes), draw.labels(batch, classes)


def _sure_and_wrong(draw: Draw) -> tuple[Tensor, Tensor]:
    batch, classes = draw.sizes(2, 3)
    scores = torch.stack([300.0 * draw.order(classes) for _ in range(batch)])
    return scores, scores.argmin(-1)


CROSS_ENTROPY = Exercise(
    name="cross_entropy",
    chapter=1,
    points=2,
    signature="cross_entropy(logits, labels)",
    statement=r"""
The loss of a classifier. `logits` has the shape $(B, C)$, and `labels` holds the right class of
each example, $B$ whole numbers from 0 to $C - 1$. Return one number, the mean surprise at the
right class:

$$-\frac{1}{B} \sum_b \log \operatorname{softmax}(z_b)_{y_b}.$$

It must stay finite for a net that is very sure and very wrong.
""",
    reference=dense.cross_entropy,
    numpy=True,
    right=[
        F.cross_entropy,
        lambda z, y: (torch.logsumexp(z, -1) - z.gather(1, y[:, None])[:, 0]).mean(),
        lambda z, y: np.mean(
            [np.logaddexp.reduce(row) - row[label] for row, label in zip(z, y, strict=True)]
        ),
    ],
    cases=[
        Case(
            "ordinary scores",
            lambda draw: _scored(draw, 1.0),
            hint="Minus the log-probability of the right class, averaged over the batch.",
        ),
        Case(
            "very sure and very wrong",
            _sure_and_wrong,
            hint="Take the logarithm on paper first: log softmax(z) = z - log(sum(exp(z))), "
            "with the maximum taken off z.",
        ),
    ],
    wrong=[
        Wrong(
            "logarithm of a probability that rounds to 0",
            _loss(lambda p, y: -_right(np.log(p), y).mean(), dense.softmax),
            "log(0) is minus infinity. Take the logarithm on paper first: "
            "log softmax(z) = z - log(sum(exp(z))), with the maximum taken off z.",
        ),
        Wrong(
            "the maximum in place of log(sum(exp))",
            lambda z, y: (z.max(-1) - _right(z, y)).mean(),
            "The maximum is only close to log(sum(exp(z))). Add log(sum(exp(z - max))).",
        ),
        Wrong(
            "sum over the batch",
            _loss(lambda log_p, y: -_right(log_p, y).sum(), _log_softmax),
            "A loss that grows with the batch changes the step length: use the mean.",
        ),
        Wrong(
            "no minus sign",
            _loss(lambda log_p, y: _right(log_p, y).mean(), _log_softmax),
            "Log-probabilities are negative, and training makes the loss small: put a minus.",
        ),
        Wrong(
            "mean over the classes as well",
            _loss(lambda log_p, y: -_right(log_p, y).sum() / log_p.size, _log_softmax),
            "Only the right class of each example counts: divide by B, not by B times C.",
        ),
        Wrong(
            "every label picked in every row",
            _loss(lambda log_p, y: -log_p[:, y].mean(), _log_softmax),
            "log_p[:, labels] is a (B, B) table. Pair rows with labels: log_p[arange(B), labels].",
        ),
        Wrong(
            "softmax taken twice",
            _loss(
                lambda log_p, y: -_right(log_p, y).mean(), lambda z: _log_softmax(dense.softmax(z))
            ),
            "The log-softmax makes probabilities itself: give it the logits.",
        ),
        Wrong(
            "logits used as log-probabilities",
            lambda z, y: -_right(z, y).mean(),
            "Raising every score would lower the loss. Take off log(sum(exp(z))) in each row.",
        ),
        Wrong(
            "logarithm to base 2",
            _loss(lambda log_p, y: -_right(log_p, y).mean() / np.log(2), _log_softmax),
            "This is the loss in bits. Use the natural logarithm.",
        ),
    ],
)

# backprop


def _backprop(x: Any, labels: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> tuple[Any, ...]:
    trace = dense.forward(x, [W1, W2], [b1, b2])
    (dW1, dW2), (db1, db2) = dense.backward(trace, [W1, W2], labels)
    return dW1, db1, dW2, db2


def _by_autograd(x: Tensor, labels: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    W1, b1, W2, b2 = (parameter.clone().requires_grad_() for parameter in parameters)
    loss = F.cross_entropy(F.linear(F.linear(x, W1, b1).relu(), W2, b2), labels)
    return torch.autograd.grad(loss, (W1, b1, W2, b2))


def _with_einsum(x: Any, labels: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> dict[str, Any]:
    hidden = np.clip(np.einsum("bd,fd->bf", x, W1) + b1, 0, None)
    delta = dense.softmax(np.einsum("bf,cf->bc", hidden, W2) + b2) - np.eye(len(b2))[labels]
    below = np.einsum("bc,cf->bf", delta, W2) * (hidden > 0)
    sums = {"dW1": np.einsum("bf,bd->fd", below, x), "db1": below.sum(0)}
    sums |= {"dW2": np.einsum("bc,bf->cf", delta, hidden), "db2": delta.sum(0)}
    return {name: total / len(x) for name, total in sums.items()}


def _mistaken(
    *,
    probabilities: Callable[[Any], Any] = dense.softmax,
    truth: float = 1.0,
    mean: bool = True,
    gate: Callable[[Any, Any], Any] = lambda sums, delta: sums > 0,
    hidden: Callable[[Any], Any] = lambda sums: np.maximum(sums, 0),
    bias: Callable[[Any], Any] = lambda delta: delta.sum(0),
) -> Callable[..., Any]:
    """Back-propagation with one line changed."""

    def backprop(x: Any, labels: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> tuple[Any, ...]:
        sums = x @ W1.T + b1  # (B, F)
        delta = np.array(probabilities(np.maximum(sums, 0) @ W2.T + b2))  # (B, C)
        delta[np.arange(len(labels)), labels] -= truth
        delta = delta / (len(labels) if mean else 1)
        below = delta @ W2  # (B, F)
        below = below * gate(sums, below)
        return below.T @ x, bias(below), delta.T @ hidden(sums), bias(delta)

    return backprop


def _small_net(draw: Draw) -> tuple[Tensor, ...]:
    batch, d_in, d_hidden, classes = draw.sizes(4, 3, 9)
    W1, b1 = draw.normal(d_hidden, d_in), draw.normal(d_hidden)
    W2, b2 = 0.2 * draw.normal(classes, d_hidden), draw.normal(classes)  # never sure
    b1[0] = b1[0].abs() + 9  # one unit surely on, one surely off
    b1[1] = -b1[1].abs() - 9
    return draw.normal(batch, d_in), draw.labels(batch, classes), W1, b1, W2, b2


def _sure_net(draw: Draw) -> tuple[Tensor, ...]:
    """Scores so far apart that the probabilities are 0 and 1, and the labels not the winners."""
    x, labels, W1, b1, W2, b2 = _small_net(draw)
    b2 = 1000.0 * (1 + draw.order(len(b2)).float())
    return x, torch.full_like(labels, int(b2.argmin())), W1, b1, W2, b2


def _at_the_kink(draw: Draw) -> tuple[Tensor, ...]:
    """An input of zeros and no bias: each weighted sum is exactly 0."""
    x, labels, W1, b1, W2, b2 = _small_net(draw)
    b2 = 1000.0 * (1 + draw.order(len(b2)).float())
    b2 -= b2.max()  # the winner is certain, and no exponential overflows
    labels = torch.full_like(labels, int(b2.argmin()))
    return torch.zeros_like(x), labels, W1, torch.zeros_like(b1), W2, b2


BACKPROP = Exercise(
    name="backprop",
    chapter=1,
    points=4,
    signature="backprop(x, labels, W1, b1, W2, b2)",
    statement=r"""
Back-propagation through two layers, without autograd. The net is

$$s = x W_1^\top + b_1, \qquad h = \max(s, 0), \qquad z = h W_2^\top + b_2,$$

with `x` of shape $(B, D)$, `W1` $(F, D)$, `b1` $(F)$, `W2` $(C, F)$ and `b2` $(C)$; the loss is
the mean cross-entropy of the logits $z$ against `labels`. Return its gradients
`(dW1, db1, dW2, db2)`, each in the shape of the parameter. At $s = 0$ take 0 as the derivative of
the ReLU, as PyTorch does.
""",
    reference=_backprop,
    numpy=True,
    right=[_by_autograd, _with_einsum],
    cases=[
        Case(
            "an ordinary net",
            _small_net,
            hint="At the output the gradient is (softmax(z) - one-hot of the label) / B. "
            "Then go down: through W2, then through the ReLU.",
            close=1e-3,
        ),
        Case(
            "a net that is very sure",
            _sure_net,
            hint="Use a softmax that survives scores of a thousand.",
            close=1e-3,
        ),
        Case(
            "sums of exactly 0",
            _at_the_kink,
            hint="The ReLU lets the gradient through where s > 0; at 0 it does not.",
            close=1e-3,
        ),
    ],
    wrong=[
        Wrong(
            "exp of large scores overflows",
            _mistaken(probabilities=lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)),
            "The softmax gives NaN for large scores: take off each row's maximum first.",
        ),
        Wrong(
            "the winner for the probabilities",
            _mistaken(probabilities=lambda z: np.eye(z.shape[1], dtype=z.dtype)[z.argmax(-1)]),
            "The gradient at the output is softmax(z) minus the truth, not the winner minus it.",
        ),
        Wrong(
            "gate open at 0",
            _mistaken(gate=lambda sums, delta: sums >= 0),
            "The ReLU's gate is s > 0, not s >= 0: at 0 the derivative is 0 here.",
        ),
        Wrong(
            "not divided by the batch",
            _mistaken(mean=False),
            "The loss is a mean over the batch, so the gradient at the output is divided by B.",
        ),
        Wrong(
            "no gate of the ReLU",
            _mistaken(gate=lambda sums, delta: np.ones_like(sums)),
            "Where s was below 0 the ReLU passed nothing on: multiply the gradient by (s > 0).",
        ),
        Wrong(
            "gate from the gradient's sign",
            _mistaken(gate=lambda sums, delta: delta > 0),
            "The gate looks at the weighted sum s of the forward pass, not at the gradient.",
        ),
        Wrong(
            "sums for the hidden layer's output",
            _mistaken(hidden=lambda sums: sums),
            "W2 reads h = max(s, 0): its gradient is delta.T @ h.",
        ),
        Wrong(
            "the truth never taken off",
            _mistaken(truth=0.0),
            "Take 1 off the probability of each right class: without it the labels play no part.",
        ),
        Wrong(
            "mean for the biases",
            _mistaken(bias=lambda delta: delta.mean(0)),
            "A bias adds to every example: sum its gradient over the batch. "
            "The mean is in delta already.",
        ),
    ],
)

# numerical_gradient


def _differences(step: Callable[..., float]) -> Callable[..., Any]:
    """A gradient made of ``step(f, copy, place, eps)`` for each entry in turn."""

    def gradient(f: Any, x: Any, eps: float = 1e-5) -> Any:
        result, point = np.zeros_like(x), x.copy()
        for place in np.ndindex(x.shape):
            result[place] = step(f, point, place, eps)
        return result

    return gradient


def _central(f: Any, x: Any, place: Any, eps: float) -> float:
    kept = x[place]
    x[place] = kept + eps
    above = f(x)
    x[place] = kept - eps
    below = f(x)
    x[place] = kept
    return float((above - below) / (2 * eps))


def _one_sided(f: Any, x: Any, place: Any, eps: float) -> float:
    kept, here = x[place], f(x)
    x[place] = kept + eps
    above = f(x)
    x[place] = kept
    return float((above - here) / eps)


def _not_put_back(f: Any, x: Any, place: Any, eps: float) -> float:
    kept = x[place]
    x[place] = kept + eps
    above = f(x)
    x[place] = kept - eps
    return float((above - f(x)) / (2 * eps))


def _first_axis_alone(f: Any, x: Any, eps: float = 1e-5) -> Any:
    rows = [_central(f, x.copy(), i, eps) for i in range(len(x))]
    return np.zeros_like(x) + np.array(rows).reshape(-1, *[1] * (x.ndim - 1))


def _all_at_once(f: Any, x: Any, eps: float = 1e-5) -> Any:
    return np.full_like(x, (f(x + eps) - f(x - eps)) / (2 * eps))


def _one_hot_steps(f: Any, x: Tensor, eps: float = 1e-5) -> Tensor:
    steps = eps * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    return torch.stack([f(x + step) - f(x - step) for step in steps]).reshape(x.shape) / (2 * eps)


def _double(draw: Draw, *sizes: int) -> Tensor:
    return draw.normal(*sizes, dtype=torch.float64)


NUMERICAL_GRADIENT = Exercise(
    name="numerical_gradient",
    chapter=1,
    points=2,
    signature="numerical_gradient(f, x, eps=1e-5)",
    statement=r"""
A gradient without calculus, to test other gradients with. `f` takes an array of the shape of `x`
and returns one number; `x` holds 64-bit floats and may have any number of axes. Return an array of
the shape of `x`. For each entry in turn, with all others left as they are,

$$\frac{\partial f}{\partial x_i} \approx
\frac{f(x + \epsilon e_i) - f(x - \epsilon e_i)}{2\epsilon}.$$

`x` itself must not change.
""",
    reference=dense.numerical_gradient,
    numpy=True,
    right=[_differences(_central), _one_hot_steps],
    cases=[
        Case(
            "a table",
            lambda draw: (lambda a: (a**3).sum(), _double(draw, *draw.sizes(2))),
            hint="Go over all entries, whatever the number of axes: np.ndindex(x.shape).",
        ),
        Case(
            "a wide step",
            lambda draw: (lambda a: (a**3).sum(), _double(draw, draw.size()), 0.5),
            hint="Compare the points x + eps and x - eps, which lie 2 * eps apart.",
        ),
        Case(
            "entries that depend on each other",
            lambda draw: (lambda a: (a[1:] * a[:-1]).sum(), _double(draw, draw.size(3)), 0.5),
            hint="Move one entry at a time, and put it back before the next.",
        ),
    ],
    wrong=[
        Wrong(
            "rows moved as a whole",
            _first_axis_alone,
            "x[i] is a whole row of a table. Go over all entries: np.ndindex(x.shape).",
        ),
        Wrong(
            "eps ignored",
            lambda f, x, eps=1e-5: _differences(_central)(f, x),
            "Use the eps that is passed, not a number of your own.",
        ),
        Wrong(
            "an entry not put back",
            _differences(_not_put_back),
            "After the second point put the entry back to what it was, or all later ones are off.",
        ),
        Wrong(
            "from one side",
            _differences(_one_sided),
            "f(x + eps) - f(x) is off by about eps. Compare f(x + eps) with f(x - eps).",
        ),
        Wrong(
            "divided by eps",
            _differences(lambda *args: 2 * _central(*args)),
            "The two points lie 2 * eps apart: divide by 2 * eps.",
        ),
        Wrong(
            "the other way round",
            _differences(lambda *args: -_central(*args)),
            "The point above minus the point below, not the other way round.",
        ),
        Wrong(
            "all entries moved at once",
            _all_at_once,
            "That is the slope along the diagonal. Move one entry at a time.",
        ),
    ],
)

# linear


def _linear_module(build: Callable[..., nn.Module], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
    layer = build(weight.shape[1], weight.shape[0])
    return with_weights(layer, {"weight": weight, "bias": bias}, x)


class _OwnNames(nn.Module):
    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.offset, self.table = nn.Parameter(torch.zeros(m)), nn.Parameter(torch.zeros(n, m))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.table + self.offset


class _NotParameters(nn.Module):
    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight, self.bias = torch.randn(d_out, d_in), torch.zeros(d_out)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def _affine(draw: Draw, *lead: int) -> tuple[Tensor, Tensor, Tensor]:
    d_in, d_out = draw.sizes(2)
    return draw.normal(*lead, d_in), draw.normal(d_out, d_in), draw.normal(d_out)


LINEAR = Exercise(
    name="linear",
    chapter=1,
    points=2,
    signature="linear(x, weight, bias)",
    statement=r"""
A fully connected layer, $y = x W^\top + b$, on the last axis of `x`, whatever axes come before it:
$(\dots, D_\text{in})$ becomes $(\dots, D_\text{out})$. `weight` has the shape
$(D_\text{out}, D_\text{in})$, `bias` $(D_\text{out})$. Gradients must reach all three.

You may write a class instead, made by `Linear(d_in, d_out)`: an `nn.Module` with two parameters,
named as you like. It is given the weights and called with `x`.
""",
    reference=dense.Linear,
    as_module=_linear_module,
    right=[
        F.linear,
        nn.Linear,
        _OwnNames,
        lambda x, weight, bias: torch.einsum("...i,oi->...o", x, weight) + bias,
        lambda x, w, b: torch.stack(
            [(x * row).sum(-1) + c for row, c in zip(w, b, strict=True)], -1
        ),
    ],
    cases=[
        Case(
            "one row for each example",
            lambda draw: _affine(draw, draw.size()),
            hint="y = x @ weight.T + bias.",
        ),
        Case(
            "a sequence for each example",
            lambda draw: _affine(draw, *draw.sizes(2)),
            hint="Only the last axis changes. `@` leaves the axes before it alone.",
        ),
        Case(
            "gradients",
            lambda draw: _affine(draw, *draw.sizes(2)),
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "written for three axes",
            lambda x, weight, bias: torch.einsum("btd,od->bto", x, weight) + bias,
            'Name the last axis alone, torch.einsum("...d,od->...o", x, weight), or use `@`.',
        ),
        Wrong(
            "flattened, and left so",
            lambda x, weight, bias: x.reshape(-1, x.shape[-1]) @ weight.T + bias,
            "After x.reshape(-1, d_in) fold the result back. `@` needs no flattening at all.",
        ),
        Wrong(
            "written for two axes",
            lambda x, weight, bias: torch.mm(x, weight.T) + bias,
            "torch.mm takes two tables and nothing else. `@` takes any axes before the last two.",
        ),
        Wrong(
            "weights without gradient",
            lambda x, weight, bias: x @ weight.data.T + bias.data,
            ".data and .detach() cut the gradient off: the layer would never learn.",
        ),
        Wrong(
            "bias forgotten",
            lambda x, weight, bias: x @ weight.T + 0 * bias,
            "Add the bias.",
        ),
        Wrong(
            "weight not transposed",
            lambda x, weight, bias: x @ weight + bias,
            "weight is (d_out, d_in), so x @ weight does not fit. Use x @ weight.T.",
        ),
        Wrong(
            "activation inside the layer",
            lambda x, weight, bias: torch.relu(x @ weight.T + bias),
            "A linear layer bends nothing: leave the activation to the net.",
        ),
        Wrong(
            "weights that are not parameters",
            _NotParameters,
            "A tensor as attribute is not trained, moved or saved. Wrap it in nn.Parameter.",
        ),
    ],
)

# dropout


def _dropout_module(build: Callable[..., nn.Module], x: Tensor, p: float, training: bool) -> Any:
    return build(p).train(training)(x)


def _drop(share: Callable[[float], float], scale: Callable[[float], float]) -> Callable[..., Any]:
    """Keep each entry with probability ``share(p)``, times ``scale(p)``."""

    def dropout(x: Tensor, p: float, training: bool) -> Tensor:
        return x * (torch.rand_like(x) < share(p)) * scale(p) if training else x

    return dropout


def _row_mask(x: Tensor, p: float, training: bool) -> Tensor:
    return x * (torch.rand(x.shape[-1]) >= p) / (1 - p) if training and p < 1 else x * (p < 1)


def _always_the_same(x: Tensor, p: float, training: bool) -> Tensor:
    torch.manual_seed(0)
    return F.dropout(x, p, training)


def _ones(draw: Draw) -> tuple[Tensor, float, bool]:
    p = draw.number(0.1, 0.4) if draw.integer(0, 1) else draw.number(0.6, 0.9)  # never a half
    return torch.ones(draw.size(2, 4), 20_000 + draw.size()), p, True  # enough to count a share


DROPOUT = Exercise(
    name="dropout",
    chapter=1,
    points=3,
    signature="dropout(x, p, training)",
    statement=r"""
In training, set each entry of `x` to 0 with probability `p`, each on its own and anew at each call,
and divide the others by $1 - p$, so that the mean stays as it is. Out of training return `x`
unchanged. Where `p` is 1, nothing is left but zeros.

You may write a class instead, made by `Dropout(p)`: an `nn.Module` that looks at `self.training`.
""",
    reference=F.dropout,
    as_module=_dropout_module,
    right=[
        nn.Dropout,
        lambda x, p, training: (
            x * torch.bernoulli(torch.full_like(x, 1 - p)) / max(1 - p, 1e-9) if training else x
        ),
    ],
    cases=[
        Case(
            "what is left is scaled",
            _ones,
            hint="Divide what is left by 1 - p.",
            observe=lambda f, *args: f(*args).max(),
        ),
        Case(
            "how many are dropped",
            _ones,
            hint="An entry is dropped where torch.rand_like(x) < p.",
            observe=lambda f, *args: (f(*args) == 0).double().mean(),
            close=0.12,
        ),
        Case(
            "each entry on its own",
            _ones,
            hint="Draw one random number for each entry: torch.rand_like(x).",
            observe=lambda f, *args: len(f(*args).unique(dim=0)) > 1,
        ),
        Case(
            "new at each call",
            _ones,
            hint="Set no seed inside, and keep no mask.",
            observe=lambda f, *args: torch.equal(f(*args), f(*args)),
        ),
        Case(
            "out of training",
            lambda draw: (draw.normal(*draw.sizes(2)), draw.number(0.1, 0.9), False),
            hint="Return x unchanged when training is False.",
        ),
        Case(
            "p = 1",
            lambda draw: (draw.normal(*draw.sizes(2)), 1.0, True),
            hint="1 / (1 - p) is infinite, and 0 times infinity is NaN: return zeros.",
        ),
    ],
    wrong=[
        Wrong(
            "not scaled",
            _drop(lambda p: 1 - p, lambda p: 1.0),
            "With a share p gone, the next layer sees a smaller sum than in evaluation. "
            "Divide what is left by 1 - p.",
        ),
        Wrong(
            "kept with probability p",
            _drop(lambda p: p * (p < 1), lambda p: 1 / (1 - p) if p < 1 else 0.0),
            "p is the probability of being dropped. At one half nobody notices.",
        ),
        Wrong(
            "one mask for all rows",
            _row_mask,
            "All examples lose the same entries. Draw a random number for each entry of x.",
        ),
        Wrong(
            "seed set inside",
            _always_the_same,
            "The same entries are lost at each step, so they are never trained. Set no seed.",
        ),
        Wrong(
            "dropping out of training too",
            lambda x, p, training: F.dropout(x, p, True),
            "In evaluation nothing is random: return x unchanged when training is False.",
        ),
        Wrong(
            "division by 0 at p = 1",
            _drop(lambda p: 1 - p, lambda p: 1 / (1 - p) if p < 1 else torch.inf),
            "1 / (1 - p) is infinite, and 0 times infinity is NaN. Return zeros where p is 1.",
        ),
        Wrong(
            "scaled by 1 / p",
            _drop(lambda p: 1 - p, lambda p: 1 / p),
            "A share of 1 - p is left, so divide by 1 - p. At one half nobody notices.",
        ),
    ],
)

EXERCISES = (SOFTMAX, CROSS_ENTROPY, BACKPROP, NUMERICAL_GRADIENT, LINEAR, DROPOUT)

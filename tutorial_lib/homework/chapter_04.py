"""The exercises of chapter 4: recurrent nets."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import recurrent
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, gradients, with_weights

# rnn


def _rnn(
    step: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda x, h, W, b: torch.tanh(
        F.linear(torch.cat([x, h], 1), W, b)
    ),
    hand_on: Callable[[Tensor, Tensor], Tensor] = lambda new, old: new,
    collect: Callable[[list[Tensor]], Tensor] = lambda states: torch.stack(states, 1),
    start: float = 0.0,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A recurrent net with one of its parts changed."""

    def rnn(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        h = torch.full((len(x), len(weight)), start)
        states = []
        for t in range(x.shape[1]):
            new = step(x[:, t], h, weight, bias)
            states.append(new)
            h = hand_on(new, h)
        return collect(states)

    return rnn


def _by_the_package(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    D = x.shape[2]
    cell = recurrent.RNNCell(D, len(weight))
    weights = {
        "weight_ih": weight[:, :D],
        "weight_hh": weight[:, D:],
        "bias_ih": bias,
        "bias_hh": torch.zeros_like(bias),
    }
    states: list[Tensor] = []
    for t in range(x.shape[1]):
        state = (x[:, t], *states[-1:])
        states.append(torch.func.functional_call(cell, weights, state))
    return torch.stack(states, 1)


def _two_products(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The inputs' part for all places at once, the state's part step by step."""
    from_input = x @ weight[:, : x.shape[2]].T + bias  # (B, T, H)
    h, states = torch.zeros_like(from_input[:, 0]), []
    for part in from_input.unbind(1):
        h = (part + h @ weight[:, x.shape[2] :].T).tanh()
        states.append(h)
    return torch.stack(states, 1)


def _over_the_batch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _rnn()(x.transpose(0, 1), weight, bias).transpose(0, 1)


def _backwards(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _rnn()(x.flip(1), weight, bias).flip(1)


def _rnn_inputs(draw: Draw, biased: bool) -> tuple[Tensor, ...]:
    B, T, D, H = draw.sizes(4, 3, 8)
    bias = draw.normal(H) if biased else torch.zeros(H)
    return draw.normal(B, T, D), draw.normal(H, D + H) * 0.7, bias


RNN = Exercise(
    name="rnn",
    chapter=4,
    points=3,
    signature="rnn(x, weight, bias)",
    statement=r"""
A plain recurrent net, along a batch of sequences. `x` has the shape $(B, T, D)$, `weight`
$(H, D + H)$, `bias` $(H)$. Start from $\mathbf{h}_0 = 0$, and at each place compute

$$\mathbf{h}_t = \tanh\left(W \begin{bmatrix} \mathbf{x}_t \\ \mathbf{h}_{t-1} \end{bmatrix}
+ \mathbf{b}\right),$$

the input first, then the last state. Return all states, $(B, T, H)$.
""",
    reference=_by_the_package,
    right=[_rnn(), _two_products],
    cases=[
        Case(
            "a batch of sequences",
            lambda draw: _rnn_inputs(draw, biased=True),
            hint="One step: tanh of weight times [x_t, h] plus bias. Its result is the next h.",
        ),
        Case(
            "gradients through time",
            lambda draw: _rnn_inputs(draw, biased=False),
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=lambda function, x, weight, bias: gradients(
                lambda x, weight: function(x, weight, bias), x, weight
            ),
        ),
    ],
    wrong=[
        Wrong(
            "state not handed on",
            _rnn(hand_on=lambda new, old: old),
            "Every step sees h = 0: set h to the new state before the next step.",
        ),
        Wrong(
            "state before input",
            _rnn(lambda x, h, W, b: torch.tanh(F.linear(torch.cat([h, x], 1), W, b))),
            "The first D columns of the weight belong to x, the others to h.",
        ),
        Wrong(
            "tanh forgotten",
            _rnn(lambda x, h, W, b: F.linear(torch.cat([x, h], 1), W, b)),
            "Bend the sum by tanh at each step.",
        ),
        Wrong(
            "sigmoid for tanh",
            _rnn(lambda x, h, W, b: torch.sigmoid(F.linear(torch.cat([x, h], 1), W, b))),
            "The state of a plain recurrent net is bent by tanh; sigmoid is for gates.",
        ),
        Wrong(
            "tanh of the state alone",
            _rnn(lambda x, h, W, b: F.linear(torch.cat([x, h.tanh()], 1), W, b)),
            "tanh goes round the whole sum, and its result is the state.",
        ),
        Wrong(
            "bias forgotten",
            _rnn(lambda x, h, W, b: torch.tanh(F.linear(torch.cat([x, h], 1), W))),
            "Add the bias at each step.",
        ),
        Wrong(
            "along the batch for along time",
            _over_the_batch,
            "The second axis of x is time: walk over x[:, t]. The first holds the sequences, which "
            "know nothing of one another.",
        ),
        Wrong(
            "from the end",
            _backwards,
            "Read from t = 0 on.",
        ),
        Wrong(
            "state starts at 1",
            _rnn(start=1.0),
            "The state before the first input is all zeros.",
        ),
        Wrong(
            "last state alone",
            _rnn(collect=lambda states: states[-1]),
            "Return the states of all places, stacked along the time axis: (B, T, H).",
        ),
        Wrong(
            "time first",
            _rnn(collect=lambda states: torch.stack(states)),
            "Stack along axis 1: batch first, then time.",
        ),
        Wrong(
            "state detached",
            _rnn(hand_on=lambda new, old: new.detach()),
            ".detach() or .data between two steps cuts the way back: nothing earlier is learned.",
        ),
    ],
)

# lstm_cell


def _lstm(
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda both: both.chunk(4, 1),
    candidate: Callable[[Tensor], Tensor] = torch.tanh,
    write: Callable[..., Tensor] = lambda i, f, g, c: f * c + i * g,
    show: Callable[[Tensor, Tensor], Tensor] = lambda o, c: o * c.tanh(),
    add: Callable[..., Tensor] = lambda x, h, W, U, b, d: F.linear(x, W, b) + F.linear(h, U, d),
    give: Callable[[Tensor, Tensor], Any] = lambda h, c: (h, c),
) -> Callable[..., Any]:
    """An LSTM's step with one of its parts changed."""

    def lstm_cell(
        x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor, d: Tensor
    ) -> Any:
        i, f, g, o = split(add(x, h, W, U, b, d))
        i, f, g, o = i.sigmoid(), f.sigmoid(), candidate(g), o.sigmoid()
        c = write(i, f, g, c)
        return give(show(o, c), c)

    return lstm_cell


def _order(*places: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """The four blocks, in another order."""
    return lambda both: tuple(both.chunk(4, 1)[place] for place in places)


def _one_product(
    x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor, d: Tensor
) -> list[Tensor]:
    """Input and state side by side, as many textbooks write it."""
    both = torch.cat([x, h], 1) @ torch.cat([W, U], 1).T + b + d
    H = h.shape[1]
    i, f, o = (both[:, k * H : (k + 1) * H].sigmoid() for k in (0, 1, 3))
    c = c * f + both[:, 2 * H : 3 * H].tanh() * i
    return [c.tanh() * o, c]


def _lstm_module(
    build: Callable[..., nn.Module],
    x: Tensor,
    h: Tensor,
    c: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    d: Tensor,
) -> Any:
    weights: dict[str, Tensor | None] = {
        "weight_ih": W, "weight_hh": U, "bias_ih": b, "bias_hh": d,
    }  # fmt: skip
    return with_weights(build(x.shape[1], h.shape[1]), weights, x, (h, c))


def _weights(draw: Draw, blocks: int, biased: bool) -> tuple[Tensor, ...]:
    """Input, state, matrices and biases of one step; no two sizes are alike."""
    B, D, H = draw.sizes(3, 3, 7)
    W, U = draw.normal(blocks * H, D), draw.normal(blocks * H, H)
    biases = draw.normal(2, blocks * H) if biased else torch.zeros(2, blocks * H)
    return draw.normal(B, D), draw.normal(B, H), W, U, *biases


def _lstm_inputs(draw: Draw, biased: bool) -> tuple[Tensor, ...]:
    x, h, *weights = _weights(draw, 4, biased)
    return x, h, 2 * draw.normal(*h.shape), *weights


def _lstm_gradients(function: Callable[..., Any], *args: Any) -> Any:
    """After two steps, with respect to all but the biases."""
    x, h, c, W, U, *biases = args

    def two_steps(x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor) -> Tensor:
        h, c = function(x, h, c, W, U, *biases)
        return torch.cat(list(function(x, h, c, W, U, *biases)), 1)

    return gradients(two_steps, x, h, c, W, U)


LSTM_CELL = Exercise(
    name="lstm_cell",
    chapter=4,
    points=4,
    signature="lstm_cell(x, h, c, W_ih, W_hh, b_ih, b_hh)",
    statement=r"""
One step of an LSTM. `x` has the shape $(B, D)$; `h` and `c`, the state and the memory so far,
$(B, H)$; `W_ih` $(4H, D)$, `W_hh` $(4H, H)$, both biases $(4H)$. The four blocks of rows stand
on top of each other in the order $i, f, g, o$ (input, forget, candidate, output):

$$\begin{bmatrix} \mathbf{i} \\ \mathbf{f} \\ \mathbf{g} \\ \mathbf{o} \end{bmatrix}
= \begin{bmatrix} \sigma \\ \sigma \\ \tanh \\ \sigma \end{bmatrix}
\left(W_{ih}\mathbf{x} + \mathbf{b}_{ih} + W_{hh}\mathbf{h} + \mathbf{b}_{hh}\right), \qquad
\mathbf{c}' = \mathbf{f} \odot \mathbf{c} + \mathbf{i} \odot \mathbf{g}, \qquad
\mathbf{h}' = \mathbf{o} \odot \tanh(\mathbf{c}').$$

Return the pair $(\mathbf{h}', \mathbf{c}')$.

You may write a class instead, made by `LSTMCell(d_in, d_hidden)`: an `nn.Module` with the four
parameters, named as you like. It is given the weights and called with `x` and the pair `(h, c)`.
""",
    reference=_lstm(),
    as_module=_lstm_module,
    right=[_one_product, nn.LSTMCell, recurrent.LSTMCell],
    cases=[
        Case(
            "one step",
            lambda draw: _lstm_inputs(draw, biased=True),
            hint="Cut the sum into four blocks, bend each, then c' = f * c + i * g.",
        ),
        Case(
            "gradients through two steps",
            lambda draw: _lstm_inputs(draw, biased=False),
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=_lstm_gradients,
            close=1e-3,
        ),
    ],
    wrong=[
        Wrong(
            "order of the gates i f o g",
            _lstm(_order(0, 1, 3, 2)),
            "The third block is the candidate g, the fourth the output gate o.",
        ),
        Wrong(
            "input and forget gate swapped",
            _lstm(_order(1, 0, 2, 3)),
            "The first block is the input gate i, the second the forget gate f.",
        ),
        Wrong(
            "candidate by sigmoid",
            _lstm(candidate=torch.sigmoid),
            "The candidate may be negative: bend it by tanh. Only gates take sigmoid.",
        ),
        Wrong(
            "forget gate the other way round",
            _lstm(write=lambda i, f, g, c: (1 - f) * c + i * g),
            "A forget gate of 1 keeps the memory: f * c.",
        ),
        Wrong(
            "old memory lost",
            _lstm(write=lambda i, f, g, c: i * g),
            "Add what is new to what is kept: f * c + i * g.",
        ),
        Wrong(
            "gates tied",
            _lstm(write=lambda i, f, g, c: f * c + (1 - f) * g),
            "Here the input gate is a gate of its own: i * g. (1 - f stands in its place in the "
            "GRU.)",
        ),
        Wrong(
            "memory shown without tanh",
            _lstm(show=lambda o, c: o * c),
            "The state is o * tanh(c'), between -1 and 1.",
        ),
        Wrong(
            "tanh round the gate",
            _lstm(show=lambda o, c: (o * c).tanh()),
            "tanh goes round the memory alone: o * tanh(c').",
        ),
        Wrong(
            "memory kept bent",
            _lstm(write=lambda i, f, g, c: (f * c + i * g).tanh(), show=lambda o, c: o * c),
            "tanh is for what is shown. The memory itself goes on as it is: that is how it lasts.",
        ),
        Wrong(
            "pair turned round",
            _lstm(give=lambda h, c: (c, h)),
            "Return (h, c): first the state, then the memory.",
        ),
        Wrong(
            "bias of the state forgotten",
            _lstm(add=lambda x, h, W, U, b, d: F.linear(x, W, b) + F.linear(h, U)),
            "Both biases are added.",
        ),
        Wrong(
            "memory detached",
            _lstm(write=lambda i, f, g, c: f * c.detach() + i * g),
            ".detach() or .data on the memory cuts the way along which gradients come back.",
        ),
    ],
)

# gru_cell


def _gru(
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda part: part.chunk(3, 1),
    candidate: Callable[..., Tensor] = lambda x, h, r, U, d: torch.tanh(x + r * (h @ U.T + d)),
    blend: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda z, n, h: (1 - z) * n + z * h,
    hidden_bias: float = 1.0,
) -> Callable[..., Tensor]:
    """A GRU's step with one of its parts changed."""

    def gru_cell(x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, d: Tensor) -> Tensor:
        x_r, x_z, x_n = split(F.linear(x, W, b))
        h_r, h_z, _ = split(F.linear(h, U, hidden_bias * d))
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        U_n, d_n = split(U.T)[2].T, split(d[None])[2][0]
        return blend(z, candidate(x_n, h, r, U_n, hidden_bias * d_n), h)

    return gru_cell


def _in_a_line(x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, d: Tensor) -> Tensor:
    """From the old state towards the candidate, by as much as the update gate lets through."""
    H = h.shape[1]
    a, s = x @ W.T + b, h @ U.T + d
    r, z = (a + s)[:, : 2 * H].sigmoid().split(H, 1)
    n = (a[:, 2 * H :] + r * s[:, 2 * H :]).tanh()
    return n + z * (h - n)


def _gru_module(
    build: Callable[..., nn.Module],
    x: Tensor,
    h: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    d: Tensor,
) -> Any:
    weights: dict[str, Tensor | None] = {
        "weight_ih": W, "weight_hh": U, "bias_ih": b, "bias_hh": d,
    }  # fmt: skip
    return with_weights(build(x.shape[1], h.shape[1]), weights, x, h)


def _gru_gradients(function: Callable[..., Any], *args: Any) -> Any:
    """After two steps, with respect to all but the biases."""
    x, h, W, U, *biases = args

    def two_steps(x: Tensor, h: Tensor, W: Tensor, U: Tensor) -> Any:
        return function(x, function(x, h, W, U, *biases), W, U, *biases)

    return gradients(two_steps, x, h, W, U)


GRU_CELL = Exercise(
    name="gru_cell",
    chapter=4,
    points=4,
    signature="gru_cell(x, h, W_ih, W_hh, b_ih, b_hh)",
    statement=r"""
One step of a GRU, as PyTorch has it. `x` has the shape $(B, D)$, `h` $(B, H)$, `W_ih` $(3H, D)$,
`W_hh` $(3H, H)$, both biases $(3H)$. The three blocks of rows stand on top of each other in the
order $r, z, n$ (reset, update, candidate):

$$\mathbf{r} = \sigma(W_{ir}\mathbf{x} + \mathbf{b}_{ir} + W_{hr}\mathbf{h} + \mathbf{b}_{hr}),
\qquad
\mathbf{z} = \sigma(W_{iz}\mathbf{x} + \mathbf{b}_{iz} + W_{hz}\mathbf{h} + \mathbf{b}_{hz}),$$

$$\mathbf{n} = \tanh\left(W_{in}\mathbf{x} + \mathbf{b}_{in}
+ \mathbf{r} \odot (W_{hn}\mathbf{h} + \mathbf{b}_{hn})\right), \qquad
\mathbf{h}' = (1 - \mathbf{z}) \odot \mathbf{n} + \mathbf{z} \odot \mathbf{h}.$$

Return $\mathbf{h}'$.

You may write a class instead, made by `GRUCell(d_in, d_hidden)`: an `nn.Module` with the four
parameters, named as you like. It is given the weights and called with `x` and `h`.
""",
    reference=_gru(),
    as_module=_gru_module,
    right=[_in_a_line, nn.GRUCell, recurrent.GRUCell],
    cases=[
        Case(
            "one step",
            lambda draw: _weights(draw, 3, biased=True),
            hint="First r and z from x and h, then n with r, then the mean of n and h by z.",
        ),
        Case(
            "gradients through two steps",
            lambda draw: _weights(draw, 3, biased=False),
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=_gru_gradients,
            close=1e-3,
        ),
    ],
    wrong=[
        Wrong(
            "reset before the matrix",
            _gru(candidate=lambda x, h, r, U, d: torch.tanh(x + (r * h) @ U.T + d)),
            "Multiply W_hn h + b_hn by r, after the matrix. (r * h before the matrix is the "
            "paper's way, another function.)",
        ),
        Wrong(
            "bias not reset",
            _gru(candidate=lambda x, h, r, U, d: torch.tanh(x + r * (h @ U.T) + d)),
            "b_hn stands inside the bracket that r is multiplied with.",
        ),
        Wrong(
            "reset forgotten",
            _gru(candidate=lambda x, h, r, U, d: torch.tanh(x + h @ U.T + d)),
            "The candidate sees the state through the reset gate: r * (W_hn h + b_hn).",
        ),
        Wrong(
            "reset on the input too",
            _gru(candidate=lambda x, h, r, U, d: torch.tanh(r * (x + h @ U.T + d))),
            "The reset gate holds back the state, not the input.",
        ),
        Wrong(
            "update the other way round",
            _gru(blend=lambda z, n, h: z * n + (1 - z) * h),
            "An update gate of 1 keeps the old state: (1 - z) * n + z * h.",
        ),
        Wrong(
            "gates swapped",
            _gru(lambda part: (part.chunk(3, 1)[1], part.chunk(3, 1)[0], part.chunk(3, 1)[2])),
            "The first block of rows is the reset gate, the second the update gate.",
        ),
        Wrong(
            "candidate by sigmoid",
            _gru(candidate=lambda x, h, r, U, d: torch.sigmoid(x + r * (h @ U.T + d))),
            "The candidate may be negative: bend it by tanh. Only gates take sigmoid.",
        ),
        Wrong(
            "state added whole",
            _gru(blend=lambda z, n, h: (1 - z) * n + h),
            "Old and new share the place: what the candidate gets, the state gives up.",
        ),
        Wrong(
            "bias of the state forgotten",
            _gru(hidden_bias=0.0),
            "Both biases are added, in all three blocks.",
        ),
        Wrong(
            "state detached",
            _gru(blend=lambda z, n, h: (1 - z) * n + z * h.detach()),
            ".detach() or .data on the state cuts the way along which gradients come back.",
        ),
    ],
)

# last_state


def _last(
    forward: Callable[[Tensor, Tensor], Tensor] = lambda outputs, lengths: outputs[
        torch.arange(len(outputs)), lengths - 1
    ],
    backward: Callable[[Tensor, Tensor], Tensor] = lambda outputs, lengths: outputs[:, 0],
) -> Callable[..., Tensor]:
    """The summary of each direction, taken from where the arguments say."""

    def last_state(outputs: Tensor, lengths: Tensor, bidirectional: bool = False) -> Tensor:
        if not bidirectional:
            return forward(outputs, lengths)
        ahead, back = outputs.chunk(2, 2)
        return torch.cat([forward(ahead, lengths), backward(back, lengths)], 1)

    return last_state


def _one_by_one(outputs: Tensor, lengths: Tensor, bidirectional: bool = False) -> Tensor:
    H = outputs.shape[2] // 2 if bidirectional else outputs.shape[2]
    rows = zip(outputs, lengths.tolist(), strict=True)
    return torch.stack([torch.cat([row[n - 1, :H], row[0, H:]]) for row, n in rows])


def _by_gather(outputs: Tensor, lengths: Tensor, bidirectional: bool = False) -> Tensor:
    place = (lengths - 1)[:, None, None].repeat(1, 1, outputs.shape[2])
    if bidirectional:
        place[..., outputs.shape[2] // 2 :] = 0
    return outputs.gather(1, place)[:, 0]


def _of_padded(draw: Draw, both: bool, padded: bool) -> tuple[Any, ...]:
    """States as a net leaves them; what stands behind a length is no zero here."""
    B, T, width = draw.size(3, 4), draw.size(5, 7), 2 * draw.integer(4, 6)
    lengths = torch.full((B,), T)
    if padded:
        lengths[: B - 1] = 1 + draw.order(T - 1)[: B - 1]
        lengths = lengths[draw.order(B)]
    return draw.normal(B, T, width), lengths, both


LAST_STATE = Exercise(
    name="last_state",
    chapter=4,
    points=2,
    signature="last_state(outputs, lengths, bidirectional=False)",
    statement=r"""
The summary of each sentence in a padded batch. `outputs` has the shape $(B, T, H)$, the states at
all places, padding included; `lengths` $(B)$ says how many places of each sentence are real, from
1 to $T$, in any order. Return the state after the last real token of each, $(B, H)$.

Where `bidirectional` is true, the first half of the $H$ numbers comes from the net that reads
forwards, the second half from the one that reads backwards and ends at the first token. Return
each half from where its net has read everything. The padding stands at the end, and the net that
reads backwards has skipped it.
""",
    reference=_last(),
    right=[_one_by_one, _by_gather],
    cases=[
        Case(
            "padded sentences",
            lambda draw: _of_padded(draw, both=False, padded=True),
            hint="The last real token of sentence b stands at lengths[b] - 1.",
        ),
        Case(
            "both directions",
            lambda draw: _of_padded(draw, both=True, padded=False),
            hint="The first half is whole at the last token, the second half at the first.",
        ),
        Case(
            "gradients",
            lambda draw: _of_padded(draw, both=False, padded=False)[:2],
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=lambda function, outputs, lengths: gradients(
                lambda outputs: function(outputs, lengths), outputs
            ),
        ),
    ],
    wrong=[
        Wrong(
            "state after the padding",
            _last(forward=lambda outputs, lengths: outputs[:, -1]),
            "outputs[:, -1] belongs to the padding where a sentence is short: take place "
            "lengths - 1 of each.",
        ),
        Wrong(
            "one place too far",
            _last(
                forward=lambda outputs, lengths: outputs[
                    torch.arange(len(outputs)), lengths.clamp(max=outputs.shape[1] - 1)
                ]
            ),
            "Places count from 0: the last of n tokens stands at n - 1.",
        ),
        Wrong(
            "shortest length for all",
            _last(forward=lambda outputs, lengths: outputs[:, int(lengths.min()) - 1]),
            "Each sentence has its own last place: lengths - 1, row by row.",
        ),
        Wrong(
            "all rows with all lengths",
            _last(forward=lambda outputs, lengths: outputs[:, lengths - 1]),
            "outputs[:, lengths - 1] pairs every row with every length: index the rows too, with "
            "torch.arange(B).",
        ),
        Wrong(
            "mean over all places",
            _last(forward=lambda outputs, lengths: outputs.mean(1)),
            "The state at one place is wanted, not the mean.",
        ),
        Wrong(
            "both halves at the last token",
            _last(
                backward=lambda outputs, lengths: outputs[torch.arange(len(outputs)), lengths - 1]
            ),
            "At the last token, the net that reads backwards has read that one token alone: take "
            "its half at place 0.",
        ),
        Wrong(
            "first half alone",
            lambda outputs, lengths, bidirectional=False: _last()(outputs, lengths, bidirectional)[
                :, : outputs.shape[2] // (1 + bidirectional)
            ],
            "Both directions belong to the summary: put the two halves side by side.",
        ),
        Wrong(
            "halves swapped",
            lambda outputs, lengths, bidirectional=False: _last()(
                outputs.flip(1) if bidirectional else outputs, lengths, bidirectional
            ),
            "The first half reads forwards and ends at the last token, the second ends at the "
            "first.",
        ),
        Wrong(
            "detached",
            lambda outputs, lengths, bidirectional=False: _last()(
                outputs.detach(), lengths, bidirectional
            ),
            ".detach() or .data cuts the gradient off: the net below could not learn.",
        ),
    ],
)

EXERCISES = (RNN, LSTM_CELL, GRU_CELL, LAST_STATE)

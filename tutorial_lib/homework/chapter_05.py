"""The exercises of chapter 5: attention between two texts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tutorial_lib.attention import masked_softmax, padding_mask
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, gradients

IGNORE = -100  # the target that no loss counts

# teacher_forcing_inputs


def _shifted(targets: Tensor, bos: int, pad: int) -> Tensor:
    first = torch.full_like(targets[:, :1], bos)
    return torch.cat([first, targets[:, :-1]], 1).masked_fill(_behind(targets), pad)


def _behind(targets: Tensor) -> Tensor:
    """The places whose word before is filling."""
    return torch.nn.functional.pad(targets == IGNORE, (1, 0))[:, :-1]


def _word_by_word(targets: Tensor, bos: int, pad: int) -> Tensor:
    rows = []
    for row in targets.tolist():
        rows.append([bos] + [pad if word == IGNORE else word for word in row[:-1]])
    return torch.tensor(rows)


def _rolled(targets: Tensor, bos: int, pad: int) -> Tensor:
    inputs = targets.clone()
    inputs[inputs == IGNORE] = pad
    inputs = inputs.roll(1, 1)
    inputs[:, 0] = bos
    return inputs


def _targets(draw: Draw, first: int = 10) -> tuple[Tensor, int, int]:
    """Words from ``first`` on, in rows of different lengths (of one length where first is 0)."""
    B, T = draw.sizes(2, 4, 8)
    targets = first + draw.labels(B * T, 50).reshape(B, T)
    targets[:, 0] = first
    for i in range(B if first else 0):
        targets[i, T - i % (T - 1) :] = IGNORE
    return targets, draw.integer(1, 4), draw.integer(5, 9)


def _told(change: Callable[[Tensor, int, int], Tensor]) -> Callable[[Tensor, int, int], Tensor]:
    """A mistake, made on targets whose filling is replaced as it should be."""

    def teacher_forcing_inputs(targets: Tensor, bos: int, pad: int) -> Tensor:
        return change(targets.masked_fill(targets == IGNORE, pad), bos, pad)

    return teacher_forcing_inputs


def _with_bos(words: Tensor, bos: int) -> Tensor:
    return torch.cat([torch.full_like(words[:, :1], bos), words], 1)


def _first_overwritten(words: Tensor, bos: int, pad: int) -> Tensor:
    words = words.clone()
    words[:, 0] = bos
    return words


TEACHER_FORCING_INPUTS = Exercise(
    name="teacher_forcing_inputs",
    chapter=5,
    points=2,
    signature="teacher_forcing_inputs(targets, bos, pad)",
    statement=r"""
While it is trained, the decoder is told the right word before each word that it should write.
`targets` $(B, T)$ holds the ids to be written, a text in each row; behind a text stands -100, which
the loss overlooks. Return the inputs $(B, T)$: each row starts with `bos`, then come the row's
targets, all but the last. An embedding knows no -100: where it would stand, put `pad`.
""",
    reference=_shifted,
    right=[_word_by_word, _rolled],
    cases=[
        Case(
            "texts of different lengths",
            _targets,
            hint="inputs[:, 0] is bos, inputs[:, t] is targets[:, t - 1], or pad where that is "
            "-100.",
        ),
        Case(
            "a word with the id 0",
            lambda draw: _targets(draw, first=0),
            hint="Only -100 is filling. 0 is a word like any other.",
        ),
    ],
    wrong=[
        Wrong(
            "not moved",
            _told(lambda words, bos, pad: words),
            "So the decoder is told the very word that it should write, and learns to copy it. "
            "Move the row by one place.",
        ),
        Wrong(
            "moved the wrong way",
            _told(lambda words, bos, pad: _with_bos(words, bos)[:, 2:].clone()),
            "The word before stands to the left: inputs[:, t] is targets[:, t - 1].",
        ),
        Wrong(
            "one place too long",
            _told(lambda words, bos, pad: _with_bos(words, bos)),
            "Inputs and targets have the same shape: leave out the last target.",
        ),
        Wrong(
            "no bos",
            _told(lambda words, bos, pad: words.roll(1, 1)),
            "Rolling brings the last word to the front. The first input is bos.",
        ),
        Wrong(
            "bos over the first word",
            _told(_first_overwritten),
            "The first word is lost, and the others have not moved. Put bos in front of it.",
        ),
        Wrong(
            "moved by two places",
            _told(lambda words, bos, pad: _with_bos(_with_bos(words, bos), bos)[:, :-2]),
            "One bos is enough: inputs[:, 1] is targets[:, 0].",
        ),
        Wrong(
            "-100 left in",
            lambda targets, bos, pad: _with_bos(targets, bos)[:, :-1],
            "-100 is no word: an embedding would fail there. Put pad in its place.",
        ),
        Wrong(
            "0 taken for filling",
            lambda targets, bos, pad: _shifted(targets, bos, pad).masked_fill(
                _with_bos(targets == 0, False)[:, :-1], pad
            ),
            "Only -100 is filling. The id 0 is a word like any other: compare with -100.",
        ),
        Wrong(
            "bos for filling",
            lambda targets, bos, pad: _shifted(targets, bos, bos),
            "Behind a text stands pad, not bos.",
        ),
    ],
)

# additive_score

Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _additive(query: Tensor, key: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(query[:, :, None] @ W.T + (key @ U.T)[:, None]) @ v


def _additive_by_einsum(query: Tensor, key: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    q = torch.einsum("btq,fq->btf", query, W)
    k = torch.einsum("bsk,fk->bsf", key, U)
    return torch.einsum("btsf,f->bts", torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)), v)


def _additive_by_loops(query: Tensor, key: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    rows = [
        [torch.tanh(W @ q + U @ k) @ v for q in texts for k in answers]
        for texts, answers in zip(query, key, strict=True)
    ]
    flat = torch.stack([torch.stack(row) for row in rows])
    return flat.reshape(len(query), query.shape[1], key.shape[1])


def _by_concatenation(query: Tensor, key: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    """One matrix for query and key in a row: the same thing."""
    T, S = query.shape[1], key.shape[1]
    both = torch.cat(
        [query[:, :, None].expand(-1, -1, S, -1), key[:, None].expand(-1, T, -1, -1)], -1
    )
    return torch.tanh(both @ torch.cat([W, U], 1).T) @ v


def _scored(
    bend: Callable[[Tensor], Tensor] = torch.tanh,
    after: Callable[[Tensor], Tensor] = lambda scores: scores,
    join: Callable[[Tensor, Tensor], Tensor] = torch.add,
) -> Score:
    """The score with one thing changed."""

    def additive_score(query: Tensor, key: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
        return after(bend(join((query @ W.T)[:, :, None], (key @ U.T)[:, None])) @ v)

    return additive_score


def _largest_away(scores: Tensor) -> Tensor:
    return scores - scores.amax(-1, keepdim=True).detach()


def _asked(draw: Draw) -> tuple[Tensor, ...]:
    B, T, S, Q, K, F = draw.sizes(6, 2, 9)
    return (
        draw.normal(B, T, Q),
        draw.normal(B, S, K),
        draw.normal(F, Q),
        draw.normal(F, K),
        draw.normal(F),
    )


ADDITIVE_SCORE = Exercise(
    name="additive_score",
    chapter=5,
    points=3,
    signature="additive_score(query, key, W, U, v)",
    statement=r"""
How well does each key answer each query? The score of Bahdanau, Cho and Bengio is a small network,

$$e_{ts} = \mathbf{v}^\top \tanh(W \mathbf{q}_t + U \mathbf{k}_s).$$

`query` has the shape $(B, T, Q)$, `key` $(B, S, K)$, `W` $(F, Q)$, `U` $(F, K)$ and `v` $(F)$.
Return the scores $(B, T, S)$: no softmax yet.
""",
    reference=_additive,
    right=[_additive_by_einsum, _additive_by_loops, _by_concatenation],
    cases=[
        Case(
            "scores",
            _asked,
            hint="Give query and key an axis for each other, (B, T, 1, F) and (B, 1, S, F), and "
            "add them.",
        ),
        Case(
            "gradients",
            _asked,
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "no tanh",
            _scored(bend=lambda x: x),
            "Without the tanh the query adds the same number to all keys of its row, and the "
            "softmax takes that away again: every query would look at the same place.",
        ),
        Wrong(
            "two networks",
            lambda query, key, W, U, v: (
                (torch.tanh(query @ W.T) @ v)[:, :, None] + (torch.tanh(key @ U.T) @ v)[:, None]
            ),
            "Add first, then tanh: query and key must meet inside of it.",
        ),
        Wrong(
            "multiplied instead of added",
            _scored(join=torch.mul),
            "The additive score adds W q and U k.",
        ),
        Wrong(
            "ReLU for tanh",
            _scored(bend=torch.relu),
            "The bend of this score is the tanh.",
        ),
        Wrong(
            "softmax taken already",
            _scored(after=lambda scores: scores.softmax(-1)),
            "Return the scores themselves: the softmax comes after the mask.",
        ),
        Wrong(
            "keys before queries",
            _scored(after=lambda scores: scores.transpose(1, 2)),
            "Rows belong to queries, columns to keys: the shape is (B, T, S).",
        ),
        Wrong(
            "largest score taken away",
            _scored(after=_largest_away),
            "That is the softmax's first step. Here the scores themselves are wanted.",
        ),
        Wrong(
            "divided by the root of the width",
            lambda query, key, W, U, v: _additive(query, key, W, U, v) / len(v) ** 0.5,
            "The scale belongs to the dot product. The additive score has none.",
        ),
        Wrong(
            "keys without gradient",
            lambda query, key, W, U, v: _additive(query, key.detach(), W, U, v),
            ".data and .detach() cut the gradient off: the encoder would learn nothing from it.",
        ),
    ],
)

# dot_score

Dot = Callable[[Tensor, Tensor], Tensor]


def _dot(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5


def _dot_by_einsum(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("btk,bsk->bts", query, key) * query.shape[-1] ** -0.5


def _dotted(scale: Callable[[Tensor, Tensor], float]) -> Dot:
    """The dot product with another scale."""
    return lambda query, key: query @ key.transpose(1, 2) * scale(query, key)


def _compared(draw: Draw) -> tuple[Tensor, Tensor]:
    B, T, S, K = draw.sizes(4, 2, 9)
    return draw.normal(B, T, K), draw.normal(B, S, K)


DOT_SCORE = Exercise(
    name="dot_score",
    chapter=5,
    points=2,
    signature="dot_score(query, key)",
    statement=r"""
The other score: the dot product of query and key, scaled by the root of their width,

$$e_{ts} = \frac{\mathbf{q}_t \cdot \mathbf{k}_s}{\sqrt{K}}.$$

`query` has the shape $(B, T, K)$, `key` $(B, S, K)$. Return the scores $(B, T, S)$: all of them in
one matrix product for each text, without softmax.
""",
    reference=_dot,
    right=[_dot_by_einsum, lambda query, key: torch.bmm(query * query.shape[2] ** -0.5, key.mT)],
    cases=[
        Case("scores", _compared, hint="query @ key with its last two axes exchanged."),
        Case(
            "gradients",
            _compared,
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "not scaled",
            _dotted(lambda query, key: 1.0),
            "Divide by the root of the width K, or the scores grow with it.",
        ),
        Wrong(
            "divided by the width",
            _dotted(lambda query, key: 1 / query.shape[-1]),
            "Divide by the root of K, not by K.",
        ),
        Wrong(
            "multiplied by the root",
            _dotted(lambda query, key: query.shape[-1] ** 0.5),
            "Divide by the root of K.",
        ),
        Wrong(
            "scaled by the number of keys",
            _dotted(lambda query, key: key.shape[1] ** -0.5),
            "The width of the vectors decides, not how many there are.",
        ),
        Wrong(
            "keys before queries",
            lambda query, key: _dot(query, key).transpose(1, 2),
            "Rows belong to queries, columns to keys: the shape is (B, T, S).",
        ),
        Wrong(
            "cosine",
            lambda query, key: (
                torch.nn.functional.normalize(query, dim=-1)
                @ torch.nn.functional.normalize(key, dim=-1).mT
            ),
            "The lengths of the vectors count: a dot product, not the cosine of the angle.",
        ),
        Wrong(
            "softmax taken already",
            lambda query, key: _dot(query, key).softmax(-1),
            "Return the scores themselves: the softmax comes after the mask.",
        ),
        Wrong(
            "largest score taken away",
            lambda query, key: _largest_away(_dot(query, key)),
            "That is the softmax's first step. Here the scores themselves are wanted.",
        ),
        Wrong(
            "queries without gradient",
            lambda query, key: _dot(query.detach(), key),
            ".data and .detach() cut the gradient off: the decoder would not learn what to ask.",
        ),
    ],
)

# context_vector

Context = Callable[[Tensor, Tensor, Tensor], Tensor]


def _context(scores: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    mask = padding_mask(lengths, scores.shape[1])[:, 0, 0]  # (B, S)
    weights = masked_softmax(scores[:, None], mask[:, None])  # (B, 1, S)
    return (weights @ values)[:, 0]


def _by_multiplying(scores: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(scores.shape[1]) < lengths[:, None]
    exp = torch.exp(scores - scores.masked_fill(~real, -1e30).amax(1, keepdim=True)) * real
    exp = torch.where(real, exp, 0.0)
    return ((exp / exp.sum(1, keepdim=True))[..., None] * values).sum(1)


def _text_by_text(scores: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack(
        [torch.softmax(s[:n], 0) @ v[:n] for s, v, n in zip(scores, values, lengths, strict=True)]
    )


def _weighted(change: Callable[[Tensor, Tensor], Tensor]) -> Context:
    """The mean of the values with weights made by ``change`` from the scores and the mask."""

    def context_vector(scores: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(scores.shape[1]) < lengths[:, None]  # (B, S)
        return (change(scores, real)[:, None] @ values)[:, 0]

    return context_vector


def _hidden(scores: Tensor, real: Tensor) -> Tensor:
    return scores.masked_fill(~real, float("-inf"))


def _read(draw: Draw, padded: bool, height: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    B, S, E = draw.size(3, 5), draw.size(6, 9), draw.size(2, 9)
    lengths = torch.full((B,), S)
    if padded:
        lengths = 2 + torch.arange(B) % (S - 2)
    return height * draw.normal(B, S), draw.normal(B, S, E), lengths


CONTEXT_VECTOR = Exercise(
    name="context_vector",
    chapter=5,
    points=4,
    signature="context_vector(scores, values, lengths)",
    statement=r"""
What one query of each text finds. `scores` has the shape $(B, S)$, `values` $(B, S, E)$; of
text $b$ only the first `lengths[b]` places are real (one at least), the rest is padding. With the
softmax over the real places,

$$\alpha_{s} = \frac{e^{e_s}}{\sum_{s' \text{ real}} e^{e_{s'}}}, \qquad
\mathbf{c} = \sum_{s} \alpha_s \mathbf{v}_s,$$

return $\mathbf{c}$ for each text, $(B, E)$. Padding has weight 0, whatever stands there. Scores may
be as large as 1,000.
""",
    reference=_context,
    right=[_text_by_text, _by_multiplying],
    cases=[
        Case(
            "padding",
            lambda draw: _read(draw, True),
            hint="Hide padding before the softmax, scores.masked_fill(~real, -inf); then take the "
            "weighted sum of the values.",
        ),
        Case(
            "large scores",
            lambda draw: _read(draw, False, height=400.0),
            hint="exp(1000) is infinite: take away the largest real score first, or use softmax.",
        ),
        Case(
            "gradients",
            lambda draw: _read(draw, False),
            hint="Leave out .data, .detach(), .item(), torch.tensor(...) and NumPy.",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "no mask",
            _weighted(lambda scores, real: scores.softmax(1)),
            "Padding gets a share of the weight: hide it before the softmax.",
        ),
        Wrong(
            "mask turned round",
            _weighted(lambda scores, real: scores.masked_fill(real, -1e30).softmax(1)),
            "You hid what is real, and looked at the padding. Turn the mask round.",
        ),
        Wrong(
            "mask after the softmax",
            _weighted(lambda scores, real: scores.softmax(1) * real),
            "The weights no longer sum to 1: hide padding before the softmax, or divide again.",
        ),
        Wrong(
            "padding scored 0",
            _weighted(lambda scores, real: (scores * real).softmax(1)),
            "A score of 0 is not weight 0: its exp is 1. Hide padding with -inf.",
        ),
        Wrong(
            "one place too few",
            lambda scores, values, lengths: _context(scores, values, lengths - 1),
            "The places 0 to lengths[b] - 1 are real: place < length, not place < length - 1.",
        ),
        Wrong(
            "softmax over the batch",
            _weighted(lambda scores, real: scores.softmax(0) * real),
            "Each text has a softmax of its own: the sum runs over its places, axis 1.",
        ),
        Wrong(
            "exp overflows",
            _weighted(lambda scores, real: (e := torch.exp(scores) * real) / e.sum(1, True)),
            "exp of a large score is infinite: take away the largest score of each text first.",
        ),
        Wrong(
            "only the best place",
            lambda scores, values, lengths: torch.stack(
                [v[s[:n].argmax()] for s, v, n in zip(scores, values, lengths, strict=True)]
            ),
            "All real places count, by their weights. To look at one alone has no gradient.",
        ),
        Wrong(
            "an even mean",
            _weighted(lambda scores, real: real / real.sum(1, keepdim=True) + 0 * scores),
            "The scores decide: softmax them.",
        ),
        Wrong(
            "scores without gradient",
            _weighted(lambda scores, real: _hidden(scores.detach(), real).softmax(1)),
            ".data and .detach() cut the gradient off: where to look could never be learned.",
        ),
    ],
)

EXERCISES: tuple[Any, ...] = (TEACHER_FORCING_INPUTS, ADDITIVE_SCORE, DOT_SCORE, CONTEXT_VECTOR)

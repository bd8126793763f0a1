"""The exercises of chapter 3: text as numbers."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tutorial_lib import embeddings, tokens
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, gradients

# byte_pair_step

Step = tuple[tuple[int, int], list[int]]


def _step(
    count: Callable[[Sequence[int]], Counter[tuple[int, int]]] = lambda ids: Counter(
        itertools.pairwise(ids)
    ),
    rank: Callable[[tuple[int, int], int], Any] = lambda pair, times: (-times, pair),
    join: Callable[[Sequence[int], tuple[int, int], int], Sequence[int]] = tokens.join,
) -> Callable[[Sequence[int], int], Step]:
    """One step of the encoder, with one of its three parts changed."""

    def byte_pair_step(ids: Sequence[int], new: int) -> Step:
        counts = count(ids)
        best = min(counts, key=lambda pair: rank(pair, counts[pair]))
        return best, list(join(ids, best, new))

    return byte_pair_step


def _reference_step(ids: Sequence[int], new: int) -> Step:
    pair, _ = next(tokens.learn_merges_slowly({bytes(ids): 1}, 1))
    return pair, list(tokens.join(ids, pair, new))


def _by_sorting(ids: list[int], new: int) -> Step:
    """The pairs sorted, the longest run taken; the ids joined on a stack."""
    runs = [(k, len(list(g))) for k, g in itertools.groupby(sorted(itertools.pairwise(ids)))]
    pair = max(runs, key=lambda run: run[1])[0]
    joined: list[int] = []
    for i in ids:
        if joined and (joined[-1], i) == pair:
            joined[-1] = new
        else:
            joined.append(i)
    return pair, joined


def _join_from_the_right(ids: Sequence[int], pair: tuple[int, int], new: int) -> list[int]:
    return list(tokens.join(ids[::-1], pair[::-1], new))[::-1]


def _join_once(ids: Sequence[int], pair: tuple[int, int], new: int) -> list[int]:
    at = list(itertools.pairwise(ids)).index(pair)
    return [*ids[:at], new, *ids[at + 2 :]]


def _join_and_keep_the_second(ids: Sequence[int], pair: tuple[int, int], new: int) -> list[int]:
    places = list(itertools.pairwise(ids))
    return [new if here == pair else i for i, here in zip(ids, [*places, None], strict=True)]


def _unordered(ids: Sequence[int]) -> Counter[tuple[int, int]]:
    counts = Counter(itertools.pairwise(ids))
    return Counter({(a, b): counts[a, b] + counts[b, a] for a, b in counts})


def _side_by_side(ids: Sequence[int]) -> Counter[tuple[int, int]]:
    return Counter(zip(ids[::2], ids[1::2], strict=False))


def _woven(draw: Draw, *parts: Sequence[int]) -> list[int]:
    """The parts in random order, ids of their own between them; each pair at an odd place."""
    fresh = iter((50 + draw.order(40)).tolist())
    row: list[int] = []
    for part in draw.order(len(parts)).tolist():
        row += [next(fresh), *parts[part]]
        row += [next(fresh)] if len(row) % 2 else []
    return row


def _different(draw: Draw, count: int) -> list[int]:
    return sorted((1 + draw.order(40)[:count]).tolist())


def _one_winner(draw: Draw) -> tuple[list[int], int]:
    """One pair three times; two others, each the other turned round, twice each."""
    a, b, c, d = _different(draw, 4)
    return _woven(draw, *[[c, d]] * 3, *[[a, b], [b, a]] * 2), draw.integer(256, 400)


def _tie(draw: Draw) -> tuple[list[int], int]:
    """Three pairs three times each: first neither the smallest nor the largest of them."""
    a, b, c, d = _different(draw, 4)
    rows = (_woven(draw, *[[first, d]] * 3) for first in (b, c, a))
    return [*itertools.chain(*rows)], draw.integer(256, 400)


def _repeated(draw: Draw) -> tuple[list[int], int]:
    """Runs of three of the same id."""
    (a,) = _different(draw, 1)
    return _woven(draw, *[[a, a, a]] * 2, [a, a]), draw.integer(256, 400)


BYTE_PAIR_STEP = Exercise(
    name="byte_pair_step",
    chapter=3,
    points=3,
    signature="byte_pair_step(ids, new)",
    statement=r"""
One step of byte-pair encoding. `ids` is a list of whole numbers. Find the pair of neighbors that
occurs most often; of equally frequent pairs take the smallest, as Python compares tuples. Then go
from left to right and write `new` wherever the pair stands. Return the pair and the new list:
`((a, b), [...])`.

In a run such as `5, 5, 5` the pair `(5, 5)` is counted twice, but only the first two are joined.
""",
    reference=_reference_step,
    right=[_by_sorting, _step()],
    cases=[
        Case(
            "pairs and the same turned round",
            _one_winner,
            hint="Count (ids[i], ids[i + 1]) for every i, and replace all places of the winner.",
        ),
        Case(
            "a tie",
            _tie,
            hint="Of equally frequent pairs take the smallest: min(..., key=lambda p: (-n[p], p)).",
        ),
        Case(
            "runs of one id",
            _repeated,
            hint="After joining two ids go on behind both of them.",
        ),
    ],
    wrong=[
        Wrong(
            "first of equals taken",
            _step(rank=lambda pair, times: -times),
            "Counter.most_common and max take the pair that was met first; "
            "of equally frequent pairs the smallest is wanted.",
        ),
        Wrong(
            "largest of equals taken",
            _step(rank=lambda pair, times: (-times, -pair[0], -pair[1])),
            "max((count, pair)) takes the largest of equally frequent pairs: take the smallest.",
        ),
        Wrong(
            "rarest pair taken",
            _step(rank=lambda pair, times: (times, pair)),
            "Take the pair with the largest count, not the smallest.",
        ),
        Wrong(
            "order within the pair ignored",
            _step(count=_unordered),
            "(a, b) and (b, a) are two different pairs.",
        ),
        Wrong(
            "pairs counted in steps of two",
            _step(count=_side_by_side),
            "Pairs overlap: count (ids[i], ids[i + 1]) for every i, not for every second one.",
        ),
        Wrong(
            "joined only once",
            _step(join=_join_once),
            "Replace the pair at every place, not the first alone.",
        ),
        Wrong(
            "second id kept",
            _step(join=_join_and_keep_the_second),
            "`new` stands for both ids: after it go on two places further.",
        ),
        Wrong(
            "joined from the right",
            _step(join=_join_from_the_right),
            "Go from left to right: in 5, 5, 5 the first two are joined.",
        ),
    ],
)

# witten_bell


def _interpolated(
    counts: Tensor,
    lower: Tensor,
    kinds: Callable[[Tensor], Tensor] = lambda counts: (counts > 0).sum(-1, keepdim=True),
    unseen: Callable[[Tensor], Tensor] = lambda lower: lower,
) -> Tensor:
    """The definition, with one of its parts changed."""
    total, N = counts.sum(-1, keepdim=True), kinds(counts)
    mixed = (counts + N * lower) / (total + N).clamp(min=1)
    return torch.where(total > 0, mixed, unseen(lower))


def _row_by_row(counts: Tensor, lower: Tensor) -> Tensor:
    rows = []
    for row in counts:
        c, N = float(row.sum()), int((row != 0).sum())
        weight = c / (c + N) if c else 0.0
        rows.append(weight * row / max(c, 1) + (1 - weight) * lower)
    return torch.stack(rows)


def _with_small_floor(counts: Tensor, lower: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    rest = torch.where(total > 0, (counts > 0).sum(-1, keepdim=True) / (total + 1e-30), 1.0)
    share = counts / total.clamp(min=1)
    rest = rest / (1 + rest) * torch.where(total > 0, 1.0, 2.0)
    return (1 - rest) * share + rest * lower


def _backed_off(counts: Tensor, lower: Tensor) -> Tensor:
    """The lower order only where the count is 0."""
    total, N = counts.sum(-1, keepdim=True), (counts > 0).sum(-1, keepdim=True)
    share, rest = counts / (total + N).clamp(min=1), N / (total + N).clamp(min=1)
    return torch.where(total > 0, torch.where(counts > 0, share, rest * lower), lower)


def _shares_turned_round(counts: Tensor, lower: Tensor) -> Tensor:
    total, N = counts.sum(-1, keepdim=True), (counts > 0).sum(-1, keepdim=True)
    whole = (total + N).clamp(min=1)
    mixed = N / whole * counts / total.clamp(min=1) + total / whole * lower
    return torch.where(total > 0, mixed, lower)


def _added_one(counts: Tensor, lower: Tensor) -> Tensor:
    return (counts + 1) / (counts + 1).sum(-1, keepdim=True)


def _without_a_guard(counts: Tensor, lower: Tensor) -> Tensor:
    total, N = counts.sum(-1, keepdim=True), (counts > 0).sum(-1, keepdim=True)
    return (counts + N * lower) / (total + N)


def _seen(draw: Draw) -> tuple[Tensor, Tensor]:
    """Counts with zeros and larger numbers in each row, none of the rows empty."""
    C, V = draw.size(3, 5), draw.size(7, 9)
    counts = (draw.labels(C * V, 5).reshape(C, V) - 1).clamp(min=0).float()
    counts[:, 0], counts[:, 1], counts[:, 2] = 2 + torch.arange(C), 3.0, 0.0
    return counts, torch.softmax(draw.normal(V), 0)


def _whole_numbers(draw: Draw) -> tuple[Tensor, Tensor]:
    counts, lower = _seen(draw)
    return counts.long(), lower


def _with_an_empty_row(draw: Draw) -> tuple[Tensor, Tensor]:
    counts, lower = _seen(draw)
    counts[draw.integer(0, len(counts) - 1)] = 0
    return counts, lower


WITTEN_BELL = Exercise(
    name="witten_bell",
    chapter=3,
    points=3,
    signature="witten_bell(counts, lower)",
    statement=r"""
Interpolation after Witten and Bell. `counts` has the shape $(C, V)$: how often each of $V$ tokens
followed each of $C$ contexts. `lower` $(V)$ is the distribution of the order below. Return the
distributions $(C, V)$

$$p(w \mid h) = \frac{c(hw) + N(h)\, p_\text{lower}(w)}{c(h) + N(h)}$$

where $c(h)$ is the sum of the counts of the context and $N(h)$ the number of *different* tokens
that followed it. A context that was never seen gets `lower` as it is. Each row then has the sum 1.
""",
    reference=_interpolated,
    right=[_row_by_row, _with_small_floor],
    cases=[
        Case(
            "counts as whole numbers",
            _whole_numbers,
            hint="N(h) counts the tokens whose count in the row is above 0. The result is floats.",
        ),
        Case(
            "a context that was never seen",
            _with_an_empty_row,
            hint="Where all counts of a row are 0, return `lower`: 0 / 0 is not a number.",
        ),
    ],
    wrong=[
        Wrong(
            "0 divided by 0",
            _without_a_guard,
            "A context without counts gives 0 / 0: return `lower` there.",
        ),
        Wrong(
            "rounded to whole numbers",
            lambda counts, lower: _interpolated(counts, lower).to(counts.dtype),
            "zeros_like(counts) holds whole numbers where counts does: make the result as floats.",
        ),
        Wrong(
            "zeros for an unseen context",
            lambda counts, lower: _interpolated(counts, lower, unseen=torch.zeros_like),
            "The row of an unseen context must be `lower`, and have the sum 1 like every other.",
        ),
        Wrong(
            "even guess for an unseen context",
            lambda counts, lower: _interpolated(
                counts, lower, unseen=lambda lower: torch.full_like(lower, 1 / len(lower))
            ),
            "The order below knows more than an even guess: return `lower`.",
        ),
        Wrong(
            "vocabulary counted for N",
            lambda counts, lower: _interpolated(
                counts, lower, kinds=lambda counts: torch.full_like(counts[:, :1], counts.shape[1])
            ),
            "N(h) is how many different tokens followed h, not how many there are.",
        ),
        Wrong(
            "tokens seen once counted for N",
            lambda counts, lower: _interpolated(
                counts, lower, kinds=lambda counts: (counts == 1).sum(-1, keepdim=True)
            ),
            "N(h) counts all tokens with a count above 0, not those that were seen once.",
        ),
        Wrong(
            "N over all contexts",
            lambda counts, lower: _interpolated(
                counts, lower, kinds=lambda counts: (counts > 0).sum()
            ),
            "N(h) belongs to one context: sum over the last axis, with keepdim=True.",
        ),
        Wrong(
            "lower order only where the count is 0",
            _backed_off,
            "Interpolation mixes the order below into every token, the seen ones included.",
        ),
        Wrong(
            "weights turned round",
            _shares_turned_round,
            "The counts get the weight c / (c + N), the order below N / (c + N).",
        ),
        Wrong(
            "one added to each count",
            _added_one,
            "This is Laplace's rule. Here the order below fills the gaps, N(h) times.",
        ),
    ],
)

# skip_gram_pairs


def _pairs(
    near: Callable[[int, int, int], bool] = lambda i, j, window: 0 < abs(i - j) <= window,
    row: Callable[[int, int], tuple[int, int]] = lambda center, other: (center, other),
) -> Callable[[Tensor, int], Tensor]:
    """Every place with every place that is ``near`` to it."""

    def skip_gram_pairs(ids: Tensor, window: int) -> Tensor:
        places = range(len(ids))
        found = [row(i, j) for i in places for j in places if near(i, j, window)]
        return ids[torch.tensor(found, dtype=torch.int64).reshape(-1, 2)]

    return skip_gram_pairs


def _around_the_ends(ids: Tensor, window: int) -> Tensor:
    found = [
        (i, (i + step) % len(ids))
        for i in range(len(ids))
        for step in range(-window, window + 1)
        if step
    ]
    return ids[torch.tensor(found)]


def _whole_windows_alone(ids: Tensor, window: int) -> Tensor:
    places = range(window, len(ids) - window)
    found = [(i, j) for i in places for j in range(i - window, i + window + 1) if i != j]
    return ids[torch.tensor(found, dtype=torch.int64).reshape(-1, 2)]


def _without_equal_words(ids: Tensor, window: int) -> Tensor:
    """The center left out by its word, not by its place."""
    pairs = embeddings.skip_gram_pairs(ids, window)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _places_for_words(ids: Tensor, window: int) -> Tensor:
    return embeddings.skip_gram_pairs(torch.arange(len(ids)), window)


def _slices(ids: Tensor, window: int) -> Tensor:
    return _slices_without_a_shape(ids, window).reshape(-1, 2)


def _slices_without_a_shape(ids: Tensor, window: int) -> Tensor:
    words, pairs = ids.tolist(), []
    for i, word in enumerate(words):
        around = words[max(0, i - window) : i] + words[i + 1 : i + 1 + window]
        pairs += [[word, other] for other in around]
    return torch.tensor(pairs, dtype=torch.int64)


def _slices_from_below_zero(ids: Tensor, window: int) -> Tensor:
    words, pairs = ids.tolist(), []
    for i, word in enumerate(words):
        around = words[i - window : i] + words[i + 1 : i + 1 + window]
        pairs += [(word, other) for other in around]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


def _words(draw: Draw) -> tuple[Tensor, int]:
    """Different words, but for one that stands twice in a row."""
    T = draw.size(9, 13)
    ids, at = 20 + draw.order(60)[:T], draw.integer(3, T - 4)
    ids[at + 1] = ids[at]
    return ids, draw.integer(2, 3)


SKIP_GRAM_PAIRS = Exercise(
    name="skip_gram_pairs",
    chapter=3,
    points=2,
    signature="skip_gram_pairs(ids, window)",
    statement=r"""
What skip-gram learns from: each word with each of its neighbors. `ids` $(T)$ holds whole numbers.
Return a tensor $(N, 2)$ with one row (center, neighbor) for each neighbor at most `window` places
to the left or right of the center. Centers come in the order of the text, and for each of them its
neighbors from left to right. At the ends of the text there are fewer neighbors.
""",
    reference=embeddings.skip_gram_pairs,
    right=[_pairs(), _slices],
    cases=[
        Case(
            "a text",
            _words,
            hint="For center i the neighbors stand at max(0, i - window) to i + window, without i.",
        ),
        Case(
            "one word alone",
            lambda draw: (20 + draw.order(60)[:1], draw.integer(2, 3)),
            hint="Without any pair the result still has two columns: its shape is (0, 2).",
        ),
    ],
    wrong=[
        Wrong(
            "equal words left out",
            _without_equal_words,
            "The neighbor may be the same word again: compare places, not ids.",
        ),
        Wrong(
            "no columns without a pair",
            _slices_without_a_shape,
            "torch.tensor([]) has the shape (0,): give it two columns, .reshape(-1, 2).",
        ),
        Wrong(
            "slice from below 0",
            _slices_from_below_zero,
            "ids[i - window:i] is empty where i - window is negative: start at max(0, i - window).",
        ),
        Wrong(
            "center paired with itself",
            _pairs(near=lambda i, j, window: abs(i - j) <= window),
            "A word is not its own neighbor: leave out the center's place.",
        ),
        Wrong(
            "right side alone",
            _pairs(near=lambda i, j, window: 0 < j - i <= window),
            "Neighbors stand on either side of the center.",
        ),
        Wrong(
            "left side alone",
            _pairs(near=lambda i, j, window: 0 < i - j <= window),
            "Neighbors stand on either side of the center.",
        ),
        Wrong(
            "window one too small",
            _pairs(near=lambda i, j, window: 0 < abs(i - j) < window),
            "The neighbor `window` places away still counts: range stops one before its end.",
        ),
        Wrong(
            "window one too large",
            _pairs(near=lambda i, j, window: 0 < abs(i - j) <= window + 1),
            "At most `window` places to either side.",
        ),
        Wrong(
            "neighbor before center",
            _pairs(row=lambda center, other: (other, center)),
            "A row is (center, neighbor), in this order.",
        ),
        Wrong(
            "around the ends",
            _around_the_ends,
            "A negative place counts from the end of the text in Python: stop at place 0.",
        ),
        Wrong(
            "ends left out",
            _whole_windows_alone,
            "Centers near the ends of the text count too, with the neighbors they have.",
        ),
        Wrong(
            "places for words",
            _places_for_words,
            "Return the ids at those places, not the places.",
        ),
    ],
)

# negative_sampling


def _negative_sampling(center: Tensor, neighbor: Tensor, noise: Tensor) -> Tensor:
    true = (center * neighbor).sum(-1)  # (B,)
    false = (noise @ center[:, :, None]).squeeze(2)  # (B, K)
    return -(F.logsigmoid(true) + F.logsigmoid(-false).sum(1)).mean()


def _as_cross_entropy(center: Tensor, neighbor: Tensor, noise: Tensor) -> Tensor:
    scores = torch.einsum("bd,bkd->bk", center, torch.cat([neighbor[:, None], noise], 1))
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum") / len(center)


def _as_softplus(center: Tensor, neighbor: Tensor, noise: Tensor) -> Tensor:
    wrong = torch.einsum("bd,bkd->b k", center, noise)
    return (F.softplus(-(center * neighbor).sum(1)) + F.softplus(wrong).sum(1)).mean()


def _loss(
    of: Callable[[Tensor, Tensor], Tensor], scale: float = 1.0
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A loss of the scores of the neighbors ``(B,)`` and of the noise ``(B, K)``."""

    def negative_sampling(center: Tensor, neighbor: Tensor, noise: Tensor) -> Tensor:
        return of(
            scale * (center * neighbor).sum(-1), scale * (noise @ center[:, :, None])[:, :, 0]
        )

    return negative_sampling


def _vectors(draw: Draw, size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    B, K, D = draw.sizes(3, 3, 8)
    return size * draw.normal(B, D), draw.normal(B, D), draw.normal(B, K, D)


NEGATIVE_SAMPLING = Exercise(
    name="negative_sampling",
    chapter=3,
    points=3,
    signature="negative_sampling(center, neighbor, noise)",
    statement=r"""
The loss of skip-gram. `center` $(B, D)$ and `neighbor` $(B, D)$ are the vectors of words that met
in the text, `noise` $(B, K, D)$ those of words drawn at random. With the sigmoid $\sigma$,

$$L = -\frac{1}{B} \sum_b \Big( \ln \sigma(\mathbf{v}_b \cdot \mathbf{u}_b)
+ \sum_k \ln \sigma(-\mathbf{v}_b \cdot \mathbf{n}_{bk}) \Big).$$

Return one number. It must be finite for large scores as well.
""",
    reference=_negative_sampling,
    right=[_as_cross_entropy, _as_softplus],
    cases=[
        Case(
            "large and small scores",
            lambda draw: _vectors(draw, 300.0),
            hint="Sum over the noise words, take the mean over the batch; use logsigmoid.",
        ),
        Case(
            "gradients",
            _vectors,
            hint="All three vectors learn: leave out .data, .detach() and torch.no_grad().",
            observe=gradients,
        ),
    ],
    wrong=[
        Wrong(
            "logarithm of a rounded sigmoid",
            _loss(
                lambda true, false: (
                    -(true.sigmoid().log() + (1 - false.sigmoid()).log().sum(1)).mean()
                )
            ),
            "The sigmoid of a large negative score rounds to 0, and its logarithm is -inf: "
            "use torch.nn.functional.logsigmoid.",
        ),
        Wrong(
            "noise without gradient",
            lambda center, neighbor, noise: (
                _negative_sampling(center, neighbor, noise.detach()) + 0 * noise.sum()
            ),
            "The vectors of the noise words learn too: leave out .detach().",
        ),
        Wrong(
            "noise pulled closer",
            _loss(lambda true, false: -(F.logsigmoid(true) + F.logsigmoid(false).sum(1)).mean()),
            "The score of a noise word gets a minus inside the sigmoid: it should be small.",
        ),
        Wrong(
            "mean over the noise words",
            _loss(lambda true, false: -(F.logsigmoid(true) + F.logsigmoid(-false).mean(1)).mean()),
            "Sum over the K noise words; the mean is over the batch alone.",
        ),
        Wrong(
            "sum over the batch",
            _loss(lambda true, false: -(F.logsigmoid(true) + F.logsigmoid(-false).sum(1)).sum()),
            "Take the mean over the B pairs.",
        ),
        Wrong(
            "sign forgotten",
            _loss(lambda true, false: (F.logsigmoid(true) + F.logsigmoid(-false).sum(1)).mean()),
            "A loss falls when things get better: put a minus before the logarithms.",
        ),
        Wrong(
            "noise left out",
            _loss(lambda true, false: -F.logsigmoid(true).mean() + 0 * false.sum()),
            "Without noise words all vectors could grow alike, and the loss would be 0.",
        ),
        Wrong(
            "softmax over the candidates",
            _loss(
                lambda true, false: (
                    -torch.cat([true[:, None], false], 1).log_softmax(1)[:, 0].mean()
                )
            ),
            "Each candidate is a yes or no question of its own: a sigmoid, not a softmax.",
        ),
        Wrong(
            "scores divided by the width",
            lambda center, neighbor, noise: _negative_sampling(
                center / center.shape[1] ** 0.5, neighbor, noise
            ),
            "The score is the plain dot product, without a division by the root of D.",
        ),
    ],
)

# bits_per_character


def _bits(logits: Tensor, targets: Tensor, num_characters: int) -> Tensor:
    nats = F.cross_entropy(logits, targets, reduction="sum", ignore_index=-100)
    return nats / math.log(2) / num_characters


def _bits_token_by_token(logits: Tensor, targets: Tensor, num_characters: int) -> float:
    probability = torch.softmax(logits.double(), 1)
    told = [-math.log2(p[t]) for p, t in zip(probability, targets.tolist(), strict=True) if t >= 0]
    return sum(told) / num_characters


def _bits_by_perplexity(logits: Tensor, targets: Tensor, num_characters: int) -> Tensor:
    kept = targets != -100
    perplexity = F.cross_entropy(logits[kept], targets[kept]).double().exp()
    return perplexity.log2() * kept.sum() / num_characters


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="sum")


def _guesses(draw: Draw) -> tuple[Tensor, Tensor, int]:
    T, V = draw.size(7, 9), draw.size(4, 6)
    return 2 * draw.normal(T, V), draw.labels(T, V), draw.integer(3 * T, 4 * T)


def _padded(draw: Draw) -> tuple[Tensor, Tensor, int]:
    logits, targets, num_characters = _guesses(draw)
    targets[-draw.integer(2, 4) :] = -100
    return logits, targets, num_characters


BITS_PER_CHARACTER = Exercise(
    name="bits_per_character",
    chapter=3,
    points=2,
    signature="bits_per_character(logits, targets, num_characters)",
    statement=r"""
How many bits does a text cost, for each of its characters? `logits` $(T, V)$ are a model's scores
at each of $T$ tokens, `targets` $(T)$ the tokens that came, and -100 marks padding, which does not
count. The tokens may be of any length; the text has `num_characters` characters in all:

$$\frac{1}{\text{characters}} \sum_{t\,:\,\text{target}_t \neq -100} -\log_2 p_t(\text{target}_t)$$

Return one number.
""",
    reference=_bits,
    right=[_bits_token_by_token, _bits_by_perplexity],
    cases=[
        Case(
            "large scores",
            lambda draw: (100 * draw.normal(5, 8), draw.labels(5, 8), draw.integer(15, 20)),
            hint="exp overflows: use log_softmax, or F.cross_entropy, which does.",
        ),
        Case(
            "padding",
            _padded,
            hint="Sum over the targets other than -100, then divide by ln 2 and the characters.",
        ),
    ],
    wrong=[
        Wrong(
            "padding counted as token 0",
            lambda logits, targets, n: _bits(logits, targets.clamp(min=0), n),
            "A place with the target -100 does not count at all.",
        ),
        Wrong(
            "padding counted as the last token",
            lambda logits, targets, n: _bits(
                logits, targets.where(targets >= 0, logits.shape[1] - 1), n
            ),
            "A negative index counts from the end in Python: leave those places out.",
        ),
        Wrong(
            "softmax that overflows",
            lambda logits, targets, n: (
                -(logits.exp() / logits.exp().sum(1, keepdim=True))
                .log2()
                .gather(1, targets.clamp(min=0)[:, None])[targets >= 0]
                .sum()
                / n
            ),
            "exp of a large score is infinite: use log_softmax, which moves the largest to 0.",
        ),
        Wrong(
            "nats for bits",
            lambda logits, targets, n: _nll(logits, targets) / n,
            "PyTorch's logarithms are natural ones: divide by ln 2.",
        ),
        Wrong(
            "multiplied by ln 2",
            lambda logits, targets, n: _nll(logits, targets) * math.log(2) / n,
            "One nat is 1 / ln 2 = 1.44 bits: divide by ln 2.",
        ),
        Wrong(
            "divided by the tokens",
            lambda logits, targets, n: F.cross_entropy(logits, targets) / math.log(2),
            "Bits per token depend on how long tokens are: divide by the characters.",
        ),
        Wrong(
            "mean before the division",
            lambda logits, targets, n: F.cross_entropy(logits, targets) / math.log(2) / n,
            'F.cross_entropy takes a mean by default: use reduction="sum".',
        ),
        Wrong(
            "perplexity",
            lambda logits, targets, n: F.cross_entropy(logits, targets).exp(),
            "This is the perplexity, exp of the mean: the bits are its logarithm.",
        ),
        Wrong(
            "sign forgotten",
            lambda logits, targets, n: -_bits(logits, targets, n),
            "Logarithms of probabilities are negative: turn the sign.",
        ),
        Wrong(
            "scores taken for logarithms",
            lambda logits, targets, n: (
                F.nll_loss(logits, targets, reduction="sum") / math.log(2) / n
            ),
            "Logits are scores: take log_softmax first.",
        ),
        Wrong(
            "logarithm to the base of 10",
            lambda logits, targets, n: _nll(logits, targets) / math.log(10) / n,
            "Bits have the base 2.",
        ),
    ],
)

EXERCISES = (BYTE_PAIR_STEP, WITTEN_BELL, BITS_PER_CHARACTER, SKIP_GRAM_PAIRS, NEGATIVE_SAMPLING)

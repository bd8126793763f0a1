"""Vectors for words, learned from the words around them: skip-gram (chapter 3).

A word is known by its company. :class:`SkipGram` learns two vectors for each word, one for when it
stands in the middle and one for when it stands beside another, so that their dot product is large
for words that meet in the text and small for words drawn at random.
"""

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from tutorial_lib import _check


def subsample(
    ids: Int[Tensor, " T"], threshold: float = 1e-3, generator: torch.Generator | None = None
) -> Int[Tensor, " t"]:
    """Leave out frequent words at random: "the" stands beside everything, and says little.

    A word that makes up the share f of the text is kept with probability sqrt(threshold / f), at
    most 1.

    Args:
        ids: the text, ``(T,)``.
        threshold: the share up to which a word is always kept.
        generator: the source of the random numbers, on the CPU; PyTorch's own unless given.

    Returns:
        The ids that are kept, in their order.

    Raises:
        TypeError: if ``ids`` is no tensor of whole numbers or ``threshold`` no number.
        ValueError: if ``ids`` has not one axis, an id is negative or ``threshold`` is not above 0.

    Source: Mikolov et al. 2013, section 2.3.

    Example:
        >>> text = torch.tensor([0] * 900 + [1])
        >>> kept = subsample(text, 0.01, torch.Generator().manual_seed(0))
        >>> (kept == 0).sum().item(), (kept == 1).sum().item()
        (85, 1)
    """
    _text(ids)
    _check.number("threshold", threshold)
    if threshold == 0:
        raise ValueError(f"threshold must be above 0, got {threshold}")
    share = torch.bincount(ids) / max(len(ids), 1)  # (V,)
    keep = (threshold / share[ids]).sqrt()  # (T,)
    return ids[torch.rand(len(ids), generator=generator).to(ids.device) < keep]


def skip_gram_pairs(ids: Int[Tensor, " T"], window: int) -> Int[Tensor, "N 2"]:
    """Each word with each of its neighbors.

    Args:
        ids: the text, ``(T,)``.
        window: how far a neighbor may stand, to either side.

    Returns:
        One row (center, neighbor) per pair, ``(N, 2)``: the center's place from first to last, and
        for each center its neighbors from left to right.

    Raises:
        TypeError: if ``ids`` is no tensor of whole numbers, or ``window`` no int.
        ValueError: if ``ids`` has not one axis, an id is negative or ``window`` is below 1.

    Example:
        >>> skip_gram_pairs(torch.tensor([5, 6, 7]), window=1).tolist()
        [[5, 6], [6, 5], [6, 7], [7, 6]]
    """
    _text(ids)
    _check.integer("window", window)
    T, window = len(ids), min(window, max(len(ids) - 1, 0))
    center = torch.arange(T, device=ids.device)[:, None]  # (T, 1)
    steps = [step for step in range(-window, window + 1) if step]
    other = center + torch.tensor(steps, dtype=torch.int64, device=ids.device)  # (T, 2 window)
    inside = (other >= 0) & (other < T)
    center = center.expand_as(other)
    return torch.stack([ids[center[inside]], ids[other[inside]]], dim=1)  # (N, 2)


class SkipGram(nn.Module):
    """Two vectors per word; the score of a pair is the dot product of one of each.

    Args:
        vocab_size: the number V of words.
        d_model: the width D of a vector.

    Attributes:
        center: the vectors ``(V, D)`` of words in the middle, small random numbers at first.
        context: the vectors ``(V, D)`` of words beside them, zero at first.

    Raises:
        TypeError: if an argument is not an int.
        ValueError: if an argument is below 1.

    Source: Mikolov et al. 2013, section 2.2; the start is that of the program published with it.

    Example:
        >>> model = SkipGram(vocab_size=11, d_model=5)
        >>> model(torch.tensor([3, 4]), torch.tensor([[1, 2, 3], [4, 5, 6]])).shape
        torch.Size([2, 3])
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        _check.integer("vocab_size", vocab_size)
        _check.integer("d_model", d_model)
        self.center = nn.Embedding(vocab_size, d_model)
        self.context = nn.Embedding(vocab_size, d_model)
        nn.init.uniform_(self.center.weight, -0.5 / d_model, 0.5 / d_model)
        nn.init.zeros_(self.context.weight)

    def forward(
        self, center: Int[Tensor, " B"], candidates: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K"]:
        """The score of each candidate as a neighbor of its center.

        Args:
            center: word ids, ``(B,)``.
            candidates: K word ids for each, ``(B, K)``.

        Returns:
            The scores ``(B, K)``: their sigmoid is the probability that the pair comes from the
            text, and was not drawn.

        Raises:
            TypeError: if ids are not whole numbers.
            ValueError: if ids are out of range, or the shapes do not fit.
        """
        _check.axes("center", center, "B")
        _check.axes("candidates", candidates, "B K")
        if len(center) != len(candidates):
            raise ValueError(
                "candidates must have one row per center, "
                f"got shapes {tuple(candidates.shape)} and {tuple(center.shape)}"
            )
        _check.ids("center", center, self.center.num_embeddings)
        _check.ids("candidates", candidates, self.center.num_embeddings)
        v, u = self.center(center), self.context(candidates)  # (B, D), (B, K, D)
        return (u @ v[:, :, None]).squeeze(2)  # (B, K)


class NoiseBatches:
    """Batches of pairs from the text, each with words drawn at random beside the true neighbor.

    Noise words are drawn in proportion to their count to the power 3/4. The batch of a step depends
    on ``seed`` and the step alone.

    Args:
        pairs: (center, neighbor) per row, ``(N, 2)``, as :func:`skip_gram_pairs` makes them.
        counts: how often each word occurs, ``(V,)``.
        batch_size: the number B of pairs in a batch.
        negatives: the number of noise words per pair.
        seed: which random numbers.

    Raises:
        TypeError: if a tensor does not hold whole numbers, or a number is not an int.
        ValueError: if there are no pairs or no counts, an id is not below V, a count is negative
            or all are 0, or a number is out of range.

    Source: Mikolov et al. 2013, section 2.2.

    Example:
        >>> pairs = skip_gram_pairs(torch.arange(7), window=2)
        >>> batches = NoiseBatches(pairs, torch.ones(7, dtype=torch.int64), 4, negatives=2)
        >>> (center, candidates), targets = batches(0)
        >>> center.shape, candidates.shape, targets[0]
        (torch.Size([4]), torch.Size([4, 3]), tensor([1., 0., 0.]))
    """

    def __init__(
        self,
        pairs: Int[Tensor, "N 2"],
        counts: Int[Tensor, " V"],
        batch_size: int,
        negatives: int = 5,
        seed: int = 0,
    ) -> None:
        _check.axes("counts", counts, "V")
        _check.axes("pairs", pairs, "N 2")
        _check.width("pairs", pairs, 2)
        _check.ids("pairs", pairs, len(counts))
        _not_negative("counts", counts)
        _check.integer("batch_size", batch_size)
        _check.integer("negatives", negatives)
        _check.integer("seed", seed, at_least=0)
        if len(pairs) == 0 or not counts.any():
            raise ValueError(
                "pairs and counts must not be empty or all 0, "
                f"got {len(pairs)} pairs and {int(counts.sum())} words"
            )
        self.pairs, self.batch_size, self.negatives, self.seed = pairs, batch_size, negatives, seed
        noise = counts.cpu().to(torch.float64) ** 0.75
        self._upto = (noise / noise.sum()).cumsum(0)  # (V,), on the CPU: drawn alike everywhere

    def __call__(self, step: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """The batch of a step: ``((center, candidates), targets)``.

        The true neighbor is the first candidate; the targets ``(B, 1 + negatives)`` are 1 for it
        and 0 for the noise.
        """
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        B, where = self.batch_size, self.pairs.device
        chosen = self.pairs[torch.randint(len(self.pairs), (B,), generator=draw).to(where)]
        at = torch.rand(B, self.negatives, dtype=torch.float64, generator=draw)
        noise: Int64[Tensor, "B K"] = torch.searchsorted(self._upto, at, right=True)
        noise = noise.clamp(max=len(self._upto) - 1)  # the sum of all shares may fall short of 1
        noise = noise.to(where, chosen.dtype)
        candidates = torch.cat([chosen[:, 1:], noise], dim=1)  # (B, 1 + K)
        targets = torch.zeros(candidates.shape, device=where)
        targets[:, 0] = 1
        return (chosen[:, 0], candidates), targets


def nearest(
    vectors: Float[Tensor, "V D"], row: int, count: int = 5
) -> tuple[Int64[Tensor, " count"], Float[Tensor, " count"]]:
    """The other rows that point most nearly in the direction of one.

    Args:
        vectors: one per row, ``(V, D)``.
        row: the number of the one to start from.
        count: how many neighbors; fewer where there are not as many other rows.

    Returns:
        Their rows and their cosine similarities, the nearest first.

    Raises:
        TypeError: if ``vectors`` is no tensor, or ``row`` or ``count`` no int.
        ValueError: if ``vectors`` has not two axes, ``row`` is not one of its rows, or ``count`` is
            below 1.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
        >>> nearest(vectors, 0, count=1)
        (tensor([2]), tensor([0.9487]))
    """
    _check.axes("vectors", vectors, "V D")
    _check.integer("row", row, at_least=0)
    _check.integer("count", count)
    if row >= len(vectors):
        raise ValueError(f"row must be below {len(vectors)}, got {row}")
    unit = nn.functional.normalize(vectors, dim=1)  # (V, D)
    similarity = unit @ unit[row]  # (V,)
    similarity[row] = -torch.inf  # itself
    best = similarity.topk(min(count, len(vectors) - 1))
    return best.indices, best.values


def _text(ids: Tensor) -> None:
    _check.axes("ids", ids, "T")
    _not_negative("ids", ids)


def _not_negative(name: str, tensor: Tensor) -> None:
    """Whole numbers from 0, of any integer type."""
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    _check.ids(name, tensor.long() if whole else tensor, torch.iinfo(torch.int64).max)

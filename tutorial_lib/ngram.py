"""Counting language models: guess the next token from the last few (chapter 3).

An n-gram model of order n looks at the n - 1 tokens before. A long context has seldom been seen, a
short one says little; so each order's estimate is mixed with that of the order below::

    p(w | h) = share(h w) + rest(h) * p(w | h without its first token)

down to the uniform distribution 1 / V. The two smoothings differ in what the share of a seen n-gram
is, and how much of the whole a context leaves to shorter ones.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float64, Int64, Integer
from torch import Tensor

from tutorial_lib import _check

Ids = Sequence[int] | Integer[Tensor, " T"]
Whole = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Shares = tuple[Float64[Reals, " N"], Float64[Reals, " C"]]
Level = tuple[Int64[Whole, " N"], Float64[Reals, " N"], Float64[Reals, " C"]]


def witten_bell(
    counts: Int64[Whole, " N"], contexts: Int64[Whole, " N"], num_contexts: int
) -> Shares:
    """Leave to shorter contexts as much as the context has had surprises.

    With c(hw) the count of an n-gram, c(h) their sum, and N(h) the number of different tokens seen
    after the context h::

        share(hw) = c(hw) / (c(h) + N(h))        rest(h) = N(h) / (c(h) + N(h))

    Args:
        counts: the count of each of N different n-grams.
        contexts: the number of the context in which each one stands.
        num_contexts: the number C of contexts, those without a continuation included.

    Returns:
        The share of each n-gram and the rest of each context.

    Source: Witten and Bell 1991 (method C); as interpolation: Chen and Goodman 1999, section 2.

    Example:
        >>> share, rest = witten_bell(np.array([3, 1]), np.array([0, 0]), num_contexts=1)
        >>> share.round(3), rest.round(3)
        (array([0.5  , 0.167]), array([0.333]))
    """
    total = np.bincount(contexts, counts, num_contexts)  # c(h)
    kinds = np.bincount(contexts, minlength=num_contexts)  # N(h)
    whole = np.maximum(total + kinds, 1)
    return counts / whole[contexts], np.where(total > 0, kinds / whole, 1.0)


def kneser_ney(
    counts: Int64[Whole, " N"], contexts: Int64[Whole, " N"], num_contexts: int
) -> Shares:
    """Take the same discount D off every count, and leave to shorter contexts what that frees.

    ::

        share(hw) = max(c(hw) - D, 0) / c(h)     rest(h) = D * N(h) / c(h)
        D = n1 / (n1 + 2 n2)                     n1, n2: how many n-grams have the count 1, 2

    Below the highest order c(hw) is not how often hw occurs but after how many different tokens:
    "Francisco" is frequent, yet follows "San" alone, so it is no good guess elsewhere. Where no
    n-gram has the count 1, D is 1/2, so that something is left for what was never seen.

    Args:
        counts: the count of each of N different n-grams.
        contexts: the number of the context in which each one stands.
        num_contexts: the number C of contexts, those without a continuation included.

    Returns:
        The share of each n-gram and the rest of each context.

    Source: Kneser and Ney 1995; interpolated, and with this estimate of D: Chen and Goodman 1999.

    Example:
        >>> share, rest = kneser_ney(np.array([3, 1]), np.array([0, 0]), num_contexts=1)
        >>> share, rest  # n1 = 1 and n2 = 0: D is 1
        (array([0.5, 0. ]), array([0.5]))
    """
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    discount = once / (once + 2 * twice) if once else 0.5
    total = np.bincount(contexts, counts, num_contexts)  # c(h)
    kinds = np.bincount(contexts, counts > 0, num_contexts)  # N(h)
    whole = np.maximum(total, 1)
    share = np.maximum(counts - discount, 0) / whole[contexts]
    return share, np.where(total > 0, discount * kinds / whole, 1.0)


_SMOOTHINGS: dict[str, Callable[..., Shares]] = {
    "witten-bell": witten_bell,
    "kneser-ney": kneser_ney,
}
_NEVER = np.iinfo(np.int64).max


class _Table(NamedTuple):
    """The different n-grams of a text, for one n, in the order of their codes.

    An n-gram's code is the row of its context in the table of n - 1, times V, plus its last token:
    it fits into 64 bits for any n and V.
    """

    codes: Int64[Whole, " N"]
    counts: Int64[Whole, " N"]
    tails: Int64[Whole, " N"]  # the row, in the table of n - 1, without the first token


def _count(tokens: Int64[Whole, " T"], order: int, vocab_size: int) -> list[_Table]:
    """The tables of the n-grams of 1, 2, ... ``order`` tokens."""
    context, tail = np.zeros((2, len(tokens)), np.int64)
    tables = []
    for _ in range(order):
        ends = np.flatnonzero(context >= 0)  # the places where an n-gram ends
        codes, first, rows, counts = np.unique(
            context[ends] * vocab_size + tokens[ends],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        tables.append(_Table(codes, counts.astype(np.int64), tail[ends][first]))
        tail = np.full(len(tokens), -1)
        tail[ends] = rows  # the row of the n-gram that ends at each place
        context = np.append(-1, tail[:-1])  # and of the one that ends before it
    return tables


class NGram:
    """An interpolated n-gram model over the ids 0 to ``vocab_size - 1``.

    Memory grows with the text (at most one row for each place and order), never with
    ``vocab_size ** order``.

    Args:
        order: how many tokens an n-gram has: the one to guess and ``order - 1`` before it.
        vocab_size: the number V of different ids.
        smoothing: ``"witten-bell"`` or ``"kneser-ney"``: see the functions of those names.

    Raises:
        TypeError: if ``order`` or ``vocab_size`` is not an int.
        ValueError: if one of them is below 1, or ``smoothing`` is another word.

    Example:
        >>> model = NGram(order=2, vocab_size=3).fit([0, 1, 0, 1, 0, 2])
        >>> model.probability([0])
        tensor([0.1778, 0.5333, 0.2889], dtype=torch.float64)
    """

    def __init__(self, order: int, vocab_size: int, smoothing: str = "witten-bell") -> None:
        _check.integer("order", order)
        _check.integer("vocab_size", vocab_size)
        _check.one_of("smoothing", smoothing, _SMOOTHINGS)
        self.order, self.vocab_size, self.smoothing = order, vocab_size, smoothing
        # For each order: the codes of its table, the share of each row, the rest of each context.
        # The last entry stands for what was never seen, so that row -1 needs no special case.
        self._levels: list[Level] = []

    def fit(self, ids: Ids) -> "NGram":
        """Count the n-grams of a text; what was counted before is forgotten.

        Args:
            ids: the text, ``(T,)``, at least one token.

        Returns:
            The model itself.

        Raises:
            TypeError: if ``ids`` does not hold whole numbers.
            ValueError: if ``ids`` is empty, or one of them is not below ``vocab_size``.
        """
        tables = _count(self._tokens("ids", ids, at_least=1), self.order, self.vocab_size)
        num_contexts = 1
        self._levels = []
        for table, longer in zip(tables, [*tables[1:], None], strict=True):
            counts = table.counts
            if self.smoothing == "kneser-ney" and longer is not None:
                counts = np.bincount(longer.tails, minlength=len(counts))
            smooth = _SMOOTHINGS[self.smoothing]
            share, rest = smooth(counts, table.codes // self.vocab_size, num_contexts)
            seen = np.append(table.codes, _NEVER), np.append(share, 0.0), np.append(rest, 1.0)
            self._levels.append(seen)
            num_contexts = len(counts)
        return self

    @property
    def num_ngrams(self) -> list[int]:
        """How many different n-grams the text had, for each n from 1 to ``order``."""
        return [len(codes) - 1 for codes, _, _ in self._fitted()]

    def probability(self, context: Ids = ()) -> Float64[Tensor, " V"]:
        """The distribution of the next token.

        Args:
            context: the tokens before it, ``(T,)``; of a longer one the last ``order - 1`` count.

        Returns:
            V probabilities, all above 0, with sum 1, on the CPU.

        Raises:
            TypeError: if ``context`` does not hold whole numbers.
            ValueError: if an id is not below ``vocab_size``, or the model has not been fitted.
        """
        tokens = self._tokens("context", context)
        tokens = np.append(tokens[max(0, len(tokens) - self.order + 1) :], 0)  # 0: the one to guess
        p = np.full(self.vocab_size, 1 / self.vocab_size)
        for (codes, share, rest), (rows, _) in zip(self._fitted(), self._rows(tokens), strict=True):
            row = rows[-1]
            p *= rest[row]
            if row >= 0:
                begin = row * self.vocab_size
                first, last = np.searchsorted(codes, [begin, begin + self.vocab_size])
                p[codes[first:last] - begin] += share[first:last]
        return torch.from_numpy(p)

    def log_probabilities(self, ids: Ids) -> Float64[Tensor, " T"]:
        """The natural logarithm of the probability of each token, given those before it.

        Args:
            ids: the text, ``(T,)``. Its first tokens are guessed from the few there are.

        Returns:
            T finite numbers, on the CPU.

        Raises:
            TypeError: if ``ids`` does not hold whole numbers.
            ValueError: if an id is not below ``vocab_size``, or the model has not been fitted.

        Example:
            >>> model = NGram(order=2, vocab_size=3).fit([0, 1, 0, 1, 0, 2])
            >>> model.log_probabilities([0, 1]).exp()
            tensor([0.4444, 0.5333], dtype=torch.float64)
        """
        tokens = self._tokens("ids", ids)
        p = np.full(len(tokens), 1 / self.vocab_size)
        for (_, share, rest), (contexts, rows) in zip(
            self._fitted(), self._rows(tokens), strict=True
        ):
            p = share[rows] + rest[contexts] * p
        return torch.from_numpy(np.log(p))

    def bits_per_token(self, ids: Ids) -> float:
        """The mean of ``-log2 p`` over the tokens of a text; 2 to that power is the perplexity.

        Args:
            ids: the text, ``(T,)``, at least one token.

        Raises:
            TypeError: if ``ids`` does not hold whole numbers.
            ValueError: if ``ids`` is empty, an id is not below ``vocab_size``, or the model has not
                been fitted.
        """
        self._tokens("ids", ids, at_least=1)
        return -self.log_probabilities(ids).mean().item() / math.log(2)

    def bits_per_character(self, ids: Ids, num_characters: int) -> float:
        """The bits that a text costs, for each of its characters.

        Models whose tokens are of different lengths can be compared by this, not by bits per token.

        Args:
            ids: the text, ``(T,)``, at least one token.
            num_characters: how many characters the same text has.

        Raises:
            TypeError: if ``ids`` does not hold whole numbers or ``num_characters`` is not one.
            ValueError: as :meth:`bits_per_token`, and if ``num_characters`` is below 1.
        """
        _check.integer("num_characters", num_characters)
        return self.bits_per_token(ids) * len(ids) / num_characters

    def sample(
        self,
        num_tokens: int,
        prompt: Ids = (),
        generator: torch.Generator | None = None,
    ) -> list[int]:
        """Write text: draw a token, take it as context, and draw the next.

        Args:
            num_tokens: how many tokens to write.
            prompt: the text to go on from, ``(T,)``.
            generator: the source of the random numbers, on the CPU; PyTorch's own unless given.

        Returns:
            The new tokens, without the prompt.

        Raises:
            TypeError: if ``num_tokens`` is not an int or ``prompt`` does not hold whole numbers.
            ValueError: if ``num_tokens`` is negative, an id is not below ``vocab_size``, or the
                model has not been fitted.

        Example:
            >>> model = NGram(order=3, vocab_size=3).fit([0, 1, 2] * 1000)
            >>> model.sample(6, prompt=[1, 2], generator=torch.Generator().manual_seed(0))
            [0, 1, 2, 0, 1, 2]
        """
        _check.integer("num_tokens", num_tokens, at_least=0)
        text = self._tokens("prompt", prompt).tolist()
        self._fitted()
        begin = len(text)
        for _ in range(num_tokens):
            p = self.probability(text[max(0, len(text) - self.order + 1) :])
            text.append(int(torch.multinomial(p, 1, generator=generator)))
        return text[begin:]

    def _rows(
        self, tokens: Int64[Whole, " T"]
    ) -> Iterator[tuple[Int64[Whole, " T"], Int64[Whole, " T"]]]:
        """For n = 1, 2, ...: the rows of the context and of the n-gram that end at each place."""
        context: Int64[Whole, " T"] = np.zeros(len(tokens), np.int64)
        for codes, _, _ in self._fitted():
            wanted = context * self.vocab_size + tokens
            found = np.searchsorted(codes, wanted)
            rows = np.where(codes[found] == wanted, found, -1)
            yield context, rows
            context = np.append(-1, rows)[: len(tokens)]

    def _fitted(self) -> list[Level]:
        if not self._levels:
            raise ValueError("the model must be fitted first: call fit(ids)")
        return self._levels

    def _tokens(self, name: str, ids: Ids, at_least: int = 0) -> Int64[Whole, " T"]:
        """The ids as an array, checked."""
        if not isinstance(ids, Tensor):
            try:
                ids = torch.as_tensor(ids if len(ids) else torch.zeros(0, dtype=torch.int64))
            except (TypeError, ValueError, RuntimeError):
                raise TypeError(f"{name} must be a list of ids, got {ids!r:.60}") from None
        _check.axes(name, ids, "T")
        _check.ids(name, ids, self.vocab_size)
        if len(ids) < at_least:
            raise ValueError(f"{name} must hold at least {at_least} token, got none")
        return ids.cpu().to(torch.int64).numpy()

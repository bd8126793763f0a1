"""Attention: which positions to look at is decided by the input itself (chapters 5 and 6)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import _check


def causal_mask(
    T: int, S: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Let each of ``T`` queries look at itself and at what came before it.

    With more keys than queries (``S > T``) the queries are the last ``T`` of the ``S`` places,
    as they are when the earlier keys come out of a cache.

    Args:
        T: the number of queries.
        S: the number of keys, ``T`` if not given.
        device: where the mask is made.

    Returns:
        A mask ``(T, S)``; ``True`` means *may look*.

    Raises:
        TypeError: if ``T`` or ``S`` is not an int.
        ValueError: if ``T`` is negative, or ``S`` smaller than ``T``.

    Example:
        >>> from tutorial_lib.attention import causal_mask
        >>> causal_mask(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    S = _places(T, S)
    query = torch.arange(S - T, S, device=device)  # (T)
    return query[:, None] >= torch.arange(S, device=device)  # (T, S)


def window_mask(
    window: int, T: int, S: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Let each query look at the keys less than ``window`` places away, on both sides.

    Together with a causal mask, ``causal_mask(T) & window_mask(window, T)``, a query sees itself
    and the ``window - 1`` places before it. (Source: Beltagy et al. 2020, section 3.1; the causal
    form: Jiang et al. 2023, section 2.)

    Args:
        window: how many places, the query's own included, lie in the window on one side.
        T: the number of queries.
        S: the number of keys, ``T`` if not given; the queries are the last ``T`` of them.
        device: where the mask is made.

    Returns:
        A mask ``(T, S)``; ``True`` means *may look*.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if ``window`` is below 1, ``T`` negative, or ``S`` smaller than ``T``.

    Example:
        >>> from tutorial_lib.attention import window_mask
        >>> window_mask(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1],
                [0, 1, 1]], dtype=torch.int32)
    """
    _check.integer("window", window)
    S = _places(T, S)
    query = torch.arange(S - T, S, device=device)  # (T)
    return (query[:, None] - torch.arange(S, device=device)).abs() < window  # (T, S)


def _places(T: int, S: int | None) -> int:
    """The number of keys, checked."""
    _check.integer("T", T, at_least=0)
    if S is None:
        return T
    _check.integer("S", S, at_least=0)
    if S < T:
        raise ValueError(f"S must be at least T, since each query has a key, got T={T}, S={S}")
    return S


def padding_mask(lengths: Int[Tensor, "B"], T: int, side: str = "right") -> Bool[Tensor, "B 1 1 T"]:
    """Let all look at the real tokens of each sequence, and none at its padding.

    Args:
        lengths: how many real tokens each sequence has ``(B)``, 0 to ``T``.
        T: the padded length.
        side: where the padding stands, ``"right"`` or ``"left"`` (prompts are padded on the left,
            so that all of them end where the writing begins).

    Returns:
        A mask ``(B, 1, 1, T)``; ``True`` means *may look*. It spreads over heads and queries, and
        combines with a causal mask by ``&``.

    Raises:
        TypeError: if ``lengths`` does not hold integers.
        ValueError: if a length is outside 0 to ``T``, or ``side`` is neither.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import padding_mask
        >>> padding_mask(torch.tensor([1, 3]), 3).int()
        tensor([[[[1, 0, 0]]],
        <BLANKLINE>
                [[[1, 1, 1]]]], dtype=torch.int32)
    """
    _check.integer("T", T, at_least=0)
    _check.one_of("side", side, ("left", "right"))
    _check.axes("lengths", lengths, "B")
    _check.ids("lengths", lengths, T + 1)
    place = torch.arange(T, device=lengths.device)  # (T)
    if side == "left":
        place = place.flip(0)
    return (place < lengths[:, None])[:, None, None]  # (B, 1, 1, T)


def masked_softmax(
    scores: Float[Tensor, "*N T S"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*N T S"]:
    """Turn scores into weights that sum to 1 over the keys that may be looked at.

    Args:
        scores: how well each key answers each query ``(..., T, S)``.
        mask: boolean, spreads over the scores; ``True`` means *may look*.

    Returns:
        The weights ``(..., T, S)``. A hidden key has weight 0, exactly, and a row that may look
        at nothing is all zeros, with gradient zero.

    Raises:
        TypeError: if ``mask`` is not boolean.
        ValueError: if ``mask`` does not spread over the scores.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import masked_softmax
        >>> masked_softmax(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    if mask is None:
        return scores.softmax(dim=-1)
    _check.mask("mask", mask, scores.shape, scores.device)
    # The lowest number, not -inf: a row of -inf alone would be NaN, and so would its gradient.
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)


def scaled_dot_product_attention(
    query: Float[Tensor, "*N T K"],
    key: Float[Tensor, "*N S K"],
    value: Float[Tensor, "*N S E"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*N T E"], Float[Tensor, "*N T S"]]:
    r"""Average the values, weighted by how well each key answers the query.

    .. math:: \mathrm{softmax}(Q K^\top / \sqrt{d_k}) V

    (Source: Vaswani et al. 2017, section 3.2.1.)

    Args:
        query: what each position asks for ``(..., T, K)``.
        key: what each position offers ``(..., S, K)``.
        value: what each position hands over ``(..., S, E)``.
        mask: boolean, spreads over ``(..., T, S)``; ``True`` means *may look*.
        bias: added to the scores, spreads over ``(..., T, S)``.
        dropout: the share of weights set to 0 before the average (training only).

    Returns:
        The output ``(..., T, E)`` and the weights ``(..., T, S)``, these before dropout. A query
        that may look at nothing gets zeros.

    Raises:
        TypeError: if ``mask`` is not boolean.
        ValueError: if ``mask`` does not spread over the scores.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import scaled_dot_product_attention
        >>> query, key, value = torch.zeros(3, 8), torch.randn(5, 8), torch.randn(5, 2)
        >>> output, weights = scaled_dot_product_attention(query, key, value)
        >>> weights[0]
        tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])
    """
    # Dividing the query, not the scores, keeps large sums inside the range of float16.
    scores = query / math.sqrt(query.shape[-1]) @ key.transpose(-2, -1)  # (..., T, S)
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, mask)  # (..., T, S)
    output = F.dropout(weights, dropout) @ value  # (..., T, E)
    return output, weights


class _Recorded(nn.Module):
    """A layer whose weights ``record_attention`` can collect."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks: list[list[Tensor]] = []

    def record(self, weights: Float[Tensor, "B H T S"]) -> None:
        """Hand the weights of this call to all who asked for them."""
        for sink in self.sinks:
            sink.append(weights.detach())


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the attention weights of every layer of ``model``, from the passes that run.

    The model knows nothing of it. While it is recorded, ``MultiHeadAttention`` takes the explicit
    way instead of the fused one, which never writes its weights down.

    Args:
        model: anything that holds attention layers of this package.

    Yields:
        A dict from each layer's name to a list of its weights ``(B, H, T, S)``, one per call,
        detached, before dropout; additive attention has one head.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import MultiHeadAttention, record_attention
        >>> model = torch.nn.Sequential(MultiHeadAttention(8, 2))
        >>> with record_attention(model) as maps:
        ...     output = model(torch.randn(1, 5, 8))
        >>> maps["0"][0].shape
        torch.Size([1, 2, 5, 5])
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, _Recorded)}
    maps: dict[str, list[Tensor]] = {name: [] for name in layers}
    for name, layer in layers.items():
        layer.sinks.append(maps[name])
    try:
        yield maps
    finally:
        for name, layer in layers.items():
            # By identity: two recordings in which nothing ran yet are equal lists.
            layer.sinks[:] = [sink for sink in layer.sinks if sink is not maps[name]]


class _ProjectedAttention(_Recorded):
    """Attention with one matrix for the queries and one for the keys; ``scores`` compares them.

    Args:
        d_query: width of the queries.
        d_key: width of the keys.
        d_hidden: width in which they are compared.
    """

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        for name, value in (("d_query", d_query), ("d_key", d_key), ("d_hidden", d_hidden)):
            _check.integer(name, value)
        self.d_query, self.d_key = d_query, d_key
        self.query = nn.Linear(d_query, d_hidden, bias=False)
        self.key = nn.Linear(d_key, d_hidden)

    def scores(
        self, q: Float[Tensor, "B T F"], k: Float[Tensor, "B S F"]
    ) -> Float[Tensor, "B T S"]:
        """How well each projected key answers each projected query."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B T Q"],
        key: Float[Tensor, "B S K"],
        value: Float[Tensor, "B S E"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        projected_key: Float[Tensor, "B S F"] | None = None,
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B T S"]]:
        """Average the values, weighted by the scores of their keys.

        Args:
            query: ``(B, T, d_query)``.
            key: ``(B, S, d_key)``.
            value: ``(B, S, E)``, the keys if not given.
            mask: boolean ``(T, S)`` or ``(B, 1, T, S)``, 1 where it spreads; ``True`` means
                *may look*.
            projected_key: ``self.key(key)``, from a caller who asks the same keys step after step.

        Returns:
            The output ``(B, T, E)`` and the weights ``(B, T, S)``.

        Raises:
            TypeError: if ``mask`` is not boolean.
            ValueError: if a shape does not fit.
        """
        value = key if value is None else value
        _check_shapes(query, key, value, self.d_query, self.d_key, self.query.weight)
        if mask is not None:
            _check_mask(mask, (query.shape[0], 1, query.shape[1], key.shape[1]), query.device)
        q = self.query(query)  # (B, T, F)
        k = self.key(key) if projected_key is None else projected_key  # (B, S, F)
        weights = masked_softmax(self.scores(q, k)[:, None], mask)  # (B, 1, T, S)
        self.record(weights)
        weights = weights[:, 0]  # (B, T, S)
        return weights @ value, weights


class AdditiveAttention(_ProjectedAttention):
    r"""Attention whose scores come from a small network with one hidden layer.

    .. math:: e_{ts} = v^\top \tanh(W q_t + U k_s)

    (Source: Bahdanau et al. 2015, section 3.1 and appendix A.1.2.)

    Args:
        d_query: width of the queries.
        d_key: width of the keys.
        d_hidden: width of the hidden layer.

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import AdditiveAttention
        >>> attention = AdditiveAttention(d_query=4, d_key=6, d_hidden=5)
        >>> output, weights = attention(torch.randn(2, 1, 4), torch.randn(2, 7, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 1, 6]), torch.Size([2, 1, 7]))
    """

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__(d_query, d_key, d_hidden)
        self.score = nn.Linear(d_hidden, 1, bias=False)

    def scores(
        self, q: Float[Tensor, "B T F"], k: Float[Tensor, "B S F"]
    ) -> Float[Tensor, "B T S"]:
        """A small network for every pair of a query and a key."""
        hidden = torch.tanh(q[:, :, None] + k[:, None])  # (B, T, S, F)
        return self.score(hidden).squeeze(-1)  # (B, T, S)


class DotProductAttention(_ProjectedAttention):
    r"""Attention whose scores are scaled dot products of projected queries and keys.

    .. math:: e_{ts} = (W q_t)^\top (U k_s) / \sqrt{d}

    It takes the place of :class:`AdditiveAttention`, with the same two matrices. There a small
    network joins what they return, here a dot product. (Source: Luong et al. 2015, section 3.1,
    whose "general" score has one matrix for both; the scaling: Vaswani et al. 2017, section
    3.2.1.)

    Args:
        d_query: width of the queries.
        d_key: width of the keys.
        d_hidden: width in which they are compared.

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import DotProductAttention
        >>> attention = DotProductAttention(d_query=4, d_key=6, d_hidden=5)
        >>> output, weights = attention(torch.randn(2, 1, 4), torch.randn(2, 7, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 1, 6]), torch.Size([2, 1, 7]))
    """

    def scores(
        self, q: Float[Tensor, "B T F"], k: Float[Tensor, "B S F"]
    ) -> Float[Tensor, "B T S"]:
        """One matrix product for all pairs."""
        return q / math.sqrt(q.shape[-1]) @ k.transpose(1, 2)  # (B, T, S)


class KVCache:
    """The keys and values of earlier steps, kept so that a step computes only its own.

    It is for writing, not for training: no gradient flows through what it holds.

    Args:
        capacity: how many places it can hold, allocated in one piece by the first ``append``;
            ``None`` lets it grow as needed.

    Attributes:
        length: how many places are filled.
        capacity: as given.

    Raises:
        TypeError: if ``capacity`` is neither an int nor ``None``.
        ValueError: if ``capacity`` is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import KVCache
        >>> cache = KVCache(capacity=8)
        >>> for _ in range(3):
        ...     keys, values = cache.append(torch.randn(1, 2, 1, 4), torch.randn(1, 2, 1, 4))
        >>> keys.shape, cache.length
        (torch.Size([1, 2, 3, 4]), 3)
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None:
            _check.integer("capacity", capacity)
        self.capacity = capacity
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def check(self, B: int, T: int) -> None:
        """Refuse ``T`` more places for ``B`` sequences where they do not fit.

        Args:
            B: the number of sequences.
            T: the number of places to add.

        Raises:
            ValueError: if the cache holds another number of sequences, or would be overfull.
        """
        held = B if self._keys is None else self._keys.shape[0]
        if held != B:
            raise ValueError(f"the batch must be that of the cache, {held}, got {B}")
        if self.capacity is not None and self.length + T > self.capacity:
            raise ValueError(
                f"the cache is full: capacity {self.capacity}, length {self.length}, {T} more asked"
            )

    def append(
        self, key: Float[Tensor, "B H T K"], value: Float[Tensor, "B H T E"]
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S E"]]:
        """Add the keys and values of ``T`` places, and return all so far.

        Args:
            key: ``(B, H, T, K)``.
            value: ``(B, H, T, E)``.

        Returns:
            All keys ``(B, H, S, K)`` and values ``(B, H, S, E)``, as views of what is kept.

        Raises:
            TypeError: if the dtype or device is not that of the cache.
            ValueError: if the cache is full, or holds another batch size, head count or width.
        """
        self.check(key.shape[0], key.shape[2])
        end = self.length + key.shape[2]
        self._keys = self._room(self._keys, key, end)
        self._values = self._room(self._values, value, end)
        self._keys[:, :, self.length : end] = key.detach()
        self._values[:, :, self.length : end] = value.detach()
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def read(self) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S E"]]:
        """Return all keys ``(B, H, S, K)`` and values ``(B, H, S, E)`` so far, as views.

        Raises:
            ValueError: if nothing was ever appended.
        """
        keys, values = self._held()
        return keys[:, :, : self.length], values[:, :, : self.length]

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Keep, in this order, the sequences that ``index`` names (a beam search's survivors).

        Args:
            index: numbers of sequences ``(N)``; one may come several times, or not at all.

        Raises:
            TypeError: if ``index`` does not hold integers.
            ValueError: if a number is outside the batch, or the cache is empty.
        """
        keys, values = self._held()
        _check.axes("index", index, "N")
        _check.ids("index", index, keys.shape[0])
        with torch.inference_mode(False):  # as in _room
            self._keys, self._values = keys.index_select(0, index), values.index_select(0, index)

    def _held(self) -> tuple[Tensor, Tensor]:
        """All that is allocated."""
        if self._keys is None or self._values is None:
            raise ValueError("the cache must hold something to be read, got an empty one")
        return self._keys, self._values

    def _room(self, kept: Tensor | None, new: Tensor, end: int) -> Tensor:
        """What is kept, in a tensor with at least ``end`` places."""
        B, H, _, K = new.shape
        if kept is not None:
            held = (kept.shape[1], kept.shape[3], kept.dtype, kept.device)
            if held[:2] != (H, K):
                raise ValueError(f"(heads, width) must be the cache's {held[:2]}, got {(H, K)}")
            came = (new.dtype, new.device)
            if held[2:] != came:
                raise TypeError(f"(dtype, device) must be the cache's {held[2:]}, got {came}")
            if end <= kept.shape[2]:
                return kept
        # Twice what is needed: then n single steps copy 2n places in all, and not n * n / 2.
        size = self.capacity or max(2 * end, 16)
        # A normal tensor even inside inference_mode, or a later step outside could not write to it.
        with torch.inference_mode(False):
            room = new.new_empty(B, H, size, K)
        if kept is not None:
            room[:, :, : self.length] = kept[:, :, : self.length]
        return room


class MultiHeadAttention(_Recorded):
    r"""Several attentions side by side, each in its own projection of queries, keys and values.

    .. math:: \mathrm{head}_h = \mathrm{Attention}(Q W^Q_h, K W^K_h, V W^V_h), \quad
        [\mathrm{head}_1; \dots; \mathrm{head}_H] W^O

    (Source: Vaswani et al. 2017, section 3.2.2; fewer heads for keys and values than for queries:
    Ainslie et al. 2023, section 2.2.)

    The four projections are ``query``, ``key``, ``value`` and ``output``.
    ``torch.nn.MultiheadAttention`` keeps the first three in one matrix, one below the other; the
    example copies them. Its boolean masks mean the opposite of ours.

    Args:
        d_model: width of queries and outputs.
        num_heads: number of heads; divides ``d_model``.
        num_kv_heads: number of heads for keys and values, ``num_heads`` if not given; divides
            ``num_heads``. 1 is multi-query attention, a number between is grouped-query attention.
        bias: whether the projections add a bias.
        dropout: the share of weights set to 0 in training.
        d_source: width of keys and values where they come from elsewhere, ``d_model`` if not given.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is out of range or does not divide.

    Example:
        >>> import torch
        >>> from tutorial_lib.attention import MultiHeadAttention
        >>> ours, theirs = MultiHeadAttention(8, 2), torch.nn.MultiheadAttention(8, 2)
        >>> layers = (ours.query, ours.key, ours.value)
        >>> with torch.no_grad():
        ...     for layer, weight, bias in zip(
        ...         layers, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        ...     ):
        ...         _ = layer.weight.copy_(weight), layer.bias.copy_(bias)
        >>> ours.output.load_state_dict(theirs.out_proj.state_dict())
        <All keys matched successfully>
        >>> x = torch.randn(5, 8)
        >>> torch.allclose(ours(x[None])[0], theirs(x, x, x)[0], atol=1e-6)
        True
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        *,
        d_source: int | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        d_source = d_model if d_source is None else d_source
        _check.integer("d_model", d_model)
        _check.integer("num_heads", num_heads)
        _check.integer("num_kv_heads", num_kv_heads)
        _check.integer("d_source", d_source)
        _check.number("dropout", dropout, 0.0, below=1.0)
        _check.divides("num_heads", num_heads, "d_model", d_model)
        _check.divides("num_kv_heads", num_kv_heads, "num_heads", num_heads)
        self.d_model, self.d_source = d_model, d_source
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_head = d_model // num_heads
        self.dropout = dropout
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(d_source, num_kv_heads * self.d_head, bias=bias)
        self.value = nn.Linear(d_source, num_kv_heads * self.d_head, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S E"] | None = None,
        value: Float[Tensor, "B S E"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        cache: KVCache | None = None,
        rotate: Callable[[Tensor], Tensor] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Let each query look at the keys, and hand back what it found.

        Where key and value are the query itself, this is self-attention, and a cache grows by
        ``T`` places. With a key from elsewhere, a cache is filled by the first call and only read
        by the later ones.

        Args:
            query: ``(B, T, D)``.
            key: ``(B, S, E)``, the query if not given.
            value: ``(B, S, E)``, the key if not given.
            mask: boolean ``(T, S)`` or ``(B, H, T, S)``, 1 where it spreads; ``True`` means
                *may look*. With a cache, ``S`` counts all keys so far.
            causal: whether a query is kept from the keys after it.
            cache: keys and values of earlier calls.
            rotate: applied to the split queries and keys ``(B, H, T, K)`` in self-attention, such
                as ``Rotary.at(positions)``.
            bias: added to the scores, spreads over ``(B, H, T, S)``, such as what ``LinearBias``
                returns.

        Returns:
            ``(B, T, D)``. A query that may look at nothing finds zeros.

        Raises:
            TypeError: if ``mask`` is not boolean, or a dtype is not that of the weights.
            ValueError: if a shape does not fit, or the cache is full or of another batch size.
        """
        key = query if key is None else key
        value = key if value is None else value
        own = value is key is query
        mask, causal = self._check(query, key, value, own, mask, causal, cache, rotate, bias)
        q = self._split(self.query(query), self.num_heads)  # (B, H, T, K)
        if cache is not None and not own and cache.length > 0:
            k, v = cache.read()  # (B, G, S, K)
        else:
            k = self._split(self.key(key), self.num_kv_heads)  # (B, G, S, K)
            v = self._split(self.value(value), self.num_kv_heads)  # (B, G, S, K)
            if rotate is not None:
                q, k = rotate(q), rotate(k)
            if cache is not None:
                k, v = cache.append(k, v)
        look = self._explicit if self.sinks else self._fused
        found = look(q, k, v, mask, bias, causal)  # (B, H, T, K)
        return self.output(found.transpose(1, 2).flatten(2))  # (B, T, D)

    def _check(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        own: bool,
        mask: Tensor | None,
        causal: bool,
        cache: KVCache | None,
        rotate: Callable[[Tensor], Tensor] | None,
        bias: Tensor | None,
    ) -> tuple[Tensor | None, bool]:
        """Refuse what does not fit before any work is done, and combine the masks."""
        _check_shapes(query, key, value, self.d_model, self.d_source, self.query.weight)
        _check.width("value", value, self.d_source)
        if rotate is not None and not own:
            raise ValueError("rotate must be None with a key from elsewhere: it turns both alike")
        B, T, S = *query.shape[:2], key.shape[1]
        if cache is not None:
            S = _check_cache(cache, own, B, S)
        shape = (B, self.num_heads, T, S)
        if bias is not None:
            _check_bias(bias, shape)
        return _combine_masks(mask, causal, shape, query.device)

    def _split(self, x: Float[Tensor, "B T E"], heads: int) -> Float[Tensor, "B H T K"]:
        """Cut the last axis into heads. A view: nothing is copied."""
        return x.view(*x.shape[:2], heads, self.d_head).transpose(1, 2)

    def _explicit(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S K"],
        mask: Bool[Tensor, "..."] | None,
        bias: Float[Tensor, "..."] | None,
        causal: bool,
    ) -> Float[Tensor, "B H T K"]:
        """The way that writes the weights down, and hands them to those who asked."""
        if causal:
            mask = causal_mask(q.shape[2], k.shape[2], q.device)  # (T, S)
        groups = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        dropout = self.dropout if self.training else 0.0
        found, weights = scaled_dot_product_attention(q, k, v, mask, bias=bias, dropout=dropout)
        self.record(weights)
        return found

    def _fused(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S K"],
        mask: Bool[Tensor, "..."] | None,
        bias: Float[Tensor, "..."] | None,
        causal: bool,
    ) -> Float[Tensor, "B H T K"]:
        """The fast way: PyTorch's one kernel, which never holds all weights at once."""
        blind = None
        if mask is not None:
            # Some kernels turn a row that may look at nothing into NaN. Here it looks at all, and
            # what it found is thrown away, with its gradient.
            blind = ~mask.any(dim=-1, keepdim=True)
            mask = mask | blind
        if bias is not None:
            if causal:
                mask = causal_mask(q.shape[2], k.shape[2], q.device)
            bias = bias.to(q.dtype)
            mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        found = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal and bias is None,
            enable_gqa=self.num_heads != self.num_kv_heads,
        )
        return found if blind is None else found.masked_fill(blind, 0.0)


def _combine_masks(
    mask: Tensor | None, causal: bool, shape: tuple[int, int, int, int], device: torch.device
) -> tuple[Tensor | None, bool]:
    """Check a mask, and draw the causal line into it where the fused kernel cannot.

    The kernel's own line starts in the top left corner, so it is right only where there are as
    many keys as queries, and it does not go together with a mask. Returned are the mask, and
    whether the kernel is still to draw the line.
    """
    T, S = shape[2:]
    if mask is not None:
        _check_mask(mask, shape, device)
    if not causal or (T == 1 and S >= 1):  # one query, the last, sees all keys
        return mask, False
    if mask is None and T == S:
        return None, True
    line = causal_mask(T, S, device)  # (T, S)
    return (line if mask is None else line & mask), False


def _check_mask(mask: Tensor, shape: tuple[int, int, int, int], device: torch.device) -> None:
    """``mask`` is boolean and ``(T, S)`` or ``(B, H, T, S)``.

    Three axes are refused: a mask ``(B, T, S)`` would spread its batch over the heads.
    """
    _check.mask("mask", mask, shape, device)
    if mask.dim() not in (2, 4):
        raise ValueError(
            f"mask must have shape (T, S) or (B, H, T, S), 1 where it spreads over {shape}, "
            f"got {tuple(mask.shape)}"
        )


def _check_bias(bias: Tensor, shape: tuple[int, int, int, int]) -> None:
    """``bias`` holds floats and spreads over the scores."""
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        came = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias must be a Tensor of floats, got {came}")
    _check.spreads("bias", bias, shape)


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, d_query: int, d_key: int, weight: Tensor
) -> None:
    """The three fit each other, and the widths and the dtype that the layer was made for."""
    _check.axes("query", query, "B T D")
    _check.axes("key", key, "B S E")
    _check.axes("value", value, "B S E")
    _check.width("query", query, d_query)
    _check.width("key", key, d_key)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check.same_dtype(name, tensor, "the weights", weight)
    if query.shape[0] != key.shape[0]:
        raise ValueError(f"key must have the query's batch {query.shape[0]}, got {key.shape[0]}")
    if value.shape[:2] != key.shape[:2]:
        raise ValueError(
            f"value must have the key's (B, S) {tuple(key.shape[:2])}, got {tuple(value.shape[:2])}"
        )


def _check_cache(cache: KVCache, own: bool, B: int, S: int) -> int:
    """The number of keys once these ``S`` are in the cache."""
    if own or cache.length == 0:
        cache.check(B, S)
        return cache.length + S
    cache.check(B, 0)
    if cache.length != S:
        raise ValueError(f"key must be the one in the cache, of length {cache.length}, got {S}")
    return S

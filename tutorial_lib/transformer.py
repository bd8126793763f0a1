"""The Transformer: attention, then a local step, stacked (chapter 8).

One ``Block`` and one ``Stack`` serve every model of the book. What differs is a
``TransformerConfig``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import _check
from tutorial_lib.attention import KVCache, MultiHeadAttention, window_mask
from tutorial_lib.positions import Learned, LinearBias, Rotary, Sinusoidal, check_positions

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
}


@dataclass(frozen=True)
class TransformerConfig:
    """All in which one Transformer differs from another.

    Args:
        num_layers: number of blocks.
        d_model: width of the stream that runs through them.
        num_heads: heads of each attention; divides ``d_model``.
        num_kv_heads: heads for keys and values, ``num_heads`` if not given.
        d_ff: width inside the feed-forward step, ``4 * d_model`` if not given.
        context: the longest sequence, ``None`` for no limit.
        vocab_size: number of tokens, for ``Embed`` and ``Head``.
        causal: whether a position is kept from those after it.
        window: how many places back (and, if not causal, ahead) a position sees, its own counted;
            ``None`` for all.
        norm: ``"layer"`` or ``"rms"``.
        norm_placement: ``"pre"``, before each step, and once after the last block; or ``"post"``,
            after each step's addition, as in 2017.
        norm_eps: what the norm adds to the variance.
        feed_forward: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"swiglu"``.
        positions: ``"none"``; ``"sinusoidal"`` or ``"learned"``, added by ``Embed``; ``"rotary"``
            or ``"linear_bias"``, at work inside each attention.
        rotary_base: base of the rotary angles.
        rotary_layout: which entries turn as pairs, ``"half"`` or ``"interleaved"``.
        bias: whether linear maps and layer norms have a bias.
        cross_attention: whether each block also looks at a memory, the output of an encoder.
        dropout: share set to 0 in training: of the embedding, of attention weights, and of each
            step's output before it is added.
        tied: whether ``Head`` uses the token embedding as its weights.
        embedding_scale: whether ``Embed`` multiplies the token vectors by the root of the width.
        embedding_norm: whether ``Embed`` ends in a norm.
        num_segments: how many kinds of segment ``Embed`` tells apart; 0 for none.
        initialization: ``"gpt2"``: normal, deviation 0.02, of the maps that end a step less by the
            root of the number of steps. ``"normal"``: the same without that (GPT, BERT).
            ``"xavier"``: uniform by Glorot and Bengio 2010, as in the program of 2017.
            ``"pytorch"``: as PyTorch makes its layers, but ``Embed`` and ``Head`` normal, deviation
            0.02.

    Raises:
        TypeError: if a value has the wrong type.
        ValueError: if a value is out of range, unknown, or does not go with another.

    Example:
        >>> from dataclasses import replace
        >>> from tutorial_lib.transformer import TransformerConfig
        >>> gpt2 = TransformerConfig(num_layers=12, d_model=768, num_heads=12, context=1024,
        ...                          vocab_size=50257, causal=True, feed_forward="gelu_tanh",
        ...                          positions="learned", initialization="gpt2")
        >>> replace(gpt2, norm="rms", feed_forward="swiglu", positions="rotary").d_head
        64
    """

    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    d_ff: int | None = None
    context: int | None = None
    vocab_size: int | None = None
    causal: bool = False
    window: int | None = None
    norm: str = "layer"
    norm_placement: str = "pre"
    norm_eps: float = 1e-5
    feed_forward: str = "gelu"
    positions: str = "none"
    rotary_base: float = 10_000.0
    rotary_layout: str = "half"
    bias: bool = True
    cross_attention: bool = False
    dropout: float = 0.0
    tied: bool = True
    embedding_scale: bool = False
    embedding_norm: bool = False
    num_segments: int = 0
    initialization: str = "pytorch"

    def __post_init__(self) -> None:
        for name in ("num_layers", "d_model", "num_heads"):
            _check.integer(name, getattr(self, name))
        for name in ("num_kv_heads", "d_ff", "context", "vocab_size", "window"):
            if getattr(self, name) is not None:
                _check.integer(name, getattr(self, name))
        _check.integer("num_segments", self.num_segments, at_least=0)
        for name in ("causal", "bias", "cross_attention", "tied"):
            _check.boolean(name, getattr(self, name))
        for name in ("embedding_scale", "embedding_norm"):
            _check.boolean(name, getattr(self, name))
        _check.number("norm_eps", self.norm_eps)
        _check.number("rotary_base", self.rotary_base, 1.0)
        _check.number("dropout", self.dropout, 0.0, below=1.0)
        _check.one_of("norm", self.norm, ("layer", "rms"))
        _check.one_of("norm_placement", self.norm_placement, ("pre", "post"))
        _check.one_of("feed_forward", self.feed_forward, _ACTIVATIONS)
        positions = ("none", "sinusoidal", "learned", "rotary", "linear_bias")
        _check.one_of("positions", self.positions, positions)
        _check.one_of("rotary_layout", self.rotary_layout, ("half", "interleaved"))
        starts = ("gpt2", "normal", "xavier", "pytorch")
        _check.one_of("initialization", self.initialization, starts)
        _check.divides("num_heads", self.num_heads, "d_model", self.d_model)
        if self.num_kv_heads is not None:
            _check.divides("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        if self.positions == "learned" and self.context is None:
            raise ValueError("context must be given with positions='learned', got None")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(f"d_model / num_heads must be even for rotary, got {self.d_head}")

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def d_hidden(self) -> int:
        """Width inside the feed-forward step."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def steps_per_block(self) -> int:
        """How many times a block adds to the stream."""
        return 3 if self.cross_attention else 2


class RMSNorm(nn.Module):
    r"""Divide each vector by the root of its mean square, and scale each entry by a weight.

    .. math:: y = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} \odot w

    (Source: Zhang and Sennrich 2019, section 4.)

    Args:
        d_model: the width.
        eps: what is added to the mean square.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import RMSNorm
        >>> RMSNorm(2)(torch.tensor([[3.0, 4.0]])).square().mean().item()
        0.99999...
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        _check.number("eps", eps)
        self.d_model, self.eps = d_model, eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Normalize each vector.

        Args:
            x: ``(..., D)``.

        Returns:
            ``(..., D)``.

        Raises:
            TypeError: if ``x`` has not the dtype of the weights.
            ValueError: if ``x`` has another width.
        """
        _check.width("x", x, self.d_model)
        _check.same_dtype("x", x, "the weights", self.weight)
        # The squares of float16 numbers above 255 do not fit float16.
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        root = torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + self.eps)  # (..., 1)
        return (exact * root).to(x.dtype) * self.weight


class FeedForward(nn.Module):
    r"""A small network that is applied to each position alone.

    .. math:: W_\mathrm{down}\, f(W_\mathrm{up} x) \quad\text{or, gated,}\quad
        W_\mathrm{down} (\mathrm{silu}(W_\mathrm{gate} x) \odot W_\mathrm{up} x)

    (Source: Vaswani et al. 2017, section 3.3; gated: Shazeer 2020, section 2.)

    Args:
        d_model: width of the stream.
        d_ff: width inside.
        kind: ``"relu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"swiglu"``.
        bias: whether the linear maps have a bias.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if a number is below 1, or the kind unknown.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import FeedForward
        >>> FeedForward(8, 32, "swiglu")(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, d_ff: int, kind: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        _check.integer("d_ff", d_ff)
        _check.one_of("kind", kind, _ACTIVATIONS)
        self.d_model = d_model
        self.activation = _ACTIVATIONS[kind]
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if kind == "swiglu" else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Change each position by what stands there.

        Args:
            x: ``(..., D)``.

        Returns:
            ``(..., D)``.

        Raises:
            TypeError: if ``x`` has not the dtype of the weights.
            ValueError: if ``x`` has another width.
        """
        _check.width("x", x, self.d_model)
        _check.same_dtype("x", x, "the weights", self.up.weight)
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: look at the other positions, then think about it alone.

    (Source: Vaswani et al. 2017, section 3.1, with the norm after each addition; Radford et al.
    2019, section 2.3, with the norm before each step.)

    Positions of the kinds ``"rotary"`` and ``"linear_bias"`` come in through ``rotate`` and
    ``bias``: a ``Stack`` works them out once for all its blocks.

    Args:
        config: what kind of block.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import Block, TransformerConfig
        >>> block = Block(TransformerConfig(num_layers=1, d_model=8, num_heads=2))
        >>> block(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        attention = partial(
            MultiHeadAttention,
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            bias=config.bias,
            dropout=config.dropout,
        )
        self.attention = attention()
        self.norm_1 = make_norm(config)
        self.cross_attention = attention() if config.cross_attention else nn.Identity()
        self.norm_cross = make_norm(config) if config.cross_attention else nn.Identity()
        self.feed_forward = FeedForward(
            config.d_model, config.d_hidden, config.feed_forward, config.bias
        )
        self.norm_2 = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        memory_cache: KVCache | None = None,
        rotate: Callable[[Tensor], Tensor] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Add to the stream what attention and the feed-forward step find.

        Args:
            x: the stream ``(B, T, D)``.
            mask: who may look at whom, on top of ``causal`` and ``window``: boolean ``(T, S)`` or
                ``(B, H, T, S)``, 1 where it spreads. With a cache, ``S`` counts all keys so far.
            memory: output of an encoder ``(B, S, D)``, for blocks with cross-attention.
            memory_mask: who may look at which place of the memory.
            cache: keys and values of earlier calls.
            memory_cache: keys and values of the memory, filled by the first call.
            rotate: applied to queries and keys.
            bias: added to the attention scores.

        Returns:
            The stream ``(B, T, D)``.

        Raises:
            TypeError: if a mask is not boolean.
            ValueError: if a shape does not fit, or a memory is missing or not wanted.
        """
        self._check_memory(memory)
        mask = self._add_window(x, mask, 0 if cache is None else cache.length)
        attend = partial(
            self.attention,
            mask=mask,
            causal=self.config.causal,
            cache=cache,
            rotate=rotate,
            bias=bias,
        )
        consult = partial(self.cross_attention, mask=memory_mask, cache=memory_cache)
        if self.config.norm_placement == "pre":
            x = x + self.dropout(attend(self.norm_1(x)))  # (B, T, D)
            if memory is not None:
                x = x + self.dropout(consult(self.norm_cross(x), memory))  # (B, T, D)
            x = x + self.dropout(self.feed_forward(self.norm_2(x)))  # (B, T, D)
        else:
            x = self.norm_1(x + self.dropout(attend(x)))  # (B, T, D)
            if memory is not None:
                x = self.norm_cross(x + self.dropout(consult(x, memory)))  # (B, T, D)
            x = self.norm_2(x + self.dropout(self.feed_forward(x)))  # (B, T, D)
        return x

    def _check_memory(self, memory: Tensor | None) -> None:
        if self.config.cross_attention != (memory is not None):
            wanted = "given" if self.config.cross_attention else "None"
            raise ValueError(
                f"memory must be {wanted} where cross_attention={self.config.cross_attention}, "
                f"got {'None' if memory is None else 'one'}"
            )

    def _add_window(self, x: Tensor, mask: Tensor | None, past: int) -> Tensor | None:
        """The mask, with the window drawn in where the sequence is longer than that."""
        _check.axes("x", x, "B T D")
        T, S = x.shape[1], past + x.shape[1]
        if self.config.window is None or self.config.window >= S:
            return mask
        window = window_mask(self.config.window, T, S, x.device)  # (T, S)
        if mask is None:
            return window
        shape = (x.shape[0], self.config.num_heads, T, S)
        _check.mask("mask", mask, shape, x.device)
        return mask & window


class Cache:
    """What a ``Stack`` keeps while it writes, so that a step computes only its own.

    Args:
        num_layers: number of blocks.
        capacity: how many places it can hold, allocated in one piece by the first call; ``None``
            lets it grow.

    Attributes:
        layers: one ``KVCache`` per block.
        memory: one per block for the encoder's output, filled by the first call.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import Stack, TransformerConfig
        >>> config = TransformerConfig(num_layers=2, d_model=8, num_heads=2, causal=True)
        >>> stack, x = Stack(config), torch.randn(1, 5, 8)
        >>> cache = stack.new_cache()
        >>> first, rest = stack(x[:, :3], cache=cache), stack(x[:, 3:], cache=cache)
        >>> torch.allclose(torch.cat((first, rest), dim=1), stack(x), atol=1e-5)
        True
    """

    def __init__(self, num_layers: int, capacity: int | None = None) -> None:
        _check.integer("num_layers", num_layers)
        self.layers = [KVCache(capacity) for _ in range(num_layers)]
        self.memory = [KVCache() for _ in range(num_layers)]
        self.positions: Tensor | None = None

    @property
    def length(self) -> int:
        """How many places are filled."""
        return self.layers[0].length

    @property
    def capacity(self) -> int | None:
        """How many places there are, ``None`` where it grows."""
        return self.layers[0].capacity

    def reorder(self, index: Int[Tensor, "N"]) -> None:
        """Keep, in this order, the sequences that ``index`` names.

        Args:
            index: numbers of sequences ``(N)``; one may come several times, or not at all.

        Raises:
            TypeError: if ``index`` does not hold integers.
            ValueError: if a number is outside the batch, or the cache is empty.
        """
        for layer in self.layers:
            layer.reorder(index)
        for layer in self.memory:
            if layer.length > 0:
                layer.reorder(index)
        if self.positions is not None:
            self.positions = self.positions.index_select(0, index)


class Stack(nn.Module):
    """Blocks one on the other: GPT, BERT, ViT and the halves of the translation model.

    Args:
        config: what kind of stack.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import Stack, TransformerConfig
        >>> stack = Stack(TransformerConfig(num_layers=2, d_model=8, num_heads=2, causal=True))
        >>> stack(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = make_norm(config) if config.norm_placement == "pre" else nn.Identity()
        self.rotary = self.linear_bias = None
        if config.positions == "rotary":
            self.rotary = Rotary(config.d_head, config.rotary_base, config.rotary_layout)
        if config.positions == "linear_bias":
            self.linear_bias = LinearBias(config.num_heads)

    def new_cache(self, capacity: int | None = None) -> Cache:
        """An empty cache for this stack.

        Args:
            capacity: how many places to allocate, ``None`` to let it grow.

        Returns:
            The cache, to be given to ``forward`` with each piece of the sequence.

        Raises:
            TypeError: if ``capacity`` is not an int.
            ValueError: if ``capacity`` is below 1.
        """
        return Cache(self.config.num_layers, capacity)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "*N T"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Run the stream through all blocks.

        Args:
            x: the stream ``(B, T, D)``.
            mask: who may look at whom, on top of ``causal`` and ``window``: boolean ``(T, S)`` or
                ``(B, H, T, S)``, 1 where it spreads. With a cache, ``S`` counts all keys so far.
            positions: of the ``T`` places of ``x``, ``(T)`` or ``(B, T)``; if not given they are
                counted on from the cache. Only rotary positions and the linear bias use them here.
            memory: output of an encoder ``(B, S, D)``, for a stack with cross-attention.
            memory_mask: who may look at which place of the memory.
            cache: from ``new_cache``: what earlier calls left, to which this call adds.

        Returns:
            The stream ``(B, T, D)``, normalized.

        Raises:
            TypeError: if a mask is not boolean, or ``x`` has not the dtype of the weights.
            ValueError: if a shape does not fit, the sequence is longer than the context, the cache
                is full or of another batch size, or the stack is not causal and has a cache.
        """
        positions = self._check(x, positions, cache)
        if memory is not None:
            self._check_memory(x, memory, memory_mask, cache)
        rotate = None if self.rotary is None else self.rotary.at(positions, x.dtype)
        bias, seen = self._bias(x, positions, cache)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                memory=memory,
                memory_mask=memory_mask,
                cache=None if cache is None else cache.layers[i],
                memory_cache=None if cache is None else cache.memory[i],
                rotate=rotate,
                bias=bias,
            )
        if cache is not None:
            cache.positions = seen
        return self.norm(x)

    def _check(self, x: Tensor, positions: Tensor | None, cache: Cache | None) -> Tensor:
        """Refuse what would fail half-way through the blocks, and fill in the positions."""
        _check.axes("x", x, "B T D")
        _check.width("x", x, self.config.d_model)
        _check.same_dtype("x", x, "the weights", next(self.parameters()))
        B, T = x.shape[:2]
        past = 0 if cache is None else cache.length
        if self.config.context is not None and past + T > self.config.context:
            raise ValueError(
                f"x must end within the context of {self.config.context}, got length {past + T}"
            )
        if cache is not None:
            if not self.config.causal:
                raise ValueError("cache must be None where causal=False: what is kept would change")
            cache.layers[0].check(B, T)
        if positions is None:
            return torch.arange(past, past + T, device=x.device)  # (T)
        check_positions("positions", positions, self.config.context)
        if positions.shape not in ((T,), (1, T), (B, T)):
            raise ValueError(
                f"positions must have shape {(T,)} or {(B, T)}, got {tuple(positions.shape)}"
            )
        return positions

    def _check_memory(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor | None, cache: Cache | None
    ) -> None:
        """Refuse a memory that the first block would refuse, but only after its own attention."""
        _check.axes("memory", memory, "B S D")
        _check.width("memory", memory, self.config.d_model)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(
                f"memory must have the batch of x, {x.shape[0]}, got {memory.shape[0]}"
            )
        _check.same_dtype("memory", memory, "x", x)
        held = 0 if cache is None else cache.memory[0].length
        if held not in (0, memory.shape[1]):
            raise ValueError(
                f"memory must be the one in the cache, of length {held}, got {memory.shape[1]}"
            )
        if memory_mask is not None:
            shape = (x.shape[0], self.config.num_heads, x.shape[1], memory.shape[1])
            _check.mask("memory_mask", memory_mask, shape, x.device)

    def _bias(
        self, x: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The linear bias, and the positions of all keys, which the cache remembers for it."""
        if self.linear_bias is None:
            return None, None
        keys = positions
        if cache is not None:
            keys = positions.expand(x.shape[0], -1)  # (B, T)
            if cache.positions is not None:
                keys = torch.cat((cache.positions, keys), dim=-1)  # (B, S)
        return self.linear_bias(positions, keys, x.dtype), keys


class Embed(nn.Module):
    """What goes into a stack of tokens: a vector for each, with its position.

    Args:
        config: gives the vocabulary, the kind of positions, scale, segments, norm and dropout.

    Raises:
        ValueError: if the configuration has no ``vocab_size``.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import Embed, TransformerConfig
        >>> config = TransformerConfig(num_layers=1, d_model=8, num_heads=2, vocab_size=11,
        ...                            context=16, positions="learned")
        >>> Embed(config)(torch.tensor([[3, 1, 4], [1, 5, 9]])).shape
        torch.Size([2, 3, 8])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise ValueError("vocab_size must be given to embed tokens, got None")
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions: nn.Module | None = None
        if config.positions == "learned" and config.context is not None:
            self.positions = Learned(config.d_model, config.context)
        elif config.positions == "sinusoidal":
            self.positions = Sinusoidal(config.d_model, config.context)
        self.segments = None
        if config.num_segments > 0:
            self.segments = nn.Embedding(config.num_segments, config.d_model)
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model) if config.embedding_scale else 1.0
        initialize(self, config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "*N T"] | None = None,
        offset: int = 0,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Look the tokens up, and add what depends on the place.

        Args:
            ids: tokens ``(B, T)``.
            positions: their positions ``(T)`` or ``(B, T)``, counted from ``offset`` if not given.
            offset: the position of the first token: how many are in the cache.
            segments: the kind of segment that each token is in ``(B, T)``, all 0 if not given.

        Returns:
            The stream ``(B, T, D)``.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if an id is outside the vocabulary, or a position beyond the context.
        """
        _check.axes("ids", ids, "B T")
        _check.ids("ids", ids, self.tokens.num_embeddings)
        _check.integer("offset", offset, at_least=0)
        T = ids.shape[1]
        context = self.config.context
        if context is not None and offset + T > context:
            raise ValueError(f"ids must end within the context of {context}, got {offset + T}")
        x = self.tokens(ids)  # (B, T, D)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            if positions is None:
                positions = torch.arange(offset, offset + T, device=ids.device)  # (T)
            x = x + self.positions(positions, x.dtype)  # (B, T, D)
        if self.segments is not None:
            segments = torch.zeros_like(ids) if segments is None else segments
            _check.ids("segments", segments, self.segments.num_embeddings)
            x = x + self.segments(segments)  # (B, T, D)
        return self.dropout(self.norm(x))  # (B, T, D)


class Head(nn.Module):
    """What comes out of a stack of tokens: a score for each word of the vocabulary.

    Args:
        config: gives the vocabulary, and whether the weights are those of ``embed``.
        embed: the embedding to share, needed where ``config.tied``.
        norm: whether a norm stands before the scores.
        bias: whether each word has a bias.

    Raises:
        ValueError: if there is no ``vocab_size``, or no ``embed`` to be tied to.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import Embed, Head, TransformerConfig
        >>> config = TransformerConfig(num_layers=1, d_model=8, num_heads=2, vocab_size=11)
        >>> embed = Embed(config)
        >>> head = Head(config, embed)
        >>> head(torch.randn(2, 5, 8)).shape, head.weight is embed.tokens.weight
        (torch.Size([2, 5, 11]), True)
    """

    def __init__(
        self,
        config: TransformerConfig,
        embed: Embed | None = None,
        *,
        norm: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise ValueError("vocab_size must be given to score tokens, got None")
        self.norm = make_norm(config) if norm else nn.Identity()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if bias else None
        if config.tied:
            if embed is None:
                raise ValueError("embed must be given where tied=True, got None")
            self.weight = embed.tokens.weight  # (V, D)
        else:
            self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
            _fill(self.weight, config.initialization)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Score every word at every position.

        Args:
            x: the stream ``(B, T, D)``.

        Returns:
            Logits ``(B, T, V)``.

        Raises:
            ValueError: if ``x`` has another shape.
        """
        _check.axes("x", x, "B T D")
        _check.width("x", x, self.weight.shape[1])
        return F.linear(self.norm(x), self.weight, self.bias)  # (B, T, V)


def make_norm(config: TransformerConfig) -> nn.Module:
    """The norm that the configuration asks for.

    Args:
        config: gives kind, width, epsilon and bias.

    Returns:
        ``nn.LayerNorm`` or ``RMSNorm``, from ``(..., D)`` to the same.

    Example:
        >>> from tutorial_lib.transformer import TransformerConfig, make_norm
        >>> make_norm(TransformerConfig(num_layers=1, d_model=8, num_heads=2))
        LayerNorm((8,), eps=1e-05, ...)
    """
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps)
    return nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias)


def initialize(module: nn.Module, config: TransformerConfig) -> None:
    """Draw the weights of the linear maps and embeddings in ``module`` as published.

    Args:
        module: anything; its norms are left alone.
        config: names the initialization, and gives the number of layers for ``"gpt2"``.

    Example:
        >>> import torch
        >>> from tutorial_lib.transformer import TransformerConfig, initialize
        >>> config = TransformerConfig(num_layers=1, d_model=8, num_heads=2, initialization="gpt2")
        >>> layer = torch.nn.Linear(100, 100)
        >>> initialize(layer, config)
        >>> round(layer.weight.std().item(), 2)
        0.02
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Embedding | Learned):
            _fill(part.weight, config.initialization)
        elif isinstance(part, nn.Linear) and config.initialization != "pytorch":
            _fill(part.weight, config.initialization)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
            if config.initialization == "gpt2" and name.endswith(("output", "down")):
                with torch.no_grad():
                    part.weight /= math.sqrt(config.steps_per_block * config.num_layers)


def _fill(weight: Tensor, kind: str) -> None:
    """Draw one matrix: by Glorot, or normal (embeddings also where PyTorch makes the layers)."""
    if kind == "xavier":
        nn.init.xavier_uniform_(weight)
    else:
        nn.init.normal_(weight, std=0.02)

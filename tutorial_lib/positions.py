"""Positions: what tells attention, which sees a set, about order (chapter 7).

A position is a whole number from 0. Each kind takes the positions themselves, ``(T)`` for all
sequences alike or ``(B, T)`` for each its own. So a cache is an offset, ``torch.arange(8, 9)``,
and left padding is a shift: ``token_positions``.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import _check

Rotation = Callable[[Tensor], Tensor]


def token_positions(visible: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Number the real tokens of each sequence from 0, wherever the padding stands.

    Args:
        visible: which places hold real tokens ``(B, T)``.

    Returns:
        The positions ``(B, T)``. Padding before the first token gets 0; padding elsewhere
        repeats the position before it.

    Raises:
        TypeError: if ``visible`` is not boolean.
        ValueError: if ``visible`` has not two axes.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import token_positions
        >>> token_positions(torch.tensor([[False, False, True, True], [True, True, True, False]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 2]])
    """
    _check.axes("visible", visible, "B T")
    _check.mask("visible", visible, visible.shape, visible.device)
    return (visible.cumsum(dim=-1) - 1).clamp(min=0)  # (B, T)


class Sinusoidal(nn.Module):
    r"""Waves of geometrically growing length: nothing to learn, no end in sight.

    .. math:: p_{t, 2i} = \sin(t / 10000^{2i/d}), \quad p_{t, 2i+1} = \cos(t / 10000^{2i/d})

    (Source: Vaswani et al. 2017, section 3.5.) With an odd width the last sine has no cosine.

    Args:
        d_model: the width.
        context: the number of positions that are allowed, ``None`` for all.
        base: the 10,000 of the formula.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is out of range.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import Sinusoidal
        >>> Sinusoidal(4)(torch.arange(2))
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, d_model: int, context: int | None = None, base: float = 10_000.0) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        if context is not None:
            _check.integer("context", context)
        _check.number("base", base, 1.0)
        self.d_model, self.context, self.base = d_model, context, base

    def forward(
        self, positions: Int[Tensor, "*N T"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "*N T D"]:
        """Look the positions up.

        Args:
            positions: ``(T)`` or ``(B, T)``.
            dtype: of the result, PyTorch's default if not given.

        Returns:
            One vector per position, ``(T, D)`` or ``(B, T, D)``, to be added to the token's.

        Raises:
            TypeError: if ``positions`` does not hold integers.
            ValueError: if a position is negative, or beyond the context.
        """
        check_positions("positions", positions, self.context)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        angles = _angles(positions, self.d_model, self.base, dtype)  # (..., T, ceil(D / 2))
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return waves[..., : self.d_model].to(dtype)  # (..., T, D)


class Learned(nn.Module):
    """A vector for each position, learned like any other weight.

    (Source: Gehring et al. 2017, section 3.1; Radford et al. 2018 and Devlin et al. 2019 use it.)

    Args:
        d_model: the width.
        context: the number of positions; there is none beyond.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if a number is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import Learned
        >>> Learned(4, context=8)(torch.arange(3)).shape
        torch.Size([3, 4])
    """

    def __init__(self, d_model: int, context: int) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        _check.integer("context", context)
        self.context = context
        self.weight = nn.Parameter(torch.empty(context, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def forward(
        self, positions: Int[Tensor, "*N T"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "*N T D"]:
        """Look the positions up.

        Args:
            positions: ``(T)`` or ``(B, T)``.
            dtype: of the result, that of the weight if not given.

        Returns:
            One vector per position, ``(T, D)`` or ``(B, T, D)``, to be added to the token's.

        Raises:
            TypeError: if ``positions`` does not hold integers.
            ValueError: if a position is negative, or beyond the context.
        """
        check_positions("positions", positions, self.context)
        return F.embedding(positions, self.weight).to(dtype)  # (..., T, D)


class Rotary(nn.Module):
    r"""Turn each pair of a query's and a key's entries by an angle that grows with the position.

    .. math:: (a, b) \mapsto (a \cos t\theta_i - b \sin t\theta_i,\;
        b \cos t\theta_i + a \sin t\theta_i), \quad \theta_i = 10000^{-2i/d}

    A query's product with a key then depends on the distance between them alone.
    (Source: Su et al. 2021, section 3.2.)

    Args:
        d_head: width of a head; even.
        base: the 10,000 of the formula.
        layout: which entries are pairs: ``"half"``, entry i and entry i + d/2 (Llama in Hugging
            Face's files), or ``"interleaved"``, entries 2i and 2i + 1 (the paper; GGUF files).

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if ``d_head`` is odd, a number out of range, or the layout unknown.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import Rotary
        >>> rotary = Rotary(4)
        >>> x = torch.ones(1, 1, 2, 4)
        >>> rotary(x)[0, 0]
        tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
                [-0.3012,  0.9900,  1.3818,  1.0099]])
    """

    def __init__(self, d_head: int, base: float = 10_000.0, layout: str = "half") -> None:
        super().__init__()
        _check.integer("d_head", d_head)
        _check.number("base", base, 1.0)
        _check.one_of("layout", layout, ("half", "interleaved"))
        if d_head % 2:
            raise ValueError(f"d_head must be even, as entries turn in pairs, got {d_head}")
        self.d_head, self.base, self.layout = d_head, base, layout

    def forward(
        self, x: Float[Tensor, "B H T K"], positions: Int[Tensor, "*N T"] | None = None
    ) -> Float[Tensor, "B H T K"]:
        """Turn queries or keys.

        Args:
            x: ``(B, H, T, K)``.
            positions: ``(T)`` or ``(B, T)``, from 0 if not given.

        Returns:
            The same, turned, in its own dtype.

        Raises:
            TypeError: if ``positions`` does not hold integers.
            ValueError: if ``x`` has another width, or a position is negative.
        """
        _check.axes("x", x, "B H T K")
        _check.width("x", x, self.d_head)
        if positions is None:
            positions = torch.arange(x.shape[2], device=x.device)
        return self.at(positions, x.dtype)(x)

    def at(self, positions: Int[Tensor, "*N T"], dtype: torch.dtype | None = None) -> Rotation:
        """The rotation for these positions, worked out once for all layers.

        Args:
            positions: ``(T)`` or ``(B, T)``.
            dtype: that of what will be turned, PyTorch's default if not given.

        Returns:
            A function from ``(B, H, T, K)`` to the same.

        Raises:
            TypeError: if ``positions`` does not hold integers.
            ValueError: if a position is negative.
        """
        check_positions("positions", positions, None)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        angles = _angles(positions, self.d_head, self.base, dtype)  # (..., T, K/2)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        half = self.layout == "half"
        if half:
            cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        else:
            cos = torch.stack((cos, cos), dim=-1).flatten(-2)
            sin = torch.stack((-sin, sin), dim=-1).flatten(-2)  # (..., T, K)
        if positions.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]  # (B, 1, T, K)

        def rotate(x: Tensor) -> Tensor:
            """Each entry times the cosine, plus its partner times the sine with its sign."""
            partner = x.roll(x.shape[-1] // 2, dims=-1) if half else _swap_neighbors(x)
            return x * cos.to(x.dtype) + partner * sin.to(x.dtype)  # (B, H, T, K)

        return rotate


def _swap_neighbors(x: Tensor) -> Tensor:
    """Entries 2i and 2i + 1 change places."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).flip(-1).reshape(x.shape)


class LinearBias(nn.Module):
    r"""Lower each score by the distance times a slope, one slope per head (ALiBi).

    For a number of heads that is a power of 2 the slopes are :math:`2^{-8h/H}`, h from 1; for any
    other number, those of the power below, and every second one of the power above.
    (Source: Press et al. 2022, section 3, and the authors' program for the other numbers.)
    On both sides of a query the distance counts alike, so the bias also serves without a causal
    mask.

    Args:
        num_heads: the number of heads.

    Raises:
        TypeError: if ``num_heads`` is not an int.
        ValueError: if ``num_heads`` is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import LinearBias
        >>> bias = LinearBias(num_heads=8)
        >>> bias.slopes[:3]
        (0.5, 0.25, 0.125)
        >>> bias(torch.arange(2), torch.arange(2))[0]
        tensor([[-0.0000, -0.5000],
                [-0.5000, -0.0000]])
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        _check.integer("num_heads", num_heads)
        self.slopes = _slopes(num_heads)

    def forward(
        self,
        query_positions: Int[Tensor, "*#N T"],
        key_positions: Int[Tensor, "*#N S"],
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "*#N H T S"]:
        """What to add to the scores.

        Args:
            query_positions: ``(T)`` or ``(B, T)``.
            key_positions: ``(S)`` or ``(B, S)``, those in the cache included.
            dtype: of the result, PyTorch's default if not given.

        Returns:
            The bias, ``(H, T, S)`` or ``(B, H, T, S)``.

        Raises:
            TypeError: if positions are not integers.
            ValueError: if a position is negative.
        """
        check_positions("query_positions", query_positions, None)
        check_positions("key_positions", key_positions, None)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        distance = (query_positions[..., :, None] - key_positions[..., None, :]).abs()
        slopes = torch.tensor(self.slopes, dtype=dtype, device=distance.device)  # (H)
        return -slopes[:, None, None] * distance[..., None, :, :].to(dtype)  # (..., H, T, S)


def _slopes(num_heads: int) -> tuple[float, ...]:
    """The slope of each head."""
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power, 2)]
    return tuple(slopes + between[: num_heads - power])


def _angles(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Tensor:
    """Position times frequency, ``(..., T, ceil(width / 2))``.

    In float32 or better whatever the model's dtype: in float16 the positions beyond 2,048, and
    the frequencies long before, would run together.
    """
    exact = torch.promote_types(dtype, torch.float32)
    exponent = torch.arange(0, width, 2, device=positions.device, dtype=exact) / width
    return positions[..., None].to(exact) * base**-exponent


def check_positions(name: str, positions: Tensor, context: int | None) -> None:
    """Refuse positions that are not whole numbers from 0, below the context where there is one.

    Args:
        name: what to call them in the message.
        positions: ``(T)`` or ``(B, T)``.
        context: how many positions there are, ``None`` for no end.

    Raises:
        TypeError: if they are not an integer Tensor.
        ValueError: if there are not one or two axes, or one is negative or beyond the context.

    Example:
        >>> import torch
        >>> from tutorial_lib.positions import check_positions
        >>> check_positions("positions", torch.arange(9), context=8)
        Traceback (most recent call last):
        ValueError: positions must be below the context of 8, got position 8
    """
    if not isinstance(positions, Tensor):
        raise TypeError(f"{name} must be a Tensor of ints, got {type(positions).__name__}")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got dtype {positions.dtype}")
    if positions.dim() not in (1, 2):
        raise ValueError(f"{name} must have shape (T) or (B, T), got {tuple(positions.shape)}")
    if torch.compiler.is_compiling() or positions.numel() == 0 or positions.is_meta:
        return
    lowest, highest = torch.stack(positions.aminmax()).tolist()  # both in one transfer
    if lowest < 0:
        raise ValueError(f"{name} must be 0 or more, got {lowest}")
    if context is not None and highest >= context:
        raise ValueError(f"{name} must be below the context of {context}, got position {highest}")

"""One protocol for all layers that read a sequence: ``(B, T, D)`` in, ``(B, T, D)`` out.

So any of them can stand where another stood, with the same embedding below and the same head
above. They differ in one thing: what may position *i* look at, and who decides?
``who_looks_at_whom`` measures the first, ``describe`` what it costs.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tutorial_lib import _check
from tutorial_lib.attention import MultiHeadAttention
from tutorial_lib.convolution import ConvolutionLayer
from tutorial_lib.dense import Dense, Linear
from tutorial_lib.recurrent import Recurrent, RecurrentLayer

TOLERANCE = 0.15  # how far a layer may be from the others' number of parameters


class LowRankDense(nn.Module):
    """A dense layer whose ``(T*D, T*D)`` matrix has a rank that we choose, to save parameters.

    Each place turns what stands there into ``rank`` numbers, with weights of its own; they are
    added up over all places, or if causal over those so far; each place makes its output of the
    sums, again with weights of its own. That is a :class:`~tutorial_lib.dense.Dense` whose block
    from place *s* to place *t* is ``write[s] @ read[t]``, with ``2 * rank * T * D`` numbers
    instead of ``(T*D) ** 2``.

    Args:
        d_model: width of each position.
        length: T, the only length that it can read.
        rank: how many numbers each place writes.
        causal: whether place *t* reads only what places up to *t* wrote.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.layers import LowRankDense
        >>> LowRankDense(d_model=5, length=7, rank=3)(torch.zeros(2, 7, 5)).shape
        torch.Size([2, 7, 5])
    """

    def __init__(self, d_model: int, length: int, rank: int, causal: bool = False) -> None:
        _check.integer("d_model", d_model)
        _check.integer("length", length)
        _check.integer("rank", rank)
        super().__init__()
        self.d_model, self.length, self.rank, self.causal = d_model, length, rank, causal
        # Bounds that leave the outputs about as large as nn.Linear's, at each place.
        added = torch.arange(1.0, length + 1) if causal else torch.full((length,), float(length))
        start = torch.empty(length, d_model, rank).uniform_(-1, 1) * d_model**-0.5
        self.write = nn.Parameter(start)
        start = torch.empty(length, rank, d_model).uniform_(-1, 1) * rank**-0.5
        self.read = nn.Parameter(start * added[:, None, None] ** -0.5)
        self.bias = nn.Parameter(torch.zeros(length, d_model))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Mix the places: ``(B, T, D)`` to ``(B, T, D)``.

        Raises:
            TypeError: if ``x`` is no tensor of the weights' dtype.
            ValueError: if its width or its length is another.
        """
        _check.axes("x", x, "B T D")
        _check.width("x", x, self.d_model)
        _check.same_dtype("x", x, "the weights", self.write)
        if x.shape[1] != self.length:
            raise ValueError(f"x must have length {self.length}, got {x.shape[1]}")
        written = torch.einsum("btd,tdr->btr", x, self.write)  # (B, T, R)
        if self.causal:
            total = written.cumsum(dim=1)  # (B, T, R)
        else:
            total = written.sum(dim=1, keepdim=True).expand_as(written)  # (B, T, R)
        y = torch.einsum("btr,trd->btd", total, self.read)  # (B, T, D)
        return y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return (
            f"d_model={self.d_model}, length={self.length}, rank={self.rank}, causal={self.causal}"
        )


class AttentionLayer(nn.Module):
    """Self-attention in the form that all layers share, causal or not once and for all.

    Args:
        d_model: width of input and output.
        num_heads: heads that the width is shared out among.
        num_kv_heads: heads of keys and values; ``num_heads`` where it is not given.
        causal: whether position *i* looks at no position after *i*.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is below 1, or the heads do not divide.

    Example:
        >>> import torch
        >>> from tutorial_lib.layers import AttentionLayer
        >>> AttentionLayer(6, num_heads=3, causal=True)(torch.zeros(2, 7, 6)).shape
        torch.Size([2, 7, 6])
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int | None = None, causal: bool = False
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads, num_kv_heads)
        self.causal = causal

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Let each position look at the others: ``(B, T, D)`` to ``(B, T, D)``."""
        return self.attention(x, causal=self.causal)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"causal={self.causal}"


class TokenClassifier(nn.Module):
    """An embedding below a sequence layer, and a linear map above it: one answer for each token.

    The three parts are the same whatever the layer, so two of these differ in the layer alone.

    Args:
        vocab_size: V, how many different tokens there are.
        d_model: D, the width of the embedding and of the layer.
        layer: takes and returns ``(B, T, D)``; an ``nn.Sequential`` of such layers is one too.
        num_classes: how many answers there are to choose from; ``vocab_size`` for a language
            model, which names the next token.
        positions: one of :mod:`~tutorial_lib.positions` whose vectors are added to those of the
            tokens, ``Learned`` or ``Sinusoidal``; for a layer that does not see the order.

    Attributes:
        embedding: the ``nn.Embedding``, a vector for each token.
        layer: the sequence layer.
        head: the :class:`~tutorial_lib.dense.Linear` from D to the classes.

    Raises:
        TypeError: if a size is not an int, or ``layer`` or ``positions`` is not a module.
        ValueError: if a size is below 1.

    Example:
        >>> import torch
        >>> from tutorial_lib.layers import TokenClassifier
        >>> from tutorial_lib.recurrent import RecurrentLayer
        >>> model = TokenClassifier(9, 6, RecurrentLayer(6, "gru"), num_classes=4)
        >>> model(torch.tensor([[3, 1, 8], [0, 0, 2]])).shape
        torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        layer: nn.Module,
        num_classes: int,
        positions: nn.Module | None = None,
    ) -> None:
        _check.integer("vocab_size", vocab_size)
        _check.integer("d_model", d_model)
        _check.integer("num_classes", num_classes)
        parts = {"layer": layer} | ({} if positions is None else {"positions": positions})
        for name, module in parts.items():
            if not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be an nn.Module, got {type(module).__name__}")
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = positions
        self.layer = layer
        self.head = Linear(d_model, num_classes)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Score the classes at each token.

        Args:
            tokens: ids from 0 to ``vocab_size - 1``, ``(B, T)``.

        Returns:
            The logits, ``(B, T, num_classes)``.

        Raises:
            TypeError: if ``tokens`` are no integers.
            ValueError: if a token is outside the vocabulary, the shape is another, or there are
                no positions for so many tokens.
        """
        _check.axes("tokens", tokens, "B T")
        _check.ids("tokens", tokens, self.embedding.num_embeddings)
        x = self.embedding(tokens)  # (B, T, D)
        if self.positions is not None:
            places = torch.arange(tokens.shape[1], device=tokens.device)  # (T,)
            x = x + self.positions(places)  # (B, T, D)
        return self.head(self.layer(x))  # (B, T, C)


def sequence_layers(
    d_model: int,
    length: int,
    *,
    causal: bool = False,
    num_heads: int = 4,
    kernel_size: int = 3,
    dilation: int = 2,
    cell: str = "gru",
) -> dict[str, nn.Module]:
    """Build the five layers of one width, at about equal numbers of parameters.

    The measure is attention's ``4 D**2 + 4 D``; the others come within 15 % of it. They get there
    by an inner width: the recurrent net by that of its state, the others by a linear layer from
    ``D`` to it before, and one back behind. The dense layer, which pays for every pair of places,
    becomes narrow and of low rank (of the sizes that fit, the one of highest rank). That is what a
    dense layer costs, and a fair comparison has to show it.

    Args:
        d_model: D, the width of input and output.
        length: T; the dense layer reads this length alone, the others any.
        causal: whether position *i* depends on no position after *i*. If not, the recurrent layer
            reads in both directions.
        num_heads: heads of the attention layer; divides ``d_model``.
        kernel_size: positions that the two convolutions look at; odd, unless ``causal``.
        dilation: distance between these positions in the dilated convolution.
        cell: ``"rnn"``, ``"lstm"`` or ``"gru"``.

    Returns:
        A dict with the keys ``dense``, ``convolution``, ``dilated``, ``recurrent``, ``attention``,
        in this order; each module takes and returns ``(B, T, D)``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if a number is below 1, does not divide, or the kernel is even and not causal;
            if no inner width brings a layer within 15 % (narrow widths are too coarse, and long
            sequences cost the dense layer too much).

    Example:
        >>> from tutorial_lib.layers import sequence_layers
        >>> for name, layer in sequence_layers(d_model=32, length=16).items():
        ...     print(name, sum(p.numel() for p in layer.parameters()))
        dense 4211
        convolution 4232
        dilated 4232
        recurrent 4080
        attention 4224
    """
    _check.integer("d_model", d_model)
    _check.integer("length", length)
    attention = AttentionLayer(d_model, num_heads, causal=causal)
    budget = _parameters(attention)

    def convolution(width: int, dilation: int) -> nn.Module:
        return _inside(d_model, width, ConvolutionLayer(width, kernel_size, causal, dilation))

    layers = {
        "dense": _dense_within(budget, d_model, length, causal),
        "convolution": _at_budget(lambda width: convolution(width, 1), budget),
        "dilated": _at_budget(lambda width: convolution(width, dilation), budget),
        "recurrent": _at_budget(
            lambda width: RecurrentLayer(d_model, cell, not causal, width), budget
        ),
        "attention": attention,
    }
    for name, layer in layers.items():
        count = _parameters(layer)
        if abs(count - budget) > TOLERANCE * budget:
            raise ValueError(
                f"d_model must be larger (or length smaller) for layers of equal size, got d_model="
                f"{d_model}, length={length}: attention has {budget} parameters, {name} {count}"
            )
    return layers


def _inside(d_model: int, width: int, layer: nn.Module) -> nn.Module:
    """``layer`` between a linear layer that leads to its width and one that leads back."""
    return nn.Sequential(Linear(d_model, width), layer, Linear(width, d_model))


def _at_budget(build: Callable[[int], nn.Module], budget: int) -> nn.Module:
    """The layer of that inner width which brings it nearest to ``budget`` parameters."""

    def count(width: int) -> int:
        with torch.device("meta"):  # without memory, and without random numbers
            return _parameters(build(width))

    above = bisect_left(range(1, budget + 1), budget, key=count) + 1
    widths = range(max(1, above - 1), above + 1)
    return build(min(widths, key=lambda width: abs(count(width) - budget)))


def _dense_within(budget: int, d_model: int, length: int, causal: bool) -> nn.Module:
    """The dense layer near ``budget`` through which most numbers pass."""

    def nearest_rank(width: int) -> int:
        rank = round((budget - count(width, rank=0)) / (2 * length * width))
        return max(1, min(rank, length * width))

    def count(width: int, rank: int) -> int:
        return (2 * rank + 1) * length * width + (2 * d_model + 1) * width + d_model

    def quality(width: int) -> tuple[float, int]:
        rank = nearest_rank(width)
        miss = abs(count(width, rank) - budget) / budget
        return -max(miss, TOLERANCE / 3), rank  # near enough is near enough

    width = max(range(1, d_model + 1), key=quality)
    return _inside(d_model, width, LowRankDense(width, length, nearest_rank(width), causal))


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def who_looks_at_whom(layer: nn.Module, d_model: int, length: int) -> Bool[Tensor, "T T"]:
    """Measure which output depends on which input, by gradients.

    It works on a copy in float64 and eval mode, with random inputs of its own; neither the layer
    nor the random numbers of the program are touched. A dependence too faint for float64 (below
    1e-308, as a plain recurrent net may have over thousands of steps) counts as none.

    Args:
        layer: takes and returns ``(B, T, D)``.
        d_model: D.
        length: T.

    Returns:
        ``(T, T)`` on the CPU: entry ``[i, j]`` is True where output *i* depends on input *j*.

    Raises:
        TypeError: if ``layer`` is not a module, or a size is not an int.
        ValueError: if a size is below 1, or the layer does not return ``(B, T, D)``.

    Example:
        >>> from tutorial_lib.layers import AttentionLayer, who_looks_at_whom
        >>> who_looks_at_whom(AttentionLayer(6, 2, causal=True), d_model=6, length=4).int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)
    """
    if not isinstance(layer, nn.Module):
        raise TypeError(f"layer must be an nn.Module, got {type(layer).__name__}")
    _check.integer("d_model", d_model)
    _check.integer("length", length)
    layer = copy.deepcopy(layer).cpu().double().eval()
    own = torch.Generator().manual_seed(0)
    x, weights = torch.randn(2, length, d_model, generator=own, dtype=torch.float64)
    looks = []
    for rows in torch.arange(length).split(32):  # one example of the batch for each row
        with torch.enable_grad():
            inputs = x.repeat(len(rows), 1, 1).requires_grad_()  # (N, T, D)
            outputs = layer(inputs)  # (N, T, D)
            if outputs.shape != inputs.shape:
                wanted, came = tuple(inputs.shape), tuple(outputs.shape)
                raise ValueError(f"layer must return the shape it takes, {wanted}, got {came}")
            measured = (outputs[torch.arange(len(rows)), rows] * weights[rows]).sum()
            (gradient,) = torch.autograd.grad(measured, inputs)  # (N, T, D)
        looks.append((gradient != 0).any(dim=-1))
    return torch.cat(looks)  # (T, T)


@dataclass(frozen=True)
class LayerReport:
    """What a layer is and costs, at one width and length.

    Attributes:
        looks_at: what position *i* may look at, in words.
        decided_by: who decides how much each of them counts, in words.
        parameters: how many numbers training sets.
        receptive_field: distance from the first to the last input that one output depends on, both
            included; the largest over all positions, measured by gradients.
        path_length: how often something has to be computed, one after another, for the last
            position to hear of the first. One for each layer that must be stacked (measured); in a
            recurrent layer one for each step, hence T. None if it never does, as with dilated
            convolutions of one dilation, which skip places: the ends must be a multiple apart.
        path_unit: ``"layers"``, or ``"steps"`` in a recurrent layer.
        operations: multiplications with an addition, for one sequence, in matrix products and
            convolutions; the work element by element (gates, softmax, bias) is left out. A causal
            attention or dense layer is counted in full, since it computes what it then hides.

    Example:
        >>> from tutorial_lib.layers import AttentionLayer, describe
        >>> report = describe(AttentionLayer(8, 2), d_model=8, length=5)
        >>> report.parameters, report.receptive_field, report.path_length, report.path_unit
        (288, 5, 1, 'layers')
    """

    looks_at: str
    decided_by: str
    parameters: int
    receptive_field: int
    path_length: int | None
    path_unit: str
    operations: int


def describe(layer: nn.Module, d_model: int, length: int) -> LayerReport:
    """Report what a layer looks at and what it costs.

    Args:
        layer: one of this package's sequence layers, alone or in an ``nn.Sequential`` with linear
            layers; takes and returns ``(B, T, D)``.
        d_model: D.
        length: T.

    Returns:
        The report, for sequences of this length.

    Raises:
        TypeError: if ``layer`` is not a module, has no or more than one sequence layer in it, or
            something in it has no known number of operations.
        ValueError: as :func:`who_looks_at_whom`.

    Example:
        >>> from tutorial_lib.convolution import ConvolutionLayer
        >>> from tutorial_lib.layers import describe
        >>> report = describe(ConvolutionLayer(8, kernel_size=3), d_model=8, length=10)
        >>> report.receptive_field, report.path_length, report.path_unit
        (3, 9, 'layers')
    """
    looks = who_looks_at_whom(layer, d_model, length)
    mixer = _mixer(layer)
    recurrent = isinstance(mixer, Recurrent)
    layers = layers_between_ends(looks)
    seen = [row.nonzero() for row in looks]
    causal = length > 1 and not bool(looks.triu(1).any())
    looks_at, decided_by = _in_words(mixer)
    return LayerReport(
        looks_at=looks_at + " (none after *i*)" * (causal and not recurrent),
        decided_by=decided_by,
        parameters=_parameters(layer),
        receptive_field=max(int(s.max() - s.min()) + 1 if len(s) else 0 for s in seen),
        path_length=None if layers is None else layers * (length if recurrent else 1),
        path_unit="steps" if recurrent else "layers",
        operations=operations(layer, length),
    )


def layers_between_ends(looks: Bool[Tensor, "T T"]) -> int | None:
    """Count the layers to stack before the last output depends on the first input.

    Args:
        looks: ``(T, T)``, what one such layer looks at, as :func:`who_looks_at_whom` measures it.

    Returns:
        The number of layers, at least 1; None if no number is enough.

    Raises:
        TypeError: if ``looks`` is not a boolean tensor.
        ValueError: if it is not square, or empty.

    Example:
        >>> import torch
        >>> from tutorial_lib.layers import layers_between_ends
        >>> neighbor = torch.eye(5).roll(-1, dims=1).bool()  # i looks at i - 1
        >>> layers_between_ends(neighbor), layers_between_ends(torch.eye(5).bool())
        (4, None)
    """
    _check.axes("looks", looks, "T T")
    if looks.dtype != torch.bool:
        raise TypeError(f"looks must be boolean, got {looks.dtype}")
    if len(looks) != looks.shape[1] or len(looks) == 0:
        raise ValueError(f"looks must have shape (T, T), got {tuple(looks.shape)}")
    reached = looks[-1:]  # (1, T): on what the last output depends
    for layers in range(1, len(looks) + 1):
        if reached[0, 0]:
            return layers
        reached = (reached.float() @ looks.float()) > 0
    return None


def operations(module: nn.Module, length: int) -> int:
    """Count the multiply-adds of one sequence, by formula.

    Args:
        module: a sequence layer of this package, or modules made of such and of linear layers, each
            of them used once.
        length: T.

    Returns:
        Multiplications with an addition, in matrix products and convolutions. (PyTorch's
        ``FlopCounterMode`` counts each of them as two.)

    Raises:
        TypeError: if something in ``module`` has no known formula, or ``length`` is not an int.
        ValueError: if ``length`` is below 1.

    Example:
        >>> from tutorial_lib.layers import AttentionLayer, operations
        >>> D, T = 8, 10
        >>> operations(AttentionLayer(D, 2), T) == 4 * T * D**2 + 2 * T**2 * D
        True
    """
    _check.integer("length", length)
    if isinstance(module, MultiHeadAttention):
        projections = sum(operations(part, length) for part in module.children())
        return projections + 2 * length**2 * module.d_model  # the scores, and their use
    if isinstance(module, Dense):
        return module.weight.numel()
    if isinstance(module, LowRankDense):
        return module.write.numel() + module.read.numel()
    if isinstance(module, ConvolutionLayer):
        return length * module.conv.weight.numel()
    if isinstance(module, Linear | nn.Linear):
        return length * module.weight.numel()
    if isinstance(module, Recurrent):
        matrices = (weight for weight in module.parameters() if weight.dim() == 2)
        return length * sum(weight.numel() for weight in matrices)
    if next(module.parameters(recurse=False), None) is not None:
        raise TypeError(f"module must be made of sequence and linear layers, got {type(module)}")
    return sum(operations(part, length) for part in module.children())


_MIXERS = (Dense, LowRankDense, ConvolutionLayer, Recurrent, MultiHeadAttention)


def _mixer(layer: nn.Module) -> nn.Module:
    """The one module in ``layer`` that carries something from one position to another."""
    found = [module for module in layer.modules() if isinstance(module, _MIXERS)]
    if len(found) != 1:
        raise TypeError(
            f"layer must have one sequence layer in it, got {len(found)} in {type(layer).__name__}"
        )
    return found[0]


def _in_words(mixer: nn.Module) -> tuple[str, str]:
    """What it looks at, and who decides: the book's table."""
    if isinstance(mixer, Dense | LowRankDense):
        return "everything, each place with its own weights", "training, place by place"
    if isinstance(mixer, ConvolutionLayer):
        return "a window round *i*, same weights everywhere", "training, once"
    if isinstance(mixer, Recurrent):
        outputs = "*i* and its own last output" + ", in both directions" * mixer.bidirectional
        gates = "; gates per input" if mixer.cell != "rnn" else ""
        return outputs, "training, once" + gates
    return "everything", "the input itself, at run time"


def table_rows(
    layers: Mapping[str, nn.Module], d_model: int, length: int
) -> list[dict[str, str | int]]:
    """The rows of the book's table, one for each layer.

    Args:
        layers: by name, such as :func:`sequence_layers` returns them.
        d_model: D.
        length: T.

    Returns:
        A list of dicts, all with the same keys. They are the headings, ``layer``, ``looks at``,
        ``decided by``, ``path between the ends``, ``receptive field``, ``parameters`` and
        ``multiply-adds``.

    Raises:
        TypeError: as :func:`describe`.
        ValueError: as :func:`describe`.

    Example:
        >>> from tutorial_lib.layers import sequence_layers, table_rows
        >>> rows = table_rows(sequence_layers(d_model=32, length=17), d_model=32, length=17)
        >>> [row["path between the ends"] for row in rows]
        ['1 layer', '16 layers', '8 layers', '17 steps', '1 layer']
    """
    rows: list[dict[str, str | int]] = []
    for name, layer in layers.items():
        report = describe(layer, d_model, length)
        unit = report.path_unit.rstrip("s") if report.path_length == 1 else report.path_unit
        path = "none" if report.path_length is None else f"{report.path_length} {unit}"
        rows.append(
            {
                "layer": name,
                "looks at": report.looks_at,
                "decided by": report.decided_by,
                "path between the ends": path,
                "receptive field": report.receptive_field,
                "parameters": report.parameters,
                "multiply-adds": report.operations,
            }
        )
    return rows


def markdown_table(rows: list[dict[str, str | int]]) -> str:
    """Write rows as a Markdown table, for ``IPython.display.Markdown``.

    Args:
        rows: dicts with the same keys, such as :func:`table_rows` returns them.

    Returns:
        The table; numbers have thousands set apart and stand on the right.

    Raises:
        ValueError: if there are no rows.

    Example:
        >>> from tutorial_lib.layers import markdown_table
        >>> print(markdown_table([{"layer": "dense", "parameters": 4144}]))
        | layer | parameters |
        | :-- | --: |
        | dense | 4,144 |
    """
    if not rows:
        raise ValueError("rows must hold at least one row, got none")
    sides = [":--" if isinstance(value, str) else "--:" for value in rows[0].values()]
    lines = [list(rows[0]), sides]
    for row in rows:
        lines.append([v if isinstance(v, str) else f"{v:,}" for v in row.values()])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

"""Recurrent nets: one step, done again at each position, that hands a state on (chapter 4).

Position *i* looks at its own input and at the state that position *i* - 1 left. The cells are
the formulas; ``Recurrent`` runs them over padded batches, in one direction or in both.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tutorial_lib import _check

CellState: TypeAlias = (
    Float[Tensor, "B d_hidden"] | tuple[Float[Tensor, "B d_hidden"], Float[Tensor, "B d_hidden"]]
)
State: TypeAlias = (
    Float[Tensor, "layers B d_hidden"]
    | tuple[Float[Tensor, "layers B d_hidden"], Float[Tensor, "layers B d_hidden"]]
)
Parts: TypeAlias = tuple[Tensor, ...]  # the tensors that a state is made of: (h,), or (h, c)
Gates: TypeAlias = dict[str, Tensor]

_PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Cell(nn.Module):
    """What the three cells have in common: four parameters, under PyTorch's names."""

    blocks: int  # how many matrices stand on top of each other in a weight
    parts: int  # how many tensors the state is made of
    step: Callable[..., tuple[Parts, Gates]]
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(self, d_in: int, d_hidden: int, bias: bool = True) -> None:
        _check.integer("d_in", d_in)
        _check.integer("d_hidden", d_hidden)
        super().__init__()
        self.d_in, self.d_hidden = d_in, d_hidden
        rows = self.blocks * d_hidden
        self.weight_ih = nn.Parameter(torch.empty(rows, d_in))
        self.weight_hh = nn.Parameter(torch.empty(rows, d_hidden))
        self.register_parameter("bias_ih", nn.Parameter(torch.empty(rows)) if bias else None)
        self.register_parameter("bias_hh", nn.Parameter(torch.empty(rows)) if bias else None)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)

    def from_input(self, x: Tensor) -> Tensor:
        """``W_ih x + b_ih``: what the input says, ``(B, D_in)`` to ``(B, blocks * D_hidden)``."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def from_state(self, h: Tensor) -> Tensor:
        """``W_hh h + b_hh``: what the state says, ``(B, blocks * D_hidden)`` too."""
        return F.linear(h, self.weight_hh, self.bias_hh)

    def forward(self, x: Float[Tensor, "B d_in"], state: CellState | None = None) -> CellState:
        """Do one step: from the input and the last state to the new state.

        Args:
            x: one position of the batch, ``(B, D_in)``.
            state: the state so far, ``(B, D_hidden)``; zeros where none is given. For an
                ``LSTMCell`` the pair ``(h, c)`` of that shape.

        Returns:
            The new state, like ``state``. What other layers see of it is ``h``.

        Raises:
            TypeError: if ``x`` is no tensor of floating-point numbers, or ``state`` is not of
                the cell's form.
            ValueError: if a shape does not fit.
        """
        _check.axes("x", x, "B D_in")
        _check.width("x", x, self.d_in)
        _check.same_dtype("x", x, "the weights", self.weight_ih)
        shape = (x.shape[0], self.d_hidden)
        new, _ = self.step(x, *_start(x, state, self.parts, shape))
        return _whole(new)

    def extra_repr(self) -> str:
        """The sizes, for ``print``."""
        return f"{self.d_in}, {self.d_hidden}, bias={self.bias_ih is not None}"


class RNNCell(_Cell):
    """The plain recurrent cell: one layer of input and last output.

    ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``. Parameters: ``weight_ih (D_hidden, D_in)``,
    ``weight_hh (D_hidden, D_hidden)``, ``bias_ih``, ``bias_hh (D_hidden)``, as in
    ``nn.RNNCell``, so that ``load_state_dict`` goes both ways. All start from the uniform
    distribution on plus or minus ``1 / sqrt(D_hidden)``, PyTorch's start.

    Args:
        d_in: width of the input.
        d_hidden: width of the state.
        bias: whether there are ``bias_ih`` and ``bias_hh``.

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1.

    Source: Elman, "Finding Structure in Time", Cognitive Science 14 (1990).

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import RNNCell
        >>> cell = RNNCell(3, 5)
        >>> cell(torch.zeros(2, 3)).shape
        torch.Size([2, 5])
    """

    blocks, parts = 1, 1

    def step(self, x: Tensor, h: Tensor) -> tuple[Parts, Gates]:
        """``(B, D_in), (B, D_hidden)`` to the new state ``(h,)`` and the gates: there are none."""
        h = torch.tanh(self.from_input(x) + self.from_state(h))  # (B, D_hidden)
        return (h,), {}


class LSTMCell(_Cell):
    """The long short-term memory: a memory ``c`` that gates write to, clear and show.

    With ``*`` element by element, and the four blocks stacked in PyTorch's order, ``i f g o``::

        i = sigmoid(W_ii x + b_ii + W_hi h + b_hi)      input: how much is written
        f = sigmoid(W_if x + b_if + W_hf h + b_hf)      forget: how much of the memory stays
        g = tanh   (W_ig x + b_ig + W_hg h + b_hg)      candidate: what is written
        o = sigmoid(W_io x + b_io + W_ho h + b_ho)      output: how much is shown
        c' = f * c + i * g
        h' = o * tanh(c')

    Parameters: ``weight_ih (4 D_hidden, D_in)``, ``weight_hh (4 D_hidden, D_hidden)``,
    ``bias_ih``, ``bias_hh (4 D_hidden)``, as in ``nn.LSTMCell``. The forget gate is a later
    addition to the paper's cell, and the peepholes of some variants are left out, as in PyTorch.

    Args:
        d_in: width of the input.
        d_hidden: width of ``h`` and of ``c``.
        bias: whether there are ``bias_ih`` and ``bias_hh``.

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1.

    Source: Hochreiter & Schmidhuber, "Long Short-Term Memory", Neural Computation 9 (1997);
    the forget gate: Gers, Schmidhuber & Cummins, "Learning to Forget" (2000).

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import LSTMCell
        >>> h, c = LSTMCell(3, 5)(torch.zeros(2, 3))
        >>> h.shape, c.shape
        (torch.Size([2, 5]), torch.Size([2, 5]))
    """

    blocks, parts = 4, 2

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Parts, Gates]:
        """``(B, D_in)`` and twice ``(B, D_hidden)`` to the new state ``(h, c)`` and the gates."""
        both = self.from_input(x) + self.from_state(h)  # (B, 4 D_hidden)
        i, f, g, o = both.chunk(4, dim=-1)  # (B, D_hidden) each
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        return (h, c), {"input": i, "forget": f, "candidate": g, "output": o}


class GRUCell(_Cell):
    """The gated recurrent unit: the state itself is the memory, and two gates rule it.

    With ``*`` element by element, and the three blocks stacked in PyTorch's order, ``r z n``::

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)      reset: how much of the state n sees
        z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)      update: how much of the state stays
        n = tanh(W_in x + b_in + r * (W_hn h + b_hn))   candidate: the new state proposed
        h' = (1 - z) * n + z * h

    The reset gate acts *after* the matrix, as in PyTorch and cuDNN. The paper has it before,
    ``W_hn (r * h)``: another function, into which no weights can be copied. As in the paper, an
    update gate of 1 keeps the old state (Chung et al. 2014 have it the other way round).

    Parameters: ``weight_ih (3 D_hidden, D_in)``, ``weight_hh (3 D_hidden, D_hidden)``,
    ``bias_ih``, ``bias_hh (3 D_hidden)``, as in ``nn.GRUCell``.

    Args:
        d_in: width of the input.
        d_hidden: width of the state.
        bias: whether there are ``bias_ih`` and ``bias_hh``.

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation" (2014), section 2.3, with the reset gate as said above.

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import GRUCell
        >>> cell = GRUCell(3, 5)
        >>> cell.load_state_dict(torch.nn.GRUCell(3, 5).state_dict())
        <All keys matched successfully>
    """

    blocks, parts = 3, 1

    def step(self, x: Tensor, h: Tensor) -> tuple[Parts, Gates]:
        """``(B, D_in), (B, D_hidden)`` to the new state ``(h,)`` and the gates."""
        x_r, x_z, x_n = self.from_input(x).chunk(3, dim=-1)  # (B, D_hidden) each
        h_r, h_z, h_n = self.from_state(h).chunk(3, dim=-1)  # (B, D_hidden) each
        r = torch.sigmoid(x_r + h_r)
        z = torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        h = (1 - z) * n + z * h
        return (h,), {"reset": r, "update": z, "candidate": n}


CELLS: dict[str, type[_Cell]] = {"rnn": RNNCell, "lstm": LSTMCell, "gru": GRUCell}
_FUSED: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    """A recurrent net over padded batches: some layers, in one direction or in both.

    Its numbers are those of PyTorch's fused layer, which is its attribute ``fused``:
    ``net.fused.load_state_dict(nn.GRU(...).state_dict())`` copies weights. Around it stands what
    a batch of sentences needs: what is behind a sentence's end is never read, the outputs there
    are 0, and the state is the one after the last real token (read backwards: after the first).
    ``forward_explicit`` does the same by ``RNNCell``, ``LSTMCell`` or ``GRUCell``, step by step.

    Args:
        cell: ``"rnn"``, ``"lstm"`` or ``"gru"``, or the class of the cell.
        d_in: width of the input.
        d_hidden: width of the state of each layer and direction.
        num_layers: how many layers read one another's outputs.
        bidirectional: whether each layer has a second net, which reads from the end.
        dropout: share of the numbers set to 0 between the layers in training; a single layer has
            no place for it.
        bias: whether the cells have ``bias_ih`` and ``bias_hh``.

    Raises:
        TypeError: if a size is not an int, or ``dropout`` is not a number.
        ValueError: if ``cell`` is unknown, a size is below 1, or ``dropout`` is outside [0, 1).

    (Source, for both directions: Schuster & Paliwal 1997, "Bidirectional Recurrent Neural
    Networks".)

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import Recurrent
        >>> net = Recurrent("gru", 3, 5, bidirectional=True)
        >>> outputs, state = net(torch.zeros(2, 7, 3), lengths=torch.tensor([4, 7]))
        >>> outputs.shape, state.shape
        (torch.Size([2, 7, 10]), torch.Size([2, 2, 5]))
    """

    def __init__(
        self,
        cell: str | type[_Cell],
        d_in: int,
        d_hidden: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        names = {cell_class: name for name, cell_class in CELLS.items()}
        cell = names.get(cell, cell) if isinstance(cell, type) else cell
        _check.one_of("cell", cell, CELLS)
        _check.integer("d_in", d_in)
        _check.integer("d_hidden", d_hidden)
        _check.integer("num_layers", num_layers)
        _check.number("dropout", dropout, below=1.0)
        super().__init__()
        self.cell, self.d_in, self.d_hidden, self.num_layers = str(cell), d_in, d_hidden, num_layers
        self.bidirectional, self.directions = bidirectional, 1 + bool(bidirectional)
        self.dropout = dropout
        self.fused = _FUSED[self.cell](
            d_in,
            d_hidden,
            num_layers,
            bias=bias,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
            bidirectional=bidirectional,
        )
        self.sinks: list[list[Gates]] = []

    def forward(
        self,
        x: Float[Tensor, "B T d_in"],
        lengths: Int[Tensor, "B"] | None = None,
        state: State | None = None,
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """Read a batch of sequences, by PyTorch's fused layer.

        Args:
            x: the sequences, ``(B, T, D_in)``; what stands behind a length is never read.
            lengths: how many positions of each sequence are real, ``(B)``, whole numbers from 0
                to T in any order, on any device (on an accelerator they are copied to the host,
                once). All T where none are given.
            state: the state to start from, ``(num_layers * directions, B, D_hidden)`` in
                PyTorch's order (layer 0 forward, layer 0 backward, layer 1 forward, ...), for an
                LSTM the pair ``(h, c)``; zeros where none is given.

        Returns:
            The outputs, ``h`` of the last layer at each position, ``(B, T, directions *
            D_hidden)``, and 0 behind a length; and the state, of the shape of ``state``, after the
            last real position of each sequence. Where the length is 0, that is the state that it
            started from.

        Raises:
            TypeError: if an argument is of a wrong type: ``x`` or ``state`` without floating
                point, ``lengths`` without whole numbers, a state of another cell.
            ValueError: if a shape does not fit, or a length is outside [0, T].
        """
        if self.sinks or self._fused_fails(x):
            outputs, new, gates = self.forward_explicit(x, lengths, state)
            for sink in self.sinks:
                sink.append({name: gate.detach() for name, gate in gates.items()})
            return outputs, new
        start, host = self._checked(x, lengths, state)
        if x.shape[0] * x.shape[1] == 0:
            return self._nothing_read(x), _whole(start)
        if host is None:
            with _gradients_in_eval(self, x):
                return self.fused(x, _whole(start))
        return self._packed(x, host, start)

    def _packed(self, x: Tensor, host: Tensor, start: Parts) -> tuple[Tensor, State]:
        """Read only what is real: PyTorch drops the padding, reads, and puts it back."""
        empty = (host == 0).to(x.device)  # (B), read as if of length 1, and put right below
        x = x.masked_fill(empty[:, None, None], 0.0)
        packed = pack_padded_sequence(x, host.clamp(min=1), batch_first=True, enforce_sorted=False)
        with _gradients_in_eval(self, x):
            packed, new = self.fused(packed, _whole(start))
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        outputs = outputs.masked_fill(empty[:, None, None], 0.0)  # (B, T, directions * D_hidden)
        return outputs, _whole(_choose(empty[:, None], start, _parts(new)))

    def forward_explicit(
        self,
        x: Float[Tensor, "B T d_in"],
        lengths: Int[Tensor, "B"] | None = None,
        state: State | None = None,
    ) -> tuple[Float[Tensor, "B T d_out"], State, Gates]:
        """Do what ``forward`` does with our own cells, step by step, and return the gates too.

        Args:
            x: as in ``forward``.
            lengths: as in ``forward``.
            state: as in ``forward``.

        Returns:
            Outputs and state as in ``forward``, and the gates, a dict from the gate's name to its
            values at every position, ``(num_layers * directions, B, T, D_hidden)``, and 0 behind
            a length. An LSTM's are ``input``, ``forget``, ``candidate`` and ``output``, a GRU's
            ``reset``, ``update`` and ``candidate``; an RNN has none.

        Raises:
            TypeError: as in ``forward``.
            ValueError: as in ``forward``.

        Example:
            >>> import torch
            >>> from tutorial_lib.recurrent import Recurrent
            >>> net = Recurrent("gru", 3, 5)
            >>> outputs, state, gates = net.forward_explicit(torch.zeros(2, 7, 3))
            >>> gates["update"].shape
            torch.Size([1, 2, 7, 5])
        """
        start, host = self._checked(x, lengths, state)
        B, T, _ = x.shape
        if B * T == 0:
            return self._nothing_read(x), _whole(start), {}
        lengths = torch.full((B,), T) if host is None else host
        alive = (torch.arange(T) < lengths[:, None]).to(x.device)  # (B, T)
        x = x.masked_fill(~alive[..., None], 0.0)  # whatever stands there, NaN included
        states: list[Parts] = []
        gates: list[Gates] = []
        for layer in range(self.num_layers):
            x = F.dropout(x, self.dropout, self.training) if layer else x
            read = []
            for reverse in (False, True)[: self.directions]:
                begin = tuple(part[len(states)] for part in start)  # (B, D_hidden) each
                outputs, end, gate = _read(self.cell_of(layer, reverse), x, alive, begin, reverse)
                read.append(outputs)
                states.append(end)
                gates.append(gate)
            x = torch.cat(read, dim=-1)  # (B, T, directions * D_hidden)
        new = tuple(torch.stack(part) for part in zip(*states, strict=True))
        return x, _whole(new), {name: torch.stack([g[name] for g in gates]) for name in gates[0]}

    def cell_of(self, layer: int = 0, reverse: bool = False) -> _Cell:
        """The cell of one layer and direction; it shares its parameters with this net.

        Args:
            layer: from 0 to ``num_layers - 1``.
            reverse: whether the cell that reads from the end is meant.

        Returns:
            An ``RNNCell``, ``LSTMCell`` or ``GRUCell`` whose parameters *are* those of the fused
            layer: to change one is to change the other.

        Raises:
            TypeError: if ``layer`` is not an int.
            ValueError: if there is no such layer or direction.

        Example:
            >>> from tutorial_lib.recurrent import Recurrent
            >>> net = Recurrent("lstm", 3, 5, num_layers=2)
            >>> net.cell_of(1).weight_ih is net.fused.weight_ih_l1
            True
        """
        _check.integer("layer", layer, at_least=0)
        _check.one_of("layer", layer, range(self.num_layers))
        _check.one_of("reverse", reverse, (False, True)[: self.directions])
        d_in = self.d_in if layer == 0 else self.directions * self.d_hidden
        with torch.device("meta"):  # no memory, and no random numbers drawn
            cell = CELLS[self.cell](d_in, self.d_hidden)
        suffix = f"_l{layer}" + "_reverse" * reverse
        for name in _PARAMETERS:
            delattr(cell, name)  # what takes its place may be None, or under torch.func a Tensor
            setattr(cell, name, getattr(self.fused, name + suffix, None))
        return cell

    def summary(self, state: State) -> Float[Tensor, "B d_out"]:
        """One vector for each sequence: the last layer's final ``h``, of all directions.

        Args:
            state: as ``forward`` returns it.

        Returns:
            ``(B, directions * D_hidden)``. It does not depend on the padding, whereas
            ``outputs[:, -1]`` is 0 where a sequence is padded, and in the backward direction has
            read one token only.

        Example:
            >>> import torch
            >>> from tutorial_lib.recurrent import Recurrent
            >>> net = Recurrent("lstm", 3, 5, num_layers=2, bidirectional=True)
            >>> net.summary(net(torch.zeros(2, 7, 3))[1]).shape
            torch.Size([2, 10])
        """
        h = _parts(state)[0]  # (num_layers * directions, B, D_hidden)
        return torch.cat(list(h[-self.directions :]), dim=-1)

    def _checked(
        self, x: Tensor, lengths: Tensor | None, state: State | None
    ) -> tuple[Parts, Tensor | None]:
        """The state to start from, and the lengths on the host, or None where all are T."""
        _check.axes("x", x, "B T D_in")
        _check.width("x", x, self.d_in)
        _check.same_dtype("x", x, "the weights", next(self.parameters()))
        B, T, _ = x.shape
        shape = (self.num_layers * self.directions, B, self.d_hidden)
        start = _start(x, state, CELLS[self.cell].parts, shape)
        if lengths is None:
            return start, None
        _check.axes("lengths", lengths, "B")
        if len(lengths) != B:
            raise ValueError(f"lengths must have shape ({B},), got ({len(lengths)},)")
        host = lengths.cpu()  # packing wants them there
        _check.ids("lengths", host, T + 1)
        return start, None if bool((host == T).all()) else host.long()

    def _fused_fails(self, x: Tensor) -> bool:
        """Whether autocast asks the CPU's fused LSTM for float16, which it does not have."""
        return (
            self.cell == "lstm"
            and x.device.type == "cpu"
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") == torch.float16
        )

    def _nothing_read(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:2], self.directions * self.d_hidden)

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.fused.flatten_parameters()  # cuDNN wants them in one piece; copies are in several

    def extra_repr(self) -> str:
        """The kind of cell, for ``print``."""
        return repr(self.cell)


class RecurrentLayer(nn.Module):
    """A recurrent net in the form that all layers of the book share: ``(B, T, D)`` to the same.

    Where the outputs are not ``D`` wide, a matrix without bias brings them there, so what is 0
    behind a length stays 0.

    Args:
        d_model: width of input and output.
        cell: ``"rnn"``, ``"lstm"`` or ``"gru"``, or the class of the cell.
        bidirectional: whether it reads in both directions; if not, it is causal.
        d_hidden: width of the state of each direction; where it is not given, ``d_model``
            shared out among the directions (rounded up).

    Raises:
        TypeError: if a width is not an int.
        ValueError: if a width is below 1, or ``cell`` is unknown.

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import RecurrentLayer
        >>> RecurrentLayer(6, "lstm", bidirectional=True)(torch.zeros(2, 7, 6)).shape
        torch.Size([2, 7, 6])
    """

    def __init__(
        self,
        d_model: int,
        cell: str | type[_Cell] = "gru",
        bidirectional: bool = False,
        d_hidden: int | None = None,
    ) -> None:
        _check.integer("d_model", d_model)
        super().__init__()
        directions = 1 + bool(bidirectional)
        d_hidden = -(-d_model // directions) if d_hidden is None else d_hidden
        self.recurrent = Recurrent(cell, d_model, d_hidden, bidirectional=bidirectional)
        self.project = (
            nn.Identity()
            if directions * d_hidden == d_model
            else nn.Linear(directions * d_hidden, d_model, bias=False)
        )

    def forward(
        self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Read a batch of sequences.

        Args:
            x: ``(B, T, D)``.
            lengths: as in ``Recurrent``.

        Returns:
            ``(B, T, D)``, and 0 behind a length.

        Raises:
            TypeError: as ``Recurrent``.
            ValueError: as ``Recurrent``.
        """
        outputs, _ = self.recurrent(x, lengths)  # (B, T, directions * D_hidden)
        return self.project(outputs)


@contextmanager
def record_gates(model: nn.Module) -> Iterator[dict[str, list[Gates]]]:
    """Collect the gates of every ``Recurrent`` in ``model``, without the model knowing.

    Inside, they run step by step (``forward_explicit``), so it is slower there.

    Args:
        model: a module that is, or has somewhere in it, a ``Recurrent``.

    Yields:
        A dict from the name of each ``Recurrent`` in ``model`` (``""`` for ``model`` itself) to a
        list with one entry for each call: its gates, as ``forward_explicit`` returns them,
        detached.

    Raises:
        TypeError: if ``model`` is not a module.
        ValueError: if there is no ``Recurrent`` in it.

    Example:
        >>> import torch
        >>> from tutorial_lib.recurrent import RecurrentLayer, record_gates
        >>> layer = RecurrentLayer(6, "lstm")
        >>> with record_gates(layer) as gates:
        ...     y = layer(torch.zeros(2, 7, 6))
        >>> gates["recurrent"][0]["forget"].shape
        torch.Size([1, 2, 7, 6])
    """
    nets = {name: net for name, net in _modules(model).items() if isinstance(net, Recurrent)}
    if not nets:
        raise ValueError(f"model must have a Recurrent in it, got {type(model).__name__}")
    gates: dict[str, list[Gates]] = {name: [] for name in nets}
    for name, net in nets.items():
        net.sinks.append(gates[name])
    try:
        yield gates
    finally:
        for name, net in nets.items():
            # By identity: two recordings in which nothing ran yet are equal lists.
            net.sinks[:] = [sink for sink in net.sinks if sink is not gates[name]]


_Module = TypeVar("_Module", bound=nn.Module)


@torch.no_grad()
def open_gates(
    model: _Module,
    *,
    forget: float = 3.0,
    reset: float = 3.0,
    update: float = -3.0,
    orthogonal: bool = True,
) -> _Module:
    """Start every LSTM and GRU in ``model`` with its gates open, in place.

    At PyTorch's start all gates stand near 1/2, so a memory is halved at each step, and the
    gradient with it: gates help once they are open, by training or from the start. The numbers
    are what ``b_ih + b_hh`` becomes (``b_hh`` is set to 0); the rest keeps its start.

    Args:
        model: a module that is, or has somewhere in it, an LSTM or a GRU (our cells,
            ``Recurrent``, or PyTorch's).
        forget: bias of an LSTM's forget gate. At 3 the memory keeps sigmoid(3) = 95 % a step.
        reset: bias of a GRU's reset gate. At 3 the candidate sees 95 % of the state.
        update: bias of a GRU's update gate. At -3 the state is 95 % replaced by the candidate,
            which then has to carry the past on, hence ``orthogonal``; at +3 it is 95 % kept.
        orthogonal: whether the candidate's block of a GRU's ``weight_hh`` starts as an orthogonal
            matrix, which neither shrinks nor stretches what it hands on.

    Returns:
        ``model``.

    Raises:
        TypeError: if ``model`` is not a module, or a bias is not a number.
        ValueError: if there is no LSTM or GRU with biases in ``model``, or a bias is beyond
            ±10,000.

    Source: the forget bias: Jozefowicz, Zaremba & Sutskever, "An Empirical Exploration of
    Recurrent Network Architectures" (2015), who advise 1.

    Example:
        >>> from tutorial_lib.recurrent import Recurrent, open_gates
        >>> net = open_gates(Recurrent("lstm", 3, 5))
        >>> net.cell_of().bias_ih[5:10]
        tensor([3., 3., 3., 3., 3.], grad_fn=<SliceBackward0>)
    """
    for name, value in (("forget", forget), ("reset", reset), ("update", update)):
        _check.number(name, value, at_least=-1e4, below=1e4)
    found = False
    for module in _modules(model).values():
        lstm = isinstance(module, (LSTMCell, nn.LSTM, nn.LSTMCell))
        if not lstm and not isinstance(module, (GRUCell, nn.GRU, nn.GRUCell)):
            continue
        for name, parameter in module.named_parameters(recurse=False):
            blocks = parameter.chunk(4 if lstm else 3)  # views: LSTM i f g o, GRU r z n
            opened = {1: forget} if lstm else {0: reset, 1: update}
            for block, value in opened.items() if name.startswith("bias") else ():
                blocks[block].fill_(value if name.startswith("bias_ih") else 0.0)
                found = True
            if orthogonal and not lstm and name.startswith("weight_hh"):
                nn.init.orthogonal_(blocks[2])
    if not found:
        raise ValueError(
            f"model must have an LSTM or a GRU with biases, got {type(model).__name__}"
        )
    return model


def _read(
    cell: _Cell, x: Tensor, alive: Bool[Tensor, "B T"], state: Parts, reverse: bool
) -> tuple[Tensor, Parts, Gates]:
    """One cell along the sequences: the same step at each position, the state handed on."""
    T = x.shape[1]
    outputs, gates = [], []
    for t in reversed(range(T)) if reverse else range(T):
        new, gate = cell.step(x[:, t], *state)
        here = alive[:, t, None]  # (B, 1)
        state = _choose(here, new, state)  # where there is no token, nothing happens
        outputs.append(torch.where(here, new[0], 0.0))  # (B, D_hidden)
        gates.append({name: torch.where(here, value, 0.0) for name, value in gate.items()})
    if reverse:
        outputs, gates = outputs[::-1], gates[::-1]
    along = {name: torch.stack([g[name] for g in gates], dim=1) for name in gates[0]}
    return torch.stack(outputs, dim=1), state, along  # (B, T, D_hidden)


def _choose(condition: Tensor, yes: Parts, no: Parts) -> Parts:
    return tuple(torch.where(condition, y, n) for y, n in zip(yes, no, strict=True))


def _parts(state: Tensor | tuple[Tensor, ...]) -> Parts:
    return state if isinstance(state, tuple) else (state,)


def _whole(parts: Parts) -> Tensor | tuple[Tensor, Tensor]:
    """PyTorch's form: a lone tensor for an RNN and a GRU, the pair for an LSTM."""
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def _start(x: Tensor, state: object, parts: int, shape: tuple[int, ...]) -> Parts:
    """The state as its parts, checked; zeros where there is none."""
    if state is None:
        return (x.new_zeros(shape),) * parts
    tensors = state if isinstance(state, tuple) else (state,)
    wanted = f"a Tensor of shape {shape}" if parts == 1 else f"a pair (h, c) of shape {shape} each"
    if len(tensors) != parts or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"state must be {wanted}, got {type(state).__name__}")
    for tensor in tensors:
        _check.same_dtype("state", tensor, "x", x)
        if tuple(tensor.shape) != shape or tensor.device != x.device:
            came = f"shape {tuple(tensor.shape)} on {tensor.device}"
            raise ValueError(f"state must be {wanted} on {x.device}, got {came}")
    return tuple(tensor.to(x.dtype) for tensor in tensors)


def _gradients_in_eval(net: nn.Module, x: Tensor) -> AbstractContextManager[None]:
    """CuDNN's recurrent layers give no gradients in eval mode; PyTorch's own kernels do."""
    if x.is_cuda and torch.is_grad_enabled() and not net.training:
        return torch.backends.cudnn.flags(enabled=False)
    return nullcontext()


def _modules(model: nn.Module) -> dict[str, nn.Module]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    return dict(model.named_modules())

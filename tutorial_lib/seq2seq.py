"""Two texts: one is read and the other written, or both are read and compared (chapter 5).

:class:`RecurrentTranslator` reads with one recurrent net and writes with another, which looks back
at what was read, or has to do with one vector. :class:`PairMatcher` reads two texts and compares.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tutorial_lib import _check
from tutorial_lib.attention import AdditiveAttention, DotProductAttention, padding_mask
from tutorial_lib.recurrent import Recurrent
from tutorial_lib.training import IGNORE

# --- targets -------------------------------------------------------------------------------------


def teacher_forcing(
    texts: Sequence[Sequence[int]],
    bos: int,
    eos: int,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """What the writer is told, and what it should write: the same text, one place apart.

    Args:
        texts: B lists of ids, some of them possibly empty.
        bos: the id that stands before each text.
        eos: the id that ends each text.
        device: where to put the result; the CPU unless told otherwise.

    Returns:
        The inputs, ``bos`` and the text, and the targets, the text and ``eos``. Both ``(B, T)``,
        with T one more than the longest text. Behind a text the inputs are ``eos`` and the
        targets -100, which no loss counts.

    Raises:
        TypeError: if an id is not an int.
        ValueError: if there is no text, or an id is negative.

    Example:
        >>> from tutorial_lib.seq2seq import teacher_forcing
        >>> teacher_forcing([[5, 6], [7]], bos=8, eos=9)
        (tensor([[8, 5, 6],
                [8, 7, 9]]), tensor([[   5,    6,    9],
                [   7,    9, -100]]))
    """
    _check.integer("bos", bos, at_least=0)
    _check.integer("eos", eos, at_least=0)
    if len(texts) == 0:
        raise ValueError("texts must hold at least one list of ids, got none")
    T = max(map(len, texts)) + 1
    inputs, targets = [], []
    for ids in texts:
        for one in ids:
            _check.integer("an id in texts", one, at_least=0)
        inputs.append([bos, *ids] + [eos] * (T - 1 - len(ids)))
        targets.append([*ids, eos] + [IGNORE] * (T - 1 - len(ids)))
    return torch.tensor(inputs, device=device), torch.tensor(targets, device=device)


def exact_matches(
    written: Int[Tensor, "B T"], target: Int[Tensor, "B U"], eos: int
) -> Bool[Tensor, "B"]:
    """Which texts are written without any mistake.

    Args:
        written: what a model wrote, ``(B, T)``; all that stands behind the first ``eos`` is
            overlooked.
        target: the right texts ``(B, U)``, ended by ``eos`` and filled with -100.
        eos: the id that ends a text.

    Returns:
        ``(B)``, true where the two are the same up to and with the ``eos``.

    Raises:
        TypeError: if an argument does not hold integers.
        ValueError: if a shape does not fit.

    Example:
        >>> import torch
        >>> from tutorial_lib.seq2seq import exact_matches
        >>> written = torch.tensor([[5, 6, 9], [7, 5, 9]])
        >>> exact_matches(written, torch.tensor([[5, 6, 9], [7, 9, -100]]), eos=9)
        tensor([ True, False])
    """
    for name, tensor in (("written", written), ("target", target)):
        _check.axes(name, tensor, "B T")
        _check.ids(name, tensor, torch.iinfo(torch.int64).max, ignore=IGNORE)
    _check.integer("eos", eos, at_least=0)
    if len(written) != len(target):
        raise ValueError(f"written must hold {len(target)} texts, got {len(written)}")
    wide = max(written.shape[1], target.shape[1])
    ended = (written == eos).cumsum(1) - (written == eos).long() > 0  # behind the first eos
    left = written.masked_fill(ended, IGNORE)
    pair = [nn.functional.pad(t, (0, wide - t.shape[1]), value=IGNORE) for t in (left, target)]
    return (pair[0] == pair[1]).all(dim=1)


ATTENTIONS: dict[str, type[AdditiveAttention] | type[DotProductAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotProductAttention,
}


def _make_attention(
    kind: str, d_query: int, d_key: int, d_hidden: int
) -> AdditiveAttention | DotProductAttention | None:
    """The attention of that name; none for ``"none"``."""
    return None if kind == "none" else ATTENTIONS[kind](d_query, d_key, d_hidden)


# --- reading one text, writing another -----------------------------------------------------------


class DecoderState(NamedTuple):
    """What the writer needs from one step to the next.

    Attributes:
        hidden: the state of its recurrent net, ``(1, B, H)``. This alone changes.
        memory: the reader's outputs at each position, ``(B, S, H)``.
        keys: the memory as the attention compares it, ``(B, S, F)``; None without attention.
        mask: where the memory is real, ``(B, 1, 1, S)``; None where all of it is.

    Example:
        >>> import torch
        >>> from tutorial_lib.seq2seq import DecoderState
        >>> state = DecoderState(torch.zeros(1, 2, 4), torch.zeros(2, 7, 4), None, None)
        >>> state._replace(hidden=torch.ones(1, 2, 4)).hidden.sum().item()
        8.0
    """

    hidden: Tensor
    memory: Tensor
    keys: Tensor | None
    mask: Tensor | None


class RecurrentTranslator(nn.Module):
    r"""An encoder reads the source in both directions, a decoder writes the target word by word.

    Both are gated recurrent units. The decoder starts from what the encoder has made of the whole
    source, one vector. Without attention that is all it gets. With it, each step looks back: its
    state :math:`s_t` asks, the encoder's outputs :math:`h_1 \dots h_S` answer, and what it finds,
    the context :math:`c_t`, has its say in the choice of the word:

    .. math::
        s_t = \mathrm{GRU}(y_{t-1}, s_{t-1}), \quad c_t = \sum_j \alpha_{tj} h_j, \quad
        \tilde s_t = \tanh(W [s_t; c_t]), \quad p(y_t) = \mathrm{softmax}(V \tilde s_t)

    The order is that of Luong et al.: first the step, then the look, and what was found is not fed
    into the next step. So with teacher forcing all steps of the GRU run in one call, and all looks
    are one matrix. Bahdanau et al. look first, from the state before, and feed the context into
    the GRU: then each step has to wait for the one before.

    Args:
        source_vocab: number of ids of the source.
        target_vocab: number of ids of the target.
        d_embedding: width of the embeddings.
        d_hidden: width H of the decoder's state and of the encoder's outputs; even, since each
            direction of the encoder has half of it.
        attention: ``"none"``, ``"additive"`` or ``"dot"``.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is below 1, ``d_hidden`` odd, or ``attention`` unknown.

    Source: without attention, Sutskever et al. 2014 and Cho et al. 2014 (there the vector goes
    into every step); the additive score, Bahdanau et al. 2015, section 3; the order of the steps,
    Luong et al. 2015, section 3.

    Example:
        >>> import torch
        >>> from tutorial_lib.seq2seq import RecurrentTranslator
        >>> net = RecurrentTranslator(source_vocab=11, target_vocab=13, attention="additive")
        >>> source, lengths = torch.randint(11, (2, 7)), torch.tensor([7, 4])
        >>> net(source, lengths, target_in=torch.randint(13, (2, 5))).shape
        torch.Size([2, 5, 13])
    """

    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        d_embedding: int = 32,
        d_hidden: int = 64,
        attention: str = "additive",
    ) -> None:
        for name, size in (("source_vocab", source_vocab), ("target_vocab", target_vocab)):
            _check.integer(name, size)
        _check.integer("d_embedding", d_embedding)
        _check_hidden(d_hidden)
        _check.one_of("attention", attention, ("none", *ATTENTIONS))
        super().__init__()
        self.source_embedding = nn.Embedding(source_vocab, d_embedding)
        self.target_embedding = nn.Embedding(target_vocab, d_embedding)
        self.encoder = Recurrent("gru", d_embedding, d_hidden // 2, bidirectional=True)
        self.bridge = nn.Linear(d_hidden, d_hidden)
        self.decoder = Recurrent("gru", d_embedding, d_hidden)
        self.attention = _make_attention(attention, d_hidden, d_hidden, d_hidden)
        self.combine = None if self.attention is None else nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, target_vocab)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None,
        target_in: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T V"]:
        """Score each word of the target, being told the right words before it (teacher forcing).

        Args:
            source: ids of the source, ``(B, S)``.
            source_lengths: how many of them are real, ``(B)``; all if None.
            target_in: ids of the target, moved by one place, ``(B, T)``; see
                :func:`teacher_forcing`.

        Returns:
            The logits ``(B, T, V)``; those at place t depend on ``target_in`` up to t alone.

        Raises:
            TypeError: if ids or lengths are not integers.
            ValueError: if a shape does not fit, or an id or a length is out of range.
        """
        _check_ids("source", source, self.source_embedding)
        _check_target("target_in", target_in, "B T", self.target_embedding, len(source))
        return self.decode(target_in, self.start(source, source_lengths))[0]

    def start(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, "B"] | None = None
    ) -> DecoderState:
        """Read the source.

        Args:
            source: as in ``forward``.
            source_lengths: as in ``forward``.

        Returns:
            The state before the first word.

        Raises:
            TypeError: as in ``forward``.
            ValueError: as in ``forward``.
        """
        _check_ids("source", source, self.source_embedding)
        memory, last = self.encoder(self.source_embedding(source), source_lengths)  # (B, S, H)
        hidden = torch.tanh(self.bridge(self.encoder.summary(last)))[None]  # (1, B, H)
        keys = None if self.attention is None else self.attention.key(memory)  # (B, S, F)
        return DecoderState(hidden, memory, keys, _real(source_lengths, source))

    def decode(
        self, target_in: Int[Tensor, "B T"], state: DecoderState
    ) -> tuple[Float[Tensor, "B T V"], DecoderState]:
        """Take T steps, each told the word before it.

        Args:
            target_in: ``(B, T)``.
            state: what ``start`` or an earlier call returned.

        Returns:
            The logits ``(B, T, V)``, and the state after these steps.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if a shape does not fit, or an id is out of range.
        """
        _check_target("target_in", target_in, "B T", self.target_embedding, len(state.memory))
        words = self.target_embedding(target_in)  # (B, T, D)
        s, hidden = self.decoder(words, state=state.hidden)  # (B, T, H)
        if self.attention is not None and self.combine is not None:
            c, _ = self.attention(
                s, state.memory, mask=state.mask, projected_key=state.keys
            )  # (B, T, H)
            s = torch.tanh(self.combine(torch.cat([s, c], dim=-1)))  # (B, T, H)
        return self.output(s), state._replace(hidden=hidden)

    def step(
        self, token: Int[Tensor, "B"], state: DecoderState
    ) -> tuple[Float[Tensor, "B V"], DecoderState]:
        """Take one step.

        Args:
            token: the word before, ``(B)``.
            state: what ``start`` or the last step returned.

        Returns:
            The logits of the next word ``(B, V)``, and the new state.

        Raises:
            TypeError: as in ``decode``.
            ValueError: as in ``decode``.
        """
        _check_target("token", token, "B", self.target_embedding, len(state.memory))
        logits, state = self.decode(token[:, None], state)
        return logits[:, 0], state

    @torch.no_grad()
    def translate(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None = None,
        *,
        bos: int,
        eos: int,
        max_length: int,
    ) -> Int[Tensor, "B T"]:
        """Write, each time the most likely word, until each text has ended.

        Args:
            source: as in ``forward``.
            source_lengths: as in ``forward``.
            bos: the id that stands before each text.
            eos: the id that ends a text.
            max_length: how many words are written at most, the ``eos`` included.

        Returns:
            The ids ``(B, T)``, T at most ``max_length``; behind its end each text is ``eos``.

        Raises:
            TypeError: if an argument is of another type.
            ValueError: if a shape does not fit, or a number is out of range.
        """
        for name, one in (("bos", bos), ("eos", eos)):
            _check.integer(name, one, at_least=0)
            if one >= self.target_embedding.num_embeddings:
                raise ValueError(
                    f"{name} must be below {self.target_embedding.num_embeddings}, got {one}"
                )
        _check.integer("max_length", max_length)
        state = self.start(source, source_lengths)
        written: list[Tensor] = []
        token = torch.full((len(source),), bos, device=source.device)  # (B)
        ended = torch.zeros_like(token, dtype=torch.bool)  # (B)
        while len(written) < max_length and not bool(ended.all()):
            logits, state = self.step(token, state)
            token = logits.argmax(dim=-1).masked_fill(ended, eos)
            ended = ended | (token == eos)
            written.append(token)
        return torch.stack(written, dim=1) if written else token.new_zeros(len(source), 0)


def _check_hidden(d_hidden: int) -> None:
    """Half of it for each direction."""
    _check.integer("d_hidden", d_hidden)
    if d_hidden % 2:
        raise ValueError(f"d_hidden must be even, half for each direction, got {d_hidden}")


def _check_ids(name: str, ids: Tensor, embedding: nn.Embedding) -> None:
    _check.axes(name, ids, "B S")
    _check.ids(name, ids, embedding.num_embeddings)


def _check_target(name: str, ids: Tensor, layout: str, embedding: nn.Embedding, B: int) -> None:
    _check.axes(name, ids, layout)
    _check.ids(name, ids, embedding.num_embeddings)
    if len(ids) != B:
        raise ValueError(f"{name} must have the source's batch {B}, got {len(ids)}")


def _real(lengths: Tensor | None, ids: Tensor) -> Tensor | None:
    """The mask ``(B, 1, 1, S)`` of what is real; None where all of it is."""
    return None if lengths is None else padding_mask(lengths.to(ids.device), ids.shape[1])


# --- reading two texts, comparing them -----------------------------------------------------------


class PairMatcher(nn.Module):
    r"""Two texts are read in both directions, and compared: do they mean the same?

    Without attention, each text becomes one vector, the last states of its reader, and the two
    vectors are compared. With it, each word :math:`b_t` of the second text looks at the first, and
    is compared with what it finds there, :math:`c_t`; the mean over the words is judged. A
    comparison of :math:`u` and :math:`v` is

    .. math:: \mathrm{ReLU}(W [u;\; v;\; u \odot v;\; |u - v|])

    Args:
        first_vocab: number of ids of the first text.
        second_vocab: number of ids of the second text.
        d_embedding: width of the embeddings.
        d_hidden: width H of the readers' outputs and of the comparison; even.
        attention: ``"none"``, ``"additive"`` or ``"dot"``.
        num_classes: how many answers there are.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is below 1, ``d_hidden`` odd, or ``attention`` unknown.

    Source: comparing two vectors by these features, Conneau et al. 2017, section 3.1; the words of
    one text that look at the other, Rocktäschel et al. 2016, and compared one by one, Parikh et
    al. 2016.

    Example:
        >>> import torch
        >>> from tutorial_lib.seq2seq import PairMatcher
        >>> net = PairMatcher(first_vocab=11, second_vocab=13, attention="dot")
        >>> first, second = torch.randint(11, (2, 7)), torch.randint(13, (2, 5))
        >>> net(first, torch.tensor([7, 4]), second, torch.tensor([3, 5])).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        first_vocab: int,
        second_vocab: int,
        d_embedding: int = 32,
        d_hidden: int = 64,
        attention: str = "none",
        num_classes: int = 2,
    ) -> None:
        for name, size in (("first_vocab", first_vocab), ("second_vocab", second_vocab)):
            _check.integer(name, size)
        _check.integer("d_embedding", d_embedding)
        _check.integer("num_classes", num_classes)
        _check_hidden(d_hidden)
        _check.one_of("attention", attention, ("none", *ATTENTIONS))
        super().__init__()
        self.first_embedding = nn.Embedding(first_vocab, d_embedding)
        self.second_embedding = nn.Embedding(second_vocab, d_embedding)
        self.first = Recurrent("gru", d_embedding, d_hidden // 2, bidirectional=True)
        self.second = Recurrent("gru", d_embedding, d_hidden // 2, bidirectional=True)
        self.attention = _make_attention(attention, d_hidden, d_hidden, d_hidden)
        self.compare = nn.Linear(4 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, num_classes)

    def forward(
        self,
        first: Int[Tensor, "B S"],
        first_lengths: Int[Tensor, "B"] | None,
        second: Int[Tensor, "B T"],
        second_lengths: Int[Tensor, "B"] | None,
    ) -> Float[Tensor, "B C"]:
        """Judge pairs of texts.

        Args:
            first: ids of the first texts, ``(B, S)``.
            first_lengths: how many of them are real, ``(B)``; all if None.
            second: ids of the second texts, ``(B, T)``.
            second_lengths: likewise.

        Returns:
            The logits of the answers ``(B, C)``.

        Raises:
            TypeError: if ids or lengths are not integers.
            ValueError: if a shape does not fit, or an id or a length is out of range.
        """
        _check_ids("first", first, self.first_embedding)
        _check_target("second", second, "B T", self.second_embedding, len(first))
        a, last_a = self.first(self.first_embedding(first), first_lengths)  # (B, S, H)
        b, last_b = self.second(self.second_embedding(second), second_lengths)  # (B, T, H)
        if self.attention is None:
            u, v = self.first.summary(last_a), self.second.summary(last_b)  # (B, H)
            return self.output(self._compared(u, v))
        c, _ = self.attention(b, a, mask=_real(first_lengths, first))  # (B, T, H)
        z = self._compared(c, b)  # (B, T, H)
        real = torch.ones_like(second, dtype=torch.bool)  # (B, T)
        if second_lengths is not None:
            real = padding_mask(second_lengths.to(second.device), second.shape[1])[:, 0, 0]
        count = real.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1)
        return self.output(z.masked_fill(~real[..., None], 0.0).sum(dim=1) / count)

    def _compared(self, u: Tensor, v: Tensor) -> Tensor:
        """How two vectors ``(..., H)`` differ, ``(..., H)``."""
        return torch.relu(self.compare(torch.cat([u, v, u * v, (u - v).abs()], dim=-1)))

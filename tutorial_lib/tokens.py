"""Text as numbers: characters, words and byte-pair units, behind one interface (chapter 3).

Read :func:`learn_merges_slowly` and :func:`apply_merges_slowly` first: they are byte-pair encoding
as it is defined. :func:`learn_merges` and :func:`apply_merges` give the same answers, fast.
"""

import base64
import binascii
import functools
import heapq
import itertools
import json
import os
import re
import sys
import unicodedata
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from tutorial_lib import _check

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"

Pair = tuple[int, int]
Ids = Iterable[int] | Integer[Tensor, " T"]
AnyTokenizer = TypeVar("AnyTokenizer", bound="Tokenizer")


class Merge(NamedTuple):
    """One step of learning byte-pair units: the two units joined, and how often they met.

    Example:
        >>> from tutorial_lib.tokens import BytePairTokenizer
        >>> next(BytePairTokenizer(1).fit_steps("the thin thief"))
        Merge(left=b't', right=b'h', times=3)
    """

    left: bytes
    right: bytes
    times: int


# --- Byte-pair encoding as it is defined ---------------------------------------------------------


def join(ids: Sequence[int], pair: Pair, new: int) -> tuple[int, ...]:
    """Write ``new`` wherever the two ids of ``pair`` stand side by side, from left to right.

    Example:
        >>> join([5, 5, 5, 7], (5, 5), 300)
        (300, 5, 7)
    """
    joined, i = [], 0
    while i < len(ids):
        here = tuple(ids[i : i + 2]) == pair
        joined.append(new if here else ids[i])
        i += 2 if here else 1
    return tuple(joined)


def learn_merges_slowly(pieces: Mapping[bytes, int], num_merges: int) -> Iterator[tuple[Pair, int]]:
    """Count every pair, join the most frequent one, and begin again: the definition.

    Args:
        pieces: how often each piece of text occurs. No unit ever reaches across two pieces.
        num_merges: how many units to learn; fewer where the text has no more pairs.

    Yields:
        The pair of ids joined, and how often it occurred. The n-th pair (from 0) gets the id
        ``256 + n``; smaller ids are bytes. Of equally frequent pairs the smallest wins.

    Source: Sennrich, Haddow and Birch 2016, section 3.2 and algorithm 1.

    Example:
        >>> [(pair, count) for pair, count in learn_merges_slowly({b"aab": 3, b"ab": 1}, 5)]
        [((97, 98), 4), ((97, 256), 3)]
    """
    words = {tuple(piece): times for piece, times in pieces.items()}
    for new in range(256, 256 + num_merges):
        counts: Counter[Pair] = Counter()
        for word, times in words.items():
            for pair in itertools.pairwise(word):
                counts[pair] += times
        if not counts:
            return
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        yield best, counts[best]
        words = {join(word, best, new): times for word, times in words.items()}


def apply_merges_slowly(ids: Sequence[int], merges: Sequence[Pair]) -> list[int]:
    """Apply every merge in the order in which it was learned: the definition.

    Example:
        >>> apply_merges_slowly(b"aabc", [(97, 98), (97, 256)])
        [257, 99]
    """
    for new, pair in enumerate(merges, start=256):
        ids = join(ids, pair, new)
    return list(ids)


# --- The same, fast ------------------------------------------------------------------------------


class _Row:
    """All pieces in one row of ids, with each pair's count and places kept up to date.

    ``ids[i]`` is -1 between pieces and where a unit was swallowed by its left neighbor;
    ``before`` and ``after`` lead past the swallowed ones.
    """

    def __init__(self, pieces: Mapping[bytes, int]) -> None:
        self.ids, self.times = [-1], [0]
        for piece, times in pieces.items():
            self.ids += [*piece, -1]
            self.times += [times] * (len(piece) + 1)
        self.before = list(range(-1, len(self.ids) - 1))
        self.after = list(range(1, len(self.ids) + 1))
        self.counts: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, list[int]] = defaultdict(list)
        for i in range(len(self.ids) - 1):
            self._count(i, +1)

    def _count(self, i: int, sign: int) -> Pair | None:
        """Add or take away the pair that begins at ``i``, if there is one."""
        pair = self.ids[i], self.ids[self.after[i]]
        if -1 in pair:
            return None
        self.counts[pair] += sign * self.times[i]
        if sign > 0:
            self.places[pair].append(i)
        return pair

    def join(self, pair: Pair, new: int) -> set[Pair]:
        """Write ``new`` for ``pair`` everywhere; return the pairs that this brings about."""
        ids, before, after, made = self.ids, self.before, self.after, set()
        for i in self.places.pop(pair):  # from left to right, in the order they were noted
            j = after[i]
            if (ids[i], ids[j]) != pair:  # swallowed by an overlapping pair, as in "aaa"
                continue
            self._count(before[i], -1)
            self._count(j, -1)
            ids[i], ids[j] = new, -1
            after[i] = after[j]
            before[after[j]] = i
            made |= {self._count(before[i], +1), self._count(i, +1)}
        return {fresh for fresh in made if fresh is not None}


def learn_merges(pieces: Mapping[bytes, int], num_merges: int) -> Iterator[tuple[Pair, int]]:
    """As :func:`learn_merges_slowly`, but touch only the places where something changes.

    A pair's count can grow only in the step that makes the newer of its two units; from then on it
    falls. So a count in the queue is right or too high, and is corrected when it comes up.

    Example:
        >>> list(learn_merges({b"aab": 3, b"ab": 1}, 5))
        [((97, 98), 4), ((97, 256), 3)]
    """
    row, new = _Row(pieces), 256
    queue = [(-count, pair) for pair, count in row.counts.items()]
    heapq.heapify(queue)
    while queue and new < 256 + num_merges:
        negative, pair = heapq.heappop(queue)  # the smallest first: so counts are negated
        changed = {pair}
        if row.counts[pair] == -negative:
            yield pair, -negative
            changed = row.join(pair, new)
            new += 1
        for pair in changed:
            if row.counts[pair] > 0:
                heapq.heappush(queue, (-row.counts[pair], pair))


def apply_merges(ids: Sequence[int], ranks: Mapping[Pair, int]) -> list[int]:
    """As :func:`apply_merges_slowly`, in time about proportional to the length of the piece.

    Args:
        ids: the bytes of one piece, as ids.
        ranks: for each pair the id of the unit that it makes. Earlier merges have smaller ids.

    Example:
        >>> apply_merges(b"aabc", {(97, 98): 256, (97, 256): 257})
        [257, 99]
    """
    n, ids = len(ids), [*ids, -1]  # -1 marks the end: it is in no pair
    before, after = list(range(-1, n)), list(range(1, n + 1))
    pairs = enumerate(itertools.pairwise(ids))
    queue = [(ranks[pair], i) for i, pair in pairs if pair in ranks]
    heapq.heapify(queue)
    while queue:
        new, i = heapq.heappop(queue)  # the earliest merge, leftmost first
        j = after[i]
        if ranks.get((ids[i], ids[j])) == new:  # else one of the two has been joined meanwhile
            ids[i], ids[j], after[i], before[after[j]] = new, -1, after[j], i
            for k in (before[i], i):
                rank = ranks.get((ids[k], ids[after[k]]))
                if rank is not None:
                    heapq.heappush(queue, (rank, k))
    return [i for i in ids if i >= 0]


# --- Cutting text into pieces --------------------------------------------------------------------


def split(text: str) -> list[str]:
    r"""Cut text into words, numbers, punctuation and white space, exactly as GPT-2 does.

    A word takes the one space before it along, so that joining the pieces gives the text back.
    What counts as a letter or a number is up to the Unicode version of the running Python.

    Source: Radford et al. 2019, section 2.2, and the pattern in the program published with it:
    ``'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``.

    Example:
        >>> split("It's 9 o'clock,  isn't it?")
        ['It', "'s", ' 9', ' o', "'", 'clock', ',', ' ', ' isn', "'t", ' it', '?']
    """
    return _pattern().findall(text)


@functools.cache
def _pattern() -> re.Pattern[str]:
    r"""GPT-2's pattern for the standard library's ``re``, which knows no ``\p{L}``.

    ``\w`` is the letters, the numbers and the underscore; ``\d`` is only the decimal digits. And
    Python's ``\s`` has four control characters (1c to 1f) that Unicode does not call white space.
    """
    more = _more_numbers()
    space = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    letters, numbers, other = rf"[^\W\d_{more}]+", rf"[\d{more}]+", rf"(?:[^\w{space}]+|_+)+"
    return re.compile(
        rf"'(?:s|t|re|ve|m|ll|d)| ?{letters}| ?{numbers}| ?{other}"
        rf"|[{space}]+(?![^{space}])|[{space}]+"
    )


def _more_numbers() -> str:
    """The numbers that are no decimal digits (½, ², Ⅷ), as ranges for a class of ``re``."""
    every = range(sys.maxunicode + 1)
    found = {i for i in every if unicodedata.category(chr(i)) in ("Nl", "No")}
    first = sorted(i for i in found if i - 1 not in found)
    last = sorted(i for i in found if i + 1 not in found)
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(first, last, strict=True))


# --- The interface -------------------------------------------------------------------------------


def pad(
    sequences: Sequence[Sequence[int]],
    pad_id: int,
    side: str = "right",
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """Make one rectangle out of sequences of different lengths.

    Args:
        sequences: B lists of ids, some of them possibly empty.
        pad_id: what to fill the rest with.
        side: ``"right"`` puts the filling behind the text, ``"left"`` in front of it.
        device: where to put the result; the CPU unless told otherwise.

    Returns:
        The ids ``(B, T)`` with T the longest length, and the lengths ``(B,)``, both ``int64``.

    Raises:
        ValueError: if there is no sequence, ``side`` is another word or ``pad_id`` is negative.

    Example:
        >>> pad([[5, 6, 7], [8]], pad_id=9)
        (tensor([[5, 6, 7],
                 [8, 9, 9]]), tensor([3, 1]))
    """
    _check.one_of("side", side, ("left", "right"))
    _check.integer("pad_id", pad_id, at_least=0)
    if len(sequences) == 0:
        raise ValueError("sequences must hold at least one list of ids, got none")
    longest = max(map(len, sequences))
    rows = []
    for ids in sequences:
        filling = [pad_id] * (longest - len(ids))
        rows.append([*ids, *filling] if side == "right" else [*filling, *ids])
    lengths = [len(ids) for ids in sequences]
    long = torch.int64
    return (
        torch.tensor(rows, dtype=long, device=device).reshape(len(rows), longest),  # (B, T)
        torch.tensor(lengths, dtype=long, device=device),  # (B,)
    )


class Tokenizer(ABC):
    """What every tokenizer can do.

    The units learned from text have the ids from 0; special tokens such as ``"<pad>"`` come after
    them. A special token is never made out of text: ``encode("<pad>")`` is five characters. The
    one exception is ``"<unk>"``, the id of what a tokenizer does not know.

    Args:
        special_tokens: the names of the special tokens, in the order of their ids.

    Raises:
        TypeError: if a name is not a string.
        ValueError: if a name is empty or occurs twice.

    Example:
        >>> from tutorial_lib.tokens import CharacterTokenizer, Tokenizer
        >>> tokenizer = CharacterTokenizer(special_tokens=["<pad>"]).fit("banana")
        >>> isinstance(tokenizer, Tokenizer), tokenizer.vocab_size, tokenizer.special_id("<pad>")
        (True, 4, 3)
    """

    def __init__(self, special_tokens: Sequence[str] = ()) -> None:
        names = tuple(special_tokens)
        if isinstance(special_tokens, str) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"special_tokens must be a list of strings, got {special_tokens!r}")
        if len(set(names)) < len(names) or "" in names:
            raise ValueError(f"special_tokens must be different and not empty, got {names}")
        self.special_tokens = names
        self.vocabulary: list[Any] = []

    @abstractmethod
    def fit(self, texts: str | Iterable[str]) -> "Tokenizer":
        """Learn the units from one text or several, and return the tokenizer itself."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of the units of ``text``."""

    @abstractmethod
    def decode(self, ids: Ids, special: bool = False) -> str:
        r"""The text of ``ids``.

        Special tokens are left out (an unknown one is written as ``\ufffd``), or written by their
        names where ``special`` is true.
        """

    @property
    def vocab_size(self) -> int:
        """How many ids there are, for the units and the special tokens."""
        return len(self.vocabulary) + len(self.special_tokens)

    def special_id(self, name: str) -> int:
        """The id of a special token.

        Raises:
            ValueError: if the tokenizer was made without that token.

        Example:
            >>> CharacterTokenizer(special_tokens=[PAD, EOS]).fit("abc").special_id(EOS)
            4
        """
        if name not in self.special_tokens:
            raise ValueError(
                f"name must be one of the special tokens {list(self.special_tokens)}, "
                f"got {name!r}; they are chosen with special_tokens=[...]"
            )
        return len(self.vocabulary) + self.special_tokens.index(name)

    def pad(
        self,
        sequences: Sequence[Sequence[int]],
        side: str = "right",
        device: torch.device | str | None = None,
    ) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
        """As :func:`pad`, filling with this tokenizer's own ``"<pad>"``.

        Raises:
            ValueError: if the tokenizer was made without ``"<pad>"``, and as :func:`pad`.

        Example:
            >>> letters = CharacterTokenizer(special_tokens=[PAD]).fit("abc")
            >>> letters.pad([letters.encode("cab"), letters.encode("b")])
            (tensor([[2, 0, 1],
                     [1, 3, 3]]), tensor([3, 1]))
        """
        return pad(sequences, self.special_id(PAD), side, device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to ``path`` as JSON: whole, or not at all."""
        kind = type(self).__name__
        state = {"kind": kind, "special_tokens": self.special_tokens, **self._state()}
        _write(Path(path), json.dumps(state))

    @classmethod
    def load(cls: type[AnyTokenizer], path: str | os.PathLike[str]) -> AnyTokenizer:
        """Read a tokenizer that :meth:`save` wrote.

        ``Tokenizer.load`` reads every kind; ``WordTokenizer.load`` only a word tokenizer.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is damaged or holds another kind; the message names it.

        Example:
            >>> import tempfile, pathlib
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "letters.json"
            >>> CharacterTokenizer().fit("abc").save(path)
            >>> Tokenizer.load(path).encode("cab")
            [2, 0, 1]
        """
        kinds = {kind.__name__: kind for kind in _KINDS if issubclass(kind, cls)}
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state["kind"] not in kinds:
                raise ValueError(f"kind must be one of {sorted(kinds)}, got {state['kind']!r}")
            return cast(AnyTokenizer, kinds[state["kind"]]._from_state(state))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path} must be a file written by save(): {reason}") from error

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What has been learned, as values that JSON can hold."""

    @classmethod
    @abstractmethod
    def _from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """The tokenizer of which ``state`` was saved."""

    def _units(self, ids: Ids, special: bool) -> Iterator[Any]:
        """The unit of each id; special tokens as :meth:`decode` writes them."""
        known, size = len(self.vocabulary), self.vocab_size
        for i in ids.tolist() if isinstance(ids, Tensor) else ids:
            if isinstance(i, bool) or not hasattr(i, "__index__"):
                raise TypeError(f"ids must hold whole numbers, got {type(i).__name__}: {i!r}")
            if not 0 <= i < size:
                raise ValueError(f"ids must be from 0 to {size - 1}, got {i}")
            if i < known:
                yield self.vocabulary[i]
            elif special or self.special_tokens[i - known] == UNK:
                yield self._spell(self.special_tokens[i - known] if special else "\ufffd")

    def _spell(self, text: str) -> Any:
        """``text`` in the type of the units."""
        return text

    def __repr__(self) -> str:
        special = list(self.special_tokens)
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, special_tokens={special})"


def _texts(texts: str | Iterable[str]) -> Iterator[str]:
    """One text or several, each checked to be a string."""
    if not isinstance(texts, str) and not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a string or several, got {type(texts).__name__}")
    for text in [texts] if isinstance(texts, str) else texts:
        _check_text(text)
        yield text


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}")


def _write(path: Path, text: str) -> None:
    """Write a file so that a reader never meets half of it, even after a crash."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


# --- Characters and words ------------------------------------------------------------------------


class _TableTokenizer(Tokenizer):
    """A tokenizer whose units are looked up in a table; what is not there is unknown."""

    def __init__(self, special_tokens: Sequence[str] = ()) -> None:
        super().__init__(special_tokens)
        self._ids: dict[str, int] = {}

    @abstractmethod
    def _cut(self, text: str) -> Iterable[str]:
        """The units of ``text``, known or not."""

    def encode(self, text: str) -> list[int]:
        """The ids of the units of ``text``.

        Raises:
            TypeError: if ``text`` is not a string.
            ValueError: if a unit is not known and the tokenizer has no ``"<unk>"`` for it.
        """
        _check_text(text)
        if UNK in self.special_tokens:
            unknown = self.special_id(UNK)
            return [self._ids.get(unit, unknown) for unit in self._cut(text)]
        try:
            return [self._ids[unit] for unit in self._cut(text)]
        except KeyError as error:
            raise ValueError(
                f"text must hold only units of the text given to fit(), got {error.args[0]!r} "
                f"at position {text.find(error.args[0])}; with {UNK!r} among the special_tokens "
                "it would get that id"
            ) from None

    def decode(self, ids: Ids, special: bool = False) -> str:
        r"""The text of ``ids``.

        Args:
            ids: ids from 0 to ``vocab_size - 1``: a list, or a tensor ``(T,)``.
            special: write special tokens by name. Else they are left out, and an unknown unit is
                written as ``\ufffd``.

        Raises:
            TypeError: if an id is not a whole number.
            ValueError: if an id is out of range.
        """
        return "".join(self._units(ids, special))

    def _learn(self, units: Iterable[str]) -> None:
        vocabulary = list(units)
        if not vocabulary:
            raise ValueError("texts must hold at least one character, got none")
        self.vocabulary = vocabulary
        self._ids = {unit: i for i, unit in enumerate(vocabulary)}

    def _state(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> "_TableTokenizer":
        tokenizer, vocabulary = cls(special_tokens=state["special_tokens"]), state["vocabulary"]
        if not isinstance(vocabulary, list) or not all(isinstance(u, str) for u in vocabulary):
            raise TypeError("vocabulary must be a list of strings")
        if len(set(vocabulary)) < len(vocabulary):
            raise ValueError("vocabulary must hold each unit once")
        if vocabulary:  # else it was saved before it was fitted
            tokenizer._learn(vocabulary)
        return tokenizer


class CharacterTokenizer(_TableTokenizer):
    """One id for each character (Unicode code point) of the fitted text, in their sorted order.

    ``decode(encode(text)) == text`` for every text of those characters. Another character is an
    error, or ``"<unk>"`` where that is among the special tokens.

    Args:
        special_tokens: the names of the special tokens, in the order of their ids.

    Example:
        >>> letters = CharacterTokenizer().fit("to be or not to be")
        >>> letters.encode("bet")
        [1, 2, 6]
        >>> letters.decode([1, 2, 6]), letters.vocab_size
        ('bet', 7)
    """

    def fit(self, texts: str | Iterable[str]) -> "CharacterTokenizer":
        """Take up every character that occurs.

        Args:
            texts: one text or several.

        Raises:
            TypeError: if a text is not a string.
            ValueError: if there is no character at all.
        """
        self._learn(sorted(set[str]().union(*_texts(texts))))
        return self

    def _cut(self, text: str) -> Iterable[str]:
        return text


class WordTokenizer(_TableTokenizer):
    r"""One id for each word, number, punctuation mark and run of white space of the fitted text.

    The text is cut by :func:`split`: a word takes the one space before it along, so ``"dog"`` and
    ``" dog"`` are two units, and ``decode(encode(text)) == text`` for every text of known units.
    What is lost: each unknown unit, whole, becomes one ``"<unk>"``.

    Args:
        max_words: keep only this many units, the most frequent ones; None keeps all.
        special_tokens: the names of the special tokens. Without ``"<unk>"`` an unknown unit is an
            error.

    Example:
        >>> words = WordTokenizer().fit("the dog sees the cat\n")
        >>> words.vocabulary
        ['\n', ' cat', ' dog', ' sees', ' the', 'the']
        >>> words.decode(words.encode("the cat sees the bird\n"))
        'the cat sees the�\n'
    """

    def __init__(
        self, max_words: int | None = None, special_tokens: Sequence[str] = (UNK,)
    ) -> None:
        super().__init__(special_tokens)
        if max_words is not None:
            _check.integer("max_words", max_words)
        self.max_words = max_words

    def fit(self, texts: str | Iterable[str]) -> "WordTokenizer":
        """Take up the most frequent units; of equally frequent ones those first in the alphabet.

        Args:
            texts: one text or several.

        Raises:
            TypeError: if a text is not a string.
            ValueError: if there is no character at all.
        """
        counts: Counter[str] = Counter()
        for text in _texts(texts):
            counts.update(split(text))
        ordered = sorted(counts, key=lambda unit: (-counts[unit], unit))
        self._learn(ordered[: self.max_words])
        return self

    def _cut(self, text: str) -> Iterable[str]:
        return split(text)


# --- Byte-pair units -----------------------------------------------------------------------------


class BytePairTokenizer(Tokenizer):
    """Byte-level byte-pair encoding: 256 bytes, and the units learned by joining frequent pairs.

    There is nothing it does not know, and ``decode(encode(text)) == text`` for every text. Ids are
    bytes (0 to 255), then the units in the order in which they were learned, then special tokens.
    Before ``fit`` it knows the bytes alone.

    Args:
        num_merges: how many units to learn; fewer where the text has no more pairs.
        special_tokens: the names of the special tokens, in the order of their ids.

    Attributes:
        vocabulary: the bytes of each unit, by id.
        merges: the pairs of units that were joined, in order.

    Source: Sennrich, Haddow and Birch 2016; on bytes: Radford et al. 2019, section 2.2.

    Example:
        >>> units = BytePairTokenizer(num_merges=3).fit("low lower lowest")
        >>> units.merges
        [(b'l', b'o'), (b'lo', b'w'), (b' ', b'low')]
        >>> units.encode("low lows"), units.decode(units.encode("naïve 🙂"))
        ([257, 258, 115], 'naïve 🙂')
    """

    _CACHE_SIZE, _CACHE_LENGTH = 2**17, 64

    def __init__(self, num_merges: int = 1024, special_tokens: Sequence[str] = ()) -> None:
        super().__init__(special_tokens)
        _check.integer("num_merges", num_merges, at_least=0)
        self.num_merges = num_merges
        self._start(range(256))

    def fit(self, texts: str | Iterable[str]) -> "BytePairTokenizer":
        """Learn the units; what was learned before is forgotten.

        Time grows with the number of *different* pieces that :func:`split` cuts the text into.

        Args:
            texts: one text or several.

        Raises:
            TypeError: if a text is not a string.
            ValueError: if a text holds half a surrogate pair, which UTF-8 cannot write.
        """
        for _ in self.fit_steps(texts):
            pass
        return self

    def fit_steps(self, texts: str | Iterable[str]) -> Iterator[Merge]:
        """As :meth:`fit`, one merge at a time: encode between two steps to see it at work.

        Example:
            >>> units = BytePairTokenizer(num_merges=2)
            >>> for merge in units.fit_steps("an anagram"):
            ...     print(merge, len(units.encode("an anagram")))
            Merge(left=b'a', right=b'n', times=2) 8
            Merge(left=b' ', right=b'an', times=1) 7
        """
        pieces = Counter(piece for text in _texts(texts) for piece in split(text))
        as_bytes = {_utf8(piece): times for piece, times in pieces.items()}
        self._start(range(256))
        for pair, count in learn_merges(as_bytes, self.num_merges):
            self._add(pair)
            yield Merge(*self.merges[-1], count)

    @classmethod
    def from_merges(
        cls,
        merges: Iterable[tuple[bytes, bytes]],
        byte_order: Iterable[int] = range(256),
        special_tokens: Sequence[str] = (),
    ) -> "BytePairTokenizer":
        """Build a tokenizer out of merges that someone else has learned.

        Args:
            merges: the pairs of units that are joined, in order.
            byte_order: the byte that each of the first 256 ids stands for.
            special_tokens: the names of the special tokens; their ids follow those of the units.

        Raises:
            ValueError: if a merge joins a unit that is not there yet, or makes one that is there;
                if ``byte_order`` is not the 256 bytes in some order.

        Example:
            >>> units = BytePairTokenizer.from_merges([(b"h", b"e"), (b"t", b"he")])
            >>> [units.vocabulary[i] for i in units.encode("the hen")]
            [b'the', b' ', b'he', b'n']
        """
        merges = list(merges)
        tokenizer = cls(len(merges), special_tokens)
        tokenizer._start(byte_order)
        ids = {unit: i for i, unit in enumerate(tokenizer.vocabulary)}
        for left, right in merges:
            if left not in ids or right not in ids or left + right in ids:
                raise ValueError(f"merges must join known units to a new one, got {left, right}")
            ids[left + right] = len(ids)
            tokenizer._add((ids[left], ids[right]))
        return tokenizer

    @classmethod
    def from_gpt2(
        cls, path: str | os.PathLike[str], special_tokens: Sequence[str] = ("<|endoftext|>",)
    ) -> "BytePairTokenizer":
        """Read GPT-2's ``vocab.bpe`` (elsewhere ``merges.txt``): the ids are GPT-2's.

        Each line of that file is a merge, its bytes written as printable characters.

        Raises:
            ValueError: if the file is not of that kind; the message names it.
        """
        order, printable = _gpt2_bytes()
        byte = dict(zip(printable, order, strict=True))
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            if lines and lines[0].startswith("#version"):
                del lines[0]
            pairs = [line.split(" ") for line in lines if line]
            merges = [(bytes(byte[c] for c in a), bytes(byte[c] for c in b)) for a, b in pairs]
            return cls.from_merges(merges, order, special_tokens)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{path} must hold a merge on each line: {error}") from error

    @classmethod
    def from_tiktoken(
        cls, path: str | os.PathLike[str], special_tokens: Sequence[str] = ("<|endoftext|>",)
    ) -> "BytePairTokenizer":
        """Read the ``.tiktoken`` file of an encoding that cuts text as GPT-2 does.

        That file holds each unit in base 64 and its id. The merges follow: with the units before
        it, every unit falls into exactly two parts.

        Raises:
            ValueError: if the file is not of that kind; the message names it.
        """
        try:
            lines = [line.split() for line in Path(path).read_bytes().splitlines() if line]
            ranks = {int(rank): base64.b64decode(unit, validate=True) for unit, rank in lines}
            units = [ranks[i] for i in range(len(ranks))]
            tokenizer = cls(len(units) - 256, special_tokens)
            tokenizer._start(unit[0] for unit in units[:256] if len(unit) == 1)
            for unit in units[256:]:
                parts = tokenizer._encode_piece(unit)
                if len(parts) != 2:
                    raise ValueError(f"{unit!r} is not made of two units before it")
                tokenizer._add((parts[0], parts[1]))
            return tokenizer
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise ValueError(f"{path} must hold a unit and its id on each line: {error}") from error

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The pairs of units that were joined, in the order in which they were learned."""
        return [(self.vocabulary[left], self.vocabulary[right]) for left, right in self._ranks]

    def encode(self, text: str) -> list[int]:
        """The ids of the units of ``text``.

        Raises:
            TypeError: if ``text`` is not a string.
            ValueError: if it holds half a surrogate pair, which UTF-8 cannot write.
        """
        _check_text(text)
        ids: list[int] = []
        for piece in split(text):
            found = self._cache.get(piece)
            if found is None:
                found = self._encode_piece(_utf8(piece))
                if len(piece) <= self._CACHE_LENGTH:
                    if len(self._cache) >= self._CACHE_SIZE:
                        self._cache.clear()
                    self._cache[piece] = found
            ids += found
        return ids

    def decode(self, ids: Ids, special: bool = False) -> str:
        r"""The text of ``ids``; bytes that are no whole character are written as ``\ufffd``.

        Args:
            ids: ids from 0 to ``vocab_size - 1``: a list, or a tensor ``(T,)``.
            special: write special tokens by name instead of leaving them out.

        Raises:
            TypeError: if an id is not a whole number.
            ValueError: if an id is out of range.
        """
        return b"".join(self._units(ids, special)).decode("utf-8", errors="replace")

    def _start(self, byte_order: Iterable[int]) -> None:
        """Know the bytes alone."""
        order = list(byte_order)
        if sorted(order) != list(range(256)):
            raise ValueError("byte_order must hold each byte from 0 to 255 once")
        self.vocabulary = [bytes([byte]) for byte in order]
        self._byte_ids = [order.index(byte) for byte in range(256)]
        self._ranks: dict[Pair, int] = {}
        self._cache: dict[str, list[int]] = {}

    def _add(self, pair: Pair) -> None:
        """Know one unit more."""
        left, right = pair
        self._ranks[pair] = len(self.vocabulary)
        self.vocabulary.append(self.vocabulary[left] + self.vocabulary[right])
        self._cache.clear()

    def _encode_piece(self, piece: bytes) -> list[int]:
        return apply_merges([self._byte_ids[byte] for byte in piece], self._ranks)

    def _spell(self, text: str) -> bytes:
        return text.encode()

    def _state(self) -> dict[str, Any]:
        order = [unit[0] for unit in self.vocabulary[:256]]
        return {"byte_order": order, "merges": [list(pair) for pair in self._ranks]}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> "BytePairTokenizer":
        tokenizer = cls(len(state["merges"]), state["special_tokens"])
        tokenizer._start(state["byte_order"])
        for left, right in state["merges"]:
            known = len(tokenizer.vocabulary)
            if not (
                0 <= left < known and 0 <= right < known and (left, right) not in tokenizer._ranks
            ):
                raise ValueError(f"merges must join known units to a new one, got {left, right}")
            tokenizer._add((left, right))
        return tokenizer


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise ValueError(
            f"text must be writable in UTF-8, got half a surrogate pair: {found!r}"
        ) from None


def _gpt2_bytes() -> tuple[list[int], list[str]]:
    """The order that GPT-2 gives the bytes, and the printable character it writes for each."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    written = [chr(byte) for byte in visible] + [chr(256 + n) for n in range(len(hidden))]
    return visible + hidden, written


_KINDS: tuple[type[Tokenizer], ...] = (CharacterTokenizer, WordTokenizer, BytePairTokenizer)

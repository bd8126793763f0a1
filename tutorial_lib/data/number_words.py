"""Numbers in German and in English words: the same thing said twice, in another order.

*vierunddreißig*, "four and thirty", is *thirty four*. So whoever writes the English has to look
back at the German out of order, and where to look is known exactly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tutorial_lib import _check
from tutorial_lib.data.cache import Arrays, cached

_UNITS = [
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
]
_TEENS = ["dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

Span = tuple[int, int]


@dataclass(frozen=True)
class NumberWords:
    """Numbers, and what they are called in two languages.

    Attributes:
        numbers: (N,), whole numbers.
        german: N texts of one word each, such as ``"vierunddreißig"``.
        english: N texts of words with spaces between, such as ``"thirty four"``.

    Example:
        >>> from tutorial_lib.data import number_words
        >>> train, test = number_words()
        >>> len(train), len(test)
        (9000, 600)
    """

    numbers: Int64[Tensor, "N"]
    german: tuple[str, ...]
    english: tuple[str, ...]

    def __len__(self) -> int:
        """How many numbers."""
        return len(self.german)

    def where(self, chosen: Iterable[bool] | Tensor) -> "NumberWords":
        """Those for which ``chosen`` is true.

        Args:
            chosen: N truth values, a list or a tensor.

        Raises:
            ValueError: if they are not N.

        Example:
            >>> from tutorial_lib.data import number_words
            >>> _, test = number_words()
            >>> len(test.where(test.numbers < 1000))
            200
        """
        flags = [bool(flag) for flag in chosen]
        if len(flags) != len(self):
            raise ValueError(f"chosen must have length {len(self)}, got {len(flags)}")
        return _take(self, [i for i, flag in enumerate(flags) if flag])


@dataclass(frozen=True)
class NumberPairs:
    """Pairs of a German and an English text, and whether they mean the same number.

    Attributes:
        german: N texts.
        english: N texts.
        same: (N,), 1 where the two mean the same number, else 0.
        kinds: N words: ``"same"``, or how the other number was made, ``"changed"`` (one digit is
            another) or ``"swapped"`` (two digits have changed places).

    Example:
        >>> import torch
        >>> from tutorial_lib.data.number_words import NumberPairs
        >>> len(NumberPairs(("zwei",), ("two",), torch.tensor([1]), ("same",)))
        1
    """

    german: tuple[str, ...]
    english: tuple[str, ...]
    same: Int64[Tensor, "N"]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.german)


def number_words(
    digits: Sequence[int] = (3, 4, 5), train: int = 9000, test: int = 600, seed: int = 0
) -> tuple[NumberWords, NumberWords]:
    """Numbers in German and English words, to train on and to test on.

    Numbers of each length in ``digits`` are equally many. No number of the test is among those of
    the training. Where there are too few numbers of a length to train on, they come again (of
    three digits there are only 900). The words are made with the package ``num2words``, once, and
    kept in ``cache_directory()``. English is written as in America, without "and".

    Args:
        digits: the lengths of the numbers, from 1 to 5 digits.
        train: how many examples to train on, a multiple of the number of lengths.
        test: how many to test on, likewise.
        seed: of the choice and the order.

    Returns:
        The examples to train on and those to test on, each in a random order.

    Raises:
        ImportError: if the package ``num2words`` is needed and missing.
        TypeError: if an argument is of another type.
        ValueError: if a length is not from 1 to 5 or comes twice, a count is no multiple of the
            number of lengths, or there are not enough numbers.

    Example:
        >>> from tutorial_lib.data import number_words
        >>> train, test = number_words()
        >>> i = train.numbers.tolist().index(734)
        >>> train.german[i], train.english[i]
        ('siebenhundertvierunddreißig', 'seven hundred thirty four')
    """
    lengths = _lengths(digits)
    counts = _shares("train", train, len(lengths)), _shares("test", test, len(lengths))
    _check.integer("seed", seed, at_least=0)
    table = cached("number_words", _make)
    whole = NumberWords(
        torch.from_numpy(table["numbers"]), tuple(table["german"]), tuple(table["english"])
    )
    generator = torch.Generator().manual_seed(seed)
    rows: tuple[list[int], list[int]] = ([], [])
    for length in lengths:
        found = ((whole.numbers >= 10 ** (length - 1)) & (whole.numbers < 10**length)).nonzero()
        pool = found[torch.randperm(len(found), generator=generator), 0].tolist()
        if len(pool) <= counts[1]:
            raise ValueError(
                f"test must be below {len(pool) * len(lengths)}, since there are {len(pool)} "
                f"numbers of {length} digits, got {test}"
            )
        rest = pool[counts[1] :]
        rows[0].extend(rest[i % len(rest)] for i in range(counts[0]))
        rows[1].extend(pool[: counts[1]])
    parts = []
    for chosen in rows:
        order = torch.randperm(len(chosen), generator=generator).tolist()
        parts.append(_take(whole, [chosen[i] for i in order]))
    return parts[0], parts[1]


def alignment(number: int) -> list[Span]:
    """Which German characters each English word translates.

    Args:
        number: from 1 to 99,999.

    Returns:
        For each English word the first character of its German part, and the one after its last,
        as in a slice. The German *und* belongs to no English word.

    Raises:
        TypeError: if ``number`` is not an int.
        ValueError: if it is not from 1 to 99,999.

    Example:
        >>> from tutorial_lib.data import alignment
        >>> [("vierunddreißig"[start:end], word) for (start, end), word in
        ...     zip(alignment(34), ["thirty", "four"])]
        [('dreißig', 'thirty'), ('vier', 'four')]
    """
    _check.integer("number", number)
    if number > 99_999:
        raise ValueError(f"number must be at most 99999, got {number}")
    parts = _parts(number)
    ends = np.cumsum([len(text) for text, _ in parts]).tolist()
    spans = [
        (place, (end - len(text), end))
        for (text, place), end in zip(parts, ends, strict=True)
        if place >= 0
    ]
    return [span for _, span in sorted(spans)]


def alignment_score(
    weights: Float[Tensor, "N T S"], numbers: Int64[Tensor, "N"]
) -> tuple[float, float]:
    """How well attention finds the German part that each English word translates.

    Args:
        weights: who looks at whom: for each number and English word the weights of the German
            characters, ``(N, T, S)``. Places behind the last word or character are overlooked.
        numbers: ``(N)``.

    Returns:
        The share of words whose largest weight lies on the right part, and the mean of the weight
        that lies there, summed over the part.

    Raises:
        TypeError: if ``weights`` are not floating point or ``numbers`` no integers.
        ValueError: if a shape does not fit, or a number has more words or characters.

    Example:
        >>> import torch
        >>> from tutorial_lib.data import alignment_score
        >>> weights = torch.zeros(1, 2, 14)  # thirty four, vierunddreißig
        >>> weights[0, 0, 7:14], weights[0, 1, 0] = 1 / 7, 1.0
        >>> [round(score, 3) for score in alignment_score(weights, torch.tensor([34]))]
        [1.0, 1.0]
    """
    _check.axes("weights", weights, "N T S")
    _check.axes("numbers", numbers, "N")
    if not weights.is_floating_point():
        raise TypeError(f"weights must hold floats, got dtype {weights.dtype}")
    _check.ids("numbers", numbers, 100_000)
    N, T, S = weights.shape
    if len(numbers) != N or N == 0:
        raise ValueError(
            f"numbers must be {N} like the weights, and one or more, got {len(numbers)}"
        )
    hits, mass, host = 0, 0.0, weights.detach().double().cpu()
    spans = [alignment(number) for number in numbers.tolist()]
    for grid, parts in zip(host, spans, strict=True):  # (T, S)
        if len(parts) > T or max(end for _, end in parts) > S:
            raise ValueError(f"weights must have room for {len(parts)} words and all characters")
        for row, (start, end) in zip(grid, parts, strict=False):  # (S)
            hits += start <= int(row.argmax()) < end and float(row.max()) > 0
            mass += float(row[start:end].sum())
    words = sum(map(len, spans))
    return hits / words, mass / words


def same_number_pairs(words: NumberWords, seed: int = 0) -> NumberPairs:
    """Do the two texts mean the same number? One pair for each number of ``words``.

    Half of the pairs do. In the others the English is that of a near number, which has as many
    digits: one digit is another, or two different digits have changed places, each in half of
    them (where no exchange makes another number, as in 777 or 300, a digit is changed). So the
    number of digits gives nothing away, and no text is false by itself.

    Args:
        words: the numbers, of two digits at least.
        seed: of the random numbers.

    Returns:
        The pairs, in the order of ``words``.

    Raises:
        ImportError: if the package ``num2words`` is missing.
        TypeError: if ``words`` is no ``NumberWords``, or ``seed`` no int.
        ValueError: if a number has one digit only.

    Example:
        >>> from tutorial_lib.data import number_words, same_number_pairs
        >>> pairs = same_number_pairs(number_words()[1])
        >>> len(pairs), round(pairs.same.float().mean().item(), 1)
        (600, 0.5)
    """
    if not isinstance(words, NumberWords):
        raise TypeError(f"words must be NumberWords, got {type(words).__name__}")
    _check.integer("seed", seed, at_least=0)
    if len(words) and int(words.numbers.min()) < 10:
        raise ValueError(
            f"words must hold numbers of two digits at least, got {int(words.numbers.min())}"
        )
    draw = np.random.default_rng(seed)
    english, kinds = [], []
    for number, own in zip(words.numbers.tolist(), words.english, strict=True):
        kind = ("same", "same", "changed", "swapped")[draw.integers(4)]
        near = number if kind == "same" else _near(number, kind, draw)
        if near is None:
            kind, near = "changed", _near(number, "changed", draw)
        english.append(own if near in (number, None) else _english(near))
        kinds.append(kind)
    same = torch.tensor([kind == "same" for kind in kinds], dtype=torch.int64)
    return NumberPairs(words.german, tuple(english), same, tuple(kinds))


def _near(number: int, kind: str, draw: np.random.Generator) -> int | None:
    """One of the other numbers with as many digits that ``kind`` makes of this one, if any."""
    digits, near = str(number), set()
    for i in range(len(digits)):
        if kind == "swapped":
            for j in range(i):
                near.add(digits[:j] + digits[i] + digits[j + 1 : i] + digits[j] + digits[i + 1 :])
        else:
            near |= {digits[:i] + digit + digits[i + 1 :] for digit in "0123456789"}
    found = sorted(int(text) for text in near - {digits} if text[0] != "0")
    return found[draw.integers(len(found))] if found else None


def _parts(number: int, last: bool = True) -> list[tuple[str, int]]:
    """The German parts in their order, and the place of the English word of each, -1 for none.

    One in the end is *eins*, elsewhere *ein*.
    """
    if number >= 1000:
        before, word, rest = _parts(number // 1000, last=False), "tausend", number % 1000
    elif number >= 100:
        before, word, rest = _parts(number // 100, last=False), "hundert", number % 100
    else:
        return _parts_below_100(number, last)
    place = len([1 for _, place in before if place >= 0])
    after = [(text, at + place + 1 if at >= 0 else -1) for text, at in _parts(rest, last)]
    return [*before, (word, place), *after]


def _parts_below_100(number: int, last: bool) -> list[tuple[str, int]]:
    if number == 0:
        return []
    if number < 20:
        return [("eins" if last and number == 1 else [*_UNITS, *_TEENS][number - 1], 0)]
    tens, units = _TENS[number // 10 - 2], number % 10
    return [(_UNITS[units - 1], 1), ("und", -1), (tens, 0)] if units else [(tens, 0)]


def _make() -> Arrays:
    """All numbers to 9,999, and every seventh of five digits, whose endings are all alike often."""
    numbers = [*range(1, 10_000), *range(10_000, 100_000, 7)]
    german = [_check.package("num2words", "data").num2words(n, lang="de") for n in numbers]
    return {
        "numbers": np.array(numbers, dtype=np.int64),
        "german": np.array(german),
        "english": np.array([_english(n) for n in numbers]),
    }


def _english(number: int) -> str:
    text = _check.package("num2words", "data").num2words(number, lang="en")
    return " ".join(text.replace("-", " ").replace(",", "").replace(" and ", " ").split())


def _lengths(digits: object) -> list[int]:
    if isinstance(digits, (str, int)) or not isinstance(digits, Sequence) or not digits:
        raise TypeError(f"digits must be a sequence of ints, such as (3, 4, 5), got {digits!r}")
    for length in digits:
        _check.integer("digits", length)
        if length > 5:
            raise ValueError(f"digits must be at most 5, got {length}")
    if len(set(digits)) < len(digits):
        raise ValueError(f"digits must be different, got {tuple(digits)}")
    return list(digits)


def _shares(name: str, count: int, lengths: int) -> int:
    _check.integer(name, count)
    _check.divides("the number of lengths", lengths, name, count)
    return count // lengths


def _take(words: NumberWords, rows: list[int]) -> NumberWords:
    return NumberWords(
        words.numbers[torch.tensor(rows, dtype=torch.int64)],
        tuple(str(words.german[i]) for i in rows),
        tuple(str(words.english[i]) for i in rows),
    )

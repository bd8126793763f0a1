"""Number words: against the package that makes them, and what the two tasks promise."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from num2words import num2words

from tutorial_lib.data import (
    NumberWords,
    SameLengthBatches,
    alignment,
    alignment_score,
    number_words,
    same_number_pairs,
)

GERMAN = {
    "one": "eins?", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf",
    "six": "sechs", "seven": "sieben", "eight": "acht", "nine": "neun", "ten": "zehn",
    "eleven": "elf", "twelve": "zwölf", "thirteen": "dreizehn", "sixteen": "sechzehn",
    "seventeen": "siebzehn", "twenty": "zwanzig", "thirty": "dreißig", "ninety": "neunzig",
    "hundred": "hundert", "thousand": "tausend",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTORIAL_DATA", str(tmp_path_factory.mktemp("data")))
        yield


def english(number):
    return re.sub(r"-|, | and ", " ", num2words(number, lang="en"))


class TestNumberWords:
    def test_words_are_the_package_s(self):
        for part in number_words(train=90, test=30):
            for number, de, en in zip(
                part.numbers.tolist(), part.german, part.english, strict=True
            ):
                assert de == num2words(number, lang="de")
                assert en == english(number)

    def test_lengths_are_equally_many_and_no_number_is_in_both_parts(self):
        train, test = number_words()
        assert not set(train.numbers.tolist()) & set(test.numbers.tolist())
        assert not set(train.german) & set(test.german)
        for part, each in ((train, 3000), (test, 200)):
            digits = torch.tensor([len(str(n)) for n in part.numbers.tolist()])
            assert digits.bincount().tolist() == [0, 0, 0, each, each, each]
        assert len(set(test.german)) == len(test)
        assert len(set(train.german)) == 700 + 3000 + 3000

    def test_the_seed_alone_decides(self):
        first, again, other = (number_words((2, 3), 90, 10, seed) for seed in (1, 1, 2))
        assert first[0].german == again[0].german
        assert torch.equal(first[1].numbers, again[1].numbers)
        assert first[0].german != other[0].german

    def test_where(self):
        _, test = number_words()
        small = test.where(test.numbers < 1000)
        assert isinstance(small, NumberWords)
        assert len(small) == 200
        assert small.german[3] == num2words(int(small.numbers[3]), lang="de")
        assert len(test.where([False] * 600)) == 0
        with pytest.raises(ValueError, match="chosen must have length 600, got 3"):
            test.where([True] * 3)


class TestAlignment:
    @settings(max_examples=200, deadline=None)
    @given(st.integers(1, 99_999))
    def test_each_word_has_the_part_that_it_translates(self, number):
        german, words = num2words(number, lang="de"), english(number).split()
        spans = alignment(number)
        assert len(spans) == len(words)
        for word, (start, end) in zip(words, spans, strict=True):
            if word in GERMAN:
                assert re.fullmatch(GERMAN[word], german[start:end])
        left = list(german)
        for start, end in spans:
            assert "" not in left[start:end], "no part is used twice"
            left[start:end] = [""] * (end - start)
        assert re.fullmatch("(und)*", "".join(left))

    def test_the_order_turns_round(self):
        assert alignment(34) == [(7, 14), (0, 4)]
        assert alignment(21_000) == [(6, 13), (0, 3), (13, 20)]

    def test_scores(self):
        numbers = torch.tensor([34, 7])
        right = torch.zeros(2, 3, 17)
        right[0, 0, 8], right[0, 0, 5], right[0, 1, 0], right[1, 0, 5] = 0.75, 0.25, 1, 1
        assert alignment_score(right, numbers) == (1.0, pytest.approx(2.75 / 3))
        assert alignment_score(right.half(), numbers)[0] == 1.0
        wrong = right.flip(1)
        assert alignment_score(wrong, numbers)[0] == pytest.approx(1 / 3)  # the 7 lost, 4 kept
        even = torch.full((2, 2, 14), 1 / 14)
        assert alignment_score(even, numbers)[1] == pytest.approx((7 / 14 + 4 / 14 + 6 / 14) / 3)


class TestPairs:
    def test_half_are_the_same_and_the_others_are_near(self):
        words, _ = number_words((3, 4), 2000, 10)
        pairs = same_number_pairs(words, seed=3)
        value = {english(n): n for n in range(100, 10_000)}
        assert 0.45 < pairs.same.float().mean() < 0.55
        assert pairs.german == words.german
        for n, en, same, kind in zip(
            words.numbers.tolist(), pairs.english, pairs.same, pairs.kinds, strict=True
        ):
            one, other = str(n), str(value[en])
            differ = sum(a != b for a, b in zip(one, other, strict=True))  # as many digits
            assert differ == {"same": 0, "changed": 1, "swapped": 2}[kind]
            assert bool(same) == (kind == "same")
            assert kind == "changed" or sorted(one) == sorted(other)

    def test_where_no_exchange_makes_another_number(self):
        words = NumberWords(
            torch.tensor([300] * 60), ("dreihundert",) * 60, ("three hundred",) * 60
        )
        assert set(same_number_pairs(words).kinds) == {"same", "changed"}

    def test_the_seed_alone_decides(self):
        words, _ = number_words(train=300, test=30)
        first, again, other = (same_number_pairs(words, seed) for seed in (1, 1, 2))
        assert first.english == again.english
        assert first.english != other.english
        assert len(first) == 300


class TestSameLength:
    def batches(self, device="cpu", **settings):
        lengths = torch.tensor([3, 1, 3, 2, 1, 3], device=device)
        source = torch.arange(6, device=device)[:, None].expand(6, 4)  # row i holds i
        target = source.masked_fill(torch.arange(4, device=device) > lengths[:, None], -100)
        inputs = (source, lengths, source + 10)
        return SameLengthBatches(inputs, target, lengths, **({"batch_size": 5} | settings))

    def test_rows_belong_together_and_nothing_is_padding(self, device):
        batches, seen = self.batches(device), []
        for step in range(200):
            (source, lengths, told), target = batches(step)
            assert source.device.type == device.type
            assert (lengths == source.shape[1]).all()
            assert told.shape == target.shape == (5, min(int(lengths[0]) + 1, 4))
            assert torch.equal(told[:, 0] - 10, source[:, 0])
            assert torch.equal(target[:, 0], source[:, 0])
            seen += source[:, 0].tolist()
        shares = np.bincount(seen, minlength=6) / len(seen)
        assert shares == pytest.approx([1 / 6] * 6, abs=0.06)

    def test_a_step_is_the_same_whenever_it_comes(self):
        one, two, other = self.batches(), self.batches(), self.batches(seed=1)
        wanted = [one(step)[1] for step in range(9)]
        assert all(torch.equal(two(step)[1], wanted[step]) for step in reversed(range(9)))
        assert any(not torch.equal(other(step)[1], wanted[step]) for step in range(9))

    def test_targets_of_one_axis(self):
        ids, lengths = torch.ones(4, 3, dtype=torch.long), torch.tensor([1, 2, 3, 3])
        (read, told), target = SameLengthBatches((ids, lengths), lengths, lengths, 7)(3)
        assert read.shape == (7, int(told[0]))
        assert torch.equal(target, told)


TWO, LONG = torch.tensor([1, 2]), torch.ones(2, 3, dtype=torch.long)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: number_words((3, 6)), ValueError, "digits must be at most 5, got 6"),
        (lambda: number_words((3, 3)), ValueError, "digits must be different"),
        (lambda: number_words(3), TypeError, "digits must be a sequence"),
        (lambda: number_words(train=10), ValueError, "must divide train"),
        (lambda: number_words((1, 2), 10, 20), ValueError, "test must be below 18"),
        (lambda: number_words(seed=-1), ValueError, "seed must be at least 0"),
        (lambda: alignment(0), ValueError, "number must be at least 1"),
        (lambda: alignment(100_000), ValueError, "number must be at most 99999"),
        (lambda: alignment(3.0), TypeError, "number must be an int"),
        (lambda: same_number_pairs([34]), TypeError, "words must be NumberWords, got list"),
        (
            lambda: same_number_pairs(NumberWords(torch.tensor([7]), ("sieben",), ("seven",))),
            ValueError,
            "two digits at least, got 7",
        ),
        (
            lambda: alignment_score(torch.zeros(2, 3, 9), torch.tensor([7])),
            ValueError,
            "numbers must be 2",
        ),
        (lambda: alignment_score(LONG[None], TWO[:1]), TypeError, "weights must hold floats"),
        (
            lambda: alignment_score(torch.zeros(1, 1, 14), torch.tensor([34])),
            ValueError,
            "weights must have room for 2 words",
        ),
        (lambda: SameLengthBatches([LONG], TWO, TWO, 5), TypeError, "inputs must be a tuple"),
        (lambda: SameLengthBatches((LONG,), TWO, TWO * 2, 5), ValueError, "lengths must hold ids"),
        (lambda: SameLengthBatches((LONG,), TWO, TWO - 1, 5), ValueError, "lengths must be at"),
        (lambda: SameLengthBatches((LONG,), TWO[:1], TWO, 5), ValueError, "targets must hold 2"),
        (lambda: SameLengthBatches((LONG,), TWO, TWO, 0), ValueError, "batch_size must be at"),
        (lambda: SameLengthBatches((LONG[:0],), TWO[:0], TWO[:0], 3), ValueError, "at least one"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()

"""The tasks over tokens of chapter 4: each row is read again by another rule, in plain Python."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorial_lib.data import Adding, Copying, LateClue, Pronouns

TASKS = {
    "pronouns": Pronouns(length=7, max_distance=5),
    "late clue": LateClue(length=7),
    "late clue everywhere": LateClue(length=7, everywhere=True),
    "copying": Copying(count=3, num_symbols=5),
    "adding": Adding(length=8),
}
each = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@each
def test_the_generator_alone_decides(task):
    state = torch.get_rng_state()
    first, again, other = (task.sample(11, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    task.sample(11)
    assert not torch.equal(state, torch.get_rng_state())


@each
@pytest.mark.bad_input
def test_bad_counts(task):
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        task.sample(0)
    with pytest.raises(TypeError, match="n must be an int"):
        task.sample(2.0)


class TestPronouns:
    @settings(max_examples=25, deadline=None)
    @given(
        length=st.integers(3, 12),
        share=st.floats(0, 1),
        fixed=st.booleans(),
        seed=st.integers(0, 99),
    )
    def test_one_name_of_each_gender_and_the_answer_is_the_one_that_fits(
        self, length, share, fixed, seed
    ):
        furthest = 1 + int(share * (length - 2))
        task = Pronouns(length, furthest)
        tokens, targets = task.sample(9, seeded(seed), furthest if fixed else None)
        for row, target in zip(tokens, targets.tolist(), strict=True):
            words = task.words(row)
            pronouns = [i for i, word in enumerate(words) if word in ("he", "she")]
            names = {word: i for i, word in enumerate(words) if word[0].isupper()}
            he = [name for name in names if name in ("Adam", "Ben", "Carl", "David")]
            assert len(pronouns) == 1
            assert len(names) == 2
            assert len(he) == 1
            (she,) = set(names) - set(he)
            (place,) = pronouns
            answer = he[0] if words[place] == "he" else she
            assert [i for i, kind in enumerate(target) if kind != -100] == [place]
            assert task.vocabulary[target[place]] == answer
            distance = place - names[answer]
            assert distance == furthest if fixed else 1 <= distance <= furthest

    def test_all_distances_and_answers_are_as_likely(self):
        task = Pronouns(length=9, max_distance=4)
        tokens, targets = task.sample(4000, seeded(0))
        at = (targets >= 0).int().argmax(1)
        answers = targets[torch.arange(4000), at]
        assert (answers.bincount(minlength=task.num_classes) > 400).all()
        own = (tokens == answers[:, None]).int().argmax(1)
        assert ((at - own).bincount()[1:] > 900).all()

    def test_the_other_name_stands_anywhere(self):
        task = Pronouns(length=5, max_distance=4)
        tokens, targets = task.sample(2000, seeded(0), distance=2)
        answer = targets.max(1).values
        other = (tokens < task.num_classes) & (tokens != answer[:, None])
        assert (other.sum(1) == 1).all()
        assert (other.sum(0) > 200).all()

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda: Pronouns(length=2), ValueError, "length must be at least 3, got 2"),
            (lambda: Pronouns(length=6, max_distance=6), ValueError, "max_distance=6, length=6"),
            (lambda: Pronouns(max_distance=0), ValueError, "max_distance must be at least 1"),
            (lambda: Pronouns(length=9.0), TypeError, "length must be an int"),
            (lambda: Pronouns().sample(2, distance=40), ValueError, "distance=40, length=40"),
            (lambda: Pronouns().sample(2, distance=0), ValueError, "distance must be at least 1"),
            (lambda: Pronouns().words(torch.tensor([30])), ValueError, "ids from 0 to 29, got 30"),
            (lambda: Pronouns().words(torch.zeros(2, 3).long()), ValueError, r"shape \(T\)"),
        ],
    )
    def test_bad_input(self, call, error, message):
        with pytest.raises(error, match=message):
            call()


class TestLateClue:
    @settings(max_examples=25, deadline=None)
    @given(length=st.integers(2, 12), everywhere=st.booleans(), seed=st.integers(0, 99))
    def test_the_clue_alone_says_which_kind(self, length, everywhere, seed):
        task = LateClue(length, everywhere)
        tokens, targets = task.sample(9, seeded(seed))
        for row, target in zip(tokens, targets.tolist(), strict=True):
            words = task.words(row)
            clues = [word for word in words if word in ("river", "money", "blood", "snow")]
            assert words[0] == "bank"
            assert "bank" not in words[1:]
            assert len(clues) == 1
            kind = ["river", "money", "blood", "snow"].index(clues[0])
            assert target == [kind] * length if everywhere else [kind] + [-100] * (length - 1)

    def test_kinds_and_places_are_as_likely(self):
        tokens, targets = LateClue(length=6).sample(4000, seeded(0))
        assert (targets[:, 0].bincount() > 900).all()
        places = ((tokens > 0) & (tokens < 5)).int().argmax(1)
        assert (places.bincount()[1:] > 700).all()

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="length must be at least 2, got 1"):
            LateClue(1)
        with pytest.raises(TypeError, match="everywhere must be a bool"):
            LateClue(5, everywhere=1)
        with pytest.raises(ValueError, match="ids from 0 to 24, got 25"):
            LateClue().words(torch.tensor([25]))


class TestCopying:
    @settings(max_examples=25, deadline=None)
    @given(count=st.integers(1, 9), num_symbols=st.integers(2, 7), seed=st.integers(0, 99))
    def test_symbols_then_blanks_then_the_same_symbols(self, count, num_symbols, seed):
        task = Copying(count, num_symbols)
        tokens, targets = task.sample(4, seeded(seed))
        for row, target in zip(tokens.tolist(), targets.tolist(), strict=True):
            assert row[count:] == [num_symbols] * count
            assert target == [-100] * count + row[:count]
            assert max(row) < task.vocab_size

    def test_every_symbol_occurs_at_every_place(self):
        tokens, _ = Copying(count=3, num_symbols=5).sample(2000, seeded(0))
        for place in range(3):
            assert (tokens[:, place].bincount() > 300).all()

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="count must be at least 1"):
            Copying(0)
        with pytest.raises(ValueError, match="num_symbols must be at least 2"):
            Copying(3, 1)
        with pytest.raises(TypeError, match="count must be an int"):
            Copying(True)


class TestAdding:
    @settings(max_examples=25, deadline=None)
    @given(half=st.integers(1, 9), seed=st.integers(0, 99))
    def test_the_sum_of_the_two_marked_numbers(self, half, seed):
        x, y = Adding(2 * half).sample(7, seeded(seed))
        assert x.dtype == y.dtype == torch.float32
        for row, total in zip(x.double(), y.double(), strict=True):
            first, second = row[:, 1].nonzero()[:, 0].tolist()
            assert first < half <= second
            assert abs(row[first, 0] + row[second, 0] - total) < 1e-6

    def test_the_best_constant_answer(self):
        _, y = Adding(6).sample(20_000, seeded(0))
        assert y.var() == pytest.approx(Adding(6).guess, rel=0.05)
        assert y.mean() == pytest.approx(1, abs=0.02)

    def test_every_place_is_marked(self):
        x, _ = Adding(8).sample(2000, seeded(0))
        assert (x[..., 1].sum(0) > 400).all()

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="length must be even, got 7"):
            Adding(7)
        with pytest.raises(TypeError, match="length must be an int"):
            Adding(4.0)

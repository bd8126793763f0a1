import itertools
import math
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutorial_lib.ngram import NGram
from tutorial_lib.tokens import BytePairTokenizer

SMOOTHINGS = ["witten-bell", "kneser-ney"]
both = pytest.mark.parametrize("smoothing", SMOOTHINGS)


def literal(text, order, vocab_size, smoothing):
    """The formulas as they are written, in fractions, by recursion over dictionaries."""
    grams = {n: Counter(tuple(text[i - n : i]) for i in range(n, len(text) + 1)) for n in range(9)}

    def count(gram):
        if smoothing == "witten-bell" or len(gram) == order:
            return grams[len(gram)][gram]
        return sum((w, *gram) in grams[len(gram) + 1] for w in range(vocab_size))

    def discount(n):
        counts = [count(gram) for gram in grams[n]]
        once, twice = counts.count(1), counts.count(2)
        return Fraction(once, once + 2 * twice) if once else Fraction(1, 2)

    def p(word, context):
        if len(context) >= order:
            return p(word, context[len(context) - order + 1 :])
        shorter = p(word, context[1:]) if context else Fraction(1, vocab_size)
        counts = [count((*context, w)) for w in range(vocab_size)]
        total, kinds = sum(counts), sum(c > 0 for c in counts)
        if total == 0:
            return shorter
        if smoothing == "witten-bell":
            return (counts[word] + kinds * shorter) / (total + kinds)
        d = discount(len(context) + 1)
        return max(counts[word] - d, Fraction(0)) / total + d * kinds / total * shorter

    return p


texts = st.lists(st.integers(0, 2), min_size=1, max_size=14)


@both
@given(text=texts, context=st.lists(st.integers(0, 3), max_size=5), order=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
@example(text=[0], context=[0, 0], order=5)
@example(text=[0, 1, 0, 1, 0, 2], context=[0, 1], order=3)
def test_probability_is_the_formula(smoothing, text, context, order):
    """Id 3 is in the vocabulary, but never in the text."""
    model = NGram(order, 4, smoothing).fit(text)
    p = literal(text, order, 4, smoothing)
    wanted = [float(p(word, tuple(context))) for word in range(4)]
    assert model.probability(context).tolist() == pytest.approx(wanted, rel=1e-12)


@both
@given(text=texts, other=st.lists(st.integers(0, 3), max_size=9), order=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_scoring_is_the_formula(smoothing, text, other, order):
    model = NGram(order, 4, smoothing).fit(text)
    p = literal(text, order, 4, smoothing)
    wanted = [math.log(p(word, tuple(other[:i]))) for i, word in enumerate(other)]
    assert model.log_probabilities(other).tolist() == pytest.approx(wanted, rel=1e-12)


@both
@pytest.mark.parametrize("order", [1, 2, 4, 7])
def test_the_distribution_sums_to_one(smoothing, order):
    generator = torch.Generator().manual_seed(3)
    text = torch.randint(11, (500,), generator=generator) // torch.randint(
        1, 6, (500,), generator=generator
    )
    model = NGram(order, 13, smoothing).fit(text)
    seen = text[100 : 100 + order].tolist()
    for context in ([], seen, [12], [12] * 9, [*seen, 12], [12, *seen], text):
        p = model.probability(context)
        assert p.shape == (13,)
        assert p.dtype == torch.float64
        assert p.sum().item() == pytest.approx(1, abs=1e-12)
        assert p.min() > 0


@both
def test_scoring_and_the_distribution_agree(smoothing):
    text = torch.randint(5, (300,))
    model = NGram(4, 6, smoothing).fit(text[:200])
    scores = model.log_probabilities(text[150:])
    one_by_one = [model.probability(text[150:i])[text[i]].log().item() for i in range(150, 300)]
    assert scores.tolist() == pytest.approx(one_by_one, rel=1e-12)


def test_order_one_is_relative_frequency_mixed_with_the_uniform():
    text = [0] * 6 + [1] * 3 + [2]
    p = NGram(1, 5).fit(text).probability([4])
    wanted = [(c + 3 / 5) / 13 for c in (6, 3, 1, 0, 0)]  # 10 tokens, 3 kinds
    assert p.tolist() == pytest.approx(wanted)
    p = NGram(1, 5, "kneser-ney").fit(text).probability()
    wanted = [max(c - 1, 0) / 10 + 3 / 10 / 5 for c in (6, 3, 1, 0, 0)]  # n1 = 1, n2 = 0
    assert p.tolist() == pytest.approx(wanted)


def test_kneser_ney_counts_what_stands_before():
    """Id 1 ("Francisco") is frequent but follows 0 ("San") alone; 2 is rarer, after many."""
    text = [0, 1] * 20 + [3, 2, 4, 2, 5, 2, 6, 2]
    frequency = NGram(2, 8).fit(text).probability([7])
    continuation = NGram(2, 8, "kneser-ney").fit(text).probability([7])
    assert frequency[1] > frequency[2]
    assert continuation[1] < continuation[2]
    assert NGram(2, 8, "kneser-ney").fit(text).probability([0])[1] > 0.9


@both
def test_only_the_last_tokens_matter(smoothing):
    model = NGram(3, 5, smoothing).fit(torch.randint(5, (400,)))
    assert torch.equal(model.probability([3, 1]), model.probability([4, 2, 0, 3, 1]))
    text = torch.randint(5, (9,))
    other = text.clone()
    other[2] = (other[2] + 1) % 5
    before, after = model.log_probabilities(text), model.log_probabilities(other)
    assert torch.equal(before[:2], after[:2])
    assert torch.equal(before[5:], after[5:])
    assert not torch.equal(before[2:5], after[2:5])


def test_bits():
    text = [0, 1, 2, 3] * 3
    model = NGram(1, 4).fit(text)
    assert model.bits_per_token(text) == pytest.approx(2)
    assert model.bits_per_character(text, num_characters=12) == pytest.approx(2)
    assert model.bits_per_character(text, num_characters=48) == pytest.approx(0.5)


def test_bits_per_character_compares_different_units():
    text = "it was the best of times, it was the worst of times; " * 40
    characters = BytePairTokenizer(0)
    pairs = BytePairTokenizer(30).fit(text)
    bits = []
    for tokenizer in (characters, pairs):
        ids = tokenizer.encode(text)
        model = NGram(1, tokenizer.vocab_size).fit(ids)
        bits.append(model.bits_per_character(ids, len(text)))
        assert bits[-1] == pytest.approx(-model.log_probabilities(ids).sum() / math.log(2) / 2120)
    assert bits[1] < bits[0]


@both
def test_longer_contexts_learn_longer_patterns(smoothing):
    text = torch.tensor([0, 0, 1, 0, 1, 1, 2] * 60)
    bits = [NGram(n, 3, smoothing).fit(text[:350]).bits_per_token(text[350:]) for n in (1, 2, 4)]
    assert bits[0] > bits[1] > bits[2]
    assert bits[2] < 0.2


# --- Sampling ---


def test_samples_follow_the_distribution():
    text = [0, 1, 0, 2, 0, 1, 3] * 5
    model = NGram(2, 4).fit(text)
    ids = model.sample(2_000, generator=torch.Generator().manual_seed(1))
    after_zero = [b for a, b in itertools.pairwise(ids) if a == 0]
    seen = np.bincount(after_zero, minlength=4) / len(after_zero)
    assert seen == pytest.approx(model.probability([0]).numpy(), abs=0.05)


def test_sampling_is_repeatable_and_leaves_the_global_state():
    model = NGram(3, 5).fit(torch.randint(5, (200,)))
    state = torch.get_rng_state()
    first = model.sample(20, [1, 2], torch.Generator().manual_seed(7))
    again = model.sample(20, torch.tensor([1, 2]), torch.Generator().manual_seed(7))
    assert first == again
    assert len(first) == 20
    assert set(first) <= set(range(5))
    assert torch.equal(state, torch.get_rng_state())
    assert model.sample(0) == []


def test_the_prompt_is_context():
    model = NGram(3, 4).fit([0, 1, 2] * 500 + [3, 3])
    assert model.sample(3, prompt=[3, 1, 2], generator=torch.Generator().manual_seed(0)) == [
        0,
        1,
        2,
    ]


# --- Sizes, types, devices ---


def test_tables_hold_what_occurs_and_no_more():
    model = NGram(4, 50_000).fit([7, 49_999, 7, 49_999, 7])
    assert model.num_ngrams == [2, 2, 2, 2]
    assert NGram(5, 3).fit([0, 1, 2]).num_ngrams == [3, 2, 1, 0, 0]


@both
def test_memory_grows_with_the_text_not_with_the_vocabulary(smoothing):
    text = torch.randint(1_000_000, (2_000,))
    tracemalloc.start()
    try:
        model = NGram(12, 1_000_000, smoothing).fit(text)
        bits = model.bits_per_token(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert math.isfinite(bits)
    assert peak < 10_000_000  # 12 orders, 2,000 rows, and a handful of 8-byte numbers in each


@both
def test_lists_and_tensors_of_any_type(smoothing, device):
    ids = [0, 2, 1, 2, 0, 2]
    wanted = NGram(2, 3, smoothing).fit(ids).log_probabilities(ids)
    for kind in (torch.uint8, torch.int16, torch.int32, torch.int64):
        tensor = torch.tensor(ids, dtype=kind, device=device)
        model = NGram(2, 3, smoothing).fit(tensor)
        assert torch.equal(model.log_probabilities(tensor), wanted)
        assert torch.equal(model.probability(tensor), model.probability(ids))


def test_nothing_to_score_is_nothing():
    assert NGram(2, 3).fit([0, 1]).log_probabilities([]).shape == (0,)


def test_fitting_again_forgets():
    model = NGram(3, 4).fit([3, 3, 3, 3])
    fresh = NGram(3, 4).fit([0, 1, 2])
    assert torch.equal(model.fit([0, 1, 2]).probability([0]), fresh.probability([0]))


# --- Wrong input ---


@pytest.mark.bad_input
def test_wrong_arguments_are_named():
    for order in (0, -1):
        with pytest.raises(ValueError, match=f"order must be at least 1, got {order}"):
            NGram(order, 5)
    for order in (2.0, "2", None, True):
        with pytest.raises(TypeError, match="order must be an int"):
            NGram(order, 5)
    with pytest.raises(ValueError, match="vocab_size must be at least 1, got 0"):
        NGram(2, 0)
    with pytest.raises(ValueError, match=r"smoothing must be one of .*witten-bell.* got 'laplace'"):
        NGram(2, 5, "laplace")


@pytest.mark.bad_input
def test_wrong_ids_are_named(device):
    model = NGram(2, 5).fit([0, 1, 2])
    uses = [
        ("ids", model.fit),
        ("ids", model.log_probabilities),
        ("ids", model.bits_per_token),
        ("ids", lambda ids: model.bits_per_character(ids, 3)),
        ("context", model.probability),
        ("prompt", lambda ids: model.sample(3, ids)),
    ]
    before = model.probability([1])
    for name, use in uses:
        for wrong in (5, -1):
            for ids in ([0, wrong, 1], torch.tensor([0, wrong, 1], device=device)):
                with pytest.raises(ValueError, match=f"{name} must hold ids from 0 to 4, got"):
                    use(ids)
        for wrong in ([0.5], torch.tensor([1.0]), [True], "abc", ["a"], None, 3, [[0], [1, 2]]):
            with pytest.raises(TypeError, match=name):
                use(wrong)
        with pytest.raises(ValueError, match=rf"{name} must have shape \(T\)"):
            use(torch.zeros(2, 3, dtype=torch.int64))
    assert torch.equal(model.probability([1]), before)


@pytest.mark.bad_input
def test_empty_texts_and_an_unfitted_model():
    model = NGram(2, 5)
    for empty in ([], torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(ValueError, match="ids must hold at least 1 token, got none"):
            model.fit(empty)
    for use in (model.probability, lambda: model.sample(3), lambda: model.log_probabilities([1])):
        with pytest.raises(ValueError, match=r"fitted first: call fit\(ids\)"):
            use()
    with pytest.raises(ValueError, match=r"fitted first"):
        _ = model.num_ngrams
    model.fit([1, 2])
    with pytest.raises(ValueError, match="ids must hold at least 1 token, got none"):
        model.bits_per_token([])
    with pytest.raises(ValueError, match="num_characters must be at least 1, got 0"):
        model.bits_per_character([1], 0)
    with pytest.raises(ValueError, match="num_tokens must be at least 0, got -1"):
        model.sample(-1)

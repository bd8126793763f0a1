import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score
from torch import nn

from tutorial_lib.metrics import (
    accuracy,
    bits_per_character,
    count_parameters,
    mean_and_interval,
    perplexity,
    summarize,
)


def test_accuracy_is_that_of_scikit_learn(device):
    targets = torch.randint(5, (2, 7), device=device)
    logits = torch.randn(2, 7, 5, device=device)
    wanted = accuracy_score(targets.flatten().cpu(), logits.argmax(-1).flatten().cpu())
    assert accuracy(logits, targets) == pytest.approx(wanted, abs=1e-12)
    assert accuracy(logits.argmax(-1), targets) == accuracy(logits, targets)
    assert type(accuracy(logits, targets)) is float


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_accuracy_of_any_float(device, dtype):
    logits = torch.eye(4, device=device, dtype=dtype)
    assert accuracy(logits, torch.tensor([0, 1, 2, 0], device=device)) == 0.75


def test_accuracy_leaves_out_what_is_ignored(device):
    targets = torch.randint(5, (2, 7), device=device)
    logits = torch.randn(2, 7, 5, device=device)
    padded = torch.cat([targets, torch.full((2, 4), -100, device=device)], 1)
    more = torch.cat([logits, torch.randn(2, 4, 5, device=device)], 1)
    assert accuracy(more, padded) == accuracy(logits, targets)
    assert accuracy(torch.tensor([9, 9, 1]), torch.tensor([9, 9, 0]), ignore=9) == 0.0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("predictions", "targets", "error", "words"),
    [
        ([1], torch.tensor([1]), TypeError, "predictions must be a Tensor"),
        (torch.tensor([1]), [1], TypeError, "targets must be a Tensor"),
        (torch.tensor([1]), torch.tensor([1.0]), TypeError, "targets must hold integer ids"),
        (torch.tensor([True]), torch.tensor([1]), TypeError, "predictions must be numbers"),
        (torch.tensor([1.0]), torch.tensor([1]), ValueError, "one more axis"),
        (torch.tensor(1.0), torch.tensor([1]), ValueError, "one more axis"),
        (torch.tensor([1, 2]), torch.tensor([1]), ValueError, "one more axis"),
        (torch.randn(2, 3, 4), torch.ones(2, 4).long(), ValueError, "one more axis"),
        (torch.tensor([1]), torch.tensor([-100]), ValueError, "at least one"),
        (torch.ones(0).long(), torch.ones(0).long(), ValueError, "at least one"),
    ],
)
def test_accuracy_refuses(predictions, targets, error, words):
    with pytest.raises(error, match=words):
        accuracy(predictions, targets)


def test_bits_and_perplexity_of_even_odds():
    nats = 12 * math.log(32)
    assert bits_per_character(nats, 30) == pytest.approx(12 * 5 / 30)
    assert perplexity(nats, 12) == pytest.approx(32)
    assert perplexity(torch.tensor(nats, dtype=torch.float64), 12) == pytest.approx(32)
    assert perplexity(0.0, 3) == 1.0
    assert bits_per_character(0.0, 3) == 0.0
    assert perplexity(1e6, 1) == math.inf


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [bits_per_character, perplexity])
@pytest.mark.parametrize(
    ("nats", "n", "error"),
    [
        (-1.0, 3, ValueError),
        (math.nan, 3, ValueError),
        (math.inf, 3, ValueError),
        (torch.ones(2), 3, ValueError),
        ("1", 3, TypeError),
        (1.0, 0, ValueError),
        (1.0, 2.5, TypeError),
    ],
)
def test_bits_and_perplexity_refuse(function, nats, n, error):
    with pytest.raises(error):
        function(nats, n)


def test_count_parameters_counts_tied_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 3)
            self.inner = nn.Linear(3, 3)
            self.head = nn.Linear(3, 11, bias=False)
            self.head.weight = self.embedding.weight
            self.register_buffer("mask", torch.ones(9))

    model = Tied()
    assert count_parameters(model) == 33 + 12
    model.inner.requires_grad_(False)
    assert count_parameters(model) == 33 + 12
    assert count_parameters(model, trainable_only=True) == 33


@pytest.mark.bad_input
def test_count_parameters_refuses():
    with pytest.raises(TypeError, match=r"model must be an nn\.Module"):
        count_parameters([torch.ones(3)])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=60))
def test_summary_is_that_of_scipy(values):
    summary = summarize(values)
    assert (summary.n, summary.min, summary.max) == (len(values), min(values), max(values))
    assert summary.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert summary.std == pytest.approx(np.std(values, ddof=1), abs=1e-7)
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    assert summary.interval == pytest.approx(half, rel=1e-4, abs=1e-7)
    assert mean_and_interval(values) == (summary.mean, summary.interval)


@pytest.mark.parametrize("freedom", [*range(1, 41), 100, 1000, 100_000])
def test_student_t(freedom):
    from tutorial_lib.metrics import _t_95

    assert _t_95(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=3e-5)


def test_interval_holds_the_mean_as_often_as_it_says():
    draws = torch.randn(2000, 4, dtype=torch.float64)
    inside = sum(abs(mean) <= half for mean, half in map(mean_and_interval, draws.tolist()))
    assert 0.93 < inside / 2000 < 0.97


@pytest.mark.bad_input
@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_summary_refuses(values):
    for function in (summarize, mean_and_interval):
        with pytest.raises(ValueError, match="values must be"):
            function(values)

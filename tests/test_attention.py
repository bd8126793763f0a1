import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tutorial_lib.attention import (
    AdditiveAttention,
    KVCache,
    MultiHeadAttention,
    causal_mask,
    masked_softmax,
    padding_mask,
    record_attention,
    scaled_dot_product_attention,
    window_mask,
)

B, H, T, S, D, K = 2, 3, 7, 5, 12, 4
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CLOSE = {
    torch.float16: {"atol": 4e-3, "rtol": 1e-2},
    torch.bfloat16: {"atol": 3e-2, "rtol": 5e-2},
    torch.float32: {"atol": 1e-5, "rtol": 1e-5},
    torch.float64: {"atol": 1e-12, "rtol": 1e-12},
}


def randomize(module):
    """Weights that nothing cancels by chance, biases included."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return module


# All ways to attend, as functions of (query, key, mask), each (B, T, D), (B, S, D), mask.
def by_function(query, key, mask, seed=0):
    if mask is not None and mask.dim() == 4:
        mask = mask[:, 0]
    return scaled_dot_product_attention(query, key, key, mask)[0]


def by_addition(query, key, mask, seed=0):
    torch.manual_seed(seed)
    layer = randomize(AdditiveAttention(D, D, 6).to(query))
    return layer(query, key, mask=mask)[0]


def by_fused(query, key, mask, seed=0, **options):
    torch.manual_seed(seed)
    layer = randomize(MultiHeadAttention(D, H, bias=False, **options).to(query))
    return layer(query, key, mask=mask)


def by_explicit(query, key, mask, seed=0, **options):
    torch.manual_seed(seed)
    layer = randomize(MultiHeadAttention(D, H, bias=False, **options).to(query))
    with record_attention(layer):
        return layer(query, key, mask=mask)


def by_grouped(query, key, mask, seed=0):
    return by_fused(query, key, mask, seed, num_kv_heads=1)


def by_grouped_explicit(query, key, mask, seed=0):
    return by_explicit(query, key, mask, seed, num_kv_heads=1)


WAYS = [by_function, by_addition, by_fused, by_explicit, by_grouped, by_grouped_explicit]
ways = pytest.mark.parametrize("way", WAYS)


def some_mask(device="cpu"):
    """(B, 1, T, S): each query sees something; the last key of sequence 1 is hidden."""
    mask = torch.rand(B, 1, T, S, device=device) < 0.5
    mask[..., 0] = True
    mask[1, ..., -1] = False
    return mask


# ---------------------------------------------------------------------------------- masks


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (3, 7), (1, 4), (0, 2), (0, 0)])
def test_causal_mask_is_bottom_right(rows, columns, device):
    mask = causal_mask(rows, columns, device)
    assert mask.dtype == torch.bool
    assert mask.device.type == device.type
    assert mask.shape == (rows, columns)
    for i in range(rows):
        for j in range(columns):
            assert mask[i, j].item() == (j <= i + columns - rows)
    if rows == columns:
        assert torch.equal(causal_mask(rows, device=device), mask)


@pytest.mark.parametrize("window", [1, 2, 5, 9])
def test_window_mask_counts_its_own_place(window, device):
    mask = window_mask(window, 3, 7, device)
    assert mask.device.type == device.type
    for i in range(3):
        for j in range(7):
            assert mask[i, j].item() == (abs(i + 4 - j) < window)
    both = window_mask(window, 7) & causal_mask(7)
    assert both.sum(-1).tolist() == [min(i + 1, window) for i in range(7)]
    assert window_mask(window, 6).shape == (6, 6)


def test_masks_are_made_where_they_are_asked_for():
    """The meta device stands for any other: mixing it with the CPU is an error."""
    assert causal_mask(3, 4, "meta").is_meta
    assert window_mask(2, 3, 4, "meta").is_meta
    for side in ("left", "right"):
        assert padding_mask(torch.zeros(2, dtype=torch.long, device="meta"), 3, side).is_meta


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_mask(side, device):
    lengths = [0, 2, 7]
    mask = padding_mask(torch.tensor(lengths, device=device), 7, side)
    assert mask.shape == (3, 1, 1, 7)
    assert mask.dtype == torch.bool
    assert mask.device.type == device.type
    for row, n in zip(mask[:, 0, 0].tolist(), lengths, strict=True):
        real, padding = [True] * n, [False] * (7 - n)
        assert row == (real + padding if side == "right" else padding + real)
    assert padding_mask(torch.tensor([1]), 3).tolist() == [[[[True, False, False]]]]


@pytest.mark.bad_input
def test_masks_refuse():
    for call in (causal_mask, lambda n, m=None: window_mask(2, n, m)):
        with pytest.raises(TypeError, match="T must be an int"):
            call(2.0)
        with pytest.raises(ValueError, match="T must be at least 0, got -1"):
            call(-1)
        with pytest.raises(TypeError, match="S must be an int"):
            call(2, "3")
        with pytest.raises(ValueError, match=r"S must be at least T.* got T=3, S=2"):
            call(3, 2)
        with pytest.raises(ValueError, match="S must be at least 0"):
            call(0, -1)
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        window_mask(0, 3)
    with pytest.raises(ValueError, match=r"lengths .* 0 to 3, got 4"):
        padding_mask(torch.tensor([1, 4]), 3)
    with pytest.raises(ValueError, match="got -1"):
        padding_mask(torch.tensor([-1]), 3)
    with pytest.raises(TypeError, match="lengths"):
        padding_mask(torch.tensor([1.0]), 3)
    with pytest.raises(ValueError, match=r"lengths must have shape \(B\)"):
        padding_mask(torch.tensor([[1]]), 3)
    with pytest.raises(ValueError, match="side must be one of"):
        padding_mask(torch.tensor([1]), 3, side="both")
    with pytest.raises(TypeError, match="T must be an int"):
        padding_mask(torch.tensor([1]), 3.5)
    with pytest.raises(ValueError, match="T must be at least 0"):
        padding_mask(torch.tensor([0]), -1)
    assert padding_mask(torch.tensor([0]), 0).shape == (1, 1, 1, 0)


# ------------------------------------------------------------------------------- the formula


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_formula_against_numpy(data):
    size = st.integers(1, 6)
    n, t, s, k, e = (data.draw(size) for _ in range(5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    query, key, value = (
        rng.normal(size=(n, t, k)),
        rng.normal(size=(n, s, k)),
        rng.normal(size=(n, s, e)),
    )
    mask, bias = rng.random((n, t, s)) < 0.6, rng.normal(size=(t, s))
    output, weights = scaled_dot_product_attention(
        *map(torch.from_numpy, (query, key, value, mask)), bias=torch.from_numpy(bias)
    )
    for b in range(n):
        for i in range(t):
            seen = [j for j in range(s) if mask[b, i, j]]
            raised = [math.exp(query[b, i] @ key[b, j] / math.sqrt(k) + bias[i, j]) for j in seen]
            expected = np.zeros(s)
            expected[seen] = np.array(raised) / sum(raised)
            np.testing.assert_allclose(weights[b, i], expected, atol=1e-12)
            np.testing.assert_allclose(output[b, i], expected @ value[b], atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_formula_against_torch(dtype, device):
    query, key, value = (torch.randn(B, H, n, K, dtype=dtype, device=device) for n in (T, S, S))
    mask = some_mask(device)
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output, expected, **CLOSE[dtype])
    assert (weights[~mask.expand_as(weights)] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE[dtype])
    plain = scaled_dot_product_attention(query, key, value)[0]
    expected = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(plain, expected, **CLOSE[dtype])


def test_formula_drops_weights_and_returns_them_whole():
    query, key = torch.zeros(1, 1, K), torch.zeros(1, 4000, K)
    value = torch.ones(1, 4000, 1)
    output, weights = scaled_dot_product_attention(query, key, value, dropout=0.3)
    assert (weights == 1 / 4000).all()
    assert output.item() != 1
    assert abs(output.item() - 1) < 0.1


def test_large_scores_fit_half_precision():
    query = torch.full((1, 1, 64), 40.0, dtype=torch.float16)  # query . key is 102,400
    output, _ = scaled_dot_product_attention(query, query, query)
    assert torch.equal(output, query)


def test_masked_softmax_without_mask_is_softmax():
    scores = torch.randn(B, T, S)
    assert torch.equal(masked_softmax(scores), scores.softmax(-1))
    everything = torch.ones(T, S, dtype=torch.bool)
    assert torch.equal(masked_softmax(scores, everything), scores.softmax(-1))
    low = torch.tensor([[-3e4, -3.1e4, 6e4]], dtype=torch.float16)
    weights = masked_softmax(low, torch.tensor([[True, True, False]]))
    assert weights.tolist() == [[1, 0, 0]]


def test_additive_against_a_loop():
    layer = randomize(AdditiveAttention(3, 4, 6).double())
    assert {n: tuple(p.shape) for n, p in layer.named_parameters()} == {
        "query.weight": (6, 3),
        "key.weight": (6, 4),
        "key.bias": (6,),
        "score.weight": (1, 6),
    }
    query, key, value = (
        torch.randn(B, n, e, dtype=torch.double) for n, e in ((T, 3), (S, 4), (S, 8))
    )
    mask = some_mask()
    output, weights = layer(query, key, value, mask=mask)
    assert output.shape == (B, T, 8)
    for b in range(B):
        for t in range(T):
            scores = torch.stack(
                [
                    layer.score.weight[0]
                    @ torch.tanh(
                        layer.query.weight @ query[b, t] + layer.key.weight @ k + layer.key.bias
                    )
                    for k in key[b]
                ]
            )
            expected = scores.masked_fill(~mask[b, 0, t], -math.inf).softmax(-1)
            torch.testing.assert_close(weights[b, t], expected)
            torch.testing.assert_close(output[b, t], expected @ value[b])
    again, _ = layer(query, key, value, mask=mask, projected_key=layer.key(key))
    assert torch.equal(again, output)
    other, _ = layer(query, key, value, mask=mask, projected_key=-layer.key(key))
    assert not torch.allclose(other, output)
    torch.testing.assert_close(layer(query, key)[0], layer(query, key, key)[0])


# --------------------------------------------------------------------------- PyTorch's layer


def copied(d_source=D, num_heads=H, bias=True, dropout=0.0):
    """Our layer and PyTorch's, with the same weights."""
    theirs = nn.MultiheadAttention(
        D, num_heads, bias=bias, dropout=dropout, batch_first=True, kdim=d_source, vdim=d_source
    ).double()
    ours = MultiHeadAttention(D, num_heads, bias=bias, dropout=dropout, d_source=d_source).double()
    randomize(theirs)
    if theirs.in_proj_weight is None:
        weights = theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight
    else:
        weights = theirs.in_proj_weight.chunk(3)
    biases = theirs.in_proj_bias.chunk(3) if bias else (None,) * 3
    with torch.no_grad():
        layers = ours.query, ours.key, ours.value
        for layer, weight, add in zip(layers, weights, biases, strict=True):
            layer.weight.copy_(weight)
            if add is not None:
                layer.bias.copy_(add)
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    return ours, theirs


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("d_source", [D, 10])
def test_cross_attention_equals_torch(d_source, bias, masked, device):
    ours, theirs = (m.to(device) for m in copied(d_source, bias=bias))
    query = torch.randn(B, T, D, dtype=torch.double, device=device, requires_grad=True)
    key = torch.randn(B, S, d_source, dtype=torch.double, device=device)
    value = torch.randn(B, S, d_source, dtype=torch.double, device=device)
    mask = padding_mask(torch.tensor([3, 5], device=device), S) if masked else None
    hidden = ~mask[:, 0, 0] if masked else None
    with record_attention(ours) as maps:
        explicit = ours(query, key, value, mask=mask)
    fused = ours(query, key, value, mask=mask)
    expected, weights = theirs(
        query, key, value, key_padding_mask=hidden, average_attn_weights=False
    )
    torch.testing.assert_close(fused, expected)
    torch.testing.assert_close(explicit, expected)
    torch.testing.assert_close(maps[""][0], weights)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad((fused * upstream).sum(), [query, ours.value.weight])
    wanted = torch.autograd.grad(
        (expected * upstream).sum(),
        [query, theirs.in_proj_weight if d_source == D else theirs.v_proj_weight],
    )
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1][-D:])


@pytest.mark.parametrize("num_heads", [1, 3, 12])
def test_causal_self_attention_equals_torch(num_heads, device):
    ours, theirs = (m.to(device) for m in copied(num_heads=num_heads))
    x = torch.randn(B, T, D, dtype=torch.double, device=device)
    expected, _ = theirs(x, x, x, attn_mask=~causal_mask(T, device=device))
    for mask, causal in ((None, True), (causal_mask(T, device=device), False)):
        torch.testing.assert_close(ours(x, mask=mask, causal=causal), expected)
        torch.testing.assert_close(ours(x, x, mask=mask, causal=causal), expected)
        torch.testing.assert_close(ours(x, x, x, mask=mask, causal=causal), expected)
    assert (ours.d_head, ours.num_kv_heads) == (D // num_heads, num_heads)


@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_grouped_heads_equal_repeated_ones(num_kv_heads, device):
    grouped = randomize(MultiHeadAttention(D, 6, num_kv_heads)).to(device)
    full = MultiHeadAttention(D, 6).to(device)
    full.load_state_dict(
        grouped.state_dict()
        | {
            f"{name}.{kind}": getattr(getattr(grouped, name), kind)
            .unflatten(0, (num_kv_heads, 2))
            .repeat_interleave(6 // num_kv_heads, 0)
            .flatten(0, 1)
            for name in ("key", "value")
            for kind in ("weight", "bias")
        }
    )
    x = torch.randn(B, T, D, device=device)
    mask = torch.rand(B, 1, T, T, device=device) < 0.5
    for options in ({}, {"causal": True}, {"mask": mask}):
        torch.testing.assert_close(grouped(x, **options), full(x, **options))
        with record_attention(grouped) as maps:
            torch.testing.assert_close(grouped(x, **options), full(x, **options))
        assert maps[""][0].shape == (B, 6, T, T)


# ------------------------------------------------------------------------- laws for all ways


@ways
def test_hidden_keys_do_not_matter(way, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    mask = some_mask(device)
    before = way(query, key, mask)
    moved = key.clone()
    moved[1, -1] += 100
    assert torch.equal(way(query, moved, mask), before)
    moved = key.clone()
    moved[:, 0] += 1
    assert ((way(query, moved, mask) - before).abs().amax(-1) > 1e-6).all()


@ways
@pytest.mark.parametrize("dtype", DTYPES)
def test_blind_rows_are_zero_and_harmless(way, dtype, device):
    query = torch.randn(B, T, D, dtype=dtype, device=device, requires_grad=True)
    key = torch.randn(B, S, D, dtype=dtype, device=device, requires_grad=True)
    mask = padding_mask(torch.tensor([3, 0], device=device), S)
    output = way(query, key, mask)
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert (output[1] == 0).all()
    output[0].square().sum().backward()
    for grad in (query.grad, key.grad):
        assert grad.isfinite().all()
        assert (grad[1] == 0).all()
        assert (grad[0] != 0).any()
    assert (key.grad[0, 3:] == 0).all()
    query.grad = key.grad = None
    way(query, key, mask).sum().backward()  # the blind row in the loss
    assert query.grad.isfinite().all()
    assert (query.grad[1] == 0).all()
    assert (key.grad[1] == 0).all()


@ways
def test_batch_of_two_equals_two_alone(way, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    mask = some_mask(device)
    together = way(query, key, mask)
    for b in range(B):
        alone = way(query[b : b + 1], key[b : b + 1], mask[b : b + 1])
        torch.testing.assert_close(alone[0], together[b], atol=1e-5, rtol=1e-5)


@ways
def test_padded_equals_unpadded(way, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    padded = torch.cat((key, torch.full((B, 4, D), 9.0, device=device)), dim=1)
    mask = padding_mask(torch.full((B,), S, device=device), S + 4)
    torch.testing.assert_close(
        way(query, padded, mask), way(query, key, None), atol=1e-5, rtol=1e-5
    )


@ways
def test_order_of_the_keys_does_not_matter(way, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    mask, order = some_mask(device), torch.randperm(S)
    shuffled = way(query, key[:, order], mask[..., order])
    torch.testing.assert_close(shuffled, way(query, key, mask), atol=1e-5, rtol=1e-5)


@ways
@pytest.mark.bad_input
@pytest.mark.parametrize("kind", ["float32", "int64", "uint8", "list"])
def test_masks_that_are_not_boolean_are_refused(way, kind, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    mask = some_mask(device)
    wrong = mask.tolist() if kind == "list" else mask.to(getattr(torch, kind))
    if kind == "list" and way is by_function:
        wrong = type("Listed", (list,), {"dim": lambda self: 3})(wrong)
    with pytest.raises(TypeError, match="mask must be a boolean Tensor, True = may look, got"):
        way(query, key, wrong)
    way(query, key, mask)


@pytest.mark.bad_input
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (T, S + 1),
        (S, T),
        (B + 1, 1, 1, S),
        (B, 2, 1, S),
        (B, T, S),
        (S,),
        (1, B, 1, T, S),
        (B, 1, 1, T),
    ],
)
def test_masks_of_wrong_shape_are_refused(shape, training, device):
    query, key = torch.randn(B, T, D, device=device), torch.randn(B, S, D, device=device)
    mask = torch.ones(shape, dtype=torch.bool, device=device)
    for layer in (MultiHeadAttention(D, H), AdditiveAttention(D, D, 6)):
        layer.to(device).train(training)
        with pytest.raises(ValueError, match=r"mask must .* got"):
            layer(query, key, mask=mask)
        with record_attention(layer), pytest.raises(ValueError, match=r"mask must .* got"):
            layer(query, key, mask=mask)
    with pytest.raises(ValueError, match="mask must"):
        masked_softmax(torch.zeros(T, S + 2, device=device), mask)


@pytest.mark.bad_input
def test_masks_on_another_device_are_refused():
    x = torch.randn(B, T, D)
    mask = torch.ones(T, T, dtype=torch.bool, device="meta")
    with pytest.raises(ValueError, match="mask must be on cpu like its inputs, got meta"):
        MultiHeadAttention(D, H)(x, mask=mask)


# ------------------------------------------------------------------------ fused and explicit


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fused_equals_explicit(data):
    draw = data.draw
    heads = draw(st.sampled_from([1, 2, 3, 4, 6]))
    groups = draw(st.sampled_from([g for g in range(1, heads + 1) if heads % g == 0]))
    width, n = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    t, s = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    torch.manual_seed(draw(st.integers(0, 99)))
    layer = randomize(MultiHeadAttention(heads * width, heads, groups).double())
    query = torch.randn(n, t, heads * width, dtype=torch.double, requires_grad=True)
    own, past = draw(st.booleans()), draw(st.integers(0, 4))
    if own:
        s = past + t
    causal = draw(st.booleans()) and s >= t
    mask = bias = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(t, s), (n, 1, 1, s), (n, heads, t, s), (1, 1, t, s)]))
        mask = torch.rand(shape) < 0.6
    if draw(st.booleans()):
        bias = torch.randn(draw(st.sampled_from([(heads, t, s), (n, heads, t, s)])))
    key = None if own else torch.randn(n, s, heads * width, dtype=torch.double)
    earlier = torch.randn(n, past, heads * width, dtype=torch.double)

    def run():
        cache = None
        if own and past:
            cache = KVCache()
            layer(earlier, cache=cache)
        output = layer(query, key, mask=mask, causal=causal, bias=bias, cache=cache)
        return output, torch.autograd.grad(output.square().sum(), query)[0]

    fused, fused_grad = run()
    with record_attention(layer) as maps:
        explicit, explicit_grad = run()
    torch.testing.assert_close(fused, explicit)
    torch.testing.assert_close(fused_grad, explicit_grad)
    assert fused.isfinite().all()
    assert fused_grad.isfinite().all()
    seen = torch.ones(n, heads, t, s, dtype=torch.bool) if mask is None else mask
    if causal:
        seen = seen & causal_mask(t, s)
    seen = seen.expand(n, heads, t, s)
    weights = maps[""][-1]
    assert weights.shape == (n, heads, t, s)
    assert (weights[~seen] == 0).all()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"mask": True},
        {"mask": True, "causal": True},
        {"bias": True, "causal": True},
    ],
)
def test_fused_equals_explicit_in_every_dtype(dtype, options, device):
    layer = randomize(MultiHeadAttention(D, H, dropout=0.5)).to(device, dtype).eval()
    x = torch.randn(B, T, D, device=device).to(dtype)
    options = dict(options)
    if "mask" in options:
        options["mask"] = padding_mask(torch.tensor([3, 7], device=device), T, "left")
    if "bias" in options:
        options["bias"] = torch.randn(H, T, T, device=device).to(dtype)
    fused = layer(x, **options)
    with record_attention(layer) as maps:
        explicit = layer(x, **options)
    assert fused.dtype == explicit.dtype == dtype
    torch.testing.assert_close(fused, explicit, **CLOSE[dtype])
    assert maps[""][0].dtype == dtype
    if "causal" in options:
        assert (maps[""][0].triu(1) == 0).all()


@pytest.mark.parametrize("padded", [False, True])
def test_what_the_fused_kernel_is_asked(padded, monkeypatch):
    """Its own causal line where that is right, and never a row that may look at nothing."""
    kernel, asked = F.scaled_dot_product_attention, []

    def spy(*args, **options):
        asked.append(options)
        return kernel(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    layer, x = MultiHeadAttention(D, H), torch.randn(B, T, D)
    mask = padding_mask(torch.tensor([T, 0]), T, "left") if padded else None
    layer(x, mask=mask, causal=True)
    if padded:
        assert asked[0]["attn_mask"].any(-1).all()
        assert not asked[0]["is_causal"]
    else:
        assert asked[0]["attn_mask"] is None
        assert asked[0]["is_causal"]
    with record_attention(layer):
        layer(x, mask=mask, causal=True)
    assert len(asked) == 1


def test_autocast(device):
    layer = randomize(MultiHeadAttention(D, H)).to(device)
    x = torch.randn(B, T, D, device=device)
    mask = padding_mask(torch.tensor([3, 0], device=device), T, "left")
    exact = layer(x, mask=mask, causal=True)
    cache = KVCache()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        fused = layer(x, mask=mask, causal=True)
        cached = layer(x, mask=mask, causal=True, cache=cache)
        with record_attention(layer):
            explicit = layer(x, mask=mask, causal=True)
        additive = AdditiveAttention(D, D, 6).to(device)(x, x, mask=mask)[0]
    for output in (fused, explicit, cached):
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(output.float(), exact, atol=6e-2, rtol=6e-2)
    assert additive.isfinite().all()
    assert (additive[1] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_is_off_in_eval_and_on_in_training(causal):
    layer = randomize(MultiHeadAttention(D, H, dropout=0.4))
    without = MultiHeadAttention(D, H)
    without.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, D)
    expected = without(x, causal=causal)
    assert torch.equal(without.eval()(x, causal=causal), expected)
    spreads = []
    for recording in (False, True):
        layer.eval()
        with record_attention(layer if recording else nn.Identity()):
            torch.testing.assert_close(layer(x, causal=causal), expected)
            layer.train()
            drawn = torch.stack([layer(x, causal=causal) for _ in range(150)])
        torch.testing.assert_close(drawn.mean(0), expected, atol=0.5, rtol=0.1)
        spreads.append(drawn.std(0).mean().item())
    assert spreads[0] > 0.05
    assert spreads[0] == pytest.approx(spreads[1], rel=0.2)


def test_weights_are_recorded_before_dropout():
    layer = MultiHeadAttention(D, H, dropout=0.5)
    with record_attention(layer) as maps:
        layer(torch.randn(B, T, D))
    torch.testing.assert_close(maps[""][0].sum(-1), torch.ones(B, H, T))


# ------------------------------------------------------------------------------- causality


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_no_gradient_from_the_future(groups, recording, padded, device):
    layer = randomize(MultiHeadAttention(D, H, groups)).to(device)
    x = torch.randn(B, T, D, device=device, requires_grad=True)
    mask = padding_mask(torch.tensor([T, 4], device=device), T, "left") if padded else None
    with record_attention(layer if recording else nn.Identity()):
        output = layer(x, mask=mask, causal=True)
    for t in range(T):
        (grad,) = torch.autograd.grad(output[:, t].sum(), x, retain_graph=True)
        assert grad.isfinite().all()
        assert (grad[:, t + 1 :] == 0).all()
        assert (grad[0, : t + 1] != 0).any(-1).all()


def test_causal_queries_from_elsewhere_are_the_last():
    layer = randomize(MultiHeadAttention(D, H))
    x = torch.randn(B, T, D)
    full = layer(x, causal=True)
    for t in (1, 3):
        last = layer(x[:, -t:], x, causal=True)
        torch.testing.assert_close(last, full[:, -t:])


@pytest.mark.bad_input
def test_causal_with_fewer_keys_than_queries_is_refused():
    with pytest.raises(ValueError, match="got T=7, S=5"):
        MultiHeadAttention(D, H)(torch.randn(B, T, D), torch.randn(B, S, D), causal=True)


def test_permutation_equivariance(device):
    layer = randomize(MultiHeadAttention(D, H, 1)).to(device)
    x, order = torch.randn(B, T, D, device=device), torch.randperm(T)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order], atol=1e-5, rtol=1e-5)


def test_rotation_and_bias_reach_the_scores():
    layer = randomize(MultiHeadAttention(D, H, 1).double())
    x, bias = torch.randn(B, T, D).double(), torch.randn(H, T, T).double()
    doubled = copy.deepcopy(layer)
    with torch.no_grad():
        for part in (doubled.query, doubled.key):
            part.weight *= 2
            part.bias *= 2
    torch.testing.assert_close(layer(x, rotate=lambda q: 2 * q), doubled(x))
    with record_attention(layer) as maps:
        layer(x)
        layer(x, bias=bias)
    plain, biased = maps[""]
    torch.testing.assert_close(biased, (plain.log() + bias).softmax(-1))


def test_every_parameter_gets_a_gradient():
    x = torch.randn(B, T, D)
    layer, additive = MultiHeadAttention(D, H, 1), AdditiveAttention(D, D, 6)
    (layer(x).square().sum() + additive(x, x)[0].square().sum()).backward()
    for name, parameter in [*layer.named_parameters(), *additive.named_parameters()]:
        if name == "key.bias" and parameter.shape == (K,):
            # It adds the same number to all scores of a query, so softmax takes it out again.
            torch.testing.assert_close(parameter.grad, torch.zeros(K), atol=1e-5, rtol=0)
        else:
            assert (parameter.grad != 0).any(), name


# ------------------------------------------------------------------------------------ cache


@pytest.mark.parametrize("capacity", [None, T, 40])
@pytest.mark.parametrize("pieces", [[7], [1] * 7, [3, 4], [1, 5, 1], [0, 7]])
@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_cached_equals_uncached(capacity, pieces, recording, padded, device):
    layer = randomize(MultiHeadAttention(D, H, 1)).to(device)
    x = torch.randn(B, T, D, device=device)
    mask = padding_mask(torch.tensor([T, 4], device=device), T, "left") if padded else None
    full = layer(x, mask=mask, causal=True)
    cache, found = KVCache(capacity), []
    with record_attention(layer if recording else nn.Identity()) as maps:
        for piece in x.split(pieces, dim=1):
            end = cache.length + piece.shape[1]
            seen = None if mask is None else mask[..., :end]
            found.append(layer(piece, mask=seen, causal=True, cache=cache))
            assert cache.length == end
    torch.testing.assert_close(torch.cat(found, dim=1), full, atol=1e-5, rtol=1e-5)
    if recording:
        assert maps[""][-1].shape == (B, H, pieces[-1], T)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_query_given_again_is_self_attention(times):
    layer, x = randomize(MultiHeadAttention(D, H)), torch.randn(B, T, D)
    full, cache = layer(x, causal=True), KVCache()
    steps = [layer(*[p] * times, causal=True, cache=cache) for p in x.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), full, atol=1e-5, rtol=1e-5)
    other = torch.randn(B, T, D)
    found = layer(x, value=other)
    assert torch.equal(found, layer(x, x, other))
    assert not torch.allclose(found, layer(x))


def test_cache_of_a_memory_is_filled_once(device):
    layer = randomize(MultiHeadAttention(D, H, d_source=10)).to(device)
    query, memory = torch.randn(B, T, D, device=device), torch.randn(B, S, 10, device=device)
    mask = padding_mask(torch.tensor([5, 2], device=device), S)
    full, cache = layer(query, memory, mask=mask), KVCache()
    calls = []
    layer.key.register_forward_hook(lambda *_: calls.append(1))
    for piece, wanted in zip(query.split(3, dim=1), full.split(3, dim=1), strict=True):
        found = layer(piece, memory, mask=mask, cache=cache)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert cache.length == S
    assert len(calls) == 1
    with pytest.raises(ValueError, match="of length 5, got 4"):
        layer(query, memory[:, :4], cache=cache)
    with pytest.raises(ValueError, match="batch must be that of the cache, 2, got 1"):
        layer(query[:1], memory[:1], cache=cache)
    with pytest.raises(ValueError, match="capacity 3, length 0, 5 more"):
        layer(query, memory, cache=KVCache(3))


def test_cache_keeps_what_it_is_given(device):
    cache, keys, values = KVCache(), [], []
    assert (cache.length, cache.capacity, KVCache(3).capacity) == (0, None, 3)
    for t in (1, 2, 30, 1, 0, 5):
        key, value = torch.randn(B, H, t, K, device=device), torch.randn(B, H, t, 6, device=device)
        keys.append(key)
        values.append(value)
        found = cache.append(key, value)
        for got, read, wanted in zip(found, cache.read(), (keys, values), strict=True):
            assert torch.equal(got, torch.cat(wanted, dim=2))
            assert torch.equal(read, got)
    assert cache.length == 39
    assert found[0].device.type == device.type


def test_cache_allocates_rarely():
    cache, places = KVCache(), set()
    for _ in range(300):
        keys, _ = cache.append(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1))
        places.add(keys.data_ptr())
    assert len(places) <= 8
    cache, places = KVCache(300), set()
    for _ in range(300):
        keys, _ = cache.append(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1))
        places.add(keys.data_ptr())
    assert len(places) == 1
    assert keys.untyped_storage().nbytes() == 300 * 4


def test_cache_reorders(device):
    layer = randomize(MultiHeadAttention(D, H)).to(device)
    x, new = torch.randn(B, T, D, device=device), torch.randn(3, 1, D, device=device)
    cache = KVCache(T + 1)
    layer(x, causal=True, cache=cache)
    index = torch.tensor([1, 1, 0], device=device)
    cache.reorder(index)
    found = layer(new, causal=True, cache=cache)
    full = layer(torch.cat((x[index], new), dim=1), causal=True)
    torch.testing.assert_close(found, full[:, -1:], atol=1e-5, rtol=1e-5)
    assert cache.length == T + 1


@pytest.mark.bad_input
def test_cache_refuses_and_stays_usable():
    cache = KVCache(4)
    with pytest.raises(ValueError, match="must hold something"):
        cache.read()
    with pytest.raises(ValueError, match="must hold something"):
        cache.reorder(torch.tensor([0]))

    def piece(b=B, h=H, t=3, k=K, dtype=torch.float32):
        return torch.zeros(b, h, t, k, dtype=dtype), torch.zeros(b, h, t, k, dtype=dtype)

    with pytest.raises(ValueError, match="full: capacity 4, length 0, 5 more"):
        cache.append(*piece(t=5))
    cache.append(*piece())
    with pytest.raises(ValueError, match="full: capacity 4, length 3, 2 more asked"):
        cache.append(*piece(t=2))
    with pytest.raises(ValueError, match="batch must be that of the cache, 2, got 1"):
        cache.append(*piece(b=1, t=1))
    with pytest.raises(ValueError, match=r"must be the cache's \(3, 4\), got \(2, 4\)"):
        cache.append(*piece(h=2, t=1))
    with pytest.raises(ValueError, match=r"must be the cache's \(3, 4\), got \(3, 5\)"):
        cache.append(*piece(k=5, t=1))
    with pytest.raises(TypeError, match=r"dtype.*torch.float32.* got .*float64"):
        cache.append(*piece(t=1, dtype=torch.float64))
    with pytest.raises(ValueError, match="index must hold ids from 0 to 1, got 2"):
        cache.reorder(torch.tensor([2]))
    with pytest.raises(ValueError, match=r"index must have shape \(N\)"):
        cache.reorder(torch.tensor(0))
    with pytest.raises(TypeError, match="index"):
        cache.reorder(torch.tensor([0.0]))
    assert cache.length == 3
    cache.append(*piece(t=1))
    assert cache.length == 4
    for wrong, kind in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match="capacity must be"):
            KVCache(wrong)
    layer, full = MultiHeadAttention(D, H), KVCache(4)
    with pytest.raises(ValueError, match="full"):
        layer(torch.randn(B, 5, D), cache=full)
    layer(torch.randn(B, 4, D), cache=full)
    with pytest.raises(ValueError, match="batch"):
        layer(torch.randn(1, 1, D), cache=full)


def test_cache_serves_inside_and_outside_inference_mode():
    layer = randomize(MultiHeadAttention(D, H))
    x, cache = torch.randn(B, T, D), KVCache()
    with torch.inference_mode():
        layer(x[:, :3], causal=True, cache=cache)
        cache.reorder(torch.tensor([0, 1]))
    outside = layer(x[:, 3:5], causal=True, cache=cache)
    with torch.inference_mode():
        inside = layer(x[:, 5:], causal=True, cache=cache)
    found = torch.cat((outside, inside), dim=1)
    torch.testing.assert_close(found, layer(x, causal=True)[:, 3:], atol=1e-5, rtol=1e-5)


@pytest.mark.bad_input
def test_a_full_cache_is_refused_before_any_work():
    layer, calls = MultiHeadAttention(D, H), []
    layer.query.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match="the cache is full"):
        layer(torch.randn(B, T, D), cache=KVCache(4))
    assert calls == []


def test_cache_holds_no_graph():
    layer, cache = MultiHeadAttention(D, H), KVCache()
    layer(torch.randn(B, T, D, requires_grad=True), cache=cache)
    assert not any(kept.requires_grad for kept in cache.read())


# -------------------------------------------------------------------------------- recording


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention = MultiHeadAttention(D, H)
        self.align = AdditiveAttention(D, D, 6)

    def forward(self, x, mask=None):
        x = self.self_attention(x, mask=mask)
        return self.align(self.self_attention(x, mask=mask), x, mask=mask)[0]


def test_recording_shows_the_pass_that_ran():
    model = randomize(Two()).eval()
    x, mask = torch.randn(B, T, D), padding_mask(torch.tensor([4, 7]), T)
    before, state = model(x, mask), set(model.state_dict())
    with record_attention(model) as maps:
        assert maps == {"self_attention": [], "align": []}
        output = model(x, mask)
        assert set(model.state_dict()) == state
    torch.testing.assert_close(output, before)
    assert [m.shape for m in maps["self_attention"]] == [(B, H, T, T)] * 2
    assert [m.shape for m in maps["align"]] == [(B, 1, T, T)]
    for weights in [*maps["self_attention"], *maps["align"]]:
        assert (weights[0, ..., 4:] == 0).all()
        assert not weights.requires_grad
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    # The weights are those that made the output: used again, they make it again.
    layer, found = model.self_attention, maps["self_attention"][0]
    value = layer.value(x).unflatten(-1, (H, K)).transpose(1, 2)
    again = layer.output((found @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(again, layer(x, mask=mask))
    model(x)
    assert len(maps["self_attention"]) == 2


def test_recordings_nest_and_survive_errors():
    model, x = Two(), torch.randn(B, T, D)
    with record_attention(model) as outer:
        with record_attention(model.self_attention) as inner:
            model.self_attention(x)
        assert (len(outer["self_attention"]), len(inner[""])) == (1, 1)
        with pytest.raises(ValueError, match="last axis"), record_attention(model) as failed:  # noqa: PT012
            model(x)
            model(x[..., :-1])
        with record_attention(model) as unused:
            pass
        model(x)
    assert len(outer["self_attention"]) == 5
    assert len(inner[""]) == 1
    assert len(failed["self_attention"]) == 2
    assert unused["self_attention"] == []
    assert model.self_attention.sinks == model.align.sinks == []
    with record_attention(nn.Linear(2, 2)) as nothing:
        pass
    assert nothing == {}


# ------------------------------------------------------------------------------- bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"num_heads": 5},
            ValueError,
            "num_heads must divide d_model, got num_heads=5, d_model=12",
        ),
        ({"num_kv_heads": 2}, ValueError, "num_kv_heads must divide num_heads"),
        ({"num_heads": 0}, ValueError, "num_heads must be at least 1"),
        ({"num_kv_heads": 0}, ValueError, "num_kv_heads must be at least 1"),
        ({"d_model": 0}, ValueError, "d_model must be at least 1"),
        ({"d_model": 12.0}, TypeError, "d_model must be an int"),
        ({"num_heads": 3.0}, TypeError, "num_heads must be an int"),
        ({"num_kv_heads": 3.0}, TypeError, "num_kv_heads must be an int"),
        ({"d_source": 0}, ValueError, "d_source must be at least 1"),
        ({"dropout": 1.0}, ValueError, "dropout must be at least 0.0 and below 1.0, got 1.0"),
        ({"dropout": -0.1}, ValueError, "dropout must be"),
        ({"dropout": "no"}, TypeError, "dropout must be a number"),
    ],
)
def test_layer_refuses_sizes(arguments, error, message):
    with pytest.raises(error, match=message):
        MultiHeadAttention(**{"d_model": D, "num_heads": H} | arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["d_query", "d_key", "d_hidden"])
def test_additive_refuses_sizes(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        AdditiveAttention(**{"d_query": 2, "d_key": 3, "d_hidden": 4} | {name: 0})


@pytest.mark.bad_input
@pytest.mark.parametrize("layer", [MultiHeadAttention(D, H), AdditiveAttention(D, D, 6)])
def test_layers_refuse_inputs(layer):
    x, y = torch.randn(B, T, D), torch.randn(B, S, D)
    with pytest.raises(TypeError, match=r"query must be a Tensor of shape \(B T D\), got list"):
        layer(x.tolist(), y)
    with pytest.raises(ValueError, match=r"query must have shape \(B T D\), got \(7, 12\)"):
        layer(x[0], y)
    with pytest.raises(ValueError, match="query must have last axis 12, got"):
        layer(x[..., :3], y)
    with pytest.raises(ValueError, match=r"key must have shape \(B S E\)"):
        layer(x, y[0])
    with pytest.raises(ValueError, match="key must have last axis 12"):
        layer(x, y[..., :3])
    with pytest.raises(ValueError, match=r"value must have shape \(B S E\)"):
        layer(x, y, y[0])
    with pytest.raises(ValueError, match="key must have the query's batch 2, got 1"):
        layer(x, y[:1])
    with pytest.raises(
        ValueError, match=r"value must have the key's \(B, S\) \(2, 5\), got \(2, 7\)"
    ):
        layer(x, y, x)
    with pytest.raises(TypeError, match="query must have the dtype of the weights"):
        layer(x.double(), y.double())
    with pytest.raises(TypeError, match=r"query must hold floats, got dtype torch.int64"):
        layer(x.long(), y)
    with pytest.raises(TypeError, match="key must have the dtype"):
        layer(x, y.double())
    layer(x, y)


@pytest.mark.bad_input
def test_multi_head_refuses_combinations():
    layer, x, y = MultiHeadAttention(D, H), torch.randn(B, T, D), torch.randn(B, S, D)
    with pytest.raises(ValueError, match="value must have last axis 12"):
        layer(x, y, y[..., :3])
    with pytest.raises(ValueError, match="key must have last axis 10"):
        MultiHeadAttention(D, H, d_source=10)(x)
    for recording in (nn.Identity(), layer):
        with record_attention(recording):
            with pytest.raises(ValueError, match=r"bias must spread over \(2, 3, 7, 5\), got"):
                layer(x, y, bias=torch.zeros(2, T, S))
            with pytest.raises(ValueError, match="bias must spread over"):
                layer(x, y, bias=torch.zeros(1, B, H, T, S))
            with pytest.raises(TypeError, match=r"bias must be a Tensor of floats, got torch.bool"):
                layer(x, y, bias=torch.ones(T, S, dtype=torch.bool))
            with pytest.raises(TypeError, match="bias must be a Tensor of floats, got float"):
                layer(x, y, bias=1.0)
    with pytest.raises(ValueError, match="rotate must be None"):
        layer(x, y, rotate=lambda q: q)


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_to_look_at(causal):
    layer = MultiHeadAttention(D, H, bias=False)
    assert layer(torch.randn(0, T, D), causal=causal).shape == (0, T, D)
    assert layer(torch.randn(B, 0, D), causal=causal).shape == (B, 0, D)
    assert (layer(torch.randn(B, T, D), torch.randn(B, 0, D)) == 0).all()
    assert (AdditiveAttention(D, D, 6)(torch.randn(B, T, D), torch.randn(B, 0, D))[0] == 0).all()


@pytest.mark.parametrize("bias", [True, False])
def test_bias_is_on_all_four_projections_or_on_none(bias: bool) -> None:
    attention = MultiHeadAttention(12, 3, bias=bias, d_source=7)
    parts = (attention.query, attention.key, attention.value, attention.output)
    assert all((part.bias is not None) == bias for part in parts)

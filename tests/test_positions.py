import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorial_lib.attention import MultiHeadAttention, padding_mask
from tutorial_lib.positions import (
    Learned,
    LinearBias,
    Rotary,
    Sinusoidal,
    check_positions,
    token_positions,
)

B, H, T, D, K = 2, 3, 7, 12, 4
LAYOUTS = ["half", "interleaved"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

# What each kind makes of positions (T) or (B, T), with batch and heads spread out where there
# are none: so that one law can be asked of all.
KINDS = {
    "sinusoidal": lambda p, dtype=None: Sinusoidal(5)(p, dtype),
    "learned": lambda p, dtype=None: _learned()(p, dtype),
    "half": lambda p, dtype=None: Rotary(K).at(p, dtype)(_ones(p, dtype))[:, 0],
    "interleaved": lambda p, dtype=None: Rotary(K, layout="interleaved").at(p, dtype)(
        _ones(p, dtype)
    )[:, 0],
    "linear_bias": lambda p, dtype=None: LinearBias(H)(p, torch.arange(40, device=p.device), dtype)[
        ..., 0, :, :
    ],
}
kinds = pytest.mark.parametrize("kind", KINDS)


def _learned():
    torch.manual_seed(3)
    return Learned(5, 40).double()


def _ones(positions, dtype):
    """Something to turn, (B, H, T, K)."""
    n = positions.shape[0] if positions.dim() == 2 else 1
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return torch.ones(n, H, positions.shape[-1], K, dtype=dtype, device=positions.device)


def squeezed(result, positions):
    return result[0] if result.dim() == 3 and positions.dim() == 1 else result


# ------------------------------------------------------------------------------- all kinds


@kinds
@pytest.mark.parametrize("integer", [torch.int64, torch.int32])
def test_the_value_at_a_position_depends_on_that_alone(kind, integer):
    """So a cache's offset, left padding and any other order all give the same values."""
    look_up = KINDS[kind]
    table = squeezed(look_up(torch.arange(20)), torch.arange(20))
    positions = torch.tensor([[0, 0, 0, 1, 2], [7, 19, 3, 4, 5]], dtype=integer)
    found = look_up(positions)
    assert found.shape == (2, 5, table.shape[-1])
    torch.testing.assert_close(found, table[positions.long()])
    offset = squeezed(look_up(torch.arange(8, 11)), torch.arange(8, 11))
    torch.testing.assert_close(offset, table[8:11])


@kinds
def test_identical_rows_give_identical_results(kind):
    found = KINDS[kind](torch.arange(T).expand(B, T))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0, 1], found[0, 2])


@kinds
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(kind, dtype):
    positions = torch.arange(30)
    found = KINDS[kind](positions, dtype)
    assert found.dtype == dtype
    exact = KINDS[kind](positions, torch.float64)
    # Rounded once, at the end; a turn rounds each of its two products and their sum.
    tolerance = torch.finfo(dtype).eps * exact.abs().max().item() * 3
    if dtype == torch.float32:
        tolerance += 1e-5  # the angle itself, 30 radians to 7 digits
    torch.testing.assert_close(found.double(), exact, atol=max(tolerance, 1e-12), rtol=0)


@kinds
@pytest.mark.bad_input
def test_positions_that_are_none_are_refused(kind):
    look_up = KINDS[kind]
    with pytest.raises(TypeError, match=r"positions must hold integers, got dtype torch.float32"):
        look_up(torch.zeros(3))
    with pytest.raises(TypeError, match=r"positions must hold integers, got dtype torch.bool"):
        look_up(torch.zeros(3, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"positions must hold integers, got dtype torch.complex64"):
        look_up(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="positions must be 0 or more, got -2"):
        look_up(torch.tensor([1, -2, 0]))
    for wrong in (torch.tensor(1), torch.zeros(1, 2, 3, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"positions must have shape \(T\) or \(B, T\), got"):
            look_up(wrong)
    with pytest.raises(TypeError, match="positions must be a Tensor of ints, got list"):
        check_positions("positions", [1, 2], None)


@pytest.mark.bad_input
def test_linear_bias_checks_both():
    good, bad = torch.arange(3), torch.tensor([0, -1])
    with pytest.raises(ValueError, match=r"^query_positions must be 0 or more, got -1"):
        LinearBias(H)(bad, good)
    with pytest.raises(ValueError, match=r"^key_positions must be 0 or more, got -1"):
        LinearBias(H)(good, bad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_made_where_the_positions_are(layout):
    """The meta device stands for any other: mixing it with the CPU is an error."""
    positions = torch.arange(T, device="meta")
    assert Sinusoidal(5)(positions).is_meta
    assert Learned(5, 9).to("meta")(positions).is_meta
    assert LinearBias(H)(positions, positions).is_meta
    x = torch.zeros(B, H, T, K, device="meta")
    assert Rotary(K, layout=layout)(x).is_meta
    assert Rotary(K, layout=layout)(x, positions).is_meta


def test_the_base_is_that_of_the_papers():
    assert Sinusoidal(4).base == Rotary(4).base == 10_000
    assert Rotary(4).layout == "half"
    assert Sinusoidal(4).context is None


@kinds
def test_no_positions(kind):
    assert KINDS[kind](torch.arange(0)).numel() == 0


@pytest.mark.parametrize("make", [Sinusoidal, Learned])
@pytest.mark.bad_input
def test_beyond_the_context(make):
    table = make(5, 10)
    assert table(torch.arange(10)).shape == (10, 5)
    for positions in (torch.arange(11), torch.tensor([[0], [10]])):
        with pytest.raises(ValueError, match="below the context of 10, got position 10"):
            table(positions)
    assert table(torch.tensor([9])).isfinite().all()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Sinusoidal(0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: Sinusoidal(4, 0), ValueError, "context must be at least 1, got 0"),
        (lambda: Sinusoidal(4, 2.0), TypeError, "context must be an int"),
        (lambda: Sinusoidal(4, base=0.5), ValueError, "base must be at least 1"),
        (lambda: Learned(0, 4), ValueError, "d_model must be at least 1"),
        (lambda: Learned(4, 0), ValueError, "context must be at least 1"),
        (lambda: Learned(4, None), TypeError, "context must be an int"),
        (lambda: Rotary(5), ValueError, "d_head must be even, as entries turn in pairs, got 5"),
        (lambda: Rotary(0), ValueError, "d_head must be at least 1"),
        (lambda: Rotary(4, base=0.0), ValueError, "base must be at least 1"),
        (lambda: Rotary(4, layout="whole"), ValueError, "layout must be one of"),
        (lambda: LinearBias(0), ValueError, "num_heads must be at least 1"),
        (lambda: LinearBias(2.0), TypeError, "num_heads must be an int"),
        (lambda: Rotary(4)(torch.zeros(1, 1, 2, 6)), ValueError, "x must have last axis 4"),
        (lambda: Rotary(4)(torch.zeros(1, 2, 4)), ValueError, r"x must have shape \(B H T K\)"),
    ],
)
def test_bad_sizes(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ------------------------------------------------------------------------------ token_positions


def test_token_positions(device):
    for side, wanted in (
        ("left", [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 2, 3]]),
        ("right", [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 3]]),
    ):
        visible = padding_mask(torch.tensor([0, 2, 4], device=device), 4, side)[:, 0, 0]
        found = token_positions(visible)
        assert found.tolist() == wanted
        assert found.device.type == device.type
        assert found.dtype == torch.int64


@pytest.mark.bad_input
def test_token_positions_refuses():
    with pytest.raises(TypeError, match=r"^visible must be a boolean Tensor"):
        token_positions(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"^visible must have shape \(B T\)"):
        token_positions(torch.ones(3, dtype=torch.bool))


# ------------------------------------------------------------------------------------- waves


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_sinusoidal_against_the_formula(width, base, device):
    found = Sinusoidal(width, base=base)(torch.arange(9, device=device), torch.float64)
    assert found.device.type == device.type
    for t in range(9):
        for i in range(width):
            angle = t / base ** ((i - i % 2) / width)
            wanted = math.cos(angle) if i % 2 else math.sin(angle)
            assert found[t, i].item() == pytest.approx(wanted, abs=1e-12)


def test_sinusoidal_is_exact_far_out_and_has_nothing_to_learn():
    layer = Sinusoidal(6).half()
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}
    far = torch.tensor([60_000, 60_001])
    exact = layer(far, torch.float64)
    torch.testing.assert_close(layer(far, torch.float16).double(), exact, atol=8e-3, rtol=0)
    assert layer(far).dtype == torch.float32
    step = layer(torch.arange(9), torch.float64).unflatten(-1, (3, 2))
    # A shift by one is the same rotation everywhere.
    cos, sin = step[1, :, 1], step[1, :, 0]
    turned = torch.stack(
        (
            step[:-1, :, 0] * cos + step[:-1, :, 1] * sin,
            step[:-1, :, 1] * cos - step[:-1, :, 0] * sin,
        ),
        -1,
    )
    torch.testing.assert_close(turned, step[1:])


def test_learned_is_its_weight_and_learns():
    layer = Learned(5, 9)
    assert [(n, p.shape) for n, p in layer.named_parameters()] == [("weight", (9, 5))]
    positions = torch.tensor([[0, 8, 2]])
    assert torch.equal(layer(positions), layer.weight[positions])
    layer(torch.arange(9)).square().sum().backward()
    assert (layer.weight.grad != 0).all()
    assert 0.01 < layer.weight.std() < 0.03
    assert layer.half()(positions).dtype == torch.float16
    assert layer(positions, torch.float32).dtype == torch.float32


# ------------------------------------------------------------------------------------ rotary


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [2, 4, 10])
@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_rotary_against_complex_numbers(width, base, layout, device):
    x = torch.randn(B, H, T, width, dtype=torch.float64, device=device)
    found = Rotary(width, base, layout)(x).cpu().numpy()
    x = x.cpu().numpy()
    first, second = (
        (np.s_[..., : width // 2], np.s_[..., width // 2 :])
        if layout == "half"
        else (np.s_[..., 0::2], np.s_[..., 1::2])
    )
    angle = np.arange(T)[:, None] * base ** (-2 * np.arange(width // 2) / width)
    turned = (x[first] + 1j * x[second]) * np.exp(1j * angle)
    np.testing.assert_allclose(found[first], turned.real, atol=1e-12)
    np.testing.assert_allclose(found[second], turned.imag, atol=1e-12)


def test_rotary_equals_transformers():
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k = torch.randn(B, H, T, K), torch.randn(B, 1, T, K)
    rotary = Rotary(K, base=500.0)
    angle = torch.arange(T)[:, None] * 500.0 ** (-torch.arange(0, K, 2) / K)
    angle = torch.cat((angle, angle), -1)[None]
    wanted = modeling.apply_rotary_pos_emb(q, k, angle.cos(), angle.sin())
    torch.testing.assert_close(rotary(q), wanted[0])
    torch.testing.assert_close(rotary(k), wanted[1])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.integers(1, 6),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 900),
)
def test_rotary_depends_on_differences_alone(layout, half, i, j, shift):
    rotary = Rotary(2 * half, layout=layout)
    q, k = torch.randn(2, 1, 1, 1, 2 * half, dtype=torch.float64)

    def score(a, b):
        return (rotary(q, torch.tensor([a])) * rotary(k, torch.tensor([b]))).sum()

    torch.testing.assert_close(score(i + shift, j + shift), score(i, j))
    torch.testing.assert_close(rotary(q, torch.tensor([i])).norm(), q.norm())
    assert torch.equal(rotary(q, torch.tensor([0])), q)
    if i != j:
        assert (score(i, j) - score(i, i)).abs() > 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_with_positions_of_each_sequence(layout, device):
    rotary = Rotary(K, layout=layout)
    x = torch.randn(B, H, T, K, device=device)
    positions = torch.randint(0, 90, (B, T), device=device)
    found = rotary(x, positions)
    for b in range(B):
        torch.testing.assert_close(found[b], rotary(x[b : b + 1], positions[b])[0])
    torch.testing.assert_close(rotary(x, torch.arange(T, device=device)), rotary(x))
    torch.testing.assert_close(rotary(x, torch.arange(T, device=device)[None]), rotary(x))
    assert torch.equal(rotary.at(positions)(x), found)


def test_rotary_survives_half_and_pickling():
    rotary = pickle.loads(pickle.dumps(Rotary(K).half()))
    assert rotary.state_dict() == {}
    x = torch.randn(1, 1, 3, K)
    far = torch.tensor([5000, 5001, 5002])
    exact = rotary(x.double(), far)
    torch.testing.assert_close(rotary(x, far).double(), exact, atol=1e-2, rtol=0)
    found = rotary(x.half(), far)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.double(), exact, atol=1e-2, rtol=0)
    assert rotary.at(far)(x.bfloat16()).dtype == torch.bfloat16  # as under autocast


def test_rotary_tells_order_inside_attention():
    layer, x = MultiHeadAttention(D, H), torch.randn(B, T, D)
    rotate, order = Rotary(K).at(torch.arange(T)), torch.randperm(T)
    moved = layer(x[:, order], rotate=rotate)
    assert (moved - layer(x, rotate=rotate)[:, order]).abs().max() > 1e-3
    shifted = layer(x, rotate=Rotary(K).at(torch.arange(50, 50 + T)))
    torch.testing.assert_close(shifted, layer(x, rotate=rotate), atol=1e-4, rtol=1e-4)


# ------------------------------------------------------------------------------- linear bias


def published_slopes(n):
    """The slopes, after the program that the paper's authors published."""
    if math.log2(n).is_integer():
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]
    below = 2 ** math.floor(math.log2(n))
    return published_slopes(below) + published_slopes(2 * below)[0::2][: n - below]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 32])
def test_slopes_are_as_published(num_heads):
    slopes = LinearBias(num_heads).slopes
    assert slopes == pytest.approx(published_slopes(num_heads), rel=1e-12)
    assert len(set(slopes)) == num_heads


def test_slopes_equal_transformers():
    modeling = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for num_heads in (8, 12):
        alibi = modeling.build_alibi_tensor(torch.ones(1, 4), num_heads, torch.float32)
        slopes = alibi[:, 0, 1]
        torch.testing.assert_close(torch.tensor(LinearBias(num_heads).slopes), slopes)


def test_linear_bias_against_a_loop(device):
    layer = LinearBias(H)
    assert layer.state_dict() == {}
    query = torch.tensor([[3, 4], [0, 9]], device=device)
    key = torch.tensor([[0, 1, 3, 4, 5], [2, 2, 0, 9, 8]], device=device)
    found = layer(query, key, torch.float64)
    assert found.shape == (2, H, 2, 5)
    assert found.device.type == device.type
    for b in range(2):
        for h in range(H):
            for i in range(2):
                for j in range(5):
                    distance = abs(query[b, i] - key[b, j]).item()
                    assert found[b, h, i, j].item() == -layer.slopes[h] * distance
    alone = layer(query[0], key[0])
    assert alone.shape == (H, 2, 5)
    assert alone.dtype == torch.float32
    torch.testing.assert_close(alone.double(), found[0])
    assert torch.equal(layer(query[0], key), layer(query[:1].expand(2, -1), key))


def test_linear_bias_prefers_the_near():
    x = torch.zeros(1, T, D)
    layer = MultiHeadAttention(D, H)
    bias = LinearBias(H)(torch.arange(T), torch.arange(T))
    from tutorial_lib.attention import record_attention

    with record_attention(layer) as maps:
        layer(x, causal=True, bias=bias)
    weights = maps[""][0][0]
    assert (weights[:, -1].diff(dim=-1) > 0).all()
    torch.testing.assert_close(
        weights[0, -1, -2] / weights[0, -1, -1], torch.tensor(math.exp(-LinearBias(H).slopes[0]))
    )

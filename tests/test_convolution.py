import copy
import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tutorial_lib.convolution import (
    CNN1d,
    CNN2d,
    Conv1d,
    Conv2d,
    ConvolutionLayer,
    FullWidthConv1d,
    LocallyConnected1d,
    LocallyConnected2d,
    avg_pool1d,
    avg_pool2d,
    conv1d,
    conv1d_loop,
    conv2d,
    max_pool1d,
    max_pool2d,
    measured_receptive_field,
    out_length,
    receptive_field,
    toeplitz,
    windows1d,
    windows2d,
)
from tutorial_lib.dense import Linear

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MODES = ["zeros", "circular"]
few = settings(max_examples=40, deadline=None)


@pytest.fixture(autouse=True)
def _full_precision():
    """float32 means float32, on GPUs too."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def tolerance(dtype):
    return {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-5}.get(dtype, 1e-12)


def randn(*shape, grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def count(module):
    return sum(p.numel() for p in module.parameters())


def oracle1d(x, weight, bias, stride, padding, dilation, mode):
    if mode == "circular":
        x, padding = F.pad(x, (padding, padding), mode="circular"), 0
    return F.conv1d(x, weight, bias, stride, padding, dilation)


def oracle2d(x, weight, bias, stride, padding, dilation, mode):
    if mode == "circular":
        p, q = padding
        x, padding = F.pad(x, (q, q, p, p), mode="circular"), 0
    return F.conv2d(x, weight, bias, stride, padding, dilation)


def same_values_and_gradients(ours, theirs, inputs):
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    seed = torch.randn_like(theirs)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, seed),
        torch.autograd.grad(theirs, inputs, seed),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


@st.composite
def geometry(draw):
    """Kernel, stride, padding, dilation, mode and a length that they fit."""
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding, dilation = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    mode, length = draw(st.sampled_from(MODES)), draw(st.integers(1, 9))
    assume(dilation * (kernel - 1) + 1 <= length + 2 * padding)
    assume(mode == "zeros" or padding <= length)
    return length, kernel, stride, padding, dilation, mode


# The definition


@few
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5))
def test_loop_equals_torch(c_in, c_out, kernel, more):
    x, weight, bias = randn(c_in, kernel + more), randn(c_out, c_in, kernel), randn(c_out)
    ours = conv1d_loop(x.numpy(), weight.numpy(), bias.numpy())
    np.testing.assert_allclose(ours, F.conv1d(x[None], weight, bias)[0], atol=1e-12)
    np.testing.assert_allclose(ours, conv1d(x[None], weight, bias)[0], atol=1e-12)


def test_kernel_is_not_turned_round():
    x, kernel = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([1.0, 10.0, 100.0])
    y = conv1d_loop(x[None], kernel[None, None], np.zeros(1))[0]
    np.testing.assert_array_equal(y, np.correlate(x, kernel, mode="valid"))
    np.testing.assert_array_equal(y, np.convolve(x, kernel[::-1], mode="valid"))


@few
@given(geometry(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.booleans())
def test_conv1d_equals_torch_with_gradients(g, c_in, c_out, batch, with_bias):
    length, kernel, *rest = g
    x, weight = randn(batch, c_in, length, grad=True), randn(c_out, c_in, kernel, grad=True)
    bias = randn(c_out, grad=True) if with_bias else None
    inputs = [x, weight, bias] if with_bias else [x, weight]
    theirs = oracle1d(x, weight, bias, *rest)
    assert out_length(length, kernel, *rest[:3]) == theirs.shape[2]
    same_values_and_gradients(conv1d(x, weight, bias, *rest), theirs, inputs)

    stride, padding, dilation, mode = rest
    module = Conv1d(
        c_in, c_out, kernel, stride, padding, dilation, bias=with_bias, padding_mode=mode
    ).double()
    module.load_state_dict({"weight": weight} | ({"bias": bias} if with_bias else {}))
    parameters = [x, *module.parameters()]
    by_hand = conv1d(x, module.weight, module.bias, *rest)
    same_values_and_gradients(module(x), by_hand, parameters)


@st.composite
def geometry2d(draw):
    first, second = draw(geometry()), draw(geometry())
    assume(first[-1] == "zeros" or second[3] <= second[0])
    *numbers, _ = (list(pair) for pair in zip(first, second, strict=True))
    return [tuple(n) for n in numbers], first[-1]


@few
@given(geometry2d(), st.integers(1, 2), st.integers(1, 3), st.integers(0, 2))
def test_conv2d_equals_torch_with_gradients(g, c_in, c_out, batch):
    (size, kernel, stride, padding, dilation), mode = g
    x, weight = randn(batch, c_in, *size, grad=True), randn(c_out, c_in, *kernel, grad=True)
    bias = randn(c_out, grad=True)
    theirs = oracle2d(x, weight, bias, stride, padding, dilation, mode)
    ours = conv2d(x, weight, bias, stride, padding, dilation, mode)
    same_values_and_gradients(ours, theirs, [x, weight, bias])

    module = Conv2d(c_in, c_out, kernel, stride, padding, dilation, padding_mode=mode).double()
    module.load_state_dict({"weight": weight, "bias": bias})
    same_values_and_gradients(
        module(x),
        conv2d(x, module.weight, module.bias, stride, padding, dilation, mode),
        [x, *module.parameters()],
    )


def test_one_number_stands_for_both_axes():
    x, weight = randn(2, 3, 8, 9), randn(5, 3, 2, 2)
    assert torch.equal(
        conv2d(x, weight, None, 2, 1, 3), conv2d(x, weight, None, (2, 2), (1, 1), (3, 3))
    )
    assert torch.equal(windows2d(x, 2), windows2d(x, (2, 2)))


def test_windows_are_a_view():
    x = randn(2, 3, 9)
    assert windows1d(x, 3, 2, 0, 2).data_ptr() == x.data_ptr()
    windows = windows1d(x, 3, stride=2, padding=1, dilation=2)
    assert windows.shape == (2, 3, 4, 3)
    for t in range(4):
        for k in range(3):
            place = 2 * t + 2 * k - 1
            expected = x[:, :, place] if 0 <= place < 9 else torch.zeros(2, 3)
            assert windows[:, :, t, k].equal(expected.double())


# The matrix


@few
@given(geometry(), st.integers(1, 3), st.integers(1, 3))
def test_toeplitz_times_x_is_the_convolution(g, c_in, c_out):
    length, kernel, *rest = g
    x, weight = randn(c_in, length), randn(c_out, c_in, kernel, grad=True)
    y = toeplitz(weight, length, *rest) @ x.flatten()
    same_values_and_gradients(y, oracle1d(x[None], weight, None, *rest).flatten(), [weight])


@pytest.mark.parametrize(("padding", "mode"), [(0, "zeros"), (2, "zeros"), (1, "circular")])
def test_toeplitz_has_constant_diagonals(padding, mode):
    matrix = toeplitz(randn(3), 7, padding=padding, padding_mode=mode)
    rows, columns = matrix.shape
    for offset in range(-rows + 1, columns):
        diagonal = matrix.diagonal(offset)
        assert (diagonal == diagonal[0]).all()
    if mode == "circular":  # circulant: each row is the one above, moved by one
        assert torch.equal(matrix[1:], matrix.roll(1, 1)[:-1])


def test_toeplitz_of_a_plain_kernel():
    kernel = randn(3)
    assert torch.equal(toeplitz(kernel, 7), toeplitz(kernel[None, None], 7))
    assert (toeplitz(kernel, 7) != 0).sum() == 15  # 5 rows of 3: the rest of the 35 are zeros


# Laws


def test_circular_convolution_moves_with_its_input():
    net = nn.Sequential(
        Conv1d(3, 5, 5, padding="same", padding_mode="circular"),
        nn.ReLU(),
        Conv1d(5, 2, 3, padding="same", dilation=2, padding_mode="circular"),
    ).double()
    x = randn(2, 3, 16)
    for shift in (1, 7, 15):
        moved = net(x.roll(shift, -1))
        torch.testing.assert_close(moved, net(x).roll(shift, -1), atol=1e-12, rtol=0)
    net = Conv2d(3, 5, 3, padding=1, padding_mode="circular").double()
    x = randn(2, 3, 8, 9)
    moved = net(x.roll((2, 5), (-2, -1)))
    torch.testing.assert_close(moved, net(x).roll((2, 5), (-2, -1)), atol=1e-12, rtol=0)


def test_zero_padding_and_stride_break_equivariance():
    x = randn(2, 3, 16)
    zeros = Conv1d(3, 5, 5, padding=2).double()
    difference = (zeros(x.roll(1, -1)) - zeros(x).roll(1, -1)).abs().amax((0, 1))
    assert difference[3:-2].max() < 1e-12
    assert difference[:3].max() > 0.01
    assert difference[-2:].max() > 0.01
    strided = Conv1d(3, 5, 5, stride=2, padding=2, padding_mode="circular").double()
    torch.testing.assert_close(strided(x.roll(2, -1)), strided(x).roll(1, -1))
    assert not torch.allclose(strided(x.roll(1, -1)), strided(x), atol=0.1)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 3])
def test_causal_layer_does_not_see_the_future(device, kernel, dilation):
    layer = ConvolutionLayer(5, kernel, causal=True, dilation=dilation).to(device)
    x = torch.randn(2, 7, 5, device=device, requires_grad=True)
    y = layer(x)
    assert y.shape == x.shape
    for t in range(7):
        (gradient,) = torch.autograd.grad(y[:, t].sum(), x, retain_graph=True)
        seen = [t - dilation * k for k in range(kernel) if t - dilation * k >= 0]
        assert gradient[:, seen].ne(0).all()
        gradient[:, seen] = 0
        assert not gradient.any()
        changed = x.detach().clone()
        # Not even NaN may reach the past; a GPU's library may compute windows in groups.
        changed[:, t + 1 :] = float("nan") if device.type == "cpu" else 1e3
        assert torch.equal(layer(changed)[:, : t + 1], y[:, : t + 1])


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 2), (3, 3)])
@pytest.mark.parametrize("length", [1, 2, 8])
def test_layer_equals_torch_and_keeps_the_length(device, kernel, dilation, length):
    layer = ConvolutionLayer(5, kernel, dilation=dilation).to(device)
    theirs = nn.Conv1d(5, 5, kernel, padding=dilation * (kernel // 2), dilation=dilation)
    theirs.load_state_dict(layer.conv.state_dict())
    x = torch.randn(2, length, 5, device=device)
    expected = theirs.to(device)(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: ConvolutionLayer(5, 3), (2, 7, 5)),
        (lambda: ConvolutionLayer(5, 2, causal=True), (2, 7, 5)),
        (lambda: Conv1d(3, 4, 2, 2), (2, 3, 7)),
        (lambda: Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 8, 9)),
        (lambda: LocallyConnected1d(3, 4, 7, 2), (2, 3, 7)),
        (lambda: LocallyConnected2d(3, 4, (8, 9), 3), (2, 3, 8, 9)),
        (lambda: FullWidthConv1d(3, 4, 7), (2, 3, 7)),
        (lambda: CNN1d([6, 4], 3, 5), (2, 1, 11)),
        (lambda: CNN2d([6, 4], 3, 5, pooling="mean"), (2, 1, 8, 9)),
    ],
)
def test_modules(device, make, shape):
    """Batch of two = two alone; every parameter learns; copies and every dtype work."""
    module = make().to(device).double()
    x = torch.randn(shape, device=device, dtype=torch.float64)
    y = module(x)
    assert module(x[:0]).shape == (0, *y.shape[1:])
    alone = torch.cat([module(x[:1]), module(x[1:])])
    torch.testing.assert_close(y, alone, atol=1e-13, rtol=1e-12)
    y.square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    assert torch.equal(copy.deepcopy(module)(x), y)
    other = make().to(device).double()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), y)
    for dtype in DTYPES:
        low = copy.deepcopy(module).to(dtype)(x.to(dtype))
        assert low.dtype == dtype
        torch.testing.assert_close(low.double(), y, atol=tolerance(dtype), rtol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_by_hand_equals_fused_in_every_type(device, dtype):
    x = torch.randn(2, 3, 9, device=device, dtype=dtype)
    module = Conv1d(3, 4, 3, 2, 1).to(device, dtype)
    ours = conv1d(x, module.weight, module.bias, 2, 1)
    torch.testing.assert_close(ours, module(x), atol=tolerance(dtype), rtol=tolerance(dtype))
    x = torch.randn(2, 3, 9, 8, device=device, dtype=dtype)
    module = Conv2d(3, 4, 3, 2, 1).to(device, dtype)
    ours = conv2d(x, module.weight, module.bias, 2, 1)
    torch.testing.assert_close(ours, module(x), atol=tolerance(dtype), rtol=tolerance(dtype))


def test_autocast(device):
    with torch.autocast(device.type, dtype=torch.bfloat16):
        x = torch.randn(2, 1, 12, device=device)
        assert CNN1d([4, 6], 3, 5).to(device)(x).dtype == torch.bfloat16
        module = Conv1d(1, 3, 3).to(device)
        assert conv1d(x, module.weight, module.bias).dtype == module(x).dtype
        assert LocallyConnected1d(1, 3, 12, 3).to(device)(x).dtype == module(x).dtype


# The modules against PyTorch's own


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [True, False])
def test_conv1d_module_loads_into_torch_and_starts_alike(mode, bias):
    arguments = {"stride": 2, "padding": 3, "dilation": 2, "bias": bias, "padding_mode": mode}
    torch.manual_seed(5)
    ours = Conv1d(3, 4, 3, **arguments)
    torch.manual_seed(5)
    theirs = nn.Conv1d(3, 4, 3, **arguments)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 11)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [True, False])
def test_conv2d_module_loads_into_torch_and_starts_alike(mode, bias):
    arguments = {"stride": (2, 1), "padding": (1, 3), "dilation": (1, 2), "bias": bias}
    torch.manual_seed(5)
    ours = Conv2d(3, 4, (2, 3), padding_mode=mode, **arguments)
    torch.manual_seed(5)
    theirs = nn.Conv2d(3, 4, (2, 3), padding_mode=mode, **arguments)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 8, 11)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("mode", MODES)
def test_same_padding_is_that_of_torch(mode):
    ours = Conv1d(3, 4, 5, padding="same", dilation=3, padding_mode=mode)
    theirs = nn.Conv1d(3, 4, 5, padding="same", dilation=3, padding_mode=mode)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 17)
    torch.testing.assert_close(ours(x), theirs(x))
    assert Conv2d(3, 4, (3, 5), padding="same", padding_mode=mode).padding == (1, 2)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_full_width_equals_torch(device, length):
    ours = FullWidthConv1d(3, 4, length).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of the copy that an even kernel costs it
        theirs = nn.Conv1d(3, 4, length, padding="same", padding_mode="circular").to(device)
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(2, 3, length, device=device)
        torch.testing.assert_close(ours(x), theirs(x))
    moved = ours(x.roll(1, -1))
    torch.testing.assert_close(moved, ours(x).roll(1, -1))  # shared: it moves with its input


def test_full_width_sees_everything():
    assert measured_receptive_field(FullWidthConv1d(1, 1, 8), 8) == 8


@few
@given(geometry(), st.integers(1, 3), st.integers(1, 3))
def test_locally_connected_with_equal_kernels_is_a_convolution(g, c_in, c_out):
    length, kernel, stride, padding, dilation, mode = g
    arguments = (kernel, stride, padding, dilation)
    local = LocallyConnected1d(c_in, c_out, length, *arguments, padding_mode=mode).double()
    weight, bias, x = randn(c_out, c_in, kernel), randn(c_out), randn(2, c_in, length)
    local.weight.data[:] = weight
    local.bias.data[:] = bias[:, None]
    expected = oracle1d(x, weight, bias, stride, padding, dilation, mode)
    torch.testing.assert_close(local(x), expected)


@few
@given(geometry2d(), st.integers(1, 2), st.integers(1, 3))
def test_locally_connected2d_with_equal_kernels_is_a_convolution(g, c_in, c_out):
    (size, kernel, *rest), mode = g
    local = LocallyConnected2d(c_in, c_out, size, kernel, *rest, padding_mode=mode).double()
    weight, bias, x = randn(c_out, c_in, *kernel), randn(c_out), randn(2, c_in, *size)
    local.weight.data[:] = weight
    local.bias.data[:] = bias[:, None, None]
    torch.testing.assert_close(local(x), oracle2d(x, weight, bias, *rest, mode))


def test_locally_connected_has_a_kernel_of_its_own_for_each_place():
    local = LocallyConnected1d(3, 4, 7, 2, bias=False).double()
    x = randn(2, 3, 7)
    for t in range(6):
        alone = F.conv1d(x[:, :, t : t + 2], local.weight[t])
        torch.testing.assert_close(local(x)[:, :, t : t + 1], alone)
    local = LocallyConnected2d(3, 4, (5, 6), (2, 3), bias=False).double()
    x = randn(2, 3, 5, 6)
    alone = F.conv2d(x[:, :, 3:5, 2:5], local.weight[3, 2])
    torch.testing.assert_close(local(x)[:, :, 3:4, 2:3], alone)


# Pooling


@few
@given(st.integers(1, 4), st.one_of(st.none(), st.integers(1, 4)), st.integers(0, 5))
def test_pooling_equals_torch(kernel, stride, more):
    # Few different numbers: among equals, the gradient must go where PyTorch sends it.
    x = torch.randint(0, 3, (2, 3, kernel + more)).double().requires_grad_()
    same_values_and_gradients(max_pool1d(x, kernel, stride), F.max_pool1d(x, kernel, stride), [x])
    same_values_and_gradients(avg_pool1d(x, kernel, stride), F.avg_pool1d(x, kernel, stride), [x])
    kernel2, stride2 = (kernel, 2), None if stride is None else (stride, 1)
    x = torch.randint(0, 3, (2, 3, kernel + more, 5)).double().requires_grad_()
    for ours, theirs in ((max_pool2d, F.max_pool2d), (avg_pool2d, F.avg_pool2d)):
        same_values_and_gradients(ours(x, kernel2, stride2), theirs(x, kernel2, stride2), [x])


# Receptive field


@pytest.mark.parametrize(
    "layers",
    [
        [(3, 1, 1)],
        [(3, 1, 1)] * 4,
        [(3, 1, 1), (3, 1, 2), (3, 1, 4)],
        [(5, 2, 1), (3, 2, 1), (3, 2, 1)],
        [(2, 1, 3), (4, 3, 2), (1, 1, 1)],
        [(2, 4, 1), (2, 1, 1)],
    ],
)
@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU])
def test_receptive_field_measured_is_the_formula(layers, activation):
    modules = [m for k, s, d in layers for m in (Conv1d(3, 3, k, s, 0, d), activation())]
    before = copy.deepcopy(modules[0].state_dict())
    assert measured_receptive_field(nn.Sequential(*modules), 81, channels=3) == receptive_field(
        layers
    )
    torch.testing.assert_close(modules[0].state_dict(), before, rtol=0, atol=0)


def test_receptive_field_of_pooling_and_of_sequence_layers():
    class Pool(nn.Module):
        def forward(self, x):
            return max_pool1d(x, 2)

    net = nn.Sequential(Conv1d(1, 4, 3), nn.ReLU(), Pool(), Conv1d(4, 4, 3), nn.ReLU(), Pool())
    expected = receptive_field([(3, 1, 1), (2, 2, 1), (3, 1, 1), (2, 2, 1)])
    assert measured_receptive_field(net, 41) == expected == 10
    for causal in (False, True):
        stack = nn.Sequential(*(ConvolutionLayer(5, 3, causal, dilation=d) for d in (1, 2, 4)))
        assert measured_receptive_field(stack, 40, channels=5, channels_last=True) == 15
    assert receptive_field([]) == 1


def test_receptive_field_needs_no_luck_and_leaves_the_random_numbers_alone():
    state = torch.get_rng_state()
    with torch.no_grad():
        net = nn.Sequential(*(Conv1d(1, 1, 3) for _ in range(6)))
        for parameter in net.parameters():
            parameter.fill_(-1.0)  # every ReLU would be shut
        torch.set_rng_state(state)
        net = nn.Sequential(*(m for conv in net for m in (conv, nn.ReLU())))
        assert measured_receptive_field(net, 31) == 13
    assert torch.equal(torch.get_rng_state(), state)


# Networks


def test_the_small_net_of_the_halves_task():
    net = CNN1d([16], 7, num_classes=4)
    assert count(net) == 196
    x = torch.randn(2, 64)
    convolution, head = net.features[0], net.head
    expected = head(
        F.conv1d(x[:, None], convolution.weight, convolution.bias, padding=3).relu().amax(-1)
    )
    torch.testing.assert_close(net(x), expected)
    torch.testing.assert_close(net(x), net(x[:, None]))


def test_the_net_of_mnist1d():
    net = CNN1d([32, 32, 32], [5, 3, 3], 10, stride=2, padding=1, pooling="flatten", length=40)
    theirs = nn.Sequential(
        nn.Conv1d(1, 32, 5, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv1d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv1d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(160, 10),
    )
    for p, q in zip(theirs.parameters(), net.parameters(), strict=True):
        p.data.copy_(q.data)
    x = torch.randn(2, 1, 40)
    torch.testing.assert_close(net(x), theirs(x))


@pytest.mark.parametrize("pooling", ["max", "mean", "flatten"])
def test_the_net_of_the_digits(pooling):
    net = CNN2d([16, 16, 32], 3, 10, padding_mode="circular", pooling=pooling, size=(8, 9)).double()
    x = randn(2, 8, 9)
    h = x[:, None]
    for layer in net.features:
        if isinstance(layer, Conv2d):
            h = oracle2d(h, layer.weight, layer.bias, 1, (1, 1), 1, "circular").relu()
    pooled = {"max": lambda: h.amax((2, 3)), "mean": lambda: h.mean((2, 3))}
    torch.testing.assert_close(net(x), net.head(pooled.get(pooling, lambda: h.flatten(1))()))
    difference = (net(x) - net(x.roll((3, 4), (1, 2)))).abs().max()
    assert difference > 1e-3 if pooling == "flatten" else difference < 1e-12


def test_any_length_where_nothing_ties_the_net_to_one():
    net = CNN1d([6, 4], [3, 5], 3, stride=[1, 2], length=20)
    assert net(torch.randn(2, 20)).shape == net(torch.randn(2, 33)).shape == (2, 3)


def test_the_ablation_takes_away_one_property_at_a_time():
    """Halves task (claim C03): a stem, then ReLU, a maximum over places and a dense layer."""
    stems = {
        "both": Conv1d(1, 16, 7, padding="same"),
        "not shared": LocallyConnected1d(1, 16, 64, 7, padding="same"),
        "not local": FullWidthConv1d(1, 16, 64),
        "neither": nn.Sequential(nn.Flatten(), Linear(64, 16 * 64), nn.Unflatten(1, (16, 64))),
    }
    x = torch.randn(2, 1, 64)
    numbers = {}
    for name, stem in stems.items():
        assert stem(x).shape == (2, 16, 64)
        numbers[name] = count(stem)
    assert numbers == {"both": 128, "not shared": 8192, "not local": 1040, "neither": 66560}


# Bad input

x3, x4 = torch.zeros(2, 3, 7), torch.zeros(2, 3, 8, 9)
w3, w4 = torch.zeros(4, 3, 2), torch.zeros(4, 3, 2, 5)
n2, n3 = np.zeros((3, 7)), np.zeros((4, 3, 2))
BAD = [
    (lambda: conv1d(x3, torch.zeros(4, 3, 8)), ValueError, "spans 8 places, the input has 7 + 2"),
    (lambda: conv1d(x3, w3, dilation=7), ValueError, "spans 8"),
    (lambda: conv1d(x3, w3, stride=0), ValueError, "stride must be at least 1, got 0"),
    (lambda: conv1d(x3, w3, stride=1.0), TypeError, "stride"),
    (lambda: conv1d(x3, w3, dilation=0), ValueError, "dilation"),
    (lambda: conv1d(x3, w3, padding=-1), ValueError, "padding"),
    (lambda: conv1d(x3, w3, padding_mode="reflect"), ValueError, "padding_mode must be one of"),
    (lambda: conv1d(x3, w3, None, 1, 8, 1, "circular"), ValueError, "padding=8 for 7 places"),
    (lambda: conv1d(x3, torch.zeros(4, 5, 2)), ValueError, "x must have the 5 channels"),
    (lambda: conv1d(x3, w3, torch.zeros(3)), ValueError, "bias must have shape (4,), got (3,)"),
    (lambda: conv1d(x3, w4), ValueError, "weight must have shape"),
    (lambda: conv1d(x4, w3), ValueError, "x must have shape (B C_in T)"),
    (lambda: conv1d(n2, w3), TypeError, "x must be a Tensor"),
    (lambda: conv1d(x3, w3.double()), TypeError, "x must have the dtype of weight"),
    (lambda: conv1d(x3.long(), w3), TypeError, "x must hold floats"),
    (lambda: conv1d(torch.zeros(2, 3, 0), w3), ValueError, "length must be at least 1"),
    (lambda: conv2d(x4, torch.zeros(4, 3, 9, 2)), ValueError, "spans 9"),
    (lambda: conv2d(x4, torch.zeros(4, 3, 2, 10)), ValueError, "spans 10"),
    (lambda: conv2d(x4, w4, stride=(1, 0)), ValueError, "stride"),
    (lambda: conv2d(x4, w4, stride=(1, 2, 3)), TypeError, "stride must be an int or a pair"),
    (lambda: conv2d(x4, w4, padding=(0, 10), padding_mode="circular"), ValueError, "padding=10"),
    (lambda: conv2d(x4, w4, padding=(9, 0), padding_mode="circular"), ValueError, "padding=9"),
    (lambda: conv2d(x4, w4, padding_mode="same"), ValueError, "padding_mode"),
    (lambda: conv2d(x4[:, :2], w4), ValueError, "x must have the 3 channels"),
    (lambda: conv2d(x3, w4), ValueError, "(B C_in H W)"),
    (lambda: conv1d_loop(n2, np.zeros((4, 3, 8)), np.zeros(4)), ValueError, "spans 8"),
    (lambda: conv1d_loop(n2, np.zeros((4, 2, 2)), np.zeros(4)), ValueError, "2 channels"),
    (lambda: conv1d_loop(n2, n3, np.zeros(3)), ValueError, "bias"),
    (lambda: conv1d_loop(n2.astype(int), n3, np.zeros(4)), TypeError, "x must hold floats"),
    (lambda: conv1d_loop(n2[0], n3, np.zeros(4)), ValueError, "x must have shape"),
    (lambda: toeplitz(w3, 1), ValueError, "spans 2"),
    (lambda: toeplitz(w3, 7, stride=0), ValueError, "stride"),
    (lambda: toeplitz(w3, 7, padding=8, padding_mode="circular"), ValueError, "padding=8"),
    (lambda: toeplitz(w3, 7, padding_mode="ring"), ValueError, "padding_mode"),
    (lambda: toeplitz([1.0, 2.0], 7), TypeError, "weight"),
    (lambda: toeplitz(w4, 7), ValueError, "weight must have shape"),
    (lambda: max_pool1d(x3, 8), ValueError, "spans 8"),
    (lambda: avg_pool1d(x3, 2, 0), ValueError, "stride"),
    (lambda: max_pool2d(x4, (2, 10)), ValueError, "spans 10"),
    (lambda: avg_pool2d(x3, 2), ValueError, "(B C H W)"),
    (lambda: receptive_field([(0, 1, 1)]), ValueError, "kernel"),
    (lambda: receptive_field([(3, 0, 1)]), ValueError, "stride"),
    (lambda: receptive_field([(3, 1, 1.5)]), TypeError, "dilation"),
    (lambda: measured_receptive_field(F.relu, 9), TypeError, "module"),
    (lambda: measured_receptive_field(Conv1d(1, 1, 3), 0), ValueError, "length"),
    (lambda: measured_receptive_field(Conv1d(2, 1, 3), 9), ValueError, "channels"),
    (lambda: measured_receptive_field(CNN1d([3], 3, 2), 9), ValueError, "three axes"),
    (lambda: Conv1d(0, 4, 3), ValueError, "in_channels"),
    (lambda: Conv1d(3, 4, 0), ValueError, "kernel_size"),
    (lambda: Conv1d(3, 4, 3, stride=0), ValueError, "stride must be at least 1, got 0"),
    (lambda: Conv1d(3, 4, (3, 3)), TypeError, "kernel_size must be an int"),
    (lambda: Conv1d(3, 4, 3, padding=-1), ValueError, "padding"),
    (lambda: Conv1d(3, 4, 3, padding="valid"), ValueError, "padding must be one of"),
    (lambda: Conv1d(3, 4, 3, padding_mode="reflect"), ValueError, "padding_mode"),
    (lambda: Conv1d(3, 4, 4, padding="same"), ValueError, "kernel_size must be odd"),
    (lambda: Conv1d(3, 4, 3, 2, padding="same"), ValueError, "stride must be 1"),
    (lambda: Conv1d(3, 4, 8)(x3), ValueError, "spans 8"),
    (lambda: Conv1d(5, 4, 3)(x3), ValueError, "x must have the 5 channels"),
    (lambda: Conv1d(3, 4, 3, padding=8, padding_mode="circular")(x3), ValueError, "padding=8"),
    (lambda: Conv1d(3, 4, 3)(x3.half()), TypeError, "torch.float16"),
    (lambda: Conv2d(3, 4, (3, 4), padding="same"), ValueError, "kernel_size must be odd"),
    (lambda: Conv2d(3, 4, (3, 0)), ValueError, "kernel_size"),
    (lambda: Conv2d(3, 4, 9)(x4), ValueError, "spans 9"),
    (lambda: Conv2d(5, 4, 3)(x4), ValueError, "x must have the 5 channels"),
    (lambda: Conv2d(3, 4, 3, padding=9, padding_mode="circular")(x4), ValueError, "padding=9"),
    (lambda: LocallyConnected1d(3, 4, 7, 8), ValueError, "spans 8"),
    (lambda: LocallyConnected1d(3, 4, 7, 2, padding=8, padding_mode="circular"), ValueError, "=8"),
    (lambda: LocallyConnected1d(3, 4, 8, 2)(x3), ValueError, "(B, 3, 8), got (2, 3, 7)"),
    (lambda: LocallyConnected1d(5, 4, 7, 2)(x3), ValueError, "(B, 5, 7), got (2, 3, 7)"),
    (lambda: LocallyConnected2d(3, 4, (8, 9), 9), ValueError, "spans 9"),
    (lambda: LocallyConnected2d(3, 4, (8, 8), 3)(x4), ValueError, "(B, 3, 8, 8)"),
    (lambda: LocallyConnected2d(3, 4, (8, 9), 3, stride=0), ValueError, "stride"),
    (lambda: FullWidthConv1d(3, 4, 0), ValueError, "length"),
    (lambda: FullWidthConv1d(3, 4, 8)(x3), ValueError, "(B, 3, 8), got (2, 3, 7)"),
    (lambda: ConvolutionLayer(5, 4), ValueError, "kernel_size must be odd"),
    (lambda: ConvolutionLayer(0, 3), ValueError, "d_model"),
    (lambda: ConvolutionLayer(5, 0, causal=True), ValueError, "kernel_size"),
    (lambda: ConvolutionLayer(5, 3, dilation=0), ValueError, "dilation"),
    (lambda: ConvolutionLayer(5, 3)(x3), ValueError, "last axis 5"),
    (lambda: ConvolutionLayer(5, 3)(x3[0]), ValueError, "(B T D)"),
    (lambda: CNN1d([], 3, 5), ValueError, "channels"),
    (lambda: CNN1d([4], 3, 0), ValueError, "num_classes"),
    (lambda: CNN1d([4, 0], 3, 5), ValueError, "out_channels"),
    (lambda: CNN1d([4, 4], [3], 5), ValueError, "kernel_size must have one entry per"),
    (lambda: CNN1d([4], 3, 5, stride=[1, 2]), ValueError, "stride must have one entry per"),
    (lambda: CNN1d([4], 3, 5, padding=[]), ValueError, "padding must have one entry per"),
    (lambda: CNN1d([4], 4, 5), ValueError, "kernel_size must be odd"),
    (lambda: CNN1d([4], 3, 5, pooling="sum"), ValueError, "pooling"),
    (lambda: CNN1d([4], 3, 5, pooling="flatten"), ValueError, "length must be given"),
    (lambda: CNN1d([4], 9, 5, padding=0, length=7), ValueError, "spans 9"),
    (
        lambda: CNN1d([4], 3, 5, pooling="flatten", length=8)(x3[:, :1]),
        ValueError,
        "length 8, got 7",
    ),
    (lambda: CNN1d([4], 3, 5)(x3), ValueError, "x must have the 1 channels"),
    (lambda: CNN1d([4], 3, 5)(x4), ValueError, "(B C_in T)"),
    (lambda: CNN2d([4], 3, 5, pooling="flatten"), ValueError, "size must be given"),
    (lambda: CNN2d([4], 3, 5, 3, pooling="flatten", size=(8, 8))(x4), ValueError, "size (8, 8)"),
    (lambda: CNN2d([4], 3, 5, pooling="flatten", size="8x8"), TypeError, "size"),
    (lambda: CNN2d([4], 9, 5, padding=0, size=(9, 8)), ValueError, "spans 9"),
    (lambda: CNN2d([4], 3, 5)(torch.zeros(8, 9)), ValueError, "(B C_in H W)"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()

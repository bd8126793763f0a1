import copy
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tutorial_lib.dense import (
    MLP,
    Dense,
    Linear,
    Trace,
    activate,
    backward,
    cross_entropy,
    fan_in_uniform,
    forward,
    numerical_gradient,
    slope,
    softmax,
)


def random_net(sizes, seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=b) for b in sizes[1:]]
    x = rng.normal(size=(4, sizes[0]))
    labels = rng.integers(0, sizes[-1], size=4)
    return x, weights, biases, labels


# The lesson in NumPy


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    activation=st.sampled_from(["relu", "tanh"]),
    seed=st.integers(0, 1000),
)
def test_forward_and_backward_equal_autograd(sizes, activation, seed):
    x, weights, biases, labels = random_net(sizes, seed)
    trace = forward(x, weights, biases, activation)
    ours = backward(trace, weights, labels, activation)

    W, b = ([torch.tensor(a, requires_grad=True) for a in arrays] for arrays in (weights, biases))
    h = torch.tensor(x)
    for i in range(len(W)):
        h = F.linear(h, W[i], b[i])
        np.testing.assert_allclose(trace.sums[i], h.detach(), rtol=1e-10, atol=1e-12)
        if i < len(W) - 1:
            h = getattr(torch, activation)(h)
            np.testing.assert_allclose(trace.inputs[i + 1], h.detach(), rtol=1e-10, atol=1e-12)
    loss = F.cross_entropy(h, torch.tensor(labels))
    loss.backward()

    assert cross_entropy(trace.logits, labels) == pytest.approx(loss.item(), rel=1e-10, abs=1e-12)
    for mine, tensors in zip(ours, (W, b), strict=True):
        assert len(mine) == len(tensors)
        for gradient, tensor in zip(mine, tensors, strict=True):
            np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_backward_equals_finite_differences(activation):
    x, weights, biases, labels = random_net([5, 7, 6, 3])
    ours = backward(forward(x, weights, biases, activation), weights, labels, activation)

    for which, arrays in enumerate((weights, biases)):
        for i, array in enumerate(arrays):

            def loss(a, which=which, i=i):
                nets = [list(weights), list(biases)]
                nets[which][i] = a
                return cross_entropy(forward(x, *nets, activation).logits, labels)

            expected = numerical_gradient(loss, array)
            np.testing.assert_allclose(ours[which][i], expected, rtol=1e-5, atol=1e-8)


def test_arguments_are_left_as_they_were():
    x, weights, biases, labels = random_net([5, 7, 3])
    arrays = [x, labels, *weights, *biases]
    before = copy.deepcopy(arrays)
    trace = forward(x, weights, biases)
    kept = copy.deepcopy(trace)
    backward(trace, weights, labels)
    numerical_gradient(lambda a: float(a.sum()), weights[0])
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(trace.sums + trace.inputs, kept.sums + kept.inputs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batch_gradient_is_the_mean_of_single_ones():
    x, weights, biases, labels = random_net([5, 7, 3])
    whole = backward(forward(x, weights, biases), weights, labels)
    alone = [
        backward(forward(x[i : i + 1], weights, biases), weights, labels[i : i + 1])
        for i in range(4)
    ]
    for part in (0, 1):
        for layer in (0, 1):
            mean = np.mean([one[part][layer] for one in alone], axis=0)
            np.testing.assert_allclose(whole[part][layer], mean, atol=1e-14)


def test_relu_at_zero_has_slope_zero_like_torch():
    z = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    torch.relu(z).sum().backward()
    np.testing.assert_array_equal(slope(z.detach().numpy()), z.grad)
    np.testing.assert_array_equal(activate(z.detach().numpy()), torch.relu(z).detach())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6), st.floats(-1e5, 1e5))
def test_softmax_equals_torch_and_ignores_a_shift(scores, shift):
    logits = np.array([scores])
    expected = torch.softmax(torch.tensor(logits), -1)
    np.testing.assert_allclose(softmax(logits), expected, atol=1e-12)
    np.testing.assert_allclose(softmax(logits + shift), expected, atol=1e-9)
    labels = np.array([len(scores) - 1])
    loss = F.cross_entropy(torch.tensor(logits), torch.tensor(labels)).item()
    assert cross_entropy(logits, labels) == pytest.approx(loss, rel=1e-9, abs=1e-9)


def test_a_class_may_be_ruled_out():
    logits = np.array([[0.0, -np.inf, 0.0]])
    np.testing.assert_array_equal(softmax(logits), [[0.5, 0.0, 0.5]])
    assert cross_entropy(logits, np.array([0])) == pytest.approx(np.log(2))


def test_numerical_gradient_of_known_functions():
    a = np.array([[0.5, -1.0, 2.0], [1.5, 0.1, -0.3]])
    np.testing.assert_allclose(numerical_gradient(lambda v: np.sin(v).sum(), a), np.cos(a))
    scalar = numerical_gradient(lambda v: float(v**3), np.array(2.0), eps=1e-4)
    assert scalar == pytest.approx(12.0, rel=1e-6)
    whole = numerical_gradient(lambda v: float((v**2).sum()), np.array([1, 3]))
    np.testing.assert_allclose(whole, [2, 6])
    single = np.array([1.0, 3.0], dtype=np.float32)
    np.testing.assert_allclose(numerical_gradient(lambda v: (v**2).sum(), single), [2, 6])


# The modules


def tolerance(dtype):
    return {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-5}.get(dtype, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_equals_torch(device, dtype, bias):
    ours = Linear(5, 3, bias=bias).to(device, dtype)
    theirs = nn.Linear(5, 3, bias=bias).to(device, dtype)
    theirs.load_state_dict(ours.state_dict())
    for shape in [(5,), (2, 5), (2, 7, 5), (0, 5)]:
        x = torch.randn(shape, device=device, dtype=dtype)
        y = ours(x)
        assert y.dtype == dtype
        torch.testing.assert_close(y, theirs(x), atol=tolerance(dtype), rtol=tolerance(dtype))


def test_linear_gradients_equal_torch(device):
    ours = Linear(5, 3).to(device, torch.float64)
    theirs = nn.Linear(5, 3).to(device, torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 7, 5, device=device, dtype=torch.float64, requires_grad=True)
    seed = torch.randn(2, 7, 3, device=device, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(m(x), [x, *m.parameters()], grad_outputs=seed) for m in (ours, theirs)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_linear_starts_as_torch_does():
    torch.manual_seed(3)
    ours = Linear(50, 40)
    torch.manual_seed(3)
    theirs = nn.Linear(50, 40)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_linear_under_autocast_gives_the_type_that_torch_gives(device):
    with torch.autocast(device.type, dtype=torch.bfloat16):
        x = torch.randn(2, 5, device=device)
        assert Linear(5, 3).to(device)(x).dtype == nn.Linear(5, 3, device=device)(x).dtype
        assert MLP([5, 7, 3]).to(device)(x).dtype == torch.bfloat16
        assert Dense(5, 2).to(device)(x[None]).dtype == torch.bfloat16


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 7, 5)])
def test_mlp_equals_sequential(device, activation, shape):
    ours = MLP([5, 8, 6, 3], activation).to(device)
    act = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    theirs = nn.Sequential(nn.Linear(5, 8), act(), nn.Linear(8, 6), act(), nn.Linear(6, 3)).to(
        device
    )
    for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
        p.data.copy_(q.data)
    x = torch.randn(shape, device=device)
    y = ours(x)
    torch.testing.assert_close(y, theirs(x))
    y.sum().backward()
    theirs(x).sum().backward()
    for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_mlp_equals_the_arrays_of_the_lesson():
    x, weights, biases, _ = random_net([5, 7, 3])
    net = MLP([5, 7, 3]).double()
    for layer, weight, bias in zip(net.layers, weights, biases, strict=True):
        layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
    logits = forward(x, weights, biases).logits
    np.testing.assert_allclose(net(torch.tensor(x)).detach(), logits, atol=1e-12)


def test_mlp_without_hidden_layer_is_linear():
    net = MLP([40, 10])
    assert sum(p.numel() for p in net.parameters()) == 410
    x = torch.randn(2, 40)
    torch.testing.assert_close(net(x), net.layers[0](x))


def test_mlp_dropout_acts_on_hidden_numbers_in_training_alone():
    net = MLP([5, 1000, 3], dropout=0.5)
    x = torch.randn(2, 5)
    seen = []
    net.layers[1].register_forward_hook(lambda m, args, out: seen.append(args[0]))
    torch.manual_seed(1)
    net(x)
    net.eval()
    assert torch.equal(net(x), net(x))
    kept, full = seen[0], seen[1]
    share = (kept[full > 0] == 0).float().mean().item()
    assert 0.4 < share < 0.6
    torch.testing.assert_close(kept[kept > 0], 2 * full[kept > 0])


def test_shuffled_inputs_with_shuffled_weights_change_nothing():
    """Each input is a stranger to the others: their order carries no meaning (claim C02)."""
    net = MLP([9, 7, 3]).double()
    other = copy.deepcopy(net)
    order = torch.randperm(9)
    other.layers[0].weight.data = net.layers[0].weight.data[:, order]
    x = torch.randn(2, 9, dtype=torch.float64)
    torch.testing.assert_close(net(x), other(x[:, order]))


@pytest.mark.parametrize(
    "make", [lambda: MLP([5, 8, 3]), lambda: Dense(5, 7), lambda: Linear(5, 3)]
)
def test_batch_of_two_is_two_alone(device, make):
    layer = make().to(device).double()
    x = torch.randn(2, 7, 5, dtype=torch.float64, device=device)
    alone = torch.cat([layer(x[:1]), layer(x[1:])])
    torch.testing.assert_close(layer(x), alone, atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [lambda: MLP([5, 8, 3]), lambda: Dense(5, 7), lambda: Dense(5, 7, causal=True)],
)
def test_every_parameter_learns_and_survives_a_copy(make):
    layer = make()
    x = torch.randn(2, 7, 5)
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    other = make()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


# Dense as a sequence layer


def test_dense_equals_linear_on_the_flat_sequence(device):
    layer = Dense(5, 7).to(device)
    flat = nn.Linear(35, 35, device=device)
    flat.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 5, device=device)
    torch.testing.assert_close(layer(x), flat(x.flatten(1)).view(2, 7, 5))


def test_dense_starts_as_linear_does():
    torch.manual_seed(3)
    ours = Dense(5, 7)
    torch.manual_seed(3)
    theirs = nn.Linear(35, 35)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_dense_causal_start_depends_on_what_a_position_sees():
    layer = Dense(20, 6, causal=True)
    for t in range(6):
        rows = layer.weight[t * 20 : (t + 1) * 20]
        bound = ((t + 1) * 20) ** -0.5
        assert rows.abs().max() <= bound
        assert rows[:, : (t + 1) * 20].abs().max() > 0.9 * bound
        assert not rows[:, (t + 1) * 20 :].any()


def test_dense_causal_does_not_see_the_future(device):
    layer = Dense(5, 7, causal=True).to(device)
    # Weights from elsewhere, full above the diagonal, must not open the future either.
    layer.load_state_dict({k: torch.randn_like(v) for k, v in layer.state_dict().items()})
    x = torch.randn(2, 7, 5, device=device, requires_grad=True)
    for t in range(7):
        (gradient,) = torch.autograd.grad(layer(x)[:, t].sum(), x)
        assert not gradient[:, t + 1 :].any()
        assert gradient[:, : t + 1].ne(0).all()
        changed = x.detach().clone()
        changed[:, t + 1 :] = 1e3 * torch.randn_like(changed[:, t + 1 :])
        assert torch.equal(layer(changed)[:, : t + 1], layer(x)[:, : t + 1])


def test_dense_causal_stays_so_in_training():
    layer = Dense(5, 7, causal=True)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(2, 7, 5)).square().sum().backward()
        optimizer.step()
    place = torch.arange(35) // 5
    assert not layer.weight[place[:, None] < place].any()


def test_dense_ties_its_weights_to_places():
    layer = Dense(5, 7)
    x = torch.randn(2, 7, 5)
    assert not torch.allclose(layer(x.roll(1, 1)), layer(x).roll(1, 1), atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_modules_keep_their_type(device, dtype):
    x = torch.randn(2, 7, 5, device=device, dtype=dtype)
    for layer in (Dense(5, 7, causal=True), MLP([5, 3], "tanh")):
        assert layer.to(device, dtype)(x).dtype == dtype


# Bad input

x, W, b, labels = random_net([5, 7, 3])
trace = forward(x, W, b)
BAD = [
    (lambda: softmax([1.0, 2.0]), TypeError, "logits must be an array of floats"),
    (lambda: softmax(np.array([1, 2])), TypeError, "logits"),
    (lambda: softmax(np.zeros((2, 0))), ValueError, "logits must have shape"),
    (lambda: softmax(np.full((2, 3), -np.inf)), ValueError, "finite"),
    (lambda: softmax(np.array([np.nan, 1.0])), ValueError, "finite"),
    (lambda: cross_entropy(np.zeros((0, 3)), np.zeros(0, dtype=int)), ValueError, "got none"),
    (lambda: cross_entropy(np.zeros(3), np.zeros(1, dtype=int)), ValueError, "(N C)"),
    (lambda: cross_entropy(np.zeros((2, 3)), np.array([0])), ValueError, "labels"),
    (lambda: cross_entropy(np.zeros((2, 3)), [0, 1]), ValueError, "labels must be an array"),
    (lambda: cross_entropy(np.zeros((2, 3)), np.array([0, 3])), ValueError, "0 to 2, got 3"),
    (lambda: cross_entropy(np.zeros((2, 3)), np.array([0, -1])), ValueError, "got -1"),
    (lambda: cross_entropy(np.zeros((2, 3)), np.array([0.0, 1.0])), TypeError, "labels"),
    (lambda: activate(x, "gelu"), ValueError, "activation"),
    (lambda: slope(x, "gelu"), ValueError, "activation"),
    (lambda: forward(x, W, b, "gelu"), ValueError, "activation"),
    (lambda: forward(x.astype(int), W, b), TypeError, "x must hold floats"),
    (lambda: forward(x[0], W, b), ValueError, "x must have shape (N D)"),
    (lambda: forward(x[:, :4], W, b), ValueError, "weights[0] must have 4 columns"),
    (lambda: forward(x, [W[0], W[1].T], b), ValueError, "weights[1] must have 7 columns"),
    (lambda: forward(x, W, [b[1], b[1]]), ValueError, "biases[0] must have 7 entries, got 3"),
    (lambda: forward(x, W, b[:1]), ValueError, "2 weights and 1 biases"),
    (lambda: forward(x, [], []), ValueError, "0 weights"),
    (lambda: backward(W, W, labels), TypeError, "trace"),
    (lambda: backward(trace, W[:1], labels), ValueError, "weights must have the shapes"),
    (lambda: backward(trace, W, labels[:2]), ValueError, "labels"),
    (lambda: backward(trace, W, labels, "gelu"), ValueError, "activation"),
    (lambda: backward(Trace([], []), [], labels), ValueError, "trace"),
    (lambda: numerical_gradient(np.sum, x, eps=0.0), ValueError, "eps"),
    (lambda: numerical_gradient(np.sum, x, eps="a"), TypeError, "eps"),
    (lambda: fan_in_uniform((2,), 0), ValueError, "fan_in"),
    (lambda: Linear(0, 3), ValueError, "d_in must be at least 1, got 0"),
    (lambda: Linear(5, 3.0), TypeError, "d_out"),
    (lambda: Linear(5, 3)(torch.zeros(2, 4)), ValueError, "last axis 5, got shape (2, 4)"),
    (lambda: Linear(5, 3)(torch.zeros(2, 5).double()), TypeError, "torch.float64"),
    (lambda: Linear(5, 3)(torch.zeros(2, 5).long()), TypeError, "floats"),
    (lambda: Linear(5, 3)([1.0] * 5), TypeError, "x must be a Tensor"),
    (lambda: MLP([5]), ValueError, "sizes"),
    (lambda: MLP([5, 0, 3]), ValueError, "sizes[1] must be at least 1, got 0"),
    (lambda: MLP([5, 3], "gelu"), ValueError, "activation"),
    (lambda: MLP([5, 3], dropout=1.0), ValueError, "dropout"),
    (lambda: MLP([5, 3], dropout=-0.1), ValueError, "dropout"),
    (lambda: MLP([5, 3])(torch.zeros(2, 4)), ValueError, "last axis 5"),
    (lambda: Dense(0, 7), ValueError, "d_model"),
    (lambda: Dense(5, 0), ValueError, "length"),
    (lambda: Dense(5, 7)(torch.zeros(2, 8, 5)), ValueError, "7 that Dense was built for, got 8"),
    (lambda: Dense(5, 7)(torch.zeros(2, 6, 5)), ValueError, "7 that Dense was built for, got 6"),
    (lambda: Dense(5, 7)(torch.zeros(2, 7, 4)), ValueError, "last axis 5"),
    (lambda: Dense(5, 7)(torch.zeros(7, 5)), ValueError, "(B T D)"),
    (lambda: Dense(5, 7)(torch.zeros(2, 7, 5).half()), TypeError, "torch.float16"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()

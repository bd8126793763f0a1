import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tutorial_lib.recurrent import (
    CELLS,
    GRUCell,
    LSTMCell,
    Recurrent,
    RecurrentLayer,
    RNNCell,
    open_gates,
    record_gates,
)

NAMES = ("rnn", "lstm", "gru")
THEIR_CELLS = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
THEIR_LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
GATES = {
    "rnn": set(),
    "lstm": {"input", "forget", "candidate", "output"},
    "gru": {"reset", "update", "candidate"},
}
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
D, H, B, T = 5, 6, 3, 7  # input, state, batch, time


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def close(a, b, atol=1e-12):
    for one, other in zip(parts(a), parts(b), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def random_state(net, batch=B, **kwargs):
    shape = (net.num_layers * net.directions, batch, net.d_hidden)
    state = tuple(torch.randn(shape, **kwargs) for _ in range(CELLS[net.cell].parts))
    return state if net.cell == "lstm" else state[0]


def both_ways(net):
    return (net, lambda *args: net.forward_explicit(*args)[:2])


# --- the cells ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_is_pytorchs_cell(name, bias, device):
    theirs = THEIR_CELLS[name](D, H, bias=bias).double().to(device)
    ours = CELLS[name](D, H, bias=bias).double().to(device)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(B, D, dtype=torch.float64, device=device)
    state = tuple(torch.randn(2, B, H, dtype=torch.float64, device=device))
    state = state if name == "lstm" else state[0]
    close(ours(x), theirs(x))
    close(ours(x, state), theirs(x, state))


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_starts_from_pytorchs_numbers(name):
    torch.manual_seed(1)
    ours = CELLS[name](D, H)
    torch.manual_seed(1)
    theirs = THEIR_CELLS[name](D, H)
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def numpy_step(name, cell, x, h, c):
    """The documented formulas, block by block, in NumPy."""
    w, u, b, d = (p.detach().numpy() for p in cell.parameters())
    blocks = [slice(k * H, (k + 1) * H) for k in range(cell.blocks)]
    x_side = [w[k] @ x + b[k] for k in blocks]
    h_side = [u[k] @ h + d[k] for k in blocks]
    if name == "rnn":
        return (np.tanh(x_side[0] + h_side[0]),)
    if name == "gru":
        r, z = (sigmoid(x_side[k] + h_side[k]) for k in (0, 1))
        n = np.tanh(x_side[2] + r * h_side[2])
        return ((1 - z) * n + z * h,)
    i, f, o = (sigmoid(x_side[k] + h_side[k]) for k in (0, 1, 3))
    c = f * c + i * np.tanh(x_side[2] + h_side[2])
    return (o * np.tanh(c), c)


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_its_formula(name):
    cell = CELLS[name](D, H).double()
    x, h, c = torch.randn(D).double(), torch.randn(H).double(), torch.randn(H).double()
    state = (h[None], c[None]) if name == "lstm" else h[None]
    wanted = numpy_step(name, cell, x.numpy(), h.numpy(), c.numpy())
    for got, want in zip(parts(cell(x[None], state)), wanted, strict=True):
        np.testing.assert_allclose(got[0].detach().numpy(), want, atol=1e-12)


def test_the_reset_gate_acts_after_the_matrix_unlike_in_the_paper():
    cell = GRUCell(D, H).double()
    x, h = torch.randn(B, D).double(), torch.randn(B, H).double()
    w, u, b, d = cell.parameters()
    r, z = ((x @ w.T + b + h @ u.T + d).chunk(3, -1)[k].sigmoid() for k in (0, 1))
    n = torch.tanh(x @ w[2 * H :].T + b[2 * H :] + (r * h) @ u[2 * H :].T + d[2 * H :])
    assert ((1 - z) * n + z * h - cell(x, h)).abs().max() > 1e-3


def test_a_step_is_at_most_fifteen_lines():
    import inspect

    for cell in (RNNCell, LSTMCell, GRUCell):
        assert len(inspect.getsource(cell.step).splitlines()) <= 15


# --- the whole net against PyTorch's -----------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [None, (4, 7, 1)])
@pytest.mark.parametrize("start", [False, True])
def test_outputs_states_and_gradients_are_pytorchs(
    name, bias, bidirectional, lengths, start, device
):
    options = {"num_layers": 2, "bias": bias, "bidirectional": bidirectional}
    theirs = THEIR_LAYERS[name](D, H, batch_first=True, **options).double().to(device)
    net = Recurrent(name, D, H, **options).double().to(device)
    net.fused.load_state_dict(theirs.state_dict())
    x = torch.randn(B, T, D, dtype=torch.float64, device=device)
    state = random_state(net, dtype=torch.float64, device=device) if start else None

    given = x.clone().requires_grad_()
    if lengths is None:
        wanted, end = theirs(given, state)
    else:
        packed = pack_padded_sequence(given, torch.tensor(lengths), True, enforce_sorted=False)
        packed, end = theirs(packed, state)
        wanted, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=T)
    weights = torch.randn_like(wanted)
    ((wanted * weights).sum() + sum(part.square().sum() for part in parts(end))).backward()

    for way in both_ways(net):
        net.zero_grad()
        ours = x.clone().requires_grad_()
        outputs, last = way(ours, None if lengths is None else torch.tensor(lengths), state)
        ((outputs * weights).sum() + sum(part.square().sum() for part in parts(last))).backward()
        close(outputs, wanted)
        close(last, end)
        close(ours.grad, given.grad)
        for mine, yours in zip(net.fused.parameters(), theirs.parameters(), strict=True):
            close(mine.grad, yours.grad)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_fused_is_explicit_and_padded_is_alone(data):
    draw = data.draw
    name = draw(st.sampled_from(NAMES))
    d_in, d_hidden, layers = (
        draw(st.integers(1, 4)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 3)),
    )
    net = Recurrent(name, d_in, d_hidden, layers, draw(st.booleans())).double()
    longest = draw(st.integers(1, 8))
    lengths = torch.tensor(draw(st.lists(st.integers(0, longest), min_size=1, max_size=4)))
    x = torch.randn(len(lengths), longest, d_in).double()
    state = random_state(net, len(lengths), dtype=torch.float64) if draw(st.booleans()) else None
    outputs, end = net(x, lengths, state)
    explicit = net.forward_explicit(x, lengths, state)
    close(outputs, explicit[0])
    close(end, explicit[1])
    for b, length in enumerate(lengths.tolist()):
        own = None if state is None else tuple(part[:, b : b + 1] for part in parts(state))
        own = own[0] if own is not None and len(own) == 1 else own
        alone, last = net(x[b : b + 1, :length], None, own)
        close(outputs[b : b + 1, :length], alone)
        close(tuple(part[:, b : b + 1] for part in parts(end)), parts(last))
        assert (outputs[b, length:] == 0).all()


# --- padding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_what_stands_behind_a_length_changes_nothing_at_all(name, bidirectional, device):
    net = Recurrent(name, D, H, 2, bidirectional).to(device)
    lengths = torch.tensor([4, 0, 6])
    x = torch.randn(B, T, D, device=device)
    hidden = torch.arange(T)[None] >= lengths[:, None]
    for way in both_ways(net):
        results, gradients = [], []
        for junk in (0.0, 1e30, float("nan"), float("inf")):
            net.zero_grad()
            given = x.masked_fill(hidden[..., None].to(device), junk).requires_grad_()
            outputs, state = way(given, lengths)
            (outputs.square().sum() + sum(part.sum() for part in parts(state))).backward()
            results.append(torch.cat([outputs.flatten(), *(p.flatten() for p in parts(state))]))
            gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
            assert (given.grad[hidden] == 0).all()
            assert given.grad.isfinite().all()
        assert all(torch.equal(results[0], other) for other in results[1:])
        assert all(torch.equal(gradients[0], other) for other in gradients[1:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_by_five_more_leaves_the_sentence_vector(name, bidirectional, device):
    net = Recurrent(name, D, H, 2, bidirectional).to(device)
    x, lengths = torch.randn(B, T, D, device=device), torch.tensor([2, 7, 4])
    longer = torch.cat([x, torch.randn(B, 5, D, device=device)], dim=1)
    outputs, state = net(x, lengths)
    padded, state_padded = net(longer, lengths)
    close(padded[:, :T], outputs, 1e-6)
    assert (padded[:, T:] == 0).all()
    close(net.summary(state_padded), net.summary(state), 1e-6)
    for b, length in enumerate(lengths):
        alone = net(x[b : b + 1, :length])[1]
        close(net.summary(state)[b : b + 1], net.summary(alone), 1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_summary_is_where_each_direction_ends(name, bidirectional):
    net = Recurrent(name, D, H, 3, bidirectional)
    lengths = torch.tensor([2, 7, 4])
    outputs, state = net(torch.randn(B, T, D), lengths)
    ends = [outputs[torch.arange(B), lengths - 1, :H], outputs[:, 0, H:]]
    close(net.summary(state), torch.cat(ends[: net.directions], dim=-1), 1e-6)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_lengths_of_any_integer_type_and_device(dtype, device):
    net = Recurrent("gru", D, H).to(device)
    x = torch.randn(B, T, D, device=device)
    wanted = net(x, torch.tensor([3, 7, 5]))[0]
    assert torch.equal(net(x, torch.tensor([3, 7, 5], dtype=dtype, device=device))[0], wanted)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_read_leaves_the_state(name, device):
    net = Recurrent(name, D, H, 2, True).to(device)
    state = random_state(net, device=device)
    for way in both_ways(net):
        outputs, end = way(torch.randn(B, T, D, device=device), torch.zeros(B).int(), state)
        assert outputs.shape == (B, T, 2 * H)
        assert not outputs.any()
        close(end, state, 0)
        outputs, end = way(torch.randn(B, 0, D, device=device), None, state)
        assert outputs.shape == (B, 0, 2 * H)
        close(end, state, 0)
        none = tuple(part[:, :0] for part in parts(state))
        outputs, end = way(torch.randn(0, T, D, device=device), torch.zeros(0).int())
        assert outputs.shape == (0, T, 2 * H)
        assert parts(end)[0].shape == none[0].shape


@pytest.mark.parametrize("name", NAMES)
def test_read_in_two_pieces(name, device):
    net = Recurrent(name, D, H, 2).to(device)
    x = torch.randn(B, T, D, device=device)
    whole, end = net(x)
    first, state = net(x[:, :4])
    second, last = net(x[:, 4:], None, state)
    close(torch.cat([first, second], dim=1), whole, 1e-6)
    close(last, end, 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_one_direction_never_sees_the_future_two_do(name, device):
    x = torch.randn(B, T, D, device=device, requires_grad=True)
    for bidirectional in (False, True):
        net = Recurrent(name, D, H, 2, bidirectional).to(device)
        (gradient,) = torch.autograd.grad(net(x)[0][:, 3].sum(), x)
        assert (gradient[:, :4] != 0).any(-1).all()
        assert bool((gradient[:, 4:] != 0).any()) == bidirectional


# --- gates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_gates_are_those_of_the_run(name, device):
    model = nn.ModuleDict({"net": Recurrent(name, D, H, 2, True)}).to(device)
    net, x, lengths = model["net"], torch.randn(B, T, D, device=device), torch.tensor([4, 7, 0])
    with record_gates(model) as gates:
        recorded, state = net(x, lengths)
        with record_gates(net) as inner:
            net(x)
    outputs, end = net(x, lengths)
    close(recorded, outputs, 1e-6)
    close(state, end, 1e-6)
    assert list(gates) == ["net"]
    assert [len(gates["net"]), len(inner[""])] == [2, 1]
    assert set(gates["net"][0]) == GATES[name]
    for value in gates["net"][0].values():
        assert value.shape == (4, B, T, H)
        assert not value.requires_grad
        assert not value[:, 0, 4:].any()
        assert not value[:, 2].any()
    # The first layer's forward gates, with which the state can be followed by hand.
    _, first = net.cell_of().step(x[:, 0], *(torch.zeros(B, H, device=device),) * len(parts(end)))
    for key, value in first.items():
        close(gates["net"][0][key][0, :2, 0], value[:2], 1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gates_rebuild_the_outputs(name):
    net = Recurrent(name, D, H).double()
    outputs, _, gates = net.forward_explicit(torch.randn(B, T, D).double())
    g = {key: value[0] for key, value in gates.items()}
    h = c = torch.zeros(B, H).double()
    for t in range(T):
        if name == "lstm":
            c = g["forget"][:, t] * c + g["input"][:, t] * g["candidate"][:, t]
            h = g["output"][:, t] * c.tanh()
        else:
            h = (1 - g["update"][:, t]) * g["candidate"][:, t] + g["update"][:, t] * h
        close(outputs[:, t], h)


def test_the_cell_shares_the_nets_parameters():
    net = Recurrent("gru", D, H, 2, True)
    before = torch.random.get_rng_state()
    cell = net.cell_of(1, reverse=True)
    assert torch.equal(before, torch.random.get_rng_state())
    assert isinstance(cell, GRUCell)
    assert cell.weight_hh is net.fused.weight_hh_l1_reverse
    cell(torch.zeros(B, 2 * H)).sum().backward()
    assert net.fused.bias_ih_l1_reverse.grad.abs().sum() > 0
    assert len(list(net.parameters())) == 16


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_work_as_functions_of_their_parameters(name):
    net, x = Recurrent(name, D, H, 2, True).double(), torch.randn(B, T, D).double()
    other = {key: torch.randn_like(value) for key, value in net.named_parameters()}
    explicit = Explicit(net)
    fused = torch.func.functional_call(net, other, x)[0]
    assert not torch.allclose(fused, net(x)[0])
    other = {f"net.{key}": value for key, value in other.items()}
    close(torch.func.functional_call(explicit, other, x), fused)


class Explicit(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net.forward_explicit(x)[0]


@pytest.mark.parametrize("make", [Recurrent, None])
def test_open_gates_of_an_lstm(make, device):
    net = Recurrent("lstm", D, H, 2, True) if make else LSTMCell(D, H)
    before = copy.deepcopy(net.state_dict())
    assert open_gates(net.to(device), forget=2.5) is net
    for key, value in net.state_dict().items():
        if "bias" not in key:
            assert torch.equal(value.cpu(), before[key])
            continue
        wanted = 2.5 if "bias_ih" in key else 0.0
        assert (value[H : 2 * H] == wanted).all()
        rest = torch.cat([value[:H], value[2 * H :]]).cpu()
        assert torch.equal(rest, torch.cat([before[key][:H], before[key][2 * H :]]))


@pytest.mark.parametrize("make", [Recurrent, nn.GRU])
def test_open_gates_of_a_gru(make, device):
    net = (Recurrent("gru", D, H, 2) if make is Recurrent else nn.GRU(D, H, 2)).to(device)
    before = copy.deepcopy(net.state_dict())
    open_gates(net)
    for key, value in net.state_dict().items():
        if "bias" in key:
            assert (value[:H] == (3.0 if "bias_ih" in key else 0.0)).all()
            assert (value[H : 2 * H] == (-3.0 if "bias_ih" in key else 0.0)).all()
            assert torch.equal(value[2 * H :], before[key][2 * H :])
        elif "weight_hh" in key:
            close(value[2 * H :] @ value[2 * H :].T, torch.eye(H, device=device), 1e-5)
            assert torch.equal(value[: 2 * H], before[key][: 2 * H])
        else:
            assert torch.equal(value, before[key])
    again = copy.deepcopy(before)
    net.load_state_dict(again)
    open_gates(net, orthogonal=False)
    key = next(key for key in before if "weight_hh" in key)
    assert torch.equal(net.state_dict()[key], before[key])


@pytest.mark.parametrize(("name", "opened"), [("lstm", {}), ("gru", {"update": 3.0}), ("gru", {})])
def test_open_gates_keep_the_gradient_alive(name, opened):
    def gradient(net):
        x = torch.randn(1, 51, D, dtype=torch.float64, requires_grad=True)
        outputs, _ = net.double()(x)
        return torch.autograd.grad(outputs[:, -1].sum(), x)[0][:, 0].norm()

    net = Recurrent(name, D, 16)
    closed = gradient(net)
    assert gradient(open_gates(net, **opened)) > 1e5 * closed


# --- numbers, devices, copies ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(name, dtype, device):
    net = Recurrent(name, D, H, 2, True).to(device, dtype)
    x = torch.randn(B, T, D, device=device, dtype=dtype, requires_grad=True)
    reference = copy.deepcopy(net).double()
    for lengths in (None, torch.tensor([4, 0, 7])):
        wanted, _ = reference(x.double(), lengths)
        for way in both_ways(net):
            net.zero_grad()
            outputs, state = way(x, lengths)
            outputs.sum().backward()
            assert {outputs.dtype, *(part.dtype for part in parts(state))} == {dtype}
            assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in net.parameters())
            atol = 64 * torch.finfo(dtype).eps
            torch.testing.assert_close(outputs.double(), wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lengths", [None, (4, 0, 7), (4, 4, 4)])
def test_autocast(name, dtype, lengths, device):
    net = Recurrent(name, D, H, 2).to(device)
    x = torch.randn(B, T, D, device=device)
    lengths = None if lengths is None else torch.tensor(lengths)
    wanted, _ = net(x, lengths)
    with torch.autocast(device.type, dtype):
        for way in both_ways(net):
            for given in (x, x.to(dtype)):
                net.zero_grad()
                outputs, state = way(given, lengths)
                again, _ = way(given, lengths, state)  # its own state, in whatever dtype
                (outputs.float().sum() + again.float().sum()).backward()
                torch.testing.assert_close(outputs.float(), wanted, rtol=0, atol=0.03)
                assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_checkpoints(name, device):
    net = Recurrent(name, D, H, 2, True).to(device)
    x, lengths = torch.randn(B, T, D, device=device), torch.tensor([4, 7, 1])
    wanted, _ = net(x, lengths)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    fresh = Recurrent(name, D, H, 2, True)
    fresh.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
    for other in (copy.deepcopy(net), fresh.to(device)):
        assert torch.equal(other(x, lengths)[0], wanted)
        assert not {id(p) for p in other.parameters()} & {id(p) for p in net.parameters()}
        other(x)[0].sum().backward()
        assert all(p.grad is not None for p in other.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_in_eval_mode_and_dropout_in_training_alone(name, device):
    net = Recurrent(name, D, H, 2, dropout=0.5).to(device)
    x = torch.randn(B, T, D, device=device, requires_grad=True)
    for way in both_ways(net):
        assert not torch.equal(way(x)[0], way(x)[0])
        net.eval()
        assert torch.equal(way(x)[0], way(x)[0])
        for lengths in (None, torch.tensor([4, 0, 7])):
            (gradient,) = torch.autograd.grad(way(x, lengths)[0].sum(), x)
            assert gradient[0].any()
        net.train()
    still = Recurrent(name, D, H, 2).to(device)
    assert torch.equal(still(x)[0], still.eval()(x)[0])


@pytest.mark.parametrize("cell", [*NAMES, *CELLS.values()])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("d_model", "d_hidden"), [(6, None), (5, None), (6, 4)])
def test_the_layer_keeps_the_shape(cell, bidirectional, d_model, d_hidden, device):
    layer = RecurrentLayer(d_model, cell, bidirectional, d_hidden).to(device)
    x, lengths = torch.randn(B, T, d_model, device=device), torch.tensor([4, 0, 7])
    y = layer(x, lengths)
    assert y.shape == x.shape
    default = {(6, False): 6, (6, True): 3, (5, False): 5, (5, True): 3}[d_model, bidirectional]
    assert layer.recurrent.d_hidden == (d_hidden or default)
    assert not y[0, 4:].any()
    assert not y[1].any()
    assert y[0, :4].all()
    layer(x).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


# --- bad input ---------------------------------------------------------------------------------

X, STATE = torch.zeros(B, T, D), torch.zeros(1, B, H)
BAD = [
    (lambda: Recurrent("elman", D, H), ValueError, "cell must be one of .*got 'elman'"),
    (lambda: Recurrent(nn.GRU, D, H), ValueError, "cell must be one of"),
    (lambda: Recurrent("gru", 0, H), ValueError, "d_in must be at least 1, got 0"),
    (lambda: Recurrent("gru", D, 2.0), TypeError, "d_hidden must be an int"),
    (lambda: Recurrent("gru", D, H, 0), ValueError, "num_layers"),
    (lambda: Recurrent("gru", D, H, dropout=1.0), ValueError, "dropout .*below 1.0, got 1.0"),
    (lambda: GRUCell(D, -1), ValueError, "d_hidden must be at least 1, got -1"),
    (lambda: GRUCell(D, H)(X), ValueError, r"x must have shape \(B D_in\)"),
    (lambda: GRUCell(D, H)(X[:, 0], X[0]), ValueError, r"state must be a Tensor of shape \(3, 6\)"),
    (lambda: LSTMCell(D, H)(X[:, 0], STATE[0]), TypeError, r"state must be a pair \(h, c\)"),
    (lambda: RecurrentLayer(0), ValueError, "d_model must be at least 1, got 0"),
    (lambda: RecurrentLayer(D, d_hidden=0), ValueError, "d_hidden must be at least 1, got 0"),
    (lambda: Recurrent("gru", D, H)([1.0]), TypeError, "x must be a Tensor"),
    (lambda: Recurrent("gru", D, H)(X[0]), ValueError, r"x must have shape \(B T D_in\)"),
    (lambda: Recurrent("gru", D, H)(X[..., :4]), ValueError, "x must have last axis 5"),
    (lambda: Recurrent("gru", D, H)(X.long()), TypeError, "x must hold floats"),
    (lambda: Recurrent("gru", D, H)(X.double()), TypeError, "x must have the dtype"),
    (lambda: Recurrent("gru", D, H)(X, [1, 2, 3]), TypeError, "lengths must be a Tensor"),
    (lambda: Recurrent("gru", D, H)(X, torch.ones(B)), TypeError, "lengths must hold integer"),
    (lambda: Recurrent("gru", D, H)(X, torch.ones(B).bool()), TypeError, "lengths must hold"),
    (
        lambda: Recurrent("gru", D, H)(X, torch.ones(2).int()),
        ValueError,
        r"shape \(3,\), got \(2,\)",
    ),
    (lambda: Recurrent("gru", D, H)(X, torch.tensor([1, 8, 2])), ValueError, "0 to 7, got 8"),
    (lambda: Recurrent("gru", D, H)(X, torch.tensor([1, -1, 2])), ValueError, "0 to 7, got -1"),
    (lambda: Recurrent("gru", D, H)(X, None, STATE[:, :2]), ValueError, r"state .*\(1, 3, 6\)"),
    (lambda: Recurrent("gru", D, H)(X, None, (STATE, STATE)), TypeError, "state must be a Tensor"),
    (
        lambda: Recurrent("gru", D, H)(X, None, STATE.double()),
        TypeError,
        "state must have the dtype",
    ),
    (lambda: Recurrent("lstm", D, H)(X, None, STATE), TypeError, r"state must be a pair \(h, c\)"),
    (lambda: Recurrent("gru", D, H)(X, None, STATE.to("meta")), ValueError, "on cpu, got .*meta"),
    (lambda: Recurrent("gru", D, H).cell_of(1), ValueError, "layer must be one of"),
    (lambda: Recurrent("gru", D, H).cell_of(0, True), ValueError, "reverse must be one of"),
    (
        lambda: record_gates(nn.Linear(D, H)).__enter__(),
        ValueError,
        "a Recurrent in it, got Linear",
    ),
    (lambda: record_gates("net").__enter__(), TypeError, "model must be an nn.Module, got str"),
    (lambda: open_gates(nn.Linear(D, H)), ValueError, "an LSTM or a GRU with biases, got Linear"),
    (lambda: open_gates(Recurrent("rnn", D, H)), ValueError, "an LSTM or a GRU"),
    (lambda: open_gates(Recurrent("gru", D, H, bias=False)), ValueError, "with biases"),
    (lambda: open_gates(GRUCell(D, H), reset=float("nan")), ValueError, "reset"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.bad_input
def test_an_error_leaves_the_net_usable_and_is_the_explicit_ways_too():
    net = Recurrent("gru", D, H)
    for way in both_ways(net):
        with pytest.raises(ValueError, match="lengths"):
            way(X, torch.tensor([1, 8, 2]))
        assert way(X)[0].shape == (B, T, H)
    with record_gates(net) as outer:
        with record_gates(net):
            pass  # nothing ran: two equal lists, one of which must stay
        net(X)
    assert len(outer[""]) == 1
    with pytest.raises(RuntimeError, match="stop"), record_gates(net):
        raise RuntimeError("stop")
    assert net.sinks == []

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tutorial_lib.attention import MultiHeadAttention, record_attention
from tutorial_lib.convolution import ConvolutionLayer
from tutorial_lib.dense import Dense, Linear
from tutorial_lib.layers import (
    AttentionLayer,
    LayerReport,
    LowRankDense,
    TokenClassifier,
    describe,
    layers_between_ends,
    markdown_table,
    operations,
    sequence_layers,
    table_rows,
    who_looks_at_whom,
)
from tutorial_lib.positions import Learned, Sinusoidal
from tutorial_lib.recurrent import Recurrent, RecurrentLayer

B, T, D, HEADS = 2, 7, 12, 3
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def plain(causal):
    """Every sequence layer of the package, at its natural size."""
    return {
        "dense": Dense(D, T, causal),
        "low rank": LowRankDense(D, T, rank=5, causal=causal),
        "convolution": ConvolutionLayer(D, 3, causal),
        "dilated": ConvolutionLayer(D, 3, causal, dilation=2),
        "rnn": RecurrentLayer(D, "rnn", not causal),
        "lstm": RecurrentLayer(D, "lstm", not causal),
        "gru": RecurrentLayer(D, "gru", not causal, d_hidden=4),
        "attention": AttentionLayer(D, HEADS, causal=causal),
        "grouped": AttentionLayer(D, HEADS, num_kv_heads=1, causal=causal),
    }


def fitted(causal):
    return sequence_layers(D, T, causal=causal, num_heads=HEADS)


CASES = [
    pytest.param(make, causal, name, id=f"{make.__name__}-{name}-{'causal' if causal else 'both'}")
    for make in (plain, fitted)
    for causal in (False, True)
    for name in make(causal)
]
every_layer = pytest.mark.parametrize(("make", "causal", "name"), CASES)


# --- the protocol ------------------------------------------------------------------------------


@every_layer
def test_shape_in_is_shape_out_and_every_parameter_learns(make, causal, name, device):
    layer = make(causal)[name].to(device)
    x = torch.randn(B, T, D, device=device)
    y = layer(x)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert y.device == x.device
    y.square().sum().backward()
    learns = {key: bool(p.grad.abs().sum() > 0) for key, p in layer.named_parameters()}
    # A constant in the keys shifts a row's scores alike, and softmax does not see it.
    assert all(value for key, value in learns.items() if not key.endswith("key.bias"))


@every_layer
def test_the_future_is_hidden_exactly_where_causal_says_so(make, causal, name, device):
    layer = make(causal)[name].to(device)
    x = torch.randn(B, T, D, device=device, requires_grad=True)
    place = 3
    (gradient,) = torch.autograd.grad(layer(x)[:, place].sum(), x)
    future = gradient[:, place + 1 :]
    assert (future == 0).all() == causal
    assert (gradient[:, place] != 0).any(-1).all()
    if causal:
        changed = x.detach().clone()
        changed[:, place + 1 :] = torch.randn_like(changed[:, place + 1 :])
        assert torch.equal(layer(changed)[:, : place + 1], layer(x)[:, : place + 1])


@every_layer
def test_it_sees_its_field_and_nothing_else(make, causal, name):
    i, j = torch.arange(T)[:, None], torch.arange(T)
    step = 2 if name == "dilated" else 1
    reach = 2 * step if causal else step
    window = ((i - j).abs() <= reach) & ((i - j) % step == 0)
    wanted = window if name in ("convolution", "dilated") else torch.ones(T, T).bool()
    if causal:
        wanted = wanted & (j <= i)
    layer = make(causal)[name]
    assert torch.equal(who_looks_at_whom(layer, D, T), wanted)


@every_layer
def test_a_batch_of_two_is_two_alone(make, causal, name, device):
    layer = make(causal)[name].to(device)
    x = torch.randn(B, T, D, device=device)
    alone = torch.cat([layer(x[:1]), layer(x[1:])])
    torch.testing.assert_close(layer(x), alone, rtol=0, atol=1e-5)


@every_layer
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_copy(make, causal, name, dtype, device):
    layer = make(causal)[name].to(device, dtype)
    x = torch.randn(B, T, D, device=device, dtype=dtype)
    y = layer(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    exact = copy.deepcopy(layer).double()(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=100 * torch.finfo(dtype).eps)


@every_layer
def test_autocast_and_eval(make, causal, name, device):
    layer = make(causal)[name].to(device)
    x = torch.randn(B, T, D, device=device)
    wanted = layer(x)
    assert torch.equal(layer.eval()(x), wanted)
    with torch.autocast(device.type, torch.bfloat16):
        y = layer(x)
    torch.testing.assert_close(y.float(), wanted, rtol=0, atol=0.1)
    if name not in ("rnn", "lstm", "gru", "recurrent"):  # PyTorch's own choice, cell by cell
        assert y.dtype == torch.bfloat16


@every_layer
def test_state_dict_goes_into_a_fresh_layer(make, causal, name, device):
    layer, fresh = make(causal)[name].to(device), make(causal)[name].to(device)
    x = torch.randn(B, T, D, device=device)
    assert not torch.equal(fresh(x), layer(x))
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))


# --- the low-rank dense layer ------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_low_rank_is_a_dense_layer_with_that_matrix(causal, device):
    layer = LowRankDense(D, T, rank=5, causal=causal).double().to(device)
    nn.init.normal_(layer.bias)
    dense = Dense(D, T, causal).double().to(device)
    blocks = torch.einsum("sdr,tre->tesd", layer.write, layer.read)  # (T, D, S, D)
    with torch.no_grad():
        dense.weight.copy_(blocks.reshape(T * D, T * D))  # Dense hides the future by itself
        dense.bias.copy_(layer.bias.flatten())
    x = torch.randn(B, T, D, device=device, dtype=torch.float64)
    torch.testing.assert_close(layer(x), dense(x))
    if not causal:
        assert torch.linalg.matrix_rank(dense.weight) == 5


def test_low_rank_starts_at_the_size_of_a_linear_layers_outputs():
    x = torch.randn(200, 40, 24)
    wanted = nn.Linear(24, 24)(x).std()
    for causal in (False, True):
        y = LowRankDense(24, 40, rank=16, causal=causal)(x)
        for place in (0, 20, 39):
            assert 0.4 < y[:, place].std() / wanted < 2.5


# --- five of equal size ------------------------------------------------------------------------


@pytest.mark.parametrize(("d_model", "length"), [(12, 7), (24, 200), (32, 16), (64, 512), (96, 24)])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("causal", [False, True])
def test_five_layers_of_about_equal_size(d_model, length, cell, causal):
    layers = sequence_layers(d_model, length, causal=causal, cell=cell)
    assert list(layers) == ["dense", "convolution", "dilated", "recurrent", "attention"]
    wanted = 4 * d_model**2 + 4 * d_model
    for layer in layers.values():
        count = sum(p.numel() for p in layer.parameters())
        assert abs(count - wanted) <= 0.15 * wanted


@pytest.mark.parametrize(("d_model", "length"), [(24, 11), (32, 16), (16, 40)])
def test_the_dense_layer_is_the_one_through_which_most_numbers_pass(d_model, length):
    budget = 4 * d_model**2 + 4 * d_model

    def parameters(width, rank):
        return 2 * d_model * width + width + d_model + (2 * rank + 1) * length * width

    fitting = [
        rank
        for width in range(1, d_model + 1)
        for rank in range(1, length * width + 1)
        if abs(parameters(width, rank) - budget) <= length * width  # half of what one rank costs
    ]
    assert sequence_layers(d_model, length)["dense"][1].rank == max(fitting)


def test_the_sizes_asked_for_are_the_sizes_built():
    layers = sequence_layers(
        36, 9, causal=True, num_heads=6, kernel_size=4, dilation=5, cell="lstm"
    )
    assert layers["attention"].attention.num_heads == 6
    assert layers["convolution"][1].conv.weight.shape[-1] == 4
    assert layers["dilated"][1].before == 15
    assert layers["recurrent"].recurrent.cell == "lstm"
    assert not layers["recurrent"].recurrent.bidirectional
    assert sequence_layers(36, 9)["recurrent"].recurrent.bidirectional


def test_no_random_number_is_drawn_but_for_the_weights():
    torch.manual_seed(3)
    first = sequence_layers(32, 16)
    after = torch.rand(1)
    torch.manual_seed(3)
    AttentionLayer(32, 4)
    dense = first["dense"][1]
    Linear(32, dense.d_model), LowRankDense(dense.d_model, 16, dense.rank)
    Linear(dense.d_model, 32)
    for name in ("convolution", "dilated"):
        width = first[name][1].conv.weight.shape[0]
        Linear(32, width), ConvolutionLayer(width, 3), Linear(width, 32)
    RecurrentLayer(32, "gru", True, first["recurrent"].recurrent.d_hidden)
    assert torch.equal(torch.rand(1), after)


# --- what is looked at -------------------------------------------------------------------------


def test_looking_leaves_layer_and_random_numbers_as_they_were():
    layer = plain(False)["gru"].train()
    before, state = copy.deepcopy(layer.state_dict()), torch.random.get_rng_state()
    with torch.no_grad():
        who_looks_at_whom(layer, D, T)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert layer.training
    for key, value in layer.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(p.grad is None for p in layer.parameters())


def test_looking_works_in_pieces_and_on_any_layer():
    looks = who_looks_at_whom(ConvolutionLayer(4, 3), d_model=4, length=70)  # more than 32 rows
    i, j = torch.arange(70)[:, None], torch.arange(70)
    assert torch.equal(looks, (i - j).abs() <= 1)
    assert torch.equal(who_looks_at_whom(nn.Linear(4, 4), 4, T), torch.eye(T).bool())
    stack = nn.Sequential(ConvolutionLayer(4, 3), nn.ReLU(), ConvolutionLayer(4, 5, dilation=3))
    assert who_looks_at_whom(stack, 4, 40)[20].sum() == 3 * 5
    # A plain recurrent net's gradient at this distance is beyond float32.
    assert who_looks_at_whom(RecurrentLayer(4, "gru"), 4, 200).sum() == 200 * 201 / 2


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (5, 1), (3, 2), (3, 3), (1, 1)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 13])
def test_a_convolutions_path_is_the_formula(kernel, dilation, causal, length):
    reach = (kernel - 1) * dilation // (1 if causal else 2)
    report = describe(ConvolutionLayer(3, kernel, causal, dilation), 3, length)
    if length == 1:
        wanted = 1
    elif reach == 0 or (length - 1) % dilation:
        wanted = None
    else:
        wanted = -(-(length - 1) // reach)
    assert report.path_length == wanted
    # Stacked so often, the gradient arrives; one layer less, and it does not.
    for layers in () if wanted is None else (wanted, wanted - 1):
        stack = nn.Sequential(
            *(ConvolutionLayer(3, kernel, causal, dilation) for _ in range(layers))
        )
        arrives = bool(who_looks_at_whom(stack, 3, length)[-1, 0])
        assert arrives == (layers == wanted or length == 1)


# --- the report --------------------------------------------------------------------------------


def test_reports():
    causal, both = plain(True), plain(False)
    attention = describe(both["attention"], D, T)
    assert attention == LayerReport(
        looks_at="everything",
        decided_by="the input itself, at run time",
        parameters=4 * D * D + 4 * D,
        receptive_field=T,
        path_length=1,
        path_unit="layers",
        operations=4 * T * D * D + 2 * T * T * D,
    )
    assert describe(causal["attention"], D, T).looks_at == "everything (none after *i*)"
    dense = describe(both["dense"], D, T)
    assert (dense.parameters, dense.operations) == ((T * D) ** 2 + T * D, (T * D) ** 2)
    assert (dense.receptive_field, dense.path_length, dense.path_unit) == (T, 1, "layers")
    low = describe(causal["low rank"], D, T)
    assert (low.parameters, low.operations) == (2 * 5 * T * D + T * D, 2 * 5 * T * D)
    convolution = describe(both["convolution"], D, T)
    assert (convolution.receptive_field, convolution.path_length) == (3, T - 1)
    assert (convolution.parameters, convolution.operations) == (3 * D * D + D, 3 * T * D * D)
    assert describe(both["dilated"], D, T).receptive_field == 5
    for name, blocks in (("rnn", 1), ("lstm", 4)):
        report = describe(causal[name], D, T)
        assert report.operations == T * blocks * 2 * D * D
        assert (report.receptive_field, report.path_length, report.path_unit) == (T, T, "steps")
        assert report.looks_at == "*i* and its own last output"
        assert ("gates" in report.decided_by) == (name == "lstm")
    assert "both directions" in describe(both["lstm"], D, T).looks_at


@every_layer
def test_operations_are_what_pytorch_counts(make, causal, name):
    layer = make(causal)[name].eval()
    for module in layer.modules():  # PyTorch does not count its own fused LSTM
        if isinstance(module, Recurrent):
            module.forward = lambda x, lengths, net=module: net.forward_explicit(x, lengths)[:2]
    # Nor its fused attention on the CPU: recording takes the way that writes the matrix out.
    with record_attention(layer), FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.randn(1, T, D))
    assert operations(layer, T) == counter.get_total_flops() / 2


def test_the_books_table():
    rows = table_rows(fitted(False), D, T)
    assert [row["layer"] for row in rows] == list(fitted(False))
    assert [row["path between the ends"] for row in rows] == [
        "1 layer",
        "6 layers",
        "3 layers",
        "7 steps",
        "1 layer",
    ]
    assert [row["receptive field"] for row in rows] == [T, 3, 5, T, T]
    text = markdown_table(rows).splitlines()
    assert len(text) == 2 + len(rows)
    assert {line.count("|") for line in text} == {1 + len(rows[0])}
    skipping = table_rows({"dilated": ConvolutionLayer(D, 3, dilation=2)}, D, 8)
    assert skipping[0]["path between the ends"] == "none"


# --- a model over tokens -----------------------------------------------------------------------


@every_layer
def test_token_classifier_is_embedding_layer_head(make, causal, name, device):
    model = TokenClassifier(11, D, make(causal)[name], num_classes=4).to(device)
    tokens = torch.randint(11, (B, T), device=device)
    by_hand = model.embedding.weight[tokens]  # (B, T, D)
    wanted = model.layer(by_hand) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(tokens), wanted)
    assert model(tokens).shape == (B, T, 4)
    alone = torch.cat([model(row[None]) for row in tokens])
    torch.testing.assert_close(model(tokens), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [lambda: Learned(D, 9), lambda: Sinusoidal(D)])
def test_token_classifier_adds_positions(make, device):
    layer, positions = AttentionLayer(D, HEADS), make()
    model = TokenClassifier(11, D, layer, 4, positions).to(device)
    without = TokenClassifier(11, D, layer, 4).to(device)
    without.embedding, without.head = model.embedding, model.head
    tokens = torch.randint(11, (B, T), device=device)
    order = torch.arange(T - 1, -1, -1, device=device)
    # Without positions attention does not see the order: shuffled tokens, shuffled answers.
    shuffled = without(tokens[:, order])[:, order]
    torch.testing.assert_close(shuffled, without(tokens), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(tokens[:, order])[:, order], model(tokens), atol=1e-4)
    x = model.embedding(tokens) + positions(torch.arange(T, device=device))
    torch.testing.assert_close(model(tokens), model.head(layer(x)))
    model(tokens).square().sum().backward()
    assert all(p.grad is not None for p in positions.parameters())


# --- bad input ---------------------------------------------------------------------------------

BAD = [
    (lambda: TokenClassifier(0, D, nn.Identity(), 4), ValueError, "vocab_size must be at least 1"),
    (lambda: TokenClassifier(9, D, "gru", 4), TypeError, "layer must be an nn.Module, got str"),
    (
        lambda: TokenClassifier(9, D, nn.Identity(), 4, positions=T),
        TypeError,
        "positions must be an nn.Module, got int",
    ),
    (
        lambda: TokenClassifier(9, D, nn.Identity(), 4)(torch.tensor([[9]])),
        ValueError,
        "tokens must hold ids from 0 to 8, got 9",
    ),
    (
        lambda: TokenClassifier(9, D, nn.Identity(), 4)(torch.tensor([1, 2])),
        ValueError,
        r"tokens must have shape \(B T\)",
    ),
    (
        lambda: TokenClassifier(9, D, nn.Identity(), 4, Learned(D, 2))(torch.zeros(1, 3).long()),
        ValueError,
        "2",
    ),
    (lambda: LowRankDense(D, T, 0), ValueError, "rank must be at least 1, got 0"),
    (lambda: LowRankDense(D, 2.0, 1), TypeError, "length must be an int"),
    (lambda: LowRankDense(D, T, 2)(torch.zeros(B, 8, D)), ValueError, "length 7, got 8"),
    (lambda: LowRankDense(D, T, 2)(torch.zeros(B, T, 5)), ValueError, "x must have last axis 12"),
    (lambda: LowRankDense(D, T, 2)(torch.zeros(T, D)), ValueError, r"x must have shape \(B T D\)"),
    (lambda: LowRankDense(D, T, 2)(torch.zeros(B, T, D).long()), TypeError, "x must hold floats"),
    (lambda: AttentionLayer(D, 5), ValueError, "num_heads must divide d_model"),
    (lambda: sequence_layers(0, T), ValueError, "d_model must be at least 1, got 0"),
    (lambda: sequence_layers(D, T, num_heads=5), ValueError, "num_heads must divide"),
    (lambda: sequence_layers(D, T, kernel_size=4), ValueError, "kernel_size must be odd"),
    (lambda: sequence_layers(D, T, cell="elman"), ValueError, "cell must be one of"),
    (lambda: sequence_layers(8, 900), ValueError, "d_model must be larger .*288 .* dense"),
    (lambda: who_looks_at_whom("x", D, T), TypeError, "layer must be an nn.Module, got str"),
    (lambda: who_looks_at_whom(nn.Linear(D, 5), D, T), ValueError, "the shape it takes"),
    (lambda: describe(nn.Linear(D, D), D, T), TypeError, "one sequence layer in it, got 0"),
    (
        lambda: describe(nn.Sequential(*plain(True).values()), D, T),
        TypeError,
        "one sequence layer in it, got 9",
    ),
    (lambda: layers_between_ends(torch.ones(T, T)), TypeError, "looks must be boolean"),
    (lambda: layers_between_ends(torch.ones(T, 2).bool()), ValueError, r"\(T, T\), got \(7, 2\)"),
    (lambda: operations(nn.Conv1d(D, D, 3), T), TypeError, "sequence and linear layers"),
    (lambda: operations(MultiHeadAttention(D, HEADS), 0), ValueError, "length must be at least 1"),
    (lambda: markdown_table([]), ValueError, "at least one row, got none"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()

"""Two texts, one written or both compared: against oracles, and by laws."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tutorial_lib.attention import DotProductAttention, record_attention
from tutorial_lib.seq2seq import (
    PairMatcher,
    RecurrentTranslator,
    exact_matches,
    teacher_forcing,
)
from tutorial_lib.training import cross_entropy

KINDS = ("none", "additive", "dot")
VS, VT, D, H = 11, 13, 5, 6  # the two vocabularies, embedding, state
B, S, T = 3, 7, 4
BOS, EOS = 12, 9
LENGTHS = torch.tensor([7, 2, 5])
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

each_kind = pytest.mark.parametrize("kind", KINDS)


def translator(kind, device="cpu", dtype=torch.float64):
    return RecurrentTranslator(VS, VT, D, H, kind).to(device, dtype)


def matcher(kind, device="cpu", dtype=torch.float64):
    return PairMatcher(VS, VT, D, H, kind, num_classes=4).to(device, dtype)


def texts(device="cpu"):
    source, target_in = torch.randint(VS, (B, S)), torch.randint(VT, (B, T))
    return source.to(device), LENGTHS.to(device), target_in.to(device)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


# --- targets -----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 7), max_size=5), min_size=1, max_size=4))
def test_inputs_and_targets_are_one_text_one_place_apart(ids):
    inputs, targets = teacher_forcing(ids, BOS, EOS)
    assert inputs.shape == targets.shape == (len(ids), max(map(len, ids)) + 1)
    for row, aim, text in zip(inputs.tolist(), targets.tolist(), ids, strict=True):
        n = len(text)
        assert row[: n + 1] == [BOS, *text]
        assert aim[: n + 1] == [*text, EOS]
        assert row[n + 1 :] == [EOS] * (len(row) - n - 1)
        assert aim[n + 1 :] == [-100] * (len(row) - n - 1)
        assert row[1 : n + 1] == aim[:n]


def test_what_stands_behind_the_end_is_not_compared(device):
    target = torch.tensor([[5, 6, 9, -100], [7, 9, -100, -100], [7, 8, 5, 9]], device=device)
    for width in (4, 6):
        written = torch.tensor([[5, 6, 9, 3, 9, 9], [7, 9, 9, 9, 9, 9], [7, 8, 5, 9, 0, 0]])
        written = written[:, :width].to(device)
        assert exact_matches(written, target, EOS).tolist() == [True, True, True]
    short = torch.tensor([[5, 6], [7, 9], [7, 8]], device=device)
    assert exact_matches(short, target, EOS).tolist() == [False, True, False]
    endless = torch.tensor([[5, 6, 3, 9], [7, 7, 9, 9], [7, 8, 5, 5]], device=device)
    assert not exact_matches(endless, target, EOS).any()


# --- the dot product ---------------------------------------------------------------------------


def test_the_dot_product_is_pytorchs(device):
    attention = DotProductAttention(4, 6, 5).double().to(device)
    query = torch.randn(2, 3, 4, dtype=torch.float64, device=device)
    key = torch.randn(2, 7, 6, dtype=torch.float64, device=device)
    mask = (torch.tensor([7, 2], device=device)[:, None] > torch.arange(7, device=device))[:, None]
    output, weights = attention(query, key, mask=mask[:, None])
    q, k = attention.query(query), attention.key(key)
    close(output, F.scaled_dot_product_attention(q, k, key, mask))
    close(weights @ key, output)
    close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert (weights[1, :, 2:] == 0).all()
    again, _ = attention(query, key, mask=mask[:, None], projected_key=k)
    assert torch.equal(again, output)


# --- the translator ----------------------------------------------------------------------------


def by_pytorch(net, source, lengths, target_in):
    """One text after the other, by PyTorch's own layers, without any padding."""
    encoder = nn.GRU(D, H // 2, batch_first=True, bidirectional=True).to(source.device).double()
    decoder = nn.GRUCell(D, H).to(source.device).double()
    encoder.load_state_dict(net.encoder.fused.state_dict())
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    decoder.load_state_dict({n: getattr(net.decoder.fused, f"{n}_l0") for n in names})
    rows = []
    for text, length, words in zip(source, lengths.tolist(), target_in, strict=True):
        h, last = encoder(net.source_embedding(text[None, :length]))
        s, row = torch.tanh(net.bridge(last.transpose(0, 1).flatten(1))), []
        for word in words:
            s = decoder(net.target_embedding(word[None]), s)
            seen = s
            if isinstance(net.attention, DotProductAttention):
                scores = net.attention.key(h[0]) @ net.attention.query(s[0]) / H**0.5
            elif net.attention is not None:
                hidden = torch.tanh(net.attention.query(s) + net.attention.key(h[0]))
                scores = net.attention.score(hidden)[:, 0]
            if net.attention is not None:
                c = torch.softmax(scores, 0) @ h[0]
                seen = torch.tanh(net.combine(torch.cat([s, c[None]], 1)))
            row.append(net.output(seen)[0])
        rows.append(torch.stack(row))
    return torch.stack(rows)


@each_kind
def test_the_translator_is_what_pytorchs_cells_make_of_each_text_alone(kind, device):
    net, (source, lengths, target_in) = translator(kind, device), texts(device)
    close(net(source, lengths, target_in), by_pytorch(net, source, lengths, target_in))


@each_kind
def test_all_steps_at_once_are_single_steps_with_the_right_words(kind, device):
    net, (source, lengths, target_in) = translator(kind, device), texts(device)
    state, rows = net.start(source, lengths), []
    for t in range(T):
        logits, state = net.step(target_in[:, t], state)
        rows.append(logits)
    close(net(source, lengths, target_in), torch.stack(rows, 1))
    half, state = net.decode(target_in[:, :2], net.start(source, lengths))
    rest, _ = net.decode(target_in[:, 2:], state)
    close(torch.cat([half, rest], 1), torch.stack(rows, 1))


@each_kind
def test_padding_and_later_words_change_nothing(kind, device):
    net, (source, lengths, target_in) = translator(kind, device), texts(device)
    logits = net(source, lengths, target_in)
    other = torch.where(torch.arange(S, device=device) >= lengths[:, None], 3, source)
    assert torch.equal(net(other, lengths, target_in), logits)
    later = target_in.clone()
    later[:, 2:] = 5
    assert torch.equal(net(source, lengths, later)[:, :2], logits[:, :2])
    wider = F.pad(source, (0, 4), value=1)
    close(net(wider, lengths, target_in), logits)
    full = torch.full_like(lengths, S)
    close(net(source, full, target_in), net(source, None, target_in))
    moved = source.clone()
    moved[:, 0] = (moved[:, 0] + 1) % VS
    assert not torch.allclose(net(moved, lengths, target_in), logits)


@each_kind
def test_a_batch_is_its_texts_alone(kind, device):
    net, (source, lengths, target_in) = translator(kind, device), texts(device)
    together = net(source, lengths, target_in)
    for i in range(B):
        alone = net(source[i : i + 1, : lengths[i]], lengths[i : i + 1], target_in[i : i + 1])
        close(together[i : i + 1], alone)


@each_kind
def test_every_parameter_gets_a_gradient(kind, device):
    net, (source, lengths, target_in) = translator(kind, device), texts(device)
    cross_entropy(net(source, lengths, target_in), target_in.roll(-1, 1)).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(kind, dtype, device):
    net, (source, lengths, target_in) = translator(kind, device, dtype), texts(device)
    logits = net(source, lengths, target_in)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    assert net.translate(source, lengths, bos=BOS, eos=EOS, max_length=3).dtype == torch.int64


@each_kind
def test_autocast(kind, device):
    net, (source, lengths, target_in) = translator(kind, device, torch.float32), texts(device)
    exact = net(source, lengths, target_in)
    with torch.autocast(device.type, torch.bfloat16):
        close(net(source, lengths, target_in).float(), exact, atol=0.05)


@each_kind
def test_translate_is_greedy_ends_and_leaves_no_trace(kind, device):
    net, (source, lengths, _) = translator(kind, device), texts(device)
    with torch.no_grad():
        net.output.weight.mul_(20)  # so that the texts differ, and some of them end
    for training in (True, False):
        net.train(training)
        before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
        written = net.translate(source, lengths, bos=BOS, eos=EOS, max_length=9)
        assert net.training is training
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert 1 <= written.shape[1] <= 9
    told = F.pad(written, (1, 0), value=BOS)[:, :-1]
    best = net(source, lengths, told).argmax(-1)
    for row, wanted in zip(written.tolist(), best.tolist(), strict=True):
        n = row.index(EOS) + 1 if EOS in row else len(row)
        assert row[:n] == wanted[:n]
        assert row[n:] == [EOS] * (len(row) - n)
    for i in range(B):
        alone = net.translate(
            source[i : i + 1, : lengths[i]], lengths[i : i + 1], bos=BOS, eos=EOS, max_length=9
        )
        assert torch.equal(alone[0], written[i, : alone.shape[1]])


def test_nothing_grows_after_the_end(device):
    net, (source, lengths, _) = translator("dot", device), texts(device)
    with torch.no_grad():
        net.output.bias[EOS] += 1e6
    ended = net.translate(source, lengths, bos=BOS, eos=EOS, max_length=50)
    assert ended.tolist() == [[EOS]] * B
    with torch.no_grad():
        net.output.bias[EOS] -= 2e6
    assert net.translate(source, lengths, bos=BOS, eos=EOS, max_length=8).shape == (B, 8)


def test_a_text_that_has_ended_stays_ended_while_others_go_on(device):
    script = torch.tensor([[5, EOS, 3, 7, 4], [6, 6, 6, EOS, 8], [EOS, 2, EOS, 2, 2]])

    class Scripted(RecurrentTranslator):
        def step(self, token, state):
            told.append(token.tolist())
            return F.one_hot(script[:, len(told) - 1], VT).double().to(device), state

    told, net = [], Scripted(VS, VT, D, H).to(device, torch.float64)
    source, lengths, _ = texts(device)
    written = net.translate(source, lengths, bos=BOS, eos=EOS, max_length=5)
    assert written.tolist() == [[5, EOS, EOS, EOS], [6, 6, 6, EOS], [EOS] * 4]
    assert told == [[BOS] * 3, [5, 6, EOS], [EOS, 6, EOS], [EOS, 6, EOS]]


@each_kind
def test_empty_texts_and_empty_batches(kind):
    net, (source, _, target_in) = translator(kind), texts()
    nothing = net(source, torch.tensor([0, 7, 0]), target_in)
    assert nothing.isfinite().all()
    nothing.sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
    assert net.translate(source[:0], None, bos=BOS, eos=EOS, max_length=5).shape == (0, 0)
    assert net(source[:0], None, target_in[:0]).shape == (0, T, VT)


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_the_grid_can_be_recorded(kind):
    net, (source, lengths, target_in) = translator(kind), texts()
    with record_attention(net) as maps:
        net(source, lengths, target_in)
    (grid,) = maps["attention"]
    assert grid.shape == (B, 1, T, S)
    close(grid.sum(-1), torch.ones(B, 1, T, dtype=torch.float64))
    assert (grid[1, ..., 2:] == 0).all()


def test_sizes_are_as_told():
    two = [sum(p.numel() for p in translator(kind).parameters()) for kind in ("additive", "dot")]
    assert two[0] - two[1] == H  # the vector that ends the additive score


# --- the matcher -------------------------------------------------------------------------------


def pairs(device="cpu"):
    first, second = torch.randint(VS, (B, S)), torch.randint(VT, (B, T))
    lengths = torch.tensor([3, 4, 1], device=device)
    return first.to(device), LENGTHS.to(device), second.to(device), lengths


@each_kind
def test_the_matcher_by_hand_without_padding(kind, device):
    net, (first, n, second, m) = matcher(kind, device), pairs(device)
    together = net(first, n, second, m)
    for i in range(B):
        a, last_a = net.first(net.first_embedding(first[i : i + 1, : n[i]]))
        b, last_b = net.second(net.second_embedding(second[i : i + 1, : m[i]]))
        if kind == "none":
            u, v = last_a.transpose(0, 1).flatten(1), last_b.transpose(0, 1).flatten(1)
        else:
            u, v = net.attention(b, a)[0][0], b[0]
        z = torch.relu(net.compare(torch.cat([u, v, u * v, (u - v).abs()], 1)))
        close(together[i], net.output(z.mean(0)))


@each_kind
def test_the_matcher_overlooks_padding(kind, device):
    net, (first, n, second, m) = matcher(kind, device), pairs(device)
    logits = net(first, n, second, m)
    assert logits.shape == (B, 4)
    other = torch.where(torch.arange(S, device=device) >= n[:, None], 3, first)
    another = torch.where(torch.arange(T, device=device) >= m[:, None], 3, second)
    assert torch.equal(net(other, n, another, m), logits)
    close(net(F.pad(first, (0, 2)), n, F.pad(second, (0, 5)), m), logits)
    full = (torch.full_like(n, S), torch.full_like(m, T))
    close(net(first, full[0], second, full[1]), net(first, None, second, None))


@each_kind
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_matcher_learns_with_all_it_has_in_every_dtype(kind, dtype, device):
    net, arguments = matcher(kind, device, dtype), pairs(device)
    logits = net(*arguments)
    assert logits.dtype == dtype
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@each_kind
def test_the_matcher_takes_empty_texts(kind):
    net, (first, n, second, m) = matcher(kind), pairs()
    logits = net(first, n * 0, second, m * 0)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


# --- bad input ---------------------------------------------------------------------------------


def bad(kind="dot"):
    return translator(kind), *texts()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: RecurrentTranslator(0, VT), ValueError, "source_vocab must be at least 1"),
        (lambda: RecurrentTranslator(VS, 1.5), TypeError, "target_vocab must be an int"),
        (lambda: RecurrentTranslator(VS, VT, d_hidden=7), ValueError, "d_hidden must be even"),
        (lambda: RecurrentTranslator(VS, VT, attention="sum"), ValueError, "attention must be one"),
        (lambda: PairMatcher(VS, VT, d_hidden=7), ValueError, "d_hidden must be even"),
        (lambda: PairMatcher(VS, VT, attention=None), ValueError, "attention must be one of"),
        (lambda: PairMatcher(VS, 0), ValueError, "second_vocab must be at least 1"),
        (lambda: DotProductAttention(4, 0, 3), ValueError, "d_key must be at least 1"),
        (lambda: teacher_forcing([], 1, 2), ValueError, "texts must hold at least one"),
        (lambda: teacher_forcing([[-3]], 1, 2), ValueError, "an id in texts must be at least 0"),
        (lambda: teacher_forcing([[1]], -1, 2), ValueError, "bos must be at least 0, got -1"),
        (
            lambda: exact_matches(torch.zeros(2, 3), torch.zeros(2, 3), 1),
            TypeError,
            "written must hold integer ids",
        ),
        (
            lambda: exact_matches(torch.ones(2, 3).long(), torch.ones(4, 3).long(), 1),
            ValueError,
            "written must hold 4 texts, got 2",
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.bad_input
def test_bad_texts(device):
    net, (source, lengths, target_in) = translator("dot", device), texts(device)
    wanted = net(source, lengths, target_in)
    cases = [
        (lambda: net(source + VS, lengths, target_in), ValueError, "source must hold ids from 0"),
        (lambda: net(source, lengths, target_in - 99), ValueError, "target_in must hold ids"),
        (lambda: net(source.float(), lengths, target_in), TypeError, "source must hold integer"),
        (lambda: net(source[0], lengths, target_in), ValueError, r"source must have shape \(B S\)"),
        (
            lambda: net(source, lengths + 1, target_in),
            ValueError,
            "lengths must hold ids from 0 to",
        ),
        (lambda: net(source, lengths[:2], target_in), ValueError, "lengths must have shape"),
        (lambda: net(source, lengths, target_in[:2]), ValueError, "target_in must have the source"),
        (
            lambda: net.step(target_in, net.start(source)),
            ValueError,
            r"token must have shape \(B\)",
        ),
        (
            lambda: net.translate(source, bos=VT, eos=EOS, max_length=3),
            ValueError,
            "bos must be below 13, got 13",
        ),
        (
            lambda: net.translate(source, bos=BOS, eos=EOS, max_length=0),
            ValueError,
            "max_length must be at least 1",
        ),
        (
            lambda: matcher("dot", device)(source, lengths, target_in[:2], None),
            ValueError,
            "second must have the source's batch 3, got 2",
        ),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
    assert torch.equal(net(source, lengths, target_in), wanted)  # and the process goes on

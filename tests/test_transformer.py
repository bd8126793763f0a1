import copy
import math
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tutorial_lib.attention import causal_mask, padding_mask, record_attention, window_mask
from tutorial_lib.positions import Learned, LinearBias, Rotary, Sinusoidal, token_positions
from tutorial_lib.transformer import (
    Block,
    Cache,
    Embed,
    FeedForward,
    Head,
    RMSNorm,
    Stack,
    TransformerConfig,
    initialize,
    make_norm,
)

B, H, T, S, D, FF, V, CONTEXT = 2, 3, 7, 5, 12, 22, 19, 11
CONFIG = TransformerConfig(
    num_layers=2, d_model=D, num_heads=H, d_ff=FF, context=CONTEXT, vocab_size=V, causal=True
)
# One of each value that a field can take, in combinations that models have.
VARIANTS = {
    "gpt2": {"feed_forward": "gelu_tanh", "positions": "learned", "initialization": "gpt2"},
    "gpt": {"norm_placement": "post", "positions": "learned", "initialization": "normal"},
    "llama": {
        "norm": "rms",
        "feed_forward": "swiglu",
        "positions": "rotary",
        "num_kv_heads": 1,
        "bias": False,
        "tied": False,
    },
    "interleaved": {"positions": "rotary", "rotary_layout": "interleaved", "rotary_base": 50.0},
    "alibi": {"positions": "linear_bias", "feed_forward": "relu", "norm_placement": "post"},
    "window": {"positions": "rotary", "window": 3, "num_kv_heads": 1},
    "alibi_window": {"positions": "linear_bias", "window": 3},
    "2017": {
        "norm_placement": "post",
        "feed_forward": "relu",
        "positions": "sinusoidal",
        "initialization": "xavier",
        "embedding_scale": True,
    },
    "bert_like": {"embedding_norm": True, "num_segments": 4, "positions": "learned"},
    "no_positions": {},
}
variants = pytest.mark.parametrize("name", VARIANTS)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


class Model(nn.Module):
    """A stack with what goes in and what comes out, as the later models have it."""

    def __init__(self, config):
        super().__init__()
        self.embed, self.stack = Embed(config), Stack(config)
        self.head = Head(config, self.embed)

    def forward(self, ids, *, positions=None, cache=None, **options):
        offset = 0 if cache is None else cache.length
        x = self.embed(ids, positions=positions, offset=offset)
        return self.head(self.stack(x, positions=positions, cache=cache, **options))


def randomize(module):
    """Weights that nothing cancels by chance: norms and biases included."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter == 1).float())
    return module


def make(name, layers=2, **changes):
    return randomize(Model(replace(CONFIG, num_layers=layers, **VARIANTS[name] | changes)))


def some_ids(device="cpu", length=T):
    return torch.randint(0, V, (B, length), device=device)


# ----------------------------------------------------------------------------------- PyTorch


def copy_attention(ours, theirs):
    layers = ours.query, ours.key, ours.value
    for kind in ("weight", "bias"):
        parts = getattr(theirs, f"in_proj_{kind}").chunk(3)
        for layer, part in zip(layers, parts, strict=True):
            getattr(layer, kind).data.copy_(part)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_layer(ours, theirs):
    copy_attention(ours.attention, theirs.self_attn)
    pairs = [(ours.feed_forward.up, theirs.linear1), (ours.feed_forward.down, theirs.linear2)]
    if ours.config.cross_attention:
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        norms = ours.norm_1, ours.norm_cross, ours.norm_2
        pairs += zip(norms, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True)
    else:
        pairs += [(ours.norm_1, theirs.norm1), (ours.norm_2, theirs.norm2)]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())


def compare(ours, theirs, x, our_call, their_call):
    """Outputs and the gradient of the input."""
    found, wanted = our_call(ours, x), their_call(theirs, x)
    torch.testing.assert_close(found, wanted)
    upstream = torch.randn_like(wanted)
    found, wanted = (torch.autograd.grad((y * upstream).sum(), x)[0] for y in (found, wanted))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [True, False])
def test_equals_torch_encoder(norm_first, activation, causal, device):
    layer = nn.TransformerEncoderLayer(
        D, H, FF, 0.0, activation, batch_first=True, norm_first=norm_first, layer_norm_eps=1e-3
    )
    final = nn.LayerNorm(D, 1e-3) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 2, final, enable_nested_tensor=False).to(device).double()
    randomize(theirs)
    config = replace(
        CONFIG,
        norm_placement="pre" if norm_first else "post",
        feed_forward=activation,
        causal=causal,
        norm_eps=1e-3,
    )
    ours = Stack(config).to(device).double()
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        copy_layer(mine, other)
    if norm_first:
        ours.norm.load_state_dict(theirs.norm.state_dict())
    x = torch.randn(B, T, D, dtype=torch.double, device=device, requires_grad=True)
    visible = padding_mask(torch.tensor([4, T], device=device), T)
    line = ~causal_mask(T, device=device) if causal else None
    hidden = ~visible[:, 0, 0]
    compare(
        ours,
        theirs,
        x,
        lambda m, x: m(x, mask=visible),
        lambda m, x: m(x, mask=line, src_key_padding_mask=hidden),
    )
    compare(
        ours.blocks[0], theirs.layers[0], x, lambda m, x: m(x), lambda m, x: m(x, src_mask=line)
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_torch_decoder(norm_first, device):
    layer = nn.TransformerDecoderLayer(
        D, H, FF, 0.0, batch_first=True, norm_first=norm_first, layer_norm_eps=1e-3
    )
    final = nn.LayerNorm(D, 1e-3) if norm_first else None
    theirs = randomize(nn.TransformerDecoder(layer, 2, final).to(device).double())
    config = replace(
        CONFIG,
        norm_placement="pre" if norm_first else "post",
        feed_forward="relu",
        cross_attention=True,
        norm_eps=1e-3,
    )
    ours = Stack(config).to(device).double()
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        copy_layer(mine, other)
    if norm_first:
        ours.norm.load_state_dict(theirs.norm.state_dict())
    x = torch.randn(B, T, D, dtype=torch.double, device=device, requires_grad=True)
    memory = torch.randn(B, S, D, dtype=torch.double, device=device)
    visible = padding_mask(torch.tensor([2, S], device=device), S)
    hidden = ~visible[:, 0, 0]
    line = ~causal_mask(T, device=device)
    compare(
        ours,
        theirs,
        x,
        lambda m, x: m(x, memory=memory, memory_mask=visible),
        lambda m, x: m(x, memory, tgt_mask=line, memory_key_padding_mask=hidden),
    )
    # Step by step, the memory projected once.
    full, cache, calls = ours(x, memory=memory, memory_mask=visible), ours.new_cache(), []
    ours.blocks[0].cross_attention.key.register_forward_hook(lambda *_: calls.append(1))
    options = {"memory": memory, "memory_mask": visible, "cache": cache}
    steps = [ours(piece, **options) for piece in x.split([1, 4, 2], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), full)
    assert len(calls) == 1
    # A beam search's reordering takes the memory with it.
    index = torch.tensor([1, 1, 0], device=device)
    cache.reorder(index)
    new = torch.randn(3, 1, D, dtype=torch.double, device=device)
    options = {"memory": memory[index], "memory_mask": visible[index]}
    found = ours(new, cache=cache, **options)
    wanted = ours(torch.cat((x[index], new), dim=1), **options)[:, -1:]
    torch.testing.assert_close(found, wanted)


# ------------------------------------------------------------------------------ transformers


def test_equals_gpt2():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Model(
        transformers.GPT2Config(
            vocab_size=V,
            n_positions=CONTEXT,
            n_embd=D,
            n_layer=2,
            n_head=H,
            n_inner=FF,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    ).eval()
    randomize(theirs)
    ours = Model(replace(CONFIG, feed_forward="gelu_tanh", positions="learned"))
    state = {"embed.tokens.weight": theirs.wte.weight, "embed.positions.weight": theirs.wpe.weight}
    state |= {f"stack.norm.{k}": v for k, v in theirs.ln_f.state_dict().items()}
    for i, block in enumerate(theirs.h):
        at = f"stack.blocks.{i}"
        for kind in ("weight", "bias"):
            parts = getattr(block.attn.c_attn, kind).chunk(3, dim=-1)
            for part, value in zip(("query", "key", "value"), parts, strict=True):
                state[f"{at}.attention.{part}.{kind}"] = value.t()
            for part, layer in (
                ("attention.output", block.attn.c_proj),
                ("feed_forward.up", block.mlp.c_fc),
                ("feed_forward.down", block.mlp.c_proj),
                ("norm_1", block.ln_1),
                ("norm_2", block.ln_2),
            ):
                state[f"{at}.{part}.{kind}"] = getattr(layer, kind).t()  # of a bias: itself
    ours.load_state_dict(state | {"head.weight": state["embed.tokens.weight"]})
    ids = some_ids()
    wanted = theirs(ids).last_hidden_state
    torch.testing.assert_close(ours.stack(ours.embed(ids)), wanted, **CLOSE)
    torch.testing.assert_close(ours(ids), wanted @ theirs.wte.weight.T, **CLOSE)


def test_equals_llama():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=V,
            hidden_size=D,
            intermediate_size=FF,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=3,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-3,
            rope_theta=77.0,
            tie_word_embeddings=False,
        )
    ).eval()
    randomize(theirs)
    ours = Model(
        replace(
            CONFIG,
            **VARIANTS["llama"] | {"num_heads": 6, "num_kv_heads": 3},
            norm_eps=1e-3,
            rotary_base=77.0,
        )
    )
    names = {
        "model.embed_tokens": "embed.tokens",
        "model.norm": "stack.norm",
        "lm_head": "head",
        "model.layers": "stack.blocks",
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.output",
        "mlp.gate_proj": "feed_forward.gate",
        "mlp.up_proj": "feed_forward.up",
        "mlp.down_proj": "feed_forward.down",
        "input_layernorm": "norm_1",
        "post_attention_layernorm": "norm_2",
    }
    state = {}
    for name, value in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = value
    ours.load_state_dict(state)
    ids = some_ids()
    torch.testing.assert_close(ours(ids), theirs(ids).logits, **CLOSE)


# ------------------------------------------------------------------------ norm, feed-forward


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rms_norm_equals_torch(dtype, device):
    ours, theirs = RMSNorm(D, 1e-3), nn.RMSNorm(D, 1e-3)
    randomize(ours)
    theirs.load_state_dict(ours.state_dict())
    ours.to(device, dtype)
    x = (torch.randn(B, T, D, device=device) * 300).to(dtype)
    found = ours(x)
    assert found.dtype == dtype
    wanted = theirs.to(device).double()(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=4 * torch.finfo(dtype).eps, atol=1e-3)
    assert torch.equal(RMSNorm(3)(torch.zeros(2, 3)), torch.zeros(2, 3))
    small = torch.full((1, D), 1e-3, dtype=torch.double)
    torch.testing.assert_close(RMSNorm(D).double()(small), small / math.sqrt(1e-6 + 1e-5))


@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_against_the_formula(bias):
    x = torch.randn(B, T, D)
    erf = lambda z: z * (1 + torch.erf(z / math.sqrt(2))) / 2  # noqa: E731
    tanh = lambda z: z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))  # noqa: E731
    formulas = {"relu": lambda z: z.clamp(min=0), "gelu": erf, "gelu_tanh": tanh}
    for kind, formula in formulas.items():
        layer = randomize(FeedForward(D, FF, kind, bias))
        assert layer.gate is None
        torch.testing.assert_close(layer(x), layer.down(formula(layer.up(x))), **CLOSE)
    layer = randomize(FeedForward(D, FF, "swiglu", bias))
    z = layer.gate(x)
    torch.testing.assert_close(layer(x), layer.down(z * z.sigmoid() * layer.up(x)), **CLOSE)
    for part in (layer.up, layer.gate, layer.down):
        assert (part.bias is not None) == bias
    assert layer.up.weight.shape == (FF, D)
    default = FeedForward(D, FF)
    assert default.activation is F.gelu
    assert default.down.bias is not None


def test_feed_forward_sees_one_position_at_a_time():
    layer, x = FeedForward(D, FF), torch.randn(B, T, D)
    order = torch.randperm(T)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_make_norm():
    assert isinstance(make_norm(CONFIG), nn.LayerNorm)
    assert make_norm(replace(CONFIG, norm_eps=0.5)).eps == 0.5
    assert make_norm(replace(CONFIG, bias=False)).bias is None
    rms = make_norm(replace(CONFIG, norm="rms", norm_eps=0.25))
    assert isinstance(rms, RMSNorm)
    assert rms.eps == 0.25


# ------------------------------------------------------------------------------------- laws


@variants
@pytest.mark.parametrize("layers", [1, 3])
def test_the_future_does_not_matter(name, layers, device):
    model, ids = make(name, layers).to(device), some_ids(device)
    before = model(ids)
    for t in (1, 4):
        moved = ids.clone()
        moved[:, t] = (ids[:, t] + 1) % V
        after = model(moved)
        assert torch.equal(after[:, :t], before[:, :t])
        assert ((after[:, t] - before[:, t]).abs().amax(-1) > 1e-6).all()
    x = model.embed(ids).detach().requires_grad_()
    logits = model.head(model.stack(x))
    for t in (0, 3):
        (grad,) = torch.autograd.grad(logits[:, t].square().sum(), x, retain_graph=True)
        assert (grad[:, t + 1 :] == 0).all()
        reach = 0 if VARIANTS[name].get("window") is None else max(0, t - layers * 2)
        assert (grad[:, reach : t + 1] != 0).any(-1).all()
        assert (grad[:, :reach] == 0).all()


@variants
@pytest.mark.parametrize("layers", [1, 3])
def test_padding_does_not_matter(name, layers, device):
    """Not causal, two kinds of padding: hidden tokens leave the others' bits alone."""
    model = make(name, layers, causal=False, window=None).to(device)
    ids = some_ids(device)
    mask = padding_mask(torch.tensor([T, 4], device=device), T)
    before = model(ids, mask=mask)
    moved = ids.clone()
    moved[1, 4:] = (ids[1, 4:] + 1) % V
    assert torch.equal(model(moved, mask=mask)[1, :4], before[1, :4])
    moved = ids.clone()
    moved[1, 3] = (ids[1, 3] + 1) % V
    after = model(moved, mask=mask)
    assert (after[1, :4] != before[1, :4]).any(-1).all()
    torch.testing.assert_close(after[0], before[0], **CLOSE)
    alone = model(ids[1:, :4])
    torch.testing.assert_close(before[1:, :4], alone, **CLOSE)
    torch.testing.assert_close(model(ids[:1]), before[:1], **CLOSE)


@variants
def test_left_padded_equals_alone(name, device):
    model, ids = make(name).to(device), some_ids(device)
    lengths = torch.tensor([T, 4], device=device)
    mask = padding_mask(lengths, T, "left")
    positions = token_positions(mask[:, 0, 0])
    found = model(ids, mask=mask, positions=positions)
    assert found.isfinite().all()
    torch.testing.assert_close(found[:1], model(ids[:1]), **CLOSE)
    torch.testing.assert_close(found[1:, -4:], model(ids[1:, -4:]), **CLOSE)
    found.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@variants
@pytest.mark.parametrize("pieces", [[7], [1] * 7, [3, 4], [1, 5, 1], [0, 7]])
@pytest.mark.parametrize("padded", [False, True])
def test_cached_equals_full(name, pieces, padded, device):
    model, ids = make(name).to(device).eval(), some_ids(device)
    mask = positions = None
    if padded:
        mask = padding_mask(torch.tensor([T, 4], device=device), T, "left")
        positions = token_positions(mask[:, 0, 0])
    full = model(ids, mask=mask, positions=positions)
    for capacity in (None, T):
        cache, found = model.stack.new_cache(capacity), []
        assert cache.capacity == capacity
        for piece in ids.split(pieces, dim=1):
            start, end = cache.length, cache.length + piece.shape[1]
            options = {}
            if padded:
                options = {"mask": mask[..., :end], "positions": positions[:, start:end]}
            found.append(model(piece, cache=cache, **options))
            assert cache.length == end
        torch.testing.assert_close(torch.cat(found, dim=1), full, **CLOSE)


@variants
def test_cache_reorders(name, device):
    model, ids = make(name, layers=1).to(device), some_ids(device)
    cache = model.stack.new_cache()
    model(ids, cache=cache)
    index = torch.tensor([1, 0, 1], device=device)
    cache.reorder(index)
    new = torch.randint(0, V, (3, 1), device=device)
    found = model(new, cache=cache)
    full = model(torch.cat((ids[index], new), dim=1))
    torch.testing.assert_close(found, full[:, -1:], **CLOSE)


def test_linear_bias_remembers_positions_that_are_not_counted(device):
    model, ids = make("alibi").to(device), some_ids(device)
    positions = torch.tensor([[0, 2, 3, 7, 8, 9, 10], [5, 4, 3, 2, 1, 0, 0]], device=device)
    full = model(ids, positions=positions)
    cache = model.stack.new_cache()
    first = model(ids[:, :3], positions=positions[:, :3], cache=cache)
    rest = model(ids[:, 3:], positions=positions[:, 3:], cache=cache)
    torch.testing.assert_close(torch.cat((first, rest), dim=1), full, **CLOSE)
    cache.reorder(torch.tensor([1], device=device))
    assert cache.positions.tolist() == [[5, 4, 3, 2, 1, 0, 0]]


@variants
def test_order_matters_only_with_positions(name, device):
    model = make(name, causal=False, window=None).to(device)
    ids, order = torch.arange(T, device=device).expand(B, T), torch.tensor([2, 0, 1, 6, 5, 4, 3])
    moved, kept = model(ids[:, order]), model(ids)[:, order]
    same = torch.allclose(moved, kept, atol=1e-4)
    assert same == (name == "no_positions")


@variants
def test_identical_rows_give_identical_outputs(name):
    model, ids = make(name), torch.arange(T).expand(B, T)
    output = model(ids)
    torch.testing.assert_close(output[0], output[1], **CLOSE)
    for positions in (torch.arange(T), torch.arange(T)[None], torch.arange(T).expand(B, T)):
        torch.testing.assert_close(model(ids, positions=positions), output, **CLOSE)


@variants
def test_every_parameter_gets_a_gradient(name):
    model = make(name)
    model(some_ids(length=CONTEXT)).square().sum().backward()
    for key, parameter in model.named_parameters():
        if key.endswith("attention.key.bias") and model.stack.rotary is None:
            continue  # adds the same to all scores of a query: softmax takes it out again
        assert (parameter.grad != 0).any(), key


@variants
def test_training_equals_evaluation_without_dropout(name):
    model, ids = make(name), some_ids()
    assert torch.equal(model.train()(ids), model.eval()(ids))


@variants
def test_recording_leaves_the_output_as_it_is(name):
    model, ids = make(name), some_ids()
    with record_attention(model) as maps:
        output = model(ids)
    torch.testing.assert_close(output, model(ids), **CLOSE)
    assert list(maps) == ["stack.blocks.0.attention", "stack.blocks.1.attention"]
    seen = causal_mask(T)
    if VARIANTS[name].get("window"):
        seen = seen & window_mask(3, T)
    for (weights,) in maps.values():
        assert weights.shape == (B, H, T, T)
        assert ((weights > 0) == seen).all()


@variants
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(name, dtype, device):
    model, ids = make(name).to(device), some_ids(device)
    exact = model(ids)
    mask = padding_mask(torch.tensor([T, 0], device=device), T, "left")
    converted = copy.deepcopy(model).to(dtype)
    found, padded = converted(ids), converted(ids, mask=mask)
    cache = converted.stack.new_cache()
    steps = torch.cat([converted(piece, cache=cache) for piece in ids.split(4, dim=1)], dim=1)
    assert found.dtype == padded.dtype == steps.dtype == dtype
    assert padded.isfinite().all()
    # Relative to the spread of the logits: what a rounding at each step adds up to.
    allowed = 40 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-5
    for logits in (found, steps):
        assert ((logits.to(exact) - exact).abs().max() / exact.std()).item() < allowed


@variants
def test_autocast(name, device):
    model, ids = make(name).to(device), some_ids(device)
    exact = model(ids)
    mask = padding_mask(torch.tensor([T, 0], device=device), T, "left")
    with torch.autocast(device.type, dtype=torch.bfloat16):
        found, padded = model(ids), model(ids, mask=mask)
        cache = model.stack.new_cache()
        steps = torch.cat([model(piece, cache=cache) for piece in ids.split(4, dim=1)], dim=1)
    assert padded.isfinite().all()
    for logits in (found, steps):
        assert ((logits.float() - exact).abs().max() / exact.std()).item() < 0.4


@variants
def test_made_where_the_input_is(name):
    """The meta device stands for any other: mixing it with the CPU is an error."""
    model, ids = make(name).to("meta"), some_ids("meta")
    mask = padding_mask(torch.tensor([T, 4]), T, "left").to("meta")
    assert model(ids).is_meta
    assert model(ids, mask=mask).is_meta
    with record_attention(model):
        assert model(ids).is_meta
        assert model(ids, mask=mask).is_meta
    cache = model.stack.new_cache()
    for piece in ids.split(4, dim=1):
        assert model(piece, cache=cache).is_meta


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_shapes(data):
    draw = data.draw
    heads = draw(st.integers(1, 4))
    config = TransformerConfig(
        num_layers=draw(st.integers(1, 2)),
        d_model=heads * draw(st.integers(1, 3)) * 2,
        num_heads=heads,
        num_kv_heads=draw(st.sampled_from([None, 1])),
        d_ff=draw(st.sampled_from([None, 5])),
        context=draw(st.integers(1, 9)),
        vocab_size=draw(st.integers(1, 9)),
        causal=draw(st.booleans()),
        window=draw(st.sampled_from([None, 1, 2])),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        feed_forward=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"])),
        positions=draw(st.sampled_from(["none", "sinusoidal", "learned", "rotary", "linear_bias"])),
        bias=draw(st.booleans()),
        tied=draw(st.booleans()),
        initialization=draw(st.sampled_from(["gpt2", "normal", "xavier", "pytorch"])),
    )
    n, t = draw(st.integers(0, 3)), draw(st.integers(0, config.context))
    ids = torch.randint(0, config.vocab_size, (n, t))
    output = Model(config)(ids)
    assert output.shape == (n, t, config.vocab_size)
    assert output.isfinite().all()


def test_window_reaches_its_width_and_no_further():
    config = replace(CONFIG, window=3, causal=False, num_layers=1)
    block = randomize(Block(config))
    x = torch.randn(B, T, D, requires_grad=True)
    (grad,) = torch.autograd.grad(block(x)[:, 3].sum(), x)
    assert (grad[0] != 0).any(-1).tolist() == [False, True, True, True, True, True, False]
    wide = randomize(Block(replace(config, window=T)))
    narrow = Block(replace(config, window=None))
    narrow.load_state_dict(wide.state_dict())
    assert torch.equal(wide(x), narrow(x))
    mask = padding_mask(torch.tensor([T, 5]), T)
    (grad,) = torch.autograd.grad(block(x, mask=mask)[1, 3].sum(), x)
    assert (grad[1] != 0).any(-1).tolist() == [False, True, True, True, True, False, False]


# --------------------------------------------------------------------------------- dropout


def test_dropout_where_the_configuration_says():
    config = replace(CONFIG, dropout=0.4, cross_attention=True, positions="learned")
    block, embed = Block(config), Embed(config)
    assert block.attention.dropout == block.cross_attention.dropout == 0.4
    assert block.dropout.p == embed.dropout.p == 0.4
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    block.train()
    assert not torch.equal(block(x, memory=memory), block(x, memory=memory))
    block.eval()
    assert torch.equal(block(x, memory=memory), block(x, memory=memory))
    ids = some_ids()
    embed.train()
    dropped = embed(ids) == 0
    assert 0.2 < dropped.float().mean() < 0.6
    assert not (embed.eval()(ids) == 0).any()


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_each_step_is_dropped_before_it_is_added(placement):
    """With everything dropped but the stream, only the norms are left."""
    config = replace(CONFIG, norm_placement=placement, cross_attention=True)
    block = randomize(Block(config))
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    calls = []

    def drop(module, inputs, output):
        calls.append(inputs[0])
        return torch.zeros_like(output)

    block.dropout.register_forward_hook(drop)
    found = block(x, memory=memory)
    assert len(calls) == config.steps_per_block == 3
    wanted = x if placement == "pre" else block.norm_2(block.norm_cross(block.norm_1(x)))
    torch.testing.assert_close(found, wanted)


# ---------------------------------------------------------------------- what goes in, comes out


def test_embed_adds_its_parts():
    config = replace(
        CONFIG, positions="learned", num_segments=4, embedding_norm=True, embedding_scale=True
    )
    embed, ids = randomize(Embed(config)), some_ids()
    segments = torch.randint(0, 4, (B, T))
    tokens = embed.tokens.weight[ids] * math.sqrt(D)
    places, kinds = embed.positions.weight[:T], embed.segments.weight
    found = embed(ids, segments=segments)
    torch.testing.assert_close(found, embed.norm(tokens + places + kinds[segments]))
    torch.testing.assert_close(embed(ids), embed.norm(tokens + places + kinds[0]))
    places = embed.positions.weight[3 : 3 + T]
    torch.testing.assert_close(embed(ids, offset=3), embed.norm(tokens + places + kinds[0]))
    positions = torch.randint(0, CONTEXT, (B, T))
    places = embed.positions.weight[positions]
    wanted = embed.norm(tokens + places + kinds[0])
    torch.testing.assert_close(embed(ids, positions=positions), wanted)
    assert isinstance(embed.positions, Learned)
    plain = randomize(Embed(replace(CONFIG, positions="sinusoidal")))
    assert isinstance(plain.positions, Sinusoidal)
    assert plain.positions.context == CONTEXT
    wanted = plain.tokens.weight[ids] + Sinusoidal(D)(torch.arange(T))
    torch.testing.assert_close(plain(ids), wanted)
    for kind in ("none", "rotary", "linear_bias"):
        embed = Embed(replace(CONFIG, positions=kind))
        assert embed.positions is None
        assert torch.equal(embed(ids), embed.tokens.weight[ids])


def test_stack_makes_what_its_positions_need():
    rotary = Stack(replace(CONFIG, **VARIANTS["interleaved"])).rotary
    assert isinstance(rotary, Rotary)
    assert (rotary.d_head, rotary.base, rotary.layout) == (4, 50.0, "interleaved")
    bias = Stack(replace(CONFIG, positions="linear_bias")).linear_bias
    assert isinstance(bias, LinearBias)
    assert len(bias.slopes) == H
    for kind in ("none", "sinusoidal", "learned"):
        stack = Stack(replace(CONFIG, positions=kind))
        assert stack.rotary is None
        assert stack.linear_bias is None


def test_final_norm_belongs_to_pre_norm():
    assert isinstance(Stack(CONFIG).norm, nn.LayerNorm)
    assert isinstance(Stack(replace(CONFIG, norm_placement="post")).norm, nn.Identity)


@pytest.mark.parametrize("change", ["copy", "pickle", "load", "half"])
def test_tied_weights_stay_tied(change):
    model = Model(CONFIG)
    if change == "copy":
        model = copy.deepcopy(model)
    elif change == "pickle":
        model = pickle.loads(pickle.dumps(model))
    elif change == "load":
        model.load_state_dict(Model(CONFIG).state_dict())
    else:
        model = model.half()
    assert model.head.weight is model.embed.tokens.weight
    names = [name for name, _ in model.named_parameters()]
    assert "head.weight" not in names
    free = Model(replace(CONFIG, tied=False))
    assert free.head.weight is not free.embed.tokens.weight
    assert free.head.weight.shape == (V, D)
    assert 0.01 < free.head.weight.std() < 0.03


def test_head_with_norm_and_bias():
    head = randomize(Head(replace(CONFIG, tied=False), norm=True, bias=True))
    x = torch.randn(B, T, D)
    torch.testing.assert_close(head(x), head.norm(x) @ head.weight.T + head.bias)
    assert isinstance(head.norm, nn.LayerNorm)
    plain = Head(replace(CONFIG, tied=False))
    assert plain.bias is None
    assert isinstance(plain.norm, nn.Identity)
    assert (Head(replace(CONFIG, tied=False), bias=True).bias == 0).all()


# --------------------------------------------------------------------------- initialization

BIG = TransformerConfig(
    num_layers=3, d_model=96, num_heads=4, d_ff=200, context=30, vocab_size=500, causal=True
)


@pytest.mark.parametrize("start", ["gpt2", "normal", "xavier", "pytorch"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_first_loss_is_that_of_guessing(start, tied, positions):
    model = Model(replace(BIG, initialization=start, tied=tied, positions=positions))
    ids = torch.randint(0, 500, (4, 30))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(500), rel=0.05)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("start", ["gpt2", "normal", "xavier", "pytorch"])
def test_initialization_is_as_published(start, cross):
    config = replace(BIG, initialization=start, cross_attention=cross, positions="learned")
    stack, embed = Stack(config), Embed(config)
    head = Head(replace(config, tied=False))
    for name, weight in [*stack.named_parameters(), *embed.named_parameters()]:
        deviation = weight.std().item()
        if "norm" in name:
            assert (weight == (1 if name.endswith("weight") else 0)).all()
        elif name.endswith("bias"):
            assert (weight == 0).all() == (start != "pytorch")
        elif start == "xavier":
            wanted = math.sqrt(2 / sum(weight.shape))
            assert deviation == pytest.approx(wanted, rel=0.05)
            assert weight.abs().max() <= wanted * math.sqrt(3)
        elif start == "pytorch" and name.startswith("blocks"):
            assert deviation == pytest.approx(1 / math.sqrt(3 * weight.shape[1]), rel=0.05)
        else:
            wanted = 0.02
            if start == "gpt2" and ("output" in name or "down" in name):
                wanted /= math.sqrt(3 * (3 if cross else 2))
            assert deviation == pytest.approx(wanted, rel=0.05)
    wanted = math.sqrt(2 / 596) if start == "xavier" else 0.02
    assert head.weight.std().item() == pytest.approx(wanted, rel=0.05)
    linear = nn.Linear(40, 40, bias=False)
    initialize(linear, config)
    assert isinstance(linear.weight, nn.Parameter)


# ------------------------------------------------------------------------------- bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        *[
            ({name: 0}, ValueError, f"{name} must be at least 1, got 0")
            for name in (
                "num_layers",
                "d_model",
                "num_heads",
                "num_kv_heads",
                "d_ff",
                "context",
                "vocab_size",
                "window",
            )
        ],
        *[
            ({name: 2.0}, TypeError, f"{name} must be an int, got float")
            for name in ("num_layers", "d_ff", "context", "window", "num_segments")
        ],
        *[
            ({name: 1}, TypeError, f"{name} must be a bool, got int")
            for name in (
                "causal",
                "bias",
                "cross_attention",
                "tied",
                "embedding_scale",
                "embedding_norm",
            )
        ],
        *[
            ({name: "other"}, ValueError, f"{name} must be one of .* got 'other'")
            for name in (
                "norm",
                "norm_placement",
                "feed_forward",
                "positions",
                "rotary_layout",
                "initialization",
            )
        ],
        ({"num_segments": -1}, ValueError, "num_segments must be at least 0"),
        ({"norm_eps": -1.0}, ValueError, "norm_eps must be at least 0"),
        ({"norm_eps": "1"}, TypeError, "norm_eps must be a number"),
        ({"rotary_base": 0.5}, ValueError, "rotary_base must be at least 1"),
        ({"dropout": 1.0}, ValueError, "dropout must be at least 0.0 and below 1.0"),
        ({"dropout": -0.1}, ValueError, "dropout must be at least 0.0 and below 1.0"),
        ({"num_heads": 5}, ValueError, "num_heads must divide d_model"),
        ({"num_kv_heads": 2}, ValueError, "num_kv_heads must divide num_heads"),
        ({"positions": "learned", "context": None}, ValueError, "context must be given"),
        ({"positions": "rotary", "d_model": 9}, ValueError, "must be even for rotary, got 3"),
    ],
)
def test_configuration_refuses(changes, error, message):
    with pytest.raises(error, match=message):
        replace(CONFIG, **changes)


def test_configuration_is_plain_data():
    assert TransformerConfig(**asdict(CONFIG)) == CONFIG
    assert hash(CONFIG) == hash(TransformerConfig(**asdict(CONFIG)))
    assert (CONFIG.d_head, CONFIG.d_hidden, CONFIG.steps_per_block) == (4, FF, 2)
    assert replace(CONFIG, d_ff=None).d_hidden == 48
    with pytest.raises(FrozenInstanceError):
        CONFIG.d_model = 3
    defaults = TransformerConfig(1, 2, 1)
    assert asdict(defaults) == {
        "num_layers": 1,
        "d_model": 2,
        "num_heads": 1,
        "num_kv_heads": None,
        "d_ff": None,
        "context": None,
        "vocab_size": None,
        "causal": False,
        "window": None,
        "norm": "layer",
        "norm_placement": "pre",
        "norm_eps": 1e-5,
        "feed_forward": "gelu",
        "positions": "none",
        "rotary_base": 10_000.0,
        "rotary_layout": "half",
        "bias": True,
        "cross_attention": False,
        "dropout": 0.0,
        "tied": True,
        "embedding_scale": False,
        "embedding_norm": False,
        "num_segments": 0,
        "initialization": "pytorch",
    }
    assert replace(CONFIG, d_model=9, positions="linear_bias").d_head == 3


@variants
@pytest.mark.bad_input
def test_beyond_the_context(name, device):
    model = make(name).to(device)
    model(some_ids(device, CONTEXT))
    for call in (
        lambda: model(some_ids(device, CONTEXT + 1)),
        lambda: model.embed(some_ids(device, CONTEXT + 1)),
        lambda: model.stack(torch.randn(B, CONTEXT + 1, D, device=device)),
        lambda: model.embed(some_ids(device, 4), offset=8),
    ):
        with pytest.raises(ValueError, match=r"within the context of 11, got (length )?12"):
            call()
    cache = model.stack.new_cache()
    model(some_ids(device), cache=cache)
    with pytest.raises(ValueError, match="context of 11, got length 12"):
        model.stack(torch.randn(B, 5, D, device=device), cache=cache)
    with pytest.raises(ValueError, match="context of 11, got position 11"):
        model.stack(
            torch.randn(B, 1, D, device=device), positions=torch.tensor([11], device=device)
        )
    assert cache.length == T
    assert model(some_ids(device, 4), cache=cache).shape == (B, 4, V)
    assert cache.length == CONTEXT


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["llama", "alibi"])
def test_stack_refuses_and_leaves_the_cache_as_it_was(name):
    stack = make(name, cross_attention=True).stack
    cache, x, memory = stack.new_cache(9), torch.randn(B, T, D), torch.randn(B, S, D)
    stack(x, memory=memory, cache=cache)
    new = torch.randn(B, 1, D)
    ones = torch.ones(B, 1, 1, 8, dtype=torch.bool)
    for options, error, message in (
        ({"x": new[0]}, ValueError, r"x must have shape \(B T D\), got \(1, 12\)"),
        ({"x": new[..., :5]}, ValueError, "x must have last axis 12, got shape"),
        ({"x": torch.randn(B, 3, D)}, ValueError, "full: capacity 9, length 7, 3 more"),
        ({"x": new[:1], "memory": memory[:1]}, ValueError, "batch must be that of the cache, 2"),
        ({"x": new.long()}, TypeError, "x must hold floats, got dtype"),
        ({"x": new.double()}, TypeError, "x must have the dtype of the weights"),
        ({"mask": ones.float()}, TypeError, "mask must be a boolean Tensor, True = may look"),
        ({"mask": ones[..., :7]}, ValueError, "mask must spread over"),
        ({"mask": ones[:, 0]}, ValueError, "mask must spread over"),
        ({"mask": ones[:1, 0]}, ValueError, "mask must have shape"),
        ({"positions": torch.tensor([0, 1])}, ValueError, r"positions must have shape \(1,\)"),
        ({"positions": torch.zeros(3, 1).long()}, ValueError, r"\(2, 1\), got \(3, 1\)"),
        ({"positions": torch.tensor([0.0])}, TypeError, "positions must hold integers"),
        ({"positions": torch.tensor([-1])}, ValueError, "positions must be 0 or more"),
        ({"memory": memory[0]}, ValueError, r"memory must have shape \(B S D\)"),
        ({"memory": memory[..., :3]}, ValueError, "memory must have last axis 12"),
        ({"memory": memory[:1]}, ValueError, "memory must have the batch of x, 2, got 1"),
        ({"memory": memory.double()}, TypeError, "memory must have the dtype of x"),
        ({"memory": None}, ValueError, "memory must be given where cross_attention=True, got None"),
        ({"memory_mask": ones.float()}, TypeError, "memory_mask must be a boolean"),
        ({"memory_mask": ones}, ValueError, "memory_mask must spread over"),
        ({"memory": memory[:, :4]}, ValueError, "of length 5, got 4"),
    ):
        with pytest.raises(error, match=message):
            stack(**{"x": new, "memory": memory, "cache": cache} | options)
        assert [layer.length for layer in cache.layers] == [T, T], options
    assert stack(new, memory=memory, cache=cache).shape == (B, 1, D)
    assert cache.length == T + 1


@pytest.mark.bad_input
def test_other_refusals():
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    with pytest.raises(
        ValueError, match="memory must be None where cross_attention=False, got one"
    ):
        Stack(CONFIG)(x, memory=memory)
    with pytest.raises(ValueError, match="memory must be given"):
        Block(replace(CONFIG, cross_attention=True))(x)
    both_ways = Stack(replace(CONFIG, causal=False))
    with pytest.raises(ValueError, match="cache must be None where causal=False"):
        both_ways(x, cache=both_ways.new_cache())
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        Stack(CONFIG).new_cache(0)
    with pytest.raises(ValueError, match="num_layers must be at least 1"):
        Cache(0)
    with pytest.raises(ValueError, match="must hold something"):
        Cache(2).reorder(torch.tensor([0]))
    for part in (Embed, Head):
        with pytest.raises(ValueError, match=r"vocab_size must be given to .* got None"):
            part(replace(CONFIG, vocab_size=None))
    for layer in (RMSNorm(D), FeedForward(D, FF), Stack(CONFIG)):
        with pytest.raises(TypeError, match="x must hold floats"):
            layer(x.long())
        with pytest.raises(TypeError, match="x must have the dtype of the weights"):
            layer(x.half())
    with pytest.raises(ValueError, match="embed must be given where tied=True, got None"):
        Head(CONFIG)
    windowed = Block(replace(CONFIG, window=2))
    with pytest.raises(TypeError, match="mask must be a boolean"):
        windowed(x, mask=torch.ones(T, T))
    with pytest.raises(ValueError, match="mask must spread over"):
        windowed(x, mask=torch.ones(T, S, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"x must have shape \(B T D\)"):
        windowed(x[0])
    free = Head(replace(CONFIG, tied=False))
    for call, message in (
        (lambda: RMSNorm(0), "^d_model must be at least 1"),
        (lambda: RMSNorm(3, -1.0), "^eps must be at least 0"),
        (lambda: RMSNorm(3)(x), "^x must have last axis 3"),
        (lambda: FeedForward(0, 3), "^d_model must be at least 1"),
        (lambda: FeedForward(3, 0), "^d_ff must be at least 1"),
        (lambda: FeedForward(3, 4, "linear"), "^kind must be one of"),
        (lambda: FeedForward(3, 4)(x), "^x must have last axis 3"),
        (lambda: free(x[..., :3]), "^x must have last axis 12"),
        (lambda: free(x[0]), r"^x must have shape \(B T D\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.bad_input
def test_embed_refuses(device):
    embed = Embed(replace(CONFIG, positions="learned", num_segments=3)).to(device)
    ids = some_ids(device)
    for wrong, error, message in (
        (ids + V, ValueError, "ids must hold ids from 0 to 18, got"),
        (ids - V, ValueError, "ids must hold ids from 0 to 18, got -"),
        (ids.float(), TypeError, "ids must hold integer ids"),
        (ids[0], ValueError, r"ids must have shape \(B T\)"),
    ):
        with pytest.raises(error, match=message):
            embed(wrong)
    with pytest.raises(ValueError, match="segments must hold ids from 0 to 2, got 3"):
        embed(ids, segments=torch.full_like(ids, 3))
    with pytest.raises(ValueError, match="offset must be at least 0, got -1"):
        embed(ids, offset=-1)
    with pytest.raises(ValueError, match="below the context of 11, got position 11"):
        embed(ids, positions=torch.full((T,), CONTEXT, device=device))
    assert embed(ids).isfinite().all()

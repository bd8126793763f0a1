"""Our layers beside PyTorch's and Hugging Face's, forward and backward, at equal sizes.

``python -m benchmarks layers``. On a GPU the same comparison runs in bfloat16.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tutorial_lib.attention import MultiHeadAttention
from tutorial_lib.recurrent import Recurrent
from tutorial_lib.runtime import device, seed_everything
from tutorial_lib.transformer import Embed, Head, Stack, TransformerConfig

B, T, D, H, LAYERS, V = 8, 256, 384, 6, 6, 1000
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
REPEATS = 7
WHERE = device()
DTYPE = torch.bfloat16 if WHERE.type == "cuda" else torch.float32


def _sync() -> None:
    if WHERE.type == "cuda":
        torch.cuda.synchronize()


def _seconds(run: Callable[[], Any]) -> float:
    _sync()
    start = time.perf_counter()
    run()
    _sync()
    return time.perf_counter() - start


def _step(model: nn.Module, *inputs: Tensor) -> Callable[[], None]:
    """Forward and backward, with a gradient for every parameter."""
    model.to(WHERE, DTYPE).train()

    def run() -> None:
        model.zero_grad(set_to_none=True)
        output = model(*inputs)
        output = output if isinstance(output, Tensor) else output[0]
        output.float().square().mean().backward()

    return run


def _compare(
    name: str, ours: Callable[[], Any], others: dict[str, Callable[[], Any]], repeats: int = REPEATS
) -> Iterator[dict[str, Any]]:
    """Alternate all of them; one row for each other one."""
    runs = {"ours": ours, **others}
    times: dict[str, list[float]] = {key: [] for key in runs}
    for run in runs.values():
        run()  # warm up
    for _ in range(repeats):
        for key, run in runs.items():
            times[key].append(_seconds(run))
    mine = statistics.median(times["ours"])
    if not others:
        yield {"group": "layers", "name": name, "seconds": mine}
    for key in others:
        theirs = statistics.median(times[key])
        yield {
            "group": "layers",
            "name": name,
            "seconds": mine,
            "other": key,
            "other_seconds": theirs,
            "ratio": theirs / mine,
        }


def _stack(**changes: Any) -> Stack:
    options = {"num_layers": LAYERS, "d_model": D, "num_heads": H} | changes
    return Stack(TransformerConfig(**options))


class _Language(nn.Module):
    """Tokens in, scores out: what ``GPT2LMHeadModel`` is."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embed, self.stack = Embed(config), Stack(config)
        self.head = Head(config, self.embed)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.stack(self.embed(ids)))


def _against_torch() -> Iterator[dict[str, Any]]:
    x = torch.randn(B, T, D, device=WHERE, dtype=DTYPE)
    attention = nn.MultiheadAttention(D, H, batch_first=True)
    self_attention = _Self(attention)
    yield from _compare(
        f"attention, width {D}, {T} tokens",
        _step(MultiHeadAttention(D, H), x),
        {"nn.MultiheadAttention": _step(self_attention, x)},
    )
    for placement in ("pre", "post"):
        layer = nn.TransformerEncoderLayer(
            D, H, 4 * D, 0.0, batch_first=True, norm_first=placement == "pre"
        )
        norm = nn.LayerNorm(D) if placement == "pre" else None
        theirs = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False)
        ours = _stack(feed_forward="relu", norm_placement=placement)
        for depth in (1, LAYERS):
            mine, other = (ours, theirs) if depth == LAYERS else (ours.blocks[0], theirs.layers[0])
            yield from _compare(
                f"{depth} block{'s' if depth > 1 else ''}, {placement}-norm, ReLU",
                _step(mine, x),
                {"nn.TransformerEncoder": _step(other, x)},
            )
    yield from _compare(
        f"GRU, width {D}, {T} tokens",
        _step(Recurrent("gru", D, D), x),
        {"nn.GRU": _step(nn.GRU(D, D, batch_first=True), x)},
    )


class _Self(nn.Module):
    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def _against_transformers() -> Iterator[dict[str, Any]]:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    ids = torch.randint(V, (B, T), device=WHERE)
    common = {"vocab_size": V, "context": T, "positions": "learned"}
    gpt2 = GPT2Config(
        vocab_size=V, n_positions=T, n_embd=D, n_layer=LAYERS, n_head=H, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    ours = _Language(
        TransformerConfig(LAYERS, D, H, causal=True, feed_forward="gelu_tanh", **common)
    )
    yield from _compare(
        f"GPT-2's form, {LAYERS} layers, width {D}",
        _step(ours, ids),
        {"transformers GPT-2": _step(_Logits(GPT2LMHeadModel(gpt2)), ids)},
    )
    bert = BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=H,
        intermediate_size=4 * D, max_position_embeddings=T, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    config = TransformerConfig(
        LAYERS, D, H, norm_placement="post", num_segments=2, embedding_norm=True, **common
    )
    encoder = nn.Sequential(Embed(config), Stack(config))
    yield from _compare(
        f"BERT's form, {LAYERS} layers, width {D}",
        _step(encoder, ids),
        {
            "transformers BERT": _step(
                _Logits(BertModel(bert, add_pooling_layer=False), "last_hidden_state"), ids
            )
        },
    )


class _Logits(nn.Module):
    def __init__(self, model: nn.Module, name: str = "logits") -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, ids: Tensor) -> Tensor:
        return getattr(self.model(input_ids=ids), self.name)


def _share_of_the_machine() -> Iterator[dict[str, Any]]:
    """Arithmetic per second of the whole stack, beside that of its matrix products alone."""
    x = torch.randn(B, T, D, device=WHERE, dtype=DTYPE)
    a = torch.randn(B * T, D, device=WHERE, dtype=DTYPE)
    up = torch.randn(D, 4 * D, device=WHERE, dtype=DTYPE)
    stack, products = _step(_stack(causal=True), x), 60
    weights = sum(p.numel() for p in _stack().parameters() if p.dim() == 2)
    # Forward and backward: three products, two operations each, with every weight, for each
    # token; and the two products of attention, of which a causal one needs half.
    attention = 3 * 2 * 2 * B * T * T * D * LAYERS / 2
    work = 6 * weights * B * T + attention

    def multiply() -> None:
        for _ in range(products):
            a @ up

    stack(), multiply()
    mine, rate = [], []
    for _ in range(REPEATS):
        mine.append(_seconds(stack))
        rate.append(_seconds(multiply))
    reached = work / statistics.median(mine)
    possible = products * 2 * a.numel() * up.shape[1] / statistics.median(rate)
    note = f"{reached / 1e9:.0f} of {possible / 1e9:.0f} GFLOP/s: {reached / possible:.0%}"
    yield {
        "group": "layers",
        "name": "share of the machine's matrix rate",
        "seconds": statistics.median(mine),
        "share": reached / possible,
        "note": note,
    }


def _saved(run: Callable[[], Any]) -> int:
    """Bytes kept for the backward pass, each storage once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(kept.values())


def _by_length() -> Iterator[dict[str, Any]]:
    """One block, batch 1, width 64: time and memory against length, fused and written out."""
    from tutorial_lib.attention import record_attention

    for length in LENGTHS:
        x = torch.randn(1, length, 64, device=WHERE, dtype=DTYPE)
        layer, gru = MultiHeadAttention(64, 4), Recurrent("gru", 64, 64)
        fused, recurrent = _step(layer, x), _step(gru, x)

        def explicit(layer: nn.Module = layer, fused: Callable[[], None] = fused) -> None:
            with record_attention(layer):
                fused()

        others = {"weights written out": explicit, "GRU": recurrent}
        memory = {"ours": fused, **others}
        for row in _compare(f"attention, batch 1, width 64, {length} tokens", fused, others, 3):
            mine, theirs = (_saved(memory[key]) / 1e6 for key in ("ours", row["other"]))
            row["note"] = f", memory {mine:.1f} against {theirs:.1f} MB"
            yield row


def rows() -> Iterator[dict[str, Any]]:
    """One row for each measurement."""
    seed_everything(0)
    yield from _against_torch()
    yield from _against_transformers()
    yield from _share_of_the_machine()
    yield from _by_length()

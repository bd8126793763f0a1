"""Tokenizers: learning 1,024 merges and encoding 1 MB of English, beside compiled libraries.

``python -m benchmarks.tokenizers`` prints a table. Ours is pure Python; the others are Rust.
"""

import ast
import statistics
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data import topics
from typing import Any

import tiktoken
import tokenizers
import torch

from tutorial_lib.ngram import NGram
from tutorial_lib.tokens import BytePairTokenizer, CharacterTokenizer, split

MERGES, CHARACTERS, NGRAM_CHARACTERS, REPEATS = 1024, 1_000_000, 370_000, 5
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def english() -> str:
    """A million characters of Python's own documentation, no paragraph twice."""
    texts = list(topics.topics.values())
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                texts.append(ast.get_docstring(node) or "")
    paragraphs = dict.fromkeys(part for text in texts for part in text.split("\n\n"))
    return "\n\n".join(paragraphs)[:CHARACTERS]


def rows() -> list[dict[str, Any]]:
    """One row for each measurement: medians of alternating runs.

    ``seconds`` is ours, ``other_seconds`` that of the library named in ``other`` (or None),
    ``ratio`` theirs over ours (above 1: ours is faster), ``mb_per_s`` the text in a second.
    """
    text = english()
    ours = BytePairTokenizer(MERGES).fit(text)
    theirs = _hugging_face(text)
    rust = tiktoken.Encoding(
        "ours",
        pat_str=PATTERN,
        mergeable_ranks={unit: i for i, unit in enumerate(ours.vocabulary)},
        special_tokens={},
    )
    ids = ours.encode(text)
    if ids != rust.encode_ordinary(text):
        raise AssertionError("ours and tiktoken must encode alike, or the comparison is void")
    letters = CharacterTokenizer().fit(text)
    characters = torch.tensor(letters.encode(text[:NGRAM_CHARACTERS]))
    cut = NGRAM_CHARACTERS * 9 // 10

    def cold() -> None:
        ours._cache.clear()
        ours.encode(text)

    def ngrams() -> None:
        for order in range(1, 8):
            model = NGram(order, letters.vocab_size).fit(characters[:cut])
            model.bits_per_token(characters[cut:])

    size = len(text.encode()) / 1e6
    return [
        _row(
            f"learn {MERGES:,} merges",
            size,
            lambda: BytePairTokenizer(MERGES).fit(text),
            "tokenizers (Rust)",
            lambda: _hugging_face(text),
        ),
        _row(
            "encode, empty cache", size, cold, "tiktoken (Rust)", lambda: rust.encode_ordinary(text)
        ),
        _row(
            "encode again",
            size,
            lambda: ours.encode(text),
            "tokenizers (Rust)",
            lambda: theirs.encode(text),
        ),
        _row("decode", size, lambda: ours.decode(ids), "tiktoken (Rust)", lambda: rust.decode(ids)),
        _row("cut into pieces", size, lambda: split(text)),
        _row("character n-grams, orders 1 to 7", NGRAM_CHARACTERS / 1e6, ngrams),
    ]


def _row(
    name: str,
    megabytes: float,
    ours: Callable[[], Any],
    other: str | None = None,
    theirs: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    mine, others = [], []
    for _ in range(REPEATS):
        mine.append(_seconds(ours))
        if theirs is not None:
            others.append(_seconds(theirs))
    seconds = statistics.median(mine)
    other_seconds = statistics.median(others) if others else None
    return {
        "group": "tokenizers",
        "name": f"{name}, {megabytes:.2f} MB",
        "seconds": seconds,
        "mb_per_s": megabytes / seconds,
        "other": other,
        "other_seconds": other_seconds,
        "ratio": other_seconds / seconds if other_seconds is not None else None,
    }


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _hugging_face(text: str) -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator([text], trainer)
    return model


def main() -> None:
    print(f"{'':42}{'seconds':>9}{'MB/s':>8}{'ratio':>8}  other")
    for row in rows():
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        numbers = f"{row['seconds']:9.3f}{row['mb_per_s']:8.1f}{ratio:>8}"
        print(f"{row['name']:42}{numbers}  {row['other'] or ''}")


if __name__ == "__main__":
    main()

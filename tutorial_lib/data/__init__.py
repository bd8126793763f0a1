"""Data sets and synthetic tasks: each arrives with a package, or is made here by a rule.

Nothing is downloaded, so every experiment runs with the network off.
"""

from tutorial_lib.data.cache import cache_directory, cached
from tutorial_lib.data.digits_8x8 import anywhere_on_canvas, digits, on_canvas
from tutorial_lib.data.halves import Halves
from tutorial_lib.data.mnist_1d import mnist1d
from tutorial_lib.data.mnist_5k import mnist_sample
from tutorial_lib.data.split import Split

__all__ = [
    "Halves",
    "Split",
    "anywhere_on_canvas",
    "cache_directory",
    "cached",
    "digits",
    "mnist1d",
    "mnist_sample",
    "on_canvas",
]

"""Homework: is my own function right, and if not, why not?

:func:`check` runs an answer through the cases of an exercise. For a case that fails it prints what
was wanted beside what came, and the likely cause: each exercise knows the real mistakes, and an
answer that behaves like one of them is told its name.

    >>> import torch
    >>> from tutorial_lib.homework import check
    >>> report = check("softmax", lambda logits: torch.softmax(logits, -1))
    softmax
      right  ordinary scores
      right  large scores
      right  rows of very different height
      3 of 3 cases right, 2 of 2 points

The exercises of a chapter stand in ``chapter_NN.py``, as plain data. A course adds its own with
the same three classes: :class:`Exercise`, :class:`Case` and :class:`Wrong`.
"""

from tutorial_lib.homework._sandbox import AnswerError
from tutorial_lib.homework.exercise import (
    Case,
    Catalog,
    Draw,
    Exercise,
    Statement,
    Wrong,
    exercises,
    find,
    gradients,
    register,
    statement,
    with_weights,
)
from tutorial_lib.homework.grading import CheckError, Report, Result, audit, check

__all__ = [
    "AnswerError",
    "Case",
    "Catalog",
    "CheckError",
    "Draw",
    "Exercise",
    "Report",
    "Result",
    "Statement",
    "Wrong",
    "audit",
    "check",
    "exercises",
    "find",
    "gradients",
    "register",
    "statement",
    "with_weights",
]

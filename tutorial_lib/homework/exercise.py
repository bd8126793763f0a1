"""What an exercise is: its statement, its cases, and the mistakes that people really make."""

import ast
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tutorial_lib import _check
from tutorial_lib.homework._sandbox import AnswerError


class Draw:
    """Fresh random inputs for one case, the same for the same seed.

    Args:
        seed: any whole number.

    Example:
        >>> from tutorial_lib.homework import Draw
        >>> draw = Draw(3)
        >>> B, T = draw.sizes(2)
        >>> draw.normal(B, T).shape == (B, T) and B != T
        True
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.taken: set[int] = set()

    def size(self, low: int = 2, high: int = 9) -> int:
        """A whole number from ``low`` to ``high`` that this case has not drawn before.

        So an axis that stands in another's place is always seen.
        """
        free = [size for size in range(low, high + 1) if size not in self.taken]
        if not free:
            raise ValueError(f"high must leave a new size: {low} to {high} are all taken")
        size = free[self.integer(0, len(free) - 1)]
        self.taken.add(size)
        return size

    def sizes(self, count: int, low: int = 2, high: int = 9) -> list[int]:
        """``count`` sizes, all different."""
        return [self.size(low, high) for _ in range(count)]

    def integer(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def number(self, low: float, high: float) -> float:
        """A number between ``low`` and ``high``."""
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normal numbers of mean 0 and variance 1."""
        return torch.randn(*shape, generator=self.generator, dtype=dtype)

    def labels(self, count: int, classes: int) -> Tensor:
        """``count`` whole numbers from 0 to ``classes - 1``."""
        return torch.randint(0, classes, (count,), generator=self.generator)

    def order(self, count: int) -> Tensor:
        """The numbers 0 to ``count - 1``, shuffled."""
        return torch.randperm(count, generator=self.generator)


@dataclass(frozen=True)
class Case:
    """One thing that a right answer gets right.

    Args:
        name: a few words, shown in the report.
        inputs: draws the arguments of the function, in the order of the exercise's signature.
        hint: what to look at, shown when the case fails and no known mistake explains it.
        observe: what is compared, from the function and its arguments; by default what it returns.
        close: the largest relative difference that counts as equal.

    Raises:
        TypeError: if a text is not a string, or ``inputs`` or ``observe`` not callable.

    Example:
        >>> from tutorial_lib.homework import Case
        >>> Case("a vector", lambda draw: (draw.normal(draw.size()),), hint="Add all entries.").name
        'a vector'
    """

    name: str
    inputs: Callable[[Draw], tuple[Any, ...]]
    hint: str
    observe: Callable[..., Any] | None = None
    close: float = 1e-4

    def __post_init__(self) -> None:
        _texts(self, "name", "hint")
        _callable(self, "inputs")
        if self.observe is not None:
            _callable(self, "observe")
        _check.number("close", self.close)


@dataclass(frozen=True)
class Wrong:
    """A real mistake: an answer that has it, and what to tell who makes it.

    Args:
        name: the mistake in a few words.
        answer: a function, or a class of modules, that makes it.
        hint: the way out, in a sentence or two.

    Raises:
        TypeError: if a text is not a string, or ``answer`` not callable.

    Example:
        >>> from tutorial_lib.homework import Wrong
        >>> Wrong("mean for sum", lambda x: x.mean(), hint="Do not divide.").name
        'mean for sum'
    """

    name: str
    answer: Callable[..., Any]
    hint: str

    def __post_init__(self) -> None:
        _texts(self, "name", "hint")
        _callable(self, "answer")


@dataclass(frozen=True)
class Exercise:
    """A function to write, and all that is needed to judge it.

    Args:
        name: what :func:`check` is asked for; also the function's name in ``signature``.
        chapter: the number of the chapter.
        signature: as a reader writes it, ``"conv1d(x, weight, stride=1)"``. Arguments are passed
            by position, so that their names stay the reader's own.
        statement: the task, in Markdown.
        reference: a right answer; the package's own code where it is the same thing.
        cases: what is tried.
        wrong: the known mistakes.
        right: right answers in other styles, which must pass as the reference does.
        points: what a right answer earns.
        numpy: whether the lesson is in NumPy. The reference then takes arrays; a reader's answer
            may take either arrays or tensors.
        as_module: lets the answer be a class of modules too. Called with the class and then the
            function's arguments, it builds a module and returns what the function would; see
            :func:`with_weights`.

    Raises:
        TypeError: if a field is of another type.
        ValueError: if ``signature`` is not one of ``name``, there is no case, two cases or two
            mistakes bear the same name, or a number is out of range.

    Example:
        >>> from tutorial_lib.homework import Case, Exercise, Wrong, check
        >>> total = Exercise(
        ...     name="total",
        ...     chapter=1,
        ...     signature="total(x)",
        ...     statement="Add all entries of `x`.",
        ...     reference=lambda x: x.sum(),
        ...     cases=[Case("a vector", lambda draw: (draw.normal(7),), hint="Add all entries.")],
        ...     wrong=[Wrong("mean for sum", lambda x: x.mean(), "Do not divide.")],
        ... )
        >>> bool(check(total, lambda values: values.sum(), quiet=True))
        True
    """

    name: str
    chapter: int
    signature: str
    statement: str
    reference: Callable[..., Any]
    cases: Sequence[Case]
    wrong: Sequence[Wrong] = ()
    right: Sequence[Callable[..., Any]] = ()
    points: float = 1.0
    numpy: bool = False
    as_module: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        _texts(self, "name", "signature", "statement")
        _callable(self, "reference")
        _check.integer("chapter", self.chapter, at_least=0)
        _check.number("points", self.points)
        object.__setattr__(self, "cases", tuple(self.cases))
        object.__setattr__(self, "wrong", tuple(self.wrong))
        object.__setattr__(self, "right", tuple(self.right))
        if not self.cases:
            raise ValueError(f"cases must hold at least one case, got none for {self.name!r}")
        for field in ("cases", "wrong"):
            names = [one.name for one in getattr(self, field)]
            if len(set(names)) < len(names):
                raise ValueError(f"{field} must have different names, got {names}")
        if _function(self.signature) != self.name:
            raise ValueError(f"signature must be that of {self.name!r}, got {self.signature!r}")

    @property
    def parameters(self) -> list[str]:
        """The names of the arguments, as the signature has them."""
        tree = ast.parse(f"def {self.signature}: ...").body[0]
        assert isinstance(tree, ast.FunctionDef)
        return [argument.arg for argument in tree.args.args]

    def extended(self, cases: Sequence[Case] = (), wrong: Sequence[Wrong] = ()) -> "Exercise":
        """The same exercise with more cases or mistakes: a course adds its private ones so."""
        return replace(self, cases=(*self.cases, *cases), wrong=(*self.wrong, *wrong))


def _texts(one: object, *names: str) -> None:
    for name in names:
        value = getattr(one, name)
        if not isinstance(value, str) or not value.strip():
            raise TypeError(f"{name} must be a text, got {type(value).__name__}: {value!r}")


def _callable(one: object, name: str) -> None:
    if not callable(getattr(one, name)):
        raise TypeError(f"{name} must be callable, got {type(getattr(one, name)).__name__}")


def _function(signature: str) -> str | None:
    try:
        tree = ast.parse(f"def {signature}: ...").body[0]
    except SyntaxError:
        return None
    return tree.name if isinstance(tree, ast.FunctionDef) else None


# What cases are made of


def gradients(function: Callable[..., Any], *args: Any) -> dict[str, Tensor]:
    """The gradient for each float tensor among ``args``: for a case's ``observe``.

    Args:
        function: returns one tensor.
        args: its arguments.

    Returns:
        ``"gradient of argument i"`` for each of them, counted from 1: that of a fixed weighted
        sum of all that the function returns.

    Raises:
        AnswerError: if no gradient reaches one of them, in words for the reader.

    Example:
        >>> import torch
        >>> from tutorial_lib.homework import gradients
        >>> gradients(lambda x: 3 * x, torch.ones(1))
        {'gradient of argument 1': tensor([1.5000])}
    """
    args = tuple(
        arg.clone().requires_grad_() if isinstance(arg, Tensor) and arg.is_floating_point() else arg
        for arg in args
    )
    y = function(*args)
    if not isinstance(y, Tensor):
        raise AnswerError(f"wanted a Tensor, came {'None' if y is None else type(y).__name__}")
    if y.requires_grad:
        (y * torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape)).sum().backward()
    found = {}
    for place, arg in enumerate(args, start=1):
        if isinstance(arg, Tensor) and arg.requires_grad:
            if arg.grad is None:
                raise AnswerError(
                    f"no gradient reaches argument {place}, so it could never be learned"
                )
            found[f"gradient of argument {place}"] = arg.grad
    return found


def with_weights(module: nn.Module, weights: dict[str, Tensor | None], *args: Any) -> Any:
    """What a reader's module returns with the given weights, whatever it calls its own.

    A weight goes to the parameter of its name if there is one, else to the first in the order of
    definition whose shape fits. Where sizes differ, an axis order of the reader's own is seen and
    followed: ``(d_in, d_out)`` is as good as ``(d_out, d_in)``.

    Args:
        module: any module.
        weights: name and values. None stands for a weight that is to have no effect: a parameter
            that is left over becomes 0.
        args: what the module is called with.

    Returns:
        What the module returns.

    Raises:
        AnswerError: if the parameters do not match the weights, in words for the reader.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from tutorial_lib.homework import with_weights
        >>> with_weights(nn.Linear(2, 1, bias=False), {"w": torch.ones(1, 2)}, torch.ones(2))
        tensor([2.])
    """
    own = dict(module.named_parameters())
    left, given = dict(own), {}
    for role, value in weights.items():
        name = None if value is None else _parameter(role, value, left)
        if value is not None and name is not None:
            given[name] = _fold(value, left.pop(name).shape)
        elif value is not None:
            raise AnswerError(_mismatch(own, weights))
    if len(left) > sum(value is None for value in weights.values()):
        raise AnswerError(_mismatch(own, weights))
    given |= {name: torch.zeros_like(parameter) for name, parameter in left.items()}
    return torch.func.functional_call(module, given, args)


def _parameter(role: str, value: Tensor, left: dict[str, nn.Parameter]) -> str | None:
    def fit(parameter: nn.Parameter) -> int:
        return (value.shape == parameter.shape) + (sorted(value.shape) == sorted(parameter.shape))

    named = [n for n, p in left.items() if n.rpartition(".")[2] == role and fit(p)]
    best = sorted((n for n, p in left.items() if fit(p)), key=lambda n: -fit(left[n]))
    return next(iter(named + best), None)


def _fold(value: Tensor, shape: torch.Size) -> Tensor:
    """``value`` with its axes in the order that gives ``shape``."""
    orders = permutations(range(value.dim()))  # the order as it is comes first
    return next(value.permute(o) for o in orders if value.permute(o).shape == shape)


def _mismatch(own: dict[str, nn.Parameter], weights: dict[str, Tensor | None]) -> str:
    wanted = {name: tuple(value.shape) for name, value in weights.items() if value is not None}
    came = {name: tuple(parameter.shape) for name, parameter in own.items()}
    return (
        f"the module's parameters must take {_listed(wanted)}, but they are "
        f"{_listed(came) or 'none: is each weight an nn.Parameter?'}"
    )


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


# The register

_BOOK: dict[str, Exercise] = {}
_OWN: dict[str, Exercise] = {}  # what a course has registered; it comes first


def _load() -> dict[str, Exercise]:
    """All exercises by name. The chapters' files are read when the first one is asked for."""
    if not _BOOK:
        found: dict[str, Exercise] = {}
        package = __name__.rpartition(".")[0]
        for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])):
            if module.startswith("chapter_"):
                chapter = importlib.import_module(f"{package}.{module}")
                found |= {exercise.name: exercise for exercise in chapter.EXERCISES}
        _BOOK.update(found)
    return _BOOK | _OWN


def register(*exercises: Exercise) -> None:
    """Make exercises known to :func:`check` by name; one of the book is replaced by yours.

    Args:
        exercises: new ones, or those of the book with cases of your own.

    Raises:
        TypeError: if one is not an :class:`Exercise`.

    Example:
        >>> from tutorial_lib.homework import Case, find, register
        >>> hard = Case("one class", lambda draw: (draw.normal(3, 1),), hint="It is certain.")
        >>> register(find("softmax").extended(cases=[hard]))
        >>> len(find("softmax").cases)
        4
        >>> from tutorial_lib.homework import exercise
        >>> exercise._OWN.clear()  # back to the book's
    """
    for exercise in exercises:
        if not isinstance(exercise, Exercise):
            raise TypeError(f"exercises must be Exercise objects, got {type(exercise).__name__}")
    _OWN.update({exercise.name: exercise for exercise in exercises})


def find(name: str) -> Exercise:
    """The exercise of that name.

    Args:
        name: as :func:`exercises` lists it.

    Raises:
        ValueError: if there is none; the message suggests the nearest names.

    Example:
        >>> from tutorial_lib.homework import find
        >>> find("softmax").signature
        'softmax(logits)'
    """
    known = _load()
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(str(name).lower(), known, n=3, cutoff=0.5)
        rest = f"did you mean {' or '.join(map(repr, near))}?" if near else "see exercises()"
        raise ValueError(f"there is no exercise {name!r}: {rest}")
    return known[name]


class Statement(str):
    """Markdown that a notebook shows as text and formulas.

    Example:
        >>> from tutorial_lib.homework import Statement
        >>> Statement("**Add** all entries.")
        **Add** all entries.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


def statement(name: str) -> Statement:
    """What an exercise asks for, ready to be shown in a notebook.

    Args:
        name: as :func:`exercises` lists it.

    Raises:
        ValueError: if there is no such exercise.

    Example:
        >>> from tutorial_lib.homework import statement
        >>> statement("softmax")
        **`softmax(logits)`** (2 points)
        <BLANKLINE>
        ...
    """
    exercise = find(name)
    points = f"{exercise.points:g} point{'s' if exercise.points != 1 else ''}"
    return Statement(f"**`{exercise.signature}`** ({points})\n\n{exercise.statement.strip()}\n")


class Catalog(tuple[Exercise, ...]):
    """Exercises, shown as a table.

    Example:
        >>> from tutorial_lib.homework import Catalog
        >>> Catalog()
        no exercises
    """

    __slots__ = ()

    def __repr__(self) -> str:
        wide = max((len(one.signature) for one in self), default=0)
        lines = [f"{e.chapter:>2}  {e.signature:<{wide}}  {e.points:g}" for e in self]
        return "\n".join(lines) or "no exercises"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{e.chapter}</td><td><code>{html.escape(e.signature)}</code></td>"
            f"<td>{e.points:g}</td></tr>"
            for e in self
        )
        head = "<tr><th>Chapter</th><th>Function</th><th>Points</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def exercises(chapter: int | None = None) -> Catalog:
    """The exercises there are, in the order of the book.

    Args:
        chapter: those of one chapter alone.

    Raises:
        TypeError: if ``chapter`` is not an int.

    Example:
        >>> from tutorial_lib.homework import exercises
        >>> [exercise.name for exercise in exercises(2)]
        ['conv1d', 'max_pool1d', 'receptive_field', 'toeplitz']
    """
    if chapter is not None:
        _check.integer("chapter", chapter, at_least=0)
    known = sorted(_load().values(), key=lambda exercise: exercise.chapter)
    return Catalog(one for one in known if chapter is None or one.chapter == chapter)

"""Judge an answer: run the cases, name the mistake, count the points."""

import inspect
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tutorial_lib import _check
from tutorial_lib.homework import _compare, _sandbox
from tutorial_lib.homework._sandbox import AnswerError
from tutorial_lib.homework.exercise import Case, Draw, Exercise, Wrong, find

NOT_DONE = "not yet done"


class CheckError(AssertionError):
    """An answer is wrong; the message is the report."""


@dataclass(frozen=True)
class Result:
    """What came of one case.

    Attributes:
        case: its name.
        right: whether the answer passed.
        message: one line that says what is wrong; empty where nothing is.
        detail: further lines, what was wanted beside what came.
        cause: the name of the known mistake that the answer behaves like, if there is one.
        hint: what to do about it.
        printed: the beginning of what the answer printed.

    Example:
        >>> from tutorial_lib.homework import check
        >>> check("softmax", lambda logits: logits, quiet=True).results[0].right
        False
    """

    case: str
    right: bool
    message: str = ""
    detail: tuple[str, ...] = ()
    cause: str | None = None
    hint: str | None = None
    printed: str = ""

    def lines(self) -> list[str]:
        """The result as text."""
        head = f"  {'right' if self.right else 'wrong'}  {self.case}"
        below = list(self.detail)
        if self.cause:
            below.append(f"likely cause: {self.cause}")
        if self.hint:
            below.append(f"hint: {self.hint}")
        if self.printed:
            first, *rest = self.printed.split("\n")
            below += [f"printed: {first}", *(f"         {line}" for line in rest)]
        return [
            head + (f": {self.message}" if self.message else ""),
            *(f"         {b}" for b in below),
        ]


@dataclass(frozen=True)
class Report:
    """What came of a check; true if every case is right.

    Attributes:
        exercise: its name.
        results: one :class:`Result` per case, or a single one if the answer could not be tried.
        points: what the answer earns: each case counts alike.
        possible: what a right answer earns.
        seed: give it to :func:`check` to see the same numbers again.

    Example:
        >>> from tutorial_lib.homework import check
        >>> report = check("softmax", lambda logits: logits, quiet=True, points=6)
        >>> bool(report), report.points, report.possible
        (False, 0.0, 6.0)
    """

    exercise: str
    results: tuple[Result, ...]
    points: float
    possible: float
    seed: int | None = None
    shown: bool = False

    def __bool__(self) -> bool:
        return all(result.right for result in self.results)

    def __str__(self) -> str:
        right = sum(result.right for result in self.results)
        lines = [line for result in self.results for line in result.lines()]
        score = f"{self.points:g} of {self.possible:g} points"
        drawn = any(result.detail for result in self.results)
        again = f" (seed={self.seed} gives the same numbers again)" if drawn else ""
        tail = f"  {right} of {len(self.results)} cases right, {score}"
        if len(self.results) == 1 and not self:
            tail = f"  {score}"
        return "\n".join([self.exercise, *lines, tail + again])

    def __repr__(self) -> str:
        right = sum(result.right for result in self.results)
        score = f"{self.points:g} of {self.possible:g} points"
        return f"<Report {self.exercise}: {right} of {len(self.results)} cases right, {score}>"

    def _ipython_display_(self) -> None:
        if not self.shown:  # the last line of a cell would otherwise show the report twice
            print(self)  # noqa: T201  showing itself is its purpose


def check(
    name: str | Exercise,
    answer: object,
    *,
    quiet: bool = False,
    raise_on_fail: bool = False,
    points: float | None = None,
    seed: int | None = None,
    seconds: float = 5.0,
) -> Report:
    """Try an answer on every case of an exercise, and say what is wrong with it.

    Nothing that the answer does reaches the session: not an exception, an endless loop, a flood of
    output, nor a changed random state or setting. Each call draws new numbers and sizes.

    Args:
        name: of the exercise, as :func:`exercises` lists it; or an exercise itself.
        answer: your function. Where the exercise allows it, also your class of modules.
        quiet: print nothing.
        raise_on_fail: raise :class:`CheckError` with the report if a case fails.
        points: what a right answer earns, in place of the exercise's own points.
        seed: draw the numbers of an earlier report again.
        seconds: how long the answer may take for one case.

    Returns:
        The :class:`Report`. It is true if all is right, so ``assert check(...)`` works.

    Raises:
        CheckError: if a case fails and ``raise_on_fail`` is set.
        TypeError: if an option is of another type.
        ValueError: if ``points``, ``seed`` or ``seconds`` is negative.

    Example:
        >>> from tutorial_lib.homework import check
        >>> def my_softmax(scores):
        ...     return scores.exp() / scores.exp().sum(0)
        >>> report = check("softmax", my_softmax, quiet=True)
        >>> report.results[0].cause
        'normalized over the batch'
    """
    _options(quiet, raise_on_fail, points, seed, seconds)
    if seed is None:
        seed = random.SystemRandom().randrange(2**31)  # leaves every random state alone
    try:
        exercise = name if isinstance(name, Exercise) else find(name)
    except ValueError as error:
        unknown = Result("unknown exercise", False, str(error))
        report = Report(str(name), (unknown,), 0.0, float(points or 0), shown=not quiet)
    else:
        results = _grade(exercise, answer, seed, seconds)
        possible = float(exercise.points if points is None else points)
        earned = round(possible * sum(r.right for r in results) / len(exercise.cases), 4)
        merged = _merged(results, len(exercise.cases))
        report = Report(exercise.name, merged, earned, possible, seed, shown=not quiet)
    if raise_on_fail and not report:
        raise CheckError(str(report))
    if not quiet:
        print(report)  # noqa: T201  printing is its purpose
    return report


def _options(
    quiet: bool, raise_on_fail: bool, points: float | None, seed: int | None, seconds: float
) -> None:
    _check.boolean("quiet", quiet)
    _check.boolean("raise_on_fail", raise_on_fail)
    _check.number("seconds", seconds)
    if points is not None:
        _check.number("points", points)
    if seed is not None:
        _check.integer("seed", seed, at_least=0)


def _merged(results: list[Result], count: int) -> tuple[Result, ...]:
    """One line instead of many, where the answer fails every case in the same words."""
    first = results[0]
    same = all((r.message, r.hint) == (first.message, first.hint) for r in results)
    if same and not first.right and not first.detail and len(results) in (1, count) and count > 1:
        return (Result("every case", False, first.message, (), first.cause, first.hint),)
    return tuple(results)


# One answer


class _Answer:
    """A function, or a class of modules, that takes the exercise's arguments by position."""

    def __init__(self, exercise: Exercise, answer: object) -> None:
        self.exercise, self.answer = exercise, answer
        self.arrays = exercise.numpy and not _uses_torch(answer)
        if answer is ... or answer is NotImplemented:
            raise AnswerError(NOT_DONE)
        if not callable(answer):
            raise AnswerError(
                f"wanted your function itself, came {type(answer).__name__}: "
                f"check({exercise.name!r}, mine), without a call"
            )
        if isinstance(answer, nn.Module) and exercise.as_module is not None:
            raise AnswerError(
                f"wanted the class itself, {type(answer).__name__}, not one module of it"
            )
        self.function = self._function(answer)

    def _function(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(answer, type):
            return lambda *args: _by_position(answer, args, self.exercise)
        as_module = self.exercise.as_module
        if as_module is not None:
            return lambda *args: as_module(lambda *sizes: _build(answer, sizes), *args)
        return lambda *args: _build(answer, ())(*args)

    def __call__(self, *args: Any) -> Any:
        came = self.function(*(_array(arg) if self.arrays else arg for arg in args))
        if came is None:  # before an observation stumbles over it
            raise AnswerError("your answer is None: is a return missing?")
        if isinstance(came, np.ndarray) and not self.exercise.numpy:
            raise AnswerError(
                "wanted a Tensor, came a NumPy array: gradients cannot pass through it"
            )
        return _tensor(came)


def _build(answer: Callable[..., Any], sizes: tuple[Any, ...]) -> nn.Module:
    called = f"{getattr(answer, '__name__', 'your class')}({', '.join(map(str, sizes))})"
    if not _binds(answer, sizes, {}):
        raise AnswerError(
            f"your class must be made by {called}, but takes {inspect.signature(answer)}"
        )
    module = answer(*sizes)
    if not isinstance(module, nn.Module):
        raise AnswerError(f"{called} must be an nn.Module, came {type(module).__name__}")
    return module


def _by_position(answer: Callable[..., Any], args: tuple[Any, ...], exercise: Exercise) -> Any:
    """Names stay the reader's own; only keyword-only arguments need the exercise's."""
    if _binds(answer, args, {}):
        return answer(*args)
    names = exercise.parameters[: len(args)]
    kinds = {name: p.kind for name, p in inspect.signature(answer).parameters.items()}
    only = {n for n in names if kinds.get(n) is inspect.Parameter.KEYWORD_ONLY}
    named = {n: arg for n, arg in zip(names, args, strict=True) if n in only}
    others = tuple(arg for n, arg in zip(names, args, strict=True) if n not in only)
    if not named or not _binds(answer, others, named):
        takes = f"{getattr(answer, '__name__', 'your function')}{inspect.signature(answer)}"
        raise AnswerError(f"the exercise calls {exercise.signature}, but yours is {takes}")
    return answer(*others, **named)


def _binds(answer: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        inspect.signature(answer).bind(*args, **named)
    except TypeError:
        return False
    except ValueError:  # written in C, it does not tell
        return True
    return True


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def _tensor(value: Any) -> Any:
    """The same with arrays as tensors, and one-number arrays as numbers."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise AnswerError(f"wanted numbers, came an array of {value.dtype}")
        return torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_tensor(one) for one in value]
    if isinstance(value, dict):
        return {key: _tensor(one) for key, one in value.items()}
    return value


def _uses_torch(answer: object) -> bool:
    """Whether the code of a function names anything of PyTorch's."""
    function: Any = getattr(answer, "func", answer)  # a partial
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return isinstance(answer, type | nn.Module) or _from_torch(function)
    return any(_from_torch(function.__globals__.get(name)) for name in _names(code))


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _from_torch(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == "torch"


# One case


def _try(answer: _Answer, case: Case, seed: int, seconds: float) -> _sandbox.Outcome:
    """What the answer makes of one case; the case's numbers depend on ``seed`` alone."""
    observe = case.observe or (lambda function, *args: function(*args))

    def work() -> object:
        args = case.inputs(Draw(seed))
        before = [_copy(arg) for arg in args]
        try:
            value = observe(answer, *args)
        except NotImplementedError as error:
            if "aten::" in str(error):  # PyTorch's own: an operation that a device lacks
                raise
            raise AnswerError(NOT_DONE) from error
        for name, arg, kept in zip(answer.exercise.parameters, args, before, strict=False):
            if isinstance(arg, Tensor) and _compare.difference(kept, arg, 0.0) is not None:
                raise AnswerError(f"changes its argument {name} in place: work on a copy")
        return value

    return _sandbox.run(work, seed, seconds)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _outcomes(answer: _Answer, seeds: list[int], seconds: float) -> list[_sandbox.Outcome]:
    """What the answer makes of each case, up to the first that takes too long."""
    outcomes: list[_sandbox.Outcome] = []
    for case, seed in zip(answer.exercise.cases, seeds, strict=True):
        outcome = _try(answer, case, seed, seconds)
        if not outcomes and outcome.failure is not None and answer.exercise.numpy:
            # Arrays or tensors? The code gave a guess, and it may have been the wrong one.
            answer.arrays = not answer.arrays
            other = _try(answer, case, seed, seconds)
            if other.failure is None:
                outcome = other
            else:
                answer.arrays = not answer.arrays
        outcomes.append(outcome)
        if outcome.late:  # one wait is enough
            break
    return outcomes


def _grade(exercise: Exercise, given: object, seed: int, seconds: float) -> list[Result]:
    try:
        answer = _Answer(exercise, given)
    except AnswerError as problem:
        return [Result("every case", False, str(problem))]
    seeds = [random.Random(f"{seed} {case.name}").randrange(2**31) for case in exercise.cases]
    wanted = _outcomes(_Answer(exercise, exercise.reference), seeds, 60.0)
    for case, outcome in zip(exercise.cases, wanted, strict=False):
        if outcome.late or outcome.failure is not None:
            what = "is late" if outcome.late else _failure(outcome)
            raise RuntimeError(
                f"the reference of {exercise.name!r} fails in the case {case.name!r}: {what}"
            )
    came = _outcomes(answer, seeds, seconds)
    always = all(outcome.failure is not None for outcome in came)
    triples = zip(exercise.cases, wanted, came, strict=False)
    found = [_verdict(*three, always) for three in triples]
    causes = _causes(exercise, seeds, came, found)
    results = [
        _result(*four, seconds) for four in zip(exercise.cases, came, found, causes, strict=False)
    ]
    skipped = exercise.cases[len(came) :]
    return results + [Result(case.name, False, "not tried") for case in skipped]


def _verdict(
    case: Case, wanted: _sandbox.Outcome, came: _sandbox.Outcome, always: bool
) -> _compare.Difference | None:
    """None for a right answer. What ``always`` fails says nothing about this case."""
    if came.late:
        return _compare.Difference("", kind=True)
    if came.failure is not None:
        return _compare.Difference(
            _failure(came), kind=came.failure.kind == "AnswerError" or always
        )
    return _compare.difference(wanted.value, came.value, case.close)


def _failure(came: _sandbox.Outcome) -> str:
    failure = came.failure
    assert failure is not None
    if failure.kind == "AnswerError":
        return failure.message
    text = f"{failure.kind}: {failure.message}" if failure.message else failure.kind
    return f"{text} (your {failure.line})" if failure.line else text


def _causes(
    exercise: Exercise,
    seeds: list[int],
    came: list[_sandbox.Outcome],
    found: list[_compare.Difference | None],
) -> list[Wrong | None]:
    """For each case the known mistake that the answer behaves like, there and in most others."""
    if not any(found):
        return [None] * len(came)
    alike: dict[int, list[bool]] = {}
    for number, wrong in enumerate(exercise.wrong):
        mistaken = _outcomes(_Answer(exercise, wrong.answer), seeds, 5.0)
        alike[number] = [
            _alike(*three) for three in zip(exercise.cases, mistaken, came, strict=False)
        ]
        alike[number] += [False] * (len(came) - len(mistaken))
    causes: list[Wrong | None] = []
    for place, verdict in enumerate(found):
        likely = [number for number in alike if verdict is not None and alike[number][place]]
        best = max(likely, key=lambda number: sum(alike[number]), default=None)
        causes.append(None if best is None else exercise.wrong[best])
    return causes


def _alike(case: Case, mistaken: _sandbox.Outcome, came: _sandbox.Outcome) -> bool:
    if mistaken.late or came.late:
        return False
    if mistaken.failure is not None or came.failure is not None:
        one, other = mistaken.failure, came.failure
        return bool(one and other and (one.kind, one.message) == (other.kind, other.message))
    return _compare.difference(mistaken.value, came.value, case.close) is None


def _result(
    case: Case,
    came: _sandbox.Outcome,
    verdict: _compare.Difference | None,
    cause: Wrong | None,
    seconds: float,
) -> Result:
    if came.late:
        message = f"takes longer than {seconds:g} s, and was stopped: does a loop ever end?"
        if not came.stopped:
            message = (
                f"takes longer than {seconds:g} s and could not be stopped: restart the kernel"
            )
        return Result(case.name, False, message, printed=came.printed)
    if verdict is None:
        return Result(case.name, True, printed=came.printed)
    hint = cause.hint if cause is not None else None if verdict.kind else case.hint
    name = None if cause is None else cause.name
    return Result(
        case.name, False, verdict.message, verdict.detail, name, hint, printed=came.printed
    )


# Testing the exercises themselves


def audit(exercise: Exercise, seeds: Sequence[int] = range(3)) -> list[str]:
    """What is wrong with an exercise: an empty list means that it can be trusted.

    A right answer must pass, every known mistake must fail and be told its own name, and every
    case must be needed: without it, some mistake would pass.

    Args:
        exercise: one of the book's, or your own.
        seeds: each of them is tried.

    Returns:
        One sentence per fault.

    Raises:
        TypeError: if it is not an :class:`Exercise`.

    Example:
        >>> from tutorial_lib.homework import audit, find
        >>> audit(find("softmax"), seeds=[7])
        []
    """
    if not isinstance(exercise, Exercise):
        raise TypeError(f"exercise must be an Exercise, got {type(exercise).__name__}")
    faults = []
    needed: set[str] = set()
    for seed in seeds:
        for place, answer in enumerate((exercise.reference, *exercise.right)):
            if not check(exercise, answer, quiet=True, seed=seed):
                name = f"right answer {place}" if place else "the reference"
                faults.append(f"seed {seed}: {name} fails")
        for wrong in exercise.wrong:
            results = _grade(exercise, wrong.answer, seed, 5.0)
            failed = [result for result in results if not result.right]
            if not failed:
                faults.append(f"seed {seed}: {wrong.name!r} passes")
            for result in failed:
                if result.cause != wrong.name:
                    said = f"is told {result.cause!r} in the case {result.case!r}"
                    faults.append(f"seed {seed}: {wrong.name!r} {said}")
            if len(failed) == 1:
                needed.add(failed[0].case)
    for case in exercise.cases:
        if case.name not in needed and len(exercise.cases) > 1:
            faults.append(f"the case {case.name!r} is not needed: every mistake fails without it")
    return faults

"""The exercises are judged as strictly as the answers: each of them runs through these tests."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import homework
from tutorial_lib.homework import (
    Case,
    CheckError,
    Draw,
    Exercise,
    Report,
    Statement,
    Wrong,
    audit,
    check,
    exercises,
    find,
    gradients,
    grading,
    register,
    statement,
    with_weights,
)
from tutorial_lib.homework import exercise as registry
from tutorial_lib.homework._compare import difference

BOOK = exercises()
each = pytest.mark.parametrize("exercise", BOOK, ids=lambda exercise: exercise.name)


@pytest.fixture(autouse=True)
def _forget_own_exercises():
    yield
    registry._OWN.clear()


def quiet(name, answer, seconds=60.0, **options) -> Report:
    # Readers have five seconds. Here a busy machine must not change a verdict.
    return check(name, answer, quiet=True, seconds=seconds, **options)


# The exercises


@each
def test_wrong_answers_fail_with_their_hint_and_every_case_is_needed(exercise: Exercise) -> None:
    assert audit(exercise, seeds=[random.SystemRandom().randrange(2**31)]) == []


@each
def test_right_answers_pass_whatever_is_drawn(exercise: Exercise) -> None:
    answers = [exercise.reference, *exercise.right]
    assert len(answers) > 1, "each exercise has right answers in other styles"
    for seed in range(50):
        report = quiet(exercise, answers[seed % len(answers)], seed=seed)
        assert report, f"{report}\n{seed % len(answers)}"
        assert report.points == exercise.points


@each
def test_wrong_answers_are_told_what_to_do(exercise: Exercise) -> None:
    assert len(exercise.wrong) >= 5
    for wrong in exercise.wrong:
        text = str(quiet(exercise, wrong.answer))
        assert f"likely cause: {wrong.name}" in text
        assert f"hint: {wrong.hint}" in text
        assert "line " not in text.partition("likely cause")[0], "no line of ours is the reader's"


def moved(value):
    if isinstance(value, (tuple, list)):
        return [moved(one) for one in value]
    return value + 12345


@each
def test_an_unforeseen_answer_gets_the_hint_of_the_case(exercise: Exercise) -> None:
    right = grading._Answer(exercise, exercise.reference)
    report = quiet(exercise, lambda *args: moved(right(*args)))
    assert not report
    assert report.points < report.possible
    hints = {case.hint for case in exercise.cases}
    assert {result.hint for result in report.results if result.hint} & hints


@each
def test_an_answer_not_yet_done_is_called_so(exercise: Exercise) -> None:
    def todo(*args):
        raise NotImplementedError

    assert "every case: not yet done" in str(quiet(exercise, todo))
    assert "every case: not yet done" in str(quiet(exercise, ...))
    nothing = quiet(exercise, lambda *args: None)
    assert not nothing
    assert nothing.points == 0
    assert "None" in nothing.results[0].message


@each
def test_sizes_never_coincide_and_the_seed_alone_decides(exercise: Exercise) -> None:
    for case in exercise.cases:
        for seed in range(20):
            first, again = (case.inputs(Draw(seed)) for _ in range(2))
            for arg, copy in zip(first, again, strict=True):
                if isinstance(arg, Tensor):
                    assert torch.equal(arg, copy)
                    assert len(set(arg.shape)) == arg.dim(), (case.name, arg.shape)


@each
def test_statements_are_complete(exercise: Exercise) -> None:
    shown = statement(exercise.name)
    assert shown._repr_markdown_() == str(shown) == repr(shown)
    assert exercise.signature in shown
    assert shown.count("$$") % 2 == 0
    assert shown.replace("$$", "").count("$") % 2 == 0
    assert shown.count("`") % 2 == 0


def test_each_chapter_has_at_least_four_exercises() -> None:
    assert len(exercises(1)) >= 4
    assert len(exercises(2)) >= 4
    assert len(exercises(4)) >= 4
    assert len({exercise.name for exercise in BOOK}) == len(BOOK)


# The audit itself


def toy(**changes) -> Exercise:
    settings = {
        "name": "toy",
        "chapter": 0,
        "signature": "toy(x, y=1)",
        "statement": "Double `x`.",
        "reference": lambda x: 2 * x,
        "cases": [
            Case("one", lambda draw: (draw.normal(draw.size()),), "Twice."),
            Case("zeros", lambda draw: (torch.zeros(3),), "Nothing."),
        ],
        "wrong": [
            Wrong("half", lambda x: x / 2, "Not half."),
            Wrong("one more at 0", lambda x: 2 * x + (x == 0), "No constant."),
        ],
    }
    return Exercise(**(settings | changes))


def test_the_audit_finds_what_is_wrong_with_an_exercise() -> None:
    assert audit(toy()) == []
    half, more = toy().wrong
    no_mistake = Wrong("none", lambda x: x + x, "?")
    assert any("'none' passes" in fault for fault in audit(toy(wrong=[half, more, no_mistake])))
    assert audit(toy(wrong=[half])) == [
        "the case 'zeros' is not needed: every mistake fails without it"
    ]
    twin = Wrong("also half", lambda x: 0.5 * x, "Not half.")
    assert any("is told 'half'" in fault for fault in audit(toy(wrong=[half, more, twin])))
    assert any("right answer 1 fails" in fault for fault in audit(toy(right=[lambda x: 3 * x])))
    with pytest.raises(RuntimeError, match="reference of 'toy' fails in the case 'one'"):
        audit(toy(reference=lambda x: x.nothing))


# The report


def by_rows(z):
    return np.exp(z) / np.exp(z).sum()


def test_one_line_per_case_and_what_was_wanted_beside_what_came(capsys) -> None:
    report = check("softmax", find("softmax").wrong[0].answer, seed=5)
    text = capsys.readouterr().out
    assert text == f"{report}\n"
    lines = text.split("\n")
    assert lines[0] == "softmax"
    assert [line[:9].split()[0] for line in lines if line[:3] == "  r" or line[:3] == "  w"] == [
        "right",
        "wrong",
        "right",
    ]
    assert "numbers are NaN, the first at [0, 0]: wanted" in text
    assert "wanted [[" in text
    assert "came   [[nan" in text
    assert (
        lines[-2]
        == "  2 of 3 cases right, 1.3333 of 2 points (seed=5 gives the same numbers again)"
    )
    assert report._ipython_display_() is None  # shown already
    assert capsys.readouterr().out == ""


def test_quiet_raise_on_fail_and_points(capsys) -> None:
    report = quiet("softmax", lambda z: z, points=9)
    assert (bool(report), report.points, report.possible) == (False, 0.0, 9.0)
    with pytest.raises(CheckError, match="likely cause") as caught:
        quiet("softmax", find("softmax").wrong[2].answer, raise_on_fail=True)
    assert isinstance(caught.value, AssertionError)
    assert (
        quiet("softmax", partial(torch.softmax, dim=-1), raise_on_fail=True, points=6).points == 6
    )
    assert capsys.readouterr().out == ""
    report._ipython_display_()
    assert capsys.readouterr().out.startswith("softmax\n")
    assert repr(report) == "<Report softmax: 0 of 3 cases right, 0 of 9 points>"


def test_the_seed_repeats_a_report_and_without_it_numbers_are_fresh() -> None:
    answer = find("conv1d").wrong[0].answer
    assert str(quiet("conv1d", answer, seed=3)) == str(quiet("conv1d", answer, seed=3))
    assert len({str(quiet("conv1d", answer)) for _ in range(3)}) == 3


def test_two_mistakes_at_once_get_the_hint_of_the_case() -> None:
    def both(x, weight, bias=None, stride=1, padding=0, dilation=1):
        return F.conv1d(x, weight.flip(-1), None, stride, 0, dilation)

    report = quiet("conv1d", both)
    assert report.results[0].cause is None
    assert report.results[0].hint == find("conv1d").cases[0].hint


@pytest.mark.parametrize(
    ("wanted", "came", "said"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2), r"shape \(2, 3\), came \(3, 2\): .* another order"),
        (torch.zeros(2), torch.zeros(5), r"shape \(2,\), came \(5,\)"),
        (torch.zeros(2), torch.zeros(2, device="meta"), "on the device meta, the input on cpu"),
        (torch.zeros(2), torch.eye(2)[0].to_sparse(), "dense"),
        (torch.zeros(2), "zeros", "wanted a Tensor, came a str"),
        (torch.zeros(2), None, "None: is a return missing"),
        (3, 4, "wanted 3, came 4"),
        (3, [4], "wanted a number, came a list"),
        ((1, 2), (1, 2, 3), "wanted 2 results, came 3"),
        ((1, 2), 1, "wanted 2 results, came an int"),
        ((1, 2), (1, 5), "result 2: wanted 2, came 5"),
        ({"a": 1, "b": 2}, (1, 5), "b wanted 2, came 5"),
        ({"a": 1, "b": 2}, {"a": 1}, "dict of a, b, came the keys"),
        ((1, 2), {"a": 1, "b": 2}, None),
        ("yes", "no", "wanted 'yes', came 'no'"),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), None),
        (torch.ones(2), torch.ones(2, dtype=torch.int64), None),
        (torch.tensor(2.0), 2, None),
        (torch.full((2,), torch.inf), torch.full((2,), torch.inf), None),
        (torch.ones(2), torch.ones(2) * 1.01, r"2 of 2 numbers differ, the first at \[0\]"),
    ],
)
def test_differences_are_named(wanted, came, said) -> None:
    found = difference(wanted, came, 1e-4)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert pytest.RaisesExc(AssertionError, match=said).matches(AssertionError(found.message))


def test_of_a_large_tensor_only_the_first_wrong_row_is_shown() -> None:
    came = torch.zeros(20, 30)
    came[7, 3] = 1
    found = difference(torch.zeros(20, 30), came, 1e-4)
    assert "1 of 600 numbers differ, the first at [7, 3]: wanted 0, came 1" in found.message
    assert found.detail[0].startswith("wanted [7] [")
    assert sum(map(len, found.detail)) < 500


# What an answer may be


def test_modules_are_given_weights_whatever_they_call_their_own() -> None:
    class Mine(nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.shift = nn.Parameter(torch.full((m,), 9.0))
            self.inner = nn.Linear(n, m, bias=False)

        def forward(self, x):
            return self.inner(x) + self.shift

    assert quiet("linear", Mine)
    module = Mine(3, 2)
    with_weights(module, {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, torch.ones(3))
    assert (module.shift == 9).all(), "the module keeps its own weights"


def test_equal_shapes_go_by_name_and_then_by_order() -> None:
    class Two(nn.Module):
        def __init__(self, first, second):
            super().__init__()
            setattr(self, first, nn.Parameter(torch.zeros(2)))
            setattr(self, second, nn.Parameter(torch.zeros(2)))
            self.names = first, second

        def forward(self):
            return torch.stack([getattr(self, name) for name in self.names])

    given = {"key": torch.full((2,), 1.0), "value": torch.full((2,), 2.0)}
    assert with_weights(Two("value", "key"), given).tolist() == [[2, 2], [1, 1]]
    assert with_weights(Two("a", "b"), given).tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (nn.Linear(3, 2), "wanted the class itself, Linear, not one module of it"),
        (nn.ReLU, r"must be made by ReLU\(.*but takes \(inplace: bool = False\)"),
        (partial, "must be"),
        (nn.Bilinear, "must be made by Bilinear"),
        (nn.Identity, "parameters must take weight .* but they are none"),
    ],
)
def test_classes_that_do_not_fit(answer, said) -> None:
    text = str(quiet("linear", answer))
    assert pytest.RaisesExc(AssertionError, match=said).matches(AssertionError(text)), text


def test_a_module_is_a_function_too_and_so_is_a_class_without_arguments() -> None:
    assert quiet("softmax", nn.Softmax(-1))

    class Soft(nn.Module):
        def forward(self, z):
            return z.softmax(-1)

    assert quiet("softmax", Soft)
    assert quiet("dropout", nn.Dropout)


def test_names_of_arguments_are_free() -> None:
    assert quiet("conv1d", lambda a, b, c=None, d=1, e=0, f=1: F.conv1d(a, b, c, d, e, f))
    assert quiet("conv1d", lambda *all_of_them: F.conv1d(*all_of_them))

    def keywords(x, weight, bias=None, *, stride=1, padding=0, dilation=1):
        return F.conv1d(x, weight, bias, stride, padding, dilation)

    assert quiet("conv1d", keywords)


def test_arrays_and_tensors_where_the_lesson_is_in_numpy() -> None:
    def arrays(z):
        e = np.exp(z - np.max(z, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    def tensors(z):
        return F.softmax(z, dim=1)

    def helper(z):
        return tensors(z)  # names neither: found out by trying

    def lists(z):
        return arrays(np.asarray(z)).tolist()

    assert quiet("softmax", arrays)
    assert quiet("softmax", tensors)
    assert quiet("softmax", helper)
    assert "wanted a Tensor, came a list" in str(quiet("softmax", lists))


# What an answer may do


def boom(error):
    def answer(*args):
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\nsecond line"), "ValueError: no (your line"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt ("),
        (GeneratorExit(), "GeneratorExit"),
        (ValueError("x" * 10_000), "x …"),
        (AssertionError(), "AssertionError ("),
    ],
)
def test_exceptions_end_in_a_line(error, said) -> None:
    report = quiet("receptive_field", boom(error))
    assert not report
    assert said in report.results[0].message
    assert len(report.results[0].message) < 500
    assert "raise error" in report.results[0].message, "the reader's own line"
    assert "second line" not in str(report)


def test_the_line_shown_is_the_readers_even_if_a_library_raised() -> None:
    def answer(x, weight, bias):
        y = x + 0
        return F.linear(y, weight.T)

    assert "your line" in quiet("linear", answer).results[0].message
    assert "return F.linear(y, weight.T)" in quiet("linear", answer).results[0].message


def test_an_error_in_each_case_is_said_once_and_gets_no_hint_of_a_case() -> None:
    report = quiet("softmax", boom(ValueError("always")))
    assert [result.case for result in report.results] == ["every case"]
    assert "hint" not in str(report)

    def of_long_lists(layers):
        return find("receptive_field").reference(layers) + 0 // len(layers)

    first = quiet("receptive_field", of_long_lists).results[0]
    assert "ZeroDivisionError" in first.message
    assert first.hint == find("receptive_field").cases[0].hint


def test_an_exception_that_cannot_be_printed() -> None:
    class MuteError(Exception):
        def __str__(self):
            raise ValueError

    assert "cannot be printed" in quiet("receptive_field", boom(MuteError())).results[0].message


def test_endless_recursion() -> None:
    def answer(layers):
        return answer(layers)

    assert "RecursionError" in quiet("receptive_field", answer).results[0].message


def stubborn_loop(layers):
    while True:
        with contextlib.suppress(Exception):
            sum(layer[0] for layer in layers)


def empty_loop(layers):
    while True:
        pass


@pytest.mark.parametrize("answer", [empty_loop, stubborn_loop])
def test_an_endless_loop_is_stopped(answer) -> None:
    before = threading.active_count()
    report = quiet("receptive_field", answer, seconds=0.2)
    assert "takes longer than 0.2 s, and was stopped" in report.results[0].message
    assert [result.message for result in report.results[1:]] == ["not tried"] * 2
    assert report.points == 0
    assert threading.active_count() == before, "no thread runs on"


def test_a_loop_that_nothing_stops_is_left_behind_and_said() -> None:
    ended = threading.Event()

    def answer(layers):
        ended.wait()

    report = quiet("receptive_field", answer, seconds=0.1)
    ended.set()
    assert "could not be stopped: restart the kernel" in report.results[0].message
    assert quiet("receptive_field", find("receptive_field").reference)


def test_a_loop_that_prints_and_catches_all_is_silenced(capsys) -> None:
    ended = threading.Event()

    def answer(layers):
        while not ended.is_set():
            with contextlib.suppress(BaseException):
                print("again")  # noqa: T201

    assert not quiet("receptive_field", answer, seconds=0.1)
    ended.set()
    time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_a_flood_of_output_is_cut(capsys) -> None:
    def answer(layers):
        print("line\n" * 900_000, end="")  # noqa: T201
        for number in range(100_000):
            print("line", number)  # noqa: T201
        print("x" * 10_000, file=sys.stderr)  # noqa: T201
        return find("receptive_field").reference(layers)

    one = toy(
        name="receptive_field",
        signature="receptive_field(layers)",
        reference=find("receptive_field").reference,
        cases=find("receptive_field").cases[:1],
    )
    assert check(one, answer, seconds=60.0)
    text, errors = capsys.readouterr()
    assert "printed: line\n" in text
    assert "line … and 999,998 more lines" in text
    assert len(text) < 500
    assert errors == ""


def session():
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "random": random.getstate(),
        "numpy": (kind, keys.tolist(), rest),
        "torch": torch.get_rng_state().tolist(),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()),
        "anomaly": torch.is_anomaly_enabled(),
        "recursion": sys.getrecursionlimit(),
        "warnings": list(warnings.filters),
        "print": np.get_printoptions(),
        "errors": np.geterr(),
        "stdout": sys.stdout,
    }


def vandal(layers):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("medium")
    torch.autograd.set_detect_anomaly(True)
    sys.setrecursionlimit(5000)
    warnings.simplefilter("always")
    np.set_printoptions(precision=1)
    np.seterr(all="raise")
    sys.stdout = None
    return find("receptive_field").reference(layers)


def threads_of_a_new_thread() -> int:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return seen[0]


@pytest.mark.bad_input  # the runtime shape check itself draws from Python's random numbers
def test_the_session_is_left_as_it_was() -> None:
    before, threads = session(), threads_of_a_new_thread()
    assert quiet("receptive_field", vandal)
    assert session() == before
    assert threads_of_a_new_thread() == threads
    quiet("softmax", by_rows)
    quiet("conv1d", boom(ValueError()))
    assert session() == before


def test_the_session_does_not_change_the_verdict() -> None:
    answer = find("toeplitz").right[0]  # makes a tensor of the default dtype
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.device("meta"):
            assert quiet("toeplitz", answer)
            assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_inputs_changed_in_place_are_named() -> None:
    def in_place(x, weight, bias):
        y = x @ weight.T + bias
        x.zero_()
        return y

    assert "changes its argument x in place" in str(quiet("linear", in_place))

    def of_an_array(z):
        z -= z.max(-1, keepdims=True)
        return np.exp(z) / np.exp(z).sum(-1, keepdims=True)

    assert "changes its argument logits in place" in str(quiet("softmax", of_an_array))


@pytest.mark.skipif(sys.platform == "win32", reason="no signal to one thread")
def test_stop_pressed_while_an_answer_runs_reaches_the_reader() -> None:
    before, main = threading.active_count(), threading.main_thread().ident

    def answer(layers):
        signal.pthread_kill(main, signal.SIGINT)
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        quiet("receptive_field", answer)
    assert threading.active_count() == before


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("sofmax", by_rows, "there is no exercise 'sofmax': did you mean 'softmax'?"),
        ("Conv", by_rows, "did you mean 'conv1d'"),
        ("qqqqqq", by_rows, "there is no exercise 'qqqqqq': see exercises()"),
        (3, by_rows, "there is no exercise 3"),
        (None, by_rows, "there is no exercise None"),
        ("softmax", 3, "wanted your function itself, came int"),
        ("softmax", torch.zeros(3), "wanted your function itself, came Tensor"),
        ("softmax", None, "wanted your function itself, came NoneType"),
        ("softmax", lambda: 3, "the exercise calls softmax(logits), but yours is <lambda>()"),
        ("conv1d", lambda x: x, "the exercise calls conv1d(x, weight, bias=None"),
        ("softmax", lambda z: None, "your answer is None: is a return missing?"),
        ("softmax", lambda z: torch.empty_like(torch.as_tensor(z), device="meta"), "device meta"),
        ("softmax", lambda z: np.full_like(z, np.nan), "numbers are NaN, the first at [0, 0]"),
        ("softmax", lambda z: np.array(["a"]), "wanted numbers, came an array of <U1"),
        (
            "toeplitz",
            lambda k, n, s=1, p=0: np.zeros((n, n)),
            "wanted a Tensor, came a NumPy array",
        ),
        ("linear", lambda x, w, b: None, "is None: is a return missing?"),
        ("linear", lambda x, w, b: (x,), "wanted a Tensor, came a list"),
        ("linear", lambda x, w, b: (x @ w.T + b).data, "no gradient reaches argument 1"),
    ],
)
def test_bad_input_is_said_in_a_line(name, answer, said, capsys) -> None:
    report = check(name, answer)
    text = capsys.readouterr().out
    assert not report
    assert said in text
    assert len([line for line in text.split("\n") if said in line and len(line) < 200]) >= 1
    with pytest.raises(CheckError):
        quiet(name, answer, raise_on_fail=True)


def test_an_answer_on_another_device(device: torch.device) -> None:
    def answer(x, weight, bias):
        return F.linear(x.to(device), weight.to(device), bias.to(device))

    report = quiet("linear", answer)
    if device.type == "cpu":
        assert report
    else:
        assert f"is on the device {device.type}" in report.results[0].message


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"points": -1}, ValueError, "points must be at least 0"),
        ({"points": "3"}, TypeError, "points must be a number"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 1.5}, TypeError, "seed must be an int"),
        ({"seconds": -1}, ValueError, "seconds"),
        ({"quiet": "yes"}, TypeError, "quiet"),
        ({"raise_on_fail": 1}, TypeError, "raise_on_fail"),
    ],
)
def test_options_are_checked(options, error, said) -> None:
    with pytest.raises(error, match=said):
        check("softmax", by_rows, **options)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"name": ""}, TypeError, "name must be a text"),
        ({"name": "other"}, ValueError, "signature must be that of 'other'"),
        ({"signature": "toy(x"}, ValueError, "signature must be that of 'toy'"),
        ({"cases": []}, ValueError, "cases must hold at least one case"),
        ({"cases": toy().cases[:1] * 2}, ValueError, "cases must have different names"),
        ({"wrong": toy().wrong[:1] * 2}, ValueError, "wrong must have different names"),
        ({"reference": 3}, TypeError, "reference must be callable"),
        ({"chapter": "one"}, TypeError, "chapter must be an int"),
        ({"points": -1}, ValueError, "points must be at least 0"),
    ],
)
def test_exercises_are_checked(changes, error, said) -> None:
    with pytest.raises(error, match=said):
        toy(**changes)


@pytest.mark.bad_input
def test_other_bad_input() -> None:
    with pytest.raises(TypeError, match="hint must be a text"):
        Case("one", lambda draw: (), "")
    with pytest.raises(TypeError, match="observe must be callable"):
        Case("one", lambda draw: (), "hint", observe=3)
    with pytest.raises(TypeError, match="answer must be callable"):
        Wrong("one", 3, "hint")
    with pytest.raises(TypeError, match="must be Exercise objects"):
        register("softmax")
    with pytest.raises(TypeError, match="must be an Exercise"):
        audit("softmax")
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        find("sofmax")
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        statement("sofmax")
    with pytest.raises(TypeError, match="chapter must be an int"):
        exercises("one")
    draw = Draw(0)
    draw.sizes(8)
    with pytest.raises(ValueError, match="2 to 9 are all taken"):
        draw.size()


# The register


def test_a_course_adds_its_own_exercises_and_cases() -> None:
    register(toy())
    assert quiet("toy", lambda x: x + x)
    register(toy(points=5))  # a cell run twice
    assert quiet("toy", lambda x: x + x).possible == 5
    assert [one.name for one in exercises(0)] == ["toy"]
    strict = Case("one class", lambda draw: (draw.normal(3, 1),), hint="It is certain.")
    wrong = Wrong("constant", lambda z: z * 0 + 0.5, hint="Look at z.")
    register(find("softmax").extended(cases=[strict], wrong=[wrong]))
    report = quiet("softmax", lambda z: z * 0 + 0.5)
    assert len(report.results) == len(BOOK[0].cases) + 1
    assert report.results[-1].cause == "constant"
    assert exercises().count(find("softmax")) == 1


def test_tables() -> None:
    chapter = exercises(2)
    assert repr(chapter).count("\n") == len(chapter) - 1
    assert "toeplitz(kernel, length, stride=1, padding=0)" in repr(chapter)
    assert chapter._repr_html_().count("<tr>") == len(chapter) + 1
    assert repr(exercises(999)) == "no exercises"
    assert isinstance(statement("linear"), Statement)


def test_gradients_see_each_float_argument() -> None:
    found = gradients(lambda x, n, y: x.sum() * n * y, torch.ones(2), 3, torch.ones(1))
    assert found["gradient of argument 1"].tolist() == [1.5, 1.5]
    assert found["gradient of argument 3"].tolist() == [3.0]


def test_the_chapters_are_read_when_they_are_asked_for() -> None:
    program = """
import json, sys
from tutorial_lib.homework import check
before = sorted(sys.modules)
check("softmax", 3, quiet=True)
print(json.dumps([before, sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    before, after = map(set, json.loads(done.stdout))
    chapters = {"tutorial_lib.homework.chapter_01", "tutorial_lib.dense"}
    assert not chapters & before
    assert chapters <= after
    assert not {"matplotlib", "IPython"} & after
    assert homework.check is check

"""Run a stranger's function so that nothing it does outlives the call.

It runs in a thread of its own: there it can be stopped on every system and in every notebook
(signals reach the main thread alone, and not on Windows), and what PyTorch keeps per thread, such
as the gradient mode, ends with it. What is kept per process is written down and put back.
"""

import contextlib
import ctypes
import io
import linecache
import random
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

KEPT, LINES = 400, 3  # characters and lines of output that are kept
LONGEST = 200  # characters of an error message that are shown
_PACKAGE = str(Path(__file__).parent.parent)
_LIBRARIES = tuple(
    {
        _PACKAGE,
        str(Path(torch.__file__).parent),
        str(Path(np.__file__).parent),
        *(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")),
    }
)


class AnswerError(Exception):
    """An answer that cannot be used, with the one line that says why."""


class _TimeUp(BaseException):
    """Raised inside an answer that takes too long; not an Exception, which answers may catch."""


@dataclass(frozen=True)
class Failure:
    """An exception, put into words while the answer's own thread still runs.

    ``kind`` is the name of its type, ``line`` the answer's own line that raised it, if any.
    """

    kind: str
    message: str
    line: str


@dataclass(frozen=True)
class Outcome:
    """What came of one call: a value, or a failure, or too much time."""

    value: Any = None
    failure: Failure | None = None
    late: bool = False
    stopped: bool = True  # False where a late answer could not be stopped
    printed: str = ""


class _Capture(io.TextIOBase):
    """Takes all output, keeps the beginning, counts the lines."""

    def __init__(self) -> None:
        self.kept, self.lines = "", 0
        self.parked: int | None = None  # a thread that nothing could stop waits here for ever

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.parked is not None and self.parked == threading.get_ident():
            threading.Event().wait()
        if len(self.kept) < KEPT and self.lines < LINES:
            self.kept += text[: KEPT - len(self.kept)]
        self.lines += text.count("\n")
        return len(text)

    def text(self) -> str:
        kept = "\n".join(self.kept.split("\n")[:LINES]).rstrip("\n")
        more = self.lines - LINES
        return f"{kept} … and {more:,} more lines" if more > 0 else kept


class _Work:
    """One call in a thread: what came of it, and whether it may still be interrupted."""

    def __init__(self, function: Callable[[], object], seed: int) -> None:
        self.function, self.seed = function, seed
        self.value: object = None
        self.failure: Failure | None = None
        self.finished = False
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            try:
                _begin(self.seed)
                self.value = self.function()
            except _TimeUp:
                pass
            except BaseException as error:  # SystemExit and KeyboardInterrupt too
                self.failure = _describe(error)
            with self.lock:
                self.finished = True
        except _TimeUp:  # it was on its way when the answer came back
            pass

    def stop(self) -> bool:
        """Raise an exception inside the thread, again and again, since an answer may catch it."""
        for _ in range(200):
            with self.lock:
                if self.thread.ident is not None and not self.finished:
                    ident = ctypes.c_ulong(self.thread.ident)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_TimeUp))
            self.thread.join(0.005)
            if not self.thread.is_alive():
                return True
        return False


def run(function: Callable[[], object], seed: int, seconds: float) -> Outcome:
    """Call ``function`` with the given random numbers, for ``seconds`` at most."""
    work, capture = _Work(function, seed), _Capture()
    with _as_before(), contextlib.redirect_stdout(capture), contextlib.redirect_stderr(capture):
        try:
            work.thread.start()
            work.thread.join(seconds)
        except KeyboardInterrupt:  # the reader pressed stop
            work.stop()
            raise
        late = work.thread.is_alive()
        stopped = not late or work.stop()
        if not stopped:
            capture.parked = work.thread.ident
            work.thread.join(0.2)
    if late:
        return Outcome(late=True, stopped=stopped, printed=capture.text())
    return Outcome(work.value, work.failure, printed=capture.text())


def _begin(seed: int) -> None:
    """The same start for each answer, whatever the session has set."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the global state is what an answer may use
    # Not torch.manual_seed, which would also seed an accelerator that the session has not used.
    torch.default_generator.manual_seed(seed)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)  # the inputs are small, and a new thread would start a new team


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Put back what an answer may have changed for the whole process."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    mps = torch.backends.mps.is_available()
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    threads = torch.get_num_threads()
    strict = _strict()
    put_back: list[Callable[[], object]] = [
        _call(random.setstate, random.getstate()),
        _call(np.random.set_state, np.random.get_state()),  # noqa: NPY002
        _call(torch.set_rng_state, torch.get_rng_state()),
        _call(torch.set_default_dtype, torch.get_default_dtype()),
        _call(torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled()),
        _call(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
        _call(setattr, cudnn, "benchmark", cudnn.benchmark),
        _call(setattr, cudnn, "deterministic", cudnn.deterministic),
        _call(setattr, cudnn, "allow_tf32", cudnn.allow_tf32),
        _call(setattr, matmul, "allow_tf32", matmul.allow_tf32),
        _call(sys.setrecursionlimit, sys.getrecursionlimit()),
        _call(np.set_printoptions, **np.get_printoptions()),
    ]
    if cuda:
        put_back.append(_call(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if mps:
        put_back.append(_call(torch.mps.set_rng_state, torch.mps.get_rng_state()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if _strict() != strict:  # setting it imports the compiler, which takes seconds
            torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
        for step in put_back:
            step()
        torch.set_num_threads(threads)  # each thread has its number: ours does not show a change


def _strict() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _call(function: Callable[..., object], *args: object, **named: object) -> Callable[[], object]:
    return lambda: function(*args, **named)


def _describe(error: BaseException) -> Failure:
    try:
        message = str(error).strip().split("\n")[0]
    except Exception:
        message = "(its message cannot be printed)"
    if len(message) > LONGEST:
        message = message[:LONGEST] + " …"
    return Failure(type(error).__name__, message, _own_line(error.__traceback__))


def _own_line(trace: TracebackType | None) -> str:
    """The last line of the traceback that is neither ours nor a library's."""
    found: tuple[str, int] | None = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_LIBRARIES) and not name.startswith("<frozen"):
            found = name, trace.tb_lineno
        trace = trace.tb_next
    if found is None:
        return ""
    source = linecache.getline(*found).strip()
    return f"line {found[1]}" + (f": {source[:LONGEST]}" if source else "")

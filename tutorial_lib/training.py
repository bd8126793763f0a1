"""One training loop for every chapter, and what makes it safe to interrupt.

:func:`fit` is the loop, whole. Below it stand the pieces that it names: where its batches come
from, the processes it may share the work with, its record, and its checkpoints.
"""

import inspect
import math
import os
import random
import shutil
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from tutorial_lib import _check

IGNORE = -100
"""The target that no loss counts, for padding or a place where nothing is asked."""

Inputs: TypeAlias = Tensor | tuple[Tensor, ...] | list[Tensor] | dict[str, Tensor]
Batch: TypeAlias = tuple[Inputs, Tensor]
State: TypeAlias = dict[str, Any]
Answer = TypeVar("Answer")

_DECAYS = ("constant", "cosine", "inverse_sqrt", "linear")
_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_REPORT_EVERY = 100  # steps between two looks at the losses: each look waits for the device


def cross_entropy(
    logits: Float[Tensor, "*places C"],
    targets: Int[Tensor, "*places"],
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Float[Tensor, "*reduced"]:
    """Cross entropy in nats between logits and class ids, over any leading axes.

    Targets of -100 are not counted. Half-precision logits are summed in float32.

    Args:
        logits: unnormalized log-probabilities, classes last, ``(..., C)``.
        targets: class ids from 0 to C - 1, or -100, ``(...)``.
        reduction: ``"mean"`` over the counted targets, ``"sum"``, or ``"none"``.
        label_smoothing: the share of each target that is spread evenly over all classes.

    Returns:
        A scalar, or with ``"none"`` one loss per target, 0 where it is not counted. If nothing
        is counted, the mean is 0.

    Raises:
        ValueError: if a shape does not fit, a target is not a class, or an option is unknown.
        TypeError: if ``targets`` are not integers.

    Example:
        >>> import torch
        >>> from tutorial_lib.training import cross_entropy
        >>> logits = torch.zeros(2, 3, 4)                      # (B, T, V): all four alike
        >>> targets = torch.tensor([[0, 1, -100], [2, -100, -100]])
        >>> cross_entropy(logits, targets).exp()
        tensor(4.)
    """
    _check.one_of("reduction", reduction, ("mean", "none", "sum"))
    _check.number("label_smoothing", label_smoothing, below=1.0)
    _check_classes(logits, targets)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()  # a sum of many losses does not fit half precision
    flat = logits.reshape(-1, logits.shape[-1])  # (N, C)
    labels = targets.reshape(-1).long()  # (N,)
    how = "none" if reduction == "none" else "sum"
    loss = F.cross_entropy(
        flat, labels, ignore_index=IGNORE, reduction=how, label_smoothing=label_smoothing
    )
    if reduction == "mean":
        return loss / (labels != IGNORE).sum().clamp(min=1)
    return loss.reshape(targets.shape) if reduction == "none" else loss


def _check_classes(logits: Tensor, targets: Tensor) -> None:
    for name, tensor in (("logits", logits), ("targets", targets)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a Tensor, got {type(tensor).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got dtype {logits.dtype}")
    if logits.dim() == 0 or logits.shape[:-1] != targets.shape or logits.shape[-1] == 0:
        raise ValueError(
            f"logits must have shape (..., C) and targets (...), got {tuple(logits.shape)} "
            f"and {tuple(targets.shape)}"
        )
    _check.ids("targets", targets, logits.shape[-1], ignore=IGNORE)


def learning_rate(
    step: int, steps: int, lr: float, warmup: int = 0, decay: str = "cosine"
) -> float:
    """The learning rate of one step: a straight climb to ``lr``, then a decay.

    The climb takes ``warmup`` steps, the first of them at ``lr / warmup``. Then ``"cosine"`` and
    ``"linear"`` fall to 0, which they would reach at ``steps``, one step after the last;
    ``"constant"`` stays; ``"inverse_sqrt"`` falls as the root of the step.

    Source: the inverse root is that of Vaswani et al., *Attention Is All You Need*, section 5.3,
    which has ``lr = (d_model * warmup) ** -0.5``.

    Args:
        step: the step, from 0.
        steps: how many there are.
        lr: the highest rate.
        warmup: steps until it is reached.
        decay: ``"cosine"``, ``"linear"``, ``"constant"`` or ``"inverse_sqrt"``.

    Returns:
        The rate, from 0 to ``lr``.

    Raises:
        ValueError: if a number is out of range, or the decay unknown.
        TypeError: if an argument is of another type.

    Example:
        >>> from tutorial_lib.training import learning_rate
        >>> [learning_rate(step, 6, 1.0, warmup=2, decay="linear") for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    _check_schedule(steps, lr, warmup, decay)
    _check.integer("step", step, at_least=0)
    if step > steps:
        raise ValueError(f"step must be at most steps, got step={step}, steps={steps}")
    if step < warmup:
        return lr * (step + 1) / warmup
    if decay == "constant":
        return lr
    if decay == "inverse_sqrt":
        return lr * math.sqrt(max(warmup, 1) / (step + 1))
    progress = (step - warmup) / max(steps - warmup, 1)
    return lr * (1 - progress if decay == "linear" else (1 + math.cos(math.pi * progress)) / 2)


def _check_schedule(steps: int, lr: float, warmup: int, decay: str) -> None:
    _check.integer("steps", steps)
    _check.number("lr", lr)
    _check.integer("warmup", warmup, at_least=0)
    _check.one_of("decay", decay, _DECAYS)
    if warmup > steps:
        raise ValueError(f"warmup must be at most steps, got warmup={warmup}, steps={steps}")


class Batches:
    """The batch of each step, from shuffled passes over tensors that stay on their device.

    Each pass (epoch) has its own order, a function of ``seed`` and the number of the pass alone,
    so that the batch of step 1,000 can be had without the 999 before it. Every batch is full: the
    ``len(targets) % batch_size`` examples at the end of a pass are left out of that pass, other
    ones each time.

    Args:
        inputs: what the model is given, examples on the first axis: a tensor, a tuple of tensors
            for ``model(*inputs)``, or a dict of them for ``model(**inputs)``.
        targets: what it should answer, examples on the first axis.
        batch_size: examples in a batch, at most all of them.
        seed: which orders.

    Raises:
        ValueError: if there are no examples, the tensors differ in length or device, or the
            batch is larger than the data.
        TypeError: if an argument is of another type.

    Example:
        >>> import torch
        >>> from tutorial_lib.training import Batches
        >>> batches = Batches(torch.arange(10.0), torch.arange(10), batch_size=4)
        >>> inputs, targets = batches(7)                       # the batch of step 7
        >>> len(batches), inputs.shape, torch.equal(inputs, targets.float())
        (2, torch.Size([4]), True)
    """

    def __init__(self, inputs: Inputs, targets: Tensor, batch_size: int, seed: int = 0) -> None:
        _check.integer("batch_size", batch_size)
        _check.integer("seed", seed, at_least=0)
        self.examples = _check_examples(inputs, targets)
        if batch_size > self.examples:
            raise ValueError(
                f"batch_size must be at most the number of examples, got "
                f"batch_size={batch_size}, examples={self.examples}"
            )
        self.inputs, self.targets, self.batch_size, self.seed = inputs, targets, batch_size, seed
        self._epoch, self._order = -1, torch.empty(0)

    def __len__(self) -> int:
        """Batches in one pass over the data."""
        return self.examples // self.batch_size

    def __repr__(self) -> str:
        return f"Batches(examples={self.examples}, batch_size={self.batch_size}, seed={self.seed})"

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        _check.integer("step", step, at_least=0)
        epoch, index = divmod(step, len(self))
        start = index * self.batch_size
        rows = self._order_of(epoch)[start : start + self.batch_size]  # (B,)
        chosen = _each(self.inputs, lambda tensor: tensor.index_select(0, rows))
        return chosen, self.targets.index_select(0, rows)

    def _order_of(self, epoch: int) -> Tensor:
        """A permutation of all examples, drawn on the CPU: the same whatever the device."""
        if epoch != self._epoch:
            mixed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0])
            order = torch.randperm(self.examples, generator=torch.Generator().manual_seed(mixed))
            self._epoch, self._order = epoch, order.to(self.targets.device)
        return self._order


@dataclass
class History:
    """What :func:`fit` measured, in plain numbers.

    Attributes:
        steps: 1, 2, ... up to the steps done. The other lists have one entry for each.
        loss: the mean loss over the step's counted targets, before its update.
        lr: the learning rate (of the first parameter group).
        grad_norm: the norm of the gradient, before clipping. In ``float16`` it may be infinite
            where a step was skipped to find the scale.
        evaluations: pairs of the steps done and what ``evaluate`` returned then.

    Example:
        >>> from tutorial_lib.training import History
        >>> History(steps=[1, 2], loss=[0.9, 0.7], lr=[0.1, 0.1], grad_norm=[1.0, 2.0]).loss[-1]
        0.7
    """

    steps: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)


def fit(
    model: nn.Module,
    batches: Callable[[int], Batch] | Iterable[Any],
    loss: Callable[..., Tensor] = cross_entropy,
    *,
    steps: int,
    lr: float = 1e-3,
    warmup: int = 0,
    decay: str = "cosine",
    optimizer: Optimizer | Callable[..., Optimizer] | None = None,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    clip: float | None = None,
    accumulate: int = 1,
    precision: str = "float32",
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    evaluate_every: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
) -> History:
    """Train a model, step by step, and return what was measured on the way.

    One step is one batch, one update. Its loss is a mean over the targets that count (all but
    -100), however the batch is cut: into ``accumulate`` pieces, to save memory, and over all
    processes that torchrun started, of which each takes its share.

    If the file ``checkpoint`` exists, the run goes on from it. On the CPU it ends in the same
    weights, bit for bit, as if it had never stopped, whenever it was stopped. (Random numbers of
    your own must come from the global generators of Python, NumPy or PyTorch, or from the
    ``generator`` of a DataLoader.)

    Args:
        model: the net; batches are moved to the device of its first parameter.
        batches: a function from the step (from 0) to ``(inputs, targets)``, such as
            :class:`Batches`; or something to loop over again and again, such as a DataLoader.
            Inputs are a tensor, a tuple for ``model(*inputs)`` or a dict for ``model(**inputs)``.
        loss: a function ``loss(outputs, targets, reduction="sum")`` as in
            ``torch.nn.functional``. Floating-point targets count entry by entry.
        steps: updates to make in all, those before an interruption included.
        lr: the highest learning rate; see :func:`learning_rate` for ``warmup`` and ``decay``.
        warmup: steps until the rate is reached.
        decay: ``"cosine"``, ``"linear"``, ``"constant"`` or ``"inverse_sqrt"``.
        optimizer: AdamW unless given: a function ``(parameters, lr)`` that makes one, or one
            ready made, whose groups' own rates are then scheduled instead of ``lr``.
        weight_decay: of AdamW, on all parameters.
        betas: of AdamW.
        clip: the largest norm of the gradient, or None.
        accumulate: pieces in which a batch is worked through.
        precision: ``"float32"`` (the model's own type), or mixed: ``"bfloat16"``, ``"float16"``.
        evaluate: a function from the model to numbers by name. It is called in evaluation mode,
            without gradients, every ``evaluate_every`` steps and after the last; whatever random
            numbers it draws, training goes on as if it had not been called.
        evaluate_every: steps between evaluations; None is at the end alone.
        checkpoint: the file to write, and to go on from. The one before it is kept as
            ``<checkpoint>.previous``.
        checkpoint_every: steps between two writings; None is at the end alone, and at an
            interruption (Ctrl-C) in either case.
        progress: a text bar, in a terminal or a live notebook, that leaves nothing behind. It
            needs tqdm; without it there is none. ``TQDM_DISABLE=1`` switches all of them off.

    Returns:
        The history, that of the steps before an interruption included.

    Raises:
        ValueError: before any work, if an argument is out of range, or the checkpoint is damaged,
            comes from other settings, or cannot be written.
        TypeError: before any work, if an argument is of another type.
        FloatingPointError: if the loss or its gradient becomes infinite or NaN; it names the step.

    Example:
        >>> import torch
        >>> from tutorial_lib.training import Batches, fit
        >>> x = torch.linspace(-1, 1, 64).unsqueeze(-1)        # (64, 1)
        >>> y = (x[:, 0] > 0).long()                           # (64,)
        >>> history = fit(torch.nn.Linear(1, 2), Batches(x, y, 32), steps=50, lr=0.1)
        >>> history.loss[-1] < history.loss[0]
        True
    """
    settings = _Settings(steps, lr, warmup, decay, weight_decay, betas, clip, accumulate, precision)
    run = _Run(model, batches, loss, optimizer, settings)
    run.watch(evaluate, evaluate_every, checkpoint, checkpoint_every, progress)
    optimizer, scaler = run.optimizer, run.scaler
    with run:
        for step in range(run.done, steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, group["initial_lr"], warmup, decay)
            optimizer.zero_grad()
            error = torch.zeros((), device=run.device)
            for inputs, targets, count in run.pieces(step):  # count: targets of the whole step
                with run.autocast():
                    part = _sum(loss, run.forward(inputs), targets) / count
                scaler.scale(part).backward()
                error = error + part.detach()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(run.parameters, math.inf if clip is None else clip)
            scaler.step(optimizer)
            scaler.update()
            run.finish(step, error, norm)  # record; evaluate and save where it is time
    return run.history


def _sum(loss: Callable[..., Tensor], outputs: Any, targets: Tensor) -> Tensor:
    """The loss summed over the targets that count."""
    total = loss(outputs, targets, reduction="sum")
    if not isinstance(total, Tensor) or total.dim() != 0:
        got = tuple(total.shape) if isinstance(total, Tensor) else type(total).__name__
        raise ValueError(f'loss(..., reduction="sum") must give a scalar Tensor, got {got}')
    return total


def save_checkpoint(path: str | os.PathLike[str], model: nn.Module, **more: Any) -> None:
    """Write a model's weights, and what else is given, so that no moment leaves a broken file.

    The file is written aside, brought to disk, then put in place at once. The one that stood
    there is kept as ``<path>.previous``. Names are those of the plain model, also when it is
    compiled or wrapped for several processes.

    Args:
        path: the file.
        model: whose parameters and buffers.
        **more: tensors and plain Python values, also in lists, tuples and dicts.

    Raises:
        ValueError: if a weight is infinite or NaN, or the place cannot be written.
        TypeError: if something is neither a tensor nor a plain value.

    Example:
        >>> import tempfile, torch
        >>> from tutorial_lib.training import load_checkpoint, save_checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/net.pt", torch.nn.Linear(2, 3), vocabulary=["a", "b"])
        ...     load_checkpoint(f"{folder}/net.pt", torch.nn.Linear(2, 3))
        {'vocabulary': ['a', 'b']}
    """
    place = _writable(path)
    _check_plain("more", more)
    wrong = [name for name, good in _finite(model).items() if not good]
    if wrong:
        raise ValueError(f"weights must be finite to be saved, got infinite or NaN in {wrong[:3]}")
    weights = {_plain_name(name): value for name, value in _plain(model).state_dict().items()}
    _write(place, {"model": weights, **more})


def load_checkpoint(path: str | os.PathLike[str], model: nn.Module | None = None) -> State:
    """Read a file of :func:`save_checkpoint` or :func:`fit`, and put its weights into a model.

    Args:
        path: the file; it may come from a machine with another device.
        model: where the weights go, on its own device and in its own dtype. None is nowhere.

    Returns:
        What else was saved, on the CPU; without a model the weights too, under ``"model"``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or holds another model's weights; the model is then as it
            was.

    Example:
        >>> import tempfile, torch
        >>> from tutorial_lib.training import load_checkpoint, save_checkpoint
        >>> net = torch.nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/net.pt", net, step=7)
        ...     sorted(load_checkpoint(f"{folder}/net.pt"))
        ['model', 'step']
    """
    state = _read(Path(path))
    if model is not None:
        _load_weights(model, state.pop("model"), path)
    return state


# --- What fit asks for --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """What decides the numbers of a run: an interrupted one must go on with the same."""

    steps: int
    lr: float
    warmup: int
    decay: str
    weight_decay: float
    betas: tuple[float, float]
    clip: float | None
    accumulate: int
    precision: str

    def __post_init__(self) -> None:
        _check_schedule(self.steps, self.lr, self.warmup, self.decay)
        _check.number("weight_decay", self.weight_decay)
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise TypeError(f"betas must be a pair of numbers, got {self.betas!r}")
        for beta in self.betas:
            _check.number("betas", beta, below=1.0)
        if self.clip is not None:
            _check.number("clip", self.clip)
            if self.clip == 0:
                raise ValueError("clip must be above 0, or None, got 0")
        _check.integer("accumulate", self.accumulate)
        _check.one_of("precision", self.precision, _PRECISIONS)


def _check_loss(loss: object) -> None:
    if not callable(loss):
        raise TypeError(f"loss must be a function, got {type(loss).__name__}")
    try:
        called = loss.forward if isinstance(loss, nn.Module) else loss
        names = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature to look at
        return
    if not any(one.name == "reduction" or one.kind == one.VAR_KEYWORD for one in names):
        raise TypeError(
            'loss must be a function loss(outputs, targets, reduction="sum"), such as '
            f"torch.nn.functional.mse_loss, got {loss!r}, which takes no reduction"
        )


def _check_precision(precision: str, device: torch.device, model: nn.Module) -> None:
    if precision == "float32":
        return
    if precision == "float16" and device.type not in ("cpu", "cuda"):
        raise ValueError(f"precision 'float16' has no gradient scaler on {device.type}")
    if device.type == "cuda" and precision == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise ValueError("precision 'bfloat16' is not supported by this GPU")
    kinds = {parameter.dtype for parameter in model.parameters()}
    if precision == "float16" and torch.float16 in kinds:
        raise ValueError("precision 'float16' is mixed: the model must be float32, got float16")


def _make_optimizer(
    model: nn.Module, optimizer: object, parameters: list[nn.Parameter], settings: _Settings
) -> Optimizer:
    """AdamW, or the caller's, with the rate that each group is scheduled from noted in it."""
    own = (settings.weight_decay, settings.betas) != (0.0, (0.9, 0.999))
    if optimizer is not None and own:
        raise ValueError("weight_decay and betas are AdamW's: give them to your own optimizer")
    if isinstance(optimizer, Optimizer) and settings.lr != 1e-3:
        raise ValueError("lr must be set in the optimizer that is given, got lr beside it")
    if optimizer is None:
        made: object = AdamW(
            parameters, settings.lr, settings.betas, weight_decay=settings.weight_decay
        )
    else:
        made = optimizer
        if not isinstance(optimizer, Optimizer) and callable(optimizer):
            made = optimizer(parameters, settings.lr)
    if not isinstance(made, Optimizer):
        raise TypeError(
            f"optimizer must be an Optimizer, or a function (parameters, lr) that makes one, "
            f"got {type(made).__name__}"
        )
    known = {id(parameter) for parameter in model.parameters()}
    if any(id(one) not in known for group in made.param_groups for one in group["params"]):
        raise ValueError("optimizer must hold parameters of this model, got others")
    for group in made.param_groups:
        group.setdefault("initial_lr", float(group["lr"]))
    return made


# --- Batches ------------------------------------------------------------------------------------


def _each(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    """``function`` of every tensor in ``inputs``."""
    if isinstance(inputs, dict):
        return {name: function(tensor) for name, tensor in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return tuple(function(tensor) for tensor in inputs)
    return function(inputs)


def _tensors(inputs: object) -> list[Tensor]:
    """Every tensor in ``inputs``."""
    several = list(inputs.values()) if isinstance(inputs, dict) else inputs
    found: list[Any] = list(several) if isinstance(several, (tuple, list)) else [several]
    if not found or not all(isinstance(one, Tensor) for one in found):
        kinds = [type(one).__name__ for one in found]
        raise TypeError(f"inputs must be a Tensor, or a tuple or dict of them, got {kinds}")
    return found


def _check_examples(inputs: object, targets: object) -> int:
    """The number of examples in ``inputs`` and ``targets``."""
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a Tensor, got {type(targets).__name__}")
    every = [*_tensors(inputs), targets]
    if len({tensor.device for tensor in every}) > 1:
        raise ValueError("inputs and targets must be on one device")
    sizes = [tuple(tensor.shape) for tensor in every]
    if any(tensor.dim() == 0 or len(tensor) != len(every[0]) for tensor in every):
        raise ValueError(f"inputs and targets must have the same first axis, got shapes {sizes}")
    if len(targets) == 0:
        raise ValueError(f"inputs and targets must hold at least one example, got shapes {sizes}")
    return len(targets)


def _check_batch(batch: object, step: int) -> Batch:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise TypeError(f"batches must give (inputs, targets), got {type(batch).__name__}")
    inputs, targets = batch
    if not isinstance(targets, Tensor):
        raise TypeError(f"batches must give targets as a Tensor, got {type(targets).__name__}")
    if any(tensor.numel() == 0 for tensor in [*_tensors(inputs), targets]):
        raise ValueError(f"batches must give at least one example, got none at step {step + 1}")
    return inputs, targets


def _split(inputs: Inputs, targets: Tensor, parts: int) -> list[Batch]:
    """A batch in ``parts`` pieces along its first axis, some of them empty if it is short."""
    if parts == 1:
        return [(inputs, targets)]
    rows = _check_examples(inputs, targets)
    ends = [rows * part // parts for part in range(parts + 1)]

    def piece(start: int, stop: int) -> Batch:
        return _each(inputs, lambda tensor: tensor[start:stop]), targets[start:stop]

    return [piece(start, stop) for start, stop in pairwise(ends)]


def _count(targets: Tensor) -> Tensor:
    """How many targets count, at least 1 so that it can be divided by."""
    if targets.is_floating_point():
        return torch.tensor(targets.numel())
    return (targets != IGNORE).sum().clamp(min=1)


class _Source:
    """Where the batches come from, and how to come back to the same place after a stop."""

    def __init__(self, batches: object, device: torch.device, team: "_Team") -> None:
        if not callable(batches) and (
            isinstance(batches, Iterator) or not isinstance(batches, Iterable)
        ):
            raise TypeError(
                "batches must be a function of the step, or something to loop over again and "
                f"again, such as a DataLoader or a list, got {type(batches).__name__}"
            )
        sampler = getattr(batches, "sampler", None)
        if isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
            raise ValueError("batches must be whole: fit gives each process its share of each")
        self.batches: Any = batches
        self.device, self.team = device, team
        found = [getattr(one, "generator", None) for one in (batches, sampler)]
        self.generators = [one for one in found if isinstance(one, torch.Generator)]
        self.iterator: Iterator[object] | None = None
        self.position = 0  # batches taken from this pass
        self.start: State = {}  # the random numbers with which this pass began
        self.shared = torch.get_rng_state()  # of all processes, for the data alone

    def signature(self) -> State:
        """What must be the same for a run to go on, as far as it can be told."""
        found: State = {"batches": "a function" if callable(self.batches) else "a loop"}
        if isinstance(self.batches, Batches):
            for name in ("examples", "batch_size", "seed"):
                found[f"{name} of batches"] = getattr(self.batches, name)
        return found

    def take(self, step: int) -> Batch:
        """The batch of ``step``, the same in every process."""
        with self._shared_randomness():
            batch = self.batches(step) if callable(self.batches) else self._next()
        return _check_batch(batch, step)

    def _next(self) -> object:
        for _ in range(2):  # at the end of a pass, the first batch of the next
            if self.iterator is None:
                self._begin()
            assert self.iterator is not None
            with suppress(StopIteration):
                batch = next(self.iterator)
                self.position += 1
                return batch
            self.iterator = None
        raise ValueError("batches must give at least one batch, got none")

    def _begin(self) -> None:
        self.start, self.position = self._random(), 0
        self.iterator = iter(self.batches)

    def _random(self) -> State:
        own = [generator.get_state() for generator in self.generators]
        return {"global": _random_state(self.device), "generators": own}

    @contextmanager
    def _shared_randomness(self) -> Iterator[None]:
        """Each process draws its own dropout, all of them draw the same data."""
        if self.team.size == 1:
            yield
            return
        own = torch.get_rng_state()
        torch.set_rng_state(self.shared)
        try:
            yield
        finally:
            self.shared = torch.get_rng_state()
            torch.set_rng_state(own)

    def state(self) -> State:
        now = [generator.get_state() for generator in self.generators]
        active = self.iterator is not None
        kept = {"start": self.start, "position": self.position} if active else {}
        shared = torch.get_rng_state() if self.team.size == 1 else self.shared
        return {**kept, "generators": now, "shared": shared}

    def load(self, state: State) -> None:
        """Go to where ``state`` was taken, through the same pass from its beginning."""
        if len(state["generators"]) != len(self.generators):
            raise ValueError("batches must have the generators that the checkpoint was made with")
        if "start" in state and not callable(self.batches):
            with self._shared_randomness():
                _set_random_state(state["start"]["global"], self.device)
                for generator, saved in zip(
                    self.generators, state["start"]["generators"], strict=True
                ):
                    generator.set_state(saved)
                self._begin()
                assert self.iterator is not None
                for _ in range(state["position"]):
                    next(self.iterator)
                self.position = state["position"]
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        self.shared = state["shared"]


# --- Random numbers -----------------------------------------------------------------------------


def _random_state(device: torch.device) -> State:
    """The state of every global generator, as tensors and plain values."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  the global one is what is asked
    own = None
    if device.type == "cuda":
        own = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        own = torch.mps.get_rng_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        device.type: own,
    }


def _set_random_state(state: State, device: torch.device) -> None:
    """Back to ``state``; one taken on another device leaves this device's generator alone."""
    kind, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    elif device.type == "mps" and "mps" in state:
        torch.mps.set_rng_state(state["mps"])


# --- Several processes --------------------------------------------------------------------------


class _Team:
    """The processes that train together: this one alone, or all that torchrun started."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        asked = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
        ready = dist.is_available() and dist.is_initialized()
        if asked > 1 and not ready:
            self._join(device)
        self.size = dist.get_world_size() if ready or asked > 1 else 1
        self.rank = dist.get_rank() if self.size > 1 else 0

    @staticmethod
    def _join(device: torch.device) -> None:
        if device.type == "cuda":
            here = int(os.environ.get("LOCAL_RANK", "0"))
            if torch.cuda.device_count() > 1 and device.index != here:
                raise ValueError(
                    f"model must be on cuda:{here}, the device of this process (LOCAL_RANK), "
                    f"got {device}"
                )
            torch.cuda.set_device(device)
        # Left open until the process ends: a second call of fit goes on with the same group.
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.size == 1 or isinstance(model, DistributedDataParallel):
            return model
        return DistributedDataParallel(
            model, device_ids=[self.device] if self.device.type == "cuda" else None
        )

    def share_random(self, source: _Source) -> None:
        """The same data everywhere, and everywhere another dropout."""
        if self.size == 1:
            return
        state = self.from_first(lambda: _random_state(self.device))
        _set_random_state(state, self.device)
        seed = int(torch.randint(2**62, ()))
        source.shared = torch.get_rng_state()
        torch.manual_seed(seed + self.rank)

    def from_first(self, function: Callable[[], Answer]) -> Answer:
        """What ``function`` returns in the first process, or the error that it raises, for all."""
        if self.size == 1:
            return function()
        box: list[Any] = [None, None]
        if self.rank == 0:
            try:
                box[0] = function()
            except ValueError as error:
                box[1] = str(error)
        dist.broadcast_object_list(box)
        if box[1] is not None:
            raise ValueError(box[1])
        return box[0]

    def everyone(self, value: Answer) -> list[Answer]:
        """The ``value`` of each process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def mean(self, numbers: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(numbers)
            numbers /= self.size
        return numbers


# --- One run ------------------------------------------------------------------------------------


class _Run:
    """A run of :func:`fit`: all that its loop leans on, and all that a checkpoint must hold."""

    def __init__(
        self, model: nn.Module, batches: object, loss: object, optimizer: object, given: _Settings
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
        _check_loss(loss)
        free = [one for one in model.parameters() if one.requires_grad]
        if not free:
            raise ValueError("model must have parameters to train, got none")
        self.model, self.settings, self.device = model, given, free[0].device
        _check_precision(given.precision, self.device, model)
        self.optimizer = _make_optimizer(model, optimizer, free, given)
        self.parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        self.scaler = GradScaler(self.device.type, enabled=given.precision == "float16")
        self.team = _Team(self.device)
        self.source = _Source(batches, self.device, self.team)
        self.history = History()
        self.pending: list[tuple[int, float, Tensor, Tensor]] = []
        self.done = self.saved = 0

    def watch(
        self,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None,
        evaluate_every: int | None,
        checkpoint: str | os.PathLike[str] | None,
        checkpoint_every: int | None,
        progress: bool,
    ) -> None:
        """What happens beside training; goes on from the checkpoint if there is one."""
        for name, every, of in (
            ("evaluate", evaluate_every, evaluate),
            ("checkpoint", checkpoint_every, checkpoint),
        ):
            if every is not None:
                _check.integer(f"{name}_every", every)
                if of is None:
                    raise ValueError(f"{name}_every={every} needs {name}, got None")
        if evaluate is not None and not callable(evaluate):
            raise TypeError(f"evaluate must be a function, got {type(evaluate).__name__}")
        self.evaluate, self.evaluate_every = evaluate, evaluate_every
        self.checkpoint_every, self.progress = checkpoint_every, progress
        self.path = (
            None if checkpoint is None else self.team.from_first(lambda: _writable(checkpoint))
        )
        self.team.share_random(self.source)
        if self.path is not None:
            self._resume(self.path)
        self.net = self.team.wrap(self.model)

    def __enter__(self) -> "_Run":
        self.modes = {module: module.training for module in self.model.modules()}
        self.model.train()
        self.interrupted = False
        self.handler = self._delay_interrupts()
        self.bar = _bar(self.settings.steps, self.done, self.progress and self.team.rank == 0)
        self._note()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, KeyboardInterrupt) and self.between and self._saves_interrupted():
                self._save()
        finally:
            if self.handler is not None:
                signal.signal(signal.SIGINT, self.handler)
            if self.bar is not None:
                self.bar.close()
            for module, mode in self.modes.items():
                module.training = mode

    def forward(self, inputs: Inputs) -> Any:
        if isinstance(inputs, dict):
            return self.net(**inputs)
        return self.net(*inputs) if isinstance(inputs, (tuple, list)) else self.net(inputs)

    def autocast(self) -> AbstractContextManager[Any]:
        dtype = _PRECISIONS[self.settings.precision]
        if dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype)

    def pieces(self, step: int) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
        """This process's share of the step's batch, in pieces, on the model's device.

        With each comes the number of targets in the whole batch, divided by the number of
        processes, since DistributedDataParallel averages the gradients over these.
        """
        team, parts = self.team, self.settings.accumulate
        inputs, targets = self.source.take(step)
        self.between = False
        count = _count(targets).to(self.device, non_blocking=True) / team.size
        split = _split(inputs, targets, parts * team.size)
        mine = [one for one in split[team.rank * parts : (team.rank + 1) * parts] if one[1].numel()]
        if not mine:  # more processes than examples: take part all the same, with no weight
            mine, count = _split(inputs, targets, len(targets))[:1], count * math.inf

        def here(tensor: Tensor) -> Tensor:
            return tensor.to(self.device, non_blocking=True)

        for index, (some_inputs, some_targets) in enumerate(mine):
            with self._sync(last=index == len(mine) - 1):
                yield _each(some_inputs, here), here(some_targets), count

    def _sync(self, last: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients once a step, at the last piece."""
        if isinstance(self.net, DistributedDataParallel) and not last:
            return self.net.no_sync()
        return nullcontext()

    def finish(self, step: int, error: Tensor, norm: Tensor) -> None:
        """Record a step; evaluate, save and report where it is time."""
        self.done = step + 1
        rate = float(self.optimizer.param_groups[0]["lr"])
        self.pending.append((self.done, rate, error, norm))
        self._note()
        if self._due(_REPORT_EVERY):
            self._flush()
        if self.evaluate is not None and self._due(self.evaluate_every):
            self._flush()
            self.history.evaluations.append((self.done, self._evaluate(self.evaluate)))
        if self.path is not None and self._due(self.checkpoint_every):
            self._save()
        if self.bar is not None:
            self.bar.update()
        if self.interrupted:
            raise KeyboardInterrupt

    def _due(self, every: int | None) -> bool:
        return self.done == self.settings.steps or (every is not None and self.done % every == 0)

    def _note(self) -> None:
        """Between two steps all is consistent: remember it, in case the next one is broken off."""
        self.between = True
        if self.path is not None:
            self.noted = _random_state(self.device), self.source.state()

    def _flush(self) -> None:
        """Move the numbers from the device: the one place where the loop waits for it."""
        if not self.pending:
            return
        steps, rates, errors, norms = zip(*self.pending, strict=True)
        self.pending = []
        losses = self.team.mean(torch.stack(errors)).tolist()
        for step, rate, loss, norm in zip(
            steps, rates, losses, torch.stack(norms).tolist(), strict=True
        ):
            _check_finite(step, rate, loss, norm, self.settings)
            self.history.steps.append(step)
            self.history.loss.append(loss)
            self.history.lr.append(rate)
            self.history.grad_norm.append(norm if math.isfinite(norm) else math.inf)
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {losses[-1]:.4g}", refresh=False)

    def _evaluate(self, evaluate: Callable[[nn.Module], Mapping[str, float]]) -> dict[str, float]:
        """What ``evaluate`` says, with everything it may touch put back."""
        modes = {module: module.training for module in self.model.modules()}
        randomness = _random_state(self.device)
        self.model.eval()
        try:
            with torch.no_grad():
                return self.team.from_first(lambda: _numbers(evaluate(self._single())))
        finally:
            _set_random_state(randomness, self.device)
            for module, mode in modes.items():
                module.training = mode

    def _single(self) -> nn.Module:
        """The model without the wrapper that waits for other processes."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.get_submodule("module")
        return self.model

    # Interruptions

    def _saves_interrupted(self) -> bool:
        return self.path is not None and self.team.size == 1 and self.done > self.saved

    def _delay_interrupts(self) -> Any:
        """Ctrl-C lets the step end, so that there is something whole to save; twice does not."""
        main = threading.current_thread() is threading.main_thread()
        if self.path is None or self.team.size > 1 or not main:
            return None
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            return None

        def handler(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                before(number, frame)
            self.interrupted = True

        return signal.signal(signal.SIGINT, handler)

    # Checkpoints

    def _save(self) -> None:
        assert self.path is not None
        self._flush()  # raises if the loss was not finite: then nothing is written
        self.saved = self.done
        randomness, source = self.noted
        everyone = self.team.everyone(randomness)
        if self.team.rank == 0:
            save_checkpoint(
                self.path,
                self.model,
                optimizer=self.optimizer.state_dict(),
                scaler=self.scaler.state_dict(),
                step=self.done,
                settings=self._signature(),
                history=asdict(self.history),
                random=everyone,
                source=source,
            )

    def _resume(self, path: Path) -> None:
        state = self.team.from_first(lambda: _read(path) if path.exists() else None)
        if state is None:
            return
        if "settings" not in state:
            raise ValueError(f"checkpoint {path} has weights, but is not of fit: give another name")
        _check_same(path, state["settings"], self._signature())
        _load_weights(self.model, state["model"], path)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.done = self.saved = state["step"]
        self.history = History(**state["history"])
        self.source.load(state["source"])
        saved = state["random"]
        _set_random_state(saved[min(self.team.rank, len(saved) - 1)], self.device)
        if self.team.rank >= len(saved):  # more processes than before: a dropout of its own
            torch.manual_seed(torch.initial_seed())

    def _signature(self) -> State:
        """What must be the same for a run to go on, by name, as plain values."""
        found: State = {**asdict(self.settings), **self.source.signature()}
        for name in ("lr", "weight_decay", "betas"):  # stand in the optimizer's groups
            del found[name]
        found["optimizer"] = type(self.optimizer).__name__
        for index, group in enumerate(self.optimizer.param_groups):
            for name, value in group.items():
                if name not in ("params", "lr"):
                    key = f"{'lr' if name == 'initial_lr' else name} (group {index})"
                    found[key] = value if isinstance(value, (int, float, str)) else repr(value)
        return found


def _check_same(path: Path, saved: State, now: State) -> None:
    names = [name for name in now if name in saved and saved[name] != now[name]]
    if names:
        what = "; ".join(f"{name} was {saved[name]} and is now {now[name]}" for name in names)
        raise ValueError(
            f"checkpoint {path} is of a run with other settings: {what}. Give the same, or "
            "another file."
        )


def _check_finite(step: int, rate: float, loss: float, norm: float, settings: _Settings) -> None:
    skips = settings.precision == "float16"  # the scaler skips such a step and tries a lower scale
    what = "loss" if not math.isfinite(loss) else "norm of the gradient"
    if math.isfinite(loss) and (math.isfinite(norm) or skips):
        return
    raise FloatingPointError(
        f"the {what} is {loss if what == 'loss' else norm} at step {step} of {settings.steps} "
        f"(learning rate {rate:.3g}): try a lower lr, a warmup, or clip=1.0"
    )


def _numbers(result: object) -> dict[str, float]:
    if not isinstance(result, Mapping):
        raise TypeError(f"evaluate must return a dict of numbers, got {type(result).__name__}")
    return {str(name): float(value) for name, value in result.items()}


def _bar(steps: int, done: int, wanted: bool) -> Any:
    """A text bar where somebody is watching; it vanishes at the end."""
    watching = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    if not wanted or not watching:
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=steps, initial=done, leave=False, file=sys.stderr, unit="step")


# --- Files --------------------------------------------------------------------------------------


def _plain(model: nn.Module) -> nn.Module:
    """The model that was compiled, or wrapped for several processes."""
    while isinstance(model, DistributedDataParallel) or hasattr(model, "_orig_mod"):
        inner = model.module if isinstance(model, DistributedDataParallel) else model._orig_mod
        assert isinstance(inner, nn.Module)
        model = inner
    return model


def _plain_name(name: str) -> str:
    """The name of a weight, without what compiling a part of the model puts into it."""
    return name.replace("_orig_mod.", "")


def _finite(model: nn.Module) -> dict[str, bool]:
    """For each parameter, whether all of it is finite."""
    names, tensors = zip(*model.named_parameters(), strict=True) if _has(model) else ((), ())
    if not names:
        return {}
    good = torch.stack([tensor.detach().isfinite().all() for tensor in tensors]).tolist()
    return dict(zip(names, good, strict=True))


def _has(model: nn.Module) -> bool:
    return next(model.parameters(), None) is not None


def _check_plain(name: str, value: object) -> None:
    """``value`` is made of what ``torch.load(..., weights_only=True)`` reads."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_plain(f"{name}[{key!r}]", key)
            _check_plain(f"{name}[{key!r}]", inner)
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):  # type: ignore[arg-type]
            _check_plain(f"{name}[{index}]", inner)
    elif not isinstance(value, Tensor) and type(value) not in (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
    ):
        raise TypeError(
            f"{name} must be a Tensor or a plain Python value, got {type(value).__name__}"
        )


def _writable(path: str | os.PathLike[str]) -> Path:
    """``path``, after trying whether a file can be written there."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be a path, got {type(path).__name__}")
    place = Path(path).absolute()
    if place.is_dir():
        raise ValueError(f"checkpoint must be the path of a file, got the directory {place}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(_aside(place), "wb"):
            pass
        _aside(place).unlink()
    except OSError as error:
        raise ValueError(f"checkpoint must be where files can be written: {error}") from error
    return place


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


def _write(path: Path, state: State) -> None:
    """At every moment ``path`` is the old file, whole, or the new one."""
    aside = _aside(path)
    try:
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            _keep(path)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name too must reach the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _keep(path: Path) -> None:
    """A second name for the file at ``path``, or a copy where the disk has no second names."""
    second = path.with_name(path.name + ".keeping")
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:
        shutil.copy2(path, second)
    os.replace(second, _previous(path))


def _read(path: Path) -> State:
    if not path.exists():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch.load does not look at the check sums
        if broken is not None:
            raise ValueError(f"the check sum of {broken} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "model" not in state:
            raise ValueError("it holds no weights under 'model'")
    except Exception as error:  # whatever the bytes provoke, it is the file that is at fault
        older = _previous(path)
        kept = f"the one before it is kept as {older}" if older.exists() else "none before it"
        raise ValueError(
            f"checkpoint {path} is damaged, or no checkpoint ({error}); {kept}. Nothing was "
            "overwritten: put an intact file in its place, or give another name."
        ) from error
    return state


def _load_weights(model: nn.Module, weights: State, path: str | os.PathLike[str]) -> None:
    """Copy weights into a model, all of them or none."""
    target = _plain(model)
    names = {_plain_name(name): name for name in target.state_dict()}
    own = {plain: tuple(target.state_dict()[name].shape) for plain, name in names.items()}
    came = {name: tuple(value.shape) for name, value in weights.items()}
    differ = [
        f"{name} is {came.get(name, 'missing')} in the file and {own.get(name, 'missing')} here"
        for name in [*own, *(name for name in came if name not in own)]
        if own.get(name) != came.get(name)
    ]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise ValueError(f"checkpoint {path} is of another model: {'; '.join(differ[:3])}{more}")
    target.load_state_dict({names[name]: value for name, value in weights.items()})

"""Every figure of the book, in one style.

Each function returns a :class:`matplotlib.figure.Figure` that is no longer pyplot's: as the last
expression of a notebook's cell it is shown once, and elsewhere ``figure.savefig("name.png")``
keeps it. Nothing global is changed.

The figures are white cards, so that they stand on light and dark pages alike. Color-blind
readers and gray print are served by dash patterns, markers and hatching beside the colors.
"""

import ast
import functools
import importlib.metadata
import inspect
import linecache
import math
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tutorial_lib import _check

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Number = float | int
P = ParamSpec("P")
Drawn = TypeVar("Drawn")

# Okabe & Ito's colors, told apart by color-blind readers; the yellow is too light for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
REFERENCE_DASHES: tuple[Any, ...] = ((0, (1, 2)), (0, (4, 3)), (0, (8, 2, 1, 2)))
MARK_DASHES: tuple[Any, ...] = ("-", (0, (2, 1)), (0, (6, 2)))
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "---", "\\\\\\", "ooo", "+++")
INK, SOFT, FAINT = "#222222", "#6B6B6B", "#DDDDDD"
WIDTH = 5.6  # inches: a figure as wide as a telephone still has letters that can be read

# Light to dark, so that gray print keeps the order; of two signs, the negative stays lighter.
UP = ("#FFFFFF", "#CFE1F0", "#8DBDDD", "#3D8DC0", "#0B5C97", "#062F5B")
DOWN = ("#FFFFFF", "#FBE3CB", "#F4BE8A", "#E8943F", "#D06F0A")

SPREADS = {"range": "lowest to highest", "std": "one standard deviation"}

_RC = {
    "figure.dpi": 144,
    "figure.facecolor": "white",
    "savefig.facecolor": "auto",
    "axes.facecolor": "white",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "text.color": INK,
    "font.size": 12,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # it comes with matplotlib: the same on every machine
    "mathtext.fontset": "dejavusans",
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "hatch.linewidth": 0.7,
    "text.usetex": False,
}


@contextmanager
def style() -> Iterator[None]:
    """The style of the book's figures, for a drawing of your own.

    Yields:
        Nothing: inside the context matplotlib draws in the book's style, after it as before.

    Raises:
        ImportError: if matplotlib is missing.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from tutorial_lib import plots
        >>> with plots.style():
        ...     figure, ax = plt.subplots()
        >>> plt.close(figure)
    """
    settings = _check.package("matplotlib", "plots").rcParams
    # Not rc_context: it puts everything back, even the notebook's backend that starts meanwhile.
    before = {name: settings[name] for name in _RC}
    settings.update(_RC)
    try:
        yield
    finally:
        settings.update(before)


def _styled(draw: Callable[P, Drawn]) -> Callable[P, Drawn]:
    """Draw in the book's style, whatever the style outside."""

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Drawn:
        with style():
            return draw(*args, **kwargs)

    return inside


# --- lines ---


@_styled
def curves(
    series: Mapping[str, Any],
    x: Any = None,
    *,
    xlabel: str = "training step",
    ylabel: str = "loss",
    title: str | None = None,
    log: str = "",
    spread: str = "range",
    smooth: int = 1,
    reference: Mapping[str, Number] | None = None,
    marks: Mapping[str, Number] | None = None,
    ylim: tuple[Number, Number] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw one line per name, with a band over seeds where there are several.

    Args:
        series: per name, the values (N,); or one row per seed (seeds, N); or a pair, as a
            tuple, of the values and their spread; or a history with ``steps`` and ``loss``, or
            a list of such histories, one per seed.
        x: the N places of the values; a history brings its own, else they count from 0.
        xlabel: what the places are, with the unit.
        ylabel: what the values are, with the unit.
        title: a line above the figure.
        log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        spread: what the band shows: ``"range"``, from the lowest to the highest seed, or
            ``"std"``, one standard deviation to each side of the mean.
        smooth: each point is the mean of as many values up to it.
        reference: named heights, drawn as horizontal lines.
        marks: named places, drawn as vertical lines.
        ylim: the lowest and highest value shown.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``series`` is no mapping, or holds what is not a number.
        ValueError: if ``series`` is empty, a length does not match, a value is not finite, or
            is not positive on a logarithmic axis, or an option is not known.

    Example:
        >>> from tutorial_lib import plots
        >>> figure = plots.curves({"dense": [[2.3, 1.1, 0.6], [2.3, 1.3, 0.5]]})
        >>> figure.axes[0].get_ylabel()
        'loss'
    """
    _check.one_of("spread", spread, SPREADS)
    _check.integer("smooth", smooth)
    lines = {name: _line(name, value, x, smooth, spread) for name, value in _named(series).items()}
    _positive(log, [line[0] for line in lines.values()], [line[2] for line in lines.values()])
    figure, ax = _axes(xlabel, ylabel, title, log, ylim)
    for i, (name, (places, center, low, high, _)) in enumerate(lines.items()):
        color, dash = _look(i)
        ax.plot(places, center, color=color, linestyle=dash, label=name)
        if (high > low).any():
            ax.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
    _reference(ax, reference, marks)
    note = _note("band", spread, max(line[-1] for line in lines.values()))
    if smooth > 1:
        note = f"{note}; smoothed over {smooth}" if note else f"smoothed over {smooth}"
    _legend(ax, note, [*(reference or ()), *(marks or ())])
    _log_labels(ax, log)
    return figure


@_styled
def sweep(
    x: Any,
    series: Mapping[str, Any],
    *,
    xlabel: str,
    ylabel: str,
    title: str | None = None,
    log: str = "",
    spread: str = "range",
    reference: Mapping[str, Number] | None = None,
    marks: Mapping[str, Number] | None = None,
    ylim: tuple[Number, Number] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw what was measured against what was varied, with error bars over seeds.

    Args:
        x: the N settings.
        series: per name, the values (N,), or one column per seed (N, seeds).
        xlabel: what was varied, with the unit.
        ylabel: what was measured, with the unit.
        title: a line above the figure.
        log: the axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        spread: what the error bars show: ``"range"`` or ``"std"``, as in :func:`curves`.
        reference: named heights, such as chance level, drawn as horizontal lines.
        marks: named settings, such as the receptive field, drawn as vertical lines.
        ylim: the lowest and highest value shown.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``series`` is no mapping, or holds what is not a number.
        ValueError: as in :func:`curves`.

    Example:
        >>> from tutorial_lib import plots
        >>> figure = plots.sweep(
        ...     [1, 2, 4],
        ...     {"CNN": [[0.99, 0.98], [0.97, 0.99], [0.26, 0.24]]},
        ...     xlabel="distance (tokens)",
        ...     ylabel="accuracy",
        ...     reference={"chance": 0.25},
        ... )
        >>> figure.axes[0].get_xlabel()
        'distance (tokens)'
    """
    _check.one_of("spread", spread, SPREADS)
    places = _array("x", x, (1,))
    columns = {
        name: _array(f"series[{name!r}]", value, (1, 2), len(places))
        for name, value in _named(series).items()
    }
    bands = {name: _spread(value.T, spread) for name, value in columns.items()}
    _positive(log, [places], [low for _, low, _ in bands.values()])
    figure, ax = _axes(xlabel, ylabel, title, log, ylim)
    for i, (name, (center, low, high)) in enumerate(bands.items()):
        color, dash = _look(i)
        ax.errorbar(
            places,
            center,
            yerr=[center - low, high - center] if columns[name].ndim == 2 else None,
            color=color,
            linestyle=dash,
            marker=MARKERS[i % len(MARKERS)],
            markeredgecolor="white",
            elinewidth=1.4,
            capsize=3,
            label=name,
        )
    if "x" in log:  # whiskers widen a logarithmic axis by more than they need
        ends = [*places, *(marks or {}).values()]
        edge = max(1.1, (max(ends) / min(ends)) ** 0.05)
        ax.set_xlim(min(ends) / edge, max(ends) * edge)
    _reference(ax, reference, marks)
    seeds = max(value.shape[1] if value.ndim == 2 else 1 for value in columns.values())
    note = _note("whiskers", spread, seeds)
    _legend(ax, note, [*(reference or ()), *(marks or ())])
    _log_labels(ax, log)
    return figure


def _line(
    name: str, value: Any, x: Any, smooth: int, spread: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], int]:
    """Places, center, lower edge and upper edge of one line, and the number of its seeds."""
    where = f"series[{name!r}]"
    runs = list(value) if isinstance(value, (list, tuple)) else [value]
    if runs and all(hasattr(run, "steps") and hasattr(run, "loss") for run in runs):
        x, value = runs[0].steps, [run.loss for run in runs]
        if any(list(run.steps) != list(x) for run in runs):
            raise ValueError(f"{where} must hold histories of the same steps")
        x = _array(f"{where}.steps", x, (1,))
    elif isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(f"{where} must be a pair (values, spread), got {len(value)} parts")
        center = _array(f"{where}[0]", value[0], (1,))
        around = _array(f"{where}[1]", value[1], (1,), len(center))
        return _places(where, x, center), center, center - around, center + around, 1
    values = np.atleast_2d(_array(where, value, (1, 2)))  # (seeds, N)
    if smooth > 1:
        values = _smoothed(values, smooth)
    center, low, high = _spread(values, spread)
    return _places(where, x, center), center, low, high, len(values)


def _places(where: str, x: Any, center: NDArray[Any]) -> NDArray[Any]:
    """The places of the values, which count from 0 if none are given."""
    if x is None:
        return np.arange(len(center))
    places = _array("x", x, (1,))
    if len(places) != len(center):
        raise ValueError(f"{where} must hold {len(places)} values, one per x, got {len(center)}")
    return places


def _spread(values: NDArray[Any], spread: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Mean, lower and upper edge over the first axis of ``(seeds, N)``; one run has no spread."""
    if values.ndim == 1:
        return values, values, values
    center = values.mean(0)
    if spread == "range":
        return center, values.min(0), values.max(0)
    around = values.std(0, ddof=1) if len(values) > 1 else np.zeros_like(center)
    return center, center - around, center + around


def _note(what: str, spread: str, seeds: int) -> str:
    """What is drawn of several runs, in words."""
    return f"mean of {seeds} runs; {what}: {SPREADS[spread]}" if seeds > 1 else ""


def _smoothed(values: NDArray[Any], window: int) -> NDArray[Any]:
    """The mean of up to ``window`` values up to each one, along the last axis."""
    total = np.cumsum(values, axis=-1)
    total[..., window:] -= total[..., :-window].copy()
    return total / np.minimum(np.arange(1, values.shape[-1] + 1), window)


# --- bars ---


@_styled
def bars(
    values: Mapping[str, Any],
    *,
    ylabel: str,
    xlabel: str = "",
    title: str | None = None,
    spread: str = "range",
    published: Mapping[str, Any] | None = None,
    reference: Mapping[str, Number] | None = None,
    ylim: tuple[Number, Number] | None = None,
) -> "matplotlib.figure.Figure":
    """Draw the mean over seeds as a bar, with an error bar and a dot for every seed.

    Args:
        values: per bar, the values of its seeds; or per group a mapping from the names of its
            bars to the values of their seeds.
        ylabel: what was measured, with the unit.
        xlabel: what the bars or groups are.
        title: a line above the figure.
        spread: what the error bars show: ``"range"`` or ``"std"``, as in :func:`curves`.
        published: figures from elsewhere, named as ``values`` is, drawn as diamonds.
        reference: named heights, such as chance level, drawn as horizontal lines.
        ylim: the lowest and highest value shown.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``values`` is no mapping, or holds what is not a number.
        ValueError: if it is empty or partly nested, a value is not finite, ``published`` names
            a bar that is not there, or ``spread`` is not known.

    Example:
        >>> from tutorial_lib import plots
        >>> figure = plots.bars(
        ...     {"left": {"MLP": [0.94, 0.93], "CNN": [0.99, 1.0]},
        ...      "right": {"MLP": [0.24, 0.26], "CNN": [0.99, 1.0]}},
        ...     ylabel="accuracy",
        ...     reference={"chance": 0.25},
        ... )
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['left', 'right']
    """
    _check.one_of("spread", spread, SPREADS)
    groups, nested = _groups("values", values)
    outside = _published(published, groups, nested)
    kinds = list(dict.fromkeys(kind for group in groups.values() for kind in group))
    figure, ax = _axes(xlabel, ylabel, title, "", ylim)
    ax.grid(visible=False, axis="x")
    width = 0.8 / len(kinds) if nested else 0.6
    for g, (group, row) in enumerate(groups.items()):
        for kind, seeds in row.items():
            k = kinds.index(kind)
            at = g + (k - (len(kinds) - 1) / 2) * width
            _bar(ax, at, width, seeds, spread, k, outside.get(group, {}).get(kind))
    ax.set_xticks(range(len(groups)), [_wrapped(name, len(groups)) for name in groups])
    ax.tick_params(axis="x", length=0)
    if nested:
        for k, kind in enumerate(kinds):
            ax.bar(0, 0, 0, label=kind, **_fill(k))
    _reference(ax, reference, None)
    count = max(len(seeds) for row in groups.values() for seeds in row.values())
    note = _note("whiskers", spread, count)
    _legend(ax, note, ["published", *(reference or ())], needed=bool(published or reference))
    return figure


def _groups(name: str, values: Any) -> tuple[dict[str, dict[str, NDArray[Any]]], bool]:
    """Bars as groups of bars: a flat mapping has one, without a name, in each of its groups."""
    named = _named(values, name)
    nested = [isinstance(value, Mapping) for value in named.values()]
    if any(nested) != all(nested):
        raise ValueError(f"{name} must hold mappings only, or none, got some of both")
    rows = {group: _named(row, f"{name}[{group!r}]") if all(nested) else {"": row}
            for group, row in named.items()}  # fmt: skip
    return {
        group: {
            kind: np.atleast_1d(_array(f"{name}[{group!r}]", seeds, (0, 1)))
            for kind, seeds in row.items()
        }
        for group, row in rows.items()
    }, all(nested)


def _published(
    published: Any, groups: Mapping[str, Mapping[str, Any]], nested: bool
) -> dict[str, dict[str, float]]:
    """The published figures by group and bar, each of a bar that is drawn."""
    if not published:
        return {}
    found, same = _groups("published", published)
    known = {(group, kind) for group, row in groups.items() for kind in row}
    for group, row in found.items():
        for kind in row:
            if same != nested or (group, kind) not in known:
                raise ValueError(f"published must name bars of values, got {group!r} {kind!r}")
    return {group: {kind: float(v[0]) for kind, v in row.items()} for group, row in found.items()}


def _bar(
    ax: "matplotlib.axes.Axes",
    at: float,
    width: float,
    seeds: NDArray[Any],
    spread: str,
    kind: int,
    published: float | None,
) -> None:
    """One bar; on it, from left to right, its seeds, their spread, and the published figure."""
    center, low, high = (float(edge[0]) for edge in _spread(seeds[:, None], spread))
    ax.bar(at, center, width * 0.9, **_fill(kind))
    if len(seeds) > 1:
        error = [[center - low], [high - center]]
        ax.errorbar(at, center, yerr=error, color=INK, elinewidth=1.4, capsize=3, zorder=4)
        beside = at + width * (np.linspace(-0.36, -0.14, len(seeds)))
        ax.plot(beside, seeds, ".", color=INK, mfc="white", mew=0.8, ms=6, zorder=3)
    if published is not None:
        first = "published" not in ax.get_legend_handles_labels()[1]
        look: dict[str, Any] = {"color": INK, "mfc": "white", "mew": 1.4, "ms": 6, "zorder": 5}
        ax.plot(at + 0.26 * width, published, "D", label="published" if first else None, **look)


def _fill(kind: int) -> dict[str, Any]:
    """Color and hatching of the bars of one kind."""
    return {
        "color": COLORS[kind % len(COLORS)],
        "hatch": HATCHES[kind % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0,
    }


def _wrapped(name: str, count: int) -> str:
    """A name in lines that are short enough for ``count`` of them to stand side by side."""
    return textwrap.fill(name, max(6, 52 // count), break_long_words=False)


# --- text ---

_MARKS = str.maketrans({" ": "\u00b7", "\n": "\u23ce", "\t": "\u2192", "\r": "\u240d"})
_SHADES = ("#CFE1F0", "#FBE3CB", "#FFFFFF")


@_styled
def tokens(
    texts: Mapping[str, Sequence[str]],
    *,
    marked: Collection[str] = ("<unk>",),
    columns: int = 66,
    title: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw how a text is cut into units: one box for each, and one panel for each way of cutting.

    A space is drawn as a dot, a line end as a bent arrow. A box has a border as well as one of
    three pale shades, so that gray print shows where a unit ends.

    Args:
        texts: per name, the units in their order.
        marked: units drawn dark, such as the one that stands for unknown words.
        columns: how many characters stand in a line.
        title: a line above the figure.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``texts`` is no mapping, a unit is not a string, or ``columns`` no int.
        ValueError: if ``texts`` is empty or one of them has no units, a unit has no characters,
            or ``columns`` is below 1.

    Example:
        >>> from tutorial_lib import plots
        >>> figure = plots.tokens({"characters": list("to be"), "words": ["to", " be"]})
        >>> [ax.get_title(loc="left") for ax in figure.axes]
        ['characters: 5 units', 'words: 2 units']
    """
    _check.integer("columns", columns)
    rows = {name: _units(name, units, columns) for name, units in _named(texts, "texts").items()}
    font = _check.package("matplotlib.font_manager", "plots").FontProperties(
        family="DejaVu Sans Mono", size=WIDTH * 72 / (0.62 * (columns + 1))
    )
    line = font.get_size_in_points() * 2.0 / 72  # inches from one line to the next
    heights = [line * len(lines) + 0.32 for lines in rows.values()]
    figure, axes = _panels(
        len(rows), 1, len(rows), (WIDTH, sum(heights) + 0.1 + (0.35 if title else 0)), title,
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for ax, (name, lines) in zip(axes, rows.items(), strict=True):
        count = len({place for pieces in lines for place, _, _, _ in pieces})
        ax.set_title(f"{name}: {count:,} unit{'s' if count != 1 else ''}", loc="left", fontsize=11)
        ax.set(xlim=(-0.15, columns + 0.15), ylim=(len(lines), 0))
        ax.axis("off")
        for down, pieces in enumerate(lines):
            for place, start, piece, unit in pieces:
                _box(ax, start, down, piece, place, unit in marked, font)
    return figure


def _units(name: str, units: Sequence[str], columns: int) -> list[list[tuple[int, int, str, str]]]:
    """Lines of pieces: the number of the unit, the column, the characters shown, and the unit."""
    units = list(units)
    if not units:
        raise ValueError(f"texts[{name!r}] must hold at least one unit, got none")
    lines: list[list[tuple[int, int, str, str]]] = [[]]
    column = 0
    for place, unit in enumerate(units):
        if not isinstance(unit, str):
            raise TypeError(f"texts[{name!r}] must hold strings, got {type(unit).__name__}")
        if not unit:
            raise ValueError(f"texts[{name!r}] must hold units with characters, got an empty one")
        left = unit.translate(_MARKS)
        while left:
            if column and column + len(left) > columns:
                lines.append([])
                column = 0
            piece, left = left[:columns], left[columns:]
            lines[-1].append((place, column, piece, unit))
            column += len(piece)
    return lines


def _box(
    ax: "matplotlib.axes.Axes",
    start: int,
    down: int,
    piece: str,
    place: int,
    dark: bool,
    font: Any,
) -> None:
    """One unit, or the part of it that stands in this line."""
    patches = _check.package("matplotlib.patches", "plots")
    ax.add_patch(
        patches.Rectangle(
            (start + 0.04, down + 0.1),
            len(piece) - 0.08,
            0.8,
            facecolor=INK if dark else _SHADES[place % len(_SHADES)],
            edgecolor=SOFT,
            linewidth=0.6,
        )
    )
    for i, letter in enumerate(piece):
        ax.text(
            start + i + 0.5,
            down + 0.53,
            letter.replace("$", r"\$"),
            fontproperties=font,
            color="white" if dark else INK,
            ha="center",
            va="center",
        )


# --- pictures ---


@_styled
def images(
    batch: Any,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    *,
    title: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw images side by side, on one scale from the lowest to the highest value.

    Args:
        batch: (N, height, width), or with one or three channels before or after these two.
            One channel is drawn as dark ink on white paper, three as colors from 0 to 1.
        titles: one line above each image.
        columns: how many stand side by side; at most eight if None.
        title: a line above the figure.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``batch`` holds what is not a number.
        ValueError: if ``batch`` is empty or of another shape, a value is not finite, colors lie
            outside 0 to 1, or the titles are not as many as the images.

    Example:
        >>> import torch
        >>> from tutorial_lib import plots
        >>> len(plots.images(torch.rand(3, 8, 8), titles=["a", "b", "c"]).axes)
        3
    """
    pictures = _pictures(batch)
    above = _titles("titles", titles, len(pictures))
    rows, columns = _grid(len(pictures), columns, 8)
    shape = pictures.shape[1] / pictures.shape[2]
    each = min(WIDTH / columns, 1.6)
    height = rows * (each * shape + (0.32 if titles else 0.06)) + (0.4 if title else 0)
    size = (each * columns, height)
    figure, axes = _panels(rows, columns, len(pictures), size, title, layout="compressed")
    low, high = (0.0, 1.0) if pictures.ndim == 4 else (pictures.min(), pictures.max())
    for ax, picture, name in zip(axes, pictures, above, strict=True):
        ax.imshow(picture, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
        ax.set_title(name, fontsize=11, pad=4)
        _frame(ax)
    _trim(figure)
    return figure


def matrix(
    values: Any,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str | None = None,
    *,
    xlabel: str = "column",
    ylabel: str = "row",
    values_shown: bool = False,
    symmetric: bool | None = None,
    label: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw a matrix as colored cells, such as weights, a mask, or who looks at whom.

    Args:
        values: (rows, columns); infinite ones, such as masked scores, are drawn hatched.
        row_labels: one name per row.
        column_labels: one name per column.
        title: a line above the figure.
        xlabel: what the columns are.
        ylabel: what the rows are.
        values_shown: also write the numbers into the cells.
        symmetric: whether white stands for 0, with two colors for the two signs; if None,
            that is so where a value is negative.
        label: what the values are, beside the color bar, which is left out if None.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``values`` holds what is not a number.
        ValueError: if ``values`` is empty, is no matrix or holds a NaN, or the labels are not
            as many as the rows or columns.

    Example:
        >>> import torch
        >>> from tutorial_lib import plots
        >>> weights = torch.tensor([[1.0, 0.0], [0.3, 0.7]])
        >>> figure = plots.matrix(weights, ["he", "ran"], ["he", "ran"], ylabel="query")
        >>> figure.axes[0].get_ylabel()
        'query'
    """
    return matrices(
        [values], None if title is None else [title],
        row_labels=row_labels, column_labels=column_labels, xlabel=xlabel, ylabel=ylabel,
        values_shown=values_shown, symmetric=symmetric, label=label,
    )  # fmt: skip


@_styled
def matrices(
    values: Any,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    xlabel: str = "column",
    ylabel: str = "row",
    values_shown: bool = False,
    symmetric: bool | None = None,
    label: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw matrices side by side on one scale of colors, so that they can be compared.

    Args:
        values: matrices, or a tensor (N, rows, columns); without labels they may differ in shape.
        titles: one line above each.
        columns: how many stand side by side; at most four if None.
        row_labels: one name per row, the same for all.
        column_labels: one name per column, the same for all.
        xlabel: what the columns are.
        ylabel: what the rows are.
        values_shown: also write the numbers into the cells.
        symmetric: as in :func:`matrix`.
        label: what the values are, beside the color bar, which is left out if None.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``values`` holds what is not a number.
        ValueError: as in :func:`matrix`, or if the titles are not as many as the matrices.

    Example:
        >>> import torch
        >>> from tutorial_lib import plots
        >>> figure = plots.matrices(torch.eye(4).expand(3, 4, 4), ["one", "two", "three"])
        >>> [ax.get_title() for ax in figure.axes]
        ['one', 'two', 'three']
    """
    grids = [_array(f"values[{i}]", m, (2,), finite=False) for i, m in enumerate(values)]
    if not grids:
        raise ValueError("values must hold at least one matrix, got none")
    above = _titles("titles", titles, len(grids))
    for i, grid in enumerate(grids):
        for name, labels, size in (
            ("row_labels", row_labels, grid.shape[0]),
            ("column_labels", column_labels, grid.shape[1]),
        ):
            if labels is not None and len(labels) != size:
                raise ValueError(
                    f"{name} must hold {size} names for values[{i}], got {len(labels)}"
                )
    scale = _scale(grids, symmetric)
    most = 4 if row_labels is None and column_labels is None and not values_shown else 2
    rows, columns = _grid(len(grids), columns, most)
    alike = len({grid.shape for grid in grids}) == 1
    wide = [max(grid.shape[1] for grid in grids[i::columns]) for i in range(columns)]
    high = [max(g.shape[0] for g in grids[i * columns : (i + 1) * columns]) for i in range(rows)]
    cell = _cell(sum(wide), max(high), row_labels, values_shown)
    extent = (WIDTH, cell * sum(high) + 0.5 * rows + (1.5 if alike else 0.6))
    layout = "compressed" if alike else "constrained"
    ratios = {"width_ratios": wide, "height_ratios": high}  # cells of one size throughout
    figure, axes = _panels(
        rows, columns, len(grids), extent, None, layout=layout, gridspec_kw=ratios
    )
    for i, (ax, grid) in enumerate(zip(axes, grids, strict=True)):
        _cells(ax, grid, scale, values_shown)
        ax.set_title(above[i], pad=6)
        last, first = i + columns >= len(grids), i % columns == 0
        _ticks(ax, "x", column_labels if last else None, xlabel if last else "", cell)
        _ticks(ax, "y", row_labels if first else None, ylabel if first else "", cell)
    if label is not None:
        bar = figure.colorbar(axes[0].images[0], ax=axes, label=label, aspect=25 * rows, pad=0.02)
        bar.outline.set_visible(False)  # type: ignore[operator]  # the stubs are wrong
    if alike:  # unlike shapes hold each other apart, and would shrink with the page
        _trim(figure)
    return figure


@_styled
def alignment(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    spans: Sequence[tuple[int, int]] | None = None,
    *,
    xlabel: str = "what is read",
    ylabel: str = "what is written",
    title: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw who looks at whom in two texts: one row for each word written, one column for each read.

    Args:
        weights: (words written, words read), not negative.
        source: what is read, one name per column; short ones, such as characters, stand upright.
        target: what is written, one name per row.
        spans: where each of the first rows should look, the first column and the one after the
            last, drawn as a frame.
        xlabel: what the columns are.
        ylabel: what the rows are.
        title: a line above the figure.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``weights`` holds what is not a number.
        ValueError: if ``weights`` is no matrix, is negative somewhere or not finite, the names
            are not as many as its rows or columns, or a span lies outside.

    Example:
        >>> import torch
        >>> from tutorial_lib import plots
        >>> figure = plots.alignment(torch.eye(2).flip(0), ["vier", "zwanzig"], ["twenty", "four"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['twenty', 'four']
    """
    grid = _array("weights", weights, (2,))
    if grid.min() < 0:
        raise ValueError(f"weights must not be negative, got {grid.min():g}")
    rows, columns = grid.shape
    for name, labels, size in (("target", target, rows), ("source", source, columns)):
        if len(labels) != size:
            raise ValueError(f"{name} must hold {size} names, got {len(labels)}")
    frames = [tuple(map(int, span)) for span in spans or ()]
    if len(frames) > rows or any(not 0 <= start < end <= columns for start, end in frames):
        raise ValueError(
            f"spans must be at most {rows}, each inside 0 to {columns}, got {spans!r:.80}"
        )
    letters = all(len(name) <= 1 for name in source)
    beside = 1.35 + 0.09 * max(map(len, target))
    across = min((WIDTH - beside) / columns, 0.42)
    down = max(across, 0.26)  # rows that are high enough for a word
    above = 0.5 if letters else 0.4 + 0.1 * max(map(len, source))
    extent = (WIDTH, down * rows + above + 0.55 + (0.35 if title else 0))
    figure, (ax,) = _panels(1, 1, 1, extent, title, layout="compressed")
    _cells(ax, grid, _scale([grid], None) | {"vmin": 0, "vmax": max(1.0, grid.max())}, False)
    ax.set_aspect(down / across)
    ax.xaxis.set_ticks_position("top")
    ax.xaxis.set_label_position("top")
    ax.set_xticks(
        range(columns), source, fontsize=min(12, 76 * across), rotation=0 if letters else 90
    )
    ax.set_yticks(range(rows), target, fontsize=min(12, 46 * down))
    ax.tick_params(axis="both", length=0, pad=3)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    patches = _check.package("matplotlib.patches", "plots")
    for row, (start, end) in enumerate(frames):
        corner = (start - 0.5, row - 0.5)
        ax.add_patch(
            patches.Rectangle(
                corner, end - start, 1, fill=False, edgecolor=COLORS[1], linewidth=2, zorder=5
            )
        )
    bar = figure.colorbar(ax.images[0], ax=ax, label="weight", pad=0.02, aspect=18)
    bar.outline.set_visible(False)  # type: ignore[operator]  # the stubs are wrong
    _trim(figure)
    return figure


@_styled
def signals(
    batch: Any,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    *,
    spans: Sequence[tuple[Number, Number]] | None = None,
    xlabel: str = "position",
    ylabel: str = "value",
    title: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw one-dimensional examples in small panels with the same axes.

    Args:
        batch: (N, length).
        titles: one line above each.
        columns: how many stand side by side; at most three if None.
        spans: per example, the first position of a stretch to be marked, and the one after its
            last, as in a slice.
        xlabel: what the positions are.
        ylabel: what the values are, with the unit.
        title: a line above the figure.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``batch`` holds what is not a number.
        ValueError: if ``batch`` is empty or no matrix, a value is not finite, or titles or spans
            are not as many as the examples.

    Example:
        >>> import torch
        >>> from tutorial_lib import plots
        >>> figure = plots.signals(torch.randn(2, 40), ["left", "right"], spans=[(3, 10), (25, 32)])
        >>> len(figure.axes)
        2
    """
    lines = _array("batch", batch, (2,))
    above = _titles("titles", titles, len(lines))
    stretches = [None] * len(lines) if spans is None else list(spans)
    if len(stretches) != len(lines):
        raise ValueError(
            f"spans must be as many as the signals, {len(lines)}, got {len(stretches)}"
        )
    rows, columns = _grid(len(lines), columns, 3)
    height = rows * (1.25 + (0.25 if titles else 0)) + 0.5 + (0.3 if title else 0)
    figure, axes = _panels(rows, columns, len(lines), (WIDTH, height), title, shared=True)
    for ax, line, name, stretch in zip(axes, lines, above, stretches, strict=True):
        if stretch is not None:
            ax.axvspan(stretch[0] - 0.5, stretch[1] - 0.5, color=COLORS[4], alpha=0.35, linewidth=0)
        ax.plot(line, color=COLORS[0], linewidth=1.5)
        ax.set_title(name, fontsize=11, pad=4)
        ax.tick_params(labelsize=10)
    figure.supxlabel(xlabel, fontsize=12)
    figure.supylabel(ylabel, fontsize=12)
    return figure


@_styled
def gates(
    values: Any,
    tokens: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    label: str = "gate",
    title: str | None = None,
) -> "matplotlib.figure.Figure":
    """Draw gates along a text: one row for each unit, one column for each token above it.

    A long text is cut into lines, as on a page. A space is drawn as a dot, a line end as a bent
    arrow.

    Args:
        values: (T,) for one unit, or (units, T): numbers from 0 to 1.
        tokens: the T tokens, such as the characters of a sentence.
        names: one name per unit.
        label: what the numbers are, beside the color bar.
        title: a line above the figure.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is missing.
        TypeError: if ``values`` holds what is not a number, or a token is not a string.
        ValueError: if ``values`` is empty, of another shape or not from 0 to 1, or the tokens or
            names are not as many as the columns or rows.

    Example:
        >>> from tutorial_lib import plots
        >>> figure = plots.gates([[0.9, 0.8, 0.1], [0.2, 0.9, 0.7]], list("a b"), ["17", "31"])
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['a', '·', 'b']
    """
    grid = np.atleast_2d(_array("values", values, (1, 2)))  # (units, T)
    if grid.min() < 0 or grid.max() > 1:
        raise ValueError(f"values must be from 0 to 1, got {grid.min():g} to {grid.max():g}")
    if len(tokens) != grid.shape[1]:
        raise ValueError(f"tokens must be as many as the columns, {grid.shape[1]}, got {tokens!r}")
    if wrong := [token for token in tokens if not isinstance(token, str)]:
        raise TypeError(f"tokens must be strings, got {type(wrong[0]).__name__}: {wrong[0]!r}")
    rows = [""] * len(grid) if names is None else list(map(str, names))
    if len(rows) != len(grid):
        raise ValueError(f"names must be as many as the units, {len(grid)}, got {names!r}")
    shown = [token.translate(_MARKS).replace("$", r"\$") for token in tokens]
    cell = 0.04 + 0.085 * max(map(len, shown))  # inches: the widest token fits above its column
    room = WIDTH - 1.1 - 0.09 * max(map(len, rows))
    fit = min(max(1, int(room / cell)), len(shown))
    lines = math.ceil(len(shown) / fit)
    fit = math.ceil(len(shown) / lines)  # lines of about one length
    high = max(lines * (0.24 * len(grid) + 0.4) + 0.1, 1.5) + (0.3 if title else 0)
    figure, axes = _panels(lines, 1, lines, (WIDTH, high), title)
    scale = _scale([grid], None) | {"vmin": 0.0, "vmax": 1.0, "aspect": "auto"}
    for i, ax in enumerate(axes):
        part = slice(i * fit, (i + 1) * fit)
        above = shown[part]
        _cells(ax, grid[:, part], scale, values_shown=False)
        ax.spines[:].set_visible(False)
        ax.set_xlim(-0.5, fit - 0.5)
        ax.patch.set_visible(False)
        ax.set_xticks(range(len(above)), above, fontfamily="DejaVu Sans Mono", fontsize=10)
        ax.set_yticks(range(len(rows)), rows, fontsize=10)
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
    bar = figure.colorbar(axes[0].images[0], ax=axes, label=label, aspect=8 * lines, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]  # the stubs are wrong
    return figure


def _pictures(batch: Any) -> NDArray[Any]:
    """``(N, height, width)`` or, in color, ``(N, height, width, 3)``."""
    pictures = _array("batch", batch, (3, 4))
    if pictures.ndim == 4:
        if pictures.shape[-1] not in (1, 3) and pictures.shape[1] in (1, 3):
            pictures = np.moveaxis(pictures, 1, -1)
        if pictures.shape[-1] not in (1, 3):
            raise ValueError(f"batch must have one or three channels, got {pictures.shape}")
        if pictures.shape[-1] == 1:
            return pictures[..., 0]
        if pictures.min() < 0 or pictures.max() > 1:
            raise ValueError("batch must hold colors from 0 to 1, got "
                             f"{pictures.min():g} to {pictures.max():g}")  # fmt: skip
    return pictures


def _scale(grids: Sequence[NDArray[Any]], symmetric: bool | None) -> dict[str, Any]:
    """Colors and limits that all matrices share."""
    colors = _check.package("matplotlib.colors", "plots")
    seen = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    low, high = (seen.min(), seen.max()) if len(seen) else (0.0, 1.0)
    if symmetric or (symmetric is None and low < 0):
        most = max(abs(low), abs(high)) or 1.0
        places = [*np.linspace(0, 0.5, len(DOWN)), *np.linspace(0.5, 1, len(UP))[1:]]
        nodes = list(zip(places, [*DOWN[::-1], *UP[1:]], strict=True))
        both = colors.LinearSegmentedColormap.from_list("both", nodes, N=257)  # 0 has its own color
        return {"cmap": both, "vmin": -most, "vmax": most}
    low = min(low, 0.0) if symmetric is None else low
    up = colors.LinearSegmentedColormap.from_list("up", UP)
    return {"cmap": up, "vmin": low, "vmax": high if high > low else low + 1}


def _cells(
    ax: "matplotlib.axes.Axes", grid: NDArray[Any], scale: Mapping[str, Any], values_shown: bool
) -> None:
    """The cells of one matrix, and what lies behind those that are infinite."""
    finite = np.isfinite(grid)
    ax.patch.set(facecolor="#F2F2F2", hatch="////", edgecolor="#BBBBBB", linewidth=0)
    picture = ax.imshow(np.where(finite, grid, np.nan), interpolation="nearest", **scale)
    _frame(ax)
    if max(grid.shape) <= 32:  # lines between the cells, while they are large enough
        ax.set_xticks(np.arange(0.5, grid.shape[1] - 1), minor=True)
        ax.set_yticks(np.arange(0.5, grid.shape[0] - 1), minor=True)
        ax.grid(visible=True, which="minor", color=FAINT, linewidth=0.5)
        ax.set_axisbelow(False)
        ax.tick_params(which="minor", length=0)
    digits = 0 if (grid[finite] % 1 == 0).all() else 2
    for (i, j), value in np.ndenumerate(grid) if values_shown else ():
        red, green, blue, _ = picture.to_rgba(value)
        dark = finite[i, j] and 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
        text = f"{value:.{digits}f}".replace("inf", "∞").replace("-", "−")
        ax.text(j, i, text, ha="center", va="center", fontsize=10, color="white" if dark else INK)


def _cell(across: int, down: int, row_labels: Sequence[str] | None, values_shown: bool) -> float:
    """The side of a cell in inches: as large as is useful, and as the page's width allows."""
    beside = 1.4 + 0.09 * max(map(len, row_labels or [""]))
    return min((WIDTH - beside) / across, 0.55 if values_shown else 0.42, 3.6 / down + 0.1)


def _ticks(
    ax: "matplotlib.axes.Axes", axis: str, labels: Sequence[str] | None, name: str, cell: float
) -> None:
    """The names along one side of a matrix, upright where they would touch each other."""
    getattr(ax, f"set_{axis}label")(name)
    if labels is not None:
        longest = max(map(len, labels))
        getattr(ax, f"set_{axis}ticks")(
            range(len(labels)),
            labels,
            fontsize=min(11, max(6, 60 * cell)),
            rotation=90 if axis == "x" and 0.1 * longest > cell else 0,
        )
        ax.tick_params(axis="both", length=0)


def _trim(figure: "matplotlib.figure.Figure") -> None:
    """Cut off the margin that cells of a fixed shape leave on the page."""
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    figure.set_size_inches(min(width, box.width + 0.15), min(height, box.height + 0.15))


# --- the package's own source ---


def show_source(*objects: Any, docstring: bool = False) -> None:
    """Show the source of classes and functions, with a link to their lines in the repository.

    In a notebook it is highlighted in the colors of the page; elsewhere it is printed. The code
    is the file's own, comments included.

    Args:
        objects: classes, functions, methods or properties.
        docstring: also show the docstrings, which the API page has.

    Raises:
        TypeError: if there is no object, or one has no source that can be read.

    Example:
        >>> from tutorial_lib import plots, runtime
        >>> plots.show_source(runtime.seed_everything)
        # tutorial_lib/runtime.py, lines ...
        def seed_everything(seed: int) -> None:
            if isinstance(seed, bool) or not isinstance(seed, int):
        ...
    """
    if not objects:
        raise TypeError("objects must hold at least one class or function, got none")
    found = [_source(thing, docstring) for thing in objects]  # (code, path, first, last)
    plain = "\n\n".join(
        (f"# {path}, lines {first}-{last}\n" if path else "") + code
        for code, path, first, last in found
    )
    ipython = sys.modules.get("IPython")  # whoever runs in it has it imported
    if ipython is None or ipython.get_ipython() is None:
        print(plain)  # noqa: T201  printing is its purpose
        return
    fenced = "\n\n".join(_fenced(*one) for one in found)
    ipython.display.display({"text/markdown": fenced, "text/plain": plain}, raw=True)


def _fenced(code: str, path: str, first: int, last: int) -> str:
    """One source as Markdown: the page's own highlighter colors it, in light and dark."""
    fence = "```"
    while fence in code:
        fence += "`"
    place = f"`{path}`, lines {first}–{last}" if path else ""
    repository = _repository()
    if place and repository:
        place = f"[{place}]({repository}/blob/main/{path}#L{first}-L{last})"
    return f"{place}\n\n{fence}python\n{code}\n{fence}".lstrip()


def _repository() -> str:
    """The address of the repository, from the package's metadata; empty if it has none."""
    try:
        urls = importlib.metadata.metadata("tutorial-lib").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    pairs = [url.partition(",") for url in urls]
    return next((url.strip().rstrip("/") for name, _, url in pairs if name == "Repository"), "")


def _source(thing: Any, docstring: bool) -> tuple[str, str, int, int]:
    """Code, path, first and last line of one object, found by its name in its file."""
    thing = getattr(thing, "fget", None) or getattr(thing, "func", None) or thing
    thing = inspect.unwrap(thing)
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:
        file = None
    lines = linecache.getlines(file) if file else []
    node = _node(thing, "".join(lines))
    if file is None or node is None:
        raise TypeError(f"objects must be classes or functions with a source, got {thing!r}")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    last = node.end_lineno or node.lineno
    hidden = set() if docstring else _docstring_lines(node, lines)
    kept = [lines[n - 1].rstrip("\n") for n in range(first, last + 1) if n not in hidden]
    return textwrap.dedent("\n".join(kept)), _path(file), first, last


def _node(thing: Any, source: str) -> Any:
    """The definition of ``thing`` in the syntax tree of its file, or None."""
    names = getattr(thing, "__qualname__", "").replace(".<locals>", "").split(".")
    level: list[Any] = [ast.parse(source)] if source else []
    for name in names:
        level = [
            node
            for parent in level
            for node in ast.walk(parent)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name == name
            and node is not parent
        ]
    code = getattr(thing, "__code__", None)
    line = code.co_firstlineno if code else 0
    around = [n for n in level if min([n.lineno, *(d.lineno for d in n.decorator_list)]) == line]
    return (around or level or [None])[-1]


def _docstring_lines(node: Any, lines: Sequence[str]) -> set[int]:
    """The numbers of the lines that hold docstrings alone, and of the blank line after each."""
    hidden: set[int] = set()
    for inner in ast.walk(node):
        if not isinstance(inner, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text, rest = inner.body[0], inner.body[1:]
        if ast.get_docstring(inner) is None or not rest or text.end_lineno is None:
            continue  # no docstring, or nothing but one
        if inner.lineno == text.lineno or rest[0].lineno == text.end_lineno:
            continue  # on one line with code
        blank = text.end_lineno < len(lines) and not lines[text.end_lineno].strip()
        hidden.update(range(text.lineno, text.end_lineno + 1 + blank))
    return hidden


def _path(file: str) -> str:
    """The path of a file of the package, as it stands in the repository; empty for any other."""
    path, package = Path(file).resolve(), Path(__file__).resolve().parent
    return path.relative_to(package.parent).as_posix() if path.is_relative_to(package) else ""


# --- what all figures share ---


def _array(
    name: str, values: Any, dims: tuple[int, ...], length: int | None = None, finite: bool = True
) -> NDArray[Any]:
    """Numbers as an array of one of ``dims`` axes, none of them empty, of ``length`` rows."""
    if isinstance(values, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in values):
        values = [v.detach().cpu().tolist() if isinstance(v, torch.Tensor) else v for v in values]
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().to(torch.float64).numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must hold numbers in rows of one length, got {values!r:.80}"
        ) from None
    if array.ndim not in dims or array.size == 0:
        wanted = " or ".join(map(str, dims))
        raise ValueError(
            f"{name} must have {wanted} axes and at least one value, got shape {array.shape}"
        )
    if length is not None and len(array) != length:
        raise ValueError(f"{name} must have length {length}, got {len(array)}")
    if np.isnan(array).any() or (finite and not np.isfinite(array).all()):
        raise ValueError(f"{name} must hold {'finite numbers' if finite else 'no NaN'}")
    return array


def _named(values: Any, name: str = "series") -> dict[str, Any]:
    """A mapping with at least one entry."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping from names, got {type(values).__name__}")
    if not values:
        raise ValueError(f"{name} must hold at least one entry, got none")
    return {str(key): value for key, value in values.items()}


def _titles(name: str, titles: Sequence[str] | None, count: int) -> list[str]:
    """One title per panel, empty ones if none are given."""
    if titles is None:
        return [""] * count
    if len(titles) != count:
        raise ValueError(f"{name} must be as many as the panels, {count}, got {len(titles)}")
    return [str(title) for title in titles]


def _positive(log: str, x: Sequence[NDArray[Any]], y: Sequence[NDArray[Any]]) -> None:
    """What lies on a logarithmic axis is positive."""
    _check.one_of("log", log, ("", "x", "y", "xy"))
    for axis, arrays in (("x", x), ("y", y)):
        lowest = min(array.min() for array in arrays)
        if axis in log and lowest <= 0:
            raise ValueError(f"log={log!r} needs positive {axis}, got {lowest:g}")


def _grid(count: int, columns: int | None, most: int) -> tuple[int, int]:
    """Rows and columns for ``count`` panels, the rows as even as they can be."""
    if columns is None:
        columns = math.ceil(count / math.ceil(count / most))
    _check.integer("columns", columns)
    columns = min(columns, count)
    return math.ceil(count / columns), columns


def _axes(
    xlabel: str, ylabel: str, title: str | None, log: str, ylim: tuple[Number, Number] | None
) -> tuple["matplotlib.figure.Figure", "matplotlib.axes.Axes"]:
    """A figure with one pair of axes."""
    figure, (ax,) = _panels(1, 1, 1, (WIDTH, 3.7), title)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    if ylim is not None:
        ax.set_ylim(*ylim)
    return figure, ax


def _log_labels(ax: "matplotlib.axes.Axes", log: str) -> None:
    """Plain numbers on a logarithmic axis that is too short for powers of ten."""
    ticker = _check.package("matplotlib.ticker", "plots")
    for name in log:
        axis, (low, high) = getattr(ax, f"{name}axis"), getattr(ax, f"get_{name}lim")()
        if high / low < 50:
            axis.set_major_locator(
                ticker.LogLocator(subs=(1, 2, 3, 5) if high / low > 3 else "all")
            )
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(ticker.NullFormatter())


def _panels(
    rows: int,
    columns: int,
    count: int,
    size: tuple[float, float],
    title: str | None,
    shared: bool = False,
    layout: str = "constrained",
    gridspec_kw: Mapping[str, Any] | None = None,
) -> tuple["matplotlib.figure.Figure", list["matplotlib.axes.Axes"]]:
    """A figure of ``count`` panels, which pyplot has let go: a notebook shows it once only."""
    plt = _check.package("matplotlib.pyplot", "plots")
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=size,
        squeeze=False,
        sharex=shared,
        sharey=shared,
        layout=layout,
        gridspec_kw=gridspec_kw,
    )
    plt.close(figure)
    if title:
        figure.suptitle(title, x=0.015, ha="left", fontsize=13)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def _look(i: int) -> tuple[str, Any]:
    """Color and dashes of the line number ``i``: the pair repeats after twenty-four."""
    return COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]


def _frame(ax: "matplotlib.axes.Axes") -> None:
    """A thin frame round a picture, without ticks or grid."""
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(visible=True, color="#BBBBBB", linewidth=0.8)


def _reference(
    ax: "matplotlib.axes.Axes",
    heights: Mapping[str, Number] | None,
    places: Mapping[str, Number] | None,
) -> None:
    """Named horizontal and vertical lines, in gray, behind what was measured."""
    for i, (name, height) in enumerate((heights or {}).items()):
        dash = REFERENCE_DASHES[i % len(REFERENCE_DASHES)]
        ax.axhline(height, color=SOFT, linewidth=1.5, linestyle=dash, zorder=2.5, label=name)
    for i, (name, place) in enumerate((places or {}).items()):
        dash = MARK_DASHES[i % len(MARK_DASHES)]
        ax.axvline(place, color="#A0A0A0", linewidth=1.5, linestyle=dash, zorder=1.5, label=name)


def _legend(
    ax: "matplotlib.axes.Axes", note: str, last: Collection[str], needed: bool = False
) -> None:
    """The names above the axes, where they hide nothing, and what the spread shows."""
    handles, labels = ax.get_legend_handles_labels()
    if not needed and len(handles) < 2:
        ax.set_title(note, fontsize=10, color=SOFT, loc="left")
        return
    named = sorted(zip(handles, labels, strict=True), key=lambda pair: pair[1] in last)
    legend = ax.legend(
        [handle for handle, _ in named],
        [label for _, label in named],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        borderaxespad=0.2,
        borderpad=0,
        ncols=max(1, min(len(labels), 54 // (max(map(len, labels)) + 6))),
        title=note or None,
        alignment="left",
        handlelength=2.6,
        columnspacing=1.2,
    )
    legend.get_title().set(fontsize=10, color=SOFT)

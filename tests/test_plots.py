import ast
import inspect
import os
import subprocess
import sys
import textwrap
import types
from dataclasses import dataclass
from functools import cached_property, wraps

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from tutorial_lib import data, plots, runtime

SEEDS = np.array([[3.0, 1.0, 2.0], [5.0, 1.5, 2.0]])  # (seeds, N)
WORDS = ["she", "ran", "home"]

FIGURES = {
    "curves": lambda: plots.curves({"a": SEEDS, "b": [1, 2, 3]}, reference={"chance": 2}),
    "curves of one": lambda: plots.curves({"a": torch.rand(4)}, log="xy", x=[1, 2, 3, 4]),
    "bars": lambda: plots.bars({"a": [1, 2], "b b": 3.0}, ylabel="y", published={"a": 2}),
    "grouped bars": lambda: plots.bars(
        {"x": {"a": [1, 2], "b": [2.0]}, "y": {"b": [1]}}, ylabel="y", xlabel="x"
    ),
    "sweep": lambda: plots.sweep(
        [1, 2, 30], {"a": SEEDS.T, "b": [1, 2, 3]}, xlabel="x", ylabel="y", marks={"here": 2}
    ),
    "images": lambda: plots.images(torch.rand(5, 8, 6), list("abcde"), title="five"),
    "matrix": lambda: plots.matrix(torch.randn(3, 3), WORDS, WORDS, "weights", label="w"),
    "matrices": lambda: plots.matrices([np.eye(4), np.ones((2, 5))], ["a", "b"], label="w"),
    "tokens": lambda: plots.tokens(
        {"letters": list("to be\n or $ not" * 9), "words": ["to", " be", "<unk>"]}, title="two ways"
    ),
    "alignment": lambda: plots.alignment(
        torch.rand(3, 27), list("siebenhundertvierunddreißig"), WORDS, [(0, 6), (6, 13)]
    ),
    "signals": lambda: plots.signals(torch.randn(4, 20), spans=[(2, 5)] * 4, title="four"),
    "gates": lambda: plots.gates(
        torch.rand(2, 99), list("a b\n$" * 19) + list("long"), ["one", "two"], title="gates"
    ),
}


@pytest.fixture(params=FIGURES)
def draw(request):
    return FIGURES[request.param]


class TestEveryFigure:
    def test_stands_on_a_white_card_and_changes_nothing_global(self, draw):
        before = dict(mpl.rcParams)
        figure = draw()
        figure.draw_without_rendering()
        assert isinstance(figure, Figure)
        assert plt.get_fignums() == []
        assert dict(mpl.rcParams) == before
        assert figure.get_facecolor() == (1, 1, 1, 1)
        assert figure.dpi == 144
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert width <= plots.WIDTH + 0.01
        assert min(box.x0, box.y0) > -0.02  # all of it lies on the card
        assert box.x1 < width + 0.02
        assert box.y1 < height + 0.02

    @pytest.mark.parametrize("name", ["curves", "grouped bars", "matrices"])
    def test_looks_the_same_under_another_style(self, name):
        def pixels() -> np.ndarray:
            torch.manual_seed(0)
            figure = FIGURES[name]()
            figure.canvas.draw()
            return np.asarray(figure.canvas.buffer_rgba())

        wanted = pixels()
        with plt.style.context("dark_background"):
            found = pixels()
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["curves", "grouped bars", "sweep", "matrix", "matrices"])
def test_axes_are_labelled(name):
    ax = FIGURES[name]().axes[0]
    assert ax.get_xlabel()
    assert ax.get_ylabel()


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


class TestCurves:
    def test_the_line_is_the_mean_and_the_band_the_range(self):
        ax = plots.curves({"a": SEEDS}, x=[10, 20, 40], xlabel="x", ylabel="y").axes[0]
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [10, 20, 40])
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [4, 1.25, 2])
        corners = ax.collections[0].get_paths()[0].vertices
        assert {(10, 3), (10, 5), (20, 1), (20, 1.5), (40, 2)} <= set(map(tuple, corners))
        assert ax.get_title(loc="left") == "mean of 2 runs; band: lowest to highest"

    def test_the_band_of_one_standard_deviation(self):
        ax = plots.curves({"a": SEEDS}, spread="std").axes[0]
        corners = ax.collections[0].get_paths()[0].vertices
        around = np.std([3, 5], ddof=1)
        assert np.isclose(corners[corners[:, 0] == 0, 1].max(), 4 + around)
        assert "one standard deviation" in ax.get_title(loc="left")

    def test_values_and_spread(self):
        ax = plots.curves({"a": ([2.0, 3.0], [0.5, 0.25])}).axes[0]
        corners = ax.collections[0].get_paths()[0].vertices
        assert {(0, 1.5), (0, 2.5), (1, 2.75), (1, 3.25)} <= set(map(tuple, corners))

    def test_histories(self):
        @dataclass
        class History:
            steps: list
            loss: list

        runs = [History([5, 10], [2.0, 1.0]), History([5, 10], [4.0, 1.0])]
        ax = plots.curves({"many": runs, "one": runs[0]}).axes[0]
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [5, 10])
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), [3, 1])
        np.testing.assert_array_equal(ax.lines[1].get_ydata(), [2, 1])
        runs[1].steps = [5, 11]
        with pytest.raises(ValueError, match="histories of the same steps"):
            plots.curves({"many": runs})

    def test_smooth_is_a_trailing_mean(self):
        values = np.random.default_rng(0).normal(size=9)
        ax = plots.curves({"a": values}, smooth=4).axes[0]
        wanted = [values[max(0, i - 3) : i + 1].mean() for i in range(9)]
        np.testing.assert_allclose(ax.lines[0].get_ydata(), wanted)

    def test_legend_ends_with_the_references(self):
        figure = plots.curves(
            {"b": [1, 2], "a": [2, 1]}, reference={"chance": 0.5}, marks={"here": 1}
        )
        assert legend(figure) == ["b", "a", "chance", "here"]

    def test_lines_differ_without_color(self):
        figure = plots.curves({str(i): [i, i + 1] for i in range(4)})
        assert len({str(line.get_linestyle()) + str(line._dash_pattern)
                    for line in figure.axes[0].lines}) == 4  # fmt: skip

    def test_tensors_of_any_type_and_device(self, device):
        values = torch.tensor([1.0, 2.0], device=device, dtype=torch.bfloat16, requires_grad=True)
        for value in (values, [values, values], [values[0], values[1]]):
            ax = plots.curves({"a": value}).axes[0]
            np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1, 2])


class TestSweep:
    def test_error_bars_are_the_seeds_range(self):
        columns = [[0, 3, 3], [1, 1.5, 5], [2, 2, 2]]
        figure = plots.sweep([1, 2, 4], {"a": columns}, xlabel="x", ylabel="y")
        line, _, (bars,) = figure.axes[0].containers[0]
        ends = [tuple(segment[:, 1]) for segment in bars.get_segments()]
        assert ends == [(0, 3), (1, 5), (2, 2)]
        np.testing.assert_array_equal(line.get_ydata(), [2, 2.5, 2])
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 4])

    def test_references_and_marks(self):
        figure = plots.sweep(
            [1, 2], {"a": [1, 2]}, xlabel="x", ylabel="y", reference={"c": 0.5}, marks={"m": 1.5}
        )
        lines = {line.get_label(): line for line in figure.axes[0].lines}
        assert list(lines["c"].get_ydata()) == [0.5, 0.5]
        assert list(lines["m"].get_xdata()) == [1.5, 1.5]

    def test_a_short_logarithmic_axis_has_plain_numbers(self):
        figure = plots.sweep([10, 1e6], {"a": [2, 3]}, xlabel="x", ylabel="y", log="xy")
        ax = figure.axes[0]
        figure.draw_without_rendering()
        assert "2" in [label.get_text() for label in ax.get_yticklabels()]
        assert any("10^" in label.get_text() for label in ax.get_xticklabels())


class TestBars:
    def test_height_whiskers_and_a_dot_per_seed(self):
        ax = plots.bars({"a": [1.0, 4.0, 4.0], "b": [2.0]}, ylabel="y").axes[0]
        assert [patch.get_height() for patch in ax.patches] == [3, 2]
        _, _, (whisker,) = ax.containers[1]
        assert whisker.get_segments()[0][:, 1].tolist() == [1, 4]
        dots = [line for line in ax.lines if line.get_marker() == "."]
        assert [list(dot.get_ydata()) for dot in dots] == [[1, 4, 4]]
        places = dots[0].get_xdata()
        assert len(set(places)) == 3  # beside each other

    def test_groups_published_figures_and_references(self):
        figure = plots.bars(
            {"in order": {"MLP": [0.6, 0.7], "CNN": [0.9, 0.9]}, "shuffled": {"CNN": [0.5, 0.6]}},
            ylabel="accuracy",
            published={"shuffled": {"CNN": 0.56}},
            reference={"chance": 0.1},
        )
        ax = figure.axes[0]
        assert legend(figure) == ["MLP", "CNN", "published", "chance"]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["in order", "shuffled"]
        (diamond,) = [line for line in ax.lines if line.get_marker() == "D"]
        bar = next(patch for patch in ax.patches if np.isclose(patch.get_height(), 0.55))
        assert diamond.get_ydata()[0] == 0.56
        assert bar.get_x() < diamond.get_xdata()[0] < bar.get_x() + bar.get_width()
        assert len({patch.get_hatch() for patch in ax.patches}) == 2


class TestPictures:
    def test_images_share_a_scale_and_keep_their_order(self):
        batch = torch.arange(30.0).view(5, 2, 3)
        figure = plots.images(batch, titles=list("abcde"), columns=2)
        assert [ax.get_title() for ax in figure.axes] == list("abcde")
        for ax, image in zip(figure.axes, batch, strict=True):
            np.testing.assert_array_equal(ax.images[0].get_array(), image)
            assert ax.images[0].get_clim() == (0, 29)

    @pytest.mark.parametrize("shape", [(2, 1, 5, 4), (2, 5, 4, 1)])
    def test_one_channel(self, shape):
        (first, _) = plots.images(torch.rand(shape)).axes
        assert first.images[0].get_array().shape == (5, 4)

    @pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 5, 4, 3)])
    def test_colors(self, shape):
        (first, _) = plots.images(torch.rand(shape)).axes
        assert first.images[0].get_array().shape == (5, 4, 3)

    def test_matrix_with_two_signs_is_white_at_zero(self):
        image = plots.matrix([[0.0, 2.0], [-3.0, 1.0]]).axes[0].images[0]
        assert image.get_clim() == (-3, 3)
        assert image.to_rgba(0.0)[:3] == (1, 1, 1)
        assert image.to_rgba(-1.0) != image.to_rgba(1.0)

    def test_matrix_of_one_sign_gets_darker_from_zero(self):
        image = plots.matrix([[0.2, 0.5], [0.9, 1.0]]).axes[0].images[0]
        assert image.get_clim() == (0, 1)
        gray = [np.dot(image.to_rgba(v)[:3], (0.3, 0.59, 0.11)) for v in np.linspace(0, 1, 9)]
        assert gray == sorted(gray, reverse=True)
        assert plots.matrix([[1.0, 2.0]], symmetric=True).axes[0].images[0].get_clim() == (-2, 2)
        assert plots.matrix([[1.0, 2.0]], symmetric=False).axes[0].images[0].get_clim() == (1, 2)

    def test_matrix_labels_and_numbers(self):
        figure = plots.matrix(
            [[0.25, -np.inf, 1], [-0.5, 2, np.inf]], ["a", "b"], WORDS, values_shown=True
        )
        ax = figure.axes[0]
        assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
        assert [label.get_text() for label in ax.get_xticklabels()] == WORDS
        assert [t.get_text() for t in ax.texts] == ["0.25", "−∞", "1.00", "−0.50", "2.00", "∞"]
        assert ax.images[0].get_array().mask.tolist() == [
            [False, True, False],
            [False, False, True],
        ]

    def test_masks_and_whole_numbers(self):
        figure = plots.matrix(torch.ones(3, 3).tril().bool(), values_shown=True)
        assert "".join(t.get_text() for t in figure.axes[0].texts) == "100110111"
        assert isinstance(plots.matrix(torch.zeros(2, 2)), Figure)

    def test_matrices_share_a_scale_and_the_size_of_a_cell(self):
        figure = plots.matrices([torch.eye(2), 5 * torch.eye(3, 7)], ["a", "b"], label="w")
        figure.draw_without_rendering()
        small, large = (ax.get_window_extent().width for ax in figure.axes[:2])
        assert large / small == pytest.approx(7 / 2, rel=0.05)
        one, two, bar = figure.axes
        assert one.images[0].get_clim() == two.images[0].get_clim() == (0, 5)
        assert bar.get_ylabel() == "w"

    @pytest.mark.parametrize("name", ["images", "matrix"])
    def test_cells_of_a_fixed_shape_leave_no_empty_margin(self, name):
        figure = FIGURES[name]()
        figure.draw_without_rendering()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert box.width > width - 0.3
        assert box.height > height - 0.3

    def test_alignment_has_tokens_on_both_axes_and_frames_where_to_look(self):
        ax = FIGURES["alignment"]().axes[0]
        assert "".join(t.get_text() for t in ax.get_xticklabels()) == "siebenhundertvierunddreißig"
        assert [t.get_text() for t in ax.get_yticklabels()] == WORDS
        assert ax.images[0].get_clim() == (0, 1)
        frames = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in ax.patches]
        assert frames == [(-0.5, -0.5, 6, 1), (5.5, 0.5, 7, 1)]
        assert min(t.get_fontsize() for t in [*ax.get_xticklabels(), *ax.get_yticklabels()]) > 8
        words = plots.alignment([[1, 0]], ["vier", "zwanzig"], ["four"]).axes[0]
        assert {t.get_rotation() for t in words.get_xticklabels()} == {90}
        assert {t.get_rotation() for t in ax.get_xticklabels()} == {0}

    def test_signals_and_spans(self):
        figure = plots.signals(torch.arange(12.0).view(2, 6), ["a", "b"], spans=[(0, 2), (3, 5)])
        assert [list(ax.lines[0].get_ydata()) for ax in figure.axes] == [
            [0, 1, 2, 3, 4, 5],
            [6, 7, 8, 9, 10, 11],
        ]
        span = figure.axes[1].patches[0]
        assert (span.get_x(), span.get_width()) == (2.5, 2)
        assert figure.get_supxlabel() == "position"
        assert figure.get_supylabel() == "value"

    def test_gates_stand_below_their_tokens_line_by_line(self):
        values = torch.linspace(0, 1, 150).view(2, 75)
        words = [f"w{i}" for i in range(74)] + [" "]
        *lines, bar = plots.gates(values, words, ["first", "second"], label="update").axes
        assert len(lines) > 1
        seen = [label.get_text() for ax in lines for label in ax.get_xticklabels()]
        assert seen == [*words[:-1], "·"]
        drawn = np.concatenate([ax.images[0].get_array() for ax in lines], axis=1)
        np.testing.assert_array_equal(drawn, values.double().numpy())
        widths = {round(ax.get_xlim()[1] - ax.get_xlim()[0]) for ax in lines}
        assert len(widths) == 1  # a cell is as wide in the last line as in the first
        assert {ax.images[0].get_clim() for ax in lines} == {(0, 1)}
        assert [label.get_text() for label in lines[0].get_yticklabels()] == ["first", "second"]
        assert bar.get_ylabel() == "update"

    def test_one_gate_along_words(self):
        figure = plots.gates([0.0, 1.0, 0.5], WORDS)
        assert figure.axes[0].images[0].get_array().shape == (1, 3)


NAN = [1.0, float("nan")]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plots.curves({}), ValueError, "series must hold at least one entry"),
        (lambda: plots.curves([1, 2]), TypeError, "series must be a mapping from names, got list"),
        (lambda: plots.curves({"a": []}), ValueError, r"series\['a'\] must have .* shape \(0,\)"),
        (lambda: plots.curves({"a": NAN}), ValueError, r"series\['a'\] must hold finite numbers"),
        (lambda: plots.curves({"a": "text"}), TypeError, r"series\['a'\] must hold numbers"),
        (lambda: plots.curves({"a": [[1], [1, 2]]}), TypeError, "rows of one length"),
        (lambda: plots.curves({"a": [1, 2]}, x=[1]), ValueError, "must hold 1 values, one per x"),
        (lambda: plots.curves({"a": ([1], [1], [1])}), ValueError, "pair"),
        (lambda: plots.curves({"a": ([1, 2], [1])}), ValueError, r"\[1\] must have length 2"),
        (lambda: plots.curves({"a": [0, 1]}, log="y"), ValueError, "needs positive y, got 0"),
        (lambda: plots.curves({"a": [1, 1]}, log="x"), ValueError, "needs positive x, got 0"),
        (lambda: plots.curves({"a": [1]}, log="z"), ValueError, "log must be one of"),
        (lambda: plots.curves({"a": [1]}, spread="sem"), ValueError, "spread must be one of"),
        (lambda: plots.curves({"a": [1]}, smooth=0), ValueError, "smooth must be at least 1"),
        (
            lambda: plots.sweep([1, 2, 3], {"a": SEEDS}, xlabel="", ylabel=""),
            ValueError,
            r"series\['a'\] must have length 3, got 2",
        ),
        (lambda: plots.bars({}, ylabel=""), ValueError, "values must hold at least one"),
        (lambda: plots.bars({"a": []}, ylabel=""), ValueError, r"values\['a'\] must have"),
        (lambda: plots.bars({"a": 1, "b": {"c": 1}}, ylabel=""), ValueError, "some of both"),
        (
            lambda: plots.bars({"a": 1}, ylabel="", published={"b": 2}),
            ValueError,
            "published must name bars of values, got 'b'",
        ),
        (lambda: plots.images(torch.rand(0, 3, 3)), ValueError, "batch must have"),
        (lambda: plots.images(torch.rand(3, 3)), ValueError, "3 or 4 axes .* shape"),
        (lambda: plots.images(torch.rand(1, 2, 5, 5)), ValueError, "one or three channels"),
        (lambda: plots.images(2 + torch.rand(1, 3, 5, 5)), ValueError, "colors from 0 to 1"),
        (lambda: plots.images(torch.rand(2, 3, 3), ["a"]), ValueError, "titles must be as many"),
        (lambda: plots.images(torch.rand(2, 3, 3), columns=0), ValueError, "columns must be"),
        (lambda: plots.matrix([1, 2]), ValueError, r"values\[0\] must have 2 axes"),
        (lambda: plots.matrix([NAN]), ValueError, "no NaN"),
        (lambda: plots.matrix([[1, 2]], ["a", "b"]), ValueError, "row_labels must hold 1 names"),
        (
            lambda: plots.matrix([[1, 2]], None, ["a"]),
            ValueError,
            "column_labels must hold 2 names",
        ),
        (lambda: plots.matrices([]), ValueError, "at least one matrix"),
        (lambda: plots.alignment([[-1, 1]], "ab", "c"), ValueError, "must not be negative"),
        (lambda: plots.alignment([[0, 1]], "abc", "c"), ValueError, "source must hold 2 names"),
        (lambda: plots.alignment([[0, 1]], "ab", "cd"), ValueError, "target must hold 1 names"),
        (lambda: plots.alignment([[0, 1]], "ab", "c", [(1, 3)]), ValueError, "spans must be"),
        (lambda: plots.signals(torch.rand(3)), ValueError, "batch must have 2 axes"),
        (lambda: plots.signals(torch.rand(2, 3), spans=[(0, 1)]), ValueError, "spans must be"),
        (lambda: plots.gates([[0.5, 1.5]], ["a", "b"]), ValueError, "from 0 to 1, got 0.5 to 1.5"),
        (lambda: plots.gates([0.5, 1.0], ["a"]), ValueError, "tokens must be as many .* 2, got"),
        (lambda: plots.gates([0.5], [3]), TypeError, "tokens must be strings, got int: 3"),
        (lambda: plots.gates([0.5], ["a"], ["b", "c"]), ValueError, "names must be as many"),
        (lambda: plots.gates([], []), ValueError, "values must have 1 or 2 axes"),
        (lambda: plots.show_source(), TypeError, "at least one class or function"),
        (lambda: plots.show_source(3), TypeError, "classes or functions with a source, got 3"),
        (lambda: plots.show_source(len), TypeError, "with a source"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert plt.get_fignums() == []


def test_missing_matplotlib_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'matplotlib.*pip install "tutorial-lib\[plots\]"'):
        plots.curves({"a": [1, 2]})


def test_without_ipython_and_without_a_display():
    script = textwrap.dedent("""
        import os, sys
        sys.modules["IPython"] = None
        from tutorial_lib import plots
        assert "matplotlib" not in sys.modules
        plots.show_source(plots.style)
        plots.matrix([[1, 2]]).savefig(os.devnull, format="png")
        """)
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    assert "def style() -> Iterator[None]:" in run.stdout


class TestShowSource:
    @pytest.fixture
    def shown(self, monkeypatch):
        """What a notebook would be given."""
        import IPython

        outputs = []
        monkeypatch.setattr(IPython, "get_ipython", object)
        monkeypatch.setattr(IPython.display, "display", lambda bundle, raw: outputs.append(bundle))

        def show(*objects, **options) -> dict:
            plots.show_source(*objects, **options)
            return outputs.pop()

        return show

    @pytest.mark.parametrize(
        "thing",
        [
            data.Halves,
            data.Split,
            plots.bars,
            plots.style,
            data.cached,
            runtime.device,
            data.mnist1d,
        ],
    )
    def test_the_code_is_that_of_the_file(self, shown, thing):
        code = shown(thing, docstring=True)["text/plain"].split("\n", 1)[1]
        assert code == inspect.getsource(inspect.unwrap(thing)).rstrip("\n")

    @pytest.mark.parametrize("thing", [data.Halves, data.Split, plots.bars, data.cached])
    def test_without_docstrings_the_program_is_the_same(self, shown, thing):
        class Drop(ast.NodeTransformer):
            def visit(self, node):
                self.generic_visit(node)
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                    node.body = node.body[1:]
                return node

        code = shown(thing)["text/plain"].split("\n", 1)[1]
        wanted = Drop().visit(ast.parse(inspect.getsource(inspect.unwrap(thing))))
        assert ast.dump(ast.parse(code)) == ast.dump(wanted)
        assert '"""' not in code

    def test_caption_links_to_the_lines(self, shown):
        markdown = shown(runtime.seed_everything)["text/markdown"]
        lines, first = inspect.getsourcelines(inspect.unwrap(runtime.seed_everything))
        last = first + len(lines) - 1
        caption, _, code = markdown.partition("\n\n")
        assert caption.startswith(f"[`tutorial_lib/runtime.py`, lines {first}–{last}](https://")
        assert caption.endswith(f"/blob/main/tutorial_lib/runtime.py#L{first}-L{last})")
        assert code.startswith("```python\ndef seed_everything(seed: int) -> None:\n    if isinst")
        assert code.endswith("torch.manual_seed(seed)\n```")

    def test_comments_and_strings_stay_and_a_docstring_alone_too(self, shown, tmp_path):
        source = '''\
class Net:
    """Drop me."""

    # keep me
    size = 3  # and me

    def forward(self, x):
        """Drop
        me."""
        """keep me"""
        return x

    def empty(self):
        """Keep me: I am all there is."""

    def short(self): "keep me"; return 1
'''
        wanted = '''\
class Net:
    # keep me
    size = 3  # and me

    def forward(self, x):
        """keep me"""
        return x

    def empty(self):
        """Keep me: I am all there is."""

    def short(self): "keep me"; return 1'''
        path = tmp_path / "net.py"
        path.write_text(source)
        module = types.ModuleType("net_of_the_test")
        module.__file__ = str(path)
        exec(compile(source, str(path), "exec"), module.__dict__)
        module.Net.__module__ = module.__name__
        sys.modules[module.__name__] = module
        try:
            assert shown(module.Net)["text/plain"] == wanted
            assert shown(module.Net)["text/markdown"] == f"```python\n{wanted}\n```"
        finally:
            del sys.modules[module.__name__]

    def test_methods_properties_and_wrapped_functions(self, shown):
        class Holder:
            @property
            def one(self):
                return 1

            @cached_property
            def two(self):
                return 2

            @classmethod
            def three(cls):
                return 3

        @wraps(Holder.three)
        def around(*args):
            return Holder.three(*args)

        assert shown(Holder.one)["text/plain"] == "@property\ndef one(self):\n    return 1"
        assert shown(Holder.two)["text/plain"].endswith("def two(self):\n    return 2")
        assert shown(Holder.three)["text/plain"].startswith("@classmethod\ndef three")
        assert shown(around)["text/plain"].startswith("@classmethod\ndef three")
        assert "range(first, end" in shown(data.Halves.starts)["text/plain"]
        assert shown(Holder)["text/plain"].startswith("class Holder:\n    @property")

    def test_several_at_once_and_printed_outside_a_notebook(self, capsys):
        plots.show_source(runtime.device, runtime.seed_everything)
        printed = capsys.readouterr().out
        assert printed.count("# tutorial_lib/runtime.py, lines ") == 2
        assert printed.index("def device()") < printed.index("def seed_everything")

    def test_code_that_holds_a_fence(self, shown):
        def fenced():
            return "```"

        markdown = shown(fenced)["text/markdown"]
        assert markdown.startswith("````python\n")
        assert markdown.endswith("\n````")

    def test_without_metadata_there_is_no_link(self, shown, monkeypatch):
        monkeypatch.setattr(plots, "_repository", lambda: "")
        assert shown(runtime.device)["text/markdown"].startswith("`tutorial_lib/runtime.py`, lines")


class TestTokens:
    @staticmethod
    def boxes(ax) -> list[tuple[float, float, float]]:
        return [
            (round(box.get_x() - 0.04), round(box.get_y() - 0.1), round(box.get_width() + 0.08))
            for box in ax.patches
        ]

    def test_one_box_per_unit_and_every_character_in_its_place(self):
        figure = plots.tokens({"a": list("to be"), "b": ["to", " be", "\n", "<unk>"]})
        letters, words = figure.axes
        assert letters.get_title(loc="left") == "a: 5 units"
        assert words.get_title(loc="left") == "b: 4 units"
        assert self.boxes(letters) == [(i, 0, 1) for i in range(5)]
        assert self.boxes(words) == [(0, 0, 2), (2, 0, 3), (5, 0, 1), (6, 0, 5)]
        assert "".join(text.get_text() for text in words.texts) == "to\u00b7be\u23ce<unk>"
        shades = [box.get_facecolor() for box in words.patches]
        assert len(set(shades)) == 4
        assert sum(shades[-1][:3]) < 0.6  # the marked one is dark

    def test_lines_are_broken_between_units_where_that_is_possible(self):
        (ax,) = plots.tokens({"a": ["abc", "de", "fghijklm", "n"]}, columns=4).axes
        assert self.boxes(ax) == [(0, 0, 3), (0, 1, 2), (0, 2, 4), (0, 3, 4), (0, 4, 1)]
        assert ax.get_title(loc="left") == "a: 4 units"
        assert [patch.get_facecolor() for patch in ax.patches[2:4]] == [
            ax.patches[2].get_facecolor()
        ] * 2

    def test_neighbors_differ_in_gray_print(self):
        (ax,) = plots.tokens({"a": list("abcdef")}).axes
        assert all(box.get_edgecolor()[:3] < (0.5, 0.5, 0.5) for box in ax.patches)
        assert all(box.get_linewidth() > 0 for box in ax.patches)

    @pytest.mark.bad_input
    def test_bad_input(self):
        with pytest.raises(ValueError, match="must hold at least one unit"):
            plots.tokens({"a": []})
        with pytest.raises(ValueError, match="got an empty one"):
            plots.tokens({"a": ["b", ""]})
        with pytest.raises(TypeError, match="must hold strings, got int"):
            plots.tokens({"a": [3]})
        with pytest.raises(ValueError, match="columns must be at least 1"):
            plots.tokens({"a": ["b"]}, columns=0)
        with pytest.raises(TypeError, match="texts must be a mapping"):
            plots.tokens([["a"]])

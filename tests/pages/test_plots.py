"""The data of figures, not their pixels."""

from types import SimpleNamespace

import IPython.display
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from seaborn.utils import relative_luminance

from carry_core import carries, sums
from carry_core.model import ModelConfig
from carry_paper.findings import geometry, survey
from carry_paper.pages.show import png, show
from carry_paper.plots.attention import attention_grid
from carry_paper.plots.curves import draw_alike, draw_one_run, ends
from carry_paper.plots.outcomes import OUTCOMES, accuracy_map, carry_bars, cell_bars
from carry_paper.plots.planes import NINE, NO, YES, Decision, best_threshold, decision_figure
from carry_paper.plots.sides import AUTHORS, OURS
from carry_paper.plots.style import ACCURACY, CLASS_COLOURS, DIGIT_COLOURS, svg


def test_attention_grid_shows_every_head_and_of_the_last_layer_the_answer_rows(config: ModelConfig):
    layout, names = config.layout, ["one", "two", "three"]
    shape = (len(names), config.layers, config.heads, layout.length, layout.length)
    pattern = np.random.default_rng(0).random(shape)
    figure = Figure().subfigures()
    attention_grid(
        figure,
        {"attention": pattern, "classes": np.array(names), "decision_head": np.array(1)},
        layout,
    )
    *maps, bar = figure.axes
    assert bar.get_gid() == "scale attention"
    panels = [
        (l, h, t)
        for l in range(config.layers)
        for h in range(config.heads)
        for t in range(len(names))
    ]
    for ax, (l, h, t) in zip(maps, panels, strict=True):
        rows = list(layout.answer) if l == config.layers - 1 else slice(None)
        np.testing.assert_array_equal(ax.images[0].get_array(), pattern[t, l, h][rows])
        assert ax.images[0].get_clim() == (0, 1)


@pytest.fixture
def history() -> dict[str, np.ndarray]:
    """Two runs, the second 10 epochs shorter."""
    rng = np.random.default_rng(0)
    histories = {
        f"{part}_{curve}": rng.random((2, 50)) + 0.01
        for part in ("train", "test")
        for curve in ("loss", "whole")
    }
    histories["weight_norm"] = 1000 + 10 * rng.random((2, 50))
    for values in histories.values():
        values[1, 40:] = np.nan
    return histories | {"runs": np.array([3, 5]), "epochs": np.arange(1, 51)}


def test_the_ends_have_best_and_last_of_every_run(history):
    table = ends(history)
    for i, (run, end) in enumerate({3: 50, 5: 40}.items()):
        whole, loss, norm = (
            history[key][i, :end] for key in ("test_whole", "test_loss", "weight_norm")
        )
        row = table.loc[run]
        assert list(row["exact match"]) == [
            max(whole),
            list(whole).index(max(whole)) + 1,
            whole[-1],
        ]
        assert list(row["loss"]) == [min(loss), list(loss).index(min(loss)) + 1, loss[-1]]
        assert list(row["squared norm"]) == [round(norm[0]), round(norm[-1])]


def test_one_run_has_a_line_for_each_digit_and_its_own_loss_and_norm(history):
    digits = np.random.default_rng(1).random((50, 3))
    figure = Figure().subfigures()
    curves = history | {"epoch": history["epochs"], "digits": digits, "of_run": np.array(1)}
    draw_one_run(figure, curves, ["pos7", "pos8", "pos9", "="])
    of_digits, loss, norm = figure.axes
    for line, curve in zip(of_digits.lines, digits.T, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), curve)
    labels = [text.get_text() for text in of_digits.get_legend().get_texts()]
    assert labels == ["pos. 7", "pos. 8", "pos. 9"]
    np.testing.assert_array_equal(loss.lines[0].get_ydata(), history["test_loss"][1])
    np.testing.assert_array_equal(norm.lines[0].get_ydata(), history["weight_norm"][1])


def test_both_sides_of_the_curves_have_one_scale(history):
    curves = {"epoch": history["epochs"]} | {
        name: history[name] for name in ("train_loss", "test_loss", "weight_norm")
    }
    larger = curves | {"weight_norm": 3 * curves["weight_norm"]}
    sides = {"author’s weights": larger, "our weights": curves}
    limits = []
    for side in sides.values():
        figure = Figure().subfigures()
        draw_alike(sides)(figure, side)
        loss, _, norm = figure.axes
        limits.append((loss.get_ylim(), norm.get_ylim()))
        assert loss.get_legend() is None
    assert limits[0] == limits[1]
    assert limits[0][1][1] > np.nanmax(larger["weight_norm"])


def test_bars_are_numbered_where_there_is_room():
    rows = []
    for column in range(6):
        for run in range(6):
            rows.append({"run": run, "carry_class": "NC", "carry_in": False})
            rows[-1] |= {"position": f"pos{column}", "without": "MLP"}
            rows[-1] |= {"accuracy": 1.0, "corrected": 0.0}
    cells = pd.DataFrame(rows)
    sides = {AUTHORS: cells, OURS: cells}
    crowded = cell_bars(sides, "without").axes[0]
    assert [tick.get_text() for tick in crowded.get_xticklabels()] == ["0", "5", "0", "5"]
    assert crowded.get_title() == "MLP\npos. 0"
    more = pd.concat([cells, cells.assign(without="carry neurons")])
    assert cell_bars({OURS: more}, "without").axes[6].get_title() == "carry\nneurons\npos. 0"
    roomy = cell_bars({OURS: cells[cells.position == "pos0"]}, "without").axes[0]
    assert [tick.get_text() for tick in roomy.get_xticklabels()] == list("012345")


@pytest.mark.parametrize("colour", [*OUTCOMES.values(), *CLASS_COLOURS, *DIGIT_COLOURS])
def test_areas_stand_out_from_white(colour):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour)]
    assert 1.05 / (np.dot([0.2126, 0.7152, 0.0722], linear) + 0.05) >= 3  # as WCAG counts contrast


def test_many_panels_leave_room_for_the_names_of_rows():
    parts = [f"head {i}:{j}" for i in range(4) for j in range(2)]
    rows = [(part, has_carry, 7, 0.5, 0.3, 0) for part in parts for has_carry in (True, False)]
    names = ["ablation", "carry_in", "position", "accuracy", "corrected", "run"]
    figure = carry_bars({OURS: pd.DataFrame(rows, columns=names)})
    figure.draw_without_rendering()
    widths = [ax.get_window_extent().width for ax in figure.get_axes()]
    assert min(widths) > 0.6 * max(widths)


def test_an_ablation_that_one_side_lacks_has_a_panel():
    row = {
        "run": 0,
        "carry_class": "NC",
        "carry_in": False,
        "position": "7",
        "accuracy": 0.5,
        "corrected": 0.2,
    }
    cells = pd.DataFrame([row | {"ablation": name} for name in ("head", "first head")])
    figure = cell_bars({AUTHORS: cells[:1], "our weights": cells})
    assert [len(ax.patches) for ax in figure.axes] == [6, 3]


@pytest.mark.parametrize(
    ("cells", "begins"),
    [(["a = 1"], "Two"), (["a = 1", "# Parameters\na = 2\n"], "Drawn with a = 2")],
)
def test_where_papermill_gives_parameters_an_alternative_text_says_whose_it_is(
    monkeypatch, cells, begins
):
    displayed: list[dict[str, str]] = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns={"In": cells}))
    monkeypatch.setattr(IPython.display, "display", lambda data, **_: displayed.append(data))
    show(Figure(), alt="Two lines.")
    assert displayed[0]["text/plain"].startswith(begins)


def test_drawing_the_svg_leaves_the_figure_as_it_was():
    figure = Figure()
    image = figure.subplots().imshow(np.eye(3))
    image.set_rasterized(True)
    before = png(figure)
    text = svg(figure)
    assert 'id="map viridis 3;' in text
    assert image.get_rasterized()
    assert image.get_gid() is None
    assert png(figure) == before
    assert svg(figure) == text


def test_numbers_on_a_map_can_be_read():
    """They have 3:1 or more on every cell, also beside one without a value."""
    shares = np.linspace(0, 1, 22).reshape(2, 11)
    shares[0, 3] = np.nan
    columns = pd.MultiIndex.from_product([["with a carry-in"], range(11)])
    figure = Figure().subfigures()
    accuracy_map(figure, pd.DataFrame(shares, index=["intact", "MLP 1"], columns=columns))
    numbers = figure.axes[0].texts
    assert len(numbers) == np.isfinite(shares).sum()
    for text in numbers:
        column, row = map(int, text.get_position())
        cell, ink = map(relative_luminance, (ACCURACY(shares[row, column]), text.get_color()))
        assert (max(cell, ink) + 0.05) / (min(cell, ink) + 0.05) > 3, text.get_text()


@pytest.mark.parametrize("width", [2, 3, 4])
def test_a_decision_is_that_of_the_sums(width: int):
    """Of every sum, by its carry class alone."""
    a, b = sums.all_sums(2) if width == 2 else survey.random_sums(width, 500, seed=0)
    classes = carries.classify(a, b, width)
    digit_sum = geometry.digit_sums(a, b, width)
    carry_in = (sums.digits(a + b, width) - digit_sum) % 10 == 1
    for column in range(width):
        for decision, expected in (
            (Decision(0, "MLP", carry_in=False), digit_sum[:, column] >= 10),
            (Decision(1, "attention", carry_in=True), carry_in[:, column]),
        ):
            holds = decision.of_column(carries.patterns(width), column)
            np.testing.assert_array_equal(holds[classes], expected)


def test_the_best_threshold_is_the_best_of_all():
    rng = np.random.default_rng(3)
    points, positive = rng.normal(size=(2, 40)), rng.random(40) < 0.4
    points[1] -= 1.5 * positive
    by_threshold = {}
    for axis, x in enumerate(points):
        for place in (np.sort(x)[1:] + np.sort(x)[:-1]) / 2:
            above = ((x > place)[positive].mean() + (x <= place)[~positive].mean()) / 2
            by_threshold[axis, round(place, 9)] = max(above, 1 - above)
    axis, place, accuracy = best_threshold(points, positive)
    assert axis == 1
    assert accuracy == pytest.approx(max(by_threshold.values()))
    assert by_threshold[axis, round(place, 9)] == pytest.approx(accuracy)


def test_planes_of_a_decision_have_its_colours_and_a_line():
    """Columns in which nothing is decided are left out; the nines have a colour of their own."""
    rng = np.random.default_rng(0)
    carry_class = np.array([0, 1, 2, 3, 4] * 20)
    planes = {
        "layer": np.array([0, 0, 0]),
        "after": np.array(["MLP"] * 3),
        "position": np.array([7, 8, 9]),
        "digit": rng.integers(0, 10, (3, 100)),
        "carry_class": carry_class,
        "x": rng.random((3, 100)),
        "y": rng.random((3, 100)),
    }
    decisions = [Decision(0, "MLP", carry_in=False)]
    figure = decision_figure({OURS: planes}, carries.patterns(3), decisions, height=2.0)
    assert [ax.get_title() for ax in figure.axes] == ["tens", "units"]
    tens, _ = figure.axes
    (dots,), (line,) = tens.collections, tens.lines
    makes_ten = np.isin(carry_class, [1, 3])
    is_nine = ~makes_ten & (planes["digit"][1] == 9)
    counts = {
        colour: (dots.get_facecolors()[:, :3] == to_rgb(colour)).all(1).sum()
        for colour in (YES, NO, NINE)
    }
    assert counts == {YES: makes_ten.sum(), NINE: is_nine.sum(), NO: (~makes_ten & ~is_nine).sum()}
    assert line.get_linestyle() == "--"

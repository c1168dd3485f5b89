"""The data of figures, not their pixels."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from carry_core import carries, sums
from carry_core.model import ModelConfig
from carry_paper.findings import geometry, survey
from carry_paper.plots.attention import attention_grid
from carry_paper.plots.curves import ends
from carry_paper.plots.hover import name_panels
from carry_paper.plots.language_models import answer_bars
from carry_paper.plots.planes import NINE, NO, YES, Decision, best_threshold, decision_figure
from carry_paper.plots.sides import OURS
from carry_paper.plots.style import ACCURACY, legend_below, number_map


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


def test_the_ends_have_best_and_last_of_every_run():
    """Of two runs, the second is 10 epochs shorter."""
    names = ("test_whole", "test_loss", "weight_norm")
    curves = dict(zip(names, np.random.default_rng(0).random((3, 2, 50)), strict=True))
    curves["weight_norm"] *= 1000
    for values in curves.values():
        values[1, 40:] = np.nan
    table = ends(curves | {"runs": np.array([3, 5]), "epochs": np.arange(1, 51)})
    for i, (run, end) in enumerate({3: 50, 5: 40}.items()):
        whole, loss, norm = (curves[name][i, :end] for name in names)
        row = table.loc[run]
        assert list(row["exact match"]) == [whole.max(), whole.argmax() + 1, whole[-1]]
        assert list(row["loss"]) == [loss.min(), loss.argmin() + 1, loss[-1]]
        assert list(row["squared norm"]) == [round(norm[0]), round(norm[-1])]


def test_a_legend_below_has_each_label_once_and_none_of_a_panel_with_its_own():
    figure = Figure()
    panels = figure.subplots(1, 3)
    for ax, labels in zip(panels, (["a", "b"], ["b", "c"], ["d"]), strict=True):
        for label in labels:
            ax.plot([0, 1], label=label)
    panels[2].legend()
    legend_below(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


def test_a_map_is_named_by_the_words_on_its_axes():
    """Its panel has the titles of its column and of its row."""
    figure = Figure()
    axes = figure.subplots(2, 2, sharey="row")
    for ax in axes.flat:
        ax.imshow([[0, 0.5], [1, np.nan]], cmap=ACCURACY)
    axes[0, 1].set_title("all\nruns")
    axes[1, 0].set(ylabel="ours", yticks=[0, 1], yticklabels=["head", "MLP"])
    name_panels(figure)
    assert axes[1, 1].get_gid() == "panel all runs, ours"
    assert axes[1, 1].images[0].get_gid() == "map accuracy 2;head|MLP;;0 0.5 1 nan;"
    assert axes[0, 0].images[0].get_gid() == "map accuracy 2;;;0 0.5 1 nan;"


def test_answers_are_named_by_their_own_shares_and_not_by_where_their_bars_end():
    rows = {"model": "m", "kind": "intact", "heads": "", "right": [0.6], "carry_share": [0.5]}
    (ax,) = answer_bars(pd.DataFrame(rows)).axes
    names = [bar.get_gid() for bar in ax.patches]
    kinds = {"correct": 0.6, "carrying mistake": 0.2, "other mistake (Alpaca: any)": 0.2}
    assert names == [f"value m, intact: {kind} {x:.2f}" for kind, x in kinds.items()]


def test_a_map_of_a_table_is_named_by_its_index_of_numbers_and_its_columns():
    figure = Figure()
    table = pd.DataFrame([[0, 0.5], [1, np.nan]], [8, 9], ["one", "all"])
    cells = number_map(figure.subplots(), table)
    name_panels(figure)
    assert cells.get_gid() == "map accuracy 2;8|9;one|all;0 0.5 1 nan;"


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

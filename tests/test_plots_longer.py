"""What the figures and tables of longer sums show: their data, labels and colours, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from carry_core import finetuning, geometry, longer, plots, roles, tasks
from carry_core.edits import INTACT, Ablation
from carry_core.forgetting import Forgetting
from carry_core.measure import Cells, cannot_carry
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Layout

NAN = float("nan")


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


def test_length_curves_show_each_run_of_each_group_in_its_colour():
    random = np.random.default_rng(0).random
    first = {"long_whole": np.array([[0.1, 0.2, NAN], [0.3, 0.4, 0.5]]), "long_accuracy": random((2, 3, 4))}
    first["long_accuracy"][0, 2] = NAN
    second = {"long_whole": np.array([[0.6, 0.7]]), "long_accuracy": random((1, 2, 4))}
    figure = plots.length_curves({"unprimed": [first], "primed": [second]}, 2)
    panels = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in panels] == [
        "whole answer", "position 0 (long)", "position 1 (long)", "position 2", "position 3",
    ]  # fmt: skip
    for i, ax in enumerate(panels):
        lines = [line for line in ax.lines if len(line.get_ydata())]
        assert [to_hex(line.get_color()) for line in lines] == ["#2b6ca3", "#2b6ca3", "#d98324"]
        for line, (history, run) in zip(lines, [(first, 0), (first, 1), (second, 0)], strict=True):
            curve = history["long_whole"][run] if i == 0 else history["long_accuracy"][run, :, i - 1]
            known = curve[~np.isnan(curve)]
            assert line.get_ydata() == pytest.approx(known)
            assert line.get_xdata().tolist() == list(range(1, len(known) + 1))
    assert {"unprimed", "primed"} <= set(texts(figure))
    alone = plots.length_curves({"unprimed": [], "primed": [second]}, 2)
    assert to_hex(alone.axes[0].lines[0].get_color()) == "#d98324"
    assert "unprimed" not in texts(alone)


def test_the_table_of_forgetting_has_the_epochs_in_small_type():
    found = {"unprimed, ours": {3: Forgetting(60, 20, 0.5, 0.2, (30.0, NAN), (0.1, 1.0))}}
    table = plots.table_of_forgetting(found)
    assert table.rows == [["unprimed, ours 3", "0.500\n20", "0.200\n60", "0.10\n30", "1.00\n–"]]
    assert table.header == ["run", "best", "last", "0", "1"]


@pytest.mark.parametrize(("n_tasks", "across"), [(13, 7), (89, 10), (5, 5)])
def test_every_class_has_a_tile_with_one_head_over_the_other(n_tasks, across):
    layout = Layout(4)
    pattern = torch.rand(n_tasks, 2, 2, layout.length, layout.length, generator=torch.Generator().manual_seed(0))
    figure = plots.attention_tiles(pattern, [f"class {i}" for i in range(n_tasks)], layout)
    assert [ax.get_title() for ax in figure.axes] == [f"class {i}" for i in range(n_tasks)]
    assert len({round(ax.get_position().x0, 4) for ax in figure.axes}) == across
    for task in (0, n_tasks - 1):
        shown = np.asarray(figure.axes[task].images[0].get_array())
        answer = list(layout.answer)
        assert shown == pytest.approx(torch.cat([pattern[task, 1, 0, answer], pattern[task, 1, 1, answer]]).numpy())


def heads(staircase: float, ahead: float, right: float) -> longer.Heads:
    early = torch.full((1, 2, 4), staircase)
    early[..., :2] -= 0.1
    forward = torch.stack([torch.full((4,), ahead / 2), torch.full((4,), ahead)])[None]
    own, to_right = torch.full((2, 2, 4), 0.5), torch.full((2, 2, 4), right)
    forward[..., 3] = to_right[..., 3] = NAN
    return longer.Heads(early, forward, own, to_right, 1, 0.9, 0.4)


def test_the_table_of_heads_has_the_long_positions_in_small_type():
    table = plots.table_of_heads([("our run", heads(0.8, 0.6, 0.25))], 2)
    assert table.header == ["run", "to partner", "to the right", "0:0", "0:1", "1:0", "1:1", "intact", "without ◂"]
    cells = ["0.80\n0.70", "0.60 (0:1)\n0.60", *[".25/.50\n.25/.50"] * 3, ".25/.50 ◂\n.25/.50", "0.900", "0.400"]
    assert table.rows == [["our run", *cells]]
    alone = plots.table_of_heads([("our run", heads(0.8, 0.6, 0.25))], 0)
    assert alone.rows[0][1] == "0.70"


def test_the_table_of_staircases_names_each_kind_and_has_every_column():
    found = heads(0.8, 0.6, 0.25)
    found.own[0, 1] = torch.tensor([0.6, 0.7, 0.8, 1.0])
    table = plots.table_of_stairs([("our run\nepoch 500", found)], 2)
    assert table.header == ["run", "best head", "0:0", "0:1", "1:0", "1:1"]
    assert table.spans == [("", 1), ("between the digits", 1), ("of the answer rows", 4)]
    cells = [".80 .80\n.70 .70", ".50 .50\n.50 .50", ".80 1.00\n.60 .70", *[".50 .50\n.50 .50"] * 2]
    assert table.rows == [["our run\nepoch 500", *cells]]
    assert plots.table_of_stairs([("our run", found)], 0).rows[0][3] == ".60 .70 .80 1.00"


def test_the_journey_has_a_panel_for_every_place_and_the_colours_of_its_labels():
    torch.manual_seed(0)
    model = Transformer(ModelConfig(width=3, d_model=16, d_ff=8)).eval()
    wanted = ["000", "011"]
    a, b = tasks.draw_classes(wanted, 40, torch.Generator().manual_seed(0))
    planes = geometry.journey(model, a, b, 3, longer.answer_columns(model))
    figure = plots.journey_grid(planes, wanted, 3)
    assert len(figure.axes) == 24
    assert [ax.get_title() for ax in figure.axes[:12:2]] == [f"position {i}" for i in range(3)] + [""] * 3
    labels = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert labels == [f"layer {layer}\n{after}" for layer in (0, 1) for after in ("attention", "MLP")] * 2
    by_class, by_digit = figure.axes[7].collections[0], figure.axes[19].collections[0]
    assert by_class.get_offsets().data == pytest.approx(planes[7].points[:, :2].numpy(), abs=1e-5)
    assert [to_hex(c) for c in by_class.get_facecolors()] == [
        to_hex(plots.class_colours(2)[i]) for i in (0, 1) for _ in range(40)
    ]
    assert [to_hex(c) for c in by_digit.get_facecolors()] == [
        plots.DIGIT_COLOURS[digit].lower() for digit in planes[7].digit.tolist()
    ]
    assert {"000", "011", "NC", "C all"} & set(texts(figure)) == {"NC", "C all"}


def test_the_tables_of_ablations_separate_where_a_one_arrives():
    lost = {INTACT: torch.tensor([[0.9, 0.8, 0.7], [0.6, 0.5, NAN]]), Ablation(mlps={1}): torch.zeros(2, 3)}
    table = plots.table_of_parts(lost)
    assert table.rows[0] == ["intact", "0.60", "0.50", "0.90", "0.80", "0.70"]
    assert table.rows[1][0] == "without MLP 1"
    ideal = cannot_carry(3)
    without = Cells(ideal.accuracy, ideal.corrected, 0.0)
    table = plots.table_of_mlp({"ours 0": {"epoch 500": (0.25, without)}})
    assert table.rows == [["ours 0\nepoch 500", "0.25", "0.00\n1.00", "0.00\n1.00", "1.00", "1.00", "1.00"]]
    assert roles.by_arrival(without)[1, :2].tolist() == [0, 0]


def test_the_other_tables():
    separation = longer.Separation((NAN, 1.0, 0.9), (0.8, 0.7, NAN))
    table = plots.table_of_separations({"ours 0": separation})
    assert table.rows == [["ours 0", "–", "1.00", "0.90", "0.80", "0.70"]]
    assert plots.table_of_axes({"ours 0": (0.3, 0.5)}).rows == [["ours 0", "0.30", "0.50"]]
    accuracy = (0.5, torch.tensor([0.25, 1.0]))
    assert plots.table_of_accuracies([("ours 0", 3, accuracy)]).rows == [["ours 0", "3", "0.500", ".25 1.00"]]
    moved = finetuning.Moved(481.0, 482.0, 0.04, {})
    assert plots.table_of_moves({"ours 0": moved}).rows == [["ours 0", "481.0", "482.0", "+0.21%", "4.0%"]]


@pytest.mark.parametrize("n_runs", [1, 2, 6])
def test_each_run_has_a_bar_for_each_parameter(n_runs):
    parts = {"embed.weight": (0.1, 0.7), "unembed.bias": (0.2, 0.3)}
    figure = plots.moved_bars({f"run {i}": finetuning.Moved(1.0, 1.0, 0.1, parts) for i in range(n_runs)})
    for i, ax in enumerate(figure.axes):
        widths = sorted(bar.get_width() for bar in ax.patches)
        assert widths == pytest.approx(sorted(values[i] for values in parts.values() for _ in range(n_runs)))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(parts)
    assert {f"run {i}" for i in range(n_runs)} <= set(texts(figure))


def test_classes_of_four_digits_have_thirteen_colours():
    assert len(set(plots.class_colours(len(tasks.patterns(4))))) == 13

"""What the figures of neurons and of the circuit show: their data, labels and colours, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from carry_core import adder, neurons, pentagon, plots, sums, tasks
from carry_core.plots import circuit
from carry_core.plots.neurons import OFTEN
from carry_core.plots.pentagon import moved_apart

NAMES = ["pos7", "pos8", "pos9"]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


# ---------------------------------------------------------------- attention


def test_attention_grid_can_show_the_row_that_closes_a_decoders_answer_too():
    layout = sums.Layout(causal=True)
    pattern = torch.rand(2, 2, 2, 10, 10, generator=torch.Generator().manual_seed(0))
    figure = plots.attention_grid(pattern, ["one", "two"], layout, layout.read)
    last = [ax.images[0].get_array() for ax in figure.axes if ax.images][-1]
    np.testing.assert_array_equal(last, pattern[1, 1, 1, 6:])
    with_answer = plots.attention_grid(pattern, ["one", "two"], layout)
    np.testing.assert_array_equal([ax for ax in with_answer.axes if ax.images][-1].images[0].get_array().shape, (3, 10))


# ---------------------------------------------------------------- neurons


def test_neuron_grid_fills_the_chosen_neurons_and_frames_the_cells_where_a_one_arrives():
    generator = torch.Generator().manual_seed(0)
    points, often = torch.randn(20, 2, generator=generator).double(), torch.rand(5, 3, 20, generator=generator).double()
    axis = neurons.CarryAxis(points, (0.31, 0.12), often, (0.9, 0.1))
    chosen = neurons.most_often(often, 8)
    figure = plots.neuron_grid(axis, chosen, NAMES)
    assert len(figure.axes) == 15
    for i, ax in enumerate(figure.axes):
        pos, task = divmod(i, 5)
        others, filled = ax.collections
        np.testing.assert_allclose(filled.get_offsets(), points[chosen[task, pos]])
        np.testing.assert_allclose(others.get_offsets(), points[~chosen[task, pos]])
        np.testing.assert_allclose(filled.get_facecolors()[0, :3], to_rgb(OFTEN))
        assert not len(others.get_facecolors())
        assert (ax.spines["left"].get_linewidth() > 1) == bool(tasks.carry_arrives(3)[task, pos])
    assert {"NC", "C all con.", "pos. 8", "the 8 most often active", "axis 1: 31% · axis 2: 12%"} <= set(texts(figure))


def test_board_grid_shows_the_cosines_under_where_a_one_arrives():
    def boards(seed: int) -> list[neurons.Board]:
        cosine = 2 * torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(seed)).double() - 1
        arrives = torch.tensor([[True] * 3 + [False] * 3, [True, False] * 3])
        return [neurons.Board(7 + i, arrives[i], cosine[i]) for i in range(2)]

    columns = [("intact", boards(0)), ("without", boards(1))]
    figure = plots.board_grid(columns)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    expected = [part for _, found in columns for b in found for part in (b.arrives[None], b.cosine)]
    assert len(images) == len(expected) == 8
    for image, data in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), data)
    assert {image.get_clim() for image in images[1::2]} == {(-1, 1)}
    assert {"intact", "without", "pos. 7", "pos. 8", "cosine"} <= set(texts(figure))


# ---------------------------------------------------------------- a sum on its way


def a_trace(**more: Any) -> adder.Trace:
    """347 + 128 with planted attention: head 0:0 looks from the tens of a to those of b, head 1:1 from 8 to 2."""
    first, last = torch.zeros(2, 10, 10), torch.zeros(2, 10, 10)
    first[0, 1, 5], first[0, 3, 0], first[1, 2, 9] = 0.9, 0.5, 0.09
    last[1, 8, 2], last[0, 7, 4], last[1, 3, 3] = 0.8, 0.3, 0.7
    answers = {
        "intact": [(4, 1.0), (7, 0.9), (5, 1.0)],
        "head": [(5, 0.6), (7, 1.0), (5, 1.0)],
        "MLP": [(4, 1.0), (6, 0.7), (1, 0.5)],
    }
    kind: dict[str, Any] = {
        "tens": {1: False, 2: True}, "ones": {1: 6, 2: 5}, "arrives": {7: False, 8: True}, "answers": answers,
    }  # fmt: skip
    return adder.Trace(347, 128, sums.Layout(), first, last, 1, 1, **kind | more)


def drawn(figure: Any) -> list[tuple[str, float]]:
    """Colour and width of each line of attention."""
    return [(line.get_color(), line.get_linewidth()) for line in figure.axes[0].lines]


def boxes(figure: Any) -> list[tuple[str, float]]:
    """Colour and frame of each box, in the order of drawing."""
    found = [p for p in figure.axes[0].patches if isinstance(p, mpl.patches.FancyBboxPatch)]
    return [(mpl.colors.to_hex(p.get_facecolor()).upper(), p.get_linewidth()) for p in found]


def test_the_summary_draws_attention_as_wide_as_it_is_and_only_where_it_counts():
    figure = plots.summary_circuit(a_trace())
    found = dict(drawn(figure))
    assert len(drawn(figure)) == 4  # 0.09 is too little; what the last layer does at position 3 is nobody's answer
    widths = [found[c] for c in (circuit.PARTNER, circuit.ELSEWHERE, circuit.DECIDES, circuit.HELPS)]
    np.testing.assert_allclose(np.array(widths) / widths[0], [1, 0.5 / 0.9, 0.8 / 0.9, 0.3 / 0.9], rtol=1e-6)
    (line,) = [line for line in figure.axes[0].lines if line.get_color() == circuit.DECIDES]
    (other,) = [line for line in figure.axes[0].lines if line.get_color() == circuit.HELPS]
    assert (line.is_dashed(), other.is_dashed()) == (False, True)  # in grey the two are as dark as each other
    assert line.get_xdata()[0] == min(t.get_position()[0] for t in figure.axes[0].texts if t.get_text() == "7")
    assert line.get_ydata()[0] < line.get_ydata()[1]


def test_the_summary_says_what_was_read_and_what_was_answered():
    figure = plots.summary_circuit(a_trace())
    shown = [t.get_text() for t in figure.axes[0].texts]
    tokens = sorted((t.get_position()[0], t.get_text()) for t in figure.axes[0].texts if t.get_position()[1] < 0.4)
    assert "".join(text for _, text in tokens) == "the sum347+128==="
    assert {"15", "6", "+0", "+1", "0.70", "without head 1:1"} <= set(shown)
    kinds = [colour for colour, _ in boxes(figure)]
    assert kinds.count(circuit.BIG) == kinds.count(circuit.SMALL) == 1
    assert kinds.count(circuit.ONE) == kinds.count(circuit.NONE) == 1
    by_kind = [kinds.count(c) for c in (circuit.RIGHT, circuit.OFF_BY_ONE, circuit.OTHER)]
    assert by_kind == [6, 2, 1]  # 5 for 4 is one too large, 6 for 7 one too small, 1 for 5 is neither
    assert not [width for _, width in boxes(figure) if width > 1]


def test_a_wrong_reading_has_a_red_frame():
    wrong = plots.summary_circuit(a_trace(ones={1: 6, 2: 4}, arrives={7: True, 8: True}))
    assert len([width for _, width in boxes(wrong) if width > 1]) == 2


def test_a_decoders_trace_is_drawn_too():
    layout = sums.Layout(causal=True)
    trace = a_trace(tens={5: False, 6: True}, ones={5: 6, 6: 5}, arrives={6: False, 7: True})
    figure = plots.summary_circuit(adder.Trace(**vars(trace) | {"layout": layout}))
    assert {"15", "6", "+0", "+1"} <= set(texts(figure))


# ---------------------------------------------------------------- pentagons


@pytest.fixture
def found() -> pentagon.Pentagon:
    generator = torch.Generator().manual_seed(0)
    digit, arrives = torch.arange(400) % 10, torch.arange(400) % 3 == 0
    angle = 2 * torch.pi * digit / 5
    points = torch.stack([angle.cos(), angle.sin(), arrives.float(), *torch.zeros(3, 400)], 1)
    points = points + 0.01 * torch.randn(points.shape, generator=generator)
    task = torch.where(arrives, 2, 0)
    return pentagon.Pentagon(
        points, (0.4, 0.3, 0.2, 0.1, 0.0, 0.0), digit, task, arrives, 0.95, 0.5, 1.0, 0.97, (1, 2), 0.6, -1.0
    )


def test_pentagon_panels_show_all_sums_and_then_those_with_and_without_an_arriving_one(found):
    figure = plots.pentagon_panels(found)
    drawn = [ax.collections[0] for ax in figure.axes]
    assert [len(scatter.get_offsets()) for scatter in drawn] == [400] * 3 + [266, 266, 134, 134]
    np.testing.assert_allclose(drawn[2].get_offsets(), found.points[:, 1:3], atol=1e-6)
    np.testing.assert_allclose(drawn[6].get_offsets(), found.points[found.arrives][:, :2], atol=1e-6)
    np.testing.assert_allclose(drawn[1].get_facecolors()[7, :3], to_rgb(plots.DIGIT_COLOURS[7]))
    np.testing.assert_allclose(drawn[0].get_facecolors()[0, :3], to_rgb(plots.CLASS_COLOURS[2]))
    corners = figure.axes[4].lines[0].get_xydata()
    expected = [[np.cos(2 * np.pi * d / 5), np.sin(2 * np.pi * d / 5)] for d in (0, 1, 2, 3, 4, 0)]
    np.testing.assert_allclose(corners, expected, atol=0.01)
    assert [text.get_text() for text in figure.axes[4].texts] == [str(d) for d in range(10)]


def test_digits_that_would_hide_each_other_are_moved_apart_and_no_others():
    places = np.array([0, 0, 0.03 + 0.01j, 5, 5.2j])
    moved = moved_apart(places, 0.1)
    gaps = np.abs(moved[:, None] - moved[None]) + np.eye(5)
    assert gaps.min() >= 0.1
    assert np.abs(moved - places).max() < 0.15
    np.testing.assert_array_equal(moved[3:], places[3:])
    unknown = moved_apart(np.array([0, 0, complex("nan")]), 0.1)
    assert np.isnan(unknown[2])
    assert abs(unknown[0] - unknown[1]) >= 0.1


def test_in_the_pentagon_pairs_of_digits_stand_beside_each_other(found):
    figure = plots.pentagon_panels(found)
    at = {text.get_text(): np.array(text.get_position()) for text in figure.axes[4].texts}
    assert all(np.linalg.norm(at[str(d)] - at[str(d + 5)]) > 0.1 for d in range(5))


def test_pentagon_runs_show_each_run_in_both_planes_with_its_scores(found):
    figure = plots.pentagon_runs({0: found, 3: found})
    assert len(figure.axes) == 4
    np.testing.assert_allclose(
        figure.axes[1].collections[0].get_offsets(), found.points[~found.arrives][:, 1:3], atol=1e-6
    )
    assert {"run 0", "run 3", "axes 1, 2\n0.95 (0.50)", "axes 2, 3\n0.97 (0.60)"} <= set(texts(figure))


# ---------------------------------------------------------------- the full adder


@pytest.fixture
def parts() -> adder.Parts:
    """A network that is a full adder, but for one that arrives at all sums without the decision head."""
    a, b = sums.long_sums(3_000, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)

    def truth(columns: tuple[int, ...], label: torch.Tensor, found: torch.Tensor | None = None) -> adder.Truth:
        expected = label[:, columns].long()
        return adder.Truth(columns, expected, expected if found is None else found)

    nothing = torch.zeros(3_000, 2, dtype=torch.int64)
    return adder.Parts(
        wires, truth((1, 2), wires.tens), truth((1, 2), wires.ones), truth((1, 2), wires.ones, nothing),
        truth((0, 1), wires.arrives, nothing),
        truth((0, 1), wires.arrives), truth((0, 1, 2), wires.digit), truth((0, 1, 2), wires.ones),
        truth((0, 1, 2), wires.digit, (wires.ones + 1) % 10),
    )  # fmt: skip


def test_the_circuit_says_what_was_measured(parts):
    shown = texts(plots.full_adder_circuit(parts))
    assert {"layer 0\nsum mod 10\n1.000", "final MLP\ndigit\n1.000", "last attention\na one arrives\n1.000"} <= set(
        shown
    )
    early = [f"{share:.2f}" for share in parts.early.by_column]
    assert f"(before it: {early[0]} and {early[1]})" in shown
    worse = parts.ones.found.clone()
    worse[:300] = 0
    broken = adder.Parts(**vars(parts) | {"ones": adder.Truth(parts.ones.columns, parts.ones.expected, worse)})
    assert f"layer 0\nsum mod 10\n{broken.ones.agreement:.3f}" in texts(plots.full_adder_circuit(broken))


def test_truth_tables_are_those_of_addition(parts):
    figure = plots.truth_tables(parts)
    tens, ones, before, after, digit, bypassed, leaky = figure.axes[:7]
    grid = [[int(text.get_text()) for text in ax.texts] for ax in (tens, ones)]
    assert grid[0] == [int(x + y >= 10) for x in range(10) for y in range(10)]
    assert grid[1] == [(x + y) % 10 for x in range(10) for y in range(10)]
    assert [t.get_text() for t in after.texts] == [
        "0",
        "0",
        "0",
        "0",
        "1",
        "",
        "1",
        "1",
    ]  # nothing arrives at the units
    np.testing.assert_allclose(before.images[0].get_array()[[0, 3]], [[1, 1], [0, 0]])
    assert [int(t.get_text()) for t in digit.texts] == [*range(10), *range(1, 10), 0]
    assert [int(t.get_text()) for t in bypassed.texts] == [*range(10), *range(10)]
    assert [int(t.get_text()) for t in leaky.texts] == 2 * [*range(1, 10), 0]
    np.testing.assert_allclose(leaky.images[0].get_array(), [[0] * 10, [1] * 10])
    np.testing.assert_allclose(digit.images[0].get_array(), 1)


# ---------------------------------------------------------------- tables


def test_a_table_of_traces_has_what_each_run_reads_and_answers():
    table = plots.table_of_traces({3: a_trace()})
    assert table.header == [
        "run", "digit sums read", "a one arrives", "answer", "without the decision head", "without the final MLP",
    ]  # fmt: skip
    trace = a_trace()
    answers = ["".join(str(digit) for digit, _ in trace.answers[name]) for name in ("intact", "head", "MLP")]
    read = ", ".join(str(10 * trace.tens[p] + trace.ones[p]) for p in sorted(trace.tens))
    assert table.rows == [["3", read, "no, yes", *answers]]


def test_a_table_of_carriers():
    found = neurons.Carriers(0.75, 86, 0.01, 0.99, 1.0, (0.05, 0.6))
    assert plots.table_of_carriers({2: found}).rows == [
        ["2", "0.750", "86", "0.010", "0.990", "1.000", "0.050", "0.600"],
    ]  # fmt: skip

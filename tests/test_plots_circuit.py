"""What the figures of neurons and of the circuit show: their data, labels and colours, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from carry_core import carries, plots, sums
from carry_core.findings import adder
from carry_core.plots import circuits as circuit
from carry_core.plots.neurons import OFTEN, draw_neurons

NAMES = ["pos7", "pos8", "pos9"]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


# ---------------------------------------------------------------- attention


# ---------------------------------------------------------------- neurons


def test_neurons_are_filled_if_chosen_and_cells_with_a_carry_in_are_framed():
    generator = torch.Generator().manual_seed(0)
    points, chosen = torch.randn(20, 2, generator=generator).numpy(), torch.rand(5, 3, 20, generator=generator) < 0.4
    names = {"classes": np.array(list("abcde")), "positions": np.array(NAMES)}
    figure = Figure().subfigures()
    draw_neurons(figure, {"points": points, "share": np.array([0.31, 0.12]), "chosen": chosen.numpy(), **names})
    assert len(figure.axes) == 15
    for i, ax in enumerate(figure.axes):
        pos, task = divmod(i, 5)
        others, filled = ax.collections
        np.testing.assert_allclose(filled.get_offsets(), points[chosen[task, pos]])
        np.testing.assert_allclose(others.get_offsets(), points[~chosen[task, pos]])
        np.testing.assert_allclose(filled.get_facecolors()[0, :3], to_rgb(OFTEN))
        assert (ax.spines["left"].get_linewidth() > 1) == bool(carries.carry_in(3)[task, pos])


# ---------------------------------------------------------------- a sum on its way


def a_summary() -> Any:
    """347 + 128 with planted attention: head 0:0 looks from the tens of a to those of b, head 1:1 from 8 to 2."""
    attention = torch.zeros(2, 2, 10, 10)
    attention[0, 0, 1, 5], attention[0, 0, 3, 0], attention[0, 1, 2, 9] = 0.9, 0.5, 0.09
    attention[1, 1, 8, 2], attention[1, 0, 7, 4], attention[1, 1, 3, 3] = 0.8, 0.3, 0.7
    rows = [("tens", 1, 0, 0, 1.0), ("tens", 2, 1, 1, 1.0), ("ones", 1, 6, 6, 1.0), ("ones", 2, 5, 5, 1.0)]
    rows += [("carry_in", 7, 0, 0, 1.0), ("carry_in", 8, 1, 1, 1.0)]
    rows += [("intact", 7, 4, 4, 1.0), ("intact", 8, 7, 7, 0.9), ("intact", 9, 5, 5, 1.0)]
    rows += [("head", 7, 5, 4, 0.6), ("head", 8, 7, 7, 1.0), ("head", 9, 5, 5, 1.0)]
    rows += [("MLP", 7, 4, 4, 1.0), ("MLP", 8, 6, 6, 0.7), ("MLP", 9, 1, 5, 0.5)]
    trace = pd.DataFrame(rows, columns=["wire", "position", "reads", "schoolbook", "probability"])
    trace = trace.assign(agrees=True).set_index(["wire", "position"])
    return plots.summary_circuit(347, 128, sums.Layout(), trace, attention, 1)


def boxes(figure: Any) -> list[tuple[str, float]]:
    """Colour and frame of each box, in the order of drawing."""
    found = [p for p in figure.axes[0].patches if isinstance(p, mpl.patches.FancyBboxPatch)]
    return [(mpl.colors.to_hex(p.get_facecolor()).upper(), p.get_linewidth()) for p in found]


def test_the_summary_says_what_was_read_and_what_was_answered():
    figure = a_summary()
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


# ---------------------------------------------------------------- pentagons


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


def test_what_decides_whether_a_column_hands_on_a_one():
    a, b = sums.long_sums(500, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)
    for x, y, case in zip(a.tolist(), b.tolist(), circuit.carry_case(wires, 1).tolist(), strict=True):
        total, arrives = x // 10 % 10 + y // 10 % 10, x % 10 + y % 10 >= 10
        expected = 3 if total >= 10 else 0 if total <= 8 else 2 if arrives else 1
        assert case == expected
    hands_on = torch.tensor([False, False, True, True])[circuit.carry_case(wires, 1)]
    assert torch.equal(hands_on, wires.arrives[:, 0])


def test_a_table_has_what_is_said_most_often_and_how_often_it_is_right():
    row, column = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 0, 1, 1, 1])
    expected, found = torch.tensor([4, 4, 4, 7, 7, 7]), torch.tensor([4, 4, 5, 8, 8, 7])
    value, share = circuit.tabulate((2, 2), expected, found, row, column)
    assert value.tolist() == [[4, -1], [-1, 8]]
    assert share[0, 0].item() == pytest.approx(2 / 3)
    assert share[1, 1].item() == pytest.approx(1 / 3)
    assert share[0, 1].isnan()

"""Each criterion on both sides of its edge, and that ledger and pages have no other."""

import math
import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch

from carry_core import criteria, measure, tasks
from carry_core.files import ROOT
from carry_core.measure import Cells
from carry_core.sums import Layout

ARRIVES = tasks.carry_arrives(3)


def without_decision(carry: float = 1.0, right: float = 0.4, too_large: float = 0.6) -> Cells:
    """A model that always adds what it should, and elsewhere is right or one too large."""
    sure = ARRIVES.double()
    return Cells(carry * sure + right * (1 - sure), too_large * (1 - sure), whole=0.5)


def double(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("criterion", "edge", "shows"),
    [
        (criteria.matters, 0.1, (False, True, True)),
        (criteria.cannot_carry, 0.9, (False, True, True)),
        (criteria.ablation_works, 0.95, (False, True, True)),
        (criteria.carry_axis, 0.7, (False, True, True)),
        (lambda rest: criteria.only_carrying_goes(0.0, rest), 0.99, (False, True, True)),
        (lambda score: criteria.leading_axis_separates([[score, 0.5]]), 0.95, (False, True, True)),
        (lambda carry: criteria.adds_every_one(without_decision(carry=carry)), 0.99, (False, True, True)),
        (lambda carry: criteria.decides(0.2, without_decision(carry=carry)), 0.99, (False, True, True)),
        (lambda right: criteria.decides(0.2, without_decision(right=right, too_large=0)), 0.99, (False, True, True)),
        (lambda share: criteria.always_adds(without_decision(too_large=share)), 0.95, (False, True, True)),
        (lambda mass: criteria.staircase(double([mass, 1.0])), 0.5, (False, True, True)),
        (lambda mass: criteria.brings_previous_sum(double([mass], [0.1]), 0, Layout()), 0.2, (False, False, True)),
        (lambda mass: criteria.brings_previous_sum(double([mass], [0.3]), 0, Layout()), 0.3, (False, False, True)),
        (criteria.needs_biases, 0.01, (False, False, True)),
        (lambda after: criteria.checkerboard(0.05, after), 0.1, (False, False, True)),
        (lambda after: criteria.checkerboard(0.3, after), 0.3, (False, False, True)),
        (lambda carry: criteria.only_carrying_goes(carry, 1.0), 0.1, (True, False, False)),
        (criteria.most_carrying_goes, 0.5, (True, False, False)),
        (criteria.unable, 0.9, (True, False, False)),
        (criteria.fails, 0.05, (True, False, False)),
        (criteria.changes_little, 0.05, (True, False, False)),
        (lambda order: criteria.loses_order(order, [0.7, 0.6]), 0.6, (True, False, False)),
        (lambda task: criteria.by_outcome([(0.8, task)]), 0.8, (True, False, False)),
    ],
)
def test_the_edge_of_a_criterion(criterion, edge, shows):
    """The next number below it, the edge itself and the next one above it."""
    assert tuple(criterion(x) for x in (math.nextafter(edge, -1), edge, math.nextafter(edge, 2))) == shows


def test_a_head_decides_if_it_costs_and_leaves_every_one_that_is_needed():
    assert criteria.decides(0.1, without_decision())
    assert not criteria.decides(0.09, without_decision())
    assert not criteria.decides(0.1, without_decision(carry=0.98))
    assert not criteria.decides(0.1, without_decision(right=0.4, too_large=0.5))
    one_cell = without_decision()
    one_cell.accuracy[4, 1] = 0.5  # where a one arrives
    assert not criteria.decides(0.1, one_cell)
    assert criteria.adds_every_one(without_decision(right=0, too_large=0))
    assert not criteria.adds_every_one(one_cell)


def test_of_nothing_known_nothing_is_said():
    unknown = replace(without_decision(), corrected=torch.full((5, 3), torch.nan))
    assert not criteria.decides(0.5, unknown)
    assert not criteria.cannot_carry(float("nan"))
    assert not criteria.matters(float("nan"))


def test_a_model_that_cannot_carry():
    perfect = measure.pearson(measure.cannot_carry(3), measure.cannot_carry(3))
    assert perfect == pytest.approx(1)
    assert criteria.cannot_carry(perfect)
    assert not criteria.cannot_carry(0.89)


def test_a_decoder_always_adds():
    always = without_decision(right=0.04, too_large=0.96)
    assert [len(column) for column in criteria.added_ones(always)] == [int((~ARRIVES[:, i]).sum()) for i in range(3)]
    assert criteria.always_adds(always)
    always.corrected[0, 2] = 0  # at the last position none can be carried over
    assert criteria.always_adds(always)
    always.corrected[0, 1] = 0.9
    assert not criteria.always_adds(always)


def test_only_carrying_goes():
    assert criteria.only_carrying_goes(carry=0.09, rest=0.99)
    assert not criteria.only_carrying_goes(carry=0.1, rest=1.0)
    assert not criteria.only_carrying_goes(carry=0.0, rest=0.98)
    assert (criteria.most_carrying_goes(0.49), criteria.most_carrying_goes(0.5)) == (True, False)


def test_each_digit_needs_a_head_that_looks_at_its_partner():
    heads = torch.tensor([[0.6, 0.1, 0.5], [0.1, 0.7, 0.2]])
    assert criteria.staircase(heads)
    assert not criteria.staircase(heads[:1])


def test_the_decision_head_looks_right_more_than_the_other_and_more_than_by_chance():
    mass = torch.tensor([[0.3, 0.4], [0.1, 0.3]])
    assert criteria.brings_previous_sum(mass, 0, Layout())
    assert not criteria.brings_previous_sum(mass, 1, Layout())
    assert not criteria.brings_previous_sum(mass - 0.11, 0, Layout())
    assert criteria.brings_previous_sum(mass - 0.11, 0, Layout(4))  # 2 of 13 tokens, not of 10
    assert not criteria.brings_previous_sum(torch.tensor([[0.3, 0.4], [0.1, 0.5]]), 0, Layout())


def test_a_head_looks_right_on_average_over_the_positions_that_can():
    """The last position has no column to its right, and counts for nothing."""
    own, right = torch.tensor([[0.1, 0.6, 9.0], [0.5, 0.5, 0.0]]), torch.tensor([[0.8, 0.1, torch.nan]] * 2)
    assert criteria.looks_right(own, right, 0)
    assert not criteria.looks_right(own, right, 1)
    assert not criteria.looks_right(own, own, 0)


def test_the_leading_axis_must_separate_and_win():
    assert criteria.leading_axis_separates([[0.95, 0.9], [1.0, 1.0]])
    assert not criteria.leading_axis_separates([[0.94, 0.9], [1.0, 1.0]])
    assert not criteria.leading_axis_separates([[0.95, 0.96], [1.0, 1.0]])


def test_pockets_axes_and_boards():
    assert criteria.by_outcome([(0.9, 0.3), (0.5, 0.4)])
    assert not criteria.by_outcome([(0.9, 0.3), (0.4, 0.4)])
    assert (criteria.carry_axis(0.7), criteria.carry_axis(0.69)) == (True, False)
    assert (criteria.needs_biases(0.02), criteria.needs_biases(0.01)) == (True, False)
    assert criteria.checkerboard(0.05, 0.2)
    assert not criteria.checkerboard(0.05, 0.1)
    assert not criteria.checkerboard(0.3, 0.2)


# A comparison with a number below one, such as `x >= 0.95`; 0.05 of a second or of an inch is not compared.
THRESHOLD = re.compile(r"[<>]=?\s*(0?\.\d+)\b|\b(0?\.\d+)\s*[<>]=?")


OWN = {  # what no row of the ledger judges
    "outcomes": {"if abs(value) < 0.01:"},  # how many places a number is printed with
    "app_g_alpaca": {'end = sum(s.values["a one arrives at the first digit"][-1] >= 0.9 for s in separations[1:])'},
    "fig11_learning_dynamics": {
        "perfect = sum(value >= 0.9995 for value in final)",
        "reached = np.flatnonzero(whole >= 0.999)",
    },
    "fig26_full_adder": {'takes = "It takes the first MLP" if halfway < 0.5 else "It may not take the first MLP"'},
}


def thresholds(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if THRESHOLD.search(line)]


def test_what_counts_as_a_threshold():
    assert thresholds("shows = x >= 0.9\ny = 0.5 < x\nleft = 0.5\nz = x < CARRIES  # 0.9") == [
        "shows = x >= 0.9", "y = 0.5 < x",
    ]  # fmt: skip


@pytest.mark.parametrize("path", sorted((ROOT / "carry_core" / "ledger").glob("*.py")), ids=lambda path: path.stem)
def test_the_ledger_has_no_threshold_of_its_own(path: Path):
    assert set(thresholds(path.read_text())) <= OWN.get(path.stem, set())


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_page_has_no_threshold_that_the_ledger_could_have(path: Path):
    code = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code")
    assert set(thresholds(code)) <= OWN.get(path.stem, set())

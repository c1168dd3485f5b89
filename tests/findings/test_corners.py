"""States of the next column, two directions, critiques and scrubbing, on networks made by hand."""

from types import SimpleNamespace
from typing import NamedTuple

import pandas as pd
import pytest
import torch
from torch import nn

from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Layout
from carry_paper.findings import (
    carry_line,
    corner_table,
    corners,
    critiques,
    line_table,
    scrubbing,
)
from carry_paper.findings.carry_line import Column, Stream, carry_columns, unit
from carry_paper.findings.corners import HIGH, LOW, NINE, STATES, Corners
from carry_train.groups import MAIN
from tests.conftest import random_model
from tests.findings.test_interchange import Logits, hand_made

TUPLES = 800
HUNDREDS, TENS = Column(0, 3, 0, 7), Column(1, 3, 1, 8)


def seeded():
    return torch.Generator().manual_seed(0)


# ---- sums


@pytest.mark.parametrize("column", [HUNDREDS, TENS, Column(2, 5, 2, 13)])
def test_states_are_those_of_the_digits_in_writing(column):
    generator = seeded()
    a, b = torch.randint(10**column.n_digits, (2, 2000), generator=generator)
    states = corners.state(column, a, b).tolist()
    for x, y, state in zip(a.tolist(), b.tolist(), states, strict=True):
        digits = [(int(s), int(t)) for s, t in zip(f"{x:05}", f"{y:05}", strict=True)]
        first, second = digits[5 - column.n_lower]
        rest = 10 ** (column.n_lower - 1)
        carried = x % rest + y % rest >= rest
        expected = "low" if first + second < 9 else "high"
        if first + second == 9:
            expected = "nine+carry" if carried else "nine"
        assert STATES[state] == expected


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("column", [HUNDREDS, TENS, Column(1, 4, 1, 9)])
def test_tuples_have_a_sum_in_each_state_and_the_same_digits_up_to_the_column(column, causal):
    layout = Layout(column.n_digits, causal)
    tuples = corners.sample_tuples(column, TUPLES, seeded(), layout)
    assert tuples.a.shape == (len(corners.states(column)), TUPLES)
    for state, a, b in zip(*tuples, strict=True):
        assert (corners.state(column, a, b) == state).all()
        assert (a + b < 10**column.n_digits).all()
    side = 10**column.n_lower
    for numbers in (tuples.a, tuples.b):
        assert (numbers // side == numbers[0] // side).all()
    if causal:
        earlier = (tuples.a + tuples.b) // (10 * side)
        assert (earlier == earlier[0]).all()


def test_own_digit_sums_are_drawn_alike_and_neighbours_are_in_one_fold():
    tuples = corners.sample_tuples(TENS, 4_000, seeded(), Layout(3))
    own = corners.own_digit_sum(TENS, tuples.a[0], tuples.b[0])
    counts = own.bincount(minlength=19)
    assert counts.min() > 120
    assert corners.fold_of(torch.arange(8)).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_shares_of_states_are_those_of_all_pairs_of_numbers():
    numbers = torch.arange(1000)
    a, b = (x.flatten() for x in torch.meshgrid(numbers, numbers, indexing="ij"))
    for column in (HUNDREDS, TENS):
        counted = corners.state(column, a, b).bincount(minlength=4) / len(a)
        for state, share in corners.state_shares(column).items():
            assert counted[state].item() == pytest.approx(share, rel=1e-5)


# ---- columns made by hand: a code of each state, and an MLP that reads a carry from it

OWN, A, B, UNWRITTEN = 0, 16, 17, 30  # coordinates of the stream
STEEP = 10.0  # of the step by which a carry is read: its derivative is not lost in rounding


class Reader(nn.Module):
    """An MLP's first half: logits of the own digit, and of the next one where a carry is read."""

    def __init__(self, carry):
        super().__init__()
        self.carry = carry

    def forward(self, x):
        own = nn.functional.one_hot(x[..., OWN].round().long() % 10, 12)
        carry = self.carry(x)[..., None]
        return 10 * (own * (1 - carry) + own.roll(1, -1) * carry + (own[..., 9:10] * carry) * FIRST)


# A carry onto a nine makes a zero, not the tenth token.
FIRST = nn.functional.one_hot(torch.tensor(0), 12) - nn.functional.one_hot(torch.tensor(10), 12)


def step(x, steep=STEEP):
    return torch.sigmoid(steep * x)


class Planted(NamedTuple):
    """Codes of the states by coordinate, and how the last MLP reads a carry."""

    codes: dict[str, dict[int, float]]
    carry: object


def carry_without_nine(x):
    return step(x[..., A] - 0.6) * step(0.3 - x[..., B])


PLANTED = {
    "two ends": Planted(
        {"low": {}, "nine": {}, "nine+carry": {A: 1}, "high": {A: 1}},
        lambda x: step(x[..., A] - 0.5),
    ),
    "three corners": Planted(
        {"low": {}, "nine": {B: 1}, "nine+carry": {A: 1}, "high": {A: 1}}, carry_without_nine
    ),
    "a nine beside the carries": Planted(
        {"low": {}, "nine": {A: 1, B: 1}, "nine+carry": {A: 1}, "high": {A: 1}},
        lambda x: step(x[..., A] - 0.6) * step(0.4 - x[..., B]),
    ),
    # The carry is at A. B holds it, too, but nothing reads B. What nothing writes would overrule A.
    "a dormant direction": Planted(
        {"low": {}, "nine": {}, "nine+carry": {A: 1, B: 2}, "high": {A: 1, B: 2}},
        lambda x: (
            step(x[..., A] - 0.5) * step(x[..., UNWRITTEN] + 0.5, 60)
            + step(0.5 - x[..., A]) * step(x[..., UNWRITTEN] - 0.5, 60)
        ),
    ),
}


def planted(planted):
    """Return a model and a column of it, whose streams are codes; own digits are in `OWN`."""
    model = Transformer(ModelConfig(d_model=32, d_ff=12)).requires_grad_(requires_grad=False)
    model.norm = nn.Identity()
    block = model.blocks[1]
    block.norm, block.up, block.down = nn.Identity(), Reader(planted.carry), Logits()
    model.unembed.weight.data[:] = 0
    model.unembed.weight.data[:, 18:30] = torch.eye(12)
    model.unembed.bias.data[:] = 0

    tuples = corners.sample_tuples(HUNDREDS, TUPLES, seeded(), Layout(3))
    own = corners.own_digit_sum(HUNDREDS, tuples.a[0], tuples.b[0])
    resid_mid = 0.001 * torch.randn(*tuples.a.shape, 32, generator=seeded())
    resid_mid[..., OWN] = own.float()
    for i, state in enumerate(tuples.of_states):
        for coordinate, value in planted.codes[STATES[state]].items():
            resid_mid[i, :, coordinate] += value
    return model, column_of(model, tuples, resid_mid)


def column_of(model, tuples, resid_mid):
    parts = {"embed": torch.zeros_like(resid_mid), "blocks.1.attn.z:0": resid_mid}
    digits = carry_line.digits_of(model, resid_mid)
    right = digits == HUNDREDS.digits(tuples.a + tuples.b)
    own = corners.own_digit_sum(HUNDREDS, tuples.a[0], tuples.b[0])
    return Corners(HUNDREDS, tuples, Stream(resid_mid, parts), digits, right, own)


@pytest.fixture(scope="module", params=PLANTED)
def measured(request):
    model, column = planted(PLANTED[request.param])
    assert column.right.all()
    return request.param, model, column, corners.fields_of(model, column, seeded())


def test_planted_networks_tell_apart(measured):
    name, _, _, fields = measured
    expected = {  # a line, the line and the nine, where the nine is on the way from low to high
        "two ends": (True, True, 0),
        "three corners": (False, True, 0),
        "a nine beside the carries": (False, True, 1),
        "a dormant direction": (True, True, 0),
    }[name]
    line, plane, place = expected
    assert corners.in_each_state(fields["line"]) is line
    assert corners.in_each_state(fields["plane"]) is plane
    assert abs(fields["place"]["nine"] - place) < 0.05
    assert abs(fields["place"]["nine+carry"] - 1) < 0.05
    if name in ("three corners", "a nine beside the carries"):
        assert fields["seconds"]["random"] < 0.5
        assert fields["seconds"]["principal"] >= corners.IN_EACH_STATE


def test_the_place_of_a_state_is_its_mean_over_both_halves_of_the_own_digit_sums():
    _, column = planted(PLANTED["two ends"])
    column.resid_mid[column.place(NINE), corners.fold_of(column.own) == 1, A] += 0.6
    assert corners.places(column)["nine"] == pytest.approx(0.3, abs=0.02)


def test_each_half_of_the_own_digit_sums_is_swapped_along_its_own_line():
    model, column = planted(PLANTED["two ends"])
    bases = torch.eye(32)[[A]], torch.eye(32)[[B]]
    for moved in corners.moved_by(model, column, bases, corners.carry_swaps(column)).values():
        assert torch.equal(moved, corners.fold_of(column.own) == 0)


def test_a_failing_line_fails_in_the_states_whose_nines_are_in_the_way(measured):
    name, _, _, fields = measured
    if name != "a nine beside the carries":
        return
    natural = {(cell["base"], cell["source"]): cell["accuracy"] for cell in fields["natural"]}
    assert natural["low", "high"] == natural["high", "low"] == 1
    assert natural["nine", "high"] < 0.1


def test_few_pairs_have_no_share():
    _, column = planted(PLANTED["two ends"])
    one_fold = column.right & (corners.fold_of(column.own) == 0)
    assert corners.can_be_fitted(column)
    assert not corners.can_be_fitted(column._replace(right=one_fold))
    few = torch.zeros_like(column.right)
    few[:, : corners.FEWEST_PAIRS - 1] = True
    moved = {(LOW, HIGH): torch.ones(TUPLES, dtype=torch.bool)}
    (cell,) = corners.cells(column._replace(right=few), moved)
    assert cell["accuracy"] is None
    assert corners.in_each_state([cell]) is None


def test_a_gradient_finds_a_line_where_means_have_none(monkeypatch):
    """The reader is linear, but the balanced means are off its direction."""
    codes = {"low": {}, "nine": {A: 3, B: 3}, "nine+carry": {A: 1}, "high": {A: 1}}

    def soft(x):
        return torch.sigmoid(8 * (x[..., A] - x[..., B] - 0.5))

    model, column = planted(Planted(codes, soft))
    fields = corners.fields_of(model, column, seeded())
    assert corners.lowest(fields["gradient"]) >= corners.IN_EACH_STATE
    assert corners.lowest(fields["natural"]) < 0.1
    assert line_table.only_by_gradient(fields)

    outcome = critiques.of_gradient_line(model, column)
    assert not critiques.is_illusion(outcome["read"])
    assert 0.2 < outcome["cosine"] < 0.9

    monkeypatch.setattr(critiques, "critiques", lambda model, of, fitted: {"fitted": fitted})
    fitted = critiques.of_gradient_line(model, column)["fitted"]
    for fold in (0, 1):
        among = corners.fold_of(column.own) != fold
        means = corners.balanced_line(column, among)
        assert torch.equal(fitted[fold][0], corners.gradient_line(model, column, among, means))


def test_a_run_that_gets_too_few_sums_right_has_a_reason():
    model, column = planted(PLANTED["two ends"])
    right = column.right.clone()
    right[column.place(NINE)] = False
    fields = corners.fields_of(model, column._replace(right=right), seeded())
    assert fields["reason"].startswith(
        "the run gets 0.00 of the sums right whose next column is nine"
    )
    assert set(fields) == {"right", "reason"}


# ---- critiques


def test_an_illusion_is_caught():
    """A line through a dormant direction and one that nothing writes moves the carry."""
    model, column = planted(PLANTED["a dormant direction"])
    direction = torch.zeros(32)
    direction[[B, UNWRITTEN]] = 1
    swaps = corners.carry_swaps(column)

    illusion = (unit(direction)[None],) * 2
    moved = corners.cells(column, corners.moved_by(model, column, illusion, swaps))
    assert corners.lowest(moved) == 1
    parts = critiques.read_space(model, column, illusion)
    assert critiques.is_illusion(parts)
    line = corners.fitted_bases(column, corners.line_basis)
    honest = critiques.read_space(model, column, line)
    assert [part["lowest"] for part in honest if part["part"] == "read"][1:] == [1, 1]
    assert not critiques.is_illusion(honest)


def test_read_space_is_what_the_logits_depend_on():
    model, column = planted(PLANTED["two ends"])
    squared = critiques.mean_squared_jacobian(model, column.resid_mid[:, :20].flatten(0, 1))
    assert squared[A, A] > 0.1
    for coordinate in (B, UNWRITTEN, 5):
        assert squared[coordinate].abs().max() == 0
    assert len(critiques.leading_axes(torch.diag(torch.tensor([90.0, 9.0, 0.9, 0.1])), 0.99)) == 2


def test_three_corners_are_values_and_the_nine_stays_with_a_same_carry(measured):
    name, model, column, _ = measured
    plane = corners.fitted_bases(column, corners.plane_basis)
    outcome = critiques.critiques(model, column, plane)
    assert corners.lowest(outcome["means"]) == 1
    assert corners.lowest(outcome["same carry"]) == 1
    assert outcome["rival"]["highest"] < 0.5
    assert set(outcome["distance"]) == {"patched", "before", "natural"}
    if name == "a dormant direction":
        assert outcome["rival"]["length"] == pytest.approx(5**-0.5, abs=0.01)
    else:
        assert outcome["distance"]["patched"] < 0.2 < outcome["distance"]["before"]
        assert outcome["margin"]["patched"] == pytest.approx(outcome["margin"]["intact"], rel=0.05)


def test_distances_are_among_sums_of_the_same_own_digits():
    """So they stay the same if each digit has another name."""
    tuples = corners.sample_tuples(TENS, TUPLES, seeded(), Layout(3))
    noise = Stream(torch.randn(4, TUPLES, 32, generator=seeded()), {})
    right = torch.ones(4, TUPLES, dtype=torch.bool)
    own = corners.own_digit_sum(TENS, tuples.a[0], tuples.b[0])
    renamed = tuples._replace(b=tuples.b + 10 * (9 - 2 * TENS.digits(tuples.b)))
    before, after = (
        critiques.distances(
            Corners(TENS, numbers, noise, right.long(), right, own), (torch.eye(32)[:1],) * 2
        )
        for numbers in (tuples, renamed)
    )
    assert before == pytest.approx(after)


# ---- scrubbing


def test_resampled_sums_have_the_same_key():
    key = torch.randint(7, (500,), generator=seeded())
    donors = scrubbing.resampled(key, seeded())
    assert (key[donors] == key).all()
    assert (donors != torch.arange(500)).double().mean() > 0.9
    # Every sum of a key is drawn as often as another: about once.
    assert donors.bincount(minlength=500).max() < 9


@pytest.fixture(scope="module")
def explained():
    by_decider = {}
    for decider in ("first", "last"):
        _, tens = carry_columns(hand_made(decider).config)
        model = hand_made(decider)
        fitted = corners.corners_of(model, tens, seeded(), 200)
        fields = scrubbing.column_losses(model, fitted, 0, seeded(), 800)
        by_decider[decider] = {name: scrubbing.recovered(fields, name) for name in fields}
    return by_decider


def test_the_algorithm_explains_a_network_that_follows_it_and_no_other(explained):
    assert explained["last"]["intact"] == 1
    assert explained["last"]["head: carry"] > 0.99
    assert explained["last"]["digit sums before the last layer"] > 0.99
    assert explained["last"]["head: wrong on purpose"] < 0.8
    # This network decides in its first layer: neither step of the hypothesis is its own.
    assert explained["first"]["head: carry"] < 0.8
    assert explained["first"]["digit sums before the last layer"] < 0.8


def test_whole_runs_are_measured_by_column():
    columns = line_table.columns_by_state(hand_made("last"), 3, 300, 300)
    assert list(columns) == ["pos7", "pos8"]
    rows = columns.values()
    assert {name for row in rows for name in row["states"]["right"]} == set(STATES)
    assert all(row["losses"]["intact"] < row["losses"]["resampled"] for row in rows)


def test_a_run_that_does_not_add_has_reasons_and_losses_without_subspaces():
    for row in line_table.columns_by_state(random_model(ModelConfig()), 3, 300, 300).values():
        assert "of the sums right" in row["states"]["reason"]
        assert "line: carry" not in row["losses"]
        assert "head: carry" in row["losses"]


def test_what_is_decided_needs_no_subspaces(monkeypatch):
    columns = line_table.columns_by_state(random_model(ModelConfig()), 3, 300, 300)
    key = {"source": "ours", "group": MAIN, "recipe": "paper", "run": 0, "digits": 3}
    rows = [{**key, "reads": reads, **fields} for reads, fields in columns.items()]
    rows.append({**key, "digits": 6, "reads": "pos7", "states": None})
    monkeypatch.setattr(line_table, "saved", lambda: pd.DataFrame(rows))
    summary = corner_table.decided(corner_table.saved())
    assert summary.reads.tolist() == ["pos7", "pos8"]
    assert summary.reason.notna().all()
    assert summary["recovered: head: carry"].notna().all()


# ---- what the ledger and the page say of stored columns


def states_of(accuracies, nine=0.5):
    """Return the stored states of a column, by the accuracies of its line's swaps."""
    cells = [
        {"base": base, "source": source, "pairs": 60, "accuracy": accuracy}
        for (base, source), accuracy in accuracies.items()
    ]
    names = ("line", "plane", "natural", "gradient")
    return {
        "reason": None,
        **dict.fromkeys(names, cells),
        "place": {"nine": nine},
        "seconds": {},
    }


@pytest.mark.usefixtures("as_a_user_has_it")
def test_a_row_of_the_ledger_says_where_its_line_fails(monkeypatch):
    hundreds = {("low", "high"): 0.4, ("nine", "high"): 0.97, ("high", "low"): 0.5}
    tens = {("low", "high"): 0.9, ("high", "nine"): 0.99}
    losses = {"intact": 0.0, "resampled": 2.0, "plane: carry, nine": 0.1}
    key = {"source": "ours", "group": MAIN, "recipe": "paper", "run": 2, "digits": 3}
    rows = [
        {**key, "reads": reads, "states": states_of(accuracies, nine), "losses": losses}
        for reads, accuracies, nine in (("pos8", tens, 0.5), ("pos7", hundreds, 0.1))
    ]
    monkeypatch.setattr(line_table, "saved", lambda: pd.DataFrame(rows))
    monkeypatch.setattr(line_table, "of_weights", lambda table, loaded: table)
    evidence = SimpleNamespace(group=lambda name: SimpleNamespace(numbers=[2]))
    (measured,) = corner_table.line(evidence).to_dict("records")
    assert measured["value"] == 0.4
    assert measured["rightmost_column"] == 0.9
    assert measured["without_sums_below_nine"] == 0.97
    (measured,) = corner_table.swaps(evidence).to_dict("records")
    assert measured["plane"] == 0.4
    assert measured["explained"] == pytest.approx(0.95)
    (run,) = corner_table.by_run(corner_table.decided(corner_table.saved())).to_dict("records")
    by_column = [run[name] for name in ("run", "columns", "line", "on_line", "nine")]
    assert by_column == [2, 2, 0.4, False, 0.1]


def critiques_of(read, not_read):
    """Return stored critiques of a column, by the lowest swaps of its read and unread parts."""
    parts = []
    for share in critiques.READ_SHARES:
        for part, lowest in (("read", read), ("not read", not_read)):
            parts.append({"share": share, "part": part, "lowest": lowest})
    cell = {"base": "low", "source": "high", "accuracy": 1.0}
    return {
        "read": parts,
        "distance": {"patched": 0.2},
        "margin": {"patched": 3.0, "intact": 4.0},
        "rival": {"highest": 0.1, "cosine": -0.5, "length": 0.25},
        "same carry": [cell],
        "means": [{**cell, "accuracy": 0.9}],
    }


def test_critiques_are_counted_where_the_swap_moves_the_carry():
    works, fails = states_of({("low", "high"): 1.0}), states_of({("low", "high"): 0.1})
    rows = []
    for states, read in ((works, 1.0), (works, None), (fails, 0.0)):
        of_means = critiques_of(read, 0.0)
        row = {"states": states, "line_critiques": of_means, "plane_critiques": of_means}
        rows.append({**row, "gradient_critiques": None})
    rows[0]["gradient_critiques"] = {**critiques_of(1.0, None), "cosine": 0.8}
    table = corner_table.critiques_in_words(pd.DataFrame(rows))
    line, by_gradient = table["difference of means"], table["line by gradient"]
    at_999 = "columns moved by the part that is read, at 99.9%"
    assert line["illusion", at_999] == "1 of 2"
    assert by_gradient["illusion", at_999] == "1 of 1"
    assert line["illusion", "by the part that is not read, at 99.9%"] == "0 of 2"
    cosine = "cosine with the difference of means"
    assert (line["illusion", cosine], by_gradient["illusion", cosine]) == ("", "0.80")
    assert set(table.xs("its cosine with the carry", level=1).iloc[0]) == {"−0.50"}
    assert line["it is no variable of a few values"].tolist() == ["2 of 2"]
    assert line["it moves more than the carry"].tolist() == ["0 of 2"]


# ---- the criteria


def summary_of(rows):
    columns = ("source", "group", "recipe", "run", "digits", "reads", "on_line", "in_plane")
    columns += ("nine", "second: random", "recovered: plane: carry, nine", "reason")
    return pd.DataFrame(rows, columns=columns)


def test_criteria_count_runs_columns_and_held_back_seeds():
    leading = [
        ("ours", MAIN, "paper", 0, 3, "pos7", False, True, 1.0, 0.1, 1.0, None),
        ("ours", MAIN, "paper", 0, 3, "pos8", True, True, 0.0, 1.0, 1.0, None),
        ("ours", MAIN, "paper", 1, 3, "pos7", False, True, 1.0, 0.99, 1.0, None),
        ("ours", MAIN, "paper", 1, 3, "pos8", False, False, 0.0, 0.1, 0.9, None),
        # A decoder, three layers, and a run that can't say do not count.
        ("ours", "decoder_" + MAIN, "paper", 0, 3, "pos7", False, False, 0, 0, 0, None),
        ("ours", "n3_s0.3_w0.2", "paper", 0, 3, "pos7", False, False, 0, 0, 0, None),
        ("author", MAIN, "paper", 0, 3, "pos7", None, None, None, None, None, "too few"),
    ]
    # In the seeds that were looked at, late runs have their nine at 0: so held-back ones should.
    quick = []
    for run in (*range(6, 10), *range(35, 40)):
        is_late = run % 2
        place = 0.1 * run / 64 + (0 if is_late else 1)
        quick.append(("ours", MAIN, "quick", run, 3, "pos7", True, True, place, 0, 1, None))
    late = pd.Series({row[3]: float(row[3] % 2) for row in quick})
    criteria = corner_table.criteria(summary_of(leading + quick), late)
    plane = random = explained = (1, 2, False)
    outcomes = [plane, random, (6, 6, True), explained]
    assert [*zip(criteria.hits, criteria.of, criteria.holds, strict=True)] == outcomes

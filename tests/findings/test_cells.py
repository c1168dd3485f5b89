"""Cells: what a run of one is, that it leaves values and no weights, and what is refused."""

from dataclasses import replace

import pytest

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.runs import load
from carry_paper.findings import cells, corner_table, line_table
from carry_train import groups
from carry_train.checkpoints import Checkpoints
from carry_train.curves import read_curves
from carry_train.precisions import REQUESTS
from tests.helpers.trainings import QUICK, Ticks

pytestmark = pytest.mark.machine
REQUEST = REQUESTS["torch-fp32"]
MAIN = "n2_s0.3_w0.2"


@pytest.fixture
def cell(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    monkeypatch.setitem(groups.RECIPES, "quick", replace(QUICK, steps=6))
    return cells.find_cell("small", "quick", steps=6)


def values(run):
    """The row of a run, but for its time."""
    table = cells.saved().set_index(["new", "run"])
    return table.loc[[run]].drop(columns="seconds").to_json()


def test_a_run_leaves_its_values_and_no_weights_and_is_made_again_to_the_same_bits(cell, data):
    assert cells.missing(cell, [3, 4], REQUEST) == [3, 4]
    assert cells.make_run(cell, 3, REQUEST)
    assert cells.missing(cell, [3, 4], REQUEST) == [4]
    assert list(data.rglob("run*")) == []
    first = values((cells.NOTHING, 3))

    # Again, with two stops on the way.
    (data / "results" / "cells.csv.gz").unlink()
    assert not cells.make_run(cell, 3, REQUEST, Ticks(1))
    assert not cells.make_run(cell, 3, REQUEST, Ticks(1))
    assert not len(cells.saved())
    assert cells.make_run(cell, 3, REQUEST)
    assert values((cells.NOTHING, 3)) == first


def test_each_stored_twin_has_a_base_that_was_made_in_the_same_way():
    table = cells.saved(ROOT / "data").fillna({"step": 0})
    place = ["group", "recipe", "steps", "epochs", "run", *cells.MADE_BY]
    bases = table[table.new == cells.NOTHING].set_index(place)
    twins = table[table.new != cells.NOTHING].set_index(place)
    assert len(bases) >= cells.N_RUNS
    assert bases.sha256.is_unique
    assert (twins.sha256 != bases.loc[twins.index, "sha256"]).all()


def test_one_thing_is_new_in_a_twin_and_its_seed_is_stored(cell, monkeypatch):
    measured = dict.fromkeys(("late", "writers", "nine", "line", "plane")) | {"columns": []}
    monkeypatch.setattr(cells, "measured", lambda *_: measured)
    for new in cells.NEW:
        assert cells.make_run(replace(cell, new=new), 3, REQUEST)
    table = cells.saved().set_index("new").sort_index()
    # After six steps a rounding unit is lost again when the weights are stored in float16.
    assert table.sha256.drop("rounding").is_unique
    names = ["split", "init", "order", "mask", "rounding"]
    base = table.loc[cells.NOTHING, names].fillna(-1)
    assert base.tolist() == [3, 3, -1, 3, -1]
    for new in cells.NEW[1:]:
        seeds = table.loc[new, names].fillna(-1)
        changed = new.split("+")
        assert seeds[changed].eq(1003).all()
        assert seeds.drop(changed).equals(base.drop(changed))
    assert set(table.steps) == {6}
    assert table.exact.between(0, 1).all()


@pytest.mark.parametrize("new", ["mask", "order", cells.CHANCE])
def test_a_fork_is_its_base_up_to_an_epoch_and_another_run_from_there(cell, monkeypatch, new):
    losses = {}

    def row(cell, path):
        curves = read_curves(path.with_suffix(".npz"), cell.group, 2)
        losses[cell.new, cell.since] = curves["train_loss"]
        return {"seeds": load(path).record["runs"][0]["seeds"]}

    rows = []
    monkeypatch.setattr(cells, "OF_FORKS", [new])
    monkeypatch.setattr(cells, "row", row)
    monkeypatch.setattr(cells, "save", rows.extend)
    base, twin, fork = (
        cells.find_cell("small", "quick", new, steps=12, since=since)
        for new, since in ((cells.NOTHING, 0), (new, 0), (new, 1))
    )
    assert cells.make_run(base, 3, REQUEST)
    assert cells.make_run(twin, 3, REQUEST)
    # With a stop before the fork, one behind it, and one on the way.
    assert not cells.make_run(fork, 3, REQUEST, Ticks(4))
    assert not cells.make_run(fork, 3, REQUEST, Ticks(2))
    assert not cells.make_run(fork, 3, REQUEST, Ticks(2))
    assert cells.make_run(fork, 3, REQUEST)
    stopped = losses[new, 1]
    assert cells.make_run(fork, 3, REQUEST)
    assert (losses[new, 1] == stopped).all()
    of_base, of_twin, of_fork = losses.values()
    assert of_fork[0] == of_base[0] != of_twin[0]
    assert len({of_base[1], of_twin[1], of_fork[1]}) == 3
    assert rows[1] == rows[2] != rows[0]


def test_a_fork_by_rounding_is_its_base_but_for_one_weight_of_each_matrix(cell):
    fork = cells.find_cell("small", "quick", cells.ROUNDING, steps=12, since=1)
    assert cells._forked(fork, 3, REQUEST, None, lambda *_: None)
    folders = fork.folder(3), fork.folder(3) / "base"
    forked, base = (Checkpoints(x, fork.group, fork.recipe).load(3) for x in folders)
    seeds = forked[1].pop("seeds")
    assert seeds == base[1].pop("seeds") | {"rounding": 1003}
    assert forked[1] == base[1]
    n_matrices = 0
    for name, values in forked[0].items():
        is_matrix = name.startswith("parameters/") and values.ndim > 1
        changed = values != base[0][name]
        assert changed.sum() == is_matrix, name
        assert (values[changed] > base[0][name][changed]).all()
        n_matrices += is_matrix
    assert n_matrices > 10


def test_a_run_by_another_step_or_on_another_processor_has_a_row_of_its_own(cell, monkeypatch):
    cells.make_run(cell, 3, REQUEST)
    assert cells.missing(cell, [3], REQUESTS["torch-bf16"]) == [3]
    own = cells.this_processor()
    monkeypatch.setattr(cells, "this_processor", lambda: "another")
    assert cells.missing(cell, [3], REQUEST) == [3]
    cells.make_run(cell, 3, REQUEST)
    assert cells.missing(cell, [3], REQUEST) == []
    table = cells.saved()
    assert sorted(table.processor) == sorted([own, "another"])
    assert cells.trained_by(table, "torch-fp32", own).run.tolist() == [3]


def test_a_run_that_was_begun_otherwise_is_refused(cell):
    assert not cells.make_run(cell, 3, REQUEST, Ticks(1))
    with pytest.raises(BadInput, match="was trained in torch-fp32, which is not"):
        cells.make_run(cell, 3, REQUESTS["torch-bf16"])


def test_a_schedule_of_another_length_is_another_cell(cell):
    long_schedule = cells.find_cell("small", "quick", steps=12)
    assert long_schedule.key != cell.key
    stopped = cells.find_cell("small", "quick", steps=12, epochs=1)
    assert stopped.key != long_schedule.key
    assert long_schedule.folder(3) != stopped.folder(3)
    cells.make_run(stopped, 3, REQUEST)
    assert cells.missing(long_schedule, [3], REQUEST) == [3]
    assert cells.missing(stopped, [3], REQUEST) == []
    assert cells.find_cell(MAIN, "minute", steps=37).steps == 37  # fewer than it has segments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pad6_finetuned500_n2_s0.3_w0.2"], "goes on from runs of pad6_n2_s0.3_w0.2, and a cell"),
        ([MAIN, "--steps", "151"], "a schedule by minute has whole segments; expected 152"),
        ([MAIN, "--epochs", "101"], "--epochs 101: expected 100 or fewer, as the cell has"),
        (
            [MAIN, "--new", "mask", "--since", "5"],
            "--since 5 needs --new mask+order or rounding, not",
        ),
        ([MAIN, "--new", "mask+order", "--since", "100"], "--since 100: expected an epoch before"),
        (["n5_s0.3_w0.2", "--precision", "fused-fp32"], "The fused step supports up to 4 layers"),
    ],
)
def test_what_is_no_cell_is_refused_in_one_line(refused, data, arguments, message):
    assert message in refused("cell", *arguments)
    assert list(data.rglob("*.csv.gz")) == []


def test_the_runs_that_were_made_are_counted(carry, data, monkeypatch):
    monkeypatch.setattr(cells, "make_run", lambda *_: True)
    _, out, _ = carry("cell", MAIN, "--runs", "200", "--precision", "torch-fp32")
    assert out.startswith("1 run made; the cell is complete in ")


@pytest.mark.slow
def test_the_leftmost_column_is_measured_as_carry_lines_does():
    """On run 0 of the main group, whose nine is where a carry is."""
    loaded = load(MAIN, recipe="paper", runs=[0])
    measured = cells.measured(loaded.model(0), 3)
    stored_rows = line_table.of_weights(line_table.saved(), loaded)
    line, corner = stored_rows.iloc[0], corner_table.decided(stored_rows).iloc[0]
    hundreds = measured["columns"][0]
    assert hundreds["reads"] == line.reads == corner.reads
    for name, stored in (
        ("late", line.late),
        ("right", line.right),
        ("nine", corner.nine),
        ("line", corner.line),
        ("plane", corner.plane),
    ):
        assert hundreds[name] == pytest.approx(stored, abs=0.002), name
    assert measured["late"] == pytest.approx(line_table.lines_of(loaded).late[0], abs=0.02)
    assert measured["nine"] == hundreds["nine"]

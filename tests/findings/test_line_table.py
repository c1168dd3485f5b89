"""The stored table of lines and nines, on networks made by hand in place of a group's runs."""

import json
from functools import partial

import pandas as pd
import pytest
import torch

from carry_core import runs
from carry_core.errors import BadInput
from carry_paper.findings import carry_line, line_table
from carry_paper.findings.evidence import Evidence
from carry_paper.schemas import rounded
from carry_train.groups import GROUPS
from tests.findings.test_interchange import hand_made

NAME = "n2_s0.3_w0.2"


class Loaded:
    """Runs 0, 3 and 4, of which the last answers wrong."""

    def __init__(self):
        self.record = {"recipe": "quick"}
        broken = hand_made("last")
        broken.unembed.weight.data[3:8] = 0
        self.by_number = {0: hand_made("last"), 3: hand_made("first"), 4: broken}
        self.weights = {run: model.state_dict() for run, model in self.by_number.items()}

    def models(self):
        return list(self.by_number.items())


@pytest.fixture(scope="module")
def planted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_table.catalogue, "load", lambda *names, **selection: Loaded())
        for module, name, count in (
            (carry_line, "column_lines", "n_profile_sums"),
            (line_table, "columns_by_state", "n_sums"),
        ):
            patch.setattr(module, name, partial(getattr(module, name), **{count: 100}))
        return line_table.measure_group("ours", NAME, count=200)


@pytest.mark.slow
def test_a_group_is_measured_stored_and_read_back(planted, data):
    assert planted[["run", "reads"]].to_numpy().tolist() == [
        [run, reads] for run in (0, 3, 4) for reads in ("pos7", "pos8")
    ]
    path = line_table.save(planted)
    table = line_table.saved()
    assert path == data / "results" / "lines.csv.gz"
    assert table.reason.isna().tolist() == [True] * 4 + [False] * 2
    assert table.late[:4].tolist() == [1, 1, 0, 0]
    for name in (*line_table.PARTS, *line_table.BY_STATES):
        for stored, measured in zip(table[name][:4], planted[name][:4], strict=True):
            assert json.dumps(stored) == json.dumps(rounded(measured, line_table.DECIMALS))
    for name in (*line_table.PARTS, "line_critiques", "plane_critiques"):
        assert table[name][4:].isna().all()
    assert all("of the sums right" in states["reason"] for states in table.states[4:])

    summary = line_table.by_run(table).set_index("run")
    assert summary.who.tolist() == ["late", "early", ""]
    assert summary.on_line.tolist() == [True, True, None]
    assert summary["columns"].tolist() == [2, 2, 0]
    assert summary.lowest[[0, 3]].tolist() == [1, 1]

    # Rows of other runs stay, those of the same runs give way.
    newer = planted[planted.run == 3].assign(up=0.5)
    line_table.save(newer)
    table = line_table.saved()
    assert table.up[:4].tolist() == [1, 1, 0.5, 0.5]
    assert len(table) == 6


def swapped(lowest):
    """Return the states of a column whose line moves the carry in this share of some swaps."""
    cell = {"base": "low", "source": "high", "pairs": 100, "accuracy": 1.0}
    return {"reason": None, "line": [cell, {**cell, "base": "nine", "accuracy": lowest}]}


def table_of(**changes):
    """Return rows of three runs of the main group, each with two columns."""
    rows = []
    for run in (0, 1, 2):
        for reads, up in (("pos7", 0.96), ("pos8", 1.0)):
            row = {
                "source": "ours",
                "group": NAME,
                "recipe": "paper",
                "run": run,
                "sha256": f"{run:064x}",
                "digits": 3,
                "reads": reads,
                "reason": None,
                "up": up,
                "down": 0.99,
                "late": 0.5,
                "shares": {"blocks.0.mlp_out": 0.5, "blocks.1.attn.z:0": 0.41},
                "states": swapped(up),
            }
            rows.append({**row, **changes.get(f"run{run}", {})})
    return pd.DataFrame(rows).astype({"reason": object})


def test_a_run_is_on_one_line_if_each_column_is_in_each_state():
    table = table_of(run1={"states": swapped(0.94), "late": 0.97}, run2={"states": None})
    summary = line_table.by_run(table)
    assert summary.on_line.tolist() == [True, False, None]
    assert summary.writers.tolist() == [1, 1, 1]
    too_few = table_of(run0={"states": {"reason": "too few"}})
    assert line_table.by_run(too_few).on_line.tolist() == [None, True, True]


def test_the_lowest_accuracy_may_be_of_either_direction():
    table = table_of(run1={"down": 0.3}, run2={"up": 0.2})
    assert line_table.by_run(table).lowest.tolist() == [0.96, 0.3, 0.2]


def test_sums_of_another_length_than_the_groups_are_left_out():
    padded = {"group": "pad6_n2_s0.3_w0.2"}
    table = table_of(run1={**padded, "digits": 6}, run2=padded)
    assert line_table.own_length(table).run.unique().tolist() == [0, 2]


def test_a_group_that_has_paper_runs_is_led_by_them():
    table = table_of(run0={"recipe": "quick"}, run1={"source": "author"}, run2={"group": "n3"})
    assert line_table.leading(table).run.unique().tolist() == [0, 1, 2]
    table = table_of(run0={"recipe": "quick"}, run1={"source": "author"})
    assert line_table.leading(table).run.unique().tolist() == [1, 2]


class OneGroup(Evidence):
    """Stands in for the evidence on three runs of the main group."""

    def __init__(self):
        super().__init__("ours")

    def group(self, name):
        weights = {run: {"weight": torch.full((2,), float(run))} for run in (0, 1, 2)}
        config = GROUPS[NAME].config
        return runs.Runs(NAME, "ours", config, (0, 1, 2), weights, {"recipe": "paper"})


def test_the_ledgers_rows_are_read_from_the_stored_lines(monkeypatch):
    digests = {run: runs.digest(p) for run, p in OneGroup().group(NAME).weights.items()}
    table = table_of(run2={"late": 0.96})
    table["sha256"] = table.run.map(digests)
    by_another_recipe = table.assign(recipe="quick", late=0.1)
    monkeypatch.setattr(line_table, "saved", lambda: pd.concat([table, by_another_recipe]))
    late = line_table.written_late(OneGroup())
    assert late.value.tolist() == [0.5, 0.5, 0.96]
    shows = [line_table.last_attention_writes(row) for row in late.to_dict("records")]
    assert shows == [False, False, True]

    # Rows of other weights than are here are none.
    table.loc[table.run == 1, "sha256"] = "0" * 64
    monkeypatch.setattr(line_table, "saved", lambda: table)
    stored = r"no carry line of run 1 is stored, with the weights that are here: run `carry lines "
    with pytest.raises(BadInput, match=stored):
        line_table.written_late(OneGroup())


def test_padded_groups_are_measured_on_both_lengths():
    assert line_table.lengths(GROUPS[NAME]) == [3]
    padded = GROUPS["pad10_primed500_n2_s0.3_w0.2"]
    assert line_table.lengths(padded) == [3, 10]
    assert line_table.default_pairs(padded) < line_table.default_pairs(GROUPS[NAME])

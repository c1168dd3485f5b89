"""The table of measurements: stored, read back, replaced; and as it is shipped."""

import math

import numpy as np
import pandas as pd
import pytest

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import catalogue, measurements
from carry_paper.ledger.measuring import FROM_CURVES, as_table
from carry_train import groups
from carry_train.files import sha256
from carry_train.groups import MAIN

RUN = {"source": "ours", "group": MAIN, "recipe": "paper", "epochs": 1000, "ships": 0}


def table(*rows: dict) -> pd.DataFrame:
    return as_table([RUN | {"quantity": "heads.staircase", "fields": {}} | row for row in rows])


def test_what_is_written_is_read_back_with_nine_digits(data):
    fields = {
        "a": np.float64(1 / 3),
        "cells": {"NC": {"pos7": 5 / 6}},
        "pair": (1, math.nan),
        "decided": True,
        "word": "head 1:0",
    }
    path = measurements.write("ours", table({"run": 2, "value": 2 / 3, "fields": fields}))
    (row,) = measurements.read("ours").to_dict("records")
    assert (row["run"], row["value"], row["group"]) == (2, 0.666666667, MAIN)
    assert row["fields"] == {
        "a": 0.333333333,
        "cells": {"NC": {"pos7": 0.833333333}},
        "pair": [1, None],
        "word": "head 1:0",
    }
    before = path.read_bytes()
    measurements.write("ours", measurements.read("ours"))
    assert path.read_bytes() == before


def test_a_value_may_be_a_list_or_missing(data):
    heads = [[13, 23], [15, 15]]
    measurements.write("ours", table({"run": 0, "value": heads}, {"run": 1, "value": math.nan}))
    assert measurements.read("ours").value.tolist() == [heads, None]
    assert not len(measurements.read("author"))


def test_new_rows_replace_those_of_the_same_run_and_quantity_and_no_others(data):
    measurements.save(table({"run": 0, "value": 0.1}, {"run": 1, "value": 0.2}))
    measurements.save(table({"run": 1, "value": 0.3}, {"run": 1, "value": 0.4, "epoch": 500}))
    stored = measurements.read("ours")
    assert stored[["run", "value"]].to_numpy().tolist() == [[0, 0.1], [1, 0.3], [1, 0.4]]


def test_a_reason_replaces_no_measurement_and_makes_room_for_one(data):
    reason = {"run": None, "recipe": None, "fields": {"reason": "It is gone."}}
    measurements.save(table(reason))
    assert len(measurements.read("ours")) == 1
    measurements.save(table({"run": 0, "value": 0.1}))
    measurements.save(table(reason))
    assert measurements.read("ours").value.tolist() == [0.1]


def test_a_value_is_not_replaced_by_none(data):
    of_weights = {"run": 0, "sha256": "a" * 64}
    path = measurements.save(table(of_weights | {"value": 0.1}))[0]
    before = path.read_bytes()
    with pytest.raises(BadInput, match="heads.staircase .* with a value, which it would lose"):
        measurements.save(table(of_weights | {"value": math.nan}))
    assert path.read_bytes() == before
    # Of other weights it may be undefined.
    measurements.save(table(of_weights | {"value": math.nan, "sha256": "b" * 64}))
    assert measurements.read("ours").value.tolist() == [None]


# ---------------------------------------------------------------- as it is shipped


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    """The rows of both sources that are of single runs."""
    tables = [measurements.read(source, ROOT / "data") for source in runs.SOURCES]
    both = pd.concat(tables)
    return both[both.run.notna()]


def test_a_row_of_ours_that_ships_is_of_the_weights_in_the_folder(shipped):
    ours = shipped[(shipped.source == "ours") & (shipped.ships == 1)]
    digests = {}
    for (group, recipe, run), rows in ours.groupby(["group", "recipe", "run"]):
        path = runs.run_path(runs.folder("ours"), group, recipe, run)
        (weights,) = runs.load(path).weights.values()
        of_curves = rows.quantity.str.startswith(FROM_CURVES)
        digests[group, run] = set(rows.sha256[~of_curves]) - {runs.digest(weights)}
        digests[group, run] |= set(rows.sha256[of_curves]) - {sha256(path.with_suffix(".npz"))}
    assert len(digests) > 80
    assert {key: other for key, other in digests.items() if other} == {}


def test_each_run_that_leads_was_measured(shipped):
    for name in groups.GROUPS:
        measured = shipped[(shipped.source == "ours") & (shipped.group == name)]
        assert set(catalogue.find(name)) <= set(measured.run), name


def test_a_quantity_has_the_same_fields_in_each_run_of_a_group(shipped):
    """Rows that were copied from elsewhere, and not measured, have fewer."""
    measured = shipped[~shipped.fields.map(measurements.is_reason)]
    names = measured.fields.map(lambda fields: ", ".join(sorted(fields or {})))
    key = ["source", "quantity", "group", "recipe"]
    variants = measured.assign(names=names).groupby(key, dropna=False).names.nunique()
    assert variants[variants > 1].index.to_list() == []


def test_no_reason_names_a_folder_of_some_machine():
    reasons = []
    for source in runs.SOURCES:
        fields = measurements.read(source, ROOT / "data").fields
        reasons += [x[measurements.REASON] for x in fields if measurements.is_reason(x)]
    assert len(reasons) > 5
    assert [reason for reason in reasons if " /" in f" {reason}"] == []

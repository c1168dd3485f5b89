"""The stored rows of runs by both recipes: measured on small samples, stored, read back."""

import gzip
import json
import math

import numpy as np
import pandas as pd
import pytest

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.files import ROOT, sha256
from carry_paper import catalogue
from carry_paper.checksums import read_checksums
from carry_paper.findings import heads, interchange_maps, survey, typology
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import recipes, registry, seeds
from carry_train.groups import MAIN

OTHER = "n1_s0.3_w0.2"
IDS = ("tab1/final_mlp/C@1/accuracy/pos7", "finding/staircase", "beyond/final_mlp")


@pytest.fixture
def few(monkeypatch, data):
    """One run of the main group by each recipe, three rows of the ledger, few sums."""
    for recipe in ("paper", "quick"):
        place = data / "runs" / MAIN / recipe
        place.mkdir(parents=True)
        for suffix in (".safetensors", ".npz"):
            name = f"run1{suffix}"
            (place / name).symlink_to(ROOT / "data" / "runs" / MAIN / recipe / name)
    monkeypatch.setattr(registry, "ROWS", {name: registry.ROWS[name] for name in IDS})
    monkeypatch.setattr(recipes, "SUMS", 100)
    monkeypatch.setattr(survey, "SAMPLE", 500)
    monkeypatch.setattr(measure, "DECISION_SUMS", 500)
    monkeypatch.setattr(measure, "DECISION_PAIRS", 25)
    monkeypatch.setattr(interchange_maps, "default_pairs", lambda name: 200)
    monkeypatch.setattr(typology, "COUNT", 50)
    recipes.drawn_sums.cache_clear()
    yield
    recipes.drawn_sums.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_command_measures_a_run_of_each_recipe_and_saves_it(carry, data):
    file = data / "rows.json"
    code, out, _ = carry("recipes", "--save", "--json", str(file))
    assert (code, out) == (0, f"{MAIN}: 3 rows of the ledger, runs: 1 by paper, 1 by quick\n")
    table = recipes.saved()
    assert len(table) == len(json.loads(file.read_text())) == 6
    assert set(table.sums) == {100}
    values = table.set_index(["recipe", "id"])
    for recipe in ("paper", "quick"):
        loaded = catalogue.load(MAIN, recipe=recipe)
        model = loaded.model(1)
        row = values.loc[(recipe, "finding/staircase")]
        assert row.sha256 == runs.digest(loaded.weights[1])
        staircase = heads.staircase(model)
        assert row.value == pytest.approx(staircase["value"], abs=1e-5)
        assert row.shows is heads.has_staircase(staircase)
        # Its own map is measured: no map is stored here, and the other recipe's would be another.
        own_map = typology.who_decides(seeds.carry_swaps(model, 200).assign(run=1))
        assert values.value[recipe, "beyond/final_mlp"] == pytest.approx(
            own_map["final MLP"][1], abs=1e-5
        )
        cell = values.loc[(recipe, IDS[0])]
        assert 0 <= cell.value <= 1
        assert cell.shows is None


@pytest.mark.slow
def test_the_command_refuses_bad_input_in_one_line(few, refused, data):
    assert "Unknown group 'n9'" in refused("recipes", "n9")
    assert f"{OTHER} has no runs by the recipe paper" in refused("recipes", OTHER)
    path = recipes.path_of()
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"group\nours\n"))
    assert "recipes.csv.gz" in refused("recipes", MAIN, "--save")
    for recipe in ("paper", "quick"):
        (data / "runs" / MAIN / recipe / "run1.safetensors").unlink()
    assert "No group in" in refused("recipes")


def test_a_row_that_cannot_be_measured_is_reported_and_left_out(monkeypatch):
    reported = []
    measuring = recipes.Measuring(reported.append)

    def refuse(evidence: Evidence):
        raise BadInput("It needs the paper's epochs.")

    def fail(evidence: Evidence):
        return 1 / 0

    for function, reason in ((refuse, "It needs the paper's"), (fail, "ZeroDivisionError")):
        entry = registry.Entry(function, (MAIN,))
        assert measuring._measured("finding/x", "quick", entry) == {}
        assert reported[-1].startswith("finding/x, quick: not measured.")
        assert reason in reported[-1]


# ---- the stored table


def stored_rows(run=0, recipe="quick", value=0.25, digest="a"):
    """Return two rows of a run: a number and a finding."""
    row = {"group": MAIN, "recipe": recipe, "run": run, "sha256": digest * 64, "sums": 100}
    fields = {"share": 0.5, "rows": [0.1, None], "resolution": None}
    return pd.DataFrame(
        [
            {**row, "id": IDS[0], "value": value, "fields": None},
            {**row, "id": "beyond/final_mlp", "value": value, "fields": fields},
        ]
    ).astype({"fields": object})


def test_rows_of_other_runs_stay_and_those_of_the_same_run_give_way(data):
    recipes.save(pd.concat([stored_rows(0), stored_rows(1), stored_rows(0, "paper")]))
    # Its weights are others by now, and one row is not measured any more.
    newer = stored_rows(1, value=0.75, digest="b").iloc[1:]
    path = recipes.save(newer)
    assert path == data / "results" / "recipes.csv.gz"
    assert read_checksums()["results/recipes.csv.gz"] == sha256(path)
    table = recipes.saved()
    assert table.groupby(["recipe", "run"]).value.agg(list).to_dict() == {
        ("paper", 0): [0.25, 0.25],
        ("quick", 0): [0.25, 0.25],
        ("quick", 1): [0.75],
    }
    assert table.sha256[table.run == 1].tolist() == ["b" * 64]
    fields = table.fields[table.id == "beyond/final_mlp"].iloc[0]
    assert fields == {"share": 0.5, "rows": [0.1, None], "resolution": None}
    # There are no weights here, and none are needed.
    assert not (data / "runs").exists()


def test_what_a_rule_decides_is_derived_when_the_table_is_read(data, monkeypatch):
    rows = pd.concat([stored_rows(0, value=0.75), stored_rows(1, value=0.85)])
    recipes.save(rows)
    assert "shows" not in pd.read_csv(recipes.path_of())
    shows = recipes.saved().set_index(["run", "id"]).shows
    assert shows[0, "beyond/final_mlp"] is False
    assert shows[1, "beyond/final_mlp"] is True
    assert shows[0, IDS[0]] is None

    gone = {name: entry for name, entry in registry.ROWS.items() if name != "beyond/final_mlp"}
    monkeypatch.setattr(registry, "ROWS", gone)
    assert set(recipes.saved().shows) == {None}


def test_a_rule_that_reads_a_field_that_is_not_stored_says_so():
    rows = stored_rows().iloc[1:]
    with pytest.raises(BadInput, match=r"lacks 'last_head_passes_half' of finding/strong"):
        recipes.decided(rows.assign(id="finding/strong_decay_transition"))


def test_fields_are_stored_without_what_is_decided():
    fields = {"a": np.float64(0.1234567), "b": True, "c": math.nan, "d": (1, math.nan), "e": False}
    assert recipes.stored_fields(fields) == {"a": 0.123457, "c": None, "d": [1, None]}

"""Runs of many seeds: the query, planted shares, intervals and tests; and the shipped rows."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import catalogue, measurements
from carry_paper.findings import heads, interchange, run_measures, typology
from carry_paper.ledger import kinds_of_run, registry
from carry_paper.ledger.measuring import as_table
from carry_train.groups import MAIN

N_PAIRS = 20  # where a test swaps parts


def of_words(**counts):
    return pd.Series([word.replace("_", " ") for word, n in counts.items() for _ in range(n)])


def test_shares_have_the_exact_interval():
    shares = kinds_of_run.shares(of_words(late=10))
    assert [*shares.index] == ["late", "shared", "early", "no line"]
    assert shares.runs.tolist() == [10, 0, 0, 0]
    # Clopper and Pearson, in closed form
    assert shares.low.tolist() == pytest.approx([0.025**0.1, 0, 0, 0])
    assert shares.high.tolist() == pytest.approx([1, *[1 - 0.025**0.1] * 3])


def test_runs_are_joined_with_their_lines():
    rows = pd.DataFrame({"source": "ours", "recipe": "quick", "run": [7, 6, 9, 8]})
    lines = pd.DataFrame(
        {
            "source": ["ours", "ours", "author", "ours", "ours"],
            "group": [MAIN, MAIN, MAIN, "n3_s0.3_w0.2", MAIN],
            "recipe": ["quick", "quick", "paper", "quick", "quick"],
            "run": [6, 7, 9, 9, 8],
            "who": ["late", "shared", "late", "early", ""],
            "late": [1.0, 0.5, 1.0, 0.0, np.nan],
            "writers": [1, 2, 3, 4, 0],
        }
    )
    joined = kinds_of_run.with_lines(rows, lines)
    assert joined.run.tolist() == [7, 6, 9, 8]
    # Run 9 has no line of this group and recipe; run 8 got too few pairs right.
    assert joined.who.tolist() == ["shared", "late", "no line", "no line"]
    assert joined.late[:2].tolist() == [0.5, 1.0]
    assert joined.writers[:2].tolist() == [2, 1]
    assert joined[["late", "writers"]][2:].isna().all(axis=None)


def test_the_exact_test_is_fisher_s_and_its_extension_to_more_sorts():
    for table in ([[6, 0], [3, 9]], [[2, 4], [11, 1]], [[3, 3], [6, 6]]):
        assert kinds_of_run.exact_test(table[0], np.sum(table, 0).tolist()) == pytest.approx(
            stats.fisher_exact(table).pvalue
        )
    # of 15 draws of two, the three alike
    assert kinds_of_run.exact_test((2, 0, 0), (2, 2, 2)) == pytest.approx(3 / 15)
    assert kinds_of_run.exact_test((1, 1, 0), (2, 2, 2)) == pytest.approx(1)
    judged = of_words(late=20, shared=20)
    assert kinds_of_run.likely_draw(of_words(shared=3, late=3), judged) == pytest.approx(1)
    assert kinds_of_run.likely_draw(of_words(no_line=6), of_words(late=40)) < 1e-6


def test_findings_and_measures_are_judged_by_word():
    rows = pd.DataFrame({"who": of_words(late=9, shared=9, early=2)})
    is_late = rows.who == "late"
    shows = {
        "always": True,
        "never": False,
        "of late": is_late | (rows.who == "early"),
        "mixed": ~is_late | (rows.index % 2 == 0),
    }
    shows["not measured"] = np.nan
    rows = rows.assign(**{f"{name} shows": x for name, x in shows.items()})
    rows = rows.assign(late=1 - rows.index / 20, apart=-(rows.index.to_numpy() ** 3.0), alike=1.0)
    rows = rows.assign(back=rows.index.to_numpy() * 1.0)
    rows.loc[0, "back"] = np.nan
    findings, medians = kinds_of_run.by_word(rows, ["apart", "alike", "back"])
    # two are too few to count
    assert findings.loc["of late", ["late", "shared", "early"]].tolist() == [9, 0, 2]
    assert findings.holds.to_dict() == {
        "always": "every",
        "never": "none",
        "of late": "some",
        "mixed": "some",
    }
    assert (findings.p < kinds_of_run.SIGNIFICANCE).to_dict() == dict.fromkeys(
        findings.index, False
    ) | {"of late": True}
    assert medians.loc["apart", ["late", "shared"]].tolist() == [-(4.0**3), -(13.0**3)]
    assert medians.rho[["apart", "back"]].tolist() == pytest.approx([1, -1])
    assert np.isnan(medians.rho["alike"])
    assert medians.p["apart"] < kinds_of_run.SIGNIFICANCE < medians.p["alike"] <= 1


def test_only_new_runs_by_one_recipe_are_judged():
    keys = product(("ours", "author"), ("paper", "quick"), (5, 6, 31))
    table = kinds_of_run.judged(pd.DataFrame(keys, columns=kinds_of_run.RUN))
    assert table.to_numpy().tolist() == [["ours", "quick", 6], ["ours", "quick", 31]]


def test_a_part_has_settled_when_it_does_what_it_does_at_the_end():
    epochs = pd.DataFrame({"run": 3, "epoch": [60, 1, 10, 5], "head": [1, 1, 1, 0]})
    never, late, early, again = (
        (0.1, 0, 0.79, 0),
        (0.8, np.nan, 0, 0),
        (1, 0.9, 0.8, 0.9),
        (0.9, 0.9, 0.9, 0.2),
    )
    rows = epochs.assign(
        **dict(
            zip(run_measures.PARTS, (early, never, late, early, again, late, early), strict=True)
        )
    )
    settled = run_measures.settled(rows).loc[3]
    # at epoch 5 it was the other head
    assert settled.fillna(-1).tolist() == [10, -1, 60, 1, 10, 60, 1]


# ---- the query


def stored(run, quantity, value, fields=None, **more):
    """Return a row of the table of measurements."""
    about = {"source": "ours", "group": MAIN, "recipe": "quick", "run": run, "sha256": "a" * 64}
    measured = {"quantity": quantity, "value": value, "fields": fields or {}, "ships": 0}
    return about | measured | more


def board(intact):
    return {"intact": intact, "without_random_neurons": [0.14]}


def test_what_a_run_shows_is_decided_when_the_table_is_read(data, monkeypatch):
    rows = []
    for run, staircase, intact in ((6, 0.45, 0.1), (7, 0.55, 0.2)):
        rows.append(stored(run, "heads.staircase", staircase))
        rows.append(stored(run, "neurons.checkerboard", 0.15, board(intact)))
    # It is not of a run of this group; and that of no known weights is left out.
    rows.append(stored(8, "heads.staircase", 0.9, group="n3_s0.3_w0.2"))
    rows.append(stored(9, "heads.staircase", 0.9, sha256=None))
    measurements.save(as_table(rows))
    table = kinds_of_run.table()
    assert table.run.tolist() == [6, 7]
    assert table["staircase shows"].tolist() == [False, True]
    assert table["checkerboard shows"].tolist() == [True, False]
    assert "kink shows" not in table  # it was not measured

    entry = registry.ROWS["finding/staircase"]
    lower = replace(entry, rule=partial(heads.has_staircase, bar=0.4))
    monkeypatch.setitem(registry.ROWS, "finding/staircase", lower)
    assert kinds_of_run.table()["staircase shows"].tolist() == [True, True]

    measurements.save(as_table([stored(6, "neurons.checkerboard", 0.15)]))
    with pytest.raises(BadInput, match="lacks 'intact', which its rule reads"):
        kinds_of_run.table()


def test_snapshots_are_listed_one_by_one(data):
    lists = {name: [0.1, None, 0.3] for name in run_measures.PARTS}
    fields = {"epoch": [1, 5, 60], "head": [0, None, 1], **lists}
    measurements.save(as_table([stored(3, "run_measures.on_the_way", 2, fields)]))
    way = kinds_of_run.on_the_way()
    assert way[["run", "epoch"]].to_numpy().tolist() == [[3, 1], [3, 5], [3, 60]]
    assert way["one head"].isna().tolist() == [False, True, False]
    assert run_measures.settled(way).index.tolist() == [3]


@pytest.fixture(scope="module")
def shipped():
    return kinds_of_run.table(ROOT / "data")


def test_every_run_by_quick_is_in_the_shipped_table(shipped):
    quick = shipped[(shipped.source == "ours") & (shipped.recipe == "quick")]
    assert set(quick.run) == set(catalogue.find(MAIN, recipe="quick", runs=range(1000)))
    assert len(kinds_of_run.judged(shipped)) == 58
    assert quick[["one head", "exact match", "staircase", "learned"]].notna().all(axis=None)


# ---- measuring


@pytest.mark.slow
def test_parts_are_what_the_map_says(monkeypatch):
    monkeypatch.setattr(run_measures.interchange_maps, "PAIRS", N_PAIRS)
    loaded = catalogue.load(MAIN, recipe="quick", runs=[2])
    counts = interchange.PairCounts(N_PAIRS, N_PAIRS)

    def parts(model):
        return typology.who_decides(interchange.sweep(model, counts, own=True).assign(run=0)).loc[0]

    expected = parts(loaded.model(2)).to_dict()
    measured = run_measures.deciding_parts(loaded.model(2))
    assert measured == pytest.approx({"value": expected.pop("one head"), **expected})

    with_snapshots = replace(loaded, snapshots=(83, 250))
    monkeypatch.setattr(catalogue, "load", lambda *arguments, **options: with_snapshots)
    monkeypatch.setattr(typology, "COUNT", N_PAIRS)
    way = run_measures.snapshots(with_snapshots, 2).set_index("epoch")
    assert set(way.index) == {5, 15, 60}  # 83 and 250 of the paper's epochs, and the end
    for epoch, model in ((60, loaded.model(2)), (5, loaded.model(2, 83))):
        for name, value in parts(model).items():
            if name in way:
                assert way.loc[epoch, name] == pytest.approx(value, abs=1e-5)

"""Tables of many seeds, planted with known shares, intervals and tests; and the command."""

import gzip
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.files import ROOT, sha256
from carry_paper import catalogue
from carry_paper.checksums import read_checksums
from carry_paper.findings import heads, interchange, survey, typology
from carry_paper.ledger import registry, seeds
from carry_paper.ledger.registry import ROWS
from carry_train.groups import MAIN

N_PAIRS = 60  # where a test swaps parts


def of_words(**counts):
    return pd.Series([word.replace("_", " ") for word, n in counts.items() for _ in range(n)])


def test_shares_have_the_exact_interval():
    shares = seeds.shares(of_words(late=10))
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
    joined = seeds.with_lines(rows, lines)
    assert joined.run.tolist() == [7, 6, 9, 8]
    # Run 9 has no line of this group and recipe; run 8 got too few pairs right.
    assert joined.who.tolist() == ["shared", "late", "no line", "no line"]
    assert joined.late[:2].tolist() == [0.5, 1.0]
    assert joined.writers[:2].tolist() == [2, 1]
    assert joined[["late", "writers"]][2:].isna().all(axis=None)


def test_the_exact_test_is_fisher_s_and_its_extension_to_more_sorts():
    for table in ([[6, 0], [3, 9]], [[2, 4], [11, 1]], [[3, 3], [6, 6]]):
        assert seeds.exact_test(table[0], np.sum(table, 0).tolist()) == pytest.approx(
            stats.fisher_exact(table).pvalue
        )
    # of 15 draws of two, the three alike
    assert seeds.exact_test((2, 0, 0), (2, 2, 2)) == pytest.approx(3 / 15)
    assert seeds.exact_test((1, 1, 0), (2, 2, 2)) == pytest.approx(1)
    judged = of_words(late=20, shared=20)
    assert seeds.likely_draw(of_words(shared=3, late=3), judged) == pytest.approx(1)
    assert seeds.likely_draw(of_words(no_line=6), of_words(late=40)) < 1e-6


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
    findings, medians = seeds.by_word(rows, ["apart", "alike", "back"])
    # two are too few to count
    assert findings.loc["of late", ["late", "shared", "early"]].tolist() == [9, 0, 2]
    assert findings.holds.to_dict() == {
        "always": "every",
        "never": "none",
        "of late": "some",
        "mixed": "some",
    }
    assert (findings.p < seeds.SIGNIFICANCE).to_dict() == dict.fromkeys(findings.index, False) | {
        "of late": True
    }
    assert medians.loc["apart", ["late", "shared"]].tolist() == [-(4.0**3), -(13.0**3)]
    assert medians.rho[["apart", "back"]].tolist() == pytest.approx([1, -1])
    assert np.isnan(medians.rho["alike"])
    assert medians.p["apart"] < seeds.SIGNIFICANCE < medians.p["alike"] <= 1


def test_only_new_runs_by_one_recipe_are_judged():
    keys = product(("ours", "author"), ("paper", "quick"), (5, 6, 31), (10, np.nan))
    table = seeds.judged(pd.DataFrame(keys, columns=seeds.KEY))
    assert table[["source", "recipe", "run"]].to_numpy().tolist() == [
        ["ours", "quick", 6],
        ["ours", "quick", 31],
    ]
    assert table.epoch.isna().all()


def test_a_part_has_settled_when_it_does_what_it_does_at_the_end():
    epochs = pd.DataFrame({"run": 3, "epoch": [60, 1, 10, 5], "head": [1, 1, 1, 0]})
    never, late, early, again = (
        (0.1, 0, 0.79, 0),
        (0.8, np.nan, 0, 0),
        (1, 0.9, 0.8, 0.9),
        (0.9, 0.9, 0.9, 0.2),
    )
    rows = epochs.assign(
        **dict(zip(seeds.PARTS, (early, never, late, early, again, late, early), strict=True))
    )
    settled = seeds.settled(rows).loc[3]
    # at epoch 5 it was the other head
    assert settled.fillna(-1).tolist() == [10, -1, 60, 1, 10, 60, 1]


@pytest.fixture
def few(monkeypatch, data):
    """The main group's runs by `quick`, few sums, two snapshots, two findings."""
    (data / "runs" / MAIN).mkdir(parents=True)
    (data / "runs" / MAIN / "quick").symlink_to(ROOT / "data" / "runs" / MAIN / "quick")
    row_ids = ("finding/staircase", "finding/decision_head")
    monkeypatch.setattr(registry, "ROWS", {name: registry.ROWS[name] for name in row_ids})
    monkeypatch.setattr(seeds, "carry_swaps", partial(seeds.carry_swaps, count=N_PAIRS))
    monkeypatch.setattr(seeds, "on_the_way", partial(seeds.on_the_way, count=N_PAIRS))
    monkeypatch.setattr(seeds, "DRAWN", 100)
    monkeypatch.setattr(survey, "SAMPLE", 300)
    monkeypatch.setattr(measure, "DECISION_SUMS", 500)
    monkeypatch.setattr(measure, "DECISION_PAIRS", 25)
    load = catalogue.load

    def with_two_snapshots(*arguments, **options):
        loaded = load(*arguments, **options)
        return replace(loaded, snapshots=(83, 250))

    monkeypatch.setattr(seeds.catalogue, "load", with_two_snapshots)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_command_writes_what_the_maps_say_and_keeps_other_rows(carry, data):
    parts = dict.fromkeys(("one head", "heads together", "earlier"), 0.1)
    stored_before = pd.DataFrame(
        {"source": ["author", "ours"], "recipe": ["paper", "quick"], "run": 2, **parts}
    )
    seeds.save(stored_before.assign(epoch=np.nan, fields=[{}, {}]))
    assert carry("seeds", "--source", "ours", "--runs", "2", "--save")[0] == 0
    stored = seeds.saved()
    author, ours = (row for _, row in stored[stored.epoch.isna()].iterrows())
    assert author[stored_before.columns].tolist() == stored_before.iloc[0].tolist()
    loaded = catalogue.load(MAIN, recipe="quick", runs=[2])
    counts = interchange.PairCounts(N_PAIRS, N_PAIRS)
    expected = typology.who_decides(
        interchange.sweep(loaded.model(2), counts, own=True).assign(run=2)
    ).loc[2]
    assert ours[[*expected.index]].to_dict() == pytest.approx(expected.to_dict(), abs=1e-5)
    assert ours["exact match"] > 0.99
    assert ours["staircase shows"]
    assert ours.fields["decision_head"]["decision_head"] == f"head 1:{ours['zero ablation']:.0f}"
    snapshots = stored[stored.epoch.notna()].set_index("epoch")
    assert set(snapshots.index) == {5, 15, 60}  # 83 and 250 of the paper's epochs, and the end
    assert snapshots.loc[60, [*expected.index]].to_dict() == pytest.approx(
        expected.to_dict(), abs=1e-5
    )
    early = typology.who_decides(
        interchange.sweep(loaded.model(2, 83), counts, own=True).assign(run=2)
    ).loc[2]
    assert snapshots.loc[5, [*early.index]].to_dict() == pytest.approx(early.to_dict(), abs=1e-5)
    assert read_checksums()["results/seeds.csv.gz"] == sha256(seeds.path_of())
    header, *_ = gzip.decompress(seeds.path_of().read_bytes()).decode().splitlines()
    assert [name for name in header.split(",") if name.endswith("shows")] == []
    before = seeds.path_of().read_bytes()
    seeds.save(seeds.saved())
    assert seeds.path_of().read_bytes() == before


def test_what_a_run_shows_is_decided_when_the_table_is_read(data, monkeypatch):
    measured = {"staircase": [0.45, 0.55], "checkerboard": 0.15}
    rows = pd.DataFrame(
        {"source": "ours", "recipe": "quick", "run": [6, 7], "epoch": np.nan, **measured}
    )
    boards = []
    for intact in (0.1, 0.2):
        boards.append({"intact": intact, "without_random_neurons": [0.14], "beyond": True})
    seeds.save(rows.assign(fields=[{"checkerboard": board} for board in boards]))
    stored = seeds.saved()
    assert stored["staircase shows"].tolist() == [False, True]
    assert stored["checkerboard shows"].tolist() == [True, False]
    assert stored["kink shows"].isna().all()  # it was not measured
    # a field that a rule decides is left out
    assert stored.fields[0] == {"checkerboard": {"intact": 0.1, "without_random_neurons": [0.14]}}
    entry = registry.ROWS["finding/staircase"]
    lower = replace(entry, rule=partial(heads.has_staircase, attention=0.4))
    monkeypatch.setitem(registry.ROWS, "finding/staircase", lower)
    again = seeds.saved()
    assert again["staircase shows"].tolist() == [True, True]
    seeds.save(
        rows.drop(columns="checkerboard").assign(carry_axis=0.9, pentagon=0.9, fields=[{}, {}])
    )
    with pytest.raises(
        BadInput, match="lacks what the rule of pentagon asks for: run `make seeds`"
    ):
        seeds.saved()


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_findings_under_two_ablations_and_by_interchange_are_measured_per_run(monkeypatch):
    findings_asked = {"finding/joint_ablation": heads.adds_without_carrying}
    findings_asked["finding/own_sum"] = typology.others_bring_own_sum
    monkeypatch.setattr(registry, "ROWS", {name: ROWS[name] for name in findings_asked})
    monkeypatch.setattr(typology, "COUNT", N_PAIRS)
    monkeypatch.setattr(seeds, "on_the_way", lambda loaded, run: pd.DataFrame())
    row = seeds.measured("ours", "quick", [2]).set_index("epoch").loc[np.nan]
    for name, rule in findings_asked.items():
        name = name.removeprefix("finding/")
        assert 0 <= row[name] <= 1
        assert row[f"{name} shows"] == rule({"value": row[name]})
    assert row.fields["joint_ablation"]["without_the_MLP_alone"] > 0.9
    assert row["own_sum"] + row.fields["own_sum"]["moved"] <= 1


def test_each_finding_about_the_main_group_has_a_rule():
    assert [name for name, entry in seeds.findings().items() if entry.rule is None] == []


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--runs", "0,99"), f"No weights of {MAIN} runs 99 from ours"),
        (("--runs", ""), "--runs : expected run numbers"),
        (("--runs", "9-6"), "--runs 9-6: expected run numbers such as 0-5"),
        (
            ("--recipe", "slow"),
            "Invalid value for '--recipe': 'slow' is not one of 'paper', 'quick'",
        ),
    ],
)
def test_bad_input_is_refused(refused, arguments, complaint):
    assert complaint in refused("seeds", "--source", "ours", *arguments, "--save")
    assert not seeds.path_of().exists()


def test_snapshots_do_not_stay_beside_other_weights(data):
    parts = dict.fromkeys(("one head", "heads together", "earlier"), 0.1) | {"fields": np.nan}
    rows = pd.DataFrame(
        {"source": "ours", "recipe": "quick", "run": [2, 2, 3], "epoch": [np.nan, 5, 60], **parts}
    )
    before = seeds.save(rows).read_bytes()
    with pytest.raises(BadInput, match="has run 2 at epoch 5, of which the weights are missing"):
        seeds.save(rows[rows.epoch.isna()])
    assert seeds.path_of().read_bytes() == before
    seeds.save(rows[rows.run == 2])


@pytest.mark.usefixtures("few")
def test_a_damaged_table_is_noticed_before_anything_is_computed(refused, monkeypatch):
    monkeypatch.setattr(seeds, "measured", None)
    seeds.path_of().parent.mkdir()
    seeds.path_of().write_bytes(b"\x1f\x8b\x08damaged")
    assert "delete it and run `make seeds`" in refused("seeds", "--source", "ours", "--save")

"""Tables of many seeds, planted with known shares, intervals and tests; and the command."""

import gzip
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import ROOT, sha256
from carry_core.groups import MAIN
from carry_paper.checksums import read_checksums
from carry_paper.findings import heads, interchange, survey, typology
from carry_paper.ledger import registry, seeds
from carry_paper.ledger.registry import ROWS


def of_kinds(**counts):
    return pd.Series([kind.replace("_", " ") for kind, n in counts.items() for _ in range(n)])


def test_shares_have_the_exact_interval():
    shares = seeds.shares(of_kinds(one_head=10))
    assert [*shares.index] == [*typology.KINDS]
    assert shares.runs.tolist() == [10, 0, 0, 0]
    # Clopper and Pearson, in closed form
    assert shares.low.tolist() == pytest.approx([0.025**0.1, 0, 0, 0])
    assert shares.high.tolist() == pytest.approx([1, *[1 - 0.025**0.1] * 3])


def test_the_exact_test_is_fisher_s_and_its_extension_to_more_kinds():
    for table in ([[6, 0], [3, 9]], [[2, 4], [11, 1]], [[3, 3], [6, 6]]):
        assert seeds.exact_test(table[0], np.sum(table, 0).tolist()) == pytest.approx(
            stats.fisher_exact(table).pvalue
        )
    # of 15 draws of two, the three alike
    assert seeds.exact_test((2, 0, 0), (2, 2, 2)) == pytest.approx(3 / 15)
    assert seeds.exact_test((1, 1, 0), (2, 2, 2)) == pytest.approx(1)
    assert seeds.likely_draw(
        of_kinds(split=3, one_head=3), of_kinds(one_head=20, split=20)
    ) == pytest.approx(1)
    assert seeds.likely_draw(of_kinds(split=6), of_kinds(one_head=40)) < 1e-6


def test_power_is_that_of_all_draws():
    power = seeds.rejections(n_main=13, n_judged=20)
    rejected = [
        stats.fisher_exact([[k, 6 - k], [13, 7]]).pvalue < seeds.SIGNIFICANCE for k in range(7)
    ]
    assert 0 < sum(rejected) < 7
    for share in (0.0, 0.1, 0.65):
        samples = [
            (x, np.prod([share if success else 1 - share for success in x]))
            for x in product((0, 1), repeat=6)
        ]
        assert power[share] == pytest.approx(sum(p for x, p in samples if rejected[sum(x)]))


def test_findings_and_measures_are_judged_by_kind():
    rows = pd.DataFrame({"kind": of_kinds(one_head=9, split=9, earlier=2)})
    is_one_head = rows.kind == "one head"
    shows = {
        "always": True,
        "never": False,
        "of one head": is_one_head | (rows.kind == "earlier"),
        "mixed": ~is_one_head | (rows.index % 2 == 0),
    }
    shows["not measured"] = np.nan
    rows = rows.assign(**{f"{name} shows": x for name, x in shows.items()})
    rows = rows.assign(apart=np.where(is_one_head, 1.0, 2.0) + rows.index / 100, alike=1.0)
    findings, medians = seeds.by_kind(rows, ["apart", "alike"])
    # two are too few to count
    assert findings.loc["of one head", [*typology.KINDS][::2]].tolist() == [9, 2]
    assert findings.holds.to_dict() == {
        "always": "every",
        "never": "none",
        "of one head": "some",
        "mixed": "some",
    }
    assert (findings.p < seeds.SIGNIFICANCE).to_dict() == dict.fromkeys(findings.index, False) | {
        "of one head": True
    }
    assert medians.loc["apart", ["one head", "split"]].tolist() == pytest.approx([1.04, 2.13])
    assert medians.p["apart"] < seeds.SIGNIFICANCE < medians.p["alike"]


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
    """The main group's runs by `quick`, few sums, two findings."""
    (data / "runs" / MAIN).mkdir(parents=True)
    (data / "runs" / MAIN / "quick").symlink_to(ROOT / "data" / "runs" / MAIN / "quick")
    row_ids = ("finding/staircase", "finding/decision_head")
    monkeypatch.setattr(registry, "ROWS", {name: registry.ROWS[name] for name in row_ids})
    monkeypatch.setattr(seeds, "carry_swaps", partial(seeds.carry_swaps, count=200))
    monkeypatch.setattr(seeds, "on_the_way", partial(seeds.on_the_way, count=200))
    monkeypatch.setattr(seeds, "DRAWN", 100)
    monkeypatch.setattr(survey, "SAMPLE", 300)


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
    assert author.kind == "split"
    loaded = runs.load(MAIN, recipe="quick", runs=[2])
    expected = typology.who_decides(
        interchange.sweep(loaded.model(2), interchange.PairCounts(200, 200), own=True).assign(run=2)
    ).loc[2]
    assert ours[[*expected.index]].to_dict() == pytest.approx(expected.to_dict(), abs=1e-5)
    assert ours["exact match"] > 0.99
    assert ours["staircase shows"]
    assert ours.fields["decision_head"]["decision_head"] == f"head 1:{ours['zero ablation']:.0f}"
    snapshots = stored[stored.epoch.notna()].set_index("epoch")
    assert len(snapshots) == len(loaded.snapshots) + 1
    assert snapshots.loc[60, [*expected.index]].to_dict() == pytest.approx(
        expected.to_dict(), abs=1e-5
    )
    early = typology.who_decides(
        interchange.sweep(loaded.model(2, 83), interchange.PairCounts(200, 200), own=True).assign(
            run=2
        )
    ).loc[2]
    assert snapshots.loc[5, [*early.index]].to_dict() == pytest.approx(early.to_dict(), abs=1e-5)
    assert read_checksums()["results/seeds.csv.gz"] == sha256(seeds.path_of())
    header, *_ = gzip.decompress(seeds.path_of().read_bytes()).decode().splitlines()
    assert [name for name in header.split(",") if name == "kind" or name.endswith("shows")] == []
    before = seeds.path_of().read_bytes()
    seeds.save(seeds.saved())
    assert seeds.path_of().read_bytes() == before


def test_what_a_run_shows_is_decided_when_the_table_is_read(data, monkeypatch):
    parts = {"one head": [0.75, 0.85], "heads together": 0.9, "earlier": 0.1}
    measured = {"staircase": [0.45, 0.55], "checkerboard": 0.15}
    rows = pd.DataFrame(
        {"source": "ours", "recipe": "quick", "run": [6, 7], "epoch": np.nan, **parts, **measured}
    )
    boards = []
    for intact in (0.1, 0.2):
        boards.append({"intact": intact, "without_random_neurons": [0.14], "beyond": True})
    seeds.save(rows.assign(fields=[{"checkerboard": board} for board in boards]))
    stored = seeds.saved()
    assert stored.kind.tolist() == ["heads together", "one head"]
    assert stored["staircase shows"].tolist() == [False, True]
    assert stored["checkerboard shows"].tolist() == [True, False]
    assert stored["kink shows"].isna().all()  # it was not measured
    # a field that a rule decides is left out
    assert stored.fields[0] == {"checkerboard": {"intact": 0.1, "without_random_neurons": [0.14]}}
    entry = registry.ROWS["finding/staircase"]
    lower = replace(entry, rule=partial(heads.has_staircase, attention=0.4))
    monkeypatch.setitem(registry.ROWS, "finding/staircase", lower)
    monkeypatch.setattr(typology, "DECIDES", 0.7)
    again = seeds.saved()
    assert again.kind.tolist() == ["one head", "one head"]
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
    some = {"finding/joint_ablation": heads.adds_without_carrying}
    some["finding/own_sum"] = typology.others_bring_own_sum
    monkeypatch.setattr(registry, "ROWS", {name: ROWS[name] for name in some})
    monkeypatch.setattr(typology, "COUNT", 200)
    row = seeds.measured("ours", "quick", [2]).set_index("epoch").loc[np.nan]
    for name, rule in some.items():
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

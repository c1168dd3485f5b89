"""How runs are chosen and compared with the paper, and how attention is summed up."""

import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.files import ROOT
from carry_core.findings import heads
from carry_core.findings.base import DECODER, N1, N3, W0, Measurement
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger import claims, compute, quantities, results
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer
from carry_core.pages import comparison
from carry_core.runs import Runs
from carry_core.sums import Layout

SAME = ClassAccuracies(torch.full((5, 3), 0.5), torch.full((5, 3), 0.5), 0.5)
TABLES = [
    "tab1/decision_head",
    "tab1/final_mlp",
    "tab3/final_mlp",
    "tab4/dissected",
    "tab5/final_mlp",
    "tab5/dissected",
]


@pytest.fixture
def theirs(data, monkeypatch) -> dict[str, results.Row]:
    """A ledger without weights, whose author's rows are the ones that are put in here."""
    shutil.copy(ROOT / "data" / "claims.yml", data)
    rows: dict[str, results.Row] = {}
    monkeypatch.setattr(results, "author_rows", lambda: rows)
    return rows


def row(name: str, runs: list[float], tolerance: float | None = None) -> results.Row:
    return results.Row(name, "", None, None, None, runs, tolerance, "compatible", "")


def verdict(table: str, values: list[float], source: str, drawn: float = math.inf) -> str:
    """Of NC, accuracy, position 8, where the paper has 0.31 without the decision head and in Tab. 5 0.92."""
    runs = {i: replace(SAME, accuracy=torch.full((5, 3), value)) for i, value in enumerate(values)}
    found = comparison.judge_cells(table, source, runs, [drawn] * 5)
    assert found.printed.accuracy.shape == (5, 3)
    return found.verdicts["accuracy"][0][1]


def test_a_page_grants_the_authors_weights_its_own_draw_as_well_as_the_papers(theirs):
    runs = [0.31 + off for off in (0.0, 0.01, -0.01, 0.02, -0.02, 0.0)]
    noise = math.sqrt(0.31 * 0.69 / 20_000 / 6)  # of a mean over six runs
    for shift, on_all, on_few in ((0.0, "reproduced", "reproduced"), (0.005 + 4 * noise, "differs", "reproduced")):
        shifted = [x + shift for x in runs]
        assert verdict("tab1/decision_head", shifted, "author") == on_all
        assert verdict("tab1/decision_head", shifted, "author", 5_000) == on_few
    far = [x + 0.005 + 7.5 * noise for x in runs]  # 3 times the root of 1 + 20,000 / 5,000 is 6.7
    assert verdict("tab1/decision_head", far, "author", 5_000) == "differs"


def test_our_runs_are_compared_with_the_authors(theirs):
    ours, name = [0.30, 0.34, 0.32, 0.29, 0.33, 0.31], "tab1/decision_head/NC/accuracy/pos8"
    assert verdict("tab1/decision_head", ours, "ours") == "reproduced"
    assert verdict("tab1/decision_head", [x + 0.1 for x in ours], "ours") == "differs"
    theirs[name] = row(name, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    assert verdict("tab1/decision_head", ours, "ours") == "compatible"


@pytest.mark.parametrize("source", ["ours", "author"])
@pytest.mark.parametrize("table", TABLES)
def test_on_the_ledgers_own_values_the_verdicts_are_the_ledgers(table, source, monkeypatch):
    """There is one rule: what `carry claims` wrote down, judged cell by cell as a page does, comes out the same."""
    monkeypatch.delenv("CARRY_DATA", raising=False)
    if not results.path_of(source).exists():
        pytest.skip(f"no {results.path_of(source)}")
    rows = {row.id: row for row in results.read(source)["rows"] if row.id.startswith(table)}
    n_runs = {len(row.runs) for row in rows.values()}
    assert len(n_runs) == 1
    if n_runs == {0}:
        pytest.skip(f"no weights of {source} for {table}")

    def cell(kind: str, pattern: str, pos: int, run: int) -> float:
        return rows[f"{table}/{carries.claim_key(pattern)}/{kind}/pos{7 + pos}"].runs[run]

    def cells(run: int) -> ClassAccuracies:
        kinds = [
            torch.tensor([[cell(kind, pattern, pos, run) for pos in range(3)] for pattern in carries.patterns(3)])
            for kind in ("accuracy", "corrected")
        ]
        return ClassAccuracies(*kinds, exact_match=math.nan)

    found = comparison.judge_cells(table, source, {run: cells(run) for run in range(*n_runs)}, [math.inf] * 5)
    for kind, verdicts in found.verdicts.items():
        for pattern, task in zip(carries.patterns(3), verdicts, strict=True):
            expected = [rows[f"{table}/{carries.claim_key(pattern)}/{kind}/pos{pos}"].verdict for pos in (7, 8, 9)]
            assert task == expected


def test_a_part_has_the_papers_table_only_beside_runs_of_its_group(theirs):
    a, b = measure.sample(7, 3, seed=0)
    config = ModelConfig(causal=True)
    decoder, other = (Runs(group, "author", config, (0,), {}, {}, {}) for group in (DECODER, MAIN))
    part = comparison.part("without it", {0: SAME}, decoder, "tab5/final_mlp", a, b)
    assert (part.title, part.cells) == ("without it", [SAME])
    judged = comparison.judge_cells("tab5/final_mlp", "author", {0: SAME}, [7] * 5)
    assert part.verdicts == judged.verdicts
    assert torch.equal(part.printed.accuracy, judged.printed.accuracy)
    assert comparison.part("without it", {0: SAME}, other, "tab5/final_mlp", a, b).verdicts is None


def test_whose_rows_they_are_is_what_their_measures_ask_for():
    known = claims.claims()
    for name, groups in {
        "tab5/dissected/NC/accuracy/pos7": {DECODER},
        "n2/decision_head_spread": {MAIN},
        "n2_w0/accuracy": {W0},
        "finding/biases": {N1, MAIN},
        "finding/three_layers_pairs": {N3},
        "finding/no_grokking": set(GROUPS),
        "data/sums3": set(),
    }.items():
        assert set(quantities.groups_of(name)) == groups
    nobodys = {name for name in known if not quantities.groups_of(name)}
    assert {name.split("/")[0] for name in nobodys} == {"data", "tab2", "llm", "finding", "pad6_primed"}
    assert {name for name in nobodys if name.startswith("finding/")} == {"finding/llm_heads"}


def test_rows_of_the_ledger_as_a_table(data, monkeypatch):
    shutil.copy(ROOT / "data" / "claims.yml", data)
    name, no_paper = "n2/dissection/neurons", "finding/checkerboard"

    def rows(values: dict[str, list[float | None]]) -> list[results.Row]:
        return [
            replace(row(name, found), value=found[0] if found else None, verdict="reproduced" if found else "not run")
            for name, found in values.items()
        ]

    assert comparison.table_of_rows({name: "neurons"}).rows == [[f"neurons\n{name}", "86", "–", "–"]]
    results.save("ours", rows({name: [81.666667, 80.0, 72.0, 71.0], no_paper: []}))
    results.save("author", rows({name: [87.0], no_paper: [0.5, None, 0.25]}))
    assert comparison.table_of_rows({no_paper: "gap", name: "neurons"}).rows == [
        [f"gap\n{no_paper}", "–", "0.5 reproduced\n0.5 – 0.25", "not run"],
        [f"neurons\n{name}", "86", "87 reproduced", "81.67 reproduced\n81.7 80 72\n71"],
    ]
    titles = [first for first, *_ in comparison.table_of_rows({no_paper: "gap", name: "neurons"}, N1).rows]
    assert titles == [f"{title}\nof {MAIN}, not of {N1}" for title in (f"gap\n{no_paper}", f"neurons\n{name}")]
    assert comparison.table_of_rows({name: "neurons"}, MAIN).rows[0][0] == f"neurons\n{name}"
    assert comparison.committed(name)["ours"].runs == [81.666667, 80.0, 72.0, 71.0]


def test_masses_read_the_cells_that_they_name():
    layout = Layout()
    pattern = torch.arange(100.0).view(10, 10)  # row q, column k holds 10 q + k
    assert heads.partner_mass(pattern, layout).tolist() == [4, 15, 26, 40, 51, 62]
    assert heads.column_mass(pattern, layout).tolist() == [70 + 74, 81 + 85, 92 + 96]
    assert heads.column_mass(pattern, layout, shift=1)[:2].tolist() == [71 + 75, 82 + 86]
    assert math.isnan(heads.column_mass(pattern, layout, shift=1)[2])
    assert heads.partner_mass(pattern, Layout(causal=True)).tolist() == [40, 51, 62]
    assert heads.column_mass(pattern, Layout(causal=True)).tolist() == [60 + 64, 71 + 75, 82 + 86]


@pytest.mark.parametrize("config", ["encoder", "decoder"], indirect=True)
def test_last_layer_is_the_same_ablations_one_by_one(model: Transformer):
    width, last = model.config.width, model.config.layers - 1
    a, b = measure.sample(20, width, seed=0)
    taken = heads.ablate_last_layer(model, a, b, chosen_on=measure.sample(30, width, seed=1))
    neurons = heads.carry_neurons(model, *measure.sample(30, width, seed=1))
    parts = [*measure.last_heads(model), measure.final_mlp(model), heads.dissection(neurons, last)]
    for together, part in zip([*taken.heads, taken.mlp, taken.dissected], parts, strict=True):
        (alone,) = measure.class_accuracies(model, a, b, [part])
        assert torch.equal(together.accuracy, alone.accuracy)
        assert torch.equal(together.corrected, alone.corrected)
    assert taken.intact.exact_match == measure.class_accuracies(model, a, b)[0].exact_match


def test_the_decision_head_costs_most_whatever_sums_a_page_draws(model: Transformer):
    a, b = sums.long_sums(10_000, model.config.width, torch.Generator().manual_seed(0))
    parts = measure.class_accuracies(model, a, b, measure.last_heads(model))
    exact = [accuracies.exact_match for accuracies in parts]
    decides = measure.decision_head(model)
    assert exact[decides] == min(exact)
    assert heads.without_decision([(4, model)]) == {4: min(exact)}
    assert heads.ablate_last_layer(model, a[:50], b[:50]).decision_head == decides


def test_a_row_knows_its_runs_and_what_else_was_measured(monkeypatch):
    fields = {(N1, 0): {"cost": 0.25}, (MAIN, 3): {"cost": None}}
    found = Measurement(
        dict.fromkeys(fields, 1.0), 1.0, how="The size.", shows=dict.fromkeys(fields, True), fields=fields
    )
    monkeypatch.setattr(quantities, "find", lambda name, evidence: found)
    (row,) = compute.Ledger("ours", "finding/biases").rows()
    assert row.fields["run"] == row.keys == [f"{N1} 0", f"{MAIN} 3"]
    assert (row.fields["shows"], row.fields["cost"], row.shown, row.n) == ([True, True], [0.25, None], (2, 2), 2)
    assert row.detail.startswith("The size. 2 of 2 runs show it.")


def test_a_row_that_fails_takes_no_other_with_it(monkeypatch, tmp_path):
    def fall(evidence):
        raise KeyError("train_whole")

    monkeypatch.setitem(quantities.SPECIAL, "data/sums4", quantities.Entry(fall))
    ledger = compute.Ledger("ours", "data/")
    journal = tmp_path / "ledger" / "ours.jsonl"
    rows = {row.id: row for row in ledger.rows(journal)}
    assert ledger.failed == ["data/sums4"]
    assert rows["data/sums4"].verdict == "not run"
    assert "KeyError: 'train_whole'" in rows["data/sums4"].detail
    assert re.search(r"\(\w+\.py:\d+\)", rows["data/sums4"].detail)
    assert rows["data/sums3"].verdict == "reproduced"
    assert [json.loads(line)["id"] for line in journal.read_text().splitlines()] == list(rows)

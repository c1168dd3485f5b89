"""The ledger judges runs by the paper's protocol, beside their whole table, and by one rule."""

import math
from dataclasses import replace

import numpy as np
import pytest

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import catalogue, measurements
from carry_paper.findings.base import DIGITS4, FINETUNED, MAIN, N3, PAD6, S01
from carry_paper.ledger import claims, ledger, registry
from carry_paper.ledger.entries import picked
from carry_paper.ledger.measuring import as_table
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import CANNOT_TELL, OF_OURS, Count, judge_finding, rule_text
from carry_train import groups


def of_runs(quantity: str, values: dict[tuple[str, int], float], recipe="paper", **more) -> list:
    """Rows of a quantity in some runs, by group and number."""
    rows = []
    for (group, run), value in values.items():
        row = {"source": "ours", "group": group, "recipe": recipe, "run": run, "epochs": 1000}
        rows.append(row | {"quantity": quantity, "value": value, "fields": {}, "ships": 1} | more)
    return rows


def combined(name: str, *rows: dict, **claim) -> ledger.Combined:
    measured = ledger.Measured("ours", as_table(rows))
    return ledger.combine(replace(claims.claims()[name], **claim), measured)


def test_a_row_that_depends_on_the_recipe_waits_for_the_papers():
    fields = {"change_of_squared_norm": 0.001}
    values = {(FINETUNED, 0): 0.01, (FINETUNED, 1): 0.03}
    quick = of_runs("lengths.finetuning", values, "quick", epochs=60, fields=fields)
    name = "finding/finetune_small_change"
    with pytest.raises(BadInput, match="depends on the recipe.*“quick”, 60 epochs"):
        combined(name, *quick)
    row = combined(name, *quick, recipe_sensitive=False).row
    assert (row.runs, row.trainings) == ([0.01, 0.03], ["recipe “quick”, 60 epochs"])
    whole = groups.find(FINETUNED).epochs
    paper = of_runs("lengths.finetuning", values, epochs=whole, fields=fields)
    assert combined(name, *paper).row.value == pytest.approx(0.02)


def test_of_several_groups_those_by_the_papers_protocol_are_judged():
    paper = of_runs("dynamics.no_grokking", {(MAIN, 0): 1.0, (MAIN, 1): 3.0})
    quick = of_runs("dynamics.no_grokking", {(PAD6, 0): 50.0}, "quick", epochs=60)
    row = combined("finding/no_grokking", *paper, *quick).row
    assert (row.keys, row.runs, row.value) == (["0", "1"], [1.0, 3.0], 2.0)
    both = combined("finding/no_grokking", *paper, *quick, recipe_sensitive=False).row
    assert both.keys == [f"{MAIN} 0", f"{MAIN} 1", f"{PAD6} 0"]


def test_the_first_six_runs_of_the_leading_recipe_are_judged():
    quick = of_runs("heads.staircase", {(MAIN, run): 0.1 for run in range(8)}, "quick")
    few = of_runs("heads.staircase", {(MAIN, run): 0.9 for run in range(2)})
    assert combined("finding/staircase", *quick, *few).row.runs == [0.1] * 6
    three = of_runs("heads.staircase", {(MAIN, run): 0.9 for run in range(3)})
    assert combined("finding/staircase", *quick, *three).row.runs == [0.9] * 3
    gone = [row | {"ships": 0} for row in quick]
    assert combined("finding/staircase", *gone, *few).row.runs == [0.9] * 2


def test_a_run_without_a_value_cannot_say():
    values = {(MAIN, 0): 0.9, (MAIN, 1): None, (MAIN, 2): 0.1}
    row = combined("finding/staircase", *of_runs("heads.staircase", values)).row
    assert row.fields["shows"] == [True, None, False]
    assert row.value == pytest.approx(0.5)


def test_a_number_that_is_missing_in_the_table_is_named():
    blank = of_runs("quantities.exact_match", {(DIGITS4, 2): None})
    place = rf"ours.csv.gz has no number in the column value of .*exact_match, run 2 of {DIGITS4}"
    with pytest.raises(BadInput, match=place):
        combined("digits4/accuracy", *blank)


def test_a_rule_that_compares_with_other_runs_is_given_their_values():
    rows = of_runs("dynamics.change_of_the_norm", {(S01, 0): -0.06, (S01, 1): 0.005})
    rows += of_runs("dynamics.change_of_the_norm", {(MAIN, 0): 0.01, (MAIN, 1): -0.002})
    row = combined("finding/weights_not_saturated", *rows).row
    assert row.fields["shows"] == [True, False]
    assert row.fields["runs_at_s_0.3"] == [[0.01, -0.002]] * 2
    assert row.groups == [S01, MAIN]


def test_a_number_may_be_about_some_runs_of_its_group():
    neurons = of_runs("quantities.dissected", {(S01, run): 60.0 + run for run in range(3)})
    needs_mlp = of_runs("heads.wide_mlp", {(S01, 0): 0.5, (S01, 1): 0.99})
    row = combined("n2_s01/dissection/neurons", *neurons, *needs_mlp).row
    assert row.keys == ["0", "2"]  # of run 2 it is not known
    assert "Over the runs that cannot take the full ablation." in row.detail
    all_take_it = of_runs("heads.wide_mlp", {(S01, run): 0.99 for run in range(3)})
    with pytest.raises(BadInput, match="of the 3 of n2_s0.1_w0.2 none is such"):
        combined("n2_s01/dissection/neurons", *neurons, *all_take_it)


def test_what_was_not_measured_is_said():
    with pytest.raises(BadInput, match="`carry measure --source ours`"):
        combined("finding/staircase")
    reason = of_runs("heads.staircase", {(MAIN, 0): 0.0}, run=None, recipe=None, value=None)
    with pytest.raises(BadInput, match="It is gone"):
        combined("finding/staircase", reason[0] | {"fields": {"reason": "It is gone."}})
    with pytest.raises(BadInput, match="lacks 'at_7_8_9', which its rule reads"):
        combined("finding/squashing", *of_runs("heads.squashing", {(MAIN, 0): 0.5}))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("value", (0.5, 0.0)),
        ("cells/NC/pos7", (0.25, 0.0)),
        ("list/1", (2, 0.0)),
        ("carry", (0.75, 0.125)),
    ],
)
def test_a_field_is_a_path(path, expected):
    fields = {
        "value": 0.5,
        "cells": {"NC": {"pos7": 0.25}},
        "list": [1, 2],
        "carry": {"value": 0.75, "variance": 0.125, "draws": [0, 1]},
    }
    part = picked(fields, path)
    assert (part.value, part.variance) == expected
    with pytest.raises(BadInput, match="has no field 'cells/NC/pos8'"):
        picked(fields, "cells/NC/pos8")


def test_a_table_is_compared_over_all_its_cells(monkeypatch):
    """A shift in one of two cells is seen in both, since the runs of both cells are compared."""
    cells = [claim for claim in claims.claims().values() if claim.table == "tab1/final_mlp"][:2]
    monkeypatch.setattr(ledger.claims, "claims", lambda: {claim.id: claim for claim in cells})
    generator = np.random.default_rng(0)
    author_runs = generator.normal(0.5, 0.01, (2, 6))
    sides = {"ours": author_runs + np.array([[0.0], [0.4]]), "author": author_runs}
    measured = {}
    for source, values in sides.items():
        rows = []
        for run, (first, second) in enumerate(values.T.tolist()):
            fields = {"a": first, "b": second}
            (row,) = of_runs("quantities.without_final_mlp", {(MAIN, run): math.nan})
            rows.append(row | {"source": source, "fields": fields, "value": None})
        measured[source] = ledger.Measured(source, as_table(rows))
    for claim, field in zip(cells, "ab", strict=True):
        entry = replace(registry.entry(claim.id), field=field)
        monkeypatch.setitem(registry.ROWS, claim.id, entry)
    test = ledger.Query(measured["ours"], measured["author"]).table_test("tab1/final_mlp")
    assert (test.n_ours, test.n_theirs, test.cells) == (6, 6, 2)
    assert test.told_apart


@pytest.mark.parametrize("quantifier", ["all", "most"])
def test_the_verdict_at_other_bars_is_kept_where_it_moves(quantifier):
    claim = replace(claims.claims()["finding/staircase"], quantifier=quantifier)
    rows = of_runs("heads.staircase", {(MAIN, run): 0.6 for run in range(6)})
    of_six = combined("finding/staircase", *rows)
    judged = ledger.judged(claim, "ours", of_six)
    assert judged.sensitivity == {"0.75": "differs"}


def test_runs_that_cannot_say_do_not_count():
    values = {(MAIN, run): value for run, value in enumerate([0.9, None, 0.1, None])}
    claim = claims.claims()["finding/staircase"]
    of_four = combined(claim.id, *of_runs("heads.staircase", values))
    assert of_four.counts[ledger.AS_IT_IS] == {MAIN: Count(1, 2)}
    judged = ledger.judged(claim, "ours", of_four)
    assert (judged.verdict, judged.settles) == ("mixed", "")
    nobody = of_runs("heads.staircase", {(MAIN, run): None for run in range(6)})
    judged = ledger.judged(claim, "ours", combined(claim.id, *nobody))
    assert (judged.verdict, judged.settles) == ("can't tell", "with other runs")


def test_a_finding_of_ours_differs_if_it_is_told_from_the_authors_or_his_differ_too():
    claim = claims.claims()["finding/three_layers_heads"]
    few = {N3: Count(1, 6)}
    for n_theirs, verdict in {1: "differs", 4: "can't tell", 6: "differs"}.items():
        theirs = {N3: Count(n_theirs, 6)}
        assert judge_finding(claim, "ours", few, theirs).verdict == verdict
    assert judge_finding(claim, "ours", few).verdict == "differs"
    own = replace(claim, heading="Beyond the paper, controls")
    four = {N3: Count(4, 6)}
    assert judge_finding(own, "ours", few, four).verdict == "differs"
    assert judge_finding(claim, "author", few, four).verdict == "differs"
    assert judge_finding(claim, "ours", few, {MAIN: Count(4, 6)}).verdict == "differs"
    compared = [OF_OURS in rule_text(x) for x in (claim, own, replace(claim, single=True))]
    assert compared == [True, False, False]


def test_no_group_makes_up_for_another():
    claim = claims.claims()["finding/biases"]
    by_group = {MAIN: Count(3, 6), N3: Count(30, 30)}
    judged = judge_finding(claim, "ours", by_group)
    assert (judged.verdict, judged.interval) == ("mixed", None)
    assert f"{MAIN}: 3 of 6 runs show it." in judged.detail
    one_run = {N3: Count(6, 6), MAIN: Count(0, 1)}
    assert judge_finding(claim, "ours", one_run).verdict == "reproduced"
    of_groups = replace(claim, quantifier="open")
    judged = judge_finding(of_groups, "ours", by_group)
    assert (judged.verdict, judged.settles) == ("no verdict", "")


def test_a_finding_that_hangs_on_one_control_run_cannot_tell():
    claim = replace(claims.claims()["finding/staircase"], quantifier="all")
    shown_by_none = {ledger.AS_IT_IS: {MAIN: Count(0, 6)}}
    for n_without, expected in {1: "differs", 5: CANNOT_TELL}.items():
        without = {"run 0 of controls": {MAIN: Count(n_without, 6)}}
        of_six = ledger.Combined(Row(claim.id), counts=shown_by_none, counts_without=without)
        judged = ledger.judged(claim, "ours", of_six)
        assert judged.verdict == expected
    assert judged.settles == "more control runs: without run 0 of controls it is mostly"


def test_a_finding_of_one_run_is_judged_on_the_run_that_the_paper_shows():
    name = next(n for n, e in registry.ROWS.items() if e.rule and e.shown_run is not None)
    assert claims.claims()[name].single
    author = ledger.by_id("author")
    of_row = ledger.combine(claims.claims()[name], author.measured)
    assert [count.n_runs for count in of_row.counts[ledger.AS_IT_IS].values()] == [1]
    assert len(of_row.row.runs) > 1
    assert (
        f"Judged on run {registry.entry(name).shown_run}, which the paper shows."
        in author[name].detail
    )


def test_a_row_knows_its_runs_and_what_else_was_measured():
    rows = of_runs("heads.biases", {(N3, 0): 0.008}, fields={"cost": 0.25})
    rows += of_runs("heads.biases", {(MAIN, 3): 0.0}, fields={"cost": None})
    of_both = combined("finding/biases", *rows)
    row = ledger.judged(claims.claims()["finding/biases"], "ours", of_both)
    assert row.fields["run"] == row.keys == [f"{MAIN} 3", f"{N3} 0"]
    assert (row.fields["shows"], row.fields["cost"], row.shown, row.n) == (
        [True, True],
        [None, 0.25],
        (2, 2),
        2,
    )
    assert f"{MAIN}: the one run shows it." in row.detail
    assert row.detail.endswith(f"By group: 1 of 1 of {MAIN}, 1 of 1 of {N3}.")
    assert row.value == 0.004


def test_the_recipe_that_leads_in_the_table_leads_in_the_folder():
    leading = ledger.leading_recipes(measurements.read("ours", ROOT / "data"))
    assert (leading[DIGITS4], leading[MAIN]) == ("quick", "paper")
    for group, recipe in leading.items():
        files = catalogue.find(group)
        assert {path.parent.name for path in files.values()} == {recipe}

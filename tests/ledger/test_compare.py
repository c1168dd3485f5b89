"""The paper's questions asked of any runs: the ledger's measures, and a run's place among ours."""

import json
from dataclasses import asdict

import pytest

from carry_core.files import ROOT
from carry_core.interventions import INTACT
from carry_paper import catalogue
from carry_paper.findings import line_table
from carry_paper.findings.base import MAIN
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need
from carry_paper.ledger import compare, kinds_of_run, ledger, quantities
from carry_train import groups
from tests.conftest import dissecting_few
from tests.helpers.measured import measured
from tests.helpers.trainings import FEW, few_sums, save_random


@pytest.fixture(scope="module")
def main_run():
    """A shipped run, asked by its path on few sums."""
    path = catalogue.find(MAIN, recipe="quick", runs=[7])[7]
    subject = compare.Subject.of(str(path))
    with dissecting_few():
        answers = compare.ask(subject, pairs=FEW, surveyed=few_sums)
    return {answer.id: answer for answer in answers}


@pytest.mark.slow
def test_what_is_asked_is_what_the_ledger_measures(main_run, few_draws):
    """The same entries, on the same run chosen by its number."""
    need = Need(frozenset([INTACT, *quantities.LAST_HEADS]), dissect=True)
    selection = {MAIN: {"recipe": "quick", "runs": [7]}}
    evidence = Evidence("ours", {MAIN: need}, selection=selection, surveyed=few_sums)
    row_ids = [id_ for id_ in main_run if not id_.startswith("carry/")]
    assert len(row_ids) == len(compare.ENCODER) + 60
    for id_ in row_ids:
        measurement = measured(id_, evidence)
        assert main_run[id_].runs == {"7": pytest.approx(measurement.runs[7], abs=1e-5)}
        if measurement.shows:
            assert main_run[id_].shows == {"7": measurement.shows[7]}


def test_a_run_of_ours_lies_where_the_table_of_seeds_has_it(main_run):
    stored = kinds_of_run.table()
    stored = stored[(stored.source == "ours") & (stored.recipe == "quick")]
    row = stored[stored.run == 7].iloc[0]
    staircase = main_run["finding/staircase"]
    assert staircase.runs["7"] == pytest.approx(row.staircase, abs=1e-4)
    assert len(staircase.seeds) == len(stored)
    assert staircase.seeds_show == (stored["staircase shows"].sum(), len(stored))
    rank = (stored.staircase < row.staircase).mean() + 0.5 / len(stored)
    assert staircase.percentiles["7"] == pytest.approx(100 * rank, abs=0.1)
    # Few pairs are swapped here.
    assert main_run["carry/earlier"].runs["7"] == pytest.approx(row.earlier, abs=0.15)


def test_the_line_of_a_run_of_ours_is_the_stored_one(main_run):
    table = line_table.saved()
    ours = table[(table.source == "ours") & (table.group == MAIN) & (table.recipe == "quick")]
    stored = line_table.by_run(ours).set_index("run")
    late = main_run["carry/line/late"]
    assert late.runs["7"] == pytest.approx(stored.late[7], abs=0.05)  # from few pairs
    assert late.seeds == stored.late.tolist()
    rank = (stored.late < late.runs["7"]).mean()
    assert late.percentiles["7"] == pytest.approx(100 * rank, abs=2)
    assert main_run["carry/line/lowest"].runs["7"] == pytest.approx(stored.lowest[7], abs=0.2)
    assert main_run["carry/line/writers"].runs == {"7": stored.writers[7]}


def test_the_paper_and_our_six_runs_stand_beside_a_cell(main_run):
    cell = "tab1/final_mlp/NC/accuracy/pos7"
    row = ledger.by_id("ours")[cell]
    assert (main_run[cell].paper, main_run[cell].seeds) == (row.paper, row.runs)
    frame = compare.cells(main_run.values(), "tab1/final_mlp")
    assert frame.groupby("side").run.nunique().to_dict() == {"ours": 6, "paper": 1, "yours": 1}
    cell_row = frame.query("side == 'yours' and carry_class == 'NC' and position == 'pos7'").iloc[0]
    assert cell_row.accuracy == main_run[cell].runs["7"]
    assert cell_row.corrected == main_run[cell.replace("accuracy", "corrected")].runs["7"]
    assert not cell_row.carry_in
    assert frame.query("carry_class == 'C@1' and position == 'pos7'").carry_in.all()
    words = compare.table_in_words(main_run.values(), "tab1/final_mlp").loc["NC", "pos7"]
    mean_of_ours = sum(row.runs) / len(row.runs)
    assert words == f"{cell_row.accuracy:.2f} ({mean_of_ours:.2f}; {row.paper:.2f})"


@pytest.mark.parametrize(
    ("value", "percentile"), [(0.0, 0.0), (1.0, 12.5), (2.0, 50.0), (3.0, 87.5), (4.0, 100.0)]
)
def test_percentiles_count_ties_half(value, percentile):
    spread = [1.0, 2.0, 2.0, 3.0]
    assert compare.percentiles({"0": value, "1": None}, spread) == {"0": percentile}
    assert compare.percentiles({"0": value}, []) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "digits2_n2_s0.3_w0.2_dff64",
        "decoder_n3_s0.3_w0.2_dff64",
    ],
)
def test_any_shape_of_model_can_be_asked(data, few_random_sums, name):
    """Random weights are compared too; ours come from the repository, not from this data folder."""
    group = groups.find(name)
    save_random(group, (2,), "quick", 9)
    answers = compare.ask(compare.Subject.of(name), pairs=8, surveyed=few_sums)
    assert json.loads(json.dumps([asdict(answer) for answer in answers]))
    assert {run for answer in answers for run in answer.runs} == {"2"}
    assert compare.reference_folder() == ROOT / "data"
    assert any(answer.seeds for answer in answers)
    frame = compare.summary(answers)
    assert {"question", "paper", "our seeds", "yours", "percentile"} == {*frame}
    assert len(compare.tables(answers)) == (2 if group.n_digits == 3 and not group.padded else 0)
    assert not [answer.id for answer in answers if answer.not_asked and "carry/" not in answer.id]

"""The ledger's rows, its refusals, and the committed results against these weights."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import catalogue
from carry_paper.findings import survey
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import claims, registry
from carry_paper.ledger import ledger as query
from carry_paper.ledger.measuring import Measuring, quantities
from carry_paper.ledger.results import Row
from carry_train.groups import MAIN


@pytest.fixture
def ledger(data) -> Path:
    """A data folder that has the ledger and the committed results, but no weights."""
    shutil.copy(ROOT / "data" / "claims.yml", data)
    for name in ("results", "measurements"):
        shutil.copytree(ROOT / "data" / name, data / name)
    return data


@pytest.fixture
def with_release(ledger, released) -> Path:
    """The same, with the part of the author's release that is at hand."""
    shutil.copytree(released[0], ledger / "author")
    return ledger


def test_every_number_and_finding_of_the_paper_has_a_row(shared, ledger):
    rows = claims.claims()
    numbers = yaml.safe_load((shared / "paper" / "numbers.yml").read_text())
    findings = yaml.safe_load((shared / "paper" / "findings.yml").read_text())
    listed = [row["id"] for row in numbers + findings]
    assert [name for name in rows if name in listed] == listed
    assert {name.split("/")[0] for name in rows if name not in listed} == {
        "n2",
        "finding",
        "beyond",
    }
    for row in numbers:
        claim = rows[row["id"]]
        # YAML 1.1 takes 5e7 for text
        expected = float(row["paper"]) if isinstance(row["paper"], str) else row["paper"]
        assert (claim.where, claim.paper, claim.note) == (
            row["where"],
            expected,
            row.get("note", ""),
        )
    for row in findings:
        claim = rows[row["id"]]
        assert (claim.where, claim.paper) == (row["where"], None)
        assert (claim.claim, claim.measure) == (row["claim"], row["measure"])


def test_each_claim_has_words():
    for claim in claims.claims().values():
        assert claim.title or claim.table or (claim.claim and claim.paper is None), claim.id


def test_a_row_that_nothing_measures_is_one_line(refused, ledger):
    text = (ROOT / "data" / "claims.yml").read_text()
    (ledger / "claims.yml").write_text(text.replace("id: data/sums3", "id: data/sums99", 1))
    assert "Nothing measures 'data/sums99'" in refused(
        "claims", "--source", "ours", "--only", "data/"
    )


BAD = {
    "cause": (
        "cause: seeds",
        "cause: weather",
        "cause: 'weather' is unknown, expected one of seeds",
    ),
    "no date": ("    since: 2026-11-26\n", "", "since: Field required"),
    "rule without a reason": (
        '  reason: "a mean over six runs of shares counted on random sums"\n',
        "",
        "reason",
    ),
    "quantifier": (
        "quantifier: most",
        "quantifier: many",
        "quantifier: 'many' is unknown, expected one of all, most, some",
    ),
    "source": (
        "    author: {",
        "    theirs: {",
        "'theirs' is unknown, expected one of ours, author",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_claim_with_bad_input_is_one_line_that_names_it(refused, data, name):
    before, after, complaint = BAD[name]
    path = data / "claims.yml"
    text = (ROOT / "data" / "claims.yml").read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    message = refused("claims", "--source", "ours", "--only", "data/")
    assert message.startswith(f"{path} is damaged (")
    assert complaint in message
    assert message.partition("(")[2].partition(":")[0].partition(".")[0] in yaml_ids(text)
    with pytest.raises(BadInput, match="is damaged"):
        claims.claims()


def yaml_ids(text: str) -> set[str]:
    """The ids in a file of claims."""
    return {row["id"] for row in yaml.safe_load(text)}


def test_without_measurements_every_row_says_what_would_make_it(carry, data, tmp_path):
    code, out, err = carry("claims", "--source", "ours", "--json", str(tmp_path / "rows.json"))
    assert (code, err) == (0, "")
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["id"] for row in rows] == list(claims.claims())
    keys = "id where paper value std runs tolerance verdict detail n fields interval rule reason"
    assert list(rows[0]) == [*keys.split(), "groups", "settles", "table", "why", "sensitivity"]
    by_id = {row["id"]: row for row in rows}
    assert by_id["data/sums3"]["verdict"] == "reproduced"
    table = by_id["tab3/final_mlp/NC/accuracy/pos7"]
    assert (table["verdict"], table["value"], table["runs"]) == ("not run", None, [])
    assert table["detail"] == "Not measured yet: `carry measure --source ours` does it."
    assert {row["verdict"] for row in rows} == {"reproduced", "not run"}
    assert "30 rows, tab3/final_mlp/NC/accuracy/pos7 to" in out
    counts = [int(count) for count in re.findall(r"^(\d+) rows(?: beyond the paper)?:", out, re.M)]
    assert sum(counts) == len(rows)


def measured_now(source: str, prefix: str, **options: Any) -> query.Rows:
    """The rows of some claims, measured on the weights that are here."""
    asked = quantities(registry.entry(claim.id) for claim in claims.chosen(prefix))
    table = Measuring(Evidence(source, **options), asked).rows()
    author = query.by_id("author").measured if source == "ours" else None
    judged = query.Query(query.Measured(source, table), author)
    return {claim.id: judged[claim.id] for claim in claims.chosen(prefix)}


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["data/", "n2/squashing", "pad6_primed/", "tab2/", "llm/"])
def test_a_sample_of_the_authors_results_again(with_release, prefix):
    """The weights give today the values and verdicts of the table."""
    stored = query.by_id("author")
    for name, row in measured_now("author", prefix).items():
        _same(row, stored[name])
    assert list(stored) == list(claims.claims())


N_SUMS = 400  # of each class


@pytest.mark.parametrize("part", ["tab1/decision_head", "tab1/final_mlp", "tab4", "tab5"])
def test_every_cell_is_as_it_is_printed(with_release, monkeypatch, part):
    """Tables 1, 4 and 5: up to rounding, and five standard errors of few sums and neurons."""
    monkeypatch.setattr(survey, "DRAWN", N_SUMS)
    monkeypatch.setattr(survey, "DRAWS", 2)
    few = measure.sample(N_SUMS, 3, seed=0)
    rows = measured_now("author", part, surveyed=lambda group: few)
    assert len(rows) >= 30
    for name, row in rows.items():
        variances = [run * (1 - run) / N_SUMS for run in row.runs]
        sampling_error = sum(variances) ** 0.5 / len(row.runs)
        of_neurons = 0.1 if "dissected" in name else 0.0
        assert abs(row.value - row.paper) <= 0.006 + of_neurons + 5 * sampling_error, name
    assert min(row.paper for row in rows.values()) < 0.7  # an intact model's are 1


@pytest.mark.slow
def test_the_decision_heads_of_the_released_runs(with_release):
    released = catalogue.load(MAIN, "author")
    assert [measure.decision_head(model) for _, model in released.models()] == [1, 0, 0, 0, 0, 1]


@pytest.mark.slow
def test_a_released_history_gives_the_stored_value_of_its_run(with_release):
    """The fixture has the history of one of the six runs."""
    (row,) = measured_now("author", "finding/transition").values()
    stored = query.by_id("author")[row.id]
    numbers = [int(run) for run in row.fields["run"]]
    assert numbers == [0]
    assert stored.fields["run"] == [str(run) for run in range(6)]
    assert row.runs == pytest.approx([stored.runs[run] for run in numbers], abs=1e-3)
    assert row.fields["shows"] == [stored.fields["shows"][run] for run in numbers]


def _same(measured: Row, stored: Row) -> None:
    assert (measured.id, measured.paper, measured.verdict) == (
        stored.id,
        stored.paper,
        stored.verdict,
    )
    assert measured.value == pytest.approx(stored.value, abs=1e-3)
    assert measured.runs == pytest.approx(stored.runs, abs=1e-3)


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["n2/squashing", "finding/one_layer_imperfect"])
def test_our_results_are_those_of_the_weights_that_are_shipped(prefix):
    stored = query.by_id("ours")
    for name, row in measured_now("ours", prefix).items():
        _same(row, stored[name])

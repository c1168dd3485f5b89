"""The ledger as a table: a line for each stored row, with the columns that the book describes."""

import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from carry_core.errors import BadInput
from carry_core.runs import SOURCES
from carry_paper.cli.ledger import results_command
from carry_paper.ledger import export, ledger

READING = Path(__file__).parents[2] / "book" / "reading.md"


def test_the_book_describes_exactly_the_columns():
    _, _, section = READING.read_text(encoding="utf-8").partition("## Results as data")
    section = section.partition("\n## ")[0]
    described = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    assert list(described) == list(export.stored().columns)


def test_every_stored_row_has_its_line():
    table = pd.read_csv(io.StringIO(export.csv_text(export.stored())), keep_default_na=False)
    stored = {source: ledger.by_id(source) for source in SOURCES}
    assert len(table) == sum(map(len, stored.values())) > 0
    for line in table.to_dict("records"):
        row = stored[str(line["source"])][str(line["id"])]
        assert line["verdict"] == row.verdict
        assert line["n"] == row.n
        assert line["detail"] == row.detail
        assert json.loads(str(line["fields"]) or "{}") == json.loads(json.dumps(row.measured))
        assert line["groups"].split() == row.groups
        if isinstance(row.value, float):
            assert float(line["value"]) == pytest.approx(row.value, rel=1e-5)
        if row.why is not None:
            assert line["cause"] == row.why.cause


def test_the_command_writes_a_file_or_counts_verdicts(tmp_path):
    file = tmp_path / "results.csv"
    assert CliRunner().invoke(results_command, ["--csv", str(file)]).exit_code == 0
    assert file.read_text(encoding="utf-8") == export.csv_text(export.stored())
    counts = CliRunner().invoke(results_command, []).output
    for source in SOURCES:
        assert source in counts


def test_a_folder_without_results_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CARRY_DATA", str(tmp_path))
    with pytest.raises(BadInput, match="^Nothing is measured in .*CARRY_DATA"):
        CliRunner().invoke(results_command, [], catch_exceptions=False)

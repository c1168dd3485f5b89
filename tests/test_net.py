"""The net under refactorings covers every row and every script of the playground."""

import json

import pytest

from carry_paper.ledger import claims
from carry_paper.pages import playground
from tests import net


def golden(part):
    return json.loads((net.GOLDEN / f"{part}.json").read_text())


@pytest.mark.parametrize("source", ["ours", "author"])
def test_every_row_of_the_ledger_is_in_the_golden_files(source):
    assert list(golden(source)) == list(claims.claims())


def test_the_playground_in_the_golden_file_is_the_one_of_these_runs():
    files = [f"{group}-run{run}.js" for group, runs in playground.CHOSEN.items() for run in runs]
    assert golden("playground").keys() == {
        *files,
        *(f"{page}.js" for page in playground.SLIDERS),
        "runs.js",
    }

"""`carry claims --against`: the rows that moved since an earlier result, and its refusals."""

import json
import subprocess
from dataclasses import replace

from carry_core.files import ROOT
from carry_paper import measurements
from carry_paper.ledger import moved
from carry_paper.ledger.results import Row

A = Row("data/a", paper=1.0, value=0.5, verdict="differs", rule="fixed: …", reason="x")
B = Row("data/b", value=[1, None], verdict="mixed", rule="all: …")


def lines_of(row, **changes):
    return moved.moved({row.id: row}, {row.id: replace(row, **changes)})


def test_a_row_moves_by_its_verdict_its_value_or_its_rule():
    assert lines_of(A, detail="in other words", value=0.5 + 1e-7) == []
    same = "same rule (fixed: …; x)"
    assert lines_of(A, verdict="reproduced") == [
        f"data/a: differs -> reproduced; value 0.5 -> 0.5; {same}",
    ]
    assert lines_of(A, value=None) == [f"data/a: differs -> differs; value 0.5 -> none; {same}"]
    assert lines_of(B, value=[1, 0.25], rule="most: …") == [
        "data/b: mixed -> mixed; value [1, none] -> [1, 0.25]; rule (all: …) -> (most: …)",
    ]
    assert len(lines_of(A, reason="y")) == 1


def test_a_new_row_and_one_that_is_gone_are_lines_too():
    assert moved.moved({}, {A.id: A}) == ["data/a: new, differs; value 0.5; rule (fixed: …; x)"]
    assert moved.moved({A.id: A}, {}) == [
        "data/a: gone, was differs; value 0.5; rule (fixed: …; x)"
    ]


def test_the_command_lists_what_moved(carry, data, tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    command = ("claims", "--source", "ours", "--only", "data/")
    carry(*command, "--json", str(before))
    rows = json.loads(before.read_text())
    code, out, _ = carry(*command, "--against", str(before))
    assert (code, out.splitlines()[-1]) == (0, f"0 of {len(rows)} rows moved since {before}.")
    rows[0]["verdict"] = "differs"
    before.write_text(json.dumps(rows))
    code, out, _ = carry(*command, "--against", str(before), "--json", str(after))
    assert code == 0
    assert out.splitlines()[-2] == f"1 of {len(rows)} rows moved since {before}."
    assert out.splitlines()[-1].startswith(f"{rows[0]['id']}: differs -> reproduced; value ")


def test_a_row_that_moved_since_a_commit_is_a_line(carry, data):
    """The table at the commit is judged by today's rules."""
    table = measurements.read("ours", ROOT / "data")
    measurements.write("ours", table)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "measured"]):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", str(data), *identity, *command], check=True)
    table.loc[table.quantity == "heads.staircase", "value"] = 0.1
    measurements.write("ours", table)
    command = ("claims", "--source", "ours", "--only", "finding/staircase", "--against", "HEAD")
    *_, count, line = carry(*command)[1].splitlines()
    assert count == "1 of 1 rows moved since HEAD."
    assert line.startswith("finding/staircase: ")
    assert "-> differs; value" in line

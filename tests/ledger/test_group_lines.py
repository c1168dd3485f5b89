"""How many runs of a group have the carry on one line, and the ledger's word for it."""

import math

import pandas as pd
import pytest

from carry_paper.ledger import group_lines


def summary_of(on_line, lowest=0.9):
    """Return rows of `line_table.by_run` of the main group; None for a run without a line."""
    rows = []
    for run, on_one_line in enumerate(on_line):
        row = {
            "source": "ours",
            "group": "n2_s0.3_w0.2",
            "recipe": "paper",
            "run": run,
            "digits": 3,
            "on_line": on_one_line,
            "lowest": lowest + run / 100,
            "dimensions": float(run + 1),
            "late": 0.5 + run / 10,
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"on_line": object})


def test_runs_are_counted_with_an_interval():
    (row,) = group_lines.by_group(summary_of([True, False, True, None])).to_dict("records")
    assert (row["runs"], row["on_line"], row["word"]) == (3, 2, "mostly")
    assert (row["low"], row["high"]) == pytest.approx((0.0943, 0.9916), abs=1e-4)
    assert (row["lowest"], row["dimensions"]) == (0.9, 3)
    assert (row["late_low"], row["late_high"]) == (0.5, 0.7)


@pytest.mark.parametrize(
    ("count", "n_runs", "word"),
    [
        (6, 6, "in all"),
        (4, 6, "mostly"),
        (3, 6, "mixed"),
        (2, 6, "not"),
        (2, 2, "too few runs"),
        (0, 1, "not"),  # one run contradicts what is said of all
    ],
)
def test_the_word_follows_the_share(count, n_runs, word):
    on_line = [run < count for run in range(n_runs)]
    (row,) = group_lines.by_group(summary_of(on_line)).to_dict("records")
    assert row["word"] == word


def test_a_group_without_a_line_has_no_interval():
    (row,) = group_lines.by_group(summary_of([None, None])).to_dict("records")
    assert (row["runs"], row["word"]) == (0, "too few runs")
    assert math.isnan(row["low"])

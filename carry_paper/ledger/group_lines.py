"""The carry lines of a group in the ledger's words: in how many runs the carry is on one line."""

import pandas as pd

from carry_paper.findings.line_table import KEY
from carry_paper.ledger import settling
from carry_paper.ledger.verdicts import CANNOT_TELL, judge_finding

# What the ledger's verdicts on a statement about all runs are called here.
WORDS = {
    "reproduced": "in all",
    "mostly": "mostly",
    "mixed": "mixed",
    "differs": "not",
    CANNOT_TELL: "too few runs",
}


def by_group(summary: pd.DataFrame) -> pd.DataFrame:
    """Return how many runs of each group have the carry on one line.

    Args:
        summary: Rows of `line_table.by_run`.

    Returns:
        For each source, group, recipe and length of sums, the number of `runs` that have a line;
        of these, the number that are `on_line` and its exact 95% interval as a share, from `low`
        to `high`; the `word` for it; the `lowest` interchange accuracy, the most `dimensions`, and
        the lowest and highest late share, `late_low` and `late_high`.
    """
    names = [*KEY[:3], "digits"]
    rows = []
    for key, all_runs in summary.groupby(names, sort=False):
        asked = all_runs[all_runs.on_line.notna()]
        shows = [bool(on_line) for on_line in asked.on_line]
        low, high = (float("nan"), float("nan"))
        if shows:
            low, high = settling.clopper_pearson(sum(shows), len(shows))
        row = {
            **dict(zip(names, key, strict=True)),
            "runs": len(shows),
            "on_line": sum(shows),
            "low": low,
            "high": high,
            "word": WORDS[judge_finding("all", shows).verdict],
            "lowest": asked.lowest.min(),
            "dimensions": asked.dimensions.max(),
            "late_low": asked.late.min(),
            "late_high": asked.late.max(),
        }
        rows.append(row)
    return pd.DataFrame(rows)

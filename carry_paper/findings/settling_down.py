"""When a run is settled: the same runs, stopped on the way, beside what they become.

What is compared, and what *settled* means, was written down before (`book/protocol.md`).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from carry_paper.findings.carry_line import who_writes
from carry_paper.findings.twins import interval

EPOCHS = (2, 5, 10, 20, 40, 70)  # of the 100 of the recipe `minute`
FEWEST = 24  # of the 32 bases, which have to have a late share at an epoch


def on_the_way(base_rows: pd.DataFrame, stopped: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return how far runs are, at each epoch, from what they become.

    Args:
        base_rows: The rows of finished runs.
        stopped: The rows of the same runs, stopped after an epoch, by that epoch.

    Returns:
        By `epoch`: the number of `runs` with a late share; the mean absolute `change` of it to the
        end, with its 95% interval from `low` to `high`; its `rank` correlation with the end; and
        the share of runs with another word, `flip`.
    """
    end = base_rows.set_index("run").late
    rows = []
    for epoch, of_epoch in stopped.items():
        pairs = pd.DataFrame({"now": of_epoch.set_index("run").late, "end": end}).dropna()
        row: dict[str, float] = {"epoch": epoch, "runs": len(pairs)}
        if len(pairs) > 2:
            changes = (pairs.now - pairs.end).abs()
            low, high = interval(changes.to_numpy())
            word, last_word = pairs.now.map(who_writes), pairs.end.map(who_writes)
            row |= {"change": changes.mean(), "low": low, "high": high}
            row["rank"] = pairs.now.corr(pairs.end, method="spearman")
            row["flip"] = (word != last_word).mean()
        rows.append(row)
    columns = ["epoch", "runs", "change", "low", "high", "rank", "flip"]
    return pd.DataFrame(rows, columns=columns).set_index("epoch").sort_index()


def settled(way: pd.DataFrame, floor: float) -> int | None:
    """Return the first epoch from which on runs are as near their end as the floor's twins are.

    It is None if they are not at the last of the epochs.
    """
    is_near = ((way.change <= floor) & (way.runs >= FEWEST)).to_numpy()
    lasting = np.flip(np.logical_and.accumulate(np.flip(is_near)))
    epochs = way.index[lasting]
    return int(epochs[0]) if len(epochs) else None

"""Twins: runs that differ from their base in one thing, compared with those that differ in nothing.

A training is chaotic: one rounding unit in one initial weight of each matrix makes another run. So
how far that twin is from its base is the *floor*: a factor (other dropout masks, another order,
another split, other initial weights) matters if its twins are further from their bases than that.
The unit is a base, with one twin of each kind, so each test is a paired one. What is compared, and
what decides, was written down before any twin was looked at (`book/protocol.md`).

Twins that do not learn are counted and not compared: a run that cannot add has no late share.

The floor also says when a run is settled: it is compared with itself, stopped on the way.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from carry_core.errors import BadInput
from carry_paper.findings import cells
from carry_paper.findings.carry_line import who_writes

FLOOR = cells.ROUNDING
FACTORS = ("mask", "order", "split", "init")
OUTCOMES = ("late", "flip", "nine")
ALPHA = 0.05  # of all tests together
POWER = 0.8  # with which the detectable effect would be seen
PERMUTATIONS = 99_999
EPOCHS = (2, 5, 10, 20, 40, 70)  # of the 100 of the recipe `minute`, at which runs are stopped
FEWEST = 24  # of the 32 bases, which have to have a late share at such an epoch

# Bases by `quick`, stopped at an epoch. Its learning rate never falls, so the exact match of a run
# that adds goes up and down, and a lower one counts as learning.
QUICK_BASES, QUICK_EPOCHS, QUICK_LEARNS = 32, 20, 0.99

Values = NDArray[np.float64]


def bases(
    table: pd.DataFrame,
    cell: cells.Cell,
    count: int = cells.N_RUNS,
    learns: float = cells.LEARNS,
) -> list[int]:
    """Return the bases: the first runs of a cell in which nothing is new that learn to add.

    A run learns if its exact match reaches `learns`.

    Raises:
        BadInput: The table has not so many runs that learn, or lacks a run before the last of them.
    """
    rows = cell.of(table).set_index("run").sort_index()
    learning = [int(run) for run in rows.index[rows.exact >= learns]][:count]
    last = learning[-1] if learning else cells.FIRST
    absent = sorted(set(range(cells.FIRST, last + 1)) - set(rows.index))
    if len(learning) < count or absent:
        then = f"lacks run {absent[0]}" if absent else f"has {len(learning)} that learn"
        raise BadInput(
            f"{cell.group.name} by {cell.recipe.name} {then}: expected {count} that learn, from "
            f"{cells.FIRST} on. Run `make cell GROUP={cell.group.name}` with more RUNS."
        )
    return learning


def compared(
    base_rows: pd.DataFrame,
    twin_rows: pd.DataFrame,
    numbers: Collection[int],
    learns: float = cells.LEARNS,
) -> pd.DataFrame:
    """Return how far each twin is from its base: a row for each of the bases' numbers.

    A twin learns if its exact match reaches `learns`.

    Returns:
        By run, `learns`; the absolute change of the `late` share and of the place of the `nine`;
        and `flip`, 1 if the word for the run (`carry_line.who_writes`) is another. A twin that does
        not learn has NaN in these.

    Raises:
        BadInput: A twin is missing, or was trained by another step or on another processor.
    """
    pairs = pd.DataFrame(index=pd.Index(numbers, name="run"))
    base, twin = (rows.set_index("run").reindex(pairs.index) for rows in (base_rows, twin_rows))
    absent = [run for run in numbers if pd.isna(twin.sha256[run])]
    if absent:
        raise BadInput(
            f"Of {len(pairs)} twins {len(absent)} are missing, such as run {absent[0]}: "
            "finish the cell with `make cell`."
        )
    differing = (twin[cells.MADE_BY].fillna(0) != base[cells.MADE_BY].fillna(0)).any(axis=1)
    if differing.any():
        raise BadInput(
            f"Run {pairs.index[differing][0]} and its base were trained by different steps or "
            "processors: expected the same, or the two differ in more than one thing."
        )
    pairs["learns"] = twin.exact >= learns
    pairs["late"] = (twin.late - base.late).abs()
    word, other_word = (rows.late.map(who_writes, na_action="ignore") for rows in (base, twin))
    pairs["flip"] = (word != other_word).where(word.notna() & other_word.notna()).astype(float)
    pairs["nine"] = (twin.nine - base.nine).abs()
    pairs.loc[~pairs.learns, list(OUTCOMES)] = np.nan
    return pairs


class Comparison(NamedTuple):
    """A factor against the floor in one outcome.

    Attributes:
        factor: What is new in the twins.
        outcome: `late`, `flip` or `nine`.
        pairs: The bases whose two twins both learn.
        mean: The mean change of the factor's twins.
        floor: That of the floor's.
        low: The lower end of the 95% interval of the difference of the means.
        high: Its upper end.
        p: By the paired permutation test, one-sided.
        adjusted: The same, by Holm's correction for all tests.
        detectable: The difference that would have been seen with a power of `POWER`.
    """

    factor: str
    outcome: str
    pairs: int
    mean: float
    floor: float
    low: float
    high: float
    p: float
    adjusted: float
    detectable: float


def comparisons(factors: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]) -> list[Comparison]:
    """Return each factor against its floor in each outcome, corrected for all of them together.

    Of each factor, `factors` has what `compared` gives of its twins, and of its floor's.
    """
    results = []
    for factor, (pairs, floor) in factors.items():
        for outcome in OUTCOMES:
            both = pd.DataFrame({"factor": pairs[outcome], "floor": floor[outcome]}).dropna()
            x, y = both.factor.to_numpy(float), both.floor.to_numpy(float)
            low, high = interval(x - y)
            comparison = Comparison(
                factor=factor,
                outcome=outcome,
                pairs=len(both),
                mean=float(x.mean()),
                floor=float(y.mean()),
                low=low,
                high=high,
                p=permutation_p(x - y),
                adjusted=np.nan,
                detectable=detectable(x - y, len(factors) * len(OUTCOMES)),
            )
            results.append(comparison)
    adjusted = holm([result.p for result in results])
    return [result._replace(adjusted=p) for result, p in zip(results, adjusted, strict=True)]


def hangs_on_recipe(one: Comparison, other: Comparison) -> bool:
    """Return True if one recipe sees a difference from the floor and the other excludes it.

    The two compare the same factor with its floor, in the same outcome.
    """
    return any(
        first.adjusted < ALPHA and not second.low <= first.mean - first.floor <= second.high
        for first, second in ((one, other), (other, one))
    )


def permutation_p(differences: Values) -> float:
    """Return the p-value of a paired permutation test, that the mean difference is above zero.

    If factor and floor were alike, each difference could as well have the other sign.
    """
    result = scipy.stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        n_resamples=PERMUTATIONS,
        random_state=0,
    )
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values by the correction of Holm (1979): at most ALPHA of all tests err at once."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(np.argsort(p_values)):
        highest = max(highest, (len(p_values) - place) * p_values[index])
        adjusted[index] = min(1.0, highest)
    return adjusted


def interval(differences: Values) -> tuple[float, float]:
    """Return the 95% interval of the mean difference (Student's t)."""
    mean, error = differences.mean(), scipy.stats.sem(differences)
    half = scipy.stats.t.ppf(0.975, len(differences) - 1) * error
    return float(mean - half), float(mean + half)


def detectable(differences: Values, n_tests: int) -> float:
    """Return the mean difference that the test would have seen with a power of `POWER`.

    It is that of the normal approximation, with the spread that the differences have, at the
    strictest level of Holm's correction for so many tests.
    """
    quantiles = scipy.stats.norm.ppf([1 - ALPHA / n_tests, POWER])
    return float(quantiles.sum() * scipy.stats.sem(differences))


def unrelated(base_rows: pd.DataFrame, numbers: Collection[int]) -> dict[str, float]:
    """Return the mean changes between any two bases: how far runs are that share nothing."""
    rows = base_rows[base_rows.run.isin(numbers)]
    first, second = np.triu_indices(len(rows), 1)
    late, nine = rows.late.to_numpy(float), rows.nine.to_numpy(float)
    words = rows.late.map(who_writes, na_action="ignore").to_numpy()
    have_words = ~(np.isnan(late[first]) | np.isnan(late[second]))
    return {
        "late": float(np.nanmean(np.abs(late[first] - late[second]))),
        "flip": float((words[first] != words[second])[have_words].mean()),
        "nine": float(np.nanmean(np.abs(nine[first] - nine[second]))),
    }


# ---- the same runs, stopped on the way


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


def settled(way: pd.DataFrame, floor: "float | pd.Series[float]") -> int | None:
    """Return the first epoch from which on runs are as near their end as the floor's twins are.

    It is None if they are not at the last of the epochs. `floor` may have a value for each epoch.
    """
    is_near = ((way.change <= floor) & (way.runs >= FEWEST)).to_numpy()
    lasting = np.flip(np.logical_and.accumulate(np.flip(is_near)))
    epochs = way.index[lasting]
    return int(epochs[0]) if len(epochs) else None

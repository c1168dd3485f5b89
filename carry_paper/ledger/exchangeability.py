"""One test for a whole table: could the author's runs and ours be draws of the same runs?

The cells of a table are not independent facts, since a run that is high in one cell tends to be
high in others too. So each of our tables is compared with the author's once, before its cells are:
if runs could swap sources without a trace, the table is not told apart, and no single cell of it
differs.
"""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from carry_paper.ledger.intervals import Array

Labels = NDArray[np.bool_]

SIGNIFICANT = 0.05
FEWEST_RUNS = 3  # of each source: three and three can be relabeled in 20 ways, so p can be 0.05
AS_PRINTED = 0.005  # smaller differences between cells do not show in a printed table
ODD_RUNS = (2, 3, 4)  # of ours, for which the chance to notice them is given
DRAWS = 400  # of odd runs, from which that chance is counted


@dataclass(frozen=True)
class TableTest:
    """The comparison of a table's runs from two sources."""

    name: str  # such as `tab1/final_mlp`
    n_ours: int
    n_theirs: int
    cells: int  # that were compared
    # The share of relabelings whose energy distance is at least the one measured. This and the
    # others are None if there are fewer than `FEWEST_RUNS` on either side.
    p: float | None = None
    # The number of independent cells that would scatter as these do (their participation ratio).
    independent_cells: float | None = None
    # The chances that `ODD_RUNS` odd runs of ours would have been noticed, if none of his were odd.
    chances: tuple[float, ...] | None = None

    @property
    def told_apart(self) -> bool:
        """True if the runs of the two sources are not exchangeable."""
        return self.p is not None and self.p <= SIGNIFICANT

    @property
    def words(self) -> str:
        """The test in a sentence."""
        if self.p is None:
            return (
                f"The table has {self.n_theirs} of the author's runs and {self.n_ours} of ours:"
                f" its test takes {FEWEST_RUNS} of each."
            )
        told_apart = "told apart" if self.told_apart else "not told apart"
        sentence = (
            f"The whole table is {told_apart} from the author's (p = {self.p:.2g},"
            f" {self.cells} cells that vary, together like {self.independent_cells:.2g}"
            " independent ones)"
        )
        if self.chances is None:
            return f"{sentence}."
        parts = [
            f"{n_odd} odd runs of {self.n_ours} in {chance:.0%}"
            for n_odd, chance in zip(ODD_RUNS, self.chances, strict=True)
        ]
        return f"{sentence}. It would have noticed {', '.join(parts)} of cases."


def informative_cells(ours: Array, theirs: Array) -> list[int]:
    """Return the cells that can tell runs apart.

    They are not constant, and no copies or complements of an earlier one, as far as two printed
    decimals tell. Runs are `[run, cell]`.
    """
    runs = np.concatenate([ours, theirs])
    chosen: list[int] = []
    for cell in range(runs.shape[1]):
        column = runs[:, cell]
        others = runs[:, chosen]
        copies = np.isclose(column[:, None], others, rtol=0, atol=AS_PRINTED).all(0)
        complements = np.isclose(column[:, None], 1 - others, rtol=0, atol=AS_PRINTED).all(0)
        if np.ptp(column) > AS_PRINTED and not (copies | complements).any():
            chosen.append(cell)
    return chosen


def compare(name: str, ours: Array, theirs: Array) -> TableTest:
    """Return the test of whether runs, `[run, cell]`, are exchangeable between two sources."""
    cells = informative_cells(ours, theirs)
    test = TableTest(name, len(ours), len(theirs), len(cells))
    if min(test.n_ours, test.n_theirs) < FEWEST_RUNS:
        return test
    if not cells:
        return replace(test, p=1.0, independent_cells=0.0)
    ours, theirs = ours[:, cells], theirs[:, cells]
    labels = relabelings(len(ours), len(theirs))
    return replace(
        test,
        p=p_value(ours, theirs, labels),
        independent_cells=participation_ratio(ours, theirs),
        chances=chances(ours, theirs, labels),
    )


def relabelings(n_ours: int, n_theirs: int) -> Labels:
    """Return all ways to call `n_ours` of all runs ours, by `[relabeling, run]`, the true first."""
    n_runs = n_ours + n_theirs
    choices = list(combinations(range(n_runs), n_ours))
    labels = np.zeros((len(choices), n_runs), dtype=bool)
    for row, choice in enumerate(choices):
        labels[row, list(choice)] = True
    return labels


def energy_distances(runs: Array, labels: Labels) -> Array:
    """Return the energy distance between runs called ours and the others, by relabeling.

    It is twice the mean distance between runs of different sources, less the mean distance within
    each of them (Székely and Rizzo). Distances are Euclidean, over the cells.
    """
    distances = np.linalg.norm(runs[:, None] - runs[None], axis=-1)
    ours = labels.astype(float)
    theirs = 1 - ours
    n_ours, n_theirs = ours[0].sum(), theirs[0].sum()
    between = ((ours @ distances) * theirs).sum(1) / (n_ours * n_theirs)
    within_ours = ((ours @ distances) * ours).sum(1) / n_ours**2
    within_theirs = ((theirs @ distances) * theirs).sum(1) / n_theirs**2
    result: Array = 2 * between - within_ours - within_theirs
    return result


def p_value(ours: Array, theirs: Array, labels: Labels) -> float:
    """Return the share of relabelings that part the runs at least as far as their sources do."""
    distances = energy_distances(np.concatenate([ours, theirs]), labels)
    return float((distances >= distances[0] - 1e-12).mean())


def participation_ratio(ours: Array, theirs: Array) -> float:
    """Return the participation ratio of the cells, (Σλ)² / Σλ² of their covariance.

    So many independent cells would scatter as these do.
    """
    scatter = np.concatenate([ours - ours.mean(0), theirs - theirs.mean(0)])
    variances = np.linalg.svd(scatter, compute_uv=False) ** 2
    if variances.sum() == 0:
        return 0.0
    return float(variances.sum() ** 2 / (variances**2).sum())


def chances(ours: Array, theirs: Array, labels: Labels) -> tuple[float, ...] | None:
    """Return how often the test notices some odd runs of ours, by their number in `ODD_RUNS`.

    The runs of both sources fall into two kinds, by the largest gap along their leading axis; the
    kind with fewer runs is the odd one. Runs of each kind are drawn, with replacement: so many odd
    ones and common ones for ours, and common ones alone for the author's. None if there are not two
    kinds, or fewer of our runs than the odd ones.
    """
    runs = np.concatenate([ours, theirs])
    if len(ours) < max(ODD_RUNS) or np.ptp(runs, axis=0).max() <= AS_PRINTED:
        return None
    odd, common = two_kinds(runs)
    generator = np.random.default_rng(0)
    counts = []
    for n_odd in ODD_RUNS:
        n_noticed = 0
        for _ in range(DRAWS):
            drawn_odd = odd[generator.integers(len(odd), size=n_odd)]
            n_common = len(ours) - n_odd + len(theirs)
            drawn = common[generator.integers(len(common), size=n_common)]
            mixed = np.concatenate([drawn_odd, drawn])
            n_noticed += p_value(mixed[: len(ours)], mixed[len(ours) :], labels) <= SIGNIFICANT
        counts.append(n_noticed / DRAWS)
    return tuple(counts)


def two_kinds(runs: Array) -> tuple[Array, Array]:
    """Return the odd runs and the common ones, parted at the largest gap along the leading axis."""
    centred = runs - runs.mean(0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0]
    order = np.argsort(centred @ axis)
    gaps = np.diff((centred @ axis)[order])
    split = int(gaps.argmax()) + 1
    low, high = runs[order[:split]], runs[order[split:]]
    return (low, high) if len(low) <= len(high) else (high, low)

"""One test for a whole table: could the author's runs and ours be draws of the same runs?

The cells of a table are not independent facts, since a run that is high in one cell tends to be
high in others too. So each of our tables is compared with the author's once, before its cells are:
if runs could swap sources without a trace, the table is not told apart, and no single cell of it
differs.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.bool_]

SIGNIFICANT = 0.05
FEWEST_RUNS = 3  # of each source: three and three can be relabeled in 20 ways, so p can be 0.05
MOST_RELABELINGS = 100_000  # more than that are sampled
SAMPLED_RELABELINGS = 9_999
RUNS_FOR_A_RANK = 39  # with so many runs of ours, one run outside of all of them has p = 2 / 40
SHIFTS = np.arange(1, 101) / 100  # of each cell, tried for the smallest that would be noticed


@dataclass(frozen=True)
class TableTest:
    """The comparison of a table's runs from two sources.

    Attributes:
        p: The share of relabelings whose energy distance is at least the one measured.
        cells: How many cells were compared.
        independent_cells: How many independent cells would scatter as these do (their
            participation ratio).
        detectable_shift: The smallest shift of all cells that the test would have noticed, as a
            share from 0 to 1; None if it would not have noticed a shift of 1.
    """

    p: float
    cells: int
    independent_cells: float
    detectable_shift: float | None

    @property
    def told_apart(self) -> bool:
        """True if the runs of the two sources are not exchangeable."""
        return self.p <= SIGNIFICANT


def informative_cells(ours: Array, theirs: Array) -> list[int]:
    """Return the cells that can tell runs apart: not constant, and no copy or complement of another.

    Args:
        ours: The cells of our runs, by `[run, cell]`.
        theirs: Those of the author's.
    """
    runs = np.concatenate([ours, theirs])
    chosen: list[int] = []
    for cell in range(runs.shape[1]):
        column = runs[:, cell]
        if np.ptp(column) == 0:
            continue
        is_new = True
        for other in chosen:
            copy = np.allclose(column, runs[:, other], atol=1e-6)
            complement = np.allclose(column, 1 - runs[:, other], atol=1e-6)
            if copy or complement:
                is_new = False
        if is_new:
            chosen.append(cell)
    return chosen


def compare(ours: Array, theirs: Array) -> TableTest:
    """Return the test of whether runs are exchangeable between two sources, over informative cells.

    Args:
        ours: The cells of our runs, by `[run, cell]`, at least `FEWEST_RUNS` of them.
        theirs: Those of the author's, likewise.
    """
    cells = informative_cells(ours, theirs)
    if not cells:
        return TableTest(p=1.0, cells=0, independent_cells=0.0, detectable_shift=None)
    ours, theirs = ours[:, cells], theirs[:, cells]
    labels = relabelings(len(ours), len(theirs))
    return TableTest(
        p=p_value(ours, theirs, labels),
        cells=len(cells),
        independent_cells=participation_ratio(ours, theirs),
        detectable_shift=detectable_shift(ours, theirs, labels),
    )


def relabelings(n_ours: int, n_theirs: int) -> Labels:
    """Return the ways to call `n_ours` of all runs ours, by `[relabeling, run]`, the true one first.

    They are all that there are, or a fixed sample where these are more than `MOST_RELABELINGS`.
    """
    n_runs = n_ours + n_theirs
    if comb(n_runs, n_ours) <= MOST_RELABELINGS:
        choices = [list(choice) for choice in combinations(range(n_runs), n_ours)]
    else:
        generator = np.random.default_rng(0)
        choices = [list(range(n_ours))]
        for _ in range(SAMPLED_RELABELINGS):
            choices.append(generator.permutation(n_runs)[:n_ours].tolist())
    labels = np.zeros((len(choices), n_runs), dtype=bool)
    for row, choice in enumerate(choices):
        labels[row, choice] = True
    return labels


def energy_distances(runs: Array, labels: Labels) -> Array:
    """Return the energy distance between the runs that are called ours and the others, by relabeling.

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
    """Return how many independent cells would scatter as these do: (Σλ)² / Σλ² of their covariance."""
    scatter = np.concatenate([ours - ours.mean(0), theirs - theirs.mean(0)])
    variances = np.linalg.svd(scatter, compute_uv=False) ** 2
    if variances.sum() == 0:
        return 0.0
    return float(variances.sum() ** 2 / (variances**2).sum())


def detectable_shift(ours: Array, theirs: Array, labels: Labels) -> float | None:
    """Return the smallest shift of all cells that the test notices between runs that scatter as these.

    The two sources are moved to one mean, and then apart by the shift. None if not even a shift of
    1, the whole range of a share, is noticed.
    """
    centered_ours = ours - ours.mean(0)
    centered_theirs = theirs - theirs.mean(0)
    for shift in SHIFTS:
        if p_value(centered_ours + shift, centered_theirs, labels) <= SIGNIFICANT:
            return float(shift)
    return None


def p_of_rank(ours: Array, theirs: float) -> float:
    """Return how often one run would lie as far out among `ours` as `theirs` does, on either side.

    With n runs of ours no p below 2 / (n + 1) can come out, so that `RUNS_FOR_A_RANK` are needed.
    """
    below = int((ours < theirs).sum())
    above = int((ours > theirs).sum())
    outer = min(len(ours) - below, len(ours) - above)
    return min(1.0, 2 * (outer + 1) / (len(ours) + 1))

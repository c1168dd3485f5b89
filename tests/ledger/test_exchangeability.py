"""The test of a whole table, against counts made by hand and runs of known distribution."""

import math
from itertools import combinations

import numpy as np
import pytest

from carry_paper.ledger import exchangeability as ex


def test_energy_distance_by_brute_force():
    generator = np.random.default_rng(0)
    ours, author_runs = generator.random((3, 4)), generator.random((4, 4))
    runs = np.concatenate([ours, author_runs])
    labels = ex.relabelings(3, 4)
    assert len(labels) == math.comb(7, 3)
    for row, choice in zip(labels, combinations(range(7), 3), strict=True):
        rest = [run for run in range(7) if run not in choice]

        def mean_distance(first, second):
            return np.mean([math.dist(runs[i], runs[j]) for i in first for j in second])

        expected = (
            2 * mean_distance(choice, rest)
            - mean_distance(choice, choice)
            - mean_distance(rest, rest)
        )
        assert ex.energy_distances(runs, row[None])[0] == pytest.approx(expected)


def test_the_true_labels_come_first():
    labels = ex.relabelings(4, 3)
    assert labels[0].tolist() == [True] * 4 + [False] * 3
    assert (labels.sum(1) == 4).all()


def test_alike_runs_are_told_apart_as_often_as_the_level_says():
    generator = np.random.default_rng(1)
    told_apart = 0
    labels = ex.relabelings(5, 5)
    for _ in range(400):
        runs = generator.normal(size=(10, 3))
        told_apart += ex.p_value(runs[:5], runs[5:], labels) <= ex.SIGNIFICANT
    assert 0.02 <= told_apart / 400 <= 0.08


def test_the_chance_to_notice_odd_runs_is_that_of_six_against_six():
    """A run of the odd kind lies far off: then the test sees only how many there are of them."""
    generator = np.random.default_rng(2)
    runs = generator.normal(0.5, 0.001, (12, 5))
    runs[[0, 1, 6]] += 0.4
    odd, common = ex.two_kinds(runs)
    assert (len(odd), len(common)) == (3, 9)
    assert odd.min() > common.max()
    two, three, four = ex.compare("table", runs[:6], runs[6:]).chances
    assert two < three < four
    assert two < 0.1
    assert four > 0.5


def test_copies_complements_and_constant_cells_are_one_fact_or_none():
    generator = np.random.default_rng(3)
    column = generator.random((12, 1))
    independent = generator.random((12, 1))
    runs = np.hstack([column, 1 - column, column, np.ones((12, 1)), independent])
    assert ex.informative_cells(runs[:6], runs[6:]) == [0, 4]
    test = ex.compare("table", runs[:6], runs[6:])
    assert test.cells == 2
    assert 1 < test.independent_cells <= 2


def test_participation_ratio_of_known_covariances():
    independent = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert ex.participation_ratio(independent, np.zeros((1, 2))) == pytest.approx(2)
    copied = np.array([[1.0, 1], [-1, -1]])
    assert ex.participation_ratio(copied, np.zeros((1, 2))) == pytest.approx(1)
    assert ex.participation_ratio(np.ones((3, 2)), np.ones((3, 2))) == 0


def test_a_table_that_never_varies_cannot_be_told_apart():
    test = ex.compare("table", np.ones((3, 2)), np.ones((3, 2)))
    assert (test.p, test.cells, test.chances) == (1.0, 0, None)

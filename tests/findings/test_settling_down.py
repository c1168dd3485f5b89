"""When runs are settled, on planted rows."""

import pandas as pd
import pytest

from carry_paper.findings import settling_down

END = [1.0, 0.9, 0.2, 0.4]
NUMBERS = range(200, 200 + len(END))


def rows(late):
    return pd.DataFrame({"run": NUMBERS, "late": late})


def test_runs_on_the_way_are_compared_with_what_they_become():
    stopped = {20: rows([0.9, 1.0, 0.3, 0.3]), 10: rows([None, 0.5, 0.9, 0.4]), 2: rows([None] * 4)}
    way = settling_down.on_the_way(rows(END), stopped)
    assert way.index.tolist() == [2, 10, 20]
    assert way.runs.tolist() == [0, 3, 4]
    assert way.change[10] == pytest.approx((0.4 + 0.7 + 0) / 3)
    assert way["rank"][20] == pytest.approx(3.5 / (4.5 * 5) ** 0.5)  # ties share a rank
    assert way.flip[20] == pytest.approx(0.5)  # 1.0 is late, and 0.9 is not
    assert way.low[20] < way.change[20] < way.high[20]
    assert way.change.isna().tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("changes", "runs", "epoch"),
    [
        ([0.3, 0.1, 0.1], [32, 32, 32], 5),
        ([0.1, 0.3, 0.1], [32, 32, 32], 10),  # there and at later ones
        ([0.1, 0.1, 0.1], [10, 23, 24], 10),  # of too few runs
        ([0.1, 0.1, 0.3], [32, 32, 32], None),
    ],
)
def test_settled_is_from_where_on_no_epoch_is_further_than_the_floor(changes, runs, epoch):
    way = pd.DataFrame({"change": changes, "runs": runs}, index=[2, 5, 10])
    assert settling_down.settled(way, 0.2) == epoch

"""How costs grow: the powers of planted costs, and that each size is measured."""

import pytest

from carry_paper.bench import growth


def test_the_powers_are_those_of_planted_costs():
    rows = []
    for size in (1, 2, 4):
        rows.append({"cost": "one", "what": "layers", "size": size, "ms": 3.0 * size})
        rows.append({"cost": "other", "what": "layers", "size": size, "ms": 5.0 * size**2})
        rows.append({"cost": "one", "what": "digits", "size": size, "ms": 7.0})
    fits = growth.exponents(rows)
    assert [*zip(fits["cost"], fits["what"], strict=True)] == [
        ("one", "layers"),
        ("other", "layers"),
        ("one", "digits"),
    ]
    assert fits["exponent"].tolist() == pytest.approx([1, 2, 0], abs=1e-9)
    assert fits["sizes"].iloc[0] == [1, 2, 4]
    assert fits["ms"].iloc[1] == [5, 20, 80]


def test_each_size_has_both_costs_but_for_numbers_of_sums():
    points = [
        growth.Point("layers", 1, "n1_s0.01_w0.2_dff16_d16", n_sums=20),
        growth.Point("sums", 20, "n1_s0.01_w0.2_dff16_d16", n_sums=20),
    ]
    rows = growth.growth(points, rounds=1)
    assert [(row["what"], row["cost"]) for row in rows] == [
        ("layers", growth.MEASURING),
        ("layers", growth.TRAINING),
        ("sums", growth.MEASURING),
    ]
    assert all(row["ms"] > 0 for row in rows)


def test_the_sizes_are_those_of_the_models_that_are_measured():
    """A name that were another model's would give a cost that is none of this size."""
    sizes = {
        "layers": lambda config: config.layers,
        "digits": lambda config: config.width,
        "width of the MLP": lambda config: config.d_ff,
        "width of the model": lambda config: config.d_model,
    }
    points = growth.points()
    assert {point.what for point in points} == {"sums", "runs", *sizes}
    for point in points:
        config = growth.groups.find(point.group).config
        if point.what in sizes:
            assert sizes[point.what](config) == point.size
        else:
            assert point.size == {"sums": point.n_sums, "runs": point.runs}[point.what]

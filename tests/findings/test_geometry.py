"""Principal axes, separations, digits in order and pentagons: by brute force and planted."""

import math
from dataclasses import replace

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.model import ModelConfig, Transformer
from carry_paper.findings import adder, geometry, pentagon
from carry_paper.findings.base import Fields
from tests.conftest import random_model
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


@pytest.fixture
def cloud() -> tuple[torch.Tensor, torch.Tensor]:
    """Points mostly along one direction of ten, and how far along."""
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(300, generator=generator)
    x = 0.1 * torch.randn(300, 10, generator=generator)
    x[:, 3] -= 5 * along
    return x, along


def test_the_leading_axis_is_the_one_with_most_variance_and_points_along_the_label(cloud):
    x, along = cloud
    points, share = geometry.principal_axes(x, [along])
    assert torch.corrcoef(torch.stack([points[:, 0], along]))[0, 1] > 0.999
    assert share[0] > 0.99
    assert list(share) == sorted(share, reverse=True)
    assert points.mean(0).abs().max() < 1e-5


def test_directions_are_the_unit_vectors_on_which_points_are_coordinates(cloud):
    x, along = cloud
    points, _ = geometry.principal_axes(x, [along])
    directions = geometry.axis_directions(x, points)
    assert_close(directions @ directions.T, torch.eye(6))
    assert_close((x - x.mean(0)) @ directions.T, points)


def test_an_axis_is_turned_by_the_label_that_it_tells_best(cloud):
    """Against a weaker label, which points the other way."""
    x, along = cloud
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(2))
    weaker = along + noise
    for sign in (1, -1):
        label = -sign * along
        points, _ = geometry.principal_axes(x, [label, sign * weaker])
        assert torch.corrcoef(torch.stack([points[:, 0], label]))[0, 1] > 0.999


def test_threshold_accuracy_is_the_best_over_all_thresholds():
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        x, positive = (
            torch.randn(15, generator=generator),
            torch.rand(15, generator=generator) < 0.4,
        )
        if positive.all() or not positive.any():
            continue
        best = max(
            max(side, 1 - side)
            for t in [*x.tolist(), -9.0]
            for side in [
                ((x > t)[positive].double().mean() + (x <= t)[~positive].double().mean()).item() / 2
            ]
        )
        assert geometry.threshold_accuracy(x, positive) == pytest.approx(best)


def test_pocket_accuracy_counts_the_nearest_centre_label_by_label():
    points = torch.tensor([[0.0, 0.0], [0.2, 0.0], [9.0, 0.0], [10.0, 0.0], [0.3, 0.0]])
    labels = torch.tensor([0, 0, 1, 1, 1])  # the last one lies in the other pocket
    assert geometry.centroid_accuracy(points, labels) == pytest.approx((1 + 2 / 3) / 2)


def test_the_journey_says_of_each_sum_what_a_schoolbook_says(config: ModelConfig):
    model, width = random_model(config), config.width
    n_digits = min(width, 3)
    a, b = sums.long_sums(40, n_digits, torch.Generator().manual_seed(0))
    columns = geometry.default_columns(model, n_digits)
    planes = geometry.journey(model, a, b, columns)
    assert len(columns) == n_digits * min(config.layers, 2)
    assert [(p.layer, p.position) for p in planes[::2]] == [
        (layer, position) for layer, position, _ in columns
    ]
    assert [p.after for p in planes] == ["attention", "MLP"] * len(columns)
    tokens = sums.encode(a, b, config.layout)
    digits = sums.digits(b if config.causal else a, width)
    for plane, (layer, position, column) in zip(planes[::2], columns, strict=True):
        if layer < config.layers - 1:
            assert torch.equal(tokens[:, position], digits[:, column])
        else:
            assert position == config.layout.answer[column]
        for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            low, place = 10 ** (width - 1 - column), 10 ** (width - column)
            total, carry = x // low % 10 + y // low % 10, x % low + y % low >= low
            if layer == config.layers - 1:
                assert (plane.digit[i], plane.split[i]) == ((x + y) % place // low, carry)
            else:
                assert (plane.digit[i], plane.split[i]) == (total % 10, total >= 10)
        assert plane.points.shape == (40, geometry.AXES)


def test_the_journey_takes_each_stream_where_its_column_is(config: ModelConfig):
    model = random_model(config)
    a, b = sums.long_sums(40, min(config.width, 3), torch.Generator().manual_seed(0))
    for plane in geometry.journey(model, a, b):
        name = f"blocks.{plane.layer}.{geometry.AFTER[plane.after]}"
        everywhere = measure.activations(model, a, b, [name])[name]
        _, share = geometry.principal_axes(everywhere[:, plane.position], [])
        assert plane.share == pytest.approx(share, rel=1e-3)


@pytest.mark.usefixtures("few_random_sums")
def test_in_a_decoder_tens_are_looked_for_at_the_second_numbers_last_digits():
    model = random_model(ModelConfig(causal=True, d_model=16, d_ff=16), noise=0.5)
    planes = geometry.journey(model, *geometry.random_sums(), [(0, 5, 1), (0, 6, 2)])
    lowest = min(geometry.plane_accuracy(plane) for plane in planes if plane.after == "MLP")
    assert geometry.decoder_tens(model) == {"value": lowest}


def plane_of(points: torch.Tensor, split: torch.Tensor) -> geometry.Plane:
    return geometry.Plane(
        0, "MLP", 0, points, (0.2,) * 6, torch.zeros(len(points), dtype=torch.int64), split
    )


def test_apart_looks_at_the_leading_plane_and_apart_on_all_axes_at_every_direction():
    split = torch.arange(60) % 3 == 0
    noise = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    assert geometry.plane_accuracy(plane_of(noise, split)) < 0.8
    leading = noise.clone()
    leading[:, 1] += 10 * split
    assert geometry.plane_accuracy(plane_of(leading, split)) == 1
    third = noise.clone()
    third[:, 2] += 10 * split
    assert geometry.plane_accuracy(plane_of(third, split)) < 0.8
    slanted = noise.clone()  # apart along axis 5 minus axis 6 only
    slanted[:, 5] = slanted[:, 4] + 0.1 * noise[:, 5] + 0.9 * split
    assert geometry.plane_accuracy(plane_of(slanted, split)) < 0.8
    assert geometry.accuracy_on_all_axes(plane_of(slanted, split)) == 1
    assert geometry.accuracy_on_all_axes(plane_of(slanted[:, torch.randperm(6)], split)) == 1
    assert math.isnan(geometry.accuracy_on_all_axes(plane_of(noise, split & False)))


def test_digits_in_order_along_either_axis():
    digit = torch.arange(100) % 10
    side = torch.arange(100) < 50
    noise = torch.rand(100, generator=torch.Generator().manual_seed(0))
    assert geometry.digit_order(
        torch.stack([noise, -2.0 * digit], 1), digit, side
    ) == pytest.approx(1)
    # in order on each side, though the two overlap backwards
    apart = torch.where(side, digit, 20 - digit).float()
    assert geometry.digit_order(torch.stack([apart, noise], 1), digit, side) == pytest.approx(1)
    assert geometry.digit_order(torch.stack([apart, noise], 1), digit, ~side) == pytest.approx(1)
    # the third axis is not looked at
    assert geometry.digit_order(torch.stack([noise, noise, digit], 1), digit, side) < 0.4
    shuffled = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])[digit]
    assert geometry.digit_order(torch.stack([shuffled, noise], 1).float(), digit, side) < 0.8


def test_planted_digits_are_in_order_after_both_parts():
    digit = torch.arange(100) % 10
    plane = replace(plane_of(digit[:, None].expand(-1, 2).float(), digit < 5), digit=digit)
    planes = [replace(plane, after=part) for part in geometry.AFTER]
    carry_out = torch.arange(100)[:, None] < 50
    assert geometry.digit_orders(planes, carry_out) == {"attention": [1.0], "MLP": [1.0]}


def test_orders_of_runs_are_those_of_their_planes_and_the_mean():
    model = random_model(ModelConfig(width=2, d_model=16, d_ff=16), noise=0.5)
    a, b = sums.all_sums(2)
    orders = geometry.digit_orders(geometry.journey(model, a, b), carries.symbols(a, b, 2) > 0)
    values = orders["attention"] + orders["MLP"]
    frame = geometry.orders_of_runs([(3, model)], a, b)
    assert frame.loc[3].to_list() == pytest.approx([*values, sum(values) / len(values)])


def ring(step: float, count: int = 10) -> torch.Tensor:
    """Digits on a circle, each so many tenths of it after the one before."""
    angle = 2 * math.pi * step * torch.arange(count, dtype=torch.float64) / 10
    return torch.polar(torch.ones(count, dtype=torch.float64), angle)


def test_a_pentagon_of_pairs_scores_one_either_way_round_wherever_it_is():
    for corners in (ring(2), ring(-2), 3 * ring(2) * torch.tensor(1j) + (2 - 5j)):
        assert pentagon.score(corners).item() == pytest.approx(1)


def test_the_score_is_what_the_best_fitting_pentagon_explains():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(10, dtype=torch.complex128, generator=generator)
    spread = z - z.mean()
    fits = []
    for corners in (ring(2), ring(-2)):  # least squares for size and turn
        size = (corners.conj() * spread).sum() / (corners.conj() * corners).sum()
        fits.append(
            1 - (spread - size * corners).abs().square().sum() / spread.abs().square().sum()
        )
    assert pentagon.score(z).item() == pytest.approx(max(fit.item() for fit in fits))
    assert pentagon.spectrum(z).sum().item() == pytest.approx(1)


def planted(
    monkeypatch: pytest.MonkeyPatch, strength: float
) -> tuple[Fields, torch.Tensor, torch.Tensor]:
    """A model whose stream at position 8 has the digit sum's pentagon and a carry axis."""
    model = Transformer(ModelConfig(d_model=16, d_ff=8)).eval()
    a, b = sums.long_sums(3_000, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)
    stream = 0.3 * torch.randn(len(a), 10, 16, generator=torch.Generator().manual_seed(1))
    corner = ring(2)[wires.ones[:, 1]]
    stream[:, 8, 3] += strength * corner.real
    stream[:, 8, 7] += strength * corner.imag
    stream[:, 8, 1] += wires.carry_in[:, 1]
    monkeypatch.setattr(
        measure,
        "activations",
        lambda model, a, b, names, read: dict.fromkeys(names, stream[:, read]),
    )
    fields, points, _ = pentagon.look_for_pentagon(model, a, b)
    return fields, points, wires.carry_in[:, 1]


def test_a_planted_pentagon_is_found_and_turned_by_the_carry(monkeypatch):
    fields, points, carry_in = planted(monkeypatch, 3)
    assert fields["value"] > 0.98
    assert pentagon.can_be_seen(fields)
    assert (fields["score_there"], fields["best_plane"]) == (fields["value"], [1, 2])
    assert (
        fields["value"] > fields["shuffled_labels_reach_there"] >= fields["shuffled_labels_reach"]
    )
    # the digit is one more than the sum's
    assert fields["vertices_further_with_a_one"] == pytest.approx(-1, abs=0.05)
    assert geometry.threshold_accuracy(points[:, 2], carry_in) > 0.9
    nothing, *_ = planted(monkeypatch, 0)
    assert nothing["value"] < 0.6
    assert not pentagon.can_be_seen(nothing)


def test_nines_are_apart_where_they_have_a_place_of_their_own():
    digit_sum = torch.arange(19).repeat(20)
    by_side = torch.sign(digit_sum - 9).double()
    noise = torch.randn(len(digit_sum), 2, generator=torch.Generator().manual_seed(0)) / 10
    apart = torch.stack([by_side, 5 - 5 * by_side.abs()], 1) + noise
    assert geometry.nines_apart(apart.float(), digit_sum) == 1
    with_the_larger = torch.stack([(digit_sum >= 9).double(), torch.zeros(len(digit_sum))], 1)
    assert geometry.nines_apart((with_the_larger + noise).float(), digit_sum) < 0.8


def test_the_leading_axis_must_separate_and_win():
    fields = geometry.leading({7: [1.0, 0.5], 8: [0.99, 0.6]})
    assert (fields["value"], geometry.leads(fields)) == (0.99, True)
    assert not geometry.leads(geometry.leading({7: [0.96, 0.97], 8: [0.99, 0.6]}))
    assert not geometry.leads(geometry.leading({7: [0.94, 0.5], 8: [0.99, 0.6]}))

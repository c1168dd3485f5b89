"""Principal axes and what is apart on them, against brute force on a few points."""

import math

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from carry_core import carries, sums
from carry_core.findings import geometry
from carry_core.model import ModelConfig, Transformer


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


def test_each_axis_follows_its_strongest_label_and_constant_labels_say_nothing(cloud):
    x, along = cloud
    points, _ = geometry.principal_axes(x, [-along, along + torch.randn(300), torch.ones(300)])
    assert torch.corrcoef(torch.stack([points[:, 0], along]))[0, 1] < -0.999


def test_threshold_accuracy_is_the_best_over_all_thresholds():
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        x, positive = torch.randn(15, generator=generator), torch.rand(15, generator=generator) < 0.4
        if positive.all() or not positive.any():
            continue
        best = max(
            max(side, 1 - side)
            for t in [*x.tolist(), -9.0]
            for side in [((x > t)[positive].double().mean() + (x <= t)[~positive].double().mean()).item() / 2]
        )
        assert geometry.threshold_accuracy(x, positive) == pytest.approx(best)


def test_pocket_accuracy_counts_the_nearest_centre_label_by_label():
    points = torch.tensor([[0.0, 0.0], [0.2, 0.0], [9.0, 0.0], [10.0, 0.0], [0.3, 0.0]])
    labels = torch.tensor([0, 0, 1, 1, 1])  # the last one lies in the other pocket
    assert geometry.pocket_accuracy(points, labels) == pytest.approx((1 + 2 / 3) / 2)


def test_the_journey_says_of_each_sum_what_a_schoolbook_says(config: ModelConfig):
    torch.manual_seed(0)
    model, width = Transformer(config).eval(), config.width
    n_digits = min(width, 3)
    a, b = sums.long_sums(40, n_digits, torch.Generator().manual_seed(0))
    planes = geometry.journey(model, a, b, n_digits)
    columns = geometry.default_columns(model, n_digits)
    assert [(p.layer, p.position) for p in planes[::2]] == [(layer, position) for layer, position, _ in columns]
    assert [p.after for p in planes] == ["attention", "MLP"] * len(columns)
    for plane, (layer, _, column) in zip(planes[::2], columns, strict=True):
        for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            low, place = 10 ** (width - 1 - column), 10 ** (width - column)
            total, carry = x // low % 10 + y // low % 10, x % low + y % low >= low
            if layer == config.layers - 1:
                assert (plane.digit[i], plane.split[i]) == ((x + y) % place // low, carry)
            else:
                assert (plane.digit[i], plane.split[i]) == (total % 10, total >= 10)
        assert torch.equal(plane.task, carries.classify(a, b, n_digits))
        assert plane.points.shape == (40, geometry.AXES)


def plane_of(points: torch.Tensor, split: torch.Tensor) -> geometry.Plane:
    nothing = torch.zeros(len(points), dtype=torch.int64)
    return geometry.Plane(0, "MLP", 0, points, (0.2,) * 6, nothing, nothing, split)


def test_apart_looks_at_the_leading_plane_and_apart_on_all_axes_at_every_direction():
    split = torch.arange(60) % 3 == 0
    noise = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    assert geometry.apart(plane_of(noise, split)) < 0.8
    leading = noise.clone()
    leading[:, 1] += 10 * split
    assert geometry.apart(plane_of(leading, split)) == 1
    slanted = noise.clone()  # apart along axis 5 minus axis 6 only
    slanted[:, 5] = slanted[:, 4] + 0.1 * noise[:, 5] + 0.9 * split
    assert geometry.apart(plane_of(slanted, split)) < 0.8
    assert geometry.apart_on_all_axes(plane_of(slanted, split)) == 1
    assert geometry.apart_on_all_axes(plane_of(slanted[:, torch.randperm(6)], split)) == 1
    assert math.isnan(geometry.apart_on_all_axes(plane_of(noise, split & False)))


def test_the_best_direction_of_unequal_sides_is_scikit_learns():
    """A few sums that scatter along the second axis, many along the first: each side weighs by its number."""
    generator = torch.Generator().manual_seed(0)
    split = torch.arange(300) < 30
    points = torch.randn(300, 6, generator=generator).double()
    points[split, 1] *= 8
    points[~split, 0] *= 3
    points[split, :2] += 3
    along = LinearDiscriminantAnalysis(solver="eigen").fit(points.numpy(), split.numpy()).transform(points.numpy())
    expected = geometry.threshold_accuracy(torch.from_numpy(along[:, 0]), split)
    assert geometry.apart_on_all_axes(plane_of(points, split)) == pytest.approx(expected, abs=1e-9)
    assert 0.6 < expected < 0.95

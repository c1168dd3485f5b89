"""Pentagons and full adders, planted and taken away."""

import math

import pytest
import torch

from carry_core import measure, sums
from carry_core.findings import adder, geometry, pentagon
from carry_core.findings.survey import Evidence
from carry_core.model import ModelConfig, Transformer


def ring(step: float, count: int = 10) -> torch.Tensor:
    """Digits on a circle, each so many tenths of it after the one before."""
    angle = 2 * math.pi * step * torch.arange(count, dtype=torch.float64) / 10
    return torch.polar(torch.ones(count, dtype=torch.float64), angle)


# ---------------------------------------------------------------- pentagons


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
        fits.append(1 - (spread - size * corners).abs().square().sum() / spread.abs().square().sum())
    assert pentagon.score(z).item() == pytest.approx(max(fit.item() for fit in fits))
    assert pentagon.spectrum(z).sum().item() == pytest.approx(1)


def test_a_turn_is_counted_in_vertices_in_the_order_of_the_digits():
    for way in (2, -2):
        vertex = torch.polar(torch.tensor(1.0), torch.tensor(math.copysign(2 * math.pi / 5, way))).to(torch.complex128)
        assert pentagon.turn(ring(way), ring(way) * vertex) == pytest.approx(1, abs=1e-6)
        assert pentagon.turn(ring(way), ring(way).roll(1)) == pytest.approx(-1, abs=1e-6)  # digit d where d - 1 was


def planted(monkeypatch: pytest.MonkeyPatch, strength: float) -> pentagon.Pentagon:
    """A model whose stream at position 8 has the digit sum's pentagon, and a third axis for the carry."""
    model = Transformer(ModelConfig(d_model=16, d_ff=8)).eval()
    a, b = sums.long_sums(3_000, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)
    stream = 0.3 * torch.randn(len(a), 10, 16, generator=torch.Generator().manual_seed(1))
    corner = ring(2)[wires.ones[:, 1]]
    stream[:, 8, 3] += strength * corner.real
    stream[:, 8, 7] += strength * corner.imag
    stream[:, 8, 1] += wires.arrives[:, 1]
    monkeypatch.setattr(measure, "activations", lambda model, a, b, names: dict.fromkeys(names, stream))
    return pentagon.pentagon(model, a, b)


def test_a_planted_pentagon_is_found_and_turned_by_the_carry(monkeypatch):
    found = planted(monkeypatch, 3)
    assert found.score > 0.98
    assert found.rank == 1
    assert found.best == found.score
    assert found.plane == (0, 1)
    assert found.score > found.best_chance >= found.chance
    assert found.turn == pytest.approx(-1, abs=0.05)  # the digit is one more than the digit sum
    assert geometry.threshold_accuracy(found.points[:, 2], found.arrives) > 0.9
    nothing = planted(monkeypatch, 0)
    assert nothing.score < 0.6
    assert nothing.rank <= pentagon.RANK_AMONG_SHUFFLED


# ---------------------------------------------------------------- full adders


def hand_made(**wrong: torch.Tensor) -> adder.Parts:
    """A network that is a full adder, but for the parts that are given."""
    a, b = sums.long_sums(1_000, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)
    right = {
        "tens": ((1, 2), wires.tens[:, 1:].long()),
        "ones": ((1, 2), wires.ones[:, 1:]),
        "halfway": ((1, 2), wires.ones[:, 1:]),
        "early": ((0, 1), wires.arrives[:, :2].long()),
        "carry": ((0, 1), wires.arrives[:, :2].long()),
        "digit": ((0, 1, 2), wires.digit),
        "bypassed": ((0, 1, 2), wires.ones),
        "leaky": ((0, 1, 2), wires.digit),
    }
    coin = torch.randint(2, (1_000, 2), generator=torch.Generator().manual_seed(1))
    found = {name: expected for name, (_, expected) in right.items()} | {"early": coin} | wrong
    return adder.Parts(wires, **{name: adder.Truth(*right[name], found[name]) for name in right})


def test_a_hand_made_full_adder_is_one():
    parts = hand_made()
    assert parts.claimed == dict.fromkeys(("tens", "ones", "carry", "digit", "bypassed"), 1)
    assert adder.is_full_adder(parts)


@pytest.mark.parametrize("name", ["tens", "digit"])
def test_one_broken_part_is_enough_to_be_none(name):
    broken = getattr(hand_made(), name).expected.clone()
    broken[:20, 0] += 1  # one in fifty, in one column
    parts = hand_made(**{name: broken})
    assert parts.claimed[name] == pytest.approx(0.98)
    assert not adder.is_full_adder(parts)


def test_the_ledger_has_each_networks_worst_part(monkeypatch):
    broken = hand_made().bypassed.expected.clone()
    broken[:100, 2] += 1
    made = {0: hand_made(), 4: hand_made(bypassed=broken)}
    monkeypatch.setattr(Evidence, "models", lambda self, group: {run: run for run in made})
    monkeypatch.setattr(adder, "parts", lambda run, a, b: made[run])
    found = adder.full_adder(Evidence("ours"))
    assert found.value.to_dict() == pytest.approx({0: 1, 4: 0.9})
    assert found.shows.to_dict() == {0: True, 4: False}

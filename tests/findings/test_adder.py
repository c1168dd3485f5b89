"""The schoolbook's adder against addition, and its readers on planted streams."""

import pytest
import torch

from carry_core import measure, sums
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig, Transformer
from carry_paper.findings import adder
from tests.conftest import random_model

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("width", [2, 3])
def test_the_schoolbook_adds_by_brute_force(width):
    a, b = (
        sums.all_sums(width)
        if width == 2
        else sums.long_sums(3_000, 3, torch.Generator().manual_seed(0))
    )
    wires = adder.schoolbook(a, b, width)
    assert torch.equal((wires.digit * 10 ** torch.arange(width - 1, -1, -1)).sum(1), a + b)
    for row in range(0, len(a), 37):
        x, y = int(a[row]), int(b[row])
        for i in range(width):
            low = 10 ** (width - 1 - i)
            total = x // low % 10 + y // low % 10
            assert (wires.ones[row, i], wires.tens[row, i]) == (total % 10, total >= 10)
            assert wires.carry_in[row, i] == (x % low + y % low >= low)


# ---------------------------------------------------------------- readers


@pytest.fixture
def pairs() -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randint(10, (2, 3_000), generator=generator)
    return left, right, generator


def test_a_reader_reads_a_half_adder_for_pairs_that_it_has_not_seen(pairs):
    left, right, generator = pairs
    units, tens = (left + right) % 10, left + right >= 10
    stream = (
        torch.randn(10, 64, generator=generator)[units]
        + torch.randn(2, 64, generator=generator)[tens.long()]
    )
    stream += 0.1 * torch.randn(stream.shape, generator=generator)
    has_other_pairs = (left + right > 0) & (left + right < 18)
    for label in (units, tens.long(), left + right):
        correct = adder.probe_predictions(stream, label, left, right) == label
        assert correct[has_other_pairs].double().mean() > 0.99


def test_a_reader_does_not_read_a_stream_that_only_holds_both_digits(pairs):
    left, right, generator = pairs
    units, tens = (left + right) % 10, left + right >= 10
    stream = (
        torch.randn(10, 64, generator=generator)[left]
        + torch.randn(10, 64, generator=generator)[right]
    )
    stream += 0.1 * torch.randn(stream.shape, generator=generator)
    assert (adder.probe_predictions(stream, units, left, right) == units).double().mean() < 0.2
    assert (
        adder.probe_predictions(stream, tens.long(), left, right) == tens
    ).double().mean() < 0.95


def test_a_reader_cannot_learn_labels_of_pairs_by_heart(pairs):
    left, right, generator = pairs
    # every pair its own place
    stream = torch.randn(100, 128, generator=generator)[10 * left + right]
    coin = torch.randint(2, (100,), generator=generator)[10 * left + right]
    assert (
        abs((adder.probe_predictions(stream, coin, left, right) == coin).double().mean() - 0.5)
        < 0.2
    )


# ---------------------------------------------------------------- the network's parts


@pytest.fixture
def small() -> Transformer:
    return random_model(ModelConfig(d_model=16, d_ff=12), 3)


def test_the_parts_are_read_where_they_are(small):
    a, b = sums.long_sums(600, 3, torch.Generator().manual_seed(0))
    parts, wires = adder.parts(small, a, b), adder.schoolbook(a, b)
    left, right = sums.digits(a, 3), sums.digits(b, 3)
    # of the units of a, and at the hundreds of the answer
    for truth, name, position, column, label in (
        (parts["ones"], "blocks.0.resid_post", 2, 1, wires.ones[:, 2]),
        (parts["halfway"], "blocks.0.resid_mid", 2, 1, wires.ones[:, 2]),
        (parts["early"], "blocks.0.resid_post", 7, 0, wires.carry_in[:, 0].long()),
        (parts["carry"], "blocks.1.resid_mid", 7, 0, wires.carry_in[:, 0].long()),
    ):
        stream, digit_column = (
            measure.activations(small, a, b, [name])[name][:, position],
            2 if position == 2 else 1,
        )
        assert torch.equal(truth.expected[:, column], label)
        assert torch.equal(
            truth.predicted[:, column],
            adder.probe_predictions(stream, label, left[:, digit_column], right[:, digit_column]),
        ), name
    for truth, mlps in ((parts["digit"], frozenset()), (parts["bypassed"], {1})):
        logits = small(sums.encode(a, b, small.config.layout), Ablation(mlps=mlps).hook(small))
        assert torch.equal(truth.predicted, logits[:, 7:].argmax(-1))
    assert torch.equal(parts["digit"].expected, sums.digits(a + b, 3))
    assert torch.equal(parts["bypassed"].expected, (left + right) % 10)


# ---------------------------------------------------------------- full adders


def hand_made(**wrong: torch.Tensor) -> dict[str, adder.Truth]:
    """A network that is a full adder, but for the parts that are given."""
    a, b = sums.long_sums(1_000, 3, torch.Generator().manual_seed(0))
    wires = adder.schoolbook(a, b)
    right = {
        "tens": ((1, 2), wires.tens[:, 1:].long()),
        "ones": ((1, 2), wires.ones[:, 1:]),
        "halfway": ((1, 2), wires.ones[:, 1:]),
        "early": ((0, 1), wires.carry_in[:, :2].long()),
        "carry": ((0, 1), wires.carry_in[:, :2].long()),
        "digit": ((0, 1, 2), wires.digit),
        "bypassed": ((0, 1, 2), wires.ones),
        "leaky": ((0, 1, 2), wires.digit),
    }
    coin = torch.randint(2, (1_000, 2), generator=torch.Generator().manual_seed(1))
    predictions = (
        {name: expected for name, (_, expected) in right.items()} | {"early": coin} | wrong
    )
    return {name: adder.Truth(*right[name], predictions[name]) for name in right}


def test_a_network_is_as_good_as_its_worst_part(monkeypatch):
    broken = hand_made()["bypassed"].expected.clone()
    broken[:300, 2] += 1
    for parts, lowest in ((hand_made(), 1), (hand_made(bypassed=broken), 0.7)):
        monkeypatch.setattr(adder, "parts", lambda model, a, b, parts=parts: parts)
        measured = adder.full_adder(Transformer(ModelConfig(d_model=16, d_ff=8)))
        assert measured["value"] == pytest.approx(lowest)
        assert adder.mlp_is_the_second_xor(measured) == (lowest == 1)
        assert adder.first_layer_adds(measured)
        assert adder.attention_is_the_carry_line(measured)
    early = hand_made()["carry"].expected
    monkeypatch.setattr(adder, "parts", lambda model, a, b: hand_made(early=early))
    measured = adder.full_adder(Transformer(ModelConfig(d_model=16, d_ff=8)))
    assert not adder.attention_is_the_carry_line(measured)  # it was there before


def test_truth_tables_have_the_schoolbook_s_values_and_where_a_part_departs():
    a, b = sums.all_sums(2)
    wires = adder.schoolbook(a, b, 2)
    columns = (0, 1)
    expected = {
        "tens": wires.tens.long(),
        "ones": wires.ones,
        "digit": wires.digit,
        "bypassed": wires.ones,
        "leaky": wires.digit,
    }
    truths = {name: adder.Truth(columns, x, x) for name, x in expected.items()}
    carry_in = wires.carry_in[:, :1].long()
    truths["carry"] = adder.Truth((0,), carry_in, carry_in)
    truths["early"] = adder.Truth((0,), carry_in, torch.zeros_like(carry_in))  # it knows nothing
    tables = adder.truth_tables(truths, wires)
    for i in range(10):
        for j in range(10):
            assert tables["ones"][i, j] == (i + j) % 10
            # all sums of two digits: none makes ten in its leading column, and some do in the other
            assert tables["tens"][i, j] == (i + j >= 10)
        # Rows: no carry-in, carry-in; with nine and a carry-in the sum would have three digits.
        possible = i < 9
        assert tables["digit"][:, i].tolist() == [i, i + 1 if possible else -1]
        assert tables["bypassed"][:, i].tolist() == [i, i if possible else -1]
    assert (tables["ones_share"] == 1).all()
    # the units hand a carry on from ten on; they have no carry-in themselves
    assert tables["carry"][:, 0].tolist() == [0, 0, -1, 1]
    assert tables["early"][:, 0].tolist() == [0, 0, -1, 0]
    assert tables["early_share"][[0, 1, 3], 0].tolist() == [1, 1, 0]

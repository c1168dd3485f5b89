"""Interchange interventions, by brute force and on networks whose algorithm was made by hand."""

import pandas as pd
import pytest
import torch
from torch import nn

from carry_core import measure, runs, sums
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.interventions import Patch
from carry_core.model import ModelConfig, Transformer
from carry_core.pairs import Contrast, sample_pairs
from carry_core.sums import Layout
from carry_fast.swaps import PatchedPasses
from carry_paper import catalogue
from carry_paper.findings import interchange_maps, typology
from carry_paper.findings.interchange import CELL, Cell, PairCounts, swap_cells, sweep
from carry_train import groups
from carry_train.files import save_run
from carry_train.groups import find
from tests.conftest import random_model
from tests.core.test_promises import CHANGES, SMALL

# The stream of a hand-made network: its position, the digit and the half digit sum in its column's
# # own place, the mean of the digits to the right as each head brings it, and the logits.
POS, DIGIT, HALF, LOW, LOGITS = (
    slice(0, 10),
    slice(10, 13),
    slice(13, 16),
    slice(16, 18),
    slice(18, 30),
)
PLACE = torch.tensor([100.0, 10.0, 1.0])
SAVE = ("interchange", "--source", "ours", "--save")


class Embedding(nn.Module):
    """Digit and position, scaled back since the model scales embeddings."""

    weight = torch.zeros(())  # whose device and type interventions take

    def forward(self, tokens):
        x = torch.zeros(*tokens.shape, 32)
        x[..., POS] = torch.eye(10)
        for position in (0, 1, 2, 4, 5, 6):
            x[:, position, DIGIT.start + position % 4] = tokens[:, position].float()
        return x / 32**0.5


class Adder(nn.Module):
    """An MLP's first half that adds the carried one at the answer's positions: one-hot digits."""

    def forward(self, x):
        column = x[..., 7:10] > 0.5
        right = torch.tensor([2, 1, 0])
        total = (x[..., LOW].amax(-1, keepdim=True) * 2 * right).round()
        digit = (2 * x[..., HALF]).round() + (total >= 10**right)
        digit = (digit * column).sum(-1).long() % 10
        return 10 * nn.functional.one_hot(digit, 12) * column.any(-1, keepdim=True)


class Logits(nn.Module):
    def forward(self, x):
        return nn.functional.pad(x.float(), (LOGITS.start, 2))


class Nothing(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


def attend(block, head, keys, read, write):
    """Let a head attend equally to `keys[query]`, and write what the matrix `read` makes of it."""
    rows = slice(16 * head, 16 * head + 16)
    score = torch.zeros(16, 32)
    for query in range(10):
        score[keys.get(query, [3]), query] = 200.0
    block.q.weight.data[rows] = score
    block.k.weight.data[rows, POS] = torch.eye(16)[:, :10]
    block.v.weight.data[rows][: len(read)] = read
    block.o.weight.data[write, 16 * head : 16 * head + len(read)] = torch.eye(len(read))


def hand_made(decider):
    """A network that adds digits in its first layer; a head of layer `first` or `last` decides.

    With `both` it decides twice, in both heads of the last layer.
    """
    model = Transformer(ModelConfig(d_model=32, d_ff=12)).requires_grad_(requires_grad=False)
    for parameter in model.parameters():
        parameter.zero_()
    model.embed, model.norm = Embedding(), nn.Identity()
    for block in model.blocks:
        block.norm, block.rotation = (
            nn.Identity(),
            torch.tensor([1.0, 0.0]).expand_as(block.rotation),
        )
        block.up, block.down = Nothing(), Nothing()
    model.blocks[1].up, model.blocks[1].down = Adder(), Logits()
    model.unembed.weight.data[:, LOGITS] = torch.eye(12)
    own_keys = {position: [position % 4, position % 4 + 4] for position in (0, 1, 2, 4, 5, 6)}
    own_keys |= {7 + i: [i, 4 + i] for i in range(3)}
    right = {7: [1, 2, 5, 6], 8: [2, 6]}
    digits, from_digits, from_sums = torch.zeros(3, 32), torch.zeros(1, 32), torch.zeros(1, 32)
    digits[:, DIGIT], from_digits[0, DIGIT], from_sums[0, HALF] = torch.eye(3), PLACE, PLACE
    attend(model.blocks[0], 0, own_keys, digits, HALF)
    if decider == "first":
        attend(model.blocks[0], 1, right, from_digits, slice(17, 18))
    else:
        for head in (0, 1) if decider == "both" else (0,):
            attend(model.blocks[1], head, right, from_sums, slice(16 + head, 17 + head))
    return model


def cell(frame, component, position="pos8", reads="pos8", variable="carry_in", direction="both"):
    keys = {
        "component": component,
        "position": position,
        "reads": reads,
        "variable": variable,
        "direction": direction,
    }
    (row,) = frame[(frame[list(keys)] == list(keys.values())).all(axis=1)].to_dict("records")
    return row["accuracy"], row["elsewhere"]


@pytest.fixture(scope="module", params=["first", "last", "both"])
def planted(request):
    return request.param, sweep(hand_made(request.param), PairCounts(100, 30), own=True)


@pytest.mark.slow
def test_the_map_finds_who_decides_in_a_network_made_by_hand(planted):
    decider, frame = planted
    assert (frame.right == 1).all()
    yes, no, only_up = (1.0, 1.0), (0.0, 0.0), (1.0, 0.0)
    early = yes if decider == "first" else no
    expected = {
        "blocks.0.attn.z:1": early,
        "blocks.1.attn.z:0": {"first": no, "last": yes, "both": only_up}[decider],
        "blocks.1.attn.skip": early,
        "blocks.1.mlp_out": yes,
    }
    for reads in ("pos7", "pos8"):
        for component, up_and_down in expected.items():
            up, _ = cell(frame, component, reads, reads, direction="up")
            down, _ = cell(frame, component, reads, reads, direction="down")
            assert (up, down) == up_and_down, component
    assert cell(frame, "blocks.0.attn.z:0", variable="digit_sum") == (1, 1)
    assert cell(frame, "blocks.1.attn_out", variable="digit_sum") == (0, 1)
    parts = typology.who_decides(frame.assign(run=0)).loc[0]
    moves = parts[["one head", "heads together", "earlier", "final MLP"]].tolist()
    assert moves == {"first": [0, 0, 1, 1], "last": [1, 1, 0, 1], "both": [0.5, 1, 0, 1]}[decider]


def test_elsewhere_counts_what_must_not_change():
    """The units' digit reaches their own answer, and as a carry the ones to the left."""
    generator = torch.Generator().manual_seed(1)
    pairs = sample_pairs(Contrast("digit_sum", 2), 500, generator, Layout())
    cells = [Cell("blocks.0.resid_pre", 2), Cell("blocks.0.attn_out", 9)]
    units, _, *answer = swap_cells(hand_made("last"), 2, pairs, cells).itertuples()
    # the digit of b stays, so that the new sum comes out by chance only
    assert units.accuracy < 1 / 4
    assert 0 < units.elsewhere < 1
    assert all((row.pairs, row.accuracy, row.elsewhere) == (500, 1, 1) for row in answer)


def test_a_map_is_that_of_the_model_as_it_was_changed():
    """Its logits are negated, so that the digit that was the least likely comes out."""
    model = random_model(SMALL, 3, noise=0.5)
    layout, column = SMALL.layout, 1
    generator = torch.Generator().manual_seed(0)
    low, high = pairs = sample_pairs(Contrast("digit_sum", column), 200, generator, layout)
    cell = Cell("blocks.0.attn_out", layout.answer[column])
    before = swap_cells(model, column, pairs, [cell])
    CHANGES["subclass"](model)
    after = swap_cells(model, column, pairs, [cell])
    patch = Patch(names={cell.component}, positions=(cell.position,)).hook(model, tuple(high))
    swapped, source = (
        model(sums.encode(*numbers, layout), *hook)[:, cell.position].argmax(-1)
        for numbers, hook in ((low, [patch]), (high, []))
    )
    assert after.accuracy[0] == pytest.approx((swapped == source).double().mean().item())
    assert after.accuracy[0] != before.accuracy[0]


def test_only_pairs_that_the_model_gets_right_are_counted():
    model = hand_made("last")
    model.unembed.weight.data[7] = 0  # no answer has a seven
    generator = torch.Generator().manual_seed(0)
    pairs, right = measure.correct_pairs(model, Contrast("carry_in", 0), 300, generator)
    assert pairs.shape == (2, 2, 300)
    assert not (sums.digits(pairs.sum(1), 3) == 7).any()
    assert 0.2 < right < 0.7


def test_the_full_adder_explains_a_network_made_by_hand():
    for decider, carry in (("last", 1), ("first", 0)):
        rows = typology.abstraction(hand_made(decider), 0, "digits and answer", 60)
        accuracy = rows.set_index("variable").accuracy
        assert accuracy["carry_in"] == carry
        if decider == "last":
            assert accuracy["digit_sum"] == accuracy["all"] == 1
        else:
            assert accuracy["all"] < 1


def test_a_decision_head_that_brings_only_the_carry_leaves_the_columns_own_sum(monkeypatch):
    monkeypatch.setattr(typology, "COUNT", 60)
    assert typology.own_sum(hand_made("last")) == {"value": 1, "moved": 0}


def test_what_the_decision_head_leaves_is_that_of_its_patch(monkeypatch):
    """On every pair, right or not, of a random model."""
    model = random_model(SMALL, 3, noise=0.5)
    layout, head = SMALL.layout, measure.decision_head(model)

    def all_pairs(model, contrast, count, generator):
        return measure.CorrectPairs(sample_pairs(contrast, count, generator, layout), 1.0)

    monkeypatch.setattr(typology, "correct_pairs", all_pairs)
    monkeypatch.setattr(typology, "COUNT", 80)
    generator = torch.Generator().manual_seed(0)
    stays = []
    for column in range(SMALL.width - 1):
        pairs = sample_pairs(Contrast("digit_sum", column), 80, generator, layout)
        position = layout.answer[column]
        for base, source in (pairs, pairs.flip(0)):
            part = frozenset({(SMALL.layers - 1, head)})
            patch = Patch(heads=part, positions=(position,)).hook(model, tuple(source))
            tokens = sums.encode(*base, layout)
            patched, intact = (
                model(tokens, *hook)[:, position].argmax(-1) for hook in ([patch], [])
            )
            stays.append((patched == intact).double().mean().item())
    value = typology.own_sum(model)["value"]
    assert value == pytest.approx(sum(stays) / len(stays))
    assert 0 < value < 1


def test_shares_of_swapped_neurons_are_those_of_patches():
    model, generator = random_model(SMALL, 3, noise=0.5), torch.Generator().manual_seed(0)
    pairs = {}
    for column in range(SMALL.width - 1):
        pairs[column] = sample_pairs(Contrast("carry_in", column), 60, generator, SMALL.layout)
    rows = typology.neuron_swaps(model, pairs)
    for row, (name, neurons) in zip(rows.itertuples(), typology.neuron_sets(model), strict=True):
        hits = []
        for column, numbers in pairs.items():
            patches, position = PatchedPasses(model, numbers), SMALL.layout.answer[column]
            for base in (0, 1):
                digit = patches.swapped_neurons(neurons, position, base)[:, column]
                answers = patches.answers[1 - base][:, column], patches.answers[base][:, column]
                hits.append(torch.stack([digit == answer for answer in answers]))
        shares = torch.cat(hits, 1).double().mean(1).tolist()
        assert (row.set, row.neurons) == (name, neurons.sum())
        assert [row.accuracy, row.stays] == pytest.approx(shares)


@pytest.fixture(scope="module")
def small_map():
    """The map of a hand-made model, at the answer's own positions."""
    return sweep(hand_made("last"), PairCounts(20, 20), own=True)


def in_order(maps):
    """Return the columns of a record, rows in the order of their cells."""
    columns = maps[interchange_maps.COLUMNS]
    return columns.sort_values([*CELL, "pairs"]).reset_index(drop=True)


@pytest.mark.slow
def test_records_are_stored_and_read_back(monkeypatch, tmp_path, small_map):
    class Loaded:
        def models(self):
            return [(3, hand_made("last"))]

    monkeypatch.setenv("CARRY_DATA", str(tmp_path))
    monkeypatch.setattr(interchange_maps.catalogue, "load", lambda name, source: Loaded())
    monkeypatch.setattr(interchange_maps, "other_runs", lambda source, name: [])
    monkeypatch.setattr(
        interchange_maps,
        "sweep",
        lambda model, *counts, control=False, **more: small_map.assign(right=0.5 - 0.2 * control),
    )
    maps = interchange_maps.measure_group("ours", "n2_s0.3_w0.2")
    path = interchange_maps.save("ours", "n2_s0.3_w0.2", maps)
    assert len(pd.read_csv(path)) < 2 * len(maps) / 3
    for control in (False, True):
        loaded = interchange_maps.load("ours", "n2_s0.3_w0.2", control=control)
        assert (loaded.right == 0.5 - 0.2 * control).all()
        read, written = in_order(loaded), in_order(maps[maps.control == control])
        pd.testing.assert_frame_equal(read, written, check_dtype=False)
    with pytest.raises(BadInput, match="carry interchange --source author n2_s0.3_w0.2 --save"):
        interchange_maps.load("author", "n2_s0.3_w0.2")


@pytest.mark.slow
def test_stored_maps_give_way_to_no_smaller_ones(carry, refused, data, monkeypatch, small_map):
    """Maps of fewer pairs, or without a run that is stored, are neither computed nor saved."""
    name = "n2_s0.3_w0.2"
    cells = small_map.assign(control=False, right=1.0)
    cells["sha256"] = "a" * 64
    both = pd.concat([cells.assign(run=0), cells.assign(run=3)])
    path = interchange_maps.save("ours", name, both)
    before = path.read_bytes()
    monkeypatch.setattr(
        interchange_maps, "measure_group", lambda *_: pytest.fail("it was computed first")
    )
    monkeypatch.setattr(interchange_maps.catalogue, "find", lambda *_: {0: None, 3: None})
    with pytest.raises(BadInput, match="has maps of 20 pairs, and these are of 10"):
        interchange_maps.check_replaces("ours", name, 10, {0: None, 3: None})
    monkeypatch.setattr(interchange_maps.catalogue, "find", lambda *_: {0: None})
    assert "has maps of runs 3, which are missing" in refused(*SAVE, name)
    for fewer in (both.assign(pairs=10), cells.assign(run=0)):
        with pytest.raises(BadInput, match=f"or delete {path} to begin anew"):
            interchange_maps.save("ours", name, fewer)
    assert path.read_bytes() == before
    interchange_maps.save("ours", name, pd.concat([both, cells.assign(run=4)]))


@pytest.mark.slow
def test_what_moves_the_carry_is_a_mean_over_digits_and_directions():
    """In every stored map of the author's, once more in plain loops."""
    paths = sorted((ROOT / "data/results/interchange/author").glob("*.csv.gz"))
    assert len(paths) >= 7
    for path in paths:
        name = path.name.removesuffix(".csv.gz")
        cells = interchange_maps.load("author", name)
        decided = typology.who_decides(cells)
        config = find(name).config
        last = f"blocks.{config.layers - 1}.attn"
        predicted_at = {f"pos{p + config.causal}": f"pos{p}" for p in config.layout.answer}
        column_cells = cells[
            (cells.variable == "carry_in") & (cells.position == cells.reads.map(predicted_at))
        ]
        column_cells = column_cells[column_cells.direction == "both"]
        for run, of_run in column_cells[column_cells.component.str.startswith(last)].groupby("run"):
            mean = of_run.groupby("component").accuracy.mean()
            best = max(x for name, x in mean.items() if ".z:" in name)
            expected = {
                "one head": best,
                "heads together": mean[f"{last}_out"],
                "earlier": mean[f"{last}.skip"],
            }
            measured = decided.loc[run, [*expected]].astype(float).to_dict()
            assert measured == pytest.approx(expected, abs=1e-6), (name, run)


TINY = "n2_s0.3_w0.2_dff4_d8"


def test_maps_of_the_main_group_have_the_most_pairs():
    assert interchange_maps.default_pairs(groups.MAIN) > interchange_maps.default_pairs(TINY)


def small_run(path, run, seed):
    """Write a run of two small layers, trained not at all."""
    torch.manual_seed(seed)
    group = find(TINY)
    model = Transformer(group.config)
    record = {"recipe": "quick", "run": run, "epochs": 60, "seeds": {}}
    save_run(path, group, dict(model.named_parameters()), record)


@pytest.mark.slow
def test_maps_are_of_the_weights_that_are_here_or_measured_anew(data, monkeypatch, small_map):
    """A run that was trained again is noticed by its sha256, and it alone is measured.

    In place of the swaps, which give an untrained model nothing to tell apart, is a map whose
    numbers depend on the weights, the pairs and the control.
    """

    def sweep_of_weights(model, counts, *_, control=False, **__):
        share = float(model.unembed.weight.abs().mean()) / (counts.at_answer + control)
        return small_map.assign(accuracy=share, right=0.5)

    monkeypatch.setattr(interchange_maps, "sweep", sweep_of_weights)
    monkeypatch.setattr(interchange_maps, "PAIRS_OF_OTHERS", 10)
    paths = {run: runs.run_path(data / "runs", TINY, "quick", run) for run in (0, 1)}
    for run, path in paths.items():
        small_run(path, run, seed=run)
    interchange_maps.save("ours", TINY, interchange_maps.measure_group("ours", TINY, pairs=10))
    stored = interchange_maps.load("ours", TINY)
    own = interchange_maps.MapsOfRuns(catalogue.load(TINY))
    assert own.measured == []
    pd.testing.assert_frame_equal(own.load(), stored)

    small_run(paths[1], 1, seed=7)
    assert interchange_maps.other_runs("ours", TINY) == [1]
    with pytest.raises(BadInput, match=f"of other weights than those of run 1 of {TINY}"):
        interchange_maps.load("ours", TINY)
    assert interchange_maps.load_by_source(TINY) == {}
    renewed = interchange_maps.MapsOfRuns(catalogue.load(TINY))
    assert renewed.measured == [1]
    by_run = renewed.load().groupby("run").accuracy
    before = stored.groupby("run").accuracy
    assert by_run.first()[0] == before.first()[0]
    assert by_run.first()[1] != before.first()[1]
    for control in (False, True):
        anew = interchange_maps.measure_group("ours", TINY, pairs=10)
        anew = anew[(anew.control == control) & (anew.run == 1)]
        maps = renewed.load(control=control)
        read, written = in_order(maps[maps.run == 1]), in_order(anew)
        pd.testing.assert_frame_equal(read, written, check_dtype=False)
    assert catalogue.load(paths[0]).numbers == (0,)
    assert interchange_maps.MapsOfRuns(catalogue.load(paths[0])).measured == []

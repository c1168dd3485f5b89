"""Measurements against brute force on two digits, where all sums can be enumerated."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation, MeanAblation, Patch
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer
from carry_core.pairs import Contrast
from carry_core.sums import Layout
from carry_paper.findings import heads
from tests.conftest import SHAPES, drawn, quick_first, random_model
from tests.findings.test_interchange import attend, hand_made
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("width", [2, pytest.param(4, marks=pytest.mark.slow, id="4")])
def test_cells_by_brute_force(noisy, width):
    """Several interventions at once, and of a padded model at the sums' own digits."""
    model = (
        noisy
        if width == 2
        else random_model(ModelConfig(width=width, d_model=16, d_ff=8), 1, noise=0.5).double()
    )
    a, b = sums.all_sums(2)
    interventions = [INTACT, Ablation(mlps={1}), Ablation(heads={(1, 0)})]
    interventions += [
        MeanAblation(heads={(1, 0)}),
        MeanAblation(mlps={0}),
        Patch(heads={(1, 1)}, source=(2, 6)),
    ]
    tables = measure.class_accuracies(model, a, b, interventions, n_digits=2)
    for intervention, cells in zip(interventions, tables, strict=True):
        # a patch has its own
        reference = (a, b) if isinstance(intervention, MeanAblation) else None
        logits = model(sums.encode(a, b, model.config.layout), intervention.hook(model, reference))[
            :, -2:
        ]
        guesses = logits.argmax(-1).tolist()
        hits: dict[tuple[int, int], list[tuple[bool, bool]]] = {}
        whole = 0
        for x, y, guess in zip(a.tolist(), b.tolist(), guesses, strict=True):
            carry = x % 10 + y % 10 >= 10  # into the tens; nothing arrives at the units
            answer = [(x + y) // 10, (x + y) % 10]
            whole += guess == answer
            for pos, shift in enumerate([1 if carry else -1, -1]):
                hit = (guess[pos] == answer[pos], (guess[pos] + shift) % 10 == answer[pos])
                hits.setdefault((int(carry), pos), []).append(hit)
        for (carry_class, pos), pairs in hits.items():
            right, corrected = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
            assert cells.accuracy[carry_class, pos].item() == pytest.approx(right, abs=1e-6)
            assert cells.corrected[carry_class, pos].item() == pytest.approx(corrected, abs=1e-6)
        assert cells.exact_match == pytest.approx(whole / len(a))


def test_accuracy_as_a_frame(noisy):
    a, b = sums.all_sums(2)
    ablations = {
        "intact": INTACT,
        "no MLP": Ablation(mlps={1}),
        "mean": MeanAblation(heads={(1, 0)}),
    }
    frame = measure.accuracy(noisy, a, b, ablations)
    measured = measure.class_accuracies(noisy, a, b, list(ablations.values()))
    assert (len(frame), len(measure.accuracy(noisy, a, b, Ablation(mlps={1})))) == (
        3 * 2 * 2,
        2 * 2,
    )
    for name, cells in zip(ablations, measured, strict=True):
        rows = frame[frame.ablation == name]
        table = rows.pivot_table(
            index="carry_class", columns="position", values=["accuracy", "corrected"]
        )
        for carry_class, pattern in enumerate(carries.patterns(2)):
            assert (
                table.loc[carries.paper_name(pattern), "accuracy"].tolist()
                == cells.accuracy[carry_class].tolist()
            )
            assert (
                table.loc[carries.paper_name(pattern), "corrected"].tolist()
                == cells.corrected[carry_class].tolist()
            )
        assert set(rows.exact_match) == {cells.exact_match}
    assert list(table["accuracy"]) == ["pos5", "pos6"]


def test_the_correlation_with_a_model_that_cannot_carry():
    a, b = sums.all_sums(3)
    expected = measure.score((sums.digits(a, 3) + sums.digits(b, 3)) % 10, a, b)
    elsewhere = ClassAccuracies(expected.accuracy.clone(), expected.corrected, 0.0)
    elsewhere.accuracy[:, 0] = 1 - elsewhere.accuracy[:, 0]
    assert heads.no_carry_correlation(elsewhere) < 0.9
    assert heads.no_carry_correlation(elsewhere, 2) == pytest.approx(1)
    torch.manual_seed(0)
    noise = ClassAccuracies(torch.rand(5, 3), torch.rand(5, 3), 0.0)
    x, y = (torch.cat([c.accuracy, c.corrected]).flatten() for c in (noise, expected))
    by_hand = ((x - x.mean()) * (y - y.mean())).mean() / (x.std(correction=0) * y.std(correction=0))
    assert heads.no_carry_correlation(noise) == pytest.approx(by_hand.item(), abs=1e-5)


def test_carry_neurons_by_brute_force(noisy):
    a, b = sums.all_sums(2)
    _, cache = noisy.run_with_cache(sums.encode(a, b, noisy.config.layout))
    active = cache["blocks.1.mlp.post"][:, noisy.config.layout.answer[0]].double()
    carry = a % 10 + b % 10 >= 10
    expected = active[carry].mean(0) > active[~carry].mean(0)
    assert torch.equal(heads.carry_neurons(noisy, a, b), expected)
    assert 0 < expected.sum() < len(expected)


def test_each_class_may_have_carry_neurons_of_its_own(monkeypatch):
    """Neuron i is active for class i alone, and the last one for none."""
    a, b = measure.sample(20, 3, seed=0)
    post = torch.nn.functional.one_hot(carries.classify(a, b), 6).float()[:, None]
    monkeypatch.setattr(
        measure, "activations", lambda model, a, b, names, read: dict.fromkeys(names, post)
    )
    assert heads.carry_neurons(Transformer(ModelConfig(d_model=16)), a, b).tolist() == [
        False,
        *[True] * 4,
        False,
    ]


def test_activations_are_those_of_the_ablated_model(noisy):
    a, b = sums.all_sums(2)
    names, mlp = ["blocks.1.mlp_out", "blocks.1.resid_post"], Ablation(mlps={1})
    activations = measure.activations(noisy, a, b, names, mlp)
    assert (activations["blocks.1.mlp_out"] == 0).all()
    _, cache = noisy.run_with_cache(sums.encode(a, b, noisy.config.layout), ["blocks.1.resid_mid"])
    assert_close(activations["blocks.1.resid_post"], cache["blocks.1.resid_mid"])


def test_squashing_by_brute_force(noisy):
    ratios = heads.squashing_ratio(noisy, outcome=18)
    pairs = [(18 - y, y) for y in range(10)]
    a, b = torch.tensor(pairs).T
    _, cache = noisy.run_with_cache(sums.encode(a, b, noisy.config.layout))
    for i, pos in enumerate(noisy.config.layout.answer):
        spread = []
        for name in ("blocks.1.resid_mid", "blocks.1.resid_post"):
            x = cache[name][:, pos].double()
            cosines = [
                torch.cosine_similarity(x[p], x[q], dim=0).item()
                for p in range(10)
                for q in range(10)
            ]
            spread.append(max(cosines) - min(cosines))
        assert ratios[i].item() == pytest.approx(spread[1] / spread[0], rel=1e-4)


@pytest.mark.parametrize("config", ["three layers"], indirect=True)
def test_the_heads_of_several_last_layers(model):
    both = measure.last_heads(model, 2)
    assert [h.heads for h in both] == [
        {(layer, head)} for layer in (1, 2) for head in range(model.config.heads)
    ]
    assert measure.last_heads(model) == both[model.config.heads :]
    with pytest.raises(BadInput, match="layers=4: expected a whole number from 1 to 3"):
        measure.last_heads(model, 4)


def test_attention_is_the_mean_over_sums(noisy):
    a, b = sums.all_sums(2)
    _, cache = noisy.run_with_cache(sums.encode(a, b, noisy.config.layout))
    expected = torch.stack([cache[f"blocks.{l}.attn.pattern"].mean(0) for l in range(2)])
    assert_close(measure.attention(noisy, a, b), expected)


def test_sample_has_every_class_in_turn():
    a, b = measure.sample(50, 3, seed=0)
    assert carries.classify(a, b).tolist() == [
        carry_class for carry_class in range(5) for _ in range(50)
    ]
    assert torch.equal(a, measure.sample(50, 3, seed=0)[0])
    assert not torch.equal(a, measure.sample(50, 3, seed=1)[0])
    with pytest.raises(BadInput, match="n_examples=0: expected a whole number"):
        measure.sample(0, 3, 0)


def test_masses_read_the_cells_that_they_name():
    layout = Layout()
    pattern = torch.arange(100.0).view(10, 10)  # row q, column k holds 10 q + k
    assert heads.partner_mass(pattern, layout).tolist() == [4, 15, 26, 40, 51, 62]
    assert heads.column_mass(pattern, layout).tolist() == [70 + 74, 81 + 85, 92 + 96]
    assert heads.column_mass(pattern, layout, shift=1)[:2].tolist() == [71 + 75, 82 + 86]
    assert math.isnan(heads.column_mass(pattern, layout, shift=1)[2])
    assert heads.partner_mass(pattern, Layout(causal=True)).tolist() == [40, 51, 62]
    assert heads.column_mass(pattern, Layout(causal=True)).tolist() == [60 + 64, 71 + 75, 82 + 86]


@pytest.mark.slow
def test_the_costliest_head_costs_most_whatever_sums_a_page_draws(monkeypatch):
    model = hand_made("last")
    monkeypatch.setattr(measure, "DECISION_SUMS", 500)
    parts = measure.class_accuracies(model, *drawn(model.config, 0, 500), measure.last_heads(model))
    exact = [accuracies.exact_match for accuracies in parts]
    costliest = measure.costliest_head(model)
    assert exact[costliest] == min(exact) < max(exact)
    assert heads.default_run([(4, model)]) == 4


def test_the_run_shown_is_chosen_by_the_heads_that_a_page_knows(monkeypatch):
    decision_heads = {0: 1, 1: 0, 2: 0}
    exact_matches = {0: 0.9, 1: 0.44, 2: 0.4}  # run 1 is close to the lowest, and comes first
    asked = []

    def class_accuracies(model, a, b, ablations):
        ((_, head),) = ablations[0].heads
        asked.append((model.run, head))
        return [SimpleNamespace(exact_match=exact_matches[model.run])]

    monkeypatch.setattr(measure, "class_accuracies", class_accuracies)
    monkeypatch.delattr(measure, "decision_head")
    models = []
    for run in exact_matches:
        model = random_model(ModelConfig(d_model=16, d_ff=12))
        model.run = run
        models.append((run, model))
    assert heads.default_run(models, None, decision_heads) == 1
    assert asked == [*decision_heads.items()]
    assert heads.default_run(models, 2, decision_heads) == 2


def test_of_heads_that_cost_the_same_the_first_decides():
    model = random_model(ModelConfig(width=2, d_model=16, d_ff=12), noise=0.5)
    model.blocks[1].o.weight.zero_()  # whichever head is ablated, nothing changes
    assert len(set(measure.exact_match_without_heads(model))) == 1
    assert measure.costliest_head(model) == 0
    assert measure.decision_head(model) == 0


class NeedsABias(nn.Module):
    """A layer that gives nothing unless the last but one number of the stream is 1."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) * x[..., 30:31]


def test_the_decision_head_moves_the_carry_though_another_head_costs_more():
    """The other head writes a constant, without which every answer is wrong."""
    model = hand_made("last")
    plus_sign = torch.zeros(1, 32)
    plus_sign[0, 3] = 1  # every query attends to position 3, and reads that it is there
    attend(model.blocks[1], 1, {}, plus_sign, slice(30, 31))
    model.blocks[1].up = NeedsABias(model.blocks[1].up)
    without_0, without_1 = measure.exact_match_without_heads(model)
    assert 0.1 < without_0 < 0.5
    assert without_1 < 0.01
    assert measure.costliest_head(model) == 1
    # Two columns can have a carry-in, and pairs are swapped in both directions.
    assert measure.carries_moved_by_heads(model) == [4 * measure.DECISION_PAIRS, 0]
    assert measure.decision_head(model) == 0


@pytest.mark.slow
def test_only_pairs_that_the_model_gets_right_choose_the_decision_head():
    model = hand_made("last")
    model.unembed.weight.data[1:10] = 0  # every answer is 000, which has no carry-in
    assert measure.carries_moved_by_heads(model) == [0, 0]
    assert measure.decision_head(model) == measure.costliest_head(model)


@pytest.mark.parametrize("config", ["one layer"], indirect=True)
def test_in_one_layer_the_costliest_head_is_the_decision_head(model):
    assert measure.carries_moved_by_heads(model) == [0] * model.config.heads
    assert measure.decision_head(model) == measure.costliest_head(model)


def test_a_frame_keeps_the_order_in_which_interventions_are_given():
    model = random_model(ModelConfig(width=2, d_model=16))
    order = ["intact", "a part later in the alphabet", "a head"]
    ablations = dict(zip(order, [INTACT, *measure.last_heads(model)], strict=True))
    frame = measure.accuracy(model, *sums.all_sums(2), ablations)
    assert list(frame.sort_values("ablation").ablation.unique()) == order
    assert list(frame.pivot_table("accuracy", "position", "ablation", observed=True)) == order


# ---------------------------------------------------------------- activation patching


def digit_of_clean(model, clean):
    """A metric: the mean probability of the clean sums' tens."""
    answer = sums.targets(*clean, model.config.layout)[:, 0]
    position = model.config.layout.answer[0]
    return lambda logits: logits[:, position].softmax(-1).gather(1, answer[:, None]).mean()


def overwritten(model, tokens, cache, row):
    """Logits of the corrupted sums with one part of the clean cache, by a hook written by hand."""
    points = {"heads": "attn.z", "q": "attn.q", "k": "attn.k", "v": "attn.v"}
    points |= {"patterns": "attn.pattern", "neurons": "mlp.post", "mlps": "mlp_out"}
    points |= {"skips": "attn.skip", "resid": "resid_pre", "hook_resid_mid": "resid_mid"}
    point = points[row.part]
    positions = slice(None) if row.position is pd.NA else row.position

    def overwrite(x):
        new, clean = x.clone(), cache[f"blocks.{row.layer}.{point}"]
        if row.part == "patterns":
            new[:, row.number, positions] = clean[:, row.number, positions]
        elif row.number is not pd.NA:
            new[:, positions, row.number] = clean[:, positions, row.number]
        else:
            new[:, positions] = clean[:, positions]
        return new

    return model.run_with_hooks(tokens, {f"blocks.{row.layer}.{point}": overwrite})


@pytest.mark.parametrize("positions", [None, (1, -1)])
@pytest.mark.parametrize("shape", quick_first(["three layers", "decoder"]))
def test_activation_patches_are_those_of_a_hook_written_by_hand(shape, positions, monkeypatch):
    monkeypatch.setattr(measure, "BATCH", 3)  # five sums: a batch and a short one
    config = replace(SHAPES[shape], d_ff=8)
    model = random_model(config, noise=0.2).double()
    clean, corrupted = drawn(config, 4, 5), drawn(config, 5, 5)
    tokens, (_, cache) = (
        sums.encode(*corrupted, config.layout),
        model.run_with_cache(sums.encode(*clean, config.layout)),
    )
    metric = digit_of_clean(model, clean)
    parts = ["heads", "q", "k", "v", "patterns", "neurons", "mlps", "skips", "resid"]
    frame = measure.activation_patch(
        model, clean, corrupted, [*parts, "hook_resid_mid"], metric, positions
    )
    assert list(frame.columns) == [
        "part",
        "layer",
        "number",
        "position",
        "value",
        "clean",
        "corrupted",
    ]
    n_parts = config.layers * (5 * config.heads + config.d_ff + 4)
    assert len(frame) == n_parts * len(positions or (None,))
    assert len(frame.drop_duplicates(["part", "layer", "number", "position"])) == len(frame)
    for row in frame.itertuples():
        expected = metric(overwritten(model, tokens, cache, row)).item()
        assert row.value == pytest.approx(expected, abs=1e-12), row
    value_of_clean = metric(model(sums.encode(*clean, config.layout))).item()
    assert frame.clean.tolist() == pytest.approx([value_of_clean] * len(frame))
    assert frame.corrupted.tolist() == pytest.approx([metric(model(tokens)).item()] * len(frame))
    assert (frame.value != frame.corrupted).any()
    last = config.layout.length - 1
    assert set(frame.position.dropna()) == (set() if positions is None else {1, last})


PATCHES = {
    "no such part": lambda m, s: measure.activation_patch(m, s, s, "head", torch.mean),
    "no such position": lambda m, s: measure.activation_patch(m, s, s, "q", torch.mean, [7]),
}


@pytest.mark.parametrize("call", PATCHES)
def test_activation_patches_that_make_no_sense_are_refused(noisy, call):
    with pytest.raises(BadInput, match="expected"):
        PATCHES[call](noisy, drawn(noisy.config))


def test_each_corrupted_sum_has_a_clean_one(noisy):
    nine, single = drawn(noisy.config), (1, 2)
    with pytest.raises(BadInput, match=r"has shape \[9, .* with one sum or one a row"):
        measure.activation_patch(noisy, nine, single, "q", torch.mean)


@pytest.mark.parametrize("asked", [{"count": 0}, {"count": 5, "n_digits": 7}])
def test_pairs_of_no_sums_or_of_sums_that_do_not_fit_are_refused(noisy, asked):
    """The leading digits would be cut off, and the model be right about what is left."""
    with pytest.raises(BadInput, match="expected a whole number of"):
        measure.correct_pairs(noisy, Contrast("carry_in", 0), generator=torch.Generator(), **asked)


def test_a_class_may_be_named_without_a_list(model, config):
    pattern = "0" * config.width
    alone = measure.class_attention(model, pattern, 20, 0)
    assert torch.equal(alone, measure.class_attention(model, [pattern], 20, 0))


@pytest.mark.usefixtures("as_a_user_has_it")
def test_pairs_are_drawn_for_a_model_alone(model):
    with pytest.raises(BadInput, match="of type DataParallel: expected a Transformer"):
        measure.correct_pairs(nn.DataParallel(model), Contrast("carry_in", 0), 5, torch.Generator())


def test_activations_of_all_points_need_no_names(model, config):
    a, b = drawn(config, count=3)
    every_point = measure.activations(model, a, b, None)
    assert list(every_point) == config.hook_names
    of_logits = measure.activations(model, a, b, lambda name: name == "logits")
    assert_close(of_logits["logits"], every_point["logits"])

"""Longer sums: against brute force, and on planted attention, curves and accuracies."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from carry_core import carries, measure, runs, sums
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Layout
from carry_paper import catalogue
from carry_paper.findings import geometry, heads, lengths, neurons
from carry_paper.findings.base import FINETUNED, PAD6, PRIMED
from carry_paper.findings.evidence import Evidence
from carry_paper.pages.parameters import chosen_classes
from carry_train import groups
from carry_train.groups import GROUPS
from tests.conftest import random_model
from tests.helpers.measured import measured
from tests.helpers.tolerances import assert_close
from tests.helpers.trainings import save_random

pytestmark = pytest.mark.machine

TINY = ModelConfig(width=3, d_model=16, d_ff=12)


@pytest.fixture
def tiny() -> Transformer:
    return random_model(TINY, 2)


# ---------------------------------------------------------------- classes


def test_the_classes_that_a_page_shows_by_default_by_pattern_and_by_name():
    assert chosen_classes(3) == list(carries.patterns(3))
    assert chosen_classes(6) == ["000000", "000010", "001110", "010000", "012221"]
    for n_digits in range(4, 11):
        assert set(chosen_classes(n_digits)) <= set(carries.patterns(n_digits))
    assert chosen_classes(6, "all") == list(carries.patterns(6))
    assert chosen_classes(6, 1110) == chosen_classes(6, "001110") == ["001110"]
    assert chosen_classes(3, ["C all", "010"]) == chosen_classes(3, "C all, 010") == ["011", "010"]
    assert chosen_classes(3, "C all, C_all, 011") == ["011"] * 3


# ---------------------------------------------------------------- attention


def test_attention_ahead_by_hand():
    for causal in (False, True):
        layout = Layout(4, causal)
        pattern = torch.rand(
            2, layout.length, layout.length, generator=torch.Generator().manual_seed(0)
        )
        attention_ahead = lengths.ahead(pattern, layout)
        assert attention_ahead[:, 3].isnan().all()
        for column in range(3):
            rows = [5 + column] if causal else [column, 5 + column]
            expected = sum(
                pattern[:, row, column + 1] + pattern[:, row, 5 + column + 1] for row in rows
            ) / len(rows)
            assert_close(attention_ahead[:, column], expected)


def test_the_two_kinds_of_staircase_by_hand(monkeypatch):
    """The digits' staircase is planted in head 0:1.

    That of the answer rows is in 0:0 and, but for position 0, in 1:1.
    """
    model = random_model(ModelConfig(width=4, d_model=16, d_ff=8))
    layout, (a, b) = model.config.layout, measure.sample(1, 4, seed=0)
    pattern = torch.zeros(2, 2, layout.length, layout.length)
    digits, rows = pattern.clone(), pattern.clone()
    for i, row in enumerate(layout.answer):
        first, second = i, i + 5
        digits[0, 1, first, second] = digits[0, 1, second, first] = 0.9
        rows[0, 0, row, first], rows[0, 0, row, second] = 0.5, 0.25
        rows[1, 1, row, [first, second]] = 0.3 if i else 0.0
    names = ["between the digits", "of the answer rows in layer 0", "of the answer rows in layer 1"]
    nothing, high = [0.0] * 4, [0.9] * 4
    for planted, expected in (
        (digits, [high, nothing, nothing]),
        (rows, [nothing, [0.75] * 4, [0.0, 0.6, 0.6, 0.6]]),
    ):
        monkeypatch.setattr(measure, "attention", lambda *_, planted=planted: planted)
        kinds = lengths.measure_heads(model, a, b, decision_head=0).staircases
        assert list(kinds) == names
        assert [x.tolist() for x in kinds.values()] == [pytest.approx(x) for x in expected]
        monkeypatch.setattr(heads, "mean_attention", lambda _, planted=planted: planted)
        weakest = heads.layer_staircases(model)
        assert weakest["between_digits_by_layer"] == pytest.approx([min(expected[0]), 0])
        assert weakest["at_answer_rows_by_layer"] == pytest.approx([min(x) for x in expected[1:]])


def test_the_column_on_the_right_by_layer_and_rows(tiny, monkeypatch):
    """Head 0:1 looks ahead at the digits, 1:0 at the answer rows; the last column has none."""
    layout = tiny.config.layout
    pattern = torch.zeros(2, 2, layout.length, layout.length)
    for column in range(layout.width - 1):
        keys = [column + 1, layout.width + 1 + column + 1]
        for row in (column, layout.width + 1 + column):
            pattern[0, 1, row, keys] = 0.4
        pattern[1, 0, layout.answer[column], keys] = 0.3
        pattern[1, 1, layout.answer[column], keys] = 0.1
    monkeypatch.setattr(heads, "mean_attention", lambda model: pattern)
    measured = lengths.previous_sums(tiny)
    assert measured == pytest.approx(
        {
            "value": 0.6,
            "layer_0": 0.8,
            "layer_0_exceeds_last_by": 0.2,
            "uniform": 2 / layout.length,
        }
    )
    pattern[0] = 0
    pattern[0, 0, layout.answer[0], 1] = 0.5  # at one answer row
    measured = lengths.previous_sums(tiny)
    assert measured["layer_0"] == pytest.approx(0.5 / (layout.width - 1))
    assert measured["layer_0_exceeds_last_by"] == pytest.approx(-0.6)


def test_each_step_of_the_algorithm_is_separated_where_it_is_taken(tiny, monkeypatch):
    monkeypatch.setattr(
        geometry,
        "accuracy_on_all_axes",
        lambda plane: (
            100.0 * plane.layer + 10 * [*geometry.AFTER].index(plane.after) + plane.position
        ),
    )
    assert lengths.separation(tiny, *measure.sample(5, 3, seed=0)) == {
        "tens": [10 + position for position in tiny.config.layout.answer],
        "ones": [100 + position for position in tiny.config.layout.answer],
    }


# ---------------------------------------------------------------- forgetting


def history(**curves: list[list[float]]) -> dict[str, np.ndarray]:
    histories = {name: np.array(values, dtype=float) for name, values in curves.items()}
    n_runs, n_epochs = histories["long_whole"].shape
    return histories | {"runs": np.arange(n_runs), "epochs": np.arange(1, n_epochs + 1)}


def test_forgetting_on_planted_curves():
    falls = [[0.2, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.5, 1.0], [0.4, 0.4, 1.0]]
    keeps = [[0.1, 0.1, 0.1], [0.5, 0.5, 1.0], [0.9, 0.9, 1.0], [0.9, 0.95, 1.0]]
    forgetting = lengths.forgetting(
        history(
            long_whole=[[0.1, 0.8, 0.5, 0.4], [0.0, 0.5, 0.9, 0.6]], long_accuracy=[falls, keeps]
        )
    )
    assert forgetting.loc[0, ["epochs", "peak", "best", "last"]].tolist() == [4, 2, 0.8, 0.4]
    assert (forgetting.goes[0][:2], forgetting["first"][0]) == ((4, 3), (1,))
    assert (forgetting.peak[1], forgetting["first"][1]) == (3, ())
    below, above = [[[1.0, 1.0, 1.0]] + [[share, 1.0, 1.0]] * 3 for share in (0.89, 0.91)]
    half = [[0.5] * 4] * 2
    two = lengths.forgetting(history(long_whole=half, long_accuracy=[below, above]))
    assert two["first"].tolist() == [(0,), ()]  # nine tenths of the best are kept
    assert lengths.forgets(forgetting).tolist() == [True, False]
    # The second run has its peak at the end.
    ends = forgetting.assign(peak=[3, 4], best=0.8, last=0.39)
    assert lengths.forgets(ends).tolist() == [True, False]
    assert lengths.forgets(ends.assign(last=0.41)).tolist() == [False, False]
    with pytest.raises(BadInput, match="have no longer sums: expected those of a padded group"):
        lengths.forgetting(history(long_whole=[[0.1, 0.8]]))


# ---------------------------------------------------------------- ablations


def test_cells_by_arrival_by_hand():
    accuracy = torch.arange(15.0).reshape(5, 3)
    means = lengths.means_by_carry_in(ClassAccuracies(accuracy, -accuracy, 0.0))
    # a one arrives at position 0 in C@1, C all and C all con., at 1 in C@2, C all and C all con.;
    # never at 2
    assert_close(means[1], torch.tensor([(3 + 9 + 12) / 3, (7 + 10 + 13) / 3, torch.nan]))
    assert_close(means[0], torch.tensor([(0 + 6) / 2, (1 + 4) / 2, (2 + 5 + 8 + 11 + 14) / 5]))


def test_who_carries_and_who_corrects_in_a_planted_model():
    def cells(none: float, long_ones: float, trained_ones: float) -> torch.Tensor:
        return torch.tensor([[none] * 6, [long_ones] * 3 + [trained_ones] * 2 + [torch.nan]])

    heads = [Ablation(heads={(layer, head)}) for layer in (0, 1) for head in (0, 1)]
    lost = {
        INTACT: cells(1, 1, 1),
        heads[0]: cells(1, 0.9, 0),
        heads[1]: cells(0.9, 0.2, 1),
        heads[2]: cells(1, 0, 1),
        heads[3]: cells(1, 1, 1),
        Ablation(mlps={0}): cells(0, 1, 1),
        Ablation(mlps={1}): cells(0.6, 0.75, 0.5),
    }
    costs = lengths.part_costs(lost, 3)
    assert costs["head"] == heads[1]
    parts = ("carried", "corrected", "trained", "spared")
    assert [costs[name] for name in parts] == pytest.approx((0.8, 0.4, 0.5, 0.25))
    assert costs.keys() == {"head", *parts}


# ---------------------------------------------------------------- streams, accuracies, weights


def test_accuracy_counts_every_position(tiny):
    wide = lengths.widened(tiny, 5)
    whole, by_position = lengths.accuracy_at_length(wide, 2)
    a, b = lengths.random_sums(2)
    logits = wide(sums.encode(a, b, wide.config.layout))[:, list(wide.config.layout.answer)]
    hit = logits.argmax(-1) == sums.digits(a + b, 5)
    assert whole == pytest.approx(hit.all(1).double().mean().item())
    assert_close(by_position, hit.double().mean(0))


def test_the_best_direction_in_the_plane_is_at_least_as_good_as_the_axis(tiny):
    a, b = measure.sample(60, 3, seed=0)
    axes = neurons.singular_axes(tiny, a, b)
    points, more = axes.points.numpy(), axes.more.numpy()
    best = max(
        abs(np.corrcoef(points @ [np.cos(t), np.sin(t)], more)[0, 1])
        for t in np.linspace(0, np.pi, 2000)
    )
    assert axes.correlations[0] <= axes.plane == pytest.approx(best, abs=1e-4)


def test_moved_by_hand(tiny):
    after = copy.deepcopy(tiny)
    after.embed.weight.mul_(2)
    changes = lengths.moved(tiny, after)
    size = {name: float(p.double().square().sum()) for name, p in tiny.named_parameters()}
    total, embed = sum(size.values()), size["embed.weight"]
    assert changes.sum().tolist() == pytest.approx([total, total + 3 * embed, embed])
    assert changes.step["embed.weight"] == changes.before["embed.weight"] == pytest.approx(embed)
    assert not changes.step.drop("embed.weight").any()


class Tenfold:
    """Ten times a run's last weights, in place of a snapshot in its file."""

    def __init__(self, weights: runs.Weights) -> None:
        self.weights = weights

    def weights_at(self, epoch: int | None) -> runs.Weights:
        return {name: 10 * p for name, p in self.weights.items()}


@pytest.mark.usefixtures("as_a_user_has_it")
def test_a_finetuned_run_is_compared_with_the_run_of_its_number_or_the_only_one(tiny):
    def stack(numbers: tuple[int, ...], factor: float) -> runs.Runs:
        """Run r has its weights multiplied by r + 1 and `factor`; at epoch 500 by another 10."""
        scale = factor * (torch.tensor(numbers) + 1)
        state = tiny.state_dict()
        weights = {
            run: {key: x * p for key, p in state.items()}
            for run, x in zip(numbers, scale, strict=True)
        }
        stored = {run: Tenfold(weights_of_run) for run, weights_of_run in weights.items()}
        return runs.Runs("g", "ours", TINY, numbers, weights, {"epochs": 60}, (500,), stored)

    def ratio(pair: tuple[Transformer, Transformer]) -> float:
        return float(pair[0].embed.weight[0, 0] / pair[1].embed.weight[0, 0])

    pairs = lengths.finetuned_pairs(stack((0, 1), 3), stack((1,), 1), 500)
    assert {run: ratio(pair) for run, pair in pairs.items()} == pytest.approx({1: 30})
    pairs = lengths.finetuned_pairs(stack((0,), 3), stack((1,), 1), 500)
    assert {run: ratio(pair) for run, pair in pairs.items()} == pytest.approx({1: 15})


# ---------------------------------------------------------------- the ledger


@pytest.fixture
def planted(data, monkeypatch):
    """Small random runs of the padded groups, by any recipe, with planted learning curves."""

    def plant(recipe: str, whole: dict[str, list[float]]) -> Evidence:
        for name in (PAD6, PRIMED, FINETUNED):
            group = replace(GROUPS[name], config=replace(GROUPS[name].config, d_model=16, d_ff=12))
            monkeypatch.setitem(GROUPS, name, group)
            epochs = groups.RECIPES[recipe].epochs(group)
            stages = np.array(whole.get(name, [0.5]))
            curve = stages[np.arange(epochs) * len(stages) // epochs]
            curves = {"long_whole": curve, "long_accuracy": np.repeat(curve[:, None], 6, 1)}
            save_random(group, (0,), recipe, epochs, **curves)
        return Evidence("ours")

    return plant


def shows(rows: pd.DataFrame) -> list[bool]:
    answers = []
    for (group, _), fields in zip(rows.index, rows.to_dict("records"), strict=True):
        context = {"primed": GROUPS[group].primed}
        answers.append(lengths.forgets_unless_primed(fields | context))
    return answers


def test_length_is_shown_by_runs_that_forget_unprimed_and_remember_primed(planted):
    measurement = lengths.length(planted("paper", {PAD6: [0.1, 0.8, 0.2], PRIMED: [0.1, 0.8, 0.7]}))
    assert shows(measurement) == [True, True]
    assert measurement.value[PAD6, 0] == pytest.approx(0.25)
    measurement = lengths.length(planted("paper", {PAD6: [0.1, 0.8, 0.7], PRIMED: [0.1, 0.8, 0.2]}))
    assert shows(measurement) == [False, False]


def test_the_best_on_longer_sums_is_that_of_the_first_1000_epochs(planted, monkeypatch):
    evidence = planted("paper", {PAD6: [0.4, 0.2, 0.9, 0.1]})  # of 2500 epochs
    assert lengths.best_on_longer_sums(evidence).value[0] == pytest.approx(0.4)
    monkeypatch.setattr(lengths, "LAST_OF_RANGE", 2501)
    with pytest.raises(BadInput, match="up to epoch 2501; these have 2500"):
        lengths.best_on_longer_sums(evidence)


def test_short_runs_of_ours_do_not_speak_to_epochs_of_the_paper(planted):
    quick = planted("quick", {})
    for name in (
        "pad6/accuracy_range",
        "pad6/accuracy_epoch500",
        "finding/unprimed_staircase",
        "finding/unprimed_steps",
    ):
        with pytest.raises(
            BadInput, match="^It needs pad6_n2_s0.3_w0.2 at an epoch of the recipe “paper”"
        ):
            measured(name, quick)
    with pytest.raises(BadInput, match="^It needs .* at an epoch of the recipe “paper”"):
        lengths.mlp_2500(quick)
    change = measured("pad6_finetuned/weight_norm_change", quick)
    assert change.runs.keys() == {0}


@pytest.mark.parametrize(
    ("recipe", "epochs", "expected"),
    [("quick", 60, [12, 24, 60]), ("paper", 2500, [500, 1000, 2500])],
)
def test_an_epoch_of_the_papers_is_the_same_share_of_a_shorter_training(recipe, epochs, expected):
    group, record = GROUPS[PAD6], {"recipe": recipe, "epochs": epochs}
    loaded = catalogue.GroupRuns(PAD6, "ours", group.config, (0,), {0: {}}, record, group.snapshots)
    assert [loaded.own_epoch(epoch) for epoch in (500, 1000, None)] == expected


# ---------------------------------------------------------------- heads that the paper names


def test_the_heads_that_the_paper_names_are_those_of_its_runs():
    """Head 1:1 decides and looks right most in its layer, and 0:0 in layer 0 (Fig. 21, 23, 25)."""
    folder = ROOT / "data" / "results" / "author"
    for name in (f"fig21_runs_500.{PAD6}", f"fig23_runs.{PRIMED}"):
        with np.load(folder / f"{name}.npz") as stored:
            named = [stored[key].item() for key in ("decision head", "right head", "ahead head")]
        assert named == ["1:1", "1:1", "0:0"]
    with np.load(folder / f"fig24_fates.{PRIMED}.npz") as stored:
        assert stored["head"].item() == "0:0"
    layout = groups.find(FINETUNED).config.layout
    with np.load(folder / f"fig25.{FINETUNED}.npz") as stored:
        assert stored["decision_head"] == 1
        attention = torch.from_numpy(stored["attention"]).mean(0)  # (layer, head, query, key)
    to_right = heads.column_mass(attention, layout, shift=1).nanmean(-1)
    assert int(to_right[-1].argmax()) == 1
    assert int(lengths.ahead(attention[0], layout).nanmean(-1).argmax()) == 0

"""Each criterion of a finding, tried on rows that lie just on either side of it."""

import math

import pandas as pd
import pytest

from carry_paper.findings import base, dynamics, heads
from carry_paper.findings.base import Fields
from carry_paper.ledger import registry

STAIRS = ({"value": 0.51}, {"value": 0.49})
LEADING_AXIS = (
    {"value": 0.951, "best_axis_at_7": 1, "best_axis_at_8": 1},
    {"value": 0.949},
    {"best_axis_at_7": 2},
    {"best_axis_at_8": 2},
)
CARRY_AXIS = ({"value": 0.71}, {"value": 0.69})
ONLY_CARRIES_LOST = (
    {"no_carry_cells": 0.901, "carry_cells": 0.49},
    {"no_carry_cells": 0.899},
    {"carry_cells": 0.51},
)
SEPARATES = ({"value": 0.951}, {"value": 0.949})
PREVIOUS_SUM = (
    {"decision_head": "1:0", "head_1:0_at_7_8": [0.21, 0.21], "head_1:1_at_7_8": [0.1, 0.2]},
    {"head_1:0_at_7_8": [0.19, 0.21], "head_1:1_at_7_8": [0.1, 0.1]},  # chance gives 2 of 10
    {"head_1:0_at_7_8": [0.21, 0.19], "head_1:1_at_7_8": [0.1, 0.1]},
    {"head_1:1_at_7_8": [0.22, 0.1]},  # the other head brings more
    {"head_1:1_at_7_8": [0.1, 0.22]},
    {"decision_head": "1:1"},
)

KINK = {
    "value": -10.0,
    "planned": 1000,
    "decay_rate": 0.01,
    "explained_variance": 0.951,
    "kink_moves_by": 9,
    "depth_of_the_fall_before": 0.101,
}

# Of each finding, a row that just shows what is claimed, and what to change in it so that it just
# does not.
EITHER_SIDE: dict[str, tuple[Fields, ...]] = {
    "full_adder": ({"tens": 0.751, "ones": 0.751}, {"tens": 0.749}, {"ones": 0.749}),
    "full_adder_carry": (
        {"carry": 0.81, "carry_before_the_last_attention": [0.5, 0.61]},
        {"carry": 0.749, "carry_before_the_last_attention": [0.0, 0.0]},
        {"carry_before_the_last_attention": [0.5, 0.751]},
        {"carry_before_the_last_attention": [0.751, 0.5]},
    ),
    "full_adder_xor": ({"bypassed": 0.751}, {"bypassed": 0.749}),
    "decision_head": ({"value": 0.011}, {"value": 0.009}),
    "decision_head_carries": ({"lowest_carry_cell": 0.991}, {"lowest_carry_cell": 0.989}),
    "decision_head_adds": (
        {"lowest_right_or_too_large": 0.991},
        {"lowest_right_or_too_large": 0.989},
    ),
    "final_mlp_carries": ({"value": 0.901}, {"value": 0.899}),
    "elsewhere_mlp": ({"value": 0.901}, {"value": 0.899}),
    "decoder_mlp": ({"value": 0.901}, {"value": 0.899}),
    "three_layers": (
        {"carry_cells": 0.49, "highest_carry_cell": 0.8, "lowest_no_carry_cell": 0.81},
        {"carry_cells": 0.51},
        {"highest_carry_cell": 0.82},
    ),
    "three_layers_heads": ({"value": 0.099}, {"value": 0.101}),
    "three_layers_pairs": (
        {
            "value": 0.101,
            "exact_match": [0.95, 0.899],
            "lowest_carry_cell": [0.5, 0.991],
            "lowest_right_or_too_large": [0.5, 0.991],
        },
        {"value": 0.099},
        {"lowest_carry_cell": [0.991, 0.989]},
        {"lowest_right_or_too_large": [0.991, 0.989]},
    ),
    "wide_mlp": ({"value": 0.899}, {"value": 0.901}),
    "too_much_without_mlp": ({"value": 0.899}, {"value": 0.901}),
    "wide_mlp_neurons": (
        {
            "no_carry_cells": 0.901,
            "carry_cells": 0.899,
            "highest_carry_cell": 0.8,
            "lowest_no_carry_cell": 0.81,
        },
        {"no_carry_cells": 0.899},
        {"carry_cells": 0.901},
        {"highest_carry_cell": 0.82},
    ),
    "decoder": (
        {"lowest_carry_cell": 0.991, "lowest_right_or_too_large": 0.991},
        {"lowest_carry_cell": 0.989},
        {"lowest_right_or_too_large": 0.989},
    ),
    "decoder_algorithm": ({"value": 0.81}, {"value": 0.79}),
    "elsewhere_attention": ({"value": 0.81}, {"value": 0.79}),
    "range": ({"verdict": "holds"}, {"verdict": "does not hold"}, {"verdict": "does not learn"}),
    "biases": ({"value": 0.009}, {"value": 0.011}),
    "biases_one_layer": ({"value": 0.011}, {"value": 0.009}),
    "three_layers_off_by_one": ({"value": 0.991}, {"value": 0.989}),
    "squashing": (
        {"at_7_8_9": [0.999, 0.999, 0.999]},
        {"at_7_8_9": [1.001, 0.1, 0.1]},
        {"at_7_8_9": [0.1, 0.1, 1.001]},
        {"at_7_8_9": [0.1, math.nan, 0.1]},
    ),
    "staircase": STAIRS,
    "decoder_staircase": STAIRS,
    "unprimed_staircase": STAIRS,
    "primed_staircase": STAIRS,
    "previous_sum": PREVIOUS_SUM,
    "decoder_previous_sum": PREVIOUS_SUM,
    "transition": (
        {"value": 20.0, "planned": 1000},
        {"value": 21.0},
        {"value": -21.0},
        {"value": math.nan},
        {"planned": 900},
    ),
    "strong_decay_transition": (
        {
            "planned": 1000,
            "steepest_rise": 320.0,
            "attention_passes_half": 100.0,
            "last_head_passes_half": 300.0,
        },
        {"last_head_passes_half": 299.0},
        {"last_head_passes_half": math.nan},
    ),
    "norm_bounce": (
        {"value": 10.0, "planned": 1000, "share_lost": 0.011, "share_gained": 0.011},
        {"value": 11.0},
        {"value": -11.0},
        {"share_lost": 0.009},
        {"share_gained": 0.009},
        {"value": math.nan},
    ),
    "one_layer_imperfect": ({"value": 0.9994}, {"value": 0.9996}),
    "one_layer_no_carry": ({"value": 0.949}, {"value": 0.951}),
    "decay_matters_one_layer": (
        {"value": 0.34, "runs_with_decay": [0.5, 0.9]},
        {"value": 0.36},
        {"runs_with_decay": [0.4, 0.9]},
    ),
    "carry_in_layer0": SEPARATES,
    "decoder_tens": SEPARATES,
    "four_digits": (
        {
            "value": 0.901,
            "cost_over_other_head": 0.101,
            "lowest_carry_cell": 0.991,
            "lowest_right_or_too_large": 0.991,
        },
        {"value": 0.899},
        {"cost_over_other_head": 0.099},
        {"lowest_carry_cell": 0.989},
        {"lowest_right_or_too_large": 0.989},
    ),
    "length": ({"value": 0.49, "primed": False}, {"value": 0.51}, {"primed": True}),
    "length_primed": ({"value": 0.51, "primed": True}, {"value": 0.49}),
    "unprimed_steps": (
        {"value": 0.951, "at_long_positions": 0.949},
        {"value": 0.949},
        {"at_long_positions": 0.951},
    ),
    "mlp_2500": (
        {"value": 0.7, "at_epochs_500_1000": [0.5, 0.6]},
        {"value": 0.59},
        {"at_epochs_500_1000": [0.61, 0.6]},
    ),
    "primed_parts": (
        {"no_carry_cells_lose_without_the_final_MLP": 0.11},
        {"no_carry_cells_lose_without_the_final_MLP": 0.09},
    ),
    "primed_head": (
        {"value": 0.51, "head": "head 0:0", "head_of_the_paper": "head 0:0"},
        {"value": 0.49},
        {"head": "head 0:1"},
    ),
    "primed_spared": (
        {
            "no_carry_cells_lose_without_the_final_MLP": 0.11,
            "trained_carry_cells_lose": 0.11,
            "long_carry_cells_lose": 0.09,
        },
        {"no_carry_cells_lose_without_the_final_MLP": 0.09},
        {"trained_carry_cells_lose": 0.09},
        {"long_carry_cells_lose": 0.11},
    ),
    "carry_axis_long": CARRY_AXIS,
    "carry_axis_finetuned": CARRY_AXIS,
    "finetune_small_change": ({"value": 0.049}, {"value": 0.051}),
    "no_grokking": ({"value": 50.0, "planned": 1000}, {"value": 51.0}, {"planned": 980}),
    "kink": (
        KINK,
        {"value": -11.0},
        {"value": 11.0},
        {"planned": 900},
        {"decay_rate": -0.01},
        {"explained_variance": 0.949},
    ),
    "layer0_tens": LEADING_AXIS,
    "layer0_tens_either": SEPARATES,
    "layer0_nine": SEPARATES,
    "carry_on_some_axis": SEPARATES,
    "own_sum": ({"value": 0.801}, {"value": 0.799}),
    "joint_ablation": ({"value": 0.901}, {"value": 0.899}),
    "dissection_without_decay": ONLY_CARRIES_LOST,
    "n2_w0/runs_full_mlp_ablation_works": ONLY_CARRIES_LOST,
    "loss_increases": ({"value": 1.21, "runs_with_decay": [1.2, 1.0]}, {"value": 1.19}),
    "weights_not_saturated": (
        {"value": -0.05, "runs_at_s_0.3": [0.01, -0.049]},
        {"value": 0.04},
        {"runs_at_s_0.3": [0.051, 0.01]},
        {"runs_at_s_0.3": [0.01, -0.051]},
    ),
    "layer1_carry": ({"axis_1_at_7": 0.951, "axis_1_at_8": 0.5}, {"axis_1_at_7": 0.949}),
    "layer1_carry_at_8": ({"axis_1_at_7": 0.5, "axis_1_at_8": 0.951}, {"axis_1_at_8": 0.949}),
    "outcome_pockets": (
        {"digit_and_class_after_it": [0.31, 0.3, 0.81, 0.8]},
        {"digit_and_class_after_it": [0.3, 0.31, 0.81, 0.8]},
        {"digit_and_class_after_it": [0.31, 0.3, 0.8, 0.81]},
    ),
    "pca_without_decision_head": (
        {"value": 0.949, "without_the_other_head": 0.951},
        {"value": 0.951},
        {"without_the_other_head": 0.949},
    ),
    "carry_axis": CARRY_AXIS,
    "carry_axis_dff512": CARRY_AXIS,
    "checkerboard": (
        {"value": 0.51, "intact": 0.5, "without_random_neurons": [0.1, 0.5]},
        {"value": 0.49},
        {"intact": 0.52},
        {"without_random_neurons": [0.52, 0.1]},
    ),
    "heads_separately": ({"value": 21.0, "planned": 1000}, {"value": 20.0}, {"planned": 1100}),
    "decoder_current_sum": (
        {
            "decision_head": "1:1",
            "head_1:0_at_7_8": [0.21, 0.21],
            "head_1:1_at_7_8": [0.1, 0.2],
        },
        {"head_1:0_at_7_8": [0.21, 0.19], "head_1:1_at_7_8": [0.1, 0.1]},  # chance gives 2 of 10
        {"head_1:1_at_7_8": [0.1, 0.22]},  # the decision head attends more to it
        {"decision_head": "1:0"},
    ),
    "four_digits_previous_sum": (
        # chance gives 2 of 13
        {
            "decision_head": "1:0",
            "head_1:0_at_9_10_11": [0.16, 0.16, 0.16],
            "head_1:1_at_9_10_11": [0.1, 0.1, 0.15],
        },
        {"head_1:0_at_9_10_11": [0.16, 0.16, 0.15], "head_1:1_at_9_10_11": [0.1, 0.1, 0.1]},
        {"head_1:1_at_9_10_11": [0.17, 0.1, 0.1]},
    ),
    "four_digits_by_class": ({"value": 0.51}, {"value": 0.49}),
    "four_digits_first_layer": ({"value": 0.51}, {"value": 0.49}),
    "unprimed_previous_sum": ({"value": 0.11, "uniform": 0.105}, {"value": 0.1}),
    "unprimed_first_layer": ({"layer_0": 0.11, "uniform": 0.105}, {"layer_0": 0.1}),
    "primed_previous_sum": ({"value": 0.11, "uniform": 0.105}, {"value": 0.1}),
    "primed_first_layer": (
        {"layer_0_exceeds_last_by": 0.01},
        {"layer_0_exceeds_last_by": 0.0},
    ),
    "finetuned_previous_sum": ({"value": 0.11, "uniform": 0.105}, {"value": 0.1}),
    "finetuned_first_layer": ({"layer_0": 0.11, "uniform": 0.105}, {"layer_0": 0.1}),
    "unpadded_fail": ({"value": 0.049}, {"value": 0.051}),
    "pentagon": (
        {"value": 0.901, "shuffled_labels_reach": 0.5},
        {"value": 0.899},
        {"shuffled_labels_reach": 0.902},
    ),
    "beyond/dissection_control": (
        {"carries_lost": 0.5, "carries_lost_without_random_ones": [0.49, 0.1]},
        {"carries_lost": 0.49},
        {"carries_lost_without_random_ones": [0.1, 0.5]},
    ),
    "beyond/one_line": SEPARATES,
    "beyond/explained": SEPARATES,
    "beyond/written_late": SEPARATES,
    "beyond/zero_names_it": ({"value": 1.0}, {"value": 0.0}),
}


def rules() -> dict[str, base.Rule]:
    """The rules that judge a row of measured values, by the finding's name."""
    rules = {}
    for name, entry in registry.ROWS.items():
        is_new = entry.rule is not None and entry.rule not in rules.values()
        if (name.startswith("finding/") or is_new) and "/llm_" not in name:
            rules[name.removeprefix("finding/")] = entry.rule
    return rules


@pytest.mark.parametrize("name", rules())
def test_a_rule_holds_on_one_side_of_its_criterion_and_not_on_the_other(name):
    rule, (shows, *changes) = rules()[name], EITHER_SIDE[name]
    assert rule(shows) is True
    for change in changes:
        assert rule({**shows, **change}) is False, change


def test_what_is_said_of_some_runs_only_is_asked_of_these():
    assert rules()["length"]({"value": 0.51, "primed": True})
    assert rules()["primed_head"]({"value": 0.51, "head": "head 0:1", "head_of_the_paper": ""})


@pytest.mark.parametrize(
    "change",
    [
        {"kink_moves_by": 11},
        {"depth_of_the_fall_before": 0.099},
        {"explained_variance": math.nan},
    ],
)
def test_a_run_without_a_kink_or_a_rise_can_t_say_whether_they_coincide(change):
    assert dynamics.starts_at_the_kink(KINK) is True
    assert dynamics.starts_at_the_kink({**KINK, **change}) is None
    assert dynamics.starts_at_the_kink({**KINK, **change, "value": 400.0}) is None


def test_a_short_training_may_lag_two_epochs():
    rule = rules()["no_grokking"]
    assert rule({"value": 2.0, "planned": 20})
    assert not rule({"value": 3.0, "planned": 20})


def test_the_correlation_with_no_carries_is_taken_run_by_run():
    carry_in = [True, False, True, False]
    never = {"accuracy": [0.0, 1.0, 0.0, 1.0], "corrected": [1.0, 0.0, 1.0, 0.0]}
    intact = {"accuracy": [1.0] * 4, "corrected": [0.0] * 4}
    runs = [
        pd.DataFrame({"run": run, "carry_in": carry_in} | x) for run, x in ((3, never), (5, intact))
    ]
    correlations = heads.no_carry_correlations(pd.concat(runs))
    assert correlations.index.tolist() == [3, 5]
    assert correlations[3] == pytest.approx(1)
    assert abs(correlations[5]) < 0.1
    assert heads.no_carry_correlations(pd.concat(runs)[:0]).empty


@pytest.mark.parametrize(
    ("with_carry_in", "without", "tendency"),
    [(1.0, 0.3, "adds"), (0.3, 1.0, "forgets"), (0.95, 0.86, "little"), (0.9, 0.88, "adds")],
)
def test_a_model_without_a_head_adds_forgets_or_does_little(with_carry_in, without, tendency):
    assert heads.tendency(with_carry_in, without) == tendency

"""Bars know their perfect value, and rules can be judged at others."""

import operator
import pickle
import re
import sys
from copy import deepcopy

import pytest

from carry_paper.findings import heads
from carry_paper.findings.bars import Bar, bars, variants
from carry_paper.ledger import claims, registry
from tests.findings.test_criteria import EITHER_SIDE

# Rules without a bar: what they compare is measured, or true by definition.
WITHOUT_A_BAR = {
    "finding/decay_matters_one_layer": "compares with the runs with decay",
    "beyond/zero_names_it": "it is the same head, or not",
    "beyond/dissection_control": "most is more than half, and it compares with random neurons",
    "beyond/dissection_control_dff512": "likewise",
    "finding/checkerboard": "compares with random neurons",
    "finding/llm_heads": "compares with random pairs",
    "beyond/llm_control": "compares with the models of Table 2",
    "beyond/llm_control_random": "likewise",
    "finding/loss_increases": "compares with the runs with decay",
    "finding/weights_not_saturated": "compares with the runs at s = 0.3",
    "finding/mlp_2500": "compares epochs",
    "finding/outcome_pockets": "compares two accuracies",
    "finding/previous_sum": "compares with the other heads, and with uniform attention",
    "finding/decoder_previous_sum": "compares with the other heads, and with uniform attention",
    "finding/decoder_current_sum": "compares with the decision head, and with uniform attention",
    "finding/four_digits_previous_sum": "compares with the other heads, and with uniform attention",
    "finding/unprimed_previous_sum": "compares with uniform attention",
    "finding/unprimed_first_layer": "compares with uniform attention",
    "finding/primed_previous_sum": "compares with uniform attention",
    "finding/primed_first_layer": "compares with the last layer",
    "finding/finetuned_previous_sum": "compares with uniform attention",
    "finding/finetuned_first_layer": "compares with uniform attention",
    "finding/squashing": "smaller than before, or not",
}


def test_a_bar_at_half_and_at_twice_its_distance():
    bar = Bar(0.9, perfect=1)
    assert (bar.halved(), bar.doubled()) == pytest.approx((0.95, 0.8))
    low = Bar(0.1, perfect=0)
    assert (low.halved(), low.doubled()) == pytest.approx((0.05, 0.2))
    # 0 would be below what uniform attention gives, so that every model would have a staircase
    assert Bar(0.5, perfect=1, chance=0.1).doubled() == 0.1
    assert bar.halved().perfect == 1


def test_a_bar_is_a_number():
    bar = Bar(0.9, perfect=1, chance=0.5)
    assert (bar, f"{bar}", f"{Bar(0.02, perfect=0):.0%}", type(bar + 0)) == (
        0.9,
        "0.9",
        "2%",
        float,
    )
    for copy in (deepcopy(bar), pickle.loads(pickle.dumps(bar))):
        assert (copy, copy.perfect, copy.chance) == (0.9, 1, 0.5)


def test_each_bar_of_a_rule_is_tried_in_turn():
    rule = heads.decides
    assert bars(rule) == {"least_cost": heads.EXACT_MATCH_COST, "cell": heads.CELL_ACCURACY}
    by_name = variants(rule)
    assert list(by_name) == ["least_cost=0.05", "least_cost=0.2", "cell=0.995", "cell=0.98"]
    fields = {"value": 0.15, "lowest_carry_cell": 0.992, "lowest_right_or_too_large": 0.992}
    assert [by_name[name](fields) for name in by_name] == [True, False, False, True]
    assert rule(fields)


def test_a_number_has_no_rule_and_no_variants():
    assert variants(registry.ROWS["tab1/final_mlp/NC/accuracy/pos7"].rule) == {}


# Criteria that a reason names and that are no bars, since no rule can be asked at another one: they
# are part of what is measured.
MEASURED_WITH = {
    "HALF_OF_ATTENTION": "the level whose crossing dates a head's change",
    "LAST_TENTH": "the window over which weights may still change",
    "LEARNT_ACCURACY": "the level whose crossing dates when a run has learned",
    "MOST_CARRIES": "most is more than half",
    "PLOTTED": "the part of the curve that the paper shows",
    "RANDOM_SETS": "the number of random sets that are measured",
    "RANK_AMONG_SHUFFLED": "the quantile of shuffled labels that is measured",
    "RIGHT_TO_RANK": "the correct answers with which a model is no control",
    "SHORTEST_WINDOW": "two tests, which no recipe can divide",
    "SMALLEST_SHARE": "what the models that add have",
    "SQUASHED_OUTCOME": "the paper's example",
}


def test_a_criterion_that_a_reason_names_is_a_bar_or_is_measured_with():
    values = {}
    for name, claim in claims.claims().items():
        if claim.paper is None:
            module = sys.modules[registry.ROWS[name].function.__module__]
            for criterion in re.findall(r"\{([\w.]+)", claim.reason):
                values[criterion] = operator.attrgetter(criterion)(module)
    no_bars = {name for name, value in values.items() if not isinstance(value, Bar)}
    assert {name.rpartition(".")[2] for name in no_bars} <= MEASURED_WITH.keys()


@pytest.mark.parametrize(
    "name", [name for name, entry in registry.ROWS.items() if entry.rule is not None]
)
def test_every_rule_has_bars_or_a_reason_for_having_none(name):
    entry = registry.ROWS[name]
    assert bool(bars(entry.rule)) != (name in WITHOUT_A_BAR)
    example = EITHER_SIDE.get(name.removeprefix("finding/"), ({"value": 0.5},))[0]
    for rule in variants(entry.rule).values():
        assert rule(example) in (True, False, None)  # None where a rule cannot say

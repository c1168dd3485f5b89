"""Bars know their perfect value, and rules can be judged at others."""

import pkgutil
from importlib import import_module

import pytest

from carry_paper import findings
from carry_paper.findings import heads
from carry_paper.findings.bars import Bar, at_least, below, variants
from carry_paper.ledger import registry
from tests.findings.test_criteria import EITHER_SIDE


def test_a_bar_at_half_and_at_twice_its_distance():
    bar = Bar(0.9, perfect=1)
    assert (bar.at(0.5), bar.at(2.0)) == pytest.approx((0.95, 0.8))
    low = Bar(0.1, perfect=0)
    assert (low.at(0.5), low.at(2.0)) == pytest.approx((0.05, 0.2))
    # 0 would be below what uniform attention gives, so that every model would have a staircase
    assert Bar(0.5, perfect=1, chance=0.1).at(2.0) == 0.1
    assert bar.at(0.5).perfect == 1


def test_each_bar_of_a_rule_is_tried_in_turn():
    rule = heads.decides
    by_name = variants(rule)
    assert list(by_name) == ["least_cost=0.05", "least_cost=0.2", "cell=0.995", "cell=0.98"]
    fields = {"value": 0.15, "lowest_carry_cell": 0.992, "lowest_right_or_too_large": 0.992}
    assert [by_name[name](fields) for name in by_name] == [True, False, False, True]
    assert rule(fields)


def test_bars_are_shares_and_perfect_is_none_or_all():
    for module in pkgutil.iter_modules(findings.__path__, "carry_paper.findings."):
        for name, bar in vars(import_module(module.name)).items():
            if isinstance(bar, Bar):
                assert 0 < bar < 1, name
                assert bar.perfect in (0, 1), name
                if bar.chance is not None:  # which lies beyond the bar
                    assert abs(bar.perfect - bar) < abs(bar.perfect - bar.chance) < 1, name


def test_a_number_has_no_rule_and_no_variants():
    assert variants(registry.ROWS["tab1/final_mlp/NC/accuracy/pos7"].rule) == {}


def test_every_rule_can_be_asked_at_its_other_bars():
    for name, entry in registry.ROWS.items():
        if entry.rule is not None:
            example = EITHER_SIDE.get(name.removeprefix("finding/"), ({"value": 0.5},))[0]
            for rule in variants(entry.rule).values():
                assert rule(example) in (True, False, None), name  # None where it cannot say


def test_a_rule_of_one_bar_names_its_variants_by_their_values():
    assert list(variants(heads.has_staircase)) == ["0.75", "0.1"]
    assert at_least(Bar(0.5, perfect=1))({"value": 0.5}) is True
    assert below(Bar(0.5, perfect=0), "cost")({"cost": 0.5}) is False

"""The table of rows has the ids of `claims.yml`, and each row is measured on small random runs."""

import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

import pytest

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.model import Transformer
from carry_paper.findings import elsewhere, interchange_maps, lengths, line_table, typology
from carry_paper.findings import evidence as evidence_module
from carry_paper.findings.base import DIGITS4
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Survey
from carry_paper.ledger import claims, compute, registry
from carry_paper.ledger.entries import Measurement
from carry_paper.ledger.registry import ROWS
from carry_train.groups import GROUPS
from tests.conftest import drawing_few
from tests.helpers.trainings import planted_curves, save_random

# The functions of language models are called in `tests/llm/test_recorded.py`.
# Rows about sums that the model gets right; the random one here gets none right.
ABOUT_CORRECT_SUMS = (
    "finding/own_sum",
    "beyond/mlp_adds_only",
    "beyond/adder_digit_sum",
    "beyond/adder_digit_sum_at_digits",
    "beyond/adder_carry_in",
    "beyond/adder_all",
)
N_RUNS = 2  # of each group
CALLED = [name for name in ROWS if not name.startswith(("tab2/", "llm/", "finding/llm_heads"))]


def test_the_registry_has_the_rows_of_claims_yml_and_no_others():
    assert set(ROWS) == set(claims.claims())


def test_a_row_is_found_by_its_id_in_the_file():
    """Table cells excepted, which are too many to write down."""
    lines = (ROOT / "carry_paper" / "ledger" / "registry.py").read_text()
    missing = [name for name in ROWS if f'"{name}":' not in lines and not claims.CELL.search(name)]
    assert missing == []


# ---------------------------------------------------------------- reasons


def numbers_in(text: str) -> set[float]:
    """Return the shares that a text names: decimals, and percentages as shares."""
    shares = {float(number) for number in re.findall(r"\d+\.\d+", text)}
    return shares | {int(number) / 100 for number in re.findall(r"(\d+)%", text)}


def constants_of(name: str) -> dict[str, float]:
    """Return the criteria of the module that has a row's function, with those of modules in it."""
    module = sys.modules[ROWS[name].function.__module__]
    modules = [module, *(x for x in vars(module).values() if "carry_paper.findings" in str(x))]
    constants = {}
    for holder in modules:
        for constant, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
            if constant.isupper() and isinstance(value, float):
                constants[constant] = value
    return constants


@pytest.mark.parametrize("name", [n for n, c in claims.claims().items() if c.paper is None])
def test_a_criterion_stands_in_its_module_and_not_again_in_the_reason(name):
    claim = claims.claims()[name]
    assert "{" not in registry.reason(claim)
    written = numbers_in(re.sub(r"\{[^}]*\}", "", claim.reason))
    assert written & set(constants_of(name).values()) == set()


def test_a_reason_with_an_unknown_constant_is_one_line():
    claim = claims.claims()["finding/staircase"]
    for reason in ("at least {NO_SUCH_LEVEL}", "at least {PARTNER_ATTENTION", "at least {}"):
        with pytest.raises(BadInput, match="The reason of finding/staircase in claims.yml"):
            registry.reason(replace(claim, reason=reason))


def test_a_reason_has_the_number_that_the_rule_uses(monkeypatch):
    monkeypatch.setattr("carry_paper.findings.heads.PARTNER_ATTENTION", 0.6)
    assert "at least 0.6 of" in registry.reason(claims.claims()["finding/staircase"])


# ---------------------------------------------------------------- functions


def of_numbers(table, loaded):
    """Stand in for `line_table.of_weights`, which finds no row of random weights."""
    rows = table[(table.source == loaded.source) & (table.group == loaded.group)]
    return rows[(rows.recipe == "paper") & rows.run.isin(loaded.numbers)]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory) -> Iterator[Evidence]:
    """Untrained runs with small layers under the names of the real groups, and few sums."""
    with pytest.MonkeyPatch.context() as patch, drawing_few():
        data = tmp_path_factory.mktemp("data")
        patch.setenv("CARRY_DATA", str(data))
        maps = ROOT / "data" / "results" / "interchange" / "ours"
        (data / "results" / "interchange").mkdir(parents=True)
        shutil.copytree(maps, data / "results" / "interchange" / "ours")
        # They are of the shipped weights, and these runs are random.
        patch.setattr(interchange_maps, "other_runs", lambda source, group: [])
        shutil.copy(ROOT / "data" / "results" / "lines.csv.gz", data / "results")
        patch.setattr(line_table, "of_weights", of_numbers)
        for name, group in list(GROUPS.items()):
            small = replace(group, config=replace(group.config, d_model=16, d_ff=12))
            patch.setitem(GROUPS, name, small)
            save_random(small, range(N_RUNS), **planted_curves(small))
        few, four = measure.sample(100, 3, seed=0), measure.sample(20, 4, seed=0)
        patch.setattr(
            evidence_module, "fixed_sums", lambda group: four if group == DIGITS4 else few
        )
        for module, constant, count in (
            (lengths, "BALANCED", 89),
            (lengths, "RANDOM", 200),
            (typology, "COUNT", 50),
            (elsewhere, "SUMS", 50),
        ):
            patch.setattr(module, constant, count)
        yield compute.Ledger("ours").evidence


def signature(function: Callable[..., Any]) -> tuple[str, type]:
    """Return the name and the type of the parameter that a function is called with."""
    plain = function.func if isinstance(function, partial) else function
    hints = get_type_hints(plain if hasattr(plain, "__name__") else type(plain).__call__)
    for name, hint in hints.items():
        if hint in (Transformer, Survey, Evidence):
            return name, hint
    raise AssertionError(f"{function} takes no model, survey or evidence")


def values(result: Any) -> list[Any]:
    """Return the values of what a number's function returns: fields or a measurement."""
    if isinstance(result, Measurement):
        return result.value if isinstance(result.value, list) else [result.value]
    return [result["value"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLED if ROWS[name].rule is None])
def test_each_number_is_measured_by_what_its_function_takes(evidence, name):
    entry = ROWS[name]
    if entry.function is None:
        assert entry.measure(evidence).value > 0
        return
    _, kind = signature(entry.function)
    if kind is Transformer:
        argument: Any = evidence.group(entry.groups[0]).model(0)
    elif kind is Survey:
        argument = evidence.surveys(entry.groups[0])[0]
    else:
        argument = evidence
    numbers = values(entry.function(argument))
    assert numbers
    assert all(isinstance(number, float) for number in numbers)
    assert not all(map(math.isnan, numbers))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLED if ROWS[name].rule is not None])
def test_each_finding_is_measured_in_each_run(evidence, name):
    entry = ROWS[name]
    _, kind = signature(entry.function)
    measurement = entry.measure(evidence)
    assert set(measurement.runs) == set(measurement.shows) == set(measurement.fields)
    assert 1 <= len(measurement.runs) <= N_RUNS * len(entry.groups)
    numbers = [*measurement.runs.values(), measurement.value]
    assert all(isinstance(number, float) for number in numbers)
    if name in ABOUT_CORRECT_SUMS:
        assert all(map(math.isnan, numbers))
        assert not any(measurement.shows.values())
        return
    assert not all(map(math.isnan, numbers))
    may_be_undecided = (bool, type(None)) if kind is Evidence else bool
    assert all(isinstance(shows, may_be_undecided) for shows in measurement.shows.values())


@pytest.mark.slow
def test_a_row_of_several_runs_asks_for_its_groups_and_no_others(evidence, monkeypatch):
    groups_read: set[str] = set()
    for method in ("group", "curves"):
        read_group = getattr(Evidence, method)

        def noted(self, group, read_group=read_group):
            groups_read.add(group)
            return read_group(self, group)

        monkeypatch.setattr(Evidence, method, noted)
    # What another test has measured is measured anew.
    monkeypatch.setattr(Evidence, "once", lambda self, key, measure: measure())
    groups_of_function: dict[Any, set[str]] = {}  # several rows may share a function
    for name in CALLED:
        entry = ROWS[name]
        # What `typology.statements` measures is kept for all rows beyond the paper.
        if entry.function is None or entry.need or name.startswith("beyond/"):
            continue
        if signature(entry.function)[1] is not Evidence:
            continue
        if entry.function not in groups_of_function:
            groups_read.clear()
            entry.measure(evidence)
            groups_of_function[entry.function] = set(groups_read)
        assert groups_of_function[entry.function] == set(entry.groups), name

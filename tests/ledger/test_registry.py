"""The table of rows has the ids of `claims.yml`, and each row is measured on small random runs."""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest

from carry_core import measure
from carry_core.files import ROOT
from carry_core.model import Transformer
from carry_paper.findings import elsewhere, interchange_maps, lengths, line_table, typology
from carry_paper.findings import evidence as evidence_module
from carry_paper.findings.base import DIGITS4
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need, Survey
from carry_paper.ledger import claims, entries, ledger, registry
from carry_paper.ledger.entries import takes
from carry_paper.ledger.measuring import Measuring, quantities
from carry_paper.ledger.registry import ROWS
from carry_train.groups import GROUPS
from tests.conftest import drawing_few
from tests.helpers.measured import of_entry
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
# They are of language models, and of cells.
NOT_OF_RUNS = ("tab2/", "llm/", "finding/llm_heads", "beyond/llm_control", "finding/range")
CALLED = [name for name in ROWS if not name.startswith(NOT_OF_RUNS)]


def test_the_registry_has_the_rows_of_claims_yml_and_no_others():
    assert set(ROWS) == set(claims.claims())


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


def test_a_criterion_stands_in_its_module_and_not_again_in_the_reason():
    for name, claim in claims.claims().items():
        if claim.paper is None:
            assert "{" not in registry.reason(claim)
            written = numbers_in(re.sub(r"\{[^}]*\}", "", claim.reason))
            assert written & set(constants_of(name).values()) == set(), name


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
        yield Evidence("ours")


@pytest.fixture(scope="module")
def table(evidence) -> pd.DataFrame:
    """All quantities, measured."""
    measuring = Measuring(evidence, quantities(ROWS[name] for name in CALLED))
    table = measuring.rows()
    assert measuring.failed == []
    return table


@pytest.mark.slow
def test_each_row_is_measured_in_each_run(table):
    """In one test, so that only one process measures them."""
    measured = ledger.Measured("ours", table, all_runs=True)
    for name in CALLED:
        if claims.claims()[name].paper is not None:
            check_number(name, measured)
        else:
            check_finding(name, measured)


def check_number(name, measured):
    row = ledger.combine(claims.claims()[name], measured).row
    numbers = row.value if isinstance(row.value, list) else [row.value]
    assert all(isinstance(number, float | int) for number in numbers), name
    assert len(row.runs) <= N_RUNS, name


def check_finding(name, measured):
    entry = ROWS[name]
    row = ledger.combine(replace(claims.claims()[name], recipe_sensitive=False), measured).row
    # It reads the stored maps, which are of all shipped runs.
    if entry.function is not elsewhere.last_attention:
        assert len(row.runs) <= N_RUNS * len(entry.groups)
    assert row.runs, name
    if name in ABOUT_CORRECT_SUMS:
        assert set(row.runs) == {None}
        assert set(row.fields["shows"]) == {None}
        return
    assert not all(value is None for value in row.runs), name
    may_be_undecided = (bool, type(None)) if takes(entry.function) is Evidence else bool
    assert all(isinstance(shows, may_be_undecided) for shows in row.fields["shows"]), name


def test_each_quantity_takes_what_can_be_given_to_it():
    for name, entry in ROWS.items():
        if entry.function is not None:
            kind = takes(entry.function)
            assert (kind in (Transformer, Survey, Evidence)) != bool(entry.model), name
            assert kind is Survey or entry.need in (None, Need()), name


def test_no_two_quantities_have_one_name():
    functions = {entry.function for entry in ROWS.values()} - {None}
    assert len({entries.name_of(function) for function in functions}) == len(functions)


@pytest.mark.slow
def test_a_row_of_several_runs_asks_for_its_groups_and_no_others(evidence, monkeypatch):
    groups_read: set[str] = set()
    for method in ("group", "curves"):
        read_group = getattr(Evidence, method)

        def noted(self, group, read_group=read_group):
            groups_read.add(group)
            return read_group(self, group)

        monkeypatch.setattr(Evidence, method, noted)
    for name in CALLED:
        entry = ROWS[name]
        # What `typology.statements` measures takes long, and the abstract's attention reads maps.
        if name.startswith("beyond/") or name == "finding/elsewhere_attention":
            continue
        if entry.function is None:
            continue
        if takes(entry.function) is Evidence:
            groups_read.clear()
            of_entry(entry, evidence)
            # Rows that read one quantity may each be about some of its groups.
            same = [other for other in ROWS.values() if other.function is entry.function]
            assert groups_read == {group for other in same for group in other.all_groups}, name

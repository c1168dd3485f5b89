"""What the paper prints and states: every number and every finding, as `data/claims.yml` has them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import yaml

from carry_core import carries
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.ledger import verdicts
from carry_core.measure import ClassAccuracies

NOTEBOOKS = (
    "fig01_summary", "fig02_one_layer_transition", "fig03_attention_per_task", "fig04_pca_journey",
    "fig05_mlp_evolution", "fig06_llemma", "fig07_one_layer_journey", "fig08_one_layer_runs",
    "fig09_one_layer_without_decay", "fig10_one_layer_strong_decay", "fig11_learning_dynamics",
    "fig12_two_layers_without_decay", "fig13_carry_axis_dff512", "fig14_carry_axis", "fig15_decoder_attention",
    "fig16_decoder_journey", "fig17_pentagon", "fig18_four_digits_attention", "fig19_four_digits_journey",
    "fig20_length_generalisation", "fig21_unprimed_attention", "fig22_unprimed_journey", "fig23_primed_attention",
    "fig24_primed_journey", "fig25_finetuned", "fig26_full_adder", "tab01_decision_head_and_final_mlp",
    "tab02_language_models", "tab03_three_layers", "tab04_dissection", "tab05_decoder", "app_g_alpaca",
    "app_h_longer_sums", "beyond_the_paper", "beyond_74", "does_the_head_decide", "two_ways_to_break_a_head",
    "trained_groups",
)  # fmt: skip
"""The pages that a claim can be shown on."""


@dataclass(frozen=True)
class Claim:
    """One published number, or one finding.

    Attributes:
        id: stable name such as `tab1/final_mlp/NC/accuracy/pos7` or `finding/biases`.
        where: section, table or figure of the paper.
        paper: the printed value or a list of them; None for a finding.
        notebook: the page that shows it.
        rule: one of `verdicts.RULES`.
        reason: why this rule.
        note: what the paper leaves open.
        unit: the last printed digit.
        range: how far the quantity can range.
        single: whether the paper's number is one run's.
        claim: what a finding says.
        measure: what is computed for it.
    """

    id: str
    where: str
    paper: Any
    notebook: str
    rule: str
    reason: str
    note: str = ""
    unit: float | int = 0.01
    range: float | int = 1.0
    single: bool = False
    claim: str = ""
    measure: str = ""


REQUIRED = ("id", "where", "paper", "notebook", "rule", "reason")
TEXTS = ("id", "where", "notebook", "rule", "reason", "note", "claim", "measure")
CHOICES: dict[str, Sequence[str]] = {"notebook": NOTEBOOKS, "rule": tuple(verdicts.RULES)}


def claims() -> dict[str, Claim]:
    """All claims of `data/claims.yml` by id.

    Raises:
        BadInput: the file is not a list of claims, a key is unknown or missing, an id occurs twice, or a notebook or
            a rule is none that there is.
    """
    path = data_dir() / "claims.yml"
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise BadInput(f"Cannot read {path} ({why}): restore it with `git checkout {path}`.") from error


@lru_cache(maxsize=2)
def _read(path: Path, _modified: int) -> dict[str, Claim]:
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    claims: dict[str, Claim] = {}
    if not rows:
        raise BadInput(f"{path} has no claims: restore it with `git checkout {path}`.")
    for row in rows if isinstance(rows, list) else [rows]:
        claim = _claim(path, row)
        if claim.id in claims:
            raise BadInput(f"{path}: the id {claim.id} occurs twice: remove one of the two.")
        claims[claim.id] = claim
    return claims


def _claim(path: Path, row: Any) -> Claim:
    if not isinstance(row, dict) or "id" not in row:
        raise BadInput(f"{path}: {row!r} is not a claim: expected a mapping with {', '.join(REQUIRED)}.")
    name = row["id"]
    if unknown := set(row) - {f.name for f in fields(Claim)}:
        raise BadInput(f"{path}: {name} has an unknown key {min(map(str, unknown))}: remove it.")
    for key in REQUIRED:
        if key not in row or (row[key] in (None, "") and key != "paper"):
            raise BadInput(f"{path}: {name} has no {key}: write one, or refer to a family that has one.")
    for key, fits, expected in (
        *((key, isinstance(row.get(key, ""), str), "text") for key in TEXTS),
        ("single", isinstance(row.get("single", False), bool), "true or false"),
        ("paper", row["paper"] is None or numeric(row["paper"]), "a number, or a list of numbers, as in 5.0e+7"),
        *((key, _positive(row.get(key, 1)), "a positive number") for key in ("unit", "range")),
    ):
        if not fits:
            raise BadInput(f"{path}: {name} has the {key} {row[key]!r}: expected {expected}.")
    for key, choices in CHOICES.items():
        if row[key] not in choices:
            raise BadInput(f"{path}: {name} has the unknown {key} {row[key]!r}: expected one of {', '.join(choices)}.")
    if (row["paper"] is None) != (row["rule"] in verdicts.FINDING_RULES):
        whose = "numbers" if row["paper"] is None else "findings"
        raise BadInput(f"{path}: {name} has the rule {row['rule']}, which is for {whose}: choose another.")
    return Claim(**row)


def numeric(value: Any) -> bool:
    """Whether it is a number, or a list of such."""
    if isinstance(value, list):
        return bool(value) and all(map(numeric, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return numeric(value) and not isinstance(value, list) and value > 0


def cells(prefix: str) -> ClassAccuracies:
    """A table of the paper as `ClassAccuracies`, such as `tab1/final_mlp`.

    Raises:
        BadInput: the ledger has no such table.
    """
    known = claims()
    values = {}
    for kind in ("accuracy", "corrected"):
        ids = [[f"{prefix}/{carries.claim_key(p)}/{kind}/pos{i}" for i in (7, 8, 9)] for p in carries.patterns(3)]
        missing = [name for row in ids for name in row if name not in known]
        if missing:
            raise BadInput(f"The ledger has no {missing[0]}: expected a table such as tab1/final_mlp.")
        values[kind] = torch.tensor([[float(known[name].paper) for name in row] for row in ids])
    return ClassAccuracies(values["accuracy"], values["corrected"], exact_match=float("nan"))


def chosen(only: str = "") -> list[Claim]:
    """The claims whose id starts with `only`.

    Raises:
        BadInput: there are none.
    """
    found = [claim for claim in claims().values() if claim.id.startswith(only)]
    if not found:
        known = dict.fromkeys(name.split("/")[0] for name in claims())
        raise BadInput(f"--only {only}: no id starts with that; ids start with {', '.join(known)}.")
    return found

"""What the paper prints and states: every number and every finding, as `data/claims.yml` has them."""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
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

CELL = 4  # slashes in the id of a cell: table, ablated part, class, kind, position
KINDS = {"accuracy": "accuracy", "corrected": "corrected accuracy"}


@dataclass(frozen=True)
class Claim:
    """One published number, or one finding.

    Attributes:
        id: stable name such as `tab1/final_mlp/NC/accuracy/pos7` or `finding/biases`.
        where: section, table or figure of the paper.
        paper: the printed value or a list of them; None for a finding.
        notebook: the page that shows it.
        heading: its section of the ledger, and after a comma what the rows around it have in common.
        reason: why this rule; of a finding, when a run shows it.
        rule: of a number, one of `verdicts.RULES`.
        quantifier: of a finding, one of `verdicts.QUANTIFIERS`.
        note: what the paper leaves open.
        unit: the last printed digit.
        range: how far the quantity can range.
        single: whether the paper's number, or what it says, is of one run.
        title: the number in words; not of a cell of a table, or a finding.
        claim: what a finding says.
        measure: what is computed for it.
    """

    id: str
    where: str
    paper: Any
    notebook: str
    heading: str
    reason: str
    rule: str = ""
    quantifier: str = ""
    note: str = ""
    unit: float | int = 0.01
    range: float | int = 1.0
    single: bool = False
    title: str = ""
    claim: str = ""
    measure: str = ""

    @property
    def section(self) -> str:
        """Its part of the ledger, such as `Table 1`."""
        return self.heading.partition(", ")[0]

    @property
    def part(self) -> str:
        """What the rows around it have in common, such as `without the final MLP`; empty if nothing."""
        return self.heading.partition(", ")[2]

    @property
    def words(self) -> str:
        """What a number is of, or what a finding says."""
        if self.title or self.paper is None:
            text = self.title or self.claim
        else:
            _, _, pattern, kind, position = self.id.split("/")
            name, digit = carries.paper_name(carries.parse_class(pattern)), position.removeprefix("pos")
            text = f"{self.part}: {name}, {KINDS[kind]} at position {digit}"
        return text[:1].upper() + text[1:]

    @property
    def page(self) -> str:
        """The notebook that shows it in words, such as `Table 1`."""
        float_, appendix = re.match(r"(fig|tab)(\d+)_", self.notebook), re.match(r"app_([a-z])_", self.notebook)
        if float_:
            return f"{'Figure' if float_[1] == 'fig' else 'Table'} {int(float_[2])}"
        return f"Appendix {appendix[1].upper()}" if appendix else self.notebook.capitalize().replace("_", " ")


def numeric(value: Any) -> bool:
    """Whether it is a number, or a list of such."""
    if isinstance(value, list):
        return bool(value) and all(map(numeric, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return numeric(value) and not isinstance(value, list) and value > 0


TEXT: tuple[Callable[[Any], bool], str] = (lambda value: isinstance(value, str), "text")
EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = dict.fromkeys((f.name for f in fields(Claim)), TEXT) | {
    "paper": (lambda value: value is None or numeric(value), "a number, or a list of numbers, as in 5.0e+7"),
    "unit": (_positive, "a positive number"),
    "range": (_positive, "a positive number"),
    "single": (lambda value: isinstance(value, bool), "true or false"),
    "rule": (lambda value: value in tuple(verdicts.RULES), f"one of {', '.join(verdicts.RULES)}"),
    "quantifier": (
        lambda value: value in tuple(verdicts.QUANTIFIERS),
        f"one of {', '.join(verdicts.QUANTIFIERS)}",
    ),
}


def claims() -> dict[str, Claim]:
    """All claims of `data/claims.yml` by id.

    Raises:
        BadInput: the file is not a list of claims, a key is unknown, missing or not of its kind, or an id occurs twice.
    """
    path = data_dir() / "claims.yml"
    if not path.exists():
        path = Path(__file__).with_name("claims.yml")  # installed without the repository's data
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
    required = [f.name for f in fields(Claim) if f.default is MISSING]
    if not isinstance(row, dict) or "id" not in row:
        raise BadInput(f"{path}: {row!r} is not a claim: expected a mapping with {', '.join(required)}.")
    name = row["id"]
    for key in required:
        if key not in row or row[key] == "":
            raise BadInput(f"{path}: {name} has no {key}: write one, or refer to a family that has one.")
    for key, value in row.items():
        if key not in EXPECTED:
            raise BadInput(f"{path}: {name} has an unknown key {key}: remove it.")
        fits, expected = EXPECTED[key]
        if not fits(value):
            raise BadInput(f"{path}: {name} has the {key} {value!r}: expected {expected}.")
    needed, other = ("quantifier", "rule") if row["paper"] is None else ("rule", "quantifier")
    if needed not in row or other in row:
        raise BadInput(f"{path}: {name} needs a {needed} and no {other}: numbers have rules, findings quantifiers.")
    if row["paper"] is not None and not row.get("title") and name.count("/") != CELL:
        raise BadInput(f"{path}: {name} has no title: write one; only the cell of a table is named by its id.")
    return Claim(**row)


def cells(prefix: str) -> ClassAccuracies:
    """A table of the paper as `ClassAccuracies`, such as `tab1/final_mlp`.

    Raises:
        BadInput: the ledger has no such table.
    """
    known = claims()
    values = []
    for kind in KINDS:
        ids = [[f"{prefix}/{carries.claim_key(p)}/{kind}/pos{i}" for i in (7, 8, 9)] for p in carries.patterns(3)]
        if missing := [name for row in ids for name in row if name not in known]:
            raise BadInput(f"The ledger has no {missing[0]}: expected a table such as tab1/final_mlp.")
        values.append(torch.tensor([[float(known[name].paper) for name in row] for row in ids]))
    return ClassAccuracies(values[0], values[1], exact_match=float("nan"))


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

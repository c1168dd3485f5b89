"""The ledger: every number that the paper prints, as data."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import yaml

from carry_core import tasks
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.measure import Cells

KEYS = {"id", "where", "paper", "note"}


@dataclass(frozen=True)
class Claim:
    """One published number.

    Attributes:
        id: stable name such as `tab1/final_mlp/NC/accuracy/pos7`.
        where: section, table or figure of the paper.
        paper: the printed value, or a list of them.
        note: what the paper leaves open.
    """

    id: str
    where: str
    paper: Any
    note: str = ""


@cache
def published() -> dict[str, Claim]:
    """All claims of `data/claims.yml` by id.

    Raises:
        BadInput: the file is not a list of claims, a key is unknown or missing, or an id occurs twice.
    """
    path = data_dir() / "claims.yml"
    try:
        rows = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"Cannot read {path} ({error}): restore it with `git checkout {path}`.") from error
    claims: dict[str, Claim] = {}
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict) or not {"id", "where", "paper"} <= set(row) <= KEYS:
            raise BadInput(f"{path}: {row!r} is not a claim: expected a mapping with id, where, paper and maybe note.")
        if row["id"] in claims:
            raise BadInput(f"{path}: the id {row['id']} occurs twice: remove one of the two.")
        claims[row["id"]] = Claim(**row)
    return claims


def printed_cells(prefix: str) -> Cells:
    """A table of the paper as `Cells`, such as `tab1/final_mlp`.

    Raises:
        BadInput: the ledger has no such table.
    """
    claims = published()
    values = {}
    for kind in ("accuracy", "corrected"):
        ids = [[f"{prefix}/{tasks.key(p)}/{kind}/pos{i}" for i in (7, 8, 9)] for p in tasks.patterns(3)]
        missing = [name for row in ids for name in row if name not in claims]
        if missing:
            raise BadInput(f"The ledger has no {missing[0]}: expected a table such as tab1/final_mlp.")
        values[kind] = torch.tensor([[float(claims[name].paper) for name in row] for row in ids])
    return Cells(values["accuracy"], values["corrected"], whole=float("nan"))

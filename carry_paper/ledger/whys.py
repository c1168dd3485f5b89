"""Why a row is not reproduced: the sentence of `claims.yml`, with its numbers from the results.

A name in braces is one of the row's numbers, or a criterion of its rule:

- `{runs[4]:.2f}`, the value of the fifth run;
- `{fields[moved][5]:.0%}`, what was measured beside it;
- `{value}`, `{n_showing}` and `{n}`, the row's value, and how many of its runs show a finding;
- `{quick}`, how many of the runs by the recipe `quick` show it;
- `{VISIBLE_BOUNCE:.0%}`, a constant of the module that has the row's function.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_paper.ledger import registry
from carry_paper.ledger.claims import Claim, Why
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import NOT_RUN

QUICK = "quick"


def why(row: Row, claim: Claim, source: str) -> Why | None:
    """Return the reason why a row of a source is not reproduced; None if there is none.

    There is none either where the row has not the runs that the sentence is about.

    Raises:
        BadInput: The sentence names what a row does not have.
    """
    given = claim.why.get(source)
    if given is None or row.verdict in ("reproduced", NOT_RUN):
        return None
    try:
        text = given.text.format_map(_Numbers(row, claim))
    except (IndexError, TypeError):  # other runs than those that it was written about
        return None
    except (AttributeError, KeyError, ValueError) as error:
        raise BadInput(
            f"The why of {claim.id} in claims.yml cannot be filled in ({error!r}): expected the "
            "row's numbers in braces, such as {runs[4]:.2f} or {fields[moved][5]:.0%}."
        ) from error
    return replace(given, text=text)


class _Numbers(Mapping[str, Any]):
    """The numbers of a row by the names that a sentence uses; each is found when it is asked."""

    def __init__(self, row: Row, claim: Claim) -> None:
        n_showing, n = row.shown or (0, len(row.runs))
        self._of_row = {
            "runs": row.runs,
            "fields": row.fields,
            "value": row.value,
            "n_showing": n_showing,
            "n": n,
        }
        self._claim = claim

    def __getitem__(self, name: str) -> Any:
        if name in self._of_row:
            return self._of_row[name]
        if name == QUICK:
            return of_quick(self._claim)
        return registry.constants(self._claim.id)[name]

    def __iter__(self) -> Any:
        return iter(self._of_row)

    def __len__(self) -> int:
        return len(self._of_row)


def of_quick(claim: Claim) -> str:
    """Return how many of our runs by `quick` show a finding about the main group, in words."""
    path = data_dir() / "results" / "seeds.csv.gz"
    shows = _shown_by_quick(path, path.stat().st_mtime_ns if path.exists() else 0, claim.id)
    if not shows:
        raise IndexError(claim.id)
    return f"{sum(shows)} of our {len(shows)} runs by {QUICK}"


@lru_cache(maxsize=8)
def _shown_by_quick(path: Path, _modified: int, name: str) -> tuple[bool, ...]:
    """Return whether each run by `quick` shows a finding, by the current rule."""
    if not path.exists():
        return ()
    entry = registry.entry(name)
    assert entry.rule is not None
    column = name.removeprefix("finding/")
    with reading(path, "run `make seeds`"):
        table = pd.read_csv(path, usecols=["source", "recipe", "epoch", column, "fields"])
        ours = table[(table.source == "ours") & (table.recipe == QUICK) & table.epoch.isna()]
        shows = []
        for value, fields in zip(ours[column], ours["fields"], strict=True):
            if pd.notna(value):
                beside = json.loads(fields).get(column, {})
                shows.append(bool(entry.rule({**beside, "value": value})))
    return tuple(shows)

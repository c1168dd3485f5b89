"""Why a row is not reproduced: the sentence of `claims.yml`, with its numbers from the results.

A name in braces is one of the row's numbers, or a criterion of its rule:

- `{runs[4]:.2f}`, the value of the fifth run;
- `{fields[moved][5]:.0%}`, what was measured beside it;
- `{value}` and `{highest}`, the row's value, and the highest of its runs;
- `{n_showing}` and `{n}`, how many of its runs show a finding;
- `{quick}`, how many of the runs by the recipe `quick` show it;
- `{VISIBLE_BOUNCE:.0%}`, a constant of the module that has the row's function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from carry_core.errors import BadInput
from carry_paper.ledger import registry
from carry_paper.ledger.claims import Claim, Why
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import NOT_RUN

QUICK = "quick"


def why(row: Row, claim: Claim, source: str, by_quick: Callable[[], Sequence[bool]]) -> Why | None:
    """Return the reason why a row of a source is not reproduced; None if there is none.

    There is none either where the row has not the runs that the sentence is about.

    Args:
        row: The row.
        claim: Its claim.
        source: `ours` or `author`.
        by_quick: Returns whether each of our runs by `quick` shows the finding.

    Raises:
        BadInput: The sentence names what a row does not have.
    """
    given = claim.why.get(source)
    if given is None or row.verdict in ("reproduced", NOT_RUN):
        return None
    try:
        text = given.text.format_map(_Numbers(row, claim, by_quick))
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

    def __init__(self, row: Row, claim: Claim, by_quick: Callable[[], Sequence[bool]]) -> None:
        n_showing, n = row.shown or (0, len(row.runs))
        self._of_row = {
            "runs": row.runs,
            "fields": row.fields,
            "value": row.value,
            "highest": max((x for x in row.runs if isinstance(x, float)), default=None),
            "n_showing": n_showing,
            "n": n,
        }
        self._claim = claim
        self._by_quick = by_quick

    def __getitem__(self, name: str) -> Any:
        if name in self._of_row:
            return self._of_row[name]
        if name == QUICK:
            shows = self._by_quick()
            if not shows:
                raise IndexError(self._claim.id)
            return f"{sum(shows)} of our {len(shows)} runs by {QUICK}"
        return registry.constants(self._claim.id)[name]

    def __iter__(self) -> Any:
        return iter(self._of_row)

    def __len__(self) -> int:
        return len(self._of_row)

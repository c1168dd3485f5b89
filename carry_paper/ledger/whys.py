"""Why a row is not reproduced: the sentence of `claims.yml`, with its numbers from the results.

A name in braces is one of the row's numbers, or a criterion of its rule:

- `{runs[4]:.2f}`, the value of the fifth run;
- `{fields[moved][5]:.0%}`, what was measured beside it;
- `{value}` and `{highest}`, the row's value, and the highest of its runs;
- `{n_showing}` and `{n}`, how many of its runs show a finding;
- `{VISIBLE_BOUNCE:.0%}`, a constant of the module that has the row's function.
"""

from dataclasses import replace

from carry_core.errors import BadInput
from carry_paper.ledger import registry
from carry_paper.ledger.claims import Claim, Why
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import NOT_RUN


def why(row: Row, claim: Claim, source: str) -> Why | None:
    """Return the reason why a row of a source is not reproduced; None if there is none.

    There is none either where the row has not the runs that the sentence is about.

    Args:
        row: The row.
        claim: Its claim.
        source: `ours` or `author`.

    Raises:
        BadInput: The sentence names what a row does not have.
    """
    given = claim.why.get(source)
    if given is None or row.verdict in ("reproduced", NOT_RUN):
        return None
    n_showing, n = row.shown or (0, len(row.runs))
    numbers = {
        **registry.constants(claim.id),
        "runs": row.runs,
        "fields": row.fields,
        "value": row.value,
        "highest": max((x for x in row.runs if isinstance(x, float)), default=None),
        "n_showing": n_showing,
        "n": n,
    }
    try:
        text = given.text.format_map(numbers)
    except (IndexError, TypeError):  # other runs than those that it was written about
        return None
    except (AttributeError, KeyError, ValueError) as error:
        raise BadInput(
            f"The why of {claim.id} in claims.yml cannot be filled in ({error!r}): expected the "
            "row's numbers in braces, such as {runs[4]:.2f} or {fields[moved][5]:.0%}."
        ) from error
    return replace(given, text=text)

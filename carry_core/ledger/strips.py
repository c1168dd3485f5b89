"""The runs of a row as dots on a line, one line for each source: a small SVG, drawn for hundreds of rows of a page."""

from collections.abc import Mapping
from html import escape
from typing import Any

from carry_core.ledger.outcomes import SOURCES, text
from carry_core.ledger.published import Claim
from carry_core.ledger.results import Row

WIDTH, LANE, EDGE, FOOT = 180, 14, 6, 10  # in px


def flat(value: Any) -> list[float]:
    """The numbers in a value of a row: a number, a list of them, None; nothing of deeper lists."""
    values = value if isinstance(value, list) else [value]
    return [float(x) for x in values if isinstance(x, (int, float))]


def domain(claim: Claim, rows: Mapping[str, Row]) -> tuple[float, float]:
    """The ends of the line: 0 and 1 for what ranges between them, else what holds the paper's value and all runs."""
    values = flat(claim.paper) + [x for row in rows.values() for run in [row.value, *row.runs] for x in flat(run)]
    low, high = min(values), max(values)
    if claim.range == 1 and low >= 0 and high <= 1:
        return 0.0, 1.0
    allowed = max([row.tolerance for row in rows.values() if row.tolerance is not None], default=0.0)
    for printed in flat(claim.paper):
        low, high = min(low, printed - allowed), max(high, printed + allowed)
    return (low, high) if high > low else (low - 1, high + 1)


def strip(claim: Claim, rows: Mapping[str, Row]) -> str:
    """The strip of a row, empty where there are no runs.

    Dots are runs, a tick is what is judged, the long line is the paper's value, the band what is allowed.
    """
    if not any(flat(run) for row in rows.values() for run in row.runs):
        return ""
    low, high = domain(claim, rows)
    drawn = []

    def x(value: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (min(max(value, low), high) - low) / (high - low), 1)

    for lane, (source, row) in enumerate(rows.items()):
        y = LANE * lane + LANE / 2
        drawn.append(f'<path class="axis" d="M{EDGE} {y:g}H{WIDTH - EDGE}"/>')
        for value in flat(claim.paper) if row.value is not None else []:
            left, right = (x(value + side * (row.tolerance or 0.0)) for side in (-1, 1))
            drawn.append(f'<path class="band" d="M{left:g} {y:g}H{max(right, left + 1):g}"/>')
        if dots := [x(value) for run in row.runs for value in flat(run)]:
            path = "".join(f"M{dot:g} {y:g}h0" for dot in dots)
            drawn.append(f'<path class="{source}" d="{path}"/>')
        drawn += [f'<path class="judged" d="M{x(value):g} {y - 5:g}v10"/>' for value in flat(row.value)]
    height = LANE * len(rows)
    drawn += [f'<path class="paper" d="M{x(value):g} 0V{height}"/>' for value in flat(claim.paper)]
    if (low, high) != (0.0, 1.0):
        drawn.append(f'<text x="{EDGE}" y="{height + FOOT - 1}">{low:.3g}</text>')
        drawn.append(f'<text x="{WIDTH - EDGE}" y="{height + FOOT - 1}" text-anchor="end">{high:.3g}</text>')
        height += FOOT
    name = escape(_said(claim, rows))
    return (
        f'<svg class="claims-strip" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{name}">{"".join(drawn)}</svg>'
    )


def _said(claim: Claim, rows: Mapping[str, Row]) -> str:
    parts = []
    for source, row in rows.items():
        if values := [value for run in row.runs for value in flat(run)]:
            ends = f"{text(min(values))} to {text(max(values))}"
            parts.append(f"{len(row.runs)} {'run' if len(row.runs) == 1 else 'runs'} of {SOURCES[source]}: {ends}")
    if claim.paper is not None:
        parts.append(f"paper: {text(claim.paper)}")
    return "; ".join(parts)

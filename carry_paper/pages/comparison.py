"""One self-contained page that compares runs of your own with the paper and with our seeds."""

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from carry_paper.findings import heads
from carry_paper.ledger import compare
from carry_paper.ledger.compare import ComparedRow, Subject
from carry_paper.pages.html import environment
from carry_paper.plots.comparison import Strip, first_layers, strips
from carry_paper.plots.outcomes import cell_bars
from carry_paper.plots.sides import OURS
from carry_paper.plots.style import svg

TEMPLATES = environment()
MOST_RUNS = 6  # of which the attention is drawn
YOURS = "yours"
TITLES = {
    "tab1/decision_head": "Table 1: digits without the decision head",
    "tab1/final_mlp": "Table 1: digits without the final MLP",
    "tab3/final_mlp": "Table 3: digits without the final MLP",
    "tab5/final_mlp": "Table 5: digits without the final MLP",
}


class Drawing(NamedTuple):
    """A figure as a data URI, with its caption and a text that says what can be seen."""

    caption: str
    alt: str
    source: str


def html(answers_of: Mapping[str, Sequence[ComparedRow]], subjects: Sequence[Subject]) -> str:
    """Return the page: the answers of each subject, by its name, with figures."""
    parts = []
    for subject in subjects:
        answers = answers_of[subject.name]
        rows = compare.summary(answers).to_dict("records")
        drawn = drawings(subject, answers)
        parts.append({"subject": subject, "rows": rows, "drawings": drawn})
    return TEMPLATES.get_template("comparison.html.j2").render(parts=parts)


def drawings(subject: Subject, answers: Sequence[ComparedRow]) -> list[Drawing]:
    """Return the figures on some runs: strips, tables by class, the first layer's attention."""
    drawn = []
    rows = strip_rows(answers)
    if rows:
        caption = "Each question: our runs, the paper’s number, your runs"
        alt = "; ".join(f"{row.question}: {compare.shares_in_words(row.yours)}" for row in rows)
        drawn.append(drawing(strips(rows), caption, alt))
    for table in compare.tables(answers):
        cells = compare.cells(answers, table).assign(ablation=TITLES[table].partition(": ")[2])
        sides = {}
        for name, side in ((OURS, "ours"), (YOURS, "yours"), ("paper", "paper")):
            of_side = cells[cells.side == side]
            if len(of_side):
                sides[name] = of_side
        alt = f"{TITLES[table]}, by class and position, of our runs and yours: {means(cells)}."
        drawn.append(drawing(cell_bars(sides), TITLES[table], alt))
    attention = {}
    for run in subject.loaded.numbers[:MOST_RUNS]:
        attention[str(run)] = heads.mean_attention(subject.loaded.model(run))[0].numpy()
    figure = first_layers(attention, subject.loaded.config.layout)
    caption = "The first layer’s mean attention: queries are rows, keys are columns"
    drawn.append(drawing(figure, caption, f"{caption}, of runs {', '.join(attention)}."))
    return drawn


def strip_rows(answers: Sequence[ComparedRow]) -> list[Strip]:
    """Return the questions whose answers are shares, or other numbers of each run."""
    rows = []
    for answer in answers:
        yours = {run: value for run, value in answer.runs.items() if isinstance(value, float)}
        if answer.table or not yours:
            continue
        paper = answer.paper if isinstance(answer.paper, float | int) else None
        rows.append(Strip(answer.question, paper, answer.seeds, yours))
    return rows


def means(cells: pd.DataFrame) -> str:
    """Return the mean accuracy of cells with and without a carry-in, of ours and of yours."""
    words = []
    for side, of_side in cells[cells.side != "paper"].groupby("side"):
        by_carry_in = of_side.groupby("carry_in").accuracy.mean()
        with_carry_in, without = by_carry_in.get(True), by_carry_in.get(False)
        words.append(f"{side} {with_carry_in:.2f} with a carry-in and {without:.2f} without")
    return "; ".join(words)


def drawing(figure: Figure, caption: str, alt: str) -> Drawing:
    """Return a figure as the page has it."""
    encoded = base64.b64encode(svg(figure, alt).encode()).decode()
    return Drawing(caption, alt, f"data:image/svg+xml;base64,{encoded}")

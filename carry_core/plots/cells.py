"""Accuracies per class and position, as bars with one bar a run and as tables (Tab. 1, 3, 4, 5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from carry_core import carries
from carry_core.measure import ClassAccuracies
from carry_core.plots.style import INK, WIDTH, Table, number, panel, position, styled

MARKS = {"reproduced": "", "differs": " ≠", "compatible": " ?"}
RIGHT, OFF_BY_ONE, OTHER = "#2B4570", "#F4A6A0", "#E5E7EB"
PAPER_LINE = (0, (2.5, 1.2))


@dataclass(frozen=True)
class Part:
    """A part of a table: what was ablated, and what each run then gets right.

    Attributes:
        title: what was ablated.
        cells: one for each run.
        printed: what the paper has, if it has it.
        verdicts: on each of its cells, as `comparison.judge_cells` gives them.
    """

    title: str
    cells: Sequence[ClassAccuracies]
    printed: ClassAccuracies | None = None
    verdicts: Mapping[str, Sequence[Sequence[str]]] | None = None

    def tally(self) -> str:
        """How many cells got which verdict, as a sentence."""
        counts = Counter(verdict for rows in (self.verdicts or {}).values() for row in rows for verdict in row)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS)
        return f"Cells {self.title}, of {counts.total()}: {told}."


@styled
def outcome_bars(
    right: Float[Tensor, "row column run"],
    off_by_one: Float[Tensor, "row column run"],
    row_names: Sequence[str],
    column_names: Sequence[str],
    runs: Sequence[int],
    printed: Float[Tensor, "row column"] | None = None,
    framed: Bool[Tensor, "row column"] | None = None,
    spans: Sequence[tuple[str, int]] = (),
    total: float = WIDTH,
) -> Figure:
    """What became of the digits, one bar a run: right, off by exactly the carried one, otherwise wrong (Tab. 1).

    Args:
        right: shares of right digits.
        off_by_one: shares that are right once corrected.
        row_names: one per row.
        column_names: one per column.
        runs: the runs' numbers.
        printed: the share of right digits that the paper has; NaN where it has none.
        framed: panels with a heavy frame.
        spans: titles above the columns, each with the number of columns that it covers; a gap divides them.
        total: the figure's width in inches.
    """
    n_rows, n_columns, n_runs = right.shape
    spans = spans or [("", n_columns)]
    group = [i for i, (_, covered) in enumerate(spans) for _ in range(covered)]
    longest = max(len(line) for name in row_names for line in name.split("\n"))
    lines = 1 + max(name.count("\n") for name in column_names) + any(text for text, _ in spans)
    left, gap, wide, title, foot = 0.36 + 0.065 * longest, 0.11, 0.2, 0.04 + 0.18 * lines, 0.44  # inches
    width = (total - left - 0.05 - gap * (n_columns - 1) - wide * group[-1]) / n_columns
    height = min(width, 0.85)
    figure = Figure(figsize=(total, title + n_rows * (height + gap) + foot))
    for i in range(n_rows):
        for j in range(n_columns):
            x = left + j * (width + gap) + wide * group[j]
            ax = panel(figure, x, title + i * (height + gap), width, height)
            ax.bar(range(n_runs), 1, color=OTHER, width=0.84)
            ax.bar(range(n_runs), (right[i, j] + off_by_one[i, j]).numpy(), color=OFF_BY_ONE, width=0.84)
            ax.bar(range(n_runs), right[i, j].numpy(), color=RIGHT, width=0.84)
            if printed is not None and not printed[i, j].isnan():
                ax.axhline(float(printed[i, j]), color="black", linewidth=1.2, linestyle=PAPER_LINE, clip_on=False)
            ax.set(xlim=(-0.6, n_runs - 0.4), ylim=(0, 1), xticks=range(n_runs), yticks=[0, 0.5, 1])
            ax.set_xticklabels(map(str, runs) if i == n_rows - 1 else [])
            ax.set_yticklabels(["0", "½", "1"] if j == 0 else [])
            ax.tick_params(length=0, pad=2.5, labelsize=6.5)
            if framed is not None and framed[i, j]:
                ax.spines[:].set(linewidth=2, color=INK)
            if i == 0:
                ax.set_title(column_names[j])
            if j == 0:
                ax.set_ylabel(row_names[i], rotation=0, ha="right", va="center", weight="bold")
    across, down = figure.get_size_inches()
    for i, (text, _) in enumerate(spans):
        first, covered = group.index(i), group.count(i)
        middle = left + first * (width + gap) + wide * i + (covered * (width + gap) - gap) / 2
        figure.text(middle / across, 1 - 0.03 / down, text, ha="center", va="top", weight="bold")
    entries: list[Any] = [
        Patch(color=colour, label=text)
        for colour, text in ((RIGHT, "right"), (OFF_BY_ONE, "off by exactly the one"), (OTHER, "otherwise wrong"))
    ]
    if printed is not None:
        entries.append(Line2D([], [], color="black", linewidth=1.2, linestyle=PAPER_LINE, label="right, in the paper"))
    figure.text((left - 0.06) / across, (foot + gap - 0.09) / down, "run", ha="right", va="center", fontsize=6.5)
    figure.legend(handles=entries, loc="lower center", ncols=4, columnspacing=1.2, handlelength=1.4)
    return figure


def bars_of_cells(
    parts: Sequence[Part], n_digits: int, names: Sequence[str], runs: Sequence[int], total: float = WIDTH
) -> Figure:
    """Tab. 1 as `outcome_bars`: classes by positions; heavy frames where a one arrives."""
    right, off = (
        torch.cat([torch.stack([getattr(c, kind) for c in part.cells], -1) for part in parts], 1)
        for kind in ("accuracy", "corrected")
    )
    unknown = torch.full((len(right), len(names)), torch.nan)
    printed = [unknown if part.printed is None else part.printed.accuracy for part in parts]
    known = any(part.printed is not None for part in parts)
    return outcome_bars(
        right, off, [carries.paper_name(p) for p in carries.patterns(n_digits)],
        [*map(position, names)] * len(parts), runs,
        torch.cat(printed, 1) if known else None, carries.carry_in(n_digits).repeat(1, len(parts)),
        [(part.title, len(names)) for part in parts], total,
    )  # fmt: skip


def table_of_cells(parts: Sequence[Part], n_digits: int, names: Sequence[str]) -> Table:
    """Tab. 1: the mean over runs, the paper's in brackets, and in small type the runs behind it if there are several.

    A mean that was found to differ from the paper's is marked ≠, one that decides nothing ?.
    """
    rows = []
    for task, pattern in enumerate(carries.patterns(n_digits)):
        for kind in ("accuracy", "corrected"):
            row = [carries.paper_name(pattern) if kind == "accuracy" else "corrected"]
            for part in parts:
                values = torch.stack([getattr(c, kind)[task] for c in part.cells])  # (run, pos)
                for pos in range(len(names)):
                    text = number(values[:, pos].mean().item())
                    if part.printed is not None and part.verdicts is not None:
                        printed = number(getattr(part.printed, kind)[task, pos].item())
                        text += f" ({printed}){MARKS[part.verdicts[kind][task][pos]]}"
                    each = [number(v).removeprefix("0") for v in values[:, pos].tolist()] if len(values) > 1 else []
                    row.append("\n".join([text, *(" ".join(each[i : i + 3]) for i in range(0, len(each), 3))]))
            rows.append(row)
    return Table(
        ["class", *map(position, [*names] * len(parts))],
        rows,
        [("", 1), *((part.title, len(names)) for part in parts)],
    )

"""What becomes of the digits under an ablation: a bar for each run (Tab. 1, 3, 4, 5), or a map (Fig. 24, App. H)."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from carry_paper.plots.sides import AUTHORS
from carry_paper.plots.style import INK, WIDTH, name_grid, style

RIGHT, OFF_BY_ONE, WRONG = "#2B4570", "#D8615B", "#8C94A2"
OUTCOMES = {"right": RIGHT, "off by exactly one": OFF_BY_ONE, "otherwise wrong": WRONG}
PAPER: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (2.5, 1.2))}
VISIBLE = 0.002  # of a bar: less is not drawn, which keeps the page light
VALUE = "value "  # begins the id of what shows its value on the built page, where one points at it


def by_carry_in(cells: pd.DataFrame, part: str = "ablation") -> pd.DataFrame:
    """Means of `accuracy`'s cells by `part` and run: with a carry-in, and without at positions that can have one."""
    cells = cells[cells.groupby("position").carry_in.transform("any")]
    means = cells.groupby(["carry_in", part, "run"], as_index=False, sort=False)[
        ["accuracy", "corrected"]
    ].mean()
    means["carry_in"] = means.carry_in.map({True: "carry-in", False: "no carry-in"})
    return means.sort_values("carry_in", kind="stable")


def carry_bars(sides: Mapping[str, pd.DataFrame], part: str = "ablation") -> Figure:
    """Means of `accuracy`'s cells, run by run: digits with a carry-in above the others, by what is ablated (`part`)."""
    return _outcome_bars(
        {side: by_carry_in(cells, part) for side, cells in sides.items()}, "carry_in", part, 1.0
    )


def cell_bars(sides: Mapping[str, pd.DataFrame], part: str = "ablation") -> Figure:
    """Every cell, run by run: carry classes by ablation and position, those with a carry-in framed (Tab. 1, 3, 4, 5).

    Sides are `accuracy`'s cells by source, and as `paper` what is printed; the column `part` says
    what is ablated.
    """
    titled = {
        name: cells.assign(column=cells[part].astype(str) + "\n" + cells.position)
        for name, cells in sides.items()
    }
    return _outcome_bars(titled, "carry_class", "column", 0.7)


@style()
def _outcome_bars(
    sides: Mapping[str, pd.DataFrame], row: str, column: str, height: float
) -> Figure:
    """Digits right (`accuracy`), off by exactly one (`corrected`), otherwise wrong: a panel for each row and column."""
    shown = pd.concat([cells for side, cells in sides.items() if side != "paper"])
    rows, columns = shown[row].unique(), shown[column].unique()
    runs = {
        side: cells.run.astype(str).unique() for side, cells in sides.items() if side != "paper"
    }
    figure = Figure(figsize=(WIDTH, height * len(rows) + 1.0), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    for (i, j), ax in np.ndenumerate(axes):
        at = {
            side: cells[(cells[row] == rows[i]) & (cells[column] == columns[j])]
            for side, cells in sides.items()
        }
        for y in at.pop("paper", shown[:0]).accuracy:
            ax.axhline(y, **PAPER, clip_on=False)
        _bars(ax, at, runs, named=i == len(rows) - 1)
        if row != "carry_in" and any(cells.carry_in.any() for cells in at.values()):
            ax.spines[:].set(visible=True, linewidth=2, color=INK)
    name_grid(axes, rows, columns, ("bold", "normal"))
    entries: list[Any] = [Patch(color=colour, label=text) for text, colour in OUTCOMES.items()]
    entries += [Line2D([], [], **PAPER, label="right, in the paper")] if "paper" in sides else []
    figure.legend(
        handles=entries, loc="outside lower center", ncols=4, columnspacing=1.4, handlelength=1.4
    )
    return figure


def accuracy_map(figure: SubFigure, table: pd.DataFrame) -> None:
    """Heat maps of right digits: ablations or epochs by positions, one for each block of columns (Fig. 24, App. H)."""
    blocks = {name: table[name] for name in table.columns.unique(0)}
    axes = figure.subplots(
        1, len(blocks), width_ratios=[block.shape[1] for block in blocks.values()], squeeze=False
    )
    look: dict[str, Any] = {
        "annot": True,
        "fmt": ".2f",
        "annot_kws": {"size": 7.5},
        "cbar": False,
        "cmap": "mako",
    }
    for ax, (name, block) in zip(axes[0], blocks.items(), strict=True):
        sns.heatmap(
            block, vmin=0, vmax=1, yticklabels=ax is axes[0, 0], rasterized=True, ax=ax, **look
        )
        for text in ax.texts:  # white itself becomes the ground of the dark theme
            text.set_color("#FEFEFE" if text.get_color() == "w" else "#262626")
        ax.set(title=name, xlabel="position", ylabel="")
        ax.tick_params(length=0, rotation=0)


def _bars(
    ax: Axes, sides: Mapping[str, pd.DataFrame], runs: Mapping[str, Any], *, named: bool
) -> None:
    """The runs of each side, side by side with a gap, blank where not measured; below the last row they are named."""
    below: dict[str, Any] = {
        "xytext": (0, -13),
        "textcoords": "offset points",
        "ha": "center",
        "va": "top",
    }
    drawn, start = [], 0
    for side, cells in sides.items():
        shares = cells.set_index(cells.run.astype(str))[["accuracy", "corrected"]].reindex(
            runs[side]
        )
        drawn += [
            shares.assign(wrong=1 - shares.sum(axis=1, skipna=False)),
            pd.DataFrame(index=[""]),
        ]
        if named:
            ax.annotate(
                {AUTHORS: "author’s"}.get(side, "ours"),
                (start + (len(shares) - 1) / 2, 0),
                **below,
                size=8,
            )
        start += len(shares) + 1
    pd.concat(drawn[:-1]).plot.bar(
        stacked=True, width=0.86, color=[*OUTCOMES.values()], rot=0, legend=False, ax=ax
    )
    for bar in cast(list[Rectangle], [*ax.patches]):
        if (share := bar.get_height()) > VISIBLE:
            bar.set_gid(f"{VALUE}{share:.2f}")
        else:
            bar.remove()
    ax.set(xlim=(-0.6, start - 1.4), ylim=(0, 1), yticks=[0, 0.5, 1], xlabel="")
    ax.tick_params(which="both", length=0, pad=2)

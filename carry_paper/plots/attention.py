"""Heat maps of attention and of swaps, and shares of attention (Fig. 2, 3, 9, 15, 18, 21, 23)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from carry_core.sums import Layout
from carry_paper.plots.sides import Arrays, subfigures
from carry_paper.plots.style import CLASS_COLOURS, FAINT, INK, name_grid

ATTENTION = LinearSegmentedColormap.from_list(
    "attention", ["#FFFFFF", "#FBD7B5", "#EB7A77", "#92267A", "#1B0C2E"]
)
SYMBOLS = ListedColormap(["#FEFEFE", "#A9B4C2", "#2B4570"])  # of a carry class: 0, 1, 2
Marks = Sequence[str] | Mapping[float, str]  # in order, or by place


def attention_map(ax: Axes, pattern: NDArray[Any], queries: Marks, keys: Marks) -> None:
    """Draw a heat map of attention, with marks at its rows and columns."""
    ax.imshow(pattern, cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
    for axis, marks in ((ax.xaxis, keys), (ax.yaxis, queries)):
        places = marks if isinstance(marks, Mapping) else dict(enumerate(marks))
        axis.set_ticks([*places], [*places.values()])
    ax.tick_params(length=0, pad=1.5, labelsize=7)
    ax.spines[:].set_visible(True)


def class_grid(figure: SubFigure, side: Arrays, layout: Layout, answer: Mapping[int, str]) -> None:
    """Draw carry classes (rows) by heads (columns) (Fig. 3, 15).

    For the last layer, only the rows of the `answer` are drawn; it has their marks by position.
    """
    n_classes, n_layers, n_heads = side["attention"].shape[:3]  # [class, layer, head, query, key]
    tokens = layout.tick_labels()
    axes = figure.subplots(n_classes, n_layers * n_heads, squeeze=False)
    for (i, column), ax in np.ndenumerate(axes):
        layer, head = divmod(column, n_heads)
        rows = answer if layer == n_layers - 1 else dict(enumerate(tokens))
        pattern = side["attention"][i, layer, head][list(rows)]
        attention_map(
            ax, pattern, [*rows.values()] if head == 0 else [], tokens if i == n_classes - 1 else []
        )
    name_grid(axes, side["classes"], _heads(side))


def attention_grid(figure: SubFigure, side: Arrays, layout: Layout) -> None:
    """Draw heads (rows) by carry classes (columns) (Fig. 18, 21, 23, 25).

    For the last layer, only the answer's rows are drawn.
    """
    n_classes, n_layers, n_heads = side["attention"].shape[:3]  # [class, layer, head, query, key]
    starts = {"a": 0, "b": layout.width + 1, "=": layout.length - layout.width}
    middles = {start + (layout.width - 1) / 2: name for name, start in starts.items()}
    tall = [layout.length] * (n_layers - 1) * n_heads + [layout.width] * n_heads
    axes = figure.subplots(n_layers * n_heads, n_classes, squeeze=False, height_ratios=tall)
    for (row, i), ax in np.ndenumerate(axes):
        layer, head = divmod(row, n_heads)
        last = layer == n_layers - 1
        pattern = side["attention"][i, layer, head][list(layout.answer) if last else slice(None)]
        attention_map(
            ax, pattern, {} if i or last else middles, middles if row == len(axes) - 1 else {}
        )
        ax.tick_params(pad=2, labelsize=7.5)
    name_grid(axes, _heads(side), side["classes"])


def _heads(side: Arrays) -> list[str]:
    """Return the heads' names, `layer:head`; the decision head has a star."""
    n_layers, n_heads = side["attention"].shape[1:3]
    star = {(n_layers - 1, int(side["decision_head"])): " ★"}
    return [
        f"{layer}:{head}{star.get((layer, head), '')}"
        for layer, head in np.ndindex(n_layers, n_heads)
    ]


def shares_by_class(figure: SubFigure, side: Arrays) -> None:
    """Draw the share of attention that goes to the right-hand one of two columns (Fig. 21, 23).

    The answer's rows attend to their own column and to the next; `side` has the share of the
    latter as `right` `[class, head, position]`.
    """
    n_heads, n_positions = side["right"].shape[1:]  # [class, head, position]
    symbols = np.array([list(pattern) for pattern in side["patterns"].tolist()], int).T
    axes = figure.subplots(n_heads + 1, 1, height_ratios=[n_positions] * n_heads + [len(symbols)])
    for head, ax in enumerate(axes[:-1]):
        image = ax.imshow(side["right"][:, head].T, cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
    axes[-1].imshow(symbols, cmap=SYMBOLS, vmin=0, vmax=2, aspect="auto")
    for ax in axes:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
    heads = [
        f"head {head}{' ★' if head == side['decision_head'] else ''}" for head in range(n_heads)
    ]
    name_grid(axes[:, None], [*heads, "class"], ())
    bar = figure.colorbar(image, ax=list(axes[:-1]), ticks=[0, 0.5, 1], pad=0.01, aspect=12)
    bar.ax.set_yticklabels(["own", "both", "right"])


def shares_by_position(
    sides: Mapping[str, pd.DataFrame], n_long: int | Mapping[str, int]
) -> Figure:
    """Return a figure of attention by position: a panel for each kind, a line for each head.

    Args:
        sides: The frames of `findings.lengths.attention_shares`, by side or group.
        n_long: The number of long leading positions, for all sides or by name; a dotted line
            marks their end.
    """
    heads = sorted({head for shares in sides.values() for head in shares["head"]})
    colours = dict(zip(heads, CLASS_COLOURS, strict=False))
    line: dict[str, Any] = {
        "marker": "o",
        "markersize": 4,
        "estimator": None,
        "units": "run",
        "legend": False,
    }

    def draw(figure: SubFigure, name: str) -> None:
        shares, border = sides[name], n_long if isinstance(n_long, int) else n_long[name]
        kinds = shares["kind"].unique()
        for ax, kind in zip(figure.subplots(1, len(kinds), sharey=True), kinds, strict=True):
            rows = shares[shares["kind"] == kind]
            sns.lineplot(rows, x="position", y="share", hue="head", palette=colours, **line, ax=ax)
            ax.axvline(border - 0.5, color=FAINT, linewidth=0.8, linestyle=(0, (2, 2)))
            ax.set(
                title=kind.replace(" to ", "\nto "), ylim=(-0.02, 1.02), ylabel="share of attention"
            )
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    legend = [
        Line2D([], [], color=colour, marker="o", label=head) for head, colour in colours.items()
    ]
    return subfigures({name: name for name in sides}, draw, height=2.2, stacked=True, legend=legend)


def swap_maps(figure: SubFigure, cells: pd.DataFrame, parts: Sequence[str], layout: Layout) -> None:
    """Draw the interchange accuracy of the carry into the tens and of their digit sum.

    Both directions are drawn together, and runs as their mean. `cells` are those of
    `findings.interchange_maps.load`; patched `parts` go from bottom to top, positions from left
    to right.
    """
    cells = cells[(cells["reads"] == layout.position_names[-2]) & (cells["direction"] == "both")]
    axes = figure.subplots(1, 2, sharey=True)
    # The grey marks cells from which no patch reaches the digit.
    blues = sns.color_palette("Blues", as_cmap=True).with_extremes(bad="#A3A8B1")
    for ax, (variable, title) in zip(
        axes, {"carry_in": "carry-in", "digit_sum": "digit sum"}.items(), strict=True
    ):
        table = cells[cells["variable"] == variable].pivot_table(
            "accuracy", "component", "position"
        )
        table = table.reindex(index=parts[::-1], columns=[f"pos{i}" for i in range(layout.length)])
        ax.imshow(table.to_numpy(dtype=float), cmap=blues, vmin=0, vmax=1, aspect="auto")
        ax.set(xticks=range(layout.length), xticklabels=layout.tick_labels(), title=title)
        ax.tick_params(length=0)
    axes[0].set_yticks(range(len(parts)), [name.removeprefix("blocks.") for name in parts[::-1]])


def run_grid(figure: SubFigure, side: Arrays, layout: Layout) -> None:
    """Draw the answer's rows of each head (rows), run by run (columns), of one layer (Fig. 9).

    `side` has the attention of each `run` as `pattern` `[run, head, query, key]`.
    """
    n_heads = side["pattern"].shape[1]
    axes: Any = figure.subplots(n_heads, len(side["run"]), squeeze=False)
    answer = [name.removeprefix("pos") for name in layout.position_names]
    for (head, i), ax in np.ndenumerate(axes):
        tokens = layout.tick_labels() if head == n_heads - 1 else []
        attention_map(ax, side["pattern"][i, head], answer if i == 0 else [], tokens)
    for ax, number in zip(axes[0], side["run"], strict=True):
        ax.set_title(f"run {number}")
    for head, ax in enumerate(axes[:, 0]):
        ax.set_ylabel(f"0:{head}")


def epoch_grid(figure: SubFigure, maps: Mapping[int, tuple[NDArray[Any], NDArray[Any]]]) -> None:
    """Draw a row for each run, with the maps of two heads at three epochs each (Fig. 2).

    `maps` has by run the epochs and the attention `[epoch, head, query, key]`.
    """
    axes = figure.subplots(len(maps), 6, squeeze=False)
    for row, (number, (epochs, patterns)) in zip(axes, maps.items(), strict=True):
        for ax, (head, i) in zip(row, np.ndindex(2, 3), strict=True):
            ax.imshow(patterns[i, head], cmap=ATTENTION, vmin=0, vmax=1)
            ax.set_title(f"0:{head}, epoch {epochs[i]}")
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"run {number}")


TILES_IN_A_ROW = 7


def class_tiles(figure: SubFigure, tiles: Mapping[str, NDArray[Any]]) -> None:
    """Draw a tile for each carry class, one head above the other (Fig. 18).

    `tiles` have the attention of the answer's rows by class, `[head, query, key]`.
    """
    n_rows = -(-len(tiles) // TILES_IN_A_ROW)
    axes = figure.subplots(n_rows, TILES_IN_A_ROW, squeeze=False).flatten()
    for ax in axes[len(tiles) :]:
        ax.axis("off")
    for ax, (name, tile) in zip(axes, tiles.items(), strict=False):
        ax.imshow(np.concatenate(tile), cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
        ax.axhline(tile.shape[1] - 0.5, color=INK, linewidth=0.8)
        ax.set(xticks=[], yticks=[], title=name)
        ax.spines[:].set_visible(True)

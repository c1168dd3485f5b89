"""Heat maps of attention and of swaps, and shares of attention (Fig. 2, 3, 9, 15, 18, 21, 23)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from carry_core.sums import Layout
from carry_paper.plots.hover import name_cells
from carry_paper.plots.sides import Arrays, subfigures
from carry_paper.plots.style import (
    ACCURACY,
    ATTENTION,
    CLASS_COLOURS,
    DOTTED,
    FAINT,
    INK,
    PLACES,
    TOO_LARGE,
    colour_bar,
    name_grid,
    with_data,
)

SYMBOLS = ListedColormap(["#FEFEFE", "#B5BAC4", "#4A5160"])  # of a carry class: 0, 1, 2
Marks = Mapping[Any, str]  # words by their place on an axis


def attention_map(
    ax: Axes, pattern: NDArray[Any], queries: Marks, keys: Marks, highest: float = 1
) -> None:
    """Draw a heat map of attention, with marks at its rows (`queries`) and columns (`keys`)."""
    ax.imshow(pattern, cmap=ATTENTION, vmin=0, vmax=highest)
    ax.set_xticks([*keys], [*keys.values()])
    ax.set_yticks([*queries], [*queries.values()])
    ax.tick_params(length=0, pad=1.5, labelsize=7)
    ax.spines[:].set_visible(True)


def sum_map(ax: Axes, pattern: NDArray[Any], layout: Layout, queries: Marks, keys: Marks) -> None:
    """Draw a heat map of attention in sums, of all queries or of the answer's alone.

    `queries` and `keys` are marks by the position of a token.
    """
    rows = layout.answer if len(pattern) == layout.width else range(layout.length)
    marks = {place - rows[0]: name for place, name in queries.items() if place >= rows[0]}
    attention_map(ax, pattern, marks, keys)
    names = token_names(layout)
    name_cells(ax.images[0], [names[row] for row in rows], names)


def map_grid(
    figure: Any,
    rows: Mapping[str, Any],
    columns: Sequence[str],
    layout: Layout,
    queries: Marks,
    room: int = 0,
) -> None:
    """Draw rows of attention `[column, query, key]`, by their names, and name the columns.

    There is `room` for as many columns if there are fewer.
    """
    size = len(rows), max(len(columns), room)
    heights = [np.shape(row)[1] for row in rows.values()]
    axes = figure.subplots(*size, squeeze=False, height_ratios=heights)
    for ax in axes[:, len(columns) :].flat:
        ax.set_visible(False)
    for i, patterns in enumerate(rows.values()):
        keys = number_marks(layout) if i == len(rows) - 1 else {}
        for j, pattern in enumerate(patterns):
            sum_map(axes[i, j], pattern, layout, {} if j else queries, keys)
    name_grid(axes, rows, columns)
    colour_bar(figure, axes, ATTENTION, "attention", location="right")


def attention_grid(
    figure: SubFigure, side: Arrays, layout: Layout, *, only_answer: bool = False
) -> None:
    """Draw heads (rows) by carry classes (columns) (Fig. 3, 15, 18, 21, 23).

    For the last layer, or for all with `only_answer`, only the answer's rows are drawn, below the
    same columns; with `only_answer` they have no names. `side` has the `attention`
    `[class, layer, head, query, key]`, the names of the `classes` and the number of the
    `decision_head`.
    """
    attention = side["attention"]
    n_layers, n_heads = attention.shape[1:3]
    rows = {}
    for (layer, head), name in zip(np.ndindex(n_layers, n_heads), _heads(side), strict=True):
        is_answer = only_answer or layer == n_layers - 1
        queries = [*layout.answer] if is_answer else [*range(layout.length)]
        rows[name] = attention[:, layer, head][:, queries]
    marks = {} if only_answer else query_marks(layout)
    map_grid(figure, rows, [*side["classes"]], layout, marks)


def long_sum_maps(figure: SubFigure, side: Arrays, layout: Layout, n_long: int) -> None:
    """Draw a map for each head of a model of long sums, the mean over classes (Fig. 21, 23, 25).

    The steps of its staircases are outlined, those at the `n_long` leading positions in their own
    colour. The heads of the last layer have the answer's rows alone, one above the other. `side` is
    that of `attention_grid`.
    """
    n_layers, n_heads = side["attention"].shape[1:3]
    width = layout.width
    parts = {"a": (0, width), "b": (width + 1, width)}
    parts |= {"long": (layout.answer[0], n_long)}
    parts |= {"trained": (layout.answer[0] + n_long, width - n_long)}
    queries = {first + (length - 1) / 2: name for name, (first, length) in parts.items()}
    grid = figure.add_gridspec(n_heads, (n_layers - 1) * n_heads + 1)
    for (layer, head), name in zip(np.ndindex(n_layers, n_heads), _heads(side), strict=True):
        is_last = layer == n_layers - 1
        place = grid[head, -1] if is_last else grid[:, layer * n_heads + head]
        ax = figure.add_subplot(place, title=name)
        rows = [*layout.answer] if is_last else [*range(layout.length)]
        pattern = side["attention"][:, layer, head].mean(0)[rows]
        sum_map(ax, pattern, layout, queries, number_marks(layout))
        for i in range(width):
            a, b, answer = i, i + width + 1, layout.answer[i]
            colour = TOO_LARGE if i < n_long else FAINT
            for query, key in ((a, b), (b, a), (answer, a), (answer, b)):
                if query >= rows[0]:
                    corner = key - 0.5, query - rows[0] - 0.5
                    look: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": 0.9}
                    ax.add_patch(Rectangle(corner, 1, 1, **look))
    colour_bar(figure, figure.axes, ATTENTION, "attention", location="right")


def number_marks(layout: Layout) -> Marks:
    """Return the names of the numbers, `a`, `b` and `=`, at the middle of each."""
    starts = {"a": 0, "b": layout.width + 1, "=": layout.length - layout.width}
    return {start + (layout.width - 1) / 2: name for name, start in starts.items()}


def query_marks(layout: Layout) -> Marks:
    """Return the names of the rows of a map: the numbers' at their middle, each answer digit's."""
    numbers = {place: name for place, name in number_marks(layout).items() if name != "="}
    numbered = [name.removeprefix("pos") for name in layout.position_names]
    names = PLACES[-layout.width :] if layout.width <= len(PLACES) else numbered
    return numbers | dict(zip(layout.answer, names, strict=True))


def token_names(layout: Layout) -> list[str]:
    """Return a name for each token of a sum, such as `tens of a`, `+` and `tens of the answer`."""
    digits = [f"digit {i + 1}" for i in range(layout.width)]
    if layout.width <= len(PLACES):
        digits = [*PLACES[-layout.width :]]
    a, b, answer = ([f"{digit} of {of}" for digit in digits] for of in ("a", "b", "the answer"))
    return [*a, "+", *b, *answer]


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
        ax.imshow(side["right"][:, head].T, cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
    axes[-1].imshow(symbols, cmap=SYMBOLS, vmin=0, vmax=2, aspect="auto")
    for ax in axes:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
    heads = [
        f"head {head}{' ★' if head == side['decision_head'] else ''}" for head in range(n_heads)
    ]
    name_grid(axes[:, None], [*heads, "class"], ())
    label = "share of the next column"
    colour_bar(figure, list(axes[:-1]), ATTENTION, label, location="right")


@with_data
def shares_by_position(sides: Mapping[str, pd.DataFrame], n_long: Mapping[str, int]) -> Figure:
    """Return a figure of attention by position: a panel for each kind, a line for each head.

    `sides` are frames of `findings.lengths.attention_shares`, by side or group. A dotted line marks
    the end of the `n_long` leading positions, which are by the same names.
    """
    heads = sorted({head for shares in sides.values() for head in shares["head"]})
    colours = dict(zip(heads, CLASS_COLOURS, strict=False))

    def draw(figure: SubFigure, name: str) -> None:
        kinds = sides[name].groupby("kind", sort=False)
        axes = figure.subplots(1, len(kinds), sharey=True)
        for ax, (kind, rows) in zip(axes, kinds, strict=True):
            for (head, _), of in rows.groupby(["head", "run"]):
                look: dict[str, Any] = {"color": colours[head], "markersize": 4, "label": head}
                ax.plot(of.position, of.share, "o-", **look)
            ax.axvline(n_long[name] - 0.5, **DOTTED)
            ax.set(title=kind.replace(" to ", "\nto "), xlabel="position", ylim=(-0.02, 1.02))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].set_ylabel("share of attention")

    return subfigures({name: name for name in sides}, draw, height=2.2, stacked=True)


def swap_maps(figure: SubFigure, cells: pd.DataFrame, parts: Sequence[str], layout: Layout) -> None:
    """Draw the interchange accuracy of the carry into the tens and of their digit sum.

    Both directions are drawn together, and runs as their mean. `cells` are those of
    `findings.interchange_maps.load`; patched `parts` go from bottom to top, positions from left
    to right.
    """
    cells = cells[(cells["reads"] == layout.position_names[-2]) & (cells["direction"] == "both")]
    axes = figure.subplots(1, 2, sharey=True)
    # The grey marks cells from which no patch reaches the digit.
    greens = ACCURACY.with_extremes(bad="#D0D4DA")
    positions = [f"pos{i}" for i in range(layout.length)]
    titles = {"carry_in": "carry-in", "digit_sum": "digit sum"}
    for ax, (variable, title) in zip(axes, titles.items(), strict=True):
        of_variable = cells[cells["variable"] == variable]
        table = of_variable.pivot_table("accuracy", "component", "position")
        table = table.reindex(index=parts[::-1], columns=positions)
        ax.imshow(table.to_numpy(dtype=float), cmap=greens, vmin=0, vmax=1, aspect="auto")
        ax.set(xticks=range(layout.length), xticklabels=layout.tick_labels(), title=title)
        ax.set_xlabel("patched position")
        ax.tick_params(length=0)
    colour_bar(figure, axes, ACCURACY, "interchange accuracy; grey cannot reach the digit")
    axes[0].set_yticks(range(len(parts)), [name.removeprefix("blocks.") for name in parts[::-1]])


RUNS_IN_A_ROW = 6  # a single run's maps are as large as those of six


def run_grid(figure: SubFigure, side: Arrays, layout: Layout, heads: Sequence[str] = ()) -> None:
    """Draw the answer's rows of heads (rows) of one layer, run by run (columns) (Fig. 9, 15).

    `side` has the attention of each `run` as `pattern` `[run, head, query, key]`. Without names of
    `heads`, they are those of the first layer.
    """
    patterns = side["pattern"].swapaxes(0, 1)
    rows = dict(zip(heads or map("0:{}".format, range(len(patterns))), patterns, strict=True))
    runs = [f"run {run}" for run in side["run"]]
    map_grid(figure, rows, runs, layout, query_marks(layout), room=RUNS_IN_A_ROW)


def epoch_grid(figure: SubFigure, maps: Mapping[int, tuple[Sequence[int], NDArray[Any]]]) -> None:
    """Draw a row for each run, with the maps of two heads at three epochs each (Fig. 2).

    `maps` has by run the epochs and the attention `[epoch, head, query, key]`.
    """
    axes = figure.subplots(len(maps), 6, squeeze=False)
    for row, (number, (epochs, patterns)) in zip(axes, maps.items(), strict=True):
        for ax, (head, i) in zip(row, np.ndindex(2, 3), strict=True):
            attention_map(ax, patterns[i, head], {}, {})
            ax.set_title(f"0:{head}, epoch {epochs[i]}")
        row[0].set_ylabel(f"run {number}")
    colour_bar(figure, axes, ATTENTION, "attention")


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
        attention_map(ax, np.concatenate(tile), {}, {})
        ax.axhline(tile.shape[1] - 0.5, color=INK, linewidth=0.8)
        ax.set_title(name)
    colour_bar(figure, axes, ATTENTION, "attention")

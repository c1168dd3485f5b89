"""Attention as heat maps (Fig. 3, 15, 18, 21, 23, 25)."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from carry_core.plots.style import (
    FAINT,
    WIDTH,
    panel,
    styled,
)
from carry_core.sums import Layout

ATTENTION = LinearSegmentedColormap.from_list("attention", ["#FFFFFF", "#FBD7B5", "#EB7A77", "#92267A", "#1B0C2E"])


@styled
def attention_grid(
    pattern: Float[Tensor, "task layer head query key"],
    titles: Sequence[str],
    layout: Layout,
    shown: Sequence[int] | None = None,
) -> Figure:
    """Mean attention of each head (rows) for each carry class (columns) (Fig. 3, 15).

    Args:
        pattern: the mean over each class.
        titles: the classes.
        layout: which tokens there are.
        shown: positions of which the last layer's rows are shown; those that give the answer if None.
    """
    n_tasks, n_layers, n_heads = pattern.shape[:3]
    marks, every = layout.tick_labels(), list(range(layout.length))
    left, right, gap, title, tick = 0.55, 0.72, 0.09, 0.24, 0.12  # inches
    side, size = (WIDTH - left - right - gap * (n_tasks - 1)) / n_tasks, min(7.5, 75 / layout.length)
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    rows, top = [], title
    for layer, head in heads:
        queries = list(layout.answer if shown is None else shown) if layer == n_layers - 1 else every
        labelled = layer < n_layers - 1 or head == n_heads - 1
        rows.append((layer, head, queries, labelled, top))
        top += side * len(queries) / layout.length + gap + tick * labelled
    figure = Figure(figsize=(WIDTH, top))
    for layer, head, queries, labelled, top in rows:
        for task in range(n_tasks):
            ax = panel(figure, left + task * (side + gap), top, side, side * len(queries) / layout.length)
            ax.imshow(pattern[task, layer, head][queries].numpy(), cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
            ax.set_xticks(every, marks if labelled else [""] * len(every), fontsize=size)
            ax.set_yticks(range(len(queries)), [marks[q] if task == 0 else "" for q in queries], fontsize=size)
            ax.tick_params(length=0, pad=1.5)
            if (layer, head) == heads[0]:
                ax.set_title(titles[task], weight="bold")
            if task == 0:
                ax.set_ylabel(f"{layer}:{head}", rotation=0, ha="right", va="center", labelpad=8, weight="bold")
    tall = min(2 * side, float(figure.get_size_inches()[1]) - title - gap - tick)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), ATTENTION), cax=panel(figure, WIDTH - right + 0.12, title, 0.1, tall)
    )
    bar.set_label("attention")
    return figure


@styled
def attention_tiles(
    pattern: Float[Tensor, "task layer head query key"], titles: Sequence[str], layout: Layout, columns: int = 10
) -> Figure:
    """The last layer's attention at the answer's rows, a tile for each class, one head above the other.

    A thin line parts the heads. Tiles are in the order of `carries.patterns`, which starts with the fewest carries.
    """
    last = pattern[:, -1][:, :, list(layout.answer)]  # (task, head, row, key)
    n_tasks, n_heads, n_rows = last.shape[:3]
    rows = -(-n_tasks // columns)
    columns = -(-n_tasks // rows)
    left, gap, title = 0.1, 0.1, 0.17  # inches
    width = (WIDTH - 2 * left - gap * (columns - 1)) / columns
    height = width * n_heads * n_rows / layout.length
    figure = Figure(figsize=(WIDTH, rows * (height + title + 0.03) + 0.05))
    for task in range(n_tasks):
        row, column = divmod(task, columns)
        ax = panel(figure, left + column * (width + gap), row * (height + title + 0.03) + title, width, height)
        ax.imshow(last[task].flatten(0, 1).numpy(), cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
        for head in range(1, n_heads):
            ax.axhline(head * n_rows - 0.5, color=FAINT, linewidth=0.6)
        ax.set(xticks=[], yticks=[])
        ax.set_title(titles[task], fontsize=6.5, pad=2)
    return figure

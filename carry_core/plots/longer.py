"""Longer sums: accuracy per position over the epochs, many classes at once, the residual stream, what moved.

Fig. 18 to 25, and App. H.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from carry_core import tasks
from carry_core.by_class import ByClass
from carry_core.dynamics import finished
from carry_core.edits import Ablation
from carry_core.finetuning import Moved
from carry_core.forgetting import Forgetting
from carry_core.geometry import Plane
from carry_core.longer import Heads, Separation
from carry_core.measure import Cells
from carry_core.page import FAINT, WIDTH, Table, number, styled
from carry_core.plots.attention import ATTENTION, attention_grid
from carry_core.plots.common import CLASS_COLOURS, DIGIT_COLOURS, class_colours, dots, panel
from carry_core.roles import by_arrival
from carry_core.runs import History
from carry_core.sums import Layout

UNPRIMED, PRIMED = "#2B6CA3", "#D98324"  # as in the paper: blue and orange


@styled
def length_curves(curves: Mapping[str, Sequence[History]], n_long: int) -> Figure:
    """Accuracy on longer sums, whole and position by position, over the epochs (Fig. 20).

    Args:
        curves: learning curves by name, of runs without priming and with; every run is a line.
        n_long: how many positions are longer than the training's sums; their titles say so.
    """
    width = max(history["long_accuracy"].shape[-1] for found in curves.values() for history in found)
    titles = ["whole answer", *(f"position {i}{' (long)' if i < n_long else ''}" for i in range(width))]
    columns = min(4, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(WIDTH, 0.35 + 1.55 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for ax in axes[len(titles) :]:
        ax.axis("off")
    for i, (ax, title) in enumerate(zip(axes, titles, strict=False)):
        for (name, found), colour in zip(curves.items(), (UNPRIMED, PRIMED), strict=True):
            for history in found:
                for curve in history["long_whole"] if i == 0 else history["long_accuracy"][..., i - 1]:
                    known = finished(curve)
                    epochs = np.arange(1, len(known) + 1)
                    ax.plot(epochs, known, color=colour, linewidth=0.9, alpha=0.85, rasterized=len(known) > 200)
            if i == 0 and found:
                ax.plot([], [], color=colour, linewidth=1.6, label=name)
        ax.set(title=title, ylim=(-0.03, 1.03), xlim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
        if i >= len(titles) - columns:
            ax.set_xlabel("epoch")
    figure.legend(loc="outside lower center", ncols=4, handlelength=1.2)
    return figure


def table_of_forgetting(found: Mapping[str, Mapping[int, Forgetting]]) -> Table:
    """When each run is best on longer sums, what is left at the end, and when each position goes (Fig. 20).

    In small type the epochs.
    """
    rows, width = [], 1
    for name, runs in found.items():
        for run, f in runs.items():
            width = len(f.goes)
            goes = [f"{number(end)}\n{number(epoch, 0)}" for end, epoch in zip(f.ends, f.goes, strict=True)]
            rows.append([f"{name} {run}", f"{number(f.best, 3)}\n{f.peak}", f"{number(f.last, 3)}\n{f.epochs}", *goes])
    header = ["run", "best", "last", *map(str, range(width))]
    return Table(header, rows, [("", 1), ("whole answer", 2), ("position: at the end, gone from epoch", width)])


@styled
def attention_tiles(
    pattern: Float[Tensor, "task layer head query key"], titles: Sequence[str], layout: Layout, columns: int = 10
) -> Figure:
    """The last layer's attention at the answer's rows, a tile for each class, one head above the other.

    A thin line parts the heads. Tiles are in the order of `tasks.patterns`, which starts with the fewest carries.
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


def class_grids(drawn: ByClass, source: str) -> list[Figure]:
    """The attention of a source's run, class by class (Fig. 18, 21, 23, 25): a figure if it is there, else none."""
    titles = [tasks.name(pattern) for pattern in drawn.wanted]
    return [attention_grid(drawn.attention(loaded), titles, loaded.config.layout) for loaded in drawn.shown.of(source)]


def class_tiles(drawn: ByClass, at_most: int = 20) -> list[Figure]:
    """A tile for each class that there is, of the first source that is there: a figure, or none."""
    every = drawn.every(at_most)
    titles = [tasks.name(pattern) for pattern in every.wanted]
    first = list(drawn.shown)[:1]
    return [attention_tiles(every.attention(loaded), titles, loaded.config.layout) for loaded in first]


def class_journeys(drawn: ByClass, source: str) -> list[Figure]:
    """The residual stream of a source's run, class by class (Fig. 19, 22, 24): a figure if it is there, else none."""
    return [journey_grid(drawn.journey(loaded), drawn.wanted, loaded.config.width) for loaded in drawn.shown.of(source)]


def table_of_heads(found: Sequence[tuple[str, Heads]], n_long: int) -> Table:
    """The weakest step between the digits, and where heads look; at trained positions, in small type at long ones.

    Args:
        found: whose run, and its heads.
        n_long: how many leading positions are long; none without padding.
    """
    rows, heads = [], []
    parts = [slice(n_long, None), *([slice(0, n_long)] if n_long else [])]
    for name, h in found:
        heads = [(layer, head) for layer in range(len(h.own)) for head in range(h.own.shape[1])]
        stairs = [number(float(h.staircase[part].min())) for part in parts]
        best = [h.ahead[..., part].nanmean(-1) for part in parts]
        layer, head = divmod(int(h.ahead.nanmean(-1).argmax()), h.ahead.shape[1])
        ahead = [number(float(x[layer, head])) for x in best]
        looks = ["\n".join([f"{ahead[0]} ({layer}:{head})", *ahead[1:]])]
        for layer, head in heads:
            pairs = [[number(float(x[layer, head, part].nanmean())) for x in (h.right, h.own)] for part in parts]
            texts = ["/".join(x.removeprefix("0") for x in pair) for pair in pairs]
            texts[0] += " ◂" * (layer == len(h.own) - 1 and head == h.decides)
            looks.append("\n".join(texts))
        rows.append([name, "\n".join(stairs), *looks, number(h.intact, 3), number(h.without, 3)])
    header = ["run", "to partner", "to the right", *(f"{layer}:{head}" for layer, head in heads), "intact", "without ◂"]
    return Table(header, rows, [("", 1), ("digits", 2), ("answer rows: right / own", len(heads)), ("right answers", 2)])


def table_of_stairs(found: Sequence[tuple[str, Heads]], n_long: int) -> Table:
    """Each kind of staircase, column by column: the trained ones, and in small type the long ones (App. F, H).

    Args:
        found: whose run, and its heads.
        n_long: how many leading columns are long; none without padding.
    """

    def cell(steps: Float[Tensor, " column"]) -> str:
        texts = [number(x).removeprefix("0") for x in steps.tolist()]
        return "\n".join(" ".join(part) for part in (texts[n_long:], texts[:n_long]) if part)

    rows, heads = [], []
    for name, h in found:
        heads = [(layer, head) for layer in range(len(h.own)) for head in range(h.own.shape[1])]
        rows.append([name, cell(h.staircase), *(cell(h.own[place]) for place in heads)])
    header = ["run", "best head", *(f"{layer}:{head}" for layer, head in heads)]
    return Table(header, rows, [("", 1), ("between the digits", 1), ("of the answer rows", len(heads))])


@styled
def journey_grid(planes: Sequence[Plane], patterns: Sequence[str], n_digits: int) -> Figure:
    """The residual stream at the answer's positions (columns), layer by layer, by class and by digit (Fig. 19, 22, 24).

    Args:
        planes: as `geometry.journey` gives them for `longer.answer_columns`.
        patterns: the classes that the sums are of.
        n_digits: of the sums.
    """
    layers = sorted({plane.layer for plane in planes})
    every = tasks.patterns(n_digits)
    where = torch.full((len(every),), -1)
    where[[every.index(p) for p in patterns]] = torch.arange(len(patterns))
    names = [tasks.name(p) for p in patterns]
    halves: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
        ("task", "carry class", names, class_colours(len(names))),
        ("digit", "digit sum mod 10, in the last layer the answer's digit", list("0123456789"), DIGIT_COLOURS),
    ]
    left, gap, title, foot, key = 0.62, 0.09, 0.22, 0.17, 0.2 + 0.16 * -(-len(names) // 7)  # inches
    side = min(1.4, (WIDTH - left - 0.02 - gap * (n_digits - 1)) / n_digits)
    n_rows = 2 * len(layers)
    total = left + n_digits * (side + gap)
    figure = Figure(figsize=(total, title + 2 * (n_rows * (side + foot) + key + 0.1)))
    for half, (label, legend, entries, colours) in enumerate(halves):
        rgb = np.array([mpl.colors.to_rgb(c) for c in colours])
        start = title + half * (n_rows * (side + foot) + key + 0.1)
        for i, plane in enumerate(planes):
            block, after = divmod(i, 2)
            layer, column = divmod(block, n_digits)
            row = 2 * layer + after
            ax = panel(figure, left + column * (side + gap), start + row * (side + foot), side, side)
            colour = where[plane.task] if label == "task" else plane.digit
            x, y = plane.points[:, :2].numpy().T
            size = min(max(9_000 / len(x), 1.0), 5)
            # without antialiasing a panel has a third of the bytes
            ax.scatter(x, y, c=rgb[colour.numpy()], s=size, linewidths=0, rasterized=True, antialiased=False)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(" · ".join(f"{100 * s:.0f}%" for s in plane.share[:2]), fontsize=6, color=FAINT, labelpad=1)
            if half == row == 0:
                ax.set_title(f"position {column}")
            if column == 0:
                ax.set_ylabel(f"layer {plane.layer}\n{plane.after}", fontsize=7.5)
        below = 1 - (start + n_rows * (side + foot)) / figure.get_size_inches()[1]
        figure.legend(
            handles=dots(entries, colours), title=legend, loc="upper center", bbox_to_anchor=(0.5, below),
            ncols=10 if label == "digit" else 7, columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    return figure


def table_of_separations(found: Mapping[str, Separation]) -> Table:
    """How well sums are apart by digit sum after the first layer, and by arriving one before the last MLP."""
    rows = [[name, *map(number, s.tens), *map(number, s.ones[:-1])] for name, s in found.items()]
    width = max((len(s.tens) for s in found.values()), default=2)
    header = ["run", *map(str, range(width)), *map(str, range(width - 1))]
    return Table(
        header, rows, [("", 1), ("ten or more, at position", width), ("a one arrives, at position", width - 1)]
    )


def table_of_parts(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]]) -> Table:
    """Accuracy at each answer position where a one arrives and elsewhere, without each part (App. H.1)."""
    width = next(iter(lost.values())).shape[1]
    rows = [
        [str(part), *map(number, found[1, :-1].tolist()), *map(number, found[0].tolist())]
        for part, found in lost.items()
    ]
    header = ["", *map(str, range(width - 1)), *map(str, range(width))]
    return Table(header, rows, [("", 1), ("a one arrives, at position", width - 1), ("none arrives", width)])


def table_of_mlp(found: Mapping[str, Mapping[str, tuple[float, Cells]]]) -> Table:
    """What is right without the final MLP at each position, over the epochs (App. H): `roles.over_epochs`.

    Where a one arrives, in small type once corrected; and where none does.
    """
    rows, width = [], 2
    for name, by_epoch in found.items():
        for epoch, (correlation, cells) in by_epoch.items():
            width = cells.accuracy.shape[1]
            (none, one), (_, fixed) = by_arrival(cells), by_arrival(cells, "corrected")
            with_one = [f"{number(float(x))}\n{number(float(y))}" for x, y in zip(one[:-1], fixed[:-1], strict=True)]
            rows.append([f"{name}\n{epoch}", number(correlation), *with_one, *map(number, none.tolist())])
    header = ["run", "correlation", *map(str, range(width - 1)), *map(str, range(width))]
    spans = [("", 1), ("trained positions", 1), ("a one arrives, at position", width - 1), ("none arrives", width)]
    return Table(header, rows, spans)


@styled
def moved_bars(found: Mapping[str, Moved]) -> Figure:
    """How far finetuning moved each parameter, in units of its own norm, and its share of the way (Fig. 25)."""
    names = list(next(iter(found.values())).parts)
    colours = CLASS_COLOURS if len(found) <= len(CLASS_COLOURS) else class_colours(len(found))
    figure = Figure(figsize=(WIDTH, 0.75 + 0.16 * len(names)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = ("distance over its own norm", "share of the whole squared distance")
    for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        for j, ((name, m), colour) in enumerate(zip(found.items(), colours, strict=False)):
            y = np.arange(len(names)) + (j - (len(found) - 1) / 2) * 0.8 / len(found)
            ax.barh(y, [m.parts[part][i] for part in names], height=0.8 / len(found), color=colour, label=name)
        ax.set(title=title, xlim=(0, None))
        ax.margins(y=0.01)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def table_of_moves(found: Mapping[str, Moved]) -> Table:
    """Squared norms before and after finetuning, and the distance between the two (App. H.2)."""
    rows = [
        [name, number(m.before, 1), number(m.after, 1), f"{100 * m.change:+.2f}%", f"{100 * m.distance:.1f}%"]
        for name, m in found.items()
    ]
    return Table(["run", "squared norm before", "after", "change", "distance over norm"], rows)


def table_of_axes(found: Mapping[str, tuple[float, float]]) -> Table:
    """How well the carry axis tells carry neurons, by itself and with the second axis (App. H.1, H.2)."""
    rows = [[name, *(number(x) for x in both)] for name, both in found.items()]
    return Table(["run", "leading axis", "best direction in the plane of two"], rows, [("", 1), ("correlation", 2)])


def table_of_accuracies(found: Sequence[Sequence[Any]]) -> Table:
    """Whole answers and digits that are right: rows of a name, digits of the sums, and what `longer.accuracy` gives."""
    rows = [
        [name, f"{n_digits}", number(whole, 3), " ".join(number(x).removeprefix("0") for x in each.tolist())]
        for name, n_digits, (whole, each) in found
    ]
    return Table(["run", "digits up to", "whole answer", "digit by digit"], rows)

"""The paper's figures and tables: each function returns a `Figure` or a `Table`, for `page` to show."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from carry_core import tasks
from carry_core.geometry import Plane, apart, pocket_accuracy
from carry_core.measure import AGREEMENT, Cells, agreement
from carry_core.page import FAINT, INK, WIDTH, Table, number, styled
from carry_core.sums import Layout

Part = tuple[str, Sequence[Cells], Cells | None]  # what was ablated, the cells of each run, the paper's

# Okabe and Ito's colours, told apart by colour-blind readers too, in the order of the paper's tables.
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
# A helix through the colours, darker to lighter: apart for colour-blind readers, in order for all, and in grey.
DIGIT_COLOURS = (
    "#180E30", "#57112D", "#593D00", "#1A7923", "#2381A0", "#9760D5", "#E66989", "#BBAD53", "#83DF9C", "#ACDCFA",
)  # fmt: skip
ATTENTION = LinearSegmentedColormap.from_list("attention", ["#FFFFFF", "#FBD7B5", "#EB7A77", "#92267A", "#1B0C2E"])
POCKETS = 0.9  # share of sums nearest to their own digit's centroid from which on the digits are written into a panel
TRAIN, TEST = "#8A8D93", "#7A1F5C"
RIGHT, OFF_BY_ONE, OTHER = "#2B4570", "#F4A6A0", "#E5E7EB"
PAPER_LINE = (0, (2.5, 1.2))


def class_colours(n_classes: int) -> tuple[str, ...]:
    """A colour for each carry class; the five of three digits have fixed ones."""
    if n_classes == len(CLASS_COLOURS):
        return CLASS_COLOURS
    return tuple(mpl.colors.to_hex(c) for c in mpl.colormaps["turbo"](np.linspace(0.03, 0.97, n_classes)))


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches, from the figure's left and top."""
    across, down = figure.get_size_inches()
    ax = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))
    ax.spines[:].set_visible(True)
    return ax


@styled
def attention_grid(
    pattern: Float[Tensor, "task layer head query key"], titles: Sequence[str], layout: Layout
) -> Figure:
    """Mean attention of each head (rows) for each carry class (columns); the last layer at the answer rows (Fig. 3)."""
    n_tasks, n_layers, n_heads = pattern.shape[:3]
    marks, every = layout.marks(), list(range(layout.length))
    left, right, gap, title, tick = 0.55, 0.72, 0.09, 0.24, 0.12  # inches
    side, size = (WIDTH - left - right - gap * (n_tasks - 1)) / n_tasks, min(7.5, 75 / layout.length)
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    rows, top = [], title
    for layer, head in heads:
        queries = list(layout.answer) if layer == n_layers - 1 else every
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
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), ATTENTION), cax=panel(figure, WIDTH - right + 0.12, title, 0.1, 2 * side)
    )
    bar.set_label("attention probability")
    return figure


def position(name: str) -> str:
    """A position's name as a title: `pos. 7` for `pos7`."""
    return name.replace("pos", "pos. ")


def dots(names: Sequence[str], colours: Sequence[str]) -> list[Line2D]:
    """Legend entries."""
    return [
        Line2D([], [], linestyle="", marker="o", markersize=4.5, color=colour, label=name)
        for name, colour in zip(names, colours, strict=True)
    ]


def mark_pockets(ax: Axes, plane: Plane) -> None:
    """Write each digit on the middle of its sums."""
    for digit in plane.digit.unique().tolist():
        x, y = plane.points[plane.digit == digit, :2].median(0).values.tolist()
        outline = [withStroke(linewidth=1.6, foreground="white")]
        ax.text(x, y, str(digit), ha="center", va="center", fontsize=6.5, weight="bold", path_effects=outline)


@styled
def pca_grid(planes: Sequence[Plane], n_digits: int = 3) -> Figure:
    """The journey of the residual stream on its two leading axes (Fig. 4, 7): rows as in the paper.

    After the attention and after the MLP coloured by digit, then both coloured by class. Each axis has its own scale.
    """
    classes = [tasks.name(p) for p in tasks.patterns(n_digits)]
    last = max(plane.layer for plane in planes)
    what = "answer digit" + (f" (layer {last}), digit sum mod 10 (layer 0)" if last else "")
    halves: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
        ("digit", what, [str(d) for d in range(10)], DIGIT_COLOURS),
        ("task", "carry class", classes, class_colours(len(classes))),
    ]
    n_columns = len(planes) // 2
    left, gap, title, foot, key_height = 0.42, 0.1, 0.25, 0.19, 0.44  # inches
    side = min(1.7, (WIDTH - left - 0.02 - gap * (n_columns - 1)) / n_columns)
    figure = Figure(figsize=(WIDTH, title + 4 * (side + foot) + 2 * key_height))
    for half, (key, legend, names, colours) in enumerate(halves):
        rgb = np.array([mpl.colors.to_rgb(c) for c in colours])
        start = title + half * (2 * (side + foot) + key_height)
        for i, plane in enumerate(planes):
            column, row = divmod(i, 2)
            ax = panel(figure, left + column * (side + gap), start + row * (side + foot), side, side)
            x, y = plane.points[:, :2].numpy().T
            size = min(max(12_000 / len(x), 1.2), 6)
            ax.scatter(x, y, c=rgb[getattr(plane, key).numpy()], s=size, linewidths=0, rasterized=True)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(
                " · ".join(f"{100 * s:.0f}%" for s in plane.share[:2]), fontsize=6.5, color=FAINT, labelpad=1.5
            )
            if key == "digit" and pocket_accuracy(plane.points, plane.digit) >= POCKETS:
                mark_pockets(ax, plane)
            if half == row == 0:
                ax.set_title(f"layer {plane.layer}, pos. {plane.position}")
            if column == 0:
                ax.set_ylabel(f"after {plane.after}\nby {key if key == 'digit' else 'class'}")
        below = 1 - (start + 2 * (side + foot)) / figure.get_size_inches()[1]
        figure.legend(
            handles=dots(names, colours), title=legend, loc="upper center", bbox_to_anchor=(0.5, below), ncols=10,
            columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    return figure


def draw_runs(ax: Axes, rows: NDArray[Any], colour: str, label: str = "") -> None:
    """Each run thin, their mean bold where there are several."""
    epochs = np.arange(1, rows.shape[1] + 1)
    rows = rows[~np.isnan(rows).all(1)]
    several = len(rows) > 1
    width, alpha = (0.6, 0.45) if several else (1.2, 1)
    ax.plot(epochs, rows.T, color=colour, linewidth=width, alpha=alpha, rasterized=len(epochs) > 200)
    if several:
        known = ~np.isnan(rows).all(0)
        ax.plot(epochs[known], np.nanmean(rows[:, known], 0), color=colour, linewidth=1.6)
    if label:
        ax.plot([], [], color=colour, linewidth=1.6, label=label)


@styled
def learning_curves(
    history: dict[str, NDArray[Any]], run: int | None = None, names: Sequence[str] = ("pos7", "pos8", "pos9")
) -> Figure:
    """Loss, accuracy and squared weight norm against the epoch (Fig. 8 to 12).

    Args:
        history: as `runs.history` returns it.
        run: None for all runs with their mean and whole answers; a run's number for that run, position by position.
        names: of the positions.
    """
    chosen = slice(None) if run is None else slice(at := list(history["runs"]).index(run), at + 1)
    figure = Figure(figsize=(WIDTH, 2.2 if run is None else 4.1), layout="constrained")
    n = len(names)
    wide: list[Any] = [[name for name in names for _ in "xx"], ["loss"] * n + ["norm"] * n]
    grid = figure.subplot_mosaic([["loss", "whole", "norm"]] if run is None else wide)
    for name, ax in grid.items():
        curve = {"loss": "loss", "whole": "whole"}.get(name, "accuracy")
        ax.set(title={"loss": "loss", "whole": "accuracy, whole answer", "norm": "squared weight norm"}.get(
            name, f"accuracy, {position(name)}"), xlabel="epoch")  # fmt: skip
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        if name == "norm":
            draw_runs(ax, history["weight_norm"][chosen], INK)
            ax.set_ylim(0)
            continue
        for part, colour in (("train", TRAIN), ("test", TEST)):
            rows = history[f"{part}_{curve}"][chosen]
            draw_runs(ax, rows[..., list(names).index(name)] if curve == "accuracy" else rows, colour, part)
        if name == "loss":
            ax.set_yscale("log")
            ax.legend(loc="upper right", handlelength=1.2)
        else:
            ax.set_ylim(-0.03, 1.03)
    return figure


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
        printed: the paper's mean share of right digits.
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
            if printed is not None:
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
        entries.append(Line2D([], [], color="black", linewidth=1.2, linestyle=PAPER_LINE, label="right, paper's mean"))
    figure.text((left - 0.06) / across, (foot + gap - 0.09) / down, "run", ha="right", va="center", fontsize=6.5)
    figure.legend(handles=entries, loc="lower center", ncols=4, columnspacing=1.2, handlelength=1.4)
    return figure


def bars_of_cells(parts: Sequence[Part], n_digits: int, names: Sequence[str], runs: Sequence[int]) -> Figure:
    """Tab. 1 as `outcome_bars`: classes by positions; heavy frames where a one arrives."""
    right, off = (
        torch.cat([torch.stack([getattr(c, kind) for c in cells], -1) for _, cells, _ in parts], 1)
        for kind in ("accuracy", "corrected")
    )
    known = [paper.accuracy for _, _, paper in parts if paper is not None]
    return outcome_bars(
        right, off, [tasks.name(p) for p in tasks.patterns(n_digits)], [*map(position, names)] * len(parts), runs,
        torch.cat(known, 1) if len(known) == len(parts) else None,
        tasks.carry_arrives(n_digits).repeat(1, len(parts)), [(title, len(names)) for title, _, _ in parts],
    )  # fmt: skip


def summary_bars(intact: Sequence[Cells], parts: Sequence[Part], n_digits: int, runs: Sequence[int]) -> Figure:
    """The main result in one picture: digits that receive a one and digits that do not, intact and ablated.

    Averages over the cells of Tab. 1 at the positions where a one can arrive, to two places.
    """
    arrives = tasks.carry_arrives(n_digits)
    masks = [arrives, ~arrives & arrives.any(0)]

    def means(cells: Sequence[Cells], kind: str) -> Tensor:
        return torch.stack([torch.stack([getattr(c, kind)[mask].mean() for c in cells]) for mask in masks])

    columns = [("intact", intact, None), *parts]
    right, off = (
        torch.stack([means(cells, kind) for _, cells, _ in columns], 1).round(decimals=2)
        for kind in ("accuracy", "corrected")
    )
    titles = [title.replace(" the ", " the\n") for title, _, _ in columns]
    return outcome_bars(right, off, ["a one\narrives", "none\narrives"], titles, runs, total=4.8)


def table_of_cells(parts: Sequence[Part], n_digits: int, names: Sequence[str], source: str) -> Table:
    """Tab. 1: the mean over runs, the paper's in brackets, and in small type the runs behind it.

    A mean that `measure.agreement` finds to differ from the paper's is marked ≠, one that it leaves undecided ?.
    """
    marks = dict(zip(AGREEMENT, ("", " ≠", " ?"), strict=True))
    found = [None if paper is None else agreement(cells, paper, source) for _, cells, paper in parts]
    rows = []
    for task, pattern in enumerate(tasks.patterns(n_digits)):
        for kind, attribute in enumerate(("accuracy", "corrected")):
            row = [tasks.name(pattern) if kind == 0 else "corrected"]
            for (_, cells, paper), verdict in zip(parts, found, strict=True):
                values = torch.stack([getattr(c, attribute)[task] for c in cells])  # (run, pos)
                for pos in range(len(names)):
                    text = number(values[:, pos].mean().item())
                    if paper is not None and verdict is not None:
                        printed = number(getattr(paper, attribute)[task, pos].item())
                        text += f" ({printed}){marks[AGREEMENT[verdict[kind, task, pos]]]}"
                    each = [number(v).removeprefix("0") for v in values[:, pos].tolist()]
                    row.append("\n".join([text, *(" ".join(each[i : i + 3]) for i in range(0, len(each), 3))]))
            rows.append(row)
    return Table(
        ["class", *map(position, [*names] * len(parts))],
        rows,
        [("", 1), *((t, len(names)) for t, _, _ in parts)],
    )


def table_of_planes(planes: Sequence[Plane]) -> Table:
    """What is apart in Fig. 4's planes, and what lies in pockets: `geometry.apart` and `geometry.pocket_accuracy`."""
    rows, layers = [], [plane.layer for plane in planes[::2]]
    for after, chosen in (("attention", planes[::2]), ("MLP", planes[1::2])):
        rows.append([f"apart, after {after}", *(number(apart(plane)) for plane in chosen)])
        for what, label in (("digit", "digit"), ("class", "task")):
            found = [pocket_accuracy(plane.points, getattr(plane, label)) for plane in chosen]
            rows.append([f"pockets by {what}, after {after}", *map(number, found)])
    spans = [("", 1), *((f"layer {layer}", layers.count(layer)) for layer in sorted(set(layers)))]
    return Table(["", *(f"pos. {plane.position}" for plane in planes[::2])], rows, spans)

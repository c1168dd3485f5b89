"""The residual stream at the positions of the answer, by class and by digit (Fig. 22, 24)."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from carry_core import carries
from carry_core.findings.geometry import Plane
from carry_core.plots.style import (
    DIGIT_COLOURS,
    FAINT,
    WIDTH,
    class_colours,
    dots,
    panel,
    styled,
)


@styled
def journey_grid(planes: Sequence[Plane], patterns: Sequence[str], n_digits: int) -> Figure:
    """The residual stream at the answer's positions (columns), layer by layer, by class and by digit (Fig. 19, 22, 24).

    Args:
        planes: as `geometry.journey` gives them for `longer.answer_columns`.
        patterns: the classes that the sums are of.
        n_digits: of the sums.
    """
    layers = sorted({plane.layer for plane in planes})
    every = carries.patterns(n_digits)
    where = torch.full((len(every),), -1)
    where[[every.index(p) for p in patterns]] = torch.arange(len(patterns))
    names = [carries.paper_name(p) for p in patterns]
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
            handles=dots(entries, colours),
            title=legend,
            loc="upper center",
            bbox_to_anchor=(0.5, below),
            ncols=10 if label == "digit" else 7,
            columnspacing=1.0,
            borderaxespad=0.0,
        )
    return figure

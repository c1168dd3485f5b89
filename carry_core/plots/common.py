"""What several kinds of figure share: the colours of classes and digits, panels placed in inches, legend entries."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's colours, told apart by colour-blind readers too, in the order of the paper's tables.
CLASS_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
# A helix through the colours, darker to lighter: apart for colour-blind readers, in order for all, and in grey.
DIGIT_COLOURS = (
    "#180E30", "#57112D", "#593D00", "#1A7923", "#2381A0", "#9760D5", "#E66989", "#BBAD53", "#83DF9C", "#ACDCFA",
)  # fmt: skip


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


def position(name: str) -> str:
    """A position's name as a title: `pos. 7` for `pos7`."""
    return name.replace("pos", "pos. ")


def dots(names: Sequence[str], colours: Sequence[str]) -> list[Line2D]:
    """Legend entries."""
    return [
        Line2D([], [], linestyle="", marker="o", markersize=4.5, color=colour, label=name)
        for name, colour in zip(names, colours, strict=True)
    ]

"""What a notebook puts on its page: figures as SVG in one house style, sentences with computed numbers, tables."""

import base64
import html
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

import matplotlib.style
from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 8.0  # inches: a page's column at its natural size
INK, FAINT = "#1F2430", "#6B7280"
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 8.5, "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "legend.fontsize": 8, "figure.titlesize": 9,
    "axes.edgecolor": FAINT, "axes.linewidth": 0.6, "axes.labelcolor": INK, "text.color": INK, "axes.titlepad": 4,
    "xtick.color": INK, "ytick.color": INK, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5, "legend.frameon": False, "legend.handletextpad": 0.4,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.2,
    "svg.fonttype": "path", "svg.hashsalt": "carry", "savefig.dpi": 200, "figure.facecolor": "white",
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """The house style, for figures that are drawn inside."""
    with matplotlib.style.context(["default", STYLE]):
        yield


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Have a function draw in the house style."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with style():
            return draw(*args, **kwargs)

    return inside


@styled
def svg(figure: Figure) -> str:
    """The figure as SVG text; the same figure gives the same text."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


@runtime_checkable
class HasHtml(Protocol):
    """What has HTML, and a `repr` that stands in its place elsewhere; such as a `Table`."""

    def _repr_html_(self) -> str: ...


def show(thing: Figure | HasHtml) -> None:
    """Put a figure (as SVG, which the book offers for download) or a table into the notebook."""
    from IPython.display import display

    data = (
        {"image/svg+xml": svg(thing), "text/plain": "<a figure>"}
        if isinstance(thing, Figure)
        else {"text/html": thing._repr_html_(), "text/plain": repr(thing)}
    )
    display(data, raw=True)  # type: ignore[no-untyped-call]


def say(text: str) -> None:
    """Put a sentence into the notebook whose numbers were computed, as Markdown."""
    from IPython.display import display

    display({"text/markdown": text, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Picture:
    """A figure as HTML that another page can glue in; `alt` says what it shows to those who do not see it."""

    figure: Figure
    alt: str
    caption: str

    def _repr_html_(self) -> str:
        data = base64.b64encode(svg(self.figure).encode()).decode()
        return (
            f'<figure class="align-default" style="margin-inline: 0"><img style="width: 100%"'
            f' src="data:image/svg+xml;base64,{data}" alt="{html.escape(self.alt)}">'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def __repr__(self) -> str:
        return self.alt


@dataclass(frozen=True)
class Table:
    """A small table that a notebook shows as HTML. In a cell, lines after the first are set small.

    Attributes:
        header: one title per column.
        rows: the cells.
        spans: titles above the header, each with the number of columns that it covers.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    spans: Sequence[tuple[str, int]] = ()

    def _repr_html_(self) -> str:
        def cell(text: str, tag: str, i: int, more: str = "") -> str:
            first, *rest = (html.escape(line) for line in text.split("\n"))
            small = "".join(f'<br><small style="font-size: 0.72em">{line}</small>' for line in rest)
            wrap = "nowrap" if tag == "td" else "normal"
            css = (
                f"text-align: {'center' if i else 'left'}; white-space: {wrap}; padding: 0.2em 0.5em; line-height: 1.25"
            )
            return f'<{tag}{more} style="{css}">{first}{small}</{tag}>'

        spans = [cell(text, "th", i, f' colspan="{width}"') for i, (text, width) in enumerate(self.spans)]
        lines = [["<tr>", *spans, "</tr>"]] if spans else []
        lines.append(["<tr>", *(cell(text, "th", i) for i, text in enumerate(self.header)), "</tr>"])
        ruled = '<tr style="border-top: 1px solid rgba(128, 128, 128, 0.4)">'
        body = [[ruled, *(cell(text, "td", i) for i, text in enumerate(row)), "</tr>"] for row in self.rows]
        head = ["<thead>", *map("".join, lines), "</thead>"]
        return "\n".join(
            ['<table style="margin-bottom: 1em">', *head, "<tbody>", *map("".join, body), "</tbody>", "</table>"]
        )

    def __repr__(self) -> str:
        return "\n".join(" | ".join(cell.split("\n")[0] for cell in row) for row in [self.header, *self.rows])


def number(value: float, places: int = 2) -> str:
    """A number with so many places, a dash for none."""
    return "–" if value != value else f"{round(value, places) + 0.0:.{places}f}"

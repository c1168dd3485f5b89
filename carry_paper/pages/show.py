"""Figures, tables and numbers as a notebook's outputs."""

import hashlib
import io
import os
import re
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from PIL import Image

from carry_paper.pages.data_files import CSV, csv_of, is_wanted
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.parameters import in_words, own_and_injected
from carry_paper.plots.style import style, svg

# The prefix of the MIME type of an output that only other cells show.
GLUED = "application/papermill.record/"
PNG_COLOURS = 256
THEAD = re.compile(r"<thead>.*?</thead>", re.DOTALL)
ROW = re.compile(r" *<tr>.*?</tr>\n?", re.DOTALL)
CELL = re.compile(r"<th.*?</th>", re.DOTALL)
BLANK = re.compile(r'class="blank[^>]*>&nbsp;</th>')
# A cell such as `0 of 6` or `0.54–1.00`, which page.css keeps in one line.
SHORT_CELL = re.compile(r'(class="data )(?=[^>]*>(?=[^<]*[ –])[^<]{2,12}</td>)')
POSITION = re.compile(r"pos(\d+)")  # as `Layout.position_names` has it
PNG_DPI = 96


def show(item: Any, name: str | None = None, alt: str = "", data: Any = None) -> None:
    """Put something on the page.

    A figure is a PNG in the notebook; `make book` (CARRY_FIGURES=svg) draws SVG too. What has data
    comes with them as CSV there, and in the copies of `make rerun`.

    Args:
        item: A figure, a frame (or `Styler`), or an object with `_repr_html_` whose `repr`
            is the same in every run.
        name: The name under which the page glues it in elsewhere, from a cell with the tag
            `remove-output`.
        alt: For a figure, a text that says what can be seen in it.
        data: What a figure draws that has no data by itself.
    """
    from IPython.display import display

    assert bool(alt) == isinstance(item, Figure), (
        "A figure needs a text that says what can be seen in it."
    )
    metadata: dict[str, Any] = {"scrapbook": {"name": name, "mime_prefix": ""}} if name else {}
    if isinstance(item, Figure):
        _, injected = own_and_injected()
        if injected:
            alt = alt_with_parameters(alt, in_words(injected))
        outputs: dict[str, Any] = {"image/png": png(item), "text/plain": alt}
        if os.environ.get("CARRY_FIGURES") == "svg":
            # The panels are where the PNG has them; they would be placed again, drawn twice for it.
            item.set_layout_engine("none")
            outputs["image/svg+xml"] = svg(item, alt)
        metadata |= {kind: {"alt": alt} for kind in outputs if "image" in kind}
    elif isinstance(item, pd.DataFrame | Styler):
        outputs = _table(item)
    else:
        outputs = {"text/html": item._repr_html_(), "text/plain": repr(item)}
    csv = csv_of(item, data) if is_wanted() else ""
    if csv:
        outputs[CSV] = csv
    display(outputs, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def alt_with_parameters(alt: str, parameters: str) -> str:
    """Return the text of a figure that was drawn with other parameters than the book's.

    It says what is drawn in the book, and leaves out what can be seen there: the rest of the text,
    after its first sentence or colon.
    """
    subject = re.split(r"[.:;] ", alt)[0].rstrip(".")
    return f"Drawn with {parameters}. In the book this figure is: {subject}."


def glue(values: Mapping[str, int | float | str | np.generic]) -> None:
    """Store numbers and words for the page's sentences, which have them as {glue:text}`name`.

    A number keeps four significant digits; further digits differ from one processor to another.
    """
    from IPython.display import display

    for name, value in values.items():
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, float):
            plain = float(f"{plain:.4g}")
        data = {f"{GLUED}text/plain": repr(plain)}
        metadata = {"scrapbook": {"name": name, "mime_prefix": GLUED}}
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


@style()
def png(figure: Figure) -> bytes:
    """Return a figure as a PNG with few colours, which keeps the notebook small."""
    full_colour = io.BytesIO()
    figure.savefig(full_colour, format="png", dpi=PNG_DPI)
    few_colours = (
        Image.open(full_colour).convert("RGB").quantize(PNG_COLOURS, dither=Image.Dither.NONE)
    )
    small = io.BytesIO()
    few_colours.save(small, "PNG", optimize=True)
    return small.getvalue()


def _spaced(name: Any) -> Any:
    """Return the name of an axis with spaces for its underscores."""
    return name and name.replace("_", " ")


def _position(label: Any, of_positions: bool) -> Any:
    """Return the name of a position: `position 7` for `pos7`, or `7` below the word itself."""
    match = POSITION.fullmatch(str(label))
    if match is None:
        return label
    return match[1] if of_positions else f"position {match[1]}"


def _name_positions(table: Styler) -> None:
    """Name the positions on a table's axes as the book does."""
    for axis, index in enumerate((table.index, table.columns)):
        for level, name in enumerate(index.names):
            labels = index.get_level_values(level)
            if any(POSITION.fullmatch(str(label)) for label in labels):
                named = partial(_position, of_positions=name == "position")
                table.format_index(named, axis=axis, level=level)


def _in_one_row(html: str) -> str:
    """Return a table's HTML with the names of its index beside those of its columns.

    Pandas puts them in a row of their own. They stay there if the columns have a name, too.
    """
    head = THEAD.search(html)
    rows = ROW.findall(head[0]) if head is not None else []
    if len(rows) < 2:
        return html
    labels, names = rows[-2:]
    cells = CELL.findall(names)
    index_names = [cell for cell in cells if "index_name" in cell]
    blanks = list(takewhile(BLANK.search, CELL.findall(labels)))
    if len(blanks) != len(index_names) or not all(map(BLANK.search, cells[len(blanks) :])):
        return html
    merged = labels
    for blank, name in zip(blanks, index_names, strict=True):
        merged = merged.replace(blank, name, 1)
    return html.replace(names, "", 1).replace(labels, merged, 1)


def _table(table: pd.DataFrame | Styler) -> dict[str, str]:
    """Return a table as HTML that can be scrolled, and as text."""
    if isinstance(table, pd.DataFrame):
        labelled = table.rename_axis(index=_spaced, columns=_spaced)
        table = labelled.style.format(precision=2, na_rep="–")
    _name_positions(table)
    plain = table.to_string(delimiter=" | ")
    # The id is made from the contents, or it would differ in every run.
    styler = table.set_uuid(hashlib.sha256(plain.encode()).hexdigest()[:6])
    html = _in_one_row(styler.set_table_attributes('class="dataframe"').to_html())
    html = re.sub(r'(?=class="(col|row)_heading)', r'scope="\1" ', html)
    html = SHORT_CELL.sub(r"\1short ", html)
    return {
        "text/html": f'<div class="table-scroll" tabindex="0">{minus_signs(html)}</div>',
        "text/plain": plain,
    }

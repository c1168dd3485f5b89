"""What a notebook puts on its page: figures, tables, numbers for its sentences, and the author's side of a figure."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray
from pandas.io.formats.style import Styler
from PIL import Image

from carry_core.files import author_dir, data_dir, replacing
from carry_core.plots.style import WIDTH, style, svg

AUTHORS, OURS = "author’s weights", "our weights"
PNG_DPI = 96
GLUED = "application/papermill.record/"  # before the MIME type of what only other cells show
KEPT_BITS = np.int32(~0x1FFF)  # of a stored float32: three digits, so that it is compressed to half
Arrays = dict[str, NDArray[Any]]


def show(thing: Any, name: str | None = None, alt: str = "") -> None:
    """Put a figure, a table or a piece of HTML on the page.

    Figures are PNGs of 256 colours in the notebook; `make book` (CARRY_FIGURES=svg) draws SVG too.

    Args:
        thing: a figure, a frame or a `Styler` of one, or what has `_repr_html_` and a `repr` that stays the same.
        name: under which the page glues it in elsewhere; the cell is tagged `remove-output` then.
        alt: for a figure, what can be seen in it, in a sentence.
    """
    from IPython.display import display

    assert bool(alt) == isinstance(thing, Figure), "A figure needs a text that says what can be seen in it."
    metadata: dict[str, Any] = {"scrapbook": {"name": name, "mime_prefix": ""}} if name else {}
    if isinstance(thing, Figure):
        data: dict[str, Any] = {"image/png": png(thing), "text/plain": alt}
        if os.environ.get("CARRY_FIGURES") == "svg":
            data["image/svg+xml"] = svg(thing, alt)
        metadata |= {kind: {"alt": alt} for kind in data if "image" in kind}
    elif isinstance(thing, pd.DataFrame | Styler):
        data = _table(thing)
    else:
        data = {"text/html": thing._repr_html_(), "text/plain": repr(thing)}
    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def glue(**values: float | str) -> None:
    """Keep numbers and words for the page's sentences, which have them as {glue:text}`name`."""
    from IPython.display import display

    for name, value in values.items():
        data = {f"{GLUED}text/plain": repr(value)}
        display(data, metadata={"scrapbook": {"name": name, "mime_prefix": GLUED}}, raw=True)  # type: ignore[no-untyped-call]


@style()
def png(figure: Figure) -> bytes:
    """The figure in 256 colours, which keeps the notebook small."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=PNG_DPI)
    small = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def _table(table: pd.DataFrame | Styler) -> dict[str, str]:
    styler = table.style.format(precision=2, na_rep="–") if isinstance(table, pd.DataFrame) else table
    plain = styler.to_string(delimiter=" | ")
    styler = styler.set_uuid(hashlib.sha256(plain.encode()).hexdigest()[:6])  # else another one in every run
    html = styler.set_table_attributes('class="dataframe"').to_html()
    return {"text/html": f'<div class="table-scroll" tabindex="0">{html}</div>', "text/plain": plain}


# ---------------------------------------------------------------- words


def of_runs(shows: Mapping[Any, bool] | pd.Series) -> str:
    """How many runs show something, and which: `4 of 6 runs (0, 1, 3 and 4)`, `all 6 runs`, `none of 6 runs`."""
    which = [run for run, x in dict(shows).items() if x]
    if len(which) == len(shows):
        return f"all {len(shows)} runs" if len(shows) > 1 else "the one run"
    if not which:
        return f"none of {len(shows)} runs" if len(shows) > 1 else "no run"
    return f"{len(which)} of {len(shows)} runs ({_and(which)})"


def _and(names: Sequence[Any]) -> str:
    *some, last = map(str, names)
    return f"{', '.join(some)} and {last}" if some else last


def told(sides: Mapping[str, Any], words: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """What the sentences say of the side that was computed here, and as `author_…` of the author's, or dashes."""
    here = words(list(sides.values())[-1])
    theirs = words(sides[AUTHORS]) if AUTHORS in sides else dict.fromkeys(here, "–")
    return {**here, **{f"author_{key}": said for key, said in theirs.items()}}


# ---------------------------------------------------------------- the author's side


def beside(name: str, data: Any, source: str, group: str) -> dict[str, Any]:
    """What a figure draws, from both sources: the author's as it is stored, and what was computed here.

    `make author-figures` runs every page with `source = "author"` and has this function store what it is given, floats
    to three digits. Otherwise a page run so shows the author's alone, and one whose group is not stored ours alone.

    Args:
        name: of the figure, as `fig04`.
        data: a frame, or arrays by name: what the figure draws and nothing more. Text, numbers or booleans.
        source: that it was computed from.
        group: the runs' group.
    """
    path = data_dir() / "results" / "author" / f"{name}.{group}.npz"
    if source == "author":
        if os.environ.get("CARRY_STORE_AUTHOR"):
            _store(path, data, group)
        return {AUTHORS: data}
    if not path.exists():
        return {OURS: data}
    stored = _stored(path)
    return {AUTHORS: pd.DataFrame(stored) if isinstance(data, pd.DataFrame) else stored, OURS: data}


@style()
def subfigures(
    sides: Mapping[str, Any],
    draw: Callable[[SubFigure, Any], None],
    height: float,
    *,
    stacked: bool = False,
    titles: Mapping[str, str] | None = None,
    legend: Sequence[Artist] = (),
) -> Figure:
    """A figure in which the author's side and ours are drawn by the same code.

    Args:
        sides: as `beside` gives them.
        draw: draws a side's data into its part of the figure.
        height: of a part, in inches.
        stacked: the author's above ours, where side by side would be too narrow.
        titles: of the parts where not the sides' names; None for these with the `run` that a side's arrays name.
        legend: entries below all parts.
    """
    n = len(sides)
    figure = Figure(figsize=(WIDTH, height * n if stacked else height), layout="constrained")
    parts = figure.subfigures(n if stacked else 1, 1 if stacked else n, squeeze=False).flatten()
    for part, (name, data) in zip(parts, sides.items(), strict=True):
        of_run = isinstance(data, dict) and np.ndim(data.get("run", [])) == 0
        title = f"{name}, run {data['run']}" if of_run and titles is None else (titles or {}).get(name, name)
        part.suptitle(title, weight="bold")
        draw(part, data)
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=10, columnspacing=1.0)
    return figure


def _store(path: Path, data: pd.DataFrame | Arrays, group: str) -> None:
    arrays = {key: _thin(np.asarray(column)) for key, column in dict(data).items()}
    imported = json.loads((author_dir() / "sources.json").read_text())
    folder = "llm" if group == "default" else group  # pages of language models have no group of runs
    files = [entry["files"] for key, entry in imported.items() if key.startswith(f"{folder}/")]
    released = {path: digest for each in files for path, digest in each.items()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, sources=np.array(json.dumps(released)), **arrays)


def _thin(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == object:
        return x.astype(str)
    if x.dtype.kind == "f":
        return (x.astype(np.float32).view(np.int32) & KEPT_BITS).view(np.float32)
    return x.astype(np.int16) if x.dtype.kind == "i" and abs(x).max() < 2**15 else x


def _stored(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files if key != "sources"}

"""What a page is made of: checked parameters, figures, tables, numbers for its sentences, the author's side."""

import ast
import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pandas.io.formats.style import Styler
from PIL import Image
from pydantic import TypeAdapter

from carry_core import groups, runs
from carry_core.carries import paper_name, patterns
from carry_core.errors import BadInput, check_whole
from carry_core.files import author_dir, data_dir, read_arrays, reading
from carry_paper import author
from carry_paper.checksums import save_listed
from carry_paper.findings import dynamics
from carry_paper.plots.sides import AUTHORS, OURS, Arrays
from carry_paper.plots.style import style, svg

# sums of a draw: more than any class has, and they still fit into memory
MIN_EXAMPLES, MAX_EXAMPLES = 10, 200_000
INJECTED = "# Parameters\n"  # how papermill begins the cell with the parameters that it was given
GLUED = "application/papermill.record/"  # before the MIME type of what only other cells show
KEPT_BITS = np.int32(~0x1FFF)  # of a stored float32: three digits, so that it is compressed to half
REMEDY = "delete it and write it with `make author-figures`"


def check(
    *,
    source: str,
    group: str,
    run: Any = None,
    n_examples: object = MAX_EXAMPLES,
    seed: object = 0,
    addends: tuple[Any, Any] = (0, 0),
    at_least: int = MIN_EXAMPLES,
    causal: bool = False,
) -> runs.Runs:
    """Check a notebook's parameters before anything is computed, and load the group they name.

    Args:
        source: `ours` or `author`.
        group: a run group.
        run: one of its runs, or None for the page's choice.
        n_examples: sums of a draw, a whole number from `at_least` on.
        seed: of draws, a whole number from 0 on.
        addends: two whole numbers whose sum the group's models can write.
        at_least: how many sums it takes to define what the page measures.
        causal: whether the page is about decoders (App. D).

    Raises:
        BadInput: a parameter is not so, or one was injected that the page does not have.
    """
    check_injected()
    check_whole("n_examples", n_examples, at_least, MAX_EXAMPLES, "sums")
    check_whole("seed", seed, 0, 2**63 - 1)
    if run is not None:
        check_whole("run", run, 0, 999)
    loaded = runs.load(group, source)
    if causal and not loaded.config.causal:
        decoders = [other.name for other in groups.GROUPS.values() if other.config.causal]
        raise BadInput(f"{group} has no decoders: expected {' or '.join(decoders)}.")
    a, b = addends
    end = 10**loaded.config.width
    check_whole("a", a, 0, end - 1)
    check_whole("b", b, 0, end - 1)
    if a + b >= end:
        raise BadInput(f"a={a}, b={b}: expected two whole numbers whose sum is below {end}.")
    if run is not None:
        loaded.model(run)
    return loaded


def check_injected() -> None:
    """Raise `BadInput` if papermill was given a parameter that the page does not have.

    Papermill puts what it was given into a cell of its own, after the one tagged `parameters`.
    """
    cells = _cells_so_far()
    injected = [i for i, cell in enumerate(cells) if cell.startswith(INJECTED)]
    if not injected:
        return
    own = [name for cell in cells[: injected[0]] for name in _assigned(cell)]
    unknown = [name for name in _assigned(cells[injected[0]]) if name not in own]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        raise BadInput(
            f"Unknown parameter{plural} {', '.join(unknown)}: expected some of {', '.join(own)}."
        )


def _cells_so_far() -> Sequence[str]:
    """The code of each cell that ran in this kernel; nothing outside of one."""
    from IPython import get_ipython

    cells: Sequence[str] = getattr(get_ipython(), "user_ns", {}).get("In", ())
    return cells


def _assigned(code: str) -> list[str]:
    """The names that code assigns to, in their order."""
    nodes = ast.walk(ast.parse(code))
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def chosen_classes(n_digits: int, wanted: Any = None) -> list[str]:
    """The carry patterns that a figure shows: patterns (`011`) or the paper's names (`C all`), listed; or `all`.

    None stands for five: no carry, one from the tens, a run of them in the middle, one into the
    leading digit, and one from the units through nines to the leading digit. `BadInput` if there is
    no such class.
    """
    every, n = patterns(n_digits), n_digits - 3
    if wanted == "all" or (wanted is None and n <= 0):
        return list(every)
    if wanted is None:
        five = [
            "000" + "0" * n,
            "0" * n + "010",
            "00" + "1" * n + "0",
            "010" + "0" * n,
            "01" + "2" * n + "1",
        ]
        return list(dict.fromkeys(five))  # of four digits two are the same
    # what papermill makes of `-p classes 001110`
    text = f"{wanted:0{n_digits}d}" if type(wanted) is int else wanted
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
    called = {
        name: p for p in every for name in (p, paper_name(p), paper_name(p).replace(" ", "_"))
    }
    if not isinstance(names, list) or not names or not {*map(str, names)} <= called.keys():
        known = f"None, 'all', or names such as '{chosen_classes(n_digits)[1]}'"
        raise BadInput(f"classes={wanted!r} for sums of {n_digits} digits: expected {known}.")
    return [called[str(name)] for name in names]


def tested_epochs(history: runs.History) -> str:
    """Words behind `provenance` on the epochs that learning curves have, if these are not all."""
    tested = history["epochs"]
    apart = dynamics.since_last_test(tested)
    if (most := int(apart.max())) == 1:
        return ""
    last = tested[np.argmax(apart > 1) - 1]
    return (
        f" The learning curves have every epoch up to {last}, then one in {most} or more, after"
        " which all runs were tested: what is said to happen at a later epoch may have happened up"
        f" to {most - 1} epochs before, and a best value is the best of these epochs."
    )


def show(thing: Any, name: str | None = None, alt: str = "") -> None:
    """Put a figure, a frame (or `Styler`), or what has `_repr_html_` and a `repr` that stays the same, on the page.

    Figures are PNGs of 256 colours in the notebook; `make book` (CARRY_FIGURES=svg) draws SVG too.
    `alt` says what can be seen in one. With a `name` the page glues it in elsewhere; the cell is
    tagged `remove-output` then.
    """
    from IPython.display import display

    assert bool(alt) == isinstance(thing, Figure), (
        "A figure needs a text that says what can be seen in it."
    )
    metadata: dict[str, Any] = {"scrapbook": {"name": name, "mime_prefix": ""}} if name else {}
    if isinstance(thing, Figure):
        if any(cell.startswith(INJECTED) for cell in _cells_so_far()):
            alt = f"With this page's own parameters: {alt}"
        data: dict[str, Any] = {"image/png": png(thing), "text/plain": alt}
        if os.environ.get("CARRY_FIGURES") == "svg":
            data["image/svg+xml"] = svg(thing, alt)
        metadata |= {kind: {"alt": alt} for kind in data if "image" in kind}
    elif isinstance(thing, pd.DataFrame | Styler):
        data = _table(thing)
    else:
        data = {"text/html": thing._repr_html_(), "text/plain": repr(thing)}
    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def glue(**values: float | str | np.generic) -> None:
    """Keep numbers and words for the page's sentences, which have them as {glue:text}`name`.

    A number keeps four significant digits: more of them differ from one processor to another.
    """
    from IPython.display import display

    for name, value in values.items():
        value = value.item() if isinstance(value, np.generic) else value
        data = {
            f"{GLUED}text/plain": repr(float(f"{value:.4g}") if isinstance(value, float) else value)
        }
        display(data, metadata={"scrapbook": {"name": name, "mime_prefix": GLUED}}, raw=True)  # type: ignore[no-untyped-call]


@style()
def png(figure: Figure) -> bytes:
    """The figure in 256 colours, which keeps the notebook small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=96)
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    return small.getvalue()


def _table(table: pd.DataFrame | Styler) -> dict[str, str]:
    if isinstance(table, pd.DataFrame):
        spaced = {
            axis: lambda name: name and name.replace("_", " ") for axis in ("index", "columns")
        }
        table = table.rename_axis(**spaced).style.format(precision=2, na_rep="–")
    plain = table.to_string(delimiter=" | ")
    # else another one in every run
    styler = table.set_uuid(hashlib.sha256(plain.encode()).hexdigest()[:6])
    html = styler.set_table_attributes('class="dataframe"').to_html()
    html = re.sub(r'(?=class="(col|row)_heading)', r'scope="\1" ', html)
    html = re.sub(r">-(?=0\.0*<)", ">", html).replace(">-", ">−").replace("e-0", "e−0")  # no -0.00
    return {
        "text/html": f'<div class="table-scroll" tabindex="0">{html}</div>',
        "text/plain": plain,
    }


def beside(name: str, data: Any, source: str, group: str) -> dict[str, Any]:
    """What a figure draws, from both sources: the author's as it is stored, and what was computed here.

    `make author-figures` runs every page with `source = "author"` and has this function store what
    it is given, floats to three digits. Otherwise a page run so shows the author's alone, and one
    whose group is not stored ours alone. `data` is a frame, or by name what becomes arrays: what is
    drawn and nothing more. Text, numbers or booleans.
    """
    if isinstance(data, dict):
        data = {key: np.asarray(value) for key, value in data.items()}
    path = data_dir() / "results" / "author" / f"{name}.{group}.npz"
    if source == "author":
        if os.environ.get("CARRY_STORE_AUTHOR"):
            _store(path, data, group)
        return {AUTHORS: data}
    if not os.path.lexists(path):
        return {OURS: data}
    stored = read_arrays(path, REMEDY)
    with reading(path, REMEDY):
        sources(stored)
        return {
            AUTHORS: type(data)({key: array for key, array in stored.items() if key != "sources"}),
            OURS: data,
        }


def sources(stored: Arrays) -> dict[str, str]:
    """The sha256 of the released files that stored arrays were made from, by path; `ValueError` if they do not say."""
    return TypeAdapter(dict[str, str]).validate_json(str(stored["sources"]))


def _store(path: Path, data: pd.DataFrame | Arrays, group: str) -> None:
    arrays = {key: _thin(np.asarray(column)) for key, column in dict(data).items()}
    imported = author.imported_files(author_dir())
    # pages of language models have no group of runs
    folder = "llm" if group == "default" else group
    released: dict[str, str] = {}
    for output, files in imported.items():
        if output.startswith(f"{folder}/"):
            released |= files
    if os.path.lexists(path):
        lost = sorted(sources(read_arrays(path, REMEDY)).keys() - released.keys())
        if lost:
            raise BadInput(
                f"{path} was made from {lost[0]} as well: import the whole release, or delete it first."
            )
    content = io.BytesIO()
    np.savez_compressed(
        content, allow_pickle=False, sources=np.array(json.dumps(released)), **arrays
    )
    save_listed(path, content.getvalue())


def _thin(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == object:
        return x.astype(str)
    if x.dtype.kind == "f":
        return (x.astype(np.float32).view(np.int32) & KEPT_BITS).view(np.float32)
    return x.astype(np.int16) if x.dtype.kind == "i" and abs(x).max() < 2**15 else x

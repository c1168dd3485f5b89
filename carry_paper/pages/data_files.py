"""The data of a page's figures and tables as CSV, and the files that have it.

`show` puts the CSV into an output beside the picture or the HTML, in the executed copies of
`make book` and of `make rerun`. Committed notebooks do not have it: its last digits differ from one
processor to another.
"""

import gzip
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from carry_paper.ledger.export import NUMBER, csv_text
from carry_train.files import replacing

CSV = "text/csv"
MANY_ROWS = 5_000  # of a cloud of points, whose numbers have four digits: half a pixel or less
NUMBER_OF_A_CLOUD = ".4g"
LARGEST_PLAIN = 4_000  # bytes; a longer file is compressed


def is_wanted() -> bool:
    """Return True if outputs have their data: for `make book`, `make rerun`, or whoever asks."""
    return os.environ.get("CARRY_FIGURES") == "svg" or os.environ.get("CARRY_CSV") == "all"


def csv_of(item: Any, data: Any = None) -> str:
    """Return the data of what a page shows as CSV; "" if it has none.

    A figure has what it draws as its `data` (`plots.style.with_data`), unless that is given here.
    """
    if isinstance(item, pd.DataFrame | Styler):
        data = item if isinstance(item, pd.DataFrame) else item.data
    elif data is None:
        data = getattr(item, "data", None)
    table = pd.DataFrame() if data is None else table_of(data)
    if table.empty:
        return ""
    return csv_text(table, NUMBER_OF_A_CLOUD if len(table) > MANY_ROWS else NUMBER)


def table_of(data: Any, level: int = 1) -> pd.DataFrame:
    """Return frames and arrays as one table, with the name of each frame as its `part`.

    Arrays of one shape are columns of the same rows, which have the number in each axis.
    """
    if isinstance(data, pd.DataFrame):
        return tidy(data)
    parts = data if isinstance(data, Mapping) else {"value": data}
    blocks = []
    arrays: dict[tuple[int, ...], dict[str, Any]] = {}
    for name, part in parts.items():
        if isinstance(part, pd.DataFrame | Mapping):
            block = table_of(part, level + 1)
            column = "part" if level == 1 else f"part {level}"
            while column in block:  # a frame may have a column of that name
                column += " of the figure"
            block.insert(0, column, name)
            blocks.append(block)
        elif isinstance(part, list | tuple) and any(map(np.ndim, part)):
            for i, array in enumerate(part):  # they may be of several shapes
                arrays.setdefault(np.shape(array), {})[f"{name} {i}"] = np.ravel(array)
        else:
            arrays.setdefault(np.shape(part), {})[str(name)] = np.ravel(part)
    for shape, columns in arrays.items():
        axes = {f"axis {i}": x.ravel() for i, x in enumerate(np.indices(shape))}
        blocks.append(pd.DataFrame(axes | columns))
    return pd.concat(blocks, ignore_index=True)


def tidy(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the levels of its index as columns.

    Where the columns are values of variables that have names, or of several, there is a row for
    each cell, with these variables and a `value`; else a row for each row.
    """
    columns = table.columns
    is_crossed = columns.nlevels > 1 or columns.name is not None
    frame = table.copy()
    index_names = _named(frame.index.names, "row")
    frame.index.names = index_names
    if not is_crossed:
        is_counted = isinstance(table.index, pd.RangeIndex) and table.index.name is None
        return frame.reset_index(drop=is_counted)
    variables = _named(columns.names, "column", taken=index_names)
    named = frame.astype(object).set_axis(columns.set_names(variables), axis=1)
    cells = named.stack([*range(columns.nlevels)], future_stack=True)
    return cells.rename("value").reset_index().astype(object)


def _named(names: Any, otherwise: str, taken: Any = ()) -> list[str]:
    """Return names in place of those that are missing or taken: `row`, `row 2`."""
    complete: list[str] = []
    for name in names:
        candidate = str(name) if name not in (None, "") else otherwise
        number = 1
        while candidate in (*taken, *complete, "value"):
            number += 1
            candidate = f"{name or otherwise} {number}"
        complete.append(candidate)
    return complete


# ---- files


class DataFile(NamedTuple):
    """The data of an output of a notebook."""

    name: str  # that of a figure on its page, or `table2`
    content: bytes  # compressed if it is long
    output: Any
    outputs: list[Any]  # of its cell


def data_files(notebook: Any) -> Iterator[DataFile]:
    """Yield the data of each figure and table of an executed notebook."""
    counts: dict[str, int] = {}
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        for output in [*outputs]:
            text = output.get("data", {}).get(CSV)
            if text is None:
                continue
            kind = "figure" if "image/png" in output.data else "table"
            counts[kind] = counts.get(kind, 0) + 1
            name = output.metadata.get("scrapbook", {}).get("name") or f"{kind}{counts[kind]}"
            content = text.encode()
            if len(content) > LARGEST_PLAIN:
                yield DataFile(f"{name}.csv.gz", gzip.compress(content, mtime=0), output, outputs)
            else:
                yield DataFile(f"{name}.csv", content, output, outputs)


def link(address: str) -> str:
    """Return the HTML of the line with a link to a file of data."""
    return (
        f'<p class="data-links"><a class="data-download" href="{address}" download '
        f'title="Download the data as CSV">↓ CSV</a></p>'
    )


def write_beside(notebook: Any, path: Path) -> list[Path]:
    """Write a notebook's data into a folder beside it, and links in their place.

    The folder has the notebook's name. The notebook itself is changed, and not written.
    """
    written = []
    for name, content, output, outputs in [*data_files(notebook)]:
        del output.data[CSV]
        file = path.with_suffix("") / name
        with replacing(file) as temporary:
            temporary.write_bytes(content)
        address = f"{path.stem}/{name}"
        # By identity, since two outputs may be equal.
        place = next(i for i, other in enumerate(outputs) if other is output)
        line = {"text/html": link(address), "text/plain": address}
        linked = type(output)(output_type="display_data", data=type(output)(line))
        linked["metadata"] = type(output)()
        outputs.insert(place + 1, linked)
        written.append(file)
    return written

"""The author's side of a figure: arrays that pages store, so that no page needs his release.

`make author-figures` runs every page with `source = "author"` and `CARRY_STORE_AUTHOR` set. Then
`beside` stores what a figure draws from his weights, with floats rounded to three digits. These
arrays of text, numbers or booleans are in `data/results/author/`, 4 MiB in all, and are used only
to draw figures.
"""

import io
import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter

from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, read_arrays, reading
from carry_paper import author
from carry_paper.checksums import save_listed
from carry_paper.plots.sides import AUTHORS, OURS, Arrays

# The bits of a float32 that are stored: three digits, which compress to half the size.
STORED_BITS = np.int32(~0x1FFF)
SMALL_INT = 2**15
REMEDY = "delete it and write it with `make author-figures`"


def beside(name: str, data: Any, source: str, group: str) -> dict[str, Any]:
    """Return a figure's data by side: the author's as it is stored, and ours as it was computed.

    A page that runs with `source = "author"` shows only his side, and one whose group is not
    stored shows only ours.

    Args:
        name: The stored array's name.
        data: A frame, or values by name that become arrays.
        source: `ours` or `author`.
        group: The group of runs.

    Raises:
        BadInput: The stored arrays are damaged.
    """
    if isinstance(data, dict):
        data = {key: np.asarray(value) for key, value in data.items()}
    path = data_dir() / "results" / "author" / f"{name}.{group}.npz"
    if source == "author":
        if os.environ.get("CARRY_STORE_AUTHOR"):
            store(path, data, group)
        return {AUTHORS: data}
    if not os.path.lexists(path):
        return {OURS: data}
    stored = read_arrays(path, REMEDY)
    with reading(path, REMEDY):
        digests(stored)
        arrays = {key: array for key, array in stored.items() if key != "sources"}
        return {AUTHORS: type(data)(arrays), OURS: data}


def digests(stored: Arrays) -> dict[str, str]:
    """Return the sha256 of the released files behind stored arrays, by path.

    Raises:
        ValueError: The arrays do not say.
    """
    return TypeAdapter(dict[str, str]).validate_json(str(stored["sources"]))


def store(path: Path, data: pd.DataFrame | Arrays, group: str) -> None:
    """Write the author's side of a figure, with the sha256 of the released files behind it.

    Raises:
        BadInput: The stored arrays were made from more of his files than are imported.
    """
    arrays = {key: _compressible(np.asarray(column)) for key, column in dict(data).items()}
    imported = author.imported_files(author_dir())
    # Pages of language models have no group of runs.
    folder = "llm" if group == "default" else group
    released: dict[str, str] = {}
    for output, files in imported.items():
        if output.startswith(f"{folder}/"):
            released |= files
    if os.path.lexists(path):
        lost = sorted(digests(read_arrays(path, REMEDY)).keys() - released.keys())
        if lost:
            raise BadInput(
                f"{path} was made from {lost[0]} as well: import the whole release, or delete it"
                " first."
            )
    content = io.BytesIO()
    sources = np.array(json.dumps(released))
    np.savez_compressed(content, sources=sources, **cast(dict[str, Any], arrays))
    save_listed(path, content.getvalue())


def _compressible(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array as text, as float32 of three digits, or as int16 where that holds it."""
    if x.dtype == object:
        return x.astype(str)
    if x.dtype.kind == "f":
        return (x.astype(np.float32).view(np.int32) & STORED_BITS).view(np.float32)
    if x.dtype.kind == "i" and abs(x).max() < SMALL_INT:
        return x.astype(np.int16)
    return x

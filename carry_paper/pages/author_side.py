"""The author's side of a figure: arrays that pages store, so that no page needs his release.

`make author-figures` runs every page with `source = "author"`, and with the variable
`CARRY_AUTHOR_FIGURES` at `store`. Then `beside` stores what a figure draws from his weights, with
floats rounded to three digits. These arrays of text, numbers or booleans are in
`data/results/author/`, 4 MiB in all, and are used only to draw figures. `make author-check`
compares them with what the pages compute now.
"""

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter

from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, reading
from carry_paper import author
from carry_paper.plots.sides import AUTHORS, OURS, Arrays
from carry_train.files import read_arrays, replacing

# The bits of a float32 that are stored: three digits, which compress to half the size.
STORED_BITS = np.int32(~0x1FFF)
SMALL_INT = 2**15
TOLERANCE = 2e-3  # of the largest float of an array: by so much a check lets them differ
MAY_DIFFER = 0.02  # the share of entries that a check lets differ by more
REMEDY = "delete it and write it with `make author-figures`"


def beside(name: str, data: Any, source: str, group: str) -> dict[str, Any]:
    """Return a figure's data by side: the author's as it is stored, and ours as it was computed.

    A page that runs with `source = "author"` shows only his side, and one whose group is not
    stored shows only ours. `data` are a frame, or values by name that become arrays.

    Raises:
        BadInput: The stored arrays are damaged; or, with `CARRY_AUTHOR_FIGURES=check`, stale.
    """
    if isinstance(data, dict):
        data = {key: np.asarray(value) for key, value in data.items()}
    path = data_dir() / "results" / "author" / f"{name}.{group}.npz"
    if source == "author":
        task = os.environ.get("CARRY_AUTHOR_FIGURES")
        if task == "store":
            store(path, data, group)
        elif task == "check":
            check(path, data)
        return {AUTHORS: data}
    if not os.path.lexists(path):
        return {OURS: data}
    stored = read_arrays(path, REMEDY)
    with reading(path, REMEDY):
        digests(stored)
        arrays = {key: array for key, array in stored.items() if key != "sources"}
        return {AUTHORS: type(data)(arrays), OURS: data}


def digests(stored: Arrays) -> dict[str, str]:
    """Return the sha256 of the files behind stored arrays; raise `ValueError` without them."""
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
    arrays["sources"] = np.array(json.dumps(released))
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **cast(dict[str, Any], arrays))


def check(path: Path, data: pd.DataFrame | Arrays) -> None:
    """Raise `BadInput` unless stored arrays are what a page has computed now."""
    stored = read_arrays(path, REMEDY)
    computed = {key: _compressible(np.asarray(column)) for key, column in dict(data).items()}
    differing = sorted(stored.keys() ^ computed.keys() ^ {"sources"})
    for key in computed.keys() & stored.keys():
        if not _is_close(stored[key], computed[key]):
            differing.append(key)
    if differing:
        raise BadInput(
            f"{path} is stale: {differing[0]} is not what the page computes. "
            "Write it anew with `make author-figures`."
        )


def _is_close(stored: NDArray[Any], computed: NDArray[Any]) -> bool:
    """Return True if nearly all entries are equal, floats up to two units of their last digit.

    Another processor rounds differently, which may move an entry that sits on an edge.
    """
    if stored.shape != computed.shape or stored.dtype.kind != computed.dtype.kind:
        return False
    is_close = stored == computed
    if stored.dtype.kind == "f":
        largest = np.nanmax(np.abs(stored), initial=0)
        is_close = np.isclose(stored, computed, rtol=0, atol=TOLERANCE * largest, equal_nan=True)
    return not stored.size or float((~is_close).mean()) <= MAY_DIFFER


def _compressible(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array as text, as float32 of three digits, or as int16 where that holds it."""
    if x.dtype == object:
        return x.astype(str)
    if x.dtype.kind == "f":
        return (x.astype(np.float32).view(np.int32) & STORED_BITS).view(np.float32)
    if x.dtype.kind == "i" and abs(x).max() < SMALL_INT:
        return x.astype(np.int16)
    return x

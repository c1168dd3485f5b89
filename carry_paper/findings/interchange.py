"""Interchange interventions: one sum's activation, put into the model's pass over another sum.

The paper's algorithm is a causal model, the full adder of App. I (`carry_core.pairs`). If a
component holds one of its variables, then replacing its output for one sum (the base) by that for
another (the source) changes the answer as the causal model says, and not otherwise. The share of
pairs for which this is so is the interchange intervention accuracy (Geiger et al. 2021, Causal
Abstractions of Neural Networks).

A padded model is tested on sums with as many digits as most of its training sums (`n_digits`), in
its rightmost columns. Positions that hold the padding's zeros are left out of its map.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.measure import correct_pairs
from carry_core.model import ModelConfig, Transformer
from carry_core.pairs import VARIABLES, Contrast, Pairs
from carry_fast.swaps import PatchedPasses, RowSwaps, components, swaps_between
from carry_train import groups

# The columns of a map that say what a row is about, and those that were measured.
CELL = ["component", "position", "reads", "variable", "direction"]
MEASURED = ["pairs", "accuracy", "elsewhere", "right"]

BATCH = 250  # pairs in a pass, few enough for the processor's cache


# ---- cells of a map


class Cell(NamedTuple):
    """A component that is swapped, and the token position at which it is swapped."""

    component: str
    position: int


def reachable(config: ModelConfig, column: int, n_digits: int | None = None) -> list[Cell]:
    """Return the cells that can influence the answer digit of a column.

    From the last layer's heads on, only the digit's own position can. A stream is listed once, as
    the `resid_post` of a layer and not as the `resid_pre` of the next.
    """
    last_layer = f"blocks.{config.layers - 1}."
    own_position = config.layout.answer[column]
    positions = _positions_with_input(config, own_position, n_digits or config.width)
    cells = []
    for component in components(config):
        is_resid_pre = component.endswith("resid_pre")
        if is_resid_pre and not component.startswith("blocks.0."):
            continue
        is_after_last_attention = component.startswith(last_layer) and not is_resid_pre
        for position in positions:
            if position == own_position or not is_after_last_attention:
                cells.append(Cell(component, position))
    return cells


def _positions_with_input(config: ModelConfig, own_position: int, n_digits: int) -> list[int]:
    """Return the positions that the digit predicted at `own_position` can depend on."""
    width, answer = config.width, config.layout.answer
    n_zeros = width - n_digits
    zeros_of_a = range(n_zeros)
    zeros_of_b = range(width + 1, width + 1 + n_zeros)
    zeros_of_answer = range(2 * width + 1, answer[n_zeros])
    padding = {*zeros_of_a, *zeros_of_b, *zeros_of_answer}
    end = own_position + 1 if config.causal else config.layout.length
    return [position for position in range(end) if position not in padding]


def swap_cells(
    model: Transformer, column: int, pairs: Pairs, cells: Sequence[Cell]
) -> pd.DataFrame:
    """Return the outcome of swapping each cell, in both directions of all pairs.

    `column` is the answer digit that is read, counted from the left of the model's columns.

    Returns:
        A row for each cell and direction: the `component`, the token `position` such as `pos8`, and
        the `direction`, `up` if the base is the sum with the smaller value of the variable, or
        `down`; the number of swaps (`pairs`); the shares after which the column's digit is exactly
        the source's (`accuracy`), and all others are unchanged (`elsewhere`), NaN without pairs.
    """
    # (cell, base, predicted digit or other digits)
    hits = torch.zeros(len(cells), 2, 2, dtype=torch.float64)
    for batch in pairs.split(BATCH, -1):
        swaps = swaps_between(model, batch)
        for base in (0, 1):
            for i, cell in enumerate(cells):
                hits[i, base] += _hits(swaps, cell, base, column)
    n_pairs = pairs.shape[-1]
    shares = hits / n_pairs
    rows = []
    for i, cell in enumerate(cells):
        for base, direction in enumerate(("up", "down")):
            cell_names = (cell.component, f"pos{cell.position}", direction)
            rows.append((*cell_names, n_pairs, *shares[i, base].tolist()))
    names = ["component", "position", "direction", "pairs", "accuracy", "elsewhere"]
    return pd.DataFrame(rows, columns=names)


def _hits(swaps: RowSwaps | PatchedPasses, cell: Cell, base: int, column: int) -> Tensor:
    """Return the numbers of swaps that made the predicted digit, and that left all others alone."""
    answer = swaps.swapped(cell.component, cell.position, base)
    is_predicted = answer[:, column] == swaps.answers[1 - base][:, column]
    stays = answer == swaps.answers[base]
    stays[:, column] = True
    return torch.stack([is_predicted.sum(), stays.all(1).sum()])


# ---- the map of a run


class PairCounts(NamedTuple):
    """The numbers of pairs for a swap at an answer position, and at any other position."""

    at_answer: int
    elsewhere: int


def pair_counts(pairs: int) -> PairCounts:
    """Return this number of pairs for answer positions, and a fifth of it for all others."""
    return PairCounts(pairs, pairs // 5)


def sweep(
    model: Transformer,
    counts: PairCounts,
    n_digits: int | None = None,
    *,
    own: bool = False,
    control: bool = False,
    variables: Sequence[str] = VARIABLES,
) -> pd.DataFrame:
    """Return the map of one run: all `reachable` cells, swapped and `completed`.

    The columns are those of `swap_cells`; `variable`; `reads`, the name of the digit that is read;
    and `right`, the share of sampled pairs of which the intact model gets both sums right. Only
    such pairs are swapped.

    The sums have `n_digits` digits, the model's if None. With `own`, only the position of the digit
    that is read is swapped; pairs of a `control` agree in the variable, so that nothing may change.
    """
    generator = torch.Generator().manual_seed(0)
    names = model.config.layout.position_names
    frames = []
    for contrast, column in _contrasts(model.config, n_digits, variables, control):
        cells = reachable(model.config, column, n_digits)
        if own:
            own_position = model.config.layout.answer[column]
            cells = [cell for cell in cells if cell.position == own_position]
        pairs, right = correct_pairs(model, contrast, max(counts), generator, n_digits)
        frame = _swap_by_position(model, column, pairs, cells, counts)
        frames.append(frame.assign(reads=names[column], variable=contrast.variable, right=right))
    return completed(pd.concat(frames, ignore_index=True)[[*CELL, *MEASURED]])


def carry_swaps(model: Transformer, count: int, n_digits: int | None = None) -> pd.DataFrame:
    """Return the part of `sweep` that `typology.who_decides` reads.

    `count` is the number of pairs, `n_digits` that of the digits of the sums; the model's if None.
    """
    return sweep(model, PairCounts(count, 0), n_digits, own=True, variables=["carry_in"])


def _contrasts(
    config: ModelConfig, n_digits: int | None, variables: Sequence[str], control: bool
) -> Iterator[tuple[Contrast, int]]:
    """Yield each contrast of a map, with the column of the model whose digit is read."""
    n_digits = n_digits or config.width
    for variable in variables:
        n_columns = n_digits if variable == "digit_sum" else n_digits - 1
        for column in range(n_columns):
            yield Contrast(variable, column, control), config.width - n_digits + column


def _swap_by_position(
    model: Transformer, column: int, pairs: Pairs, cells: Sequence[Cell], counts: PairCounts
) -> pd.DataFrame:
    """Return the rows of `swap_cells`, with the number of pairs that each position calls for."""
    answer = model.config.layout.answer
    at_answer = [cell for cell in cells if cell.position in answer]
    elsewhere = [cell for cell in cells if cell.position not in answer]
    frames = []
    for some_cells, count in ((at_answer, counts.at_answer), (elsewhere, counts.elsewhere)):
        if some_cells:
            frames.append(swap_cells(model, column, pairs[..., :count], some_cells))
    return pd.concat(frames, ignore_index=True)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a map with the rows that follow from it.

    These are the mean of both directions, and each layer's `resid_pre`, which is the `resid_post`
    of the layer before.
    """
    keys = [name for name in frame if name not in ("direction", *MEASURED)]
    means = {"pairs": "sum", "accuracy": "mean", "elsewhere": "mean", "right": "first"}
    both = frame.groupby(keys, sort=False, as_index=False).agg(means).assign(direction="both")
    frame = pd.concat([frame, both], ignore_index=True)

    layer = frame.component.str.split(".").str[1].astype(int)
    is_stream = frame.component.str.endswith("resid_post") & (layer < layer.max())
    next_layer = (layer[is_stream] + 1).astype(str)
    resid_pre = frame[is_stream].assign(component="blocks." + next_layer + ".resid_pre")
    return pd.concat([frame, resid_pre], ignore_index=True)


def check_group(name: str) -> groups.Group:
    """Return a group; raise `BadInput` unless its models give a whole unpadded answer at once."""
    group = groups.find(name)
    if group.config.causal or group.padded:
        raise BadInput(f"{name}: expected encoders of unpadded sums, such as {groups.MAIN}.")
    return group

"""Interchange interventions: one sum's activation put into another sum's pass, and what has to come of it.

The paper's algorithm is a causal model, the full adder of App. I: for each column a digit sum, a
carry-in and an answer digit. If a component holds one of these variables, then its output for
another sum (the source) changes the answer of the first (the base) as the causal model says, and in
nothing else. The share of pairs for which it does is the interchange-intervention accuracy (Geiger
et al. 2021, Causal Abstractions of Neural Networks).

A decoder is given the right answer of its own sum and predicts each digit a position before it. So
the two answers agree to the left of the column, too: else a carry that goes on to the left could be
read off the input.

In a padded model the sums have as many digits as most that it was trained on (`n_digits`), at the
right end of its columns. Columns are counted from the left of all; positions that hold the
padding's zeros are left out of the map.
"""

import gzip
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from carry_core import carries, groups, runs, sums
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir
from carry_core.model import ModelConfig, Transformer, no_hook, rotate
from carry_core.sums import Layout, Numbers
from carry_paper.checksums import save_listed
from carry_paper.schemas import one_of, read_table

VARIABLES = ("carry_in", "digit_sum", "both")
CELL = ["component", "position", "reads", "variable", "direction"]
COLUMNS = ["source", "group", "run", *CELL, "pairs", "accuracy", "elsewhere"]  # of a record
PAIRS = 10_000  # for a patch at an answer position; at any other, and for controls, a fifth
# in every group but the main one: all maps of all runs take an hour of a core
PAIRS_OF_OTHERS = 2_000
BATCH = 250  # pairs in a pass: what a cell needs then stays in the processor's cache
# drawn pairs for each that is asked for, before a model that gets few of them right is given up
TRIES = 20

Share = Annotated[float, Field(ge=0, le=1)] | None
Position = Annotated[str, Field(pattern="^pos[0-9]+$")]


class StoredMaps(BaseModel):
    """The columns of a group's stored maps."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    component: list[str]
    position: list[Position]
    reads: list[Position]
    variable: list[Annotated[str, one_of(VARIABLES)]]
    direction: list[Literal["up", "down"]]
    pairs: list[Annotated[int, Field(ge=0)]]
    accuracy: list[Share]
    elsewhere: list[Share]
    right: list[Share]
    control: list[Literal[0, 1]]


Cache = Mapping[str, Tensor]
# The two numbers of two sums that differ in a variable of one column, with every column to the left
# # alike. The first sum has the smaller value: no carry-in, or the smaller digit sum. It is the
# # base for the direction `up`, the source for `down`.
Pairs = Int[Tensor, "side number pair"]


def draw(
    variable: str,
    column: int,
    count: int,
    generator: torch.Generator,
    layout: Layout,
    *,
    control: bool = False,
) -> Pairs:
    """`count` pairs, uniform over all that there are; in a decoder their answers agree to the left of the column.

    They differ in the `carry_in` (the column's own digits are alike too), in the `digit_sum` (all
    other columns are alike), or in `both`, such that the two can make four different digits. A
    `control`'s pairs agree in the variable, and differ in the digits that it is computed from.
    Column 0 is the leftmost; nothing is carried into the last.
    """
    width = layout.width
    if variable != "digit_sum" and column == width - 1:
        raise BadInput(
            f"column={column}: nothing is carried into the last; expected one before it."
        )
    side, right = 10 ** (column + 1), 10 ** (width - column - 1)
    found = torch.zeros(2, 2, 0, dtype=torch.int64)
    while found.shape[-1] < count:
        n = 8 * (count + 8)
        upper, other = (
            torch.randint(side, (2, n), generator=generator),
            torch.randint(10, (2, n), generator=generator),
        )
        lower, second = torch.randint(right, (2, 2, n), generator=generator)
        if variable == "carry_in":
            other = upper % 10
        if variable == "digit_sum":
            second = lower
        pairs = torch.stack([upper * right + lower, (upper - upper % 10 + other) * right + second])
        fits = (pairs.sum(1) < side * right).all(0) & _differ(
            variable, column, pairs, width, control
        )
        if layout.causal:
            first, second = sums.digits(pairs.sum(1), width)[..., :column]
            fits &= (first == second).all(1)
        found = torch.cat([found, pairs[..., fits]], -1)
    return found[..., :count]


def _differ(
    variable: str, column: int, pairs: Pairs, width: int, control: bool
) -> Bool[Tensor, " pair"]:
    """Which sums differ in the variable and nothing else, as `draw` has it."""
    digits = sums.digits(pairs, width)  # [side, number, pair, column]
    carry_in = carries.carry_in(width)[carries.class_index(pairs[:, 0], pairs[:, 1], width)].long()
    step, carried = (x[1, :, column] - x[0, :, column] for x in (digits.sum(1), carry_in))
    alike = (digits[0] == digits[1]).all(0)
    same, others_same = alike[:, column], alike[:, column + 1 :].all(1)
    if control:
        digits_only = {"carry_in": same, "digit_sum": others_same & ~same, "both": ~same}[variable]
        own = digits_only & (carried == 0) & (step == 0)
    else:
        own = {
            "carry_in": same & (carried == 1),
            "digit_sum": others_same & (step > 0) & (step != 10),
            "both": ~torch.isin(step % 10, torch.tensor([0, 1, 9])) & (carried == 1),
        }[variable]
    return alike[:, :column].all(1) & own


@torch.inference_mode()
def answered(model: Transformer, a: Numbers, b: Numbers) -> Int[Tensor, "sums column"]:
    """The digits that the intact model answers with."""
    layout = model.config.layout
    parts = zip(a.split(1024), b.split(1024), strict=True)
    return torch.cat(
        [model(sums.encode(x, y, layout), read=layout.answer).argmax(-1) for x, y in parts]
    )


def right_pairs(
    model: Transformer,
    variable: str,
    column: int,
    count: int,
    generator: torch.Generator,
    n_digits: int | None = None,
    *,
    control: bool = False,
) -> tuple[Pairs, float]:
    """`count` random pairs of which the model gets both sums right, fewer if hardly any are right; and their share."""
    width, drawn = model.config.width, 0
    layout = Layout(n_digits or width, model.config.causal)
    found = torch.zeros(2, 2, 0, dtype=torch.int64)
    while found.shape[-1] < count and drawn < TRIES * count:
        pairs = draw(
            variable, column - width + layout.width, count, generator, layout, control=control
        )
        first, second = (
            (answered(model, a, b) == sums.digits(a + b, width)).all(1) for a, b in pairs
        )
        chosen = (first & second).nonzero().flatten()[: count - found.shape[-1]]
        found = torch.cat([found, pairs[..., chosen]], -1)
        # up to the pair that completes them
        drawn += int(chosen[-1]) + 1 if found.shape[-1] == count else count
    return found, found.shape[-1] / drawn


# Each cell of a map is the core's `Patch` of one part at one position, and a test holds the two
# # equal. The sweep does not run it as a hook: nearly all of a map's million swaps leave the first
# # layers as they were, and all but one row of the stream after them. Here a swap starts from that
# row, on activations that all cells of a batch share.


def components(config: ModelConfig) -> list[str]:
    """What can be swapped at one position, in the order of the forward pass; heads as `blocks.1.attn.z:0`."""
    heads = [f"attn.z:{head}" for head in range(config.heads)]
    parts = [
        "resid_pre",
        *heads,
        "attn_out",
        "attn.skip",
        "resid_mid",
        "mlp_out",
        "mlp.skip",
        "resid_post",
    ]
    return [f"blocks.{layer}.{part}" for layer in range(config.layers) for part in parts]


# What swaps the same where both sums have the same token: nothing, or what the first layer's
# attention adds to it.
SAME = {
    "blocks.0.resid_pre": "",
    "blocks.0.attn.skip": "",
    "blocks.0.resid_mid": "blocks.0.attn_out",
}


def activations(model: Transformer, numbers: Int[Tensor, "2 sums"]) -> dict[str, Tensor]:
    """Every hook point of one pass over some sums, the `answer`'s digits, and `blocks.0.q`, `k`, `v`, `scores`, …."""
    layout, (a, b) = model.config.layout, numbers
    logits, cache = model.run_with_cache(sums.encode(a, b, layout))
    for l, block in enumerate(model.blocks):
        qkv = block.qkv(cache[f"{block.name}.resid_pre"], query=model.queries(l, layout.answer))
        q, k, v = (x.transpose(1, 2).contiguous() for x in qkv)  # [sums, head, pos, d_head], turned
        parts = {"q": q, "k": k, "v": v, "scores": q @ k.mT}
        cache |= {f"{block.name}.{name}": x for name, x in parts.items()}
    return cache | {"answer": logits[:, list(layout.answer)].argmax(-1)}


def attention(
    model: Transformer, layer: int, base: Cache, position: int, row: Float[Tensor, "sums 1 d_model"]
) -> Float[Tensor, "sums query head d_head"]:
    """`attn.z` when the stream that enters the layer has this row at a position: of it alone q, k and v are new."""
    block, config = model.blocks[layer], model.config
    heads, turn, x = (config.heads, config.d_head), block.rotation[[position]], block.norm(row)
    query, key, value = (
        rotate(f(x).unflatten(-1, heads), turn).transpose(1, 2) for f in (block.q, block.k, block.v)
    )
    q, k, v, scores = (base[f"{block.name}.{name}"] for name in ("q", "k", "v", "scores"))
    served = torch.arange(config.layout.length)[model.queries(layer, config.layout.answer)]
    own, scores = served == position, scores.clone()
    scores[:, :, own] = query @ k.mT
    scores[..., position] = (torch.where(own[:, None], query, q) * key).sum(-1)
    scores /= math.sqrt(config.d_head)
    if config.causal:
        scores = scores.masked_fill(torch.arange(k.shape[2]) > served[:, None], -torch.inf)
    # over ten numbers, PyTorch's own softmax takes longer
    pattern = (scores - scores.amax(-1, keepdim=True)).exp()
    pattern /= pattern.sum(-1, keepdim=True)
    z = pattern @ v
    # cheaper than a copy of all values
    z += pattern[..., [position]] * (value - v[:, :, [position]])
    return z.transpose(1, 2)


def swapped(
    model: Transformer, component: str, position: int, base: Cache, source: Cache
) -> Int[Tensor, "sums column"]:
    """The base's answer with one component's output at one position from the source; both as from `activations`."""
    name, _, head = component.partition(":")
    layer, at, answer = (
        int(name.split(".")[1]),
        slice(position, position + 1),
        model.config.layout.answer,
    )

    def patch(point: str, x: Tensor) -> Tensor:
        if point != name:
            return x
        patched = source[name][:, at]
        return (
            torch.where(torch.arange(x.shape[2])[:, None] == int(head), patched, x)
            if head
            else patched
        )

    row = source[name][:, at]
    if not name.endswith("resid_pre"):
        block, entering, z = (
            model.blocks[layer],
            base[f"blocks.{layer}.resid_pre"],
            base[f"blocks.{layer}.attn.z"],
        )
        row = block.mlp(block.mix(entering[:, at], z[:, at], patch), patch)
        layer += 1
    if layer == model.config.layers:
        digits = base["answer"].clone()
        digits[:, [answer.index(position)]] = digits_of(model, row)
        return digits
    resid = base[f"blocks.{layer}.resid_pre"].clone()
    resid[:, at] = row
    z = attention(model, layer, base, position, row)
    for l in range(layer, model.config.layers):
        block, query = model.blocks[l], model.queries(l, answer)
        if l > layer:
            z = block.attention(resid, no_hook, query)
        resid = block.mlp(block.mix(resid[:, query], z, no_hook), no_hook)
    return digits_of(model, resid)


def digits_of(model: Transformer, resid: Float[Tensor, "*batch d_model"]) -> Int[Tensor, "*batch"]:
    """The digits that the model reads off the stream after its last layer."""
    return torch.argmax(model.unembed(model.norm(resid)), -1)


@torch.inference_mode()
def count(
    model: Transformer, column: int, pairs: Pairs, cells: Sequence[tuple[str, int]]
) -> pd.DataFrame:
    """Swap each cell's component at its position, upwards and downwards, and count where `column` is the source's.

    `accuracy` is the share of swaps after which exactly the predicted digit came out, `elsewhere`
    that after which all other digits stayed; NaN without pairs.
    """
    # [cell, direction, predicted or elsewhere]
    hits = torch.zeros(len(cells), 2, 2, dtype=torch.float64)
    for part in pairs.split(BATCH, -1):
        low, high = (activations(model, numbers) for numbers in part)
        for way, (base, source) in enumerate(((low, high), (high, low))):
            embedded, seen = (
                [x["blocks.0.resid_pre"] for x in (base, source)],
                dict[tuple[str, int], Tensor](),
            )
            for i, (component, position) in enumerate(cells):
                if component in SAME and torch.equal(*(x[:, position] for x in embedded)):
                    component = SAME[component]
                if (component, position) not in seen:
                    answer = (
                        swapped(model, component, position, base, source)
                        if component
                        else base["answer"]
                    )
                    predicted = answer[:, column] == source["answer"][:, column]
                    stays = answer == base["answer"]
                    stays[:, column] = True
                    seen[component, position] = torch.stack([predicted.sum(), stays.all(1).sum()])
                hits[i, way] += seen[component, position]
    n = pairs.shape[-1]
    rows = [
        (component, f"pos{position}", direction, n, *shares)
        for (component, position), by_way in zip(cells, (hits / n).tolist(), strict=True)
        for direction, shares in zip(("up", "down"), by_way, strict=True)
    ]
    return pd.DataFrame(
        rows, columns=["component", "position", "direction", "pairs", "accuracy", "elsewhere"]
    )


def reachable(
    config: ModelConfig, column: int, n_digits: int | None = None
) -> list[tuple[str, int]]:
    """The components and positions that can reach an answer digit: after the last attention, its own position only."""
    width, answer, last = config.width, config.layout.answer, config.layers - 1
    own, first = answer[column], width - (n_digits or width)
    # padding
    zeros = {
        *range(first),
        *range(width + 1, width + 1 + first),
        *range(2 * width + 1, answer[first]),
    }
    positions = [
        p for p in range(own + 1 if config.causal else config.layout.length) if p not in zeros
    ]
    return [
        (name, position)
        for name in components(config)
        if not name.endswith("resid_pre") or name.startswith("blocks.0.")  # each stream once
        for position in positions
        if not name.startswith(f"blocks.{last}.") or name.endswith("resid_pre") or position == own
    ]


def sweep(
    model: Transformer,
    counts: tuple[int, int] = (PAIRS, PAIRS // 5),
    n_digits: int | None = None,
    *,
    own: bool = False,
    control: bool = False,
    variables: Sequence[str] = VARIABLES,
) -> pd.DataFrame:
    """The map of one run: a row for each `CELL` that is `reachable`, with what `count` gives.

    And `right`, the share of drawn pairs whose sums the intact model gets right: only these are
    counted. `counts` are the pairs for a patch at an answer position, and at any other. With `own`,
    only the position of the digit that is read is patched; a `control` has pairs that agree in the
    variable, so that nothing may change.
    """
    config, frames, generator = model.config, [], torch.Generator().manual_seed(0)
    answer, names = config.layout.answer, config.layout.position_names
    for variable in variables:
        for column in range(
            config.width - (n_digits or config.width), config.width - (variable != "digit_sum")
        ):
            pairs, right = right_pairs(
                model, variable, column, max(counts), generator, n_digits, control=control
            )
            cells = [
                cell
                for cell in reachable(config, column, n_digits)
                if not own or cell[1] == answer[column]
            ]
            for n, at_answer in zip(counts, (True, False), strict=True):
                if asked := [cell for cell in cells if (cell[1] in answer) == at_answer]:
                    found = count(model, column, pairs[..., :n], asked)
                    frames.append(found.assign(reads=names[column], variable=variable, right=right))
    return completed(
        pd.concat(frames, ignore_index=True)[[*CELL, "pairs", "accuracy", "elsewhere", "right"]]
    )


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """A map with what follows from it: both directions together, and a layer's `resid_pre`, the `resid_post` before."""
    keys = [
        name
        for name in frame
        if name not in ("direction", "pairs", "accuracy", "elsewhere", "right")
    ]
    means = {"pairs": "sum", "accuracy": "mean", "elsewhere": "mean", "right": "first"}
    both = frame.groupby(keys, sort=False, as_index=False).agg(means).assign(direction="both")
    frame = pd.concat([frame, both], ignore_index=True)
    layers = frame.component.str.split(".").str[1].astype(int)
    before = frame[frame.component.str.endswith("resid_post") & (layers < layers.max())]
    entering = "blocks." + (layers[before.index] + 1).astype(str) + ".resid_pre"
    return pd.concat([frame, before.assign(component=entering)], ignore_index=True)


def check_group(name: str) -> groups.Group:
    """The group, if a page can take its models' whole answer at once: no decoders, nothing padded; else `BadInput`."""
    group = groups.find(name)
    if group.config.causal or group.padded:
        raise BadInput(f"{name}: expected encoders of unpadded sums, such as {groups.MAIN}.")
    return group


def maps(
    source: str, name: str, report: Callable[[str], object] = lambda done: None, pairs: int = PAIRS
) -> pd.DataFrame:
    """The maps of all runs of a group: `COLUMNS`, `right`, `control`; a fifth of the pairs where no answer stands."""
    frames, n_digits, few = [], groups.find(name).n_digits, pairs // 5
    for run, model in runs.load(name, source).models():
        control = sweep(model, (few, few), n_digits, own=True, control=True).assign(
            control=True, run=run
        )
        frames += [sweep(model, (pairs, few), n_digits).assign(control=False, run=run), control]
        report(f"{name} run {run}")
    found = pd.concat(frames, ignore_index=True).assign(source=source, group=name)
    return found.round({"accuracy": 5, "elsewhere": 5, "right": 3})


def path_of(source: str, name: str) -> Path:
    """Where the records of a group lie."""
    return data_dir() / "results" / "interchange" / source / f"{name}.csv.gz"


def save(source: str, name: str, frame: pd.DataFrame) -> Path:
    """Store a group's maps with the results, without what `completed` adds; `BadInput` as from `check_replaces`."""
    path, again = path_of(source, name), frame.component.str.match(r"blocks\.[1-9]\d*\.resid_pre")
    thin = frame[(frame.direction != "both") & ~again][[*COLUMNS[2:], "right", "control"]].astype(
        {"control": int}
    )
    check_replaces(source, name, int(thin.pairs.max()), thin.run.unique().tolist())
    return save_listed(path, gzip.compress(thin.to_csv(index=False).encode(), mtime=0))


def check_replaces(source: str, name: str, pairs: int, numbers: Collection[int]) -> None:
    """Raise `BadInput` if a group's stored maps are of more pairs, or of runs that are not among `numbers`."""
    path = path_of(source, name)
    if not os.path.lexists(path):
        return
    stored = _read(source, name)
    anew = f"or delete {path} to begin anew"
    if stored.pairs.max() > pairs:
        raise BadInput(
            f"{path} has maps of {stored.pairs.max()} pairs, and these are of {pairs}: ask for more, {anew}."
        )
    lost = sorted({*stored.run} - {*numbers})
    if lost:
        raise BadInput(
            f"{path} has maps of runs {', '.join(map(str, lost))}, which are missing: get them, {anew}."
        )


def saved(source: str, name: str, *, control: bool = False) -> pd.DataFrame:
    """A group's stored maps, or those of the controls: `COLUMNS` and `right`; `BadInput` if none, or damaged."""
    frame = _read(source, groups.find(name).name).astype({"accuracy": float, "elsewhere": float})
    frame = frame[frame.control == control].drop(columns="control")
    return completed(frame).assign(source=source, group=name)[[*COLUMNS, "right"]]


def _read(source: str, name: str) -> pd.DataFrame:
    """A group's stored maps as they lie in the file."""
    path = path_of(source, name)
    remedy = f"delete it and write it with `carry interchange --source {source} {name} --save`"
    frame = read_table(path, StoredMaps, remedy)
    unknown = {*frame.component} - {*components(groups.find(name).config)}
    if unknown:
        raise damaged(path, f"{name} has no component {min(unknown)!r}", remedy)
    if frame.duplicated(["run", *CELL, "control"]).any():
        raise damaged(path, "a cell stands twice", remedy)
    return frame


def stored(name: str) -> dict[str, pd.DataFrame]:
    """The records of a group by source, for those sources that have them."""
    return {
        source: saved(source, name)
        for source in runs.SOURCES
        if path_of(source, groups.find(name).name).exists()
    }

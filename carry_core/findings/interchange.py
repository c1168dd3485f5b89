"""Interchange interventions: one sum's activation put into another sum's pass, and what has to come of it.

The paper's algorithm is a causal model, the full adder of App. I: for each column a digit sum, a carry-in and an
answer digit. If a component holds one of these variables, then its output for another sum (the source) changes the
answer of the first (the base) as the causal model says, and in nothing else. The share of pairs for which it does is
the interchange-intervention accuracy (Geiger et al. 2021, Causal Abstractions of Neural Networks).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import groups, runs, sums
from carry_core.errors import BadInput
from carry_core.files import data_dir, replacing
from carry_core.model import ModelConfig, Transformer, rotate

VARIABLES = ("carry_in", "digit_sum", "both")
DIRECTIONS = ("up", "down", "both")
CELL = ["component", "position", "reads", "variable", "direction"]
COLUMNS = ["source", "group", "run", *CELL, "pairs", "accuracy", "elsewhere"]  # of a record
AT_ANSWER, ELSEWHERE = 10_000, 2_000  # pairs for a patch at an answer position, and at any other
BATCH = 250  # pairs in a pass: what a cell needs then stays in the processor's cache
TRIES = 20  # drawn pairs for each that is asked for, before a model that gets few of them right is given up
Numbers = Int[Tensor, " pairs"]


# the causal model


def digit_sums(a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], width: int) -> Int[Tensor, "*batch column"]:
    """The sum of the two digits in each column, 0 to 18."""
    return sums.digits(a, width) + sums.digits(b, width)


def full_adder(
    digit_sum: Int[Tensor, "sums column"], carry_in: Mapping[int, Int[Tensor, " sums"]] | None = None
) -> tuple[Int[Tensor, "sums column"], Int[Tensor, "sums column"]]:
    """The answer's digits and each column's carry-in, from the digit sums (App. I).

    Args:
        digit_sum: column 0 is the leftmost.
        carry_in: columns whose carry-in is set. That changes their own digit only: after its last attention a model
            has no way to pass it on, so the columns' carries are computed beside each other, from the digit sums.
    """
    answer, carries = torch.empty_like(digit_sum), torch.empty_like(digit_sum)
    carry = torch.zeros_like(digit_sum[:, 0])
    for column in reversed(range(digit_sum.shape[1])):
        used = (carry_in or {}).get(column, carry)
        answer[:, column], carries[:, column] = (digit_sum[:, column] + used) % 10, used
        carry = (digit_sum[:, column] + carry) // 10
    return answer, carries


# pairs


@dataclass(frozen=True)
class Pairs:
    """Pairs of sums that differ in a variable of one column, with every column to the left alike.

    `low` has the smaller value of the variable: no carry-in, or the smaller digit sum. With the direction `up`, low
    is the base and high the source, with `down` the other way round.

    Attributes:
        variable: `carry_in` (the column's own digits are alike too), `digit_sum` (all other columns are alike), or
            `both`, in which case the four digits that the two variables can make are four different ones.
        column: 0 for the leftmost.
        low, high: the sums' two numbers, `[pairs]` each.
        drawn: pairs that were drawn for these, if only those were kept that a model gets right.
        control: the pairs agree in the variable, and differ in the digits that it is computed from.
    """

    variable: str
    column: int
    low: tuple[Numbers, Numbers]
    high: tuple[Numbers, Numbers]
    width: int = 3
    drawn: int = 0
    control: bool = False

    def __post_init__(self) -> None:
        if self.variable not in VARIABLES:
            raise BadInput(f"variable={self.variable!r}: expected one of {', '.join(VARIABLES)}.")
        if not 0 <= self.column < self.width - (self.variable != "digit_sum"):
            raise BadInput(f"column={self.column}: nothing is carried into it, or there is no such column.")
        for numbers in (self.low, self.high):
            sums.encode(*numbers, sums.Layout(self.width))
        bad = ~agree(self.variable, self.column, self.low, self.high, self.width, control=self.control)
        if bad.any():
            x, y, u, v = (int(n[bad][0]) for n in (*self.low, *self.high))
            what = "agree in" if self.control else "differ, upwards, in"
            raise BadInput(
                f"{x}+{y} and {u}+{v} are no pair: expected sums that {what} {self.variable} of column"
                f" {self.column} and are alike to the left of it."
            )

    def __len__(self) -> int:
        return len(self.low[0])

    def __getitem__(self, part: slice | Tensor) -> "Pairs":
        (a, b), (c, d) = self.low, self.high
        return Pairs(
            self.variable, self.column, (a[part], b[part]), (c[part], d[part]), self.width, self.drawn, self.control
        )


def agree(
    variable: str,
    column: int,
    low: tuple[Numbers, Numbers],
    high: tuple[Numbers, Numbers],
    width: int,
    *,
    control: bool = False,
) -> Bool[Tensor, " pairs"]:
    """Which sums are pairs, as `Pairs` has it."""
    (left, carry), (right, other) = ((s, full_adder(s)[1]) for s in (digit_sums(*x, width) for x in (low, high)))
    step, carried = (x[:, column] for x in (right - left, other - carry))
    alike = torch.stack([sums.digits(x, width) == sums.digits(y, width) for x, y in zip(low, high, strict=True)]).all(0)
    same, others_same = alike[:, column], alike[:, column + 1 :].all(1)
    found: Tensor = alike[:, :column].all(1)
    if control:
        own = {"carry_in": same, "digit_sum": others_same & ~same, "both": ~same}[variable]
        return found & own & (carried == 0) & (step == 0)
    if variable == "digit_sum":
        return found & others_same & (step > 0) & (step != 10)
    own = same if variable == "carry_in" else ~torch.isin(step % 10, torch.tensor([0, 1, 9]))
    return found & own & (carried == 1)


def draw(
    variable: str, column: int, count: int, generator: torch.Generator, width: int = 3, *, control: bool = False
) -> Pairs:
    """`count` pairs, uniform over all that there are.

    Raises:
        BadInput: no such variable, or nothing is carried into the column.
    """
    none = torch.zeros(0, dtype=torch.int64)
    Pairs(variable, column, (none, none), (none, none), width)  # refuses what there is none of
    side, right = 10 ** (column + 1), 10 ** (width - column - 1)
    found = torch.zeros(4, 0, dtype=torch.int64)
    while found.shape[1] < count:
        n = 8 * (count + 8)
        upper, other = torch.randint(side, (2, n), generator=generator), torch.randint(10, (2, n), generator=generator)
        lower, second = torch.randint(right, (2, 2, n), generator=generator)
        if variable == "carry_in":
            other = upper % 10
        if variable == "digit_sum":
            second = lower
        low, high = upper * right + lower, (upper - upper % 10 + other) * right + second
        fits = (low.sum(0) < side * right) & (high.sum(0) < side * right)
        fits &= agree(variable, column, (low[0], low[1]), (high[0], high[1]), width, control=control)
        found = torch.cat([found, torch.cat([low, high])[:, fits]], 1)
    a, b, c, d = found[:, :count]
    return Pairs(variable, column, (a, b), (c, d), width, count, control)


def answered(model: Transformer, a: Numbers, b: Numbers) -> Int[Tensor, "sums column"]:
    """The digits that the intact model answers with."""
    layout = model.config.layout
    parts = zip(a.split(1024), b.split(1024), strict=True)
    with torch.inference_mode():
        return torch.cat([model(sums.encode(x, y, layout), read=layout.answer).argmax(-1) for x, y in parts])


def right_pairs(
    model: Transformer, variable: str, column: int, count: int, generator: torch.Generator, *, control: bool = False
) -> Pairs:
    """`count` random pairs of which the model gets both sums right; fewer if it gets hardly any right.

    `drawn` of them says how many were drawn: the share that is right is `len(pairs) / pairs.drawn`.
    """
    width, drawn = model.config.width, 0
    found = torch.zeros(4, 0, dtype=torch.int64)  # a and b of low, a and b of high
    while found.shape[1] < count and drawn < TRIES * count:
        pairs = draw(variable, column, count, generator, width, control=control)
        right = [(answered(model, a, b) == sums.digits(a + b, width)).all(1) for a, b in (pairs.low, pairs.high)]
        chosen = (right[0] & right[1]).nonzero().flatten()[: count - found.shape[1]]
        found = torch.cat([found, torch.stack([*pairs.low, *pairs.high])[:, chosen]], 1)
        drawn += int(chosen[-1]) + 1 if found.shape[1] == count else count  # up to the pair that completes them
    a, b, c, d = found
    return Pairs(variable, column, (a, b), (c, d), width, drawn, control)


# swaps
#
# Each cell of a map is the core's `Patch` of one part at one position, and a test holds the two equal. The sweep does
# not run it as a hook: a hooked pass begins at the embedding, while nearly all of a map's million swaps leave all but
# one row of the stream as it was. Here a swap starts from that row, on activations that all cells of a batch share.


def components(config: ModelConfig) -> list[str]:
    """What can be swapped at one position, in the order of the forward pass; heads as `blocks.1.attn.z:0`."""
    heads = [f"attn.z:{head}" for head in range(config.heads)]
    parts = ["resid_pre", *heads, "attn_out", "attn.skip", "resid_mid", "mlp_out", "mlp.skip", "resid_post"]
    return [f"blocks.{layer}.{part}" for layer in range(config.layers) for part in parts]


def check_component(component: str, position: int, config: ModelConfig) -> None:
    """Make sure that the model has the component, and the position.

    Raises:
        BadInput: it does not.
    """
    if component not in components(config):
        last = f"blocks.{config.layers - 1}.attn.z:0"
        raise BadInput(
            f"component={component!r}: this model has none, expected one such as {last} or blocks.0.mlp_out."
        )
    if type(position) is not int or not 0 <= position < config.layout.length:
        raise BadInput(f"position={position!r}: expected a token's position, 0 to {config.layout.length - 1}.")


class Activations:
    """One pass over a batch of sums: every hook point, and queries, keys and values where they are asked for."""

    def __init__(self, model: Transformer, numbers: tuple[Numbers, Numbers]) -> None:
        self.model, self.kept, self.projected = model, dict[str, Tensor](), dict[int, tuple[Tensor, ...]]()
        layout = model.config.layout

        def keep(name: str, tensor: Tensor) -> Tensor:
            self.kept[name] = tensor
            return tensor

        self.guess: Tensor = model(sums.encode(*numbers, layout), keep)[:, list(layout.answer)].argmax(-1)

    def at(self, layer: int, part: str) -> Tensor:
        """A hook point of a layer, at all positions."""
        if part in ("resid_pre", "attn.skip"):
            return self.kept[f"blocks.{layer - 1}.resid_post" if layer else "embed"]
        return self.kept[f"blocks.{layer}.{'resid_mid' if part == 'mlp.skip' else part}"]

    def attention(self, layer: int) -> tuple[Tensor, ...]:
        """A layer's queries, keys, values, `[sums, head, pos, d_head]`, and scores `[sums, head, query, key]`.

        Queries are of the positions that the layer has to serve: `queries`.
        """
        if layer not in self.projected:
            every = list(range(self.model.config.layout.length))
            q, k, v = _project(self.model, layer, self.at(layer, "resid_pre"), every)
            q, k, v = q[:, :, queries(self.model, layer)], k.contiguous(), v.contiguous()
            self.projected[layer] = q, k, v, q @ k.mT
        return self.projected[layer]


def queries(model: Transformer, layer: int) -> list[int]:
    """The positions whose stream after `layer` can reach the answer: all, or in the last layer the answer's own."""
    layout = model.config.layout
    return list(layout.answer if layer == model.config.layers - 1 else range(layout.length))


def _project(model: Transformer, layer: int, resid: Tensor, positions: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of some positions, turned, `[sums, head, pos, d_head]`."""
    block, heads = model.blocks[layer], (model.config.heads, model.config.d_head)
    x, turn = block.norm(resid), block.turn[positions]
    q, k, v = (rotate(f(x).unflatten(-1, heads), turn).transpose(1, 2) for f in (block.q, block.k, block.v))
    return q, k, v


def feed(model: Transformer, layer: int, mid: Tensor) -> Tensor:
    """A block's MLP and its skip connection: from `resid_mid` to `resid_post`."""
    block = model.blocks[layer]
    resid: Tensor = mid + block.down(block.up(block.norm(mid)).relu())
    return resid


def digits_at(model: Transformer, resid: Float[Tensor, "*batch d_model"]) -> Int[Tensor, "*batch"]:
    """The digits that the model reads off the stream after its last layer."""
    digit: Tensor = model.unembed(model.norm(resid)).argmax(-1)
    return digit


def swapped_row(
    model: Transformer, component: str, position: int, base: Activations, source: Activations
) -> tuple[int, Float[Tensor, "sums d_model"]]:
    """The stream at `position`, right after the swap: the number of the layer that it then enters, and its value."""
    layer, part = int(component.split(".")[1]), component.split(".", 2)[2]
    part, _, head = part.partition(":")

    def at(name: str) -> Tensor:
        return (source if name == part else base).at(layer, name)[:, position]

    if part == "resid_pre":
        return layer, at(part)
    if part == "resid_post":
        return layer + 1, at(part)
    if part in ("mlp_out", "mlp.skip"):
        return layer + 1, at("mlp.skip") + at("mlp_out")
    if part == "resid_mid":
        mid = at(part)
    elif head:
        z = base.at(layer, part)[:, position].clone()
        z[:, int(head)] = at(part)[:, int(head)]
        mid = at("attn.skip") + model.blocks[layer].o(z.flatten(-2))
    else:
        mid = at("attn.skip") + at("attn_out")
    return layer + 1, feed(model, layer, mid)


def carried_on(
    model: Transformer, layer: int, rows: Mapping[int, Float[Tensor, "sums d_model"]], base: Activations
) -> Int[Tensor, "sums column"]:
    """The answer when the stream that enters `layer` has other rows at some positions, and the base's at the rest."""
    answer = list(model.config.layout.answer)
    if layer == model.config.layers:
        guess = base.guess.clone()
        for position in set(answer) & set(rows):
            guess[:, answer.index(position)] = digits_at(model, rows[position])
        return guess
    resid = _attended(model, layer, rows, base)
    for later in range(layer + 1, model.config.layers):
        q, k, v = _project(model, later, resid, list(range(model.config.layout.length)))
        served = queries(model, later)
        resid = _mixed(model, later, resid[:, served], _pattern(model, q[:, :, served] @ k.mT) @ v)
    return digits_at(model, resid)


def _attended(
    model: Transformer, layer: int, rows: Mapping[int, Tensor], base: Activations
) -> Float[Tensor, "sums query d_model"]:
    """The stream after a layer that was given other rows: only their queries, keys and values are computed anew."""
    served = queries(model, layer)
    q, k, v, score = base.attention(layer)
    q, score, resid = q.clone(), score.clone(), base.at(layer, "resid_pre")[:, served]
    fresh = {p: _project(model, layer, row.unsqueeze(1), [p]) for p, row in rows.items()}
    for p in rows.keys() & set(served):
        i, query = served.index(p), fresh[p][0]
        q[:, :, [i]], score[:, :, [i]], resid[:, i] = query, query @ k.mT, rows[p]
    for p, (_, key, _) in fresh.items():
        score[..., p] = (q * key).sum(-1)
    pattern = _pattern(model, score)
    z = pattern @ v
    for p, (_, _, value) in fresh.items():  # cheaper than a copy of all values
        z += pattern[..., [p]] * (value - v[:, :, [p]])
    return _mixed(model, layer, resid, z)


def _mixed(model: Transformer, layer: int, resid: Tensor, z: Float[Tensor, "sums head query d_head"]) -> Tensor:
    return feed(model, layer, resid + model.blocks[layer].o(z.transpose(1, 2).flatten(-2)))


def _pattern(model: Transformer, score: Tensor) -> Tensor:
    score = score / math.sqrt(model.config.d_head)
    weight = (score - score.amax(-1, keepdim=True)).exp()  # over ten numbers, PyTorch's own softmax takes longer
    return weight / weight.sum(-1, keepdim=True)


# counting


@dataclass
class Count:
    """Of how many swaps exactly the predicted digit came out, and of how many all other digits stayed."""

    pairs: int = 0
    hits: int = 0
    stays: int = 0

    def add(self, guess: Tensor, base: Tensor, predicted: Tensor, column: int) -> None:
        """Count a batch: answers `[sums, column]`, intact answers, and the digit that one column should have."""
        same = guess == base
        same[:, column] = True
        self.pairs += len(guess)
        self.hits += int((guess[:, column] == predicted).sum())
        self.stays += int(same.all(1).sum())


Counts = dict[tuple[str, int], dict[str, Count]]


@torch.inference_mode()
def count(model: Transformer, pairs: Pairs, cells: Sequence[tuple[str, int]]) -> Counts:
    """Swap each component at its position, upwards and downwards, and count.

    Args:
        pairs: which the intact model gets right, as from `right_pairs`.
        cells: components and positions.

    Raises:
        BadInput: the model has no such component or position.
    """
    for component, position in cells:
        check_component(component, position, model.config)
    found: Counts = {cell: {"up": Count(), "down": Count()} for cell in cells}
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        low, high = Activations(model, part.low), Activations(model, part.high)
        for direction, base, source in (("up", low, high), ("down", high, low)):
            predicted, seen = source.guess[:, part.column], dict[tuple[str, int], Tensor]()
            for component, position in cells:
                cell = _same(component, position, base, source), position
                if cell not in seen:
                    seen[cell] = swapped(model, *cell, base, source)
                found[component, position][direction].add(seen[cell], base.guess, predicted, part.column)
    return found


def _same(component: str, position: int, base: Activations, source: Activations) -> str:
    """A component whose swap does the same, if it is done already: where both have the same token, its embedding."""
    if component.startswith("blocks.0.") and torch.equal(*(x.at(0, "resid_pre")[:, position] for x in (base, source))):
        return {"resid_pre": "none", "attn.skip": "none", "resid_mid": "blocks.0.attn_out"}.get(
            component[9:], component
        )
    return component


def swapped(
    model: Transformer, component: str, position: int, base: Activations, source: Activations
) -> Int[Tensor, "sums column"]:
    """The base's answer with one component's output at one position from the source; `none` for no swap."""
    if component == "none":
        return base.guess
    layer, row = swapped_row(model, component, position, base, source)
    return carried_on(model, layer, {position: row}, base)


def reachable(config: ModelConfig, column: int) -> list[tuple[str, int]]:
    """The components and positions that can reach an answer digit, each stream once: not `resid_pre` after layer 0.

    After the last attention, only the digit's own position can.
    """
    last, own = config.layers - 1, config.layout.answer[column]
    return [
        (name, position)
        for name in components(config)
        if not name.endswith("resid_pre") or name.startswith("blocks.0.")
        for position in range(config.layout.length)
        if not name.startswith(f"blocks.{last}.") or name.endswith("resid_pre") or position == own
    ]


def sweep(
    model: Transformer,
    counts: tuple[int, int] = (AT_ANSWER, ELSEWHERE),
    seed: int = 0,
    variables: Sequence[str] = VARIABLES,
    *,
    own: bool = False,
    control: bool = False,
) -> pd.DataFrame:
    """The map of one run: a row for each component, position, answer digit, variable and direction.

    Cells at which nothing can reach the digit are left out: after the last attention, other positions than its own.

    Args:
        counts: pairs for a patch at an answer position, and at any other.
        variables: of `VARIABLES`, those that are asked for.
        own: only at the position of the digit that is read.
        control: with pairs that agree in the variable, so that nothing may change.

    Returns:
        `component`, `position`, `reads`, `variable`, `direction`, `pairs`, `accuracy`, `elsewhere`, and `right`, the
        share of the drawn pairs whose sums the intact model gets both right: only these are counted. Accuracies are
        NaN where no such pair was found.
    """
    config, frames = model.config, []
    generator = torch.Generator().manual_seed(seed)
    for variable in variables:
        for column in range(config.width - (variable != "digit_sum")):
            pairs = right_pairs(model, variable, column, max(counts), generator, control=control)
            at = config.layout.answer[column]
            cells = [cell for cell in reachable(config, column) if not own or cell[1] == at]
            at_answer = [cell for cell in cells if cell[1] in config.layout.answer]
            found = count(model, pairs[: counts[0]], at_answer)
            found |= count(model, pairs[: counts[1]], [cell for cell in cells if cell not in at_answer])
            reads, share = config.layout.position_names[column], len(pairs) / pairs.drawn
            frames.append(_frame(found, variable, reads, share))
    return completed(pd.concat(frames, ignore_index=True))


def _frame(found: Counts, variable: str, reads: str, right: float) -> pd.DataFrame:
    rows = [
        (component, f"pos{position}", reads, variable, direction, c.pairs, c.hits, c.stays, right)
        for (component, position), by in found.items()
        for direction, c in by.items()
    ]
    frame = pd.DataFrame(rows, columns=[*CELL, "pairs", "accuracy", "elsewhere", "right"])
    return frame.assign(accuracy=frame.accuracy / frame.pairs, elsewhere=frame.elsewhere / frame.pairs)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """A map with what follows from it: both directions together, and a layer's `resid_pre`, the `resid_post` before."""
    keys = [name for name in frame if name not in ("direction", "pairs", "accuracy", "elsewhere", "right")]
    means = {"pairs": "sum", "accuracy": "mean", "elsewhere": "mean", "right": "first"}
    both = frame.groupby(keys, sort=False, as_index=False).agg(means).assign(direction="both")
    frame = pd.concat([frame, both], ignore_index=True)
    layers = frame.component.str.split(".").str[1].astype(int)
    before = frame[frame.component.str.endswith("resid_post") & (layers < layers.max())]
    entering = "blocks." + (layers[before.index] + 1).astype(str) + ".resid_pre"
    return pd.concat([frame, before.assign(component=entering)], ignore_index=True)


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """A map without what `completed` adds."""
    again = frame.component.str.match(r"blocks\.[1-9]\d*\.resid_pre")
    return frame[(frame.direction != "both") & ~again]


# groups


def check_group(name: str) -> groups.Group:
    """A group whose models answer whole sums at once, all digits of which they were trained on.

    Raises:
        BadInput: no such group, or its models are decoders, whose input has the answer in it, or padded.
    """
    group = groups.find(name)
    if group.config.causal or group.padded:
        raise BadInput(f"{name}: expected encoders of unpadded sums, such as {groups.MAIN}.")
    return group


def maps(source: str, name: str, report: Callable[[str], object] = lambda done: None) -> pd.DataFrame:
    """The maps of all runs of a group: as from `sweep`, with `run`, and `control`, whether nothing may change.

    Args:
        report: called after each run, with what it was.

    Raises:
        BadInput: as `check_group`, or the group is missing or damaged.
    """
    check_group(name)
    frames = []
    for run, model in runs.load(name, source).models():
        control = sweep(model, (ELSEWHERE, ELSEWHERE), own=True, control=True)
        both = [sweep(model).assign(control=False), control.assign(control=True)]
        frames.append(pd.concat(both, ignore_index=True).assign(run=run))
        report(f"{name} run {run}")
    return pd.concat(frames, ignore_index=True).round({"accuracy": 5, "elsewhere": 5, "right": 5})


def records(source: str, name: str, frame: pd.DataFrame) -> list[dict[str, object]]:
    """A group's maps as `carry interchange --json` writes them; without the controls."""
    cells = frame[~frame.control].assign(source=source, group=name)[COLUMNS].astype(object)
    rows: list[dict[str, object]] = cells.where(cells.notna(), None).to_dict("records")
    return rows


def path_of(source: str, name: str) -> Path:
    """Where the records of a group lie."""
    return data_dir() / "results" / "interchange" / source / f"{name}.json"


def save(source: str, name: str, frame: pd.DataFrame) -> Path:
    """Store a group's maps with the results, as columns and rows, without what `completed` adds."""
    path = path_of(source, name)
    with replacing(path) as temporary:
        thinned(frame).to_json(temporary, orient="split", index=False, double_precision=5)
    return path


def saved(source: str, name: str, *, control: bool = False) -> pd.DataFrame:
    """A group's stored maps, completed: `COLUMNS`, and `right`, the share of drawn pairs that the model gets right.

    Args:
        control: those with pairs that agree in the variable, so that nothing may change, instead.

    Raises:
        BadInput: there are none, or the file is damaged.
    """
    path = path_of(source, check_group(name).name)
    try:
        frame = pd.DataFrame(**json.loads(path.read_text())).astype({"accuracy": float, "elsewhere": float})
        frame = frame[frame.control == control].drop(columns="control")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        command = f"`carry interchange --source {source} {name} --save`"
        raise BadInput(f"{path} is not there, or damaged: write it with {command}.") from error
    return completed(frame).assign(source=source, group=name)[[*COLUMNS, "right"]]


def stored(name: str) -> dict[str, pd.DataFrame]:
    """The records of a group by source, for those sources that have them."""
    return {source: saved(source, name) for source in runs.SOURCES if path_of(source, check_group(name).name).exists()}

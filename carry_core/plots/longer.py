"""Longer sums: tables of accuracies, heads, parts and epochs (Fig. 21 to 24, App. H)."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from carry_core.findings.lengths import Heads, Separation, by_arrival
from carry_core.interventions import Ablation
from carry_core.measure import ClassAccuracies
from carry_core.plots.style import (
    Table,
    number,
)


def table_of_heads(found: Sequence[tuple[str, Heads]], n_long: int) -> Table:
    """The weakest step between the digits, and where heads look; at trained positions, in small type at long ones.

    Args:
        found: whose run, and its heads.
        n_long: how many leading positions are long; none without padding.
    """
    rows, heads = [], []
    parts = [slice(n_long, None), *([slice(0, n_long)] if n_long else [])]
    for name, h in found:
        heads = [(layer, head) for layer in range(len(h.own)) for head in range(h.own.shape[1])]
        stairs = [number(float(h.staircase[part].min())) for part in parts]
        best = [h.ahead[..., part].nanmean(-1) for part in parts]
        layer, head = divmod(int(h.ahead.nanmean(-1).argmax()), h.ahead.shape[1])
        ahead = [number(float(x[layer, head])) for x in best]
        looks = ["\n".join([f"{ahead[0]} ({layer}:{head})", *ahead[1:]])]
        for layer, head in heads:
            pairs = [[number(float(x[layer, head, part].nanmean())) for x in (h.right, h.own)] for part in parts]
            texts = ["/".join(x.removeprefix("0") for x in pair) for pair in pairs]
            texts[0] += " ◂" * (layer == len(h.own) - 1 and head == h.decides)
            looks.append("\n".join(texts))
        rows.append([name, "\n".join(stairs), *looks, number(h.intact, 3), number(h.without, 3)])
    header = ["run", "to partner", "to the right", *(f"{layer}:{head}" for layer, head in heads), "intact", "without ◂"]
    return Table(header, rows, [("", 1), ("digits", 2), ("answer rows: right / own", len(heads)), ("right answers", 2)])


def table_of_stairs(found: Sequence[tuple[str, Heads]], n_long: int) -> Table:
    """Each kind of staircase, column by column: the trained ones, and in small type the long ones (App. F, H).

    Args:
        found: whose run, and its heads.
        n_long: how many leading columns are long; none without padding.
    """

    def cell(steps: Float[Tensor, " column"]) -> str:
        texts = [number(x).removeprefix("0") for x in steps.tolist()]
        return "\n".join(" ".join(part) for part in (texts[n_long:], texts[:n_long]) if part)

    rows, heads = [], []
    for name, h in found:
        heads = [(layer, head) for layer in range(len(h.own)) for head in range(h.own.shape[1])]
        rows.append([name, cell(h.staircase), *(cell(h.own[place]) for place in heads)])
    header = ["run", "best head", *(f"{layer}:{head}" for layer, head in heads)]
    return Table(header, rows, [("", 1), ("between the digits", 1), ("of the answer rows", len(heads))])


def table_of_separations(found: Mapping[str, Separation]) -> Table:
    """How well sums are apart by digit sum after the first layer, and by arriving one before the last MLP."""
    rows = [[name, *map(number, s.tens), *map(number, s.ones[:-1])] for name, s in found.items()]
    width = max((len(s.tens) for s in found.values()), default=2)
    header = ["run", *map(str, range(width)), *map(str, range(width - 1))]
    return Table(
        header, rows, [("", 1), ("ten or more, at position", width), ("a one arrives, at position", width - 1)]
    )


def table_of_parts(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]]) -> Table:
    """Accuracy at each answer position where a one arrives and elsewhere, without each part (App. H.1)."""
    width = next(iter(lost.values())).shape[1]
    rows = [
        [str(part), *map(number, found[1, :-1].tolist()), *map(number, found[0].tolist())]
        for part, found in lost.items()
    ]
    header = ["", *map(str, range(width - 1)), *map(str, range(width))]
    return Table(header, rows, [("", 1), ("a one arrives, at position", width - 1), ("none arrives", width)])


def table_of_mlp(found: Mapping[str, Mapping[str, tuple[float, ClassAccuracies]]]) -> Table:
    """What is right without the final MLP at each position, over the epochs (App. H): `roles.over_epochs`.

    Where a one arrives, in small type once corrected; and where none does.
    """
    rows, width = [], 2
    for name, by_epoch in found.items():
        for epoch, (correlation, cells) in by_epoch.items():
            width = cells.accuracy.shape[1]
            (none, one), (_, fixed) = by_arrival(cells), by_arrival(cells, "corrected")
            with_one = [f"{number(float(x))}\n{number(float(y))}" for x, y in zip(one[:-1], fixed[:-1], strict=True)]
            rows.append([f"{name}\n{epoch}", number(correlation), *with_one, *map(number, none.tolist())])
    header = ["run", "correlation", *map(str, range(width - 1)), *map(str, range(width))]
    spans = [("", 1), ("trained positions", 1), ("a one arrives, at position", width - 1), ("none arrives", width)]
    return Table(header, rows, spans)


def table_of_accuracies(found: Sequence[Sequence[Any]]) -> Table:
    """Whole answers and digits that are right: rows of a name, digits of the sums, and what `longer.accuracy` gives."""
    rows = [
        [name, f"{n_digits}", number(whole, 3), " ".join(number(x).removeprefix("0") for x in each.tolist())]
        for name, n_digits, (whole, each) in found
    ]
    return Table(["run", "digits up to", "whole answer", "digit by digit"], rows)

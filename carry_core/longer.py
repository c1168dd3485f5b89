"""Sums with more digits than the paper's three: does the same algorithm run in them (Sec. 6, App. F, App. H)?

Everything here takes any number of digits. A padded model's *long* positions are those of which its training set, the
few priming sums apart, has only zeros; the others are *trained*.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import at_hand, geometry, groups, measure, neurons, sums, tasks
from carry_core.at_hand import AtHand
from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_core.sums import Layout


def classes(n_digits: int, wanted: Any = None) -> list[str]:
    """The carry patterns that a figure shows.

    Args:
        n_digits: of the sums.
        wanted: names, in a list or with commas between; `all`; None for five: no carry, one from the tens, a run of
            them in the middle, one into the leading digit, and one from the units through nines to the leading digit.

    Raises:
        BadInput: no such class.
    """
    if wanted is None:
        n = n_digits - 3
        five = ["000" + "0" * n, "0" * n + "010", "00" + "1" * n + "0", "010" + "0" * n, "01" + "2" * n + "1"]
        return list(dict.fromkeys(five if n > 0 else tasks.patterns(n_digits)))
    if wanted == "all":
        return list(tasks.patterns(n_digits))
    text = f"{wanted:0{n_digits}d}" if type(wanted) is int else wanted  # what papermill makes of `-p classes 001110`
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
    try:
        if not isinstance(names, list) or not names:
            raise BadInput("not a list of names")
        return [tasks.find(name, n_digits) for name in names]
    except BadInput as error:
        expected = f"expected None, 'all', or names such as '{classes(n_digits)[1]}'"
        raise BadInput(f"classes={wanted!r} for sums of {n_digits} digits: {expected}.") from error


def class_attention(
    model: Transformer, patterns: Sequence[str], n_examples: int, seed: int
) -> Float[Tensor, "task layer head query key"]:
    """Mean attention of each class (Fig. 18, 21, 23, 25)."""
    a, b = tasks.draw_classes(patterns, n_examples, torch.Generator().manual_seed(seed))
    pairs = zip(a.split(n_examples), b.split(n_examples), strict=True)
    return torch.stack([measure.attention(model, *pair) for pair in pairs])


def chosen_runs(shown: AtHand) -> dict[str, int]:
    """The run of each source that a page shows: the one asked for, or else the one whose decision head matters most."""
    found = {}
    for loaded in shown:
        models = {number: loaded.model(number, shown.epoch) for number in loaded.numbers}
        if shown.run in models:
            found[loaded.source] = shown.run
        elif len(models) == 1:
            found[loaded.source] = loaded.numbers[0]
        else:
            found[loaded.source] = measure.clearest_run(measure.without_decision(models.items(), loaded.config.width))
    return found


def balanced(n_digits: int, n_examples: int, seed: int = 0) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
    """About `n_examples` sums in all, as many of every class."""
    return measure.sample(max(1, round(n_examples / len(tasks.patterns(n_digits)))), n_digits, seed)


def random_sums(n_digits: int, n_examples: int, seed: int = 0) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
    """Sums drawn from all of up to so many digits."""
    return sums.long_sums(n_examples, n_digits, torch.Generator().manual_seed(seed))


def long_positions(group: str, *others: str, padded: bool = True) -> int:
    """How many leading digits of the answer are not trained: three for six digits, none without padding.

    Raises:
        BadInput: the group is not padded although it has to be, or others that are shown with it have not as many.
    """
    found = groups.find(group)
    if padded and not found.padded:
        known = ", ".join(name for name, other in groups.GROUPS.items() if other.padded)
        raise BadInput(f"{group} has no longer sums: expected a padded group, one of {known}.")
    n_long = found.config.width - found.n_digits
    for other in others:
        if long_positions(other, padded=padded) != n_long:
            raise BadInput(f"{other} beside {group}: expected groups with as many long positions.")
    return n_long


# ---------------------------------------------------------------- attention


@dataclass(frozen=True)
class Heads:
    """Where the heads look, digit column by digit column, over sums of all classes alike (Fig. 18, 21, 23, 25).

    Attributes:
        stairs: how much of its attention a digit gives to its partner, in every layer but the last.
        ahead: how much a digit gives to the two digits of the column to its right, NaN for the last.
        own: how much an answer's row gives to the two digits of its own column.
        right: the same of the column to the right, NaN for the last.
        decides: the head of the last layer without which most answers are wrong.
        intact: share of whole answers that are right.
        without: the same without that head.
    """

    stairs: Float[Tensor, "early head column"]
    ahead: Float[Tensor, "early head column"]
    own: Float[Tensor, "layer head column"]
    right: Float[Tensor, "layer head column"]
    decides: int
    intact: float
    without: float

    @property
    def staircase(self) -> Float[Tensor, " column"]:
        """Between the digits: of the best head of any layer but the last, column by column."""
        return self.stairs.amax((0, 1))

    @property
    def staircases(self) -> dict[str, Float[Tensor, " column"]]:
        """Both kinds by name: between the digits, and of the answer rows by each layer's best head (App. F, H)."""
        rows = {f"of the answer rows in layer {layer}": own.amax(0) for layer, own in enumerate(self.own)}
        return {"between the digits": self.staircase, **rows}


def heads(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Heads:
    """Measure `Heads` on the given sums; the decision head is chosen on as many drawn from all, as in the ledger."""
    layout = model.config.layout
    pattern = measure.attention(model, a, b)
    stairs = partner_steps(pattern[:-1], layout)
    decides = measure.last_layer(model, *random_sums(layout.width, len(a))).decision_head
    last = measure.last_layer(model, a, b)
    own, right = (measure.column_mass(pattern, layout, shift) for shift in (0, 1))
    early, without = ahead(pattern[:-1], layout), last.heads[decides].whole
    return Heads(stairs, early, own, right, decides, last.intact.whole, without)


def partner_steps(pattern: Float[Tensor, "*batch query key"], layout: Layout) -> Float[Tensor, "*batch column"]:
    """How much the digits of a column give to their partners, averaged over both: the staircase between the digits."""
    both: Tensor = measure.partner_mass(pattern, layout).unflatten(-1, (-1, layout.width))
    return both.mean(-2)


def ahead(pattern: Float[Tensor, "*batch query key"], layout: Layout) -> Float[Tensor, "*batch column"]:
    """How much attention the digits of a column give to the two digits of the next, averaged over both numbers.

    NaN for the last column. In a decoder only the second number's digits can see them.
    """
    mass = torch.full((*pattern.shape[:-2], layout.width), torch.nan)
    for i in range(layout.width - 1):
        numbers = [layout.width + 1 + i] if layout.causal else [i, layout.width + 1 + i]
        mass[..., i] = pattern[..., numbers, :][..., [i + 1, layout.width + 2 + i]].sum(-1).mean(-1)
    return mass


def by_epoch(found: Mapping[str, Sequence[tuple[str, Heads]]]) -> list[tuple[str, Heads]]:
    """What `heads_of` found, one after the other, each with its run and its epoch."""
    return [(f"{name}\n{epoch}", each) for name, every in found.items() for epoch, each in every]


def heads_of(
    shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], *, snapshots: bool = False
) -> dict[str, list[tuple[str, Heads]]]:
    """`Heads` of every run that a page shows, by whose it is: at the page's epoch, or at all that are kept."""
    found: dict[str, list[tuple[str, Heads]]] = {}
    for loaded in shown:
        epochs = at_hand.kept(loaded) if snapshots else (shown.epoch or loaded.record["epochs"],)
        for run in loaded.numbers:
            measured = [(at_hand.epoch_label(loaded, e), heads(loaded.model(run, e), a, b)) for e in epochs]
            found[f"{at_hand.mark(loaded)} {run}"] = measured
    return found


# ---------------------------------------------------------------- the residual stream


@dataclass(frozen=True)
class Separation:
    """How well sums are told apart at each answer position, along the best direction of six principal axes.

    Attributes:
        tens: after the first layer, whether the two digits add up to ten or more.
        ones: after the last attention, whether a one arrives; NaN where none can.
    """

    tens: tuple[float, ...]
    ones: tuple[float, ...]


def answer_columns(model: Transformer) -> list[tuple[int, int, int]]:
    """The columns of Fig. 22 and 24, as `geometry.journey` takes them: the answer positions, layer by layer."""
    rows = list(enumerate(model.config.layout.answer))
    return [(layer, position, i) for layer in range(model.config.layers) for i, position in rows]


def separation(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Separation:
    """Measure `Separation` on the given sums (Fig. 19, 22, 24)."""
    width = model.config.width
    columns = answer_columns(model)
    planes = geometry.journey(model, a, b, width, columns[:width] + columns[-width:])
    tens, ones = planes[1 : 2 * width : 2], planes[2 * width :: 2]
    return Separation(*(tuple(map(geometry.apart_on_all_axes, found)) for found in (tens, ones)))


def separations(shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> dict[str, Separation]:
    """`Separation` of every run that a page shows, by whose it is."""
    return {
        f"{at_hand.mark(loaded)} {run}": separation(loaded.model(run, shown.epoch), a, b)
        for loaded in shown
        for run in loaded.numbers
    }


# ---------------------------------------------------------------- neurons and accuracies


def axis_and_plane(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> tuple[float, float]:
    """How well the leading singular axis, and the best direction in the plane of the leading two, tells carry neurons.

    The first is `neurons.carry_axis`'s correlation; the second that of the least-squares fit of what a neuron does more
    where a one arrives, since App. H.1 grants a linear combination of the two axes.
    """
    axis, more = neurons.carry_axis(model, a, b), neurons.activity(model, a, b).more.double()
    points = axis.points.double() - axis.points.double().mean(0)
    fitted = points @ torch.linalg.lstsq(points, (more - more.mean())[:, None]).solution
    return axis.correlation, torch.corrcoef(torch.stack([fitted[:, 0], more]))[0, 1].item()


def carry_axes(shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> dict[str, tuple[float, float]]:
    """`axis_and_plane` of every run that a page shows, by whose it is."""
    return {
        f"{at_hand.mark(loaded)} {run}": axis_and_plane(loaded.model(run, shown.epoch), a, b)
        for loaded in shown
        for run in loaded.numbers
    }


def widened(model: Transformer, width: int) -> Transformer:
    """The same weights, given sums of more digits (App. H, footnote): nothing in them depends on the length."""
    wider = Transformer(replace(model.config, width=width))
    wider.load_state_dict(model.state_dict())
    return wider.requires_grad_(requires_grad=False).eval()


def right_digits(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Bool[Tensor, "sums pos"]:
    """Which digits of the answers are right, at every position of the model."""
    return measure.guesses(model, a, b, [{}], model.config.width)[0] == sums.digits(a + b, model.config.width)


def accuracy(model: Transformer, n_digits: int, n_examples: int, seed: int = 0) -> tuple[float, Float[Tensor, " pos"]]:
    """Share of whole answers that are right, and of right digits, on random sums of up to `n_digits` digits."""
    hit = right_digits(model, *random_sums(n_digits, n_examples, seed))
    return hit.all(1).double().mean().item(), hit.double().mean(0)


def accuracies(
    shown: AtHand, n_digits: int, n_examples: int, seed: int = 0, *, snapshots: bool = False
) -> list[tuple[str, int, tuple[float, Float[Tensor, " pos"]]]]:
    """`accuracy` of every run that a page shows, on sums of `n_digits` digits and on the longest, epoch by epoch."""
    found = []
    for loaded in shown:
        for run in loaded.numbers:
            for epoch in at_hand.kept(loaded) if snapshots else (shown.epoch or loaded.record["epochs"],):
                for size in (n_digits, loaded.config.width):
                    name = f"{at_hand.mark(loaded)} {run}\n{at_hand.epoch_label(loaded, epoch)}"
                    found.append((name, size, accuracy(loaded.model(run, epoch), size, n_examples, seed)))
    return found

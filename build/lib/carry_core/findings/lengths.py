"""Sums with more digits than the paper's three: does the same algorithm run in them (Sec. 6, App. F, App. H)?

Everything here takes any number of digits. A padded model's *long* positions are those of which its training set, the
few priming sums apart, has only zeros; the others are *trained*.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core import carries, groups, measure, sums
from carry_core.errors import BadInput
from carry_core.findings import dynamics, geometry, neurons
from carry_core.findings.base import (
    DIGITS4,
    FINETUNED,
    MAIN,
    PAD6,
    PRIMED,
    Measurement,
    all_heads,
    finding,
    measurement,
)
from carry_core.findings.heads import (
    PARTNER_ATTENTION,
    ablate_last_layer,
    cannot_carry,
    column_mass,
    decision,
    no_carry_correlation,
    no_carry_reference,
    partner_mass,
    pearson,
    right_digits,
)
from carry_core.findings.survey import SAMPLE, Evidence
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.runs import History, Runs
from carry_core.sums import Layout

BALANCED = 4_450  # six-digit sums, fifty of each class
RANDOM = 5_000  # six-digit sums, drawn from all
CARRY_LOSS = 0.5  # of the digits of carry cells, without the head that carries
PART_LOSS = 0.1  # of the digits of cells, without a part: from here on they suffer
KEPT_OF_BEST = 0.9  # a position that ends below has been forgotten, from the epoch it stays below
UNTRAINED_LENGTH_ACCURACY = 0.05  # exact match below which weights fail at a length that they were not trained on
FINETUNING_DISTANCE = 0.05  # over the norm of the weights: below it they change little (App. H.2)


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
        return list(dict.fromkeys(five if n > 0 else carries.patterns(n_digits)))
    if wanted == "all":
        return list(carries.patterns(n_digits))
    text = f"{wanted:0{n_digits}d}" if type(wanted) is int else wanted  # what papermill makes of `-p classes 001110`
    names = [name.strip() for name in text.split(",")] if isinstance(text, str) else text
    try:
        if not isinstance(names, list) or not names:
            raise BadInput("not a list of names")
        return [carries.parse_class(name, n_digits) for name in names]
    except BadInput as error:
        expected = f"expected None, 'all', or names such as '{classes(n_digits)[1]}'"
        raise BadInput(f"classes={wanted!r} for sums of {n_digits} digits: {expected}.") from error


def class_attention(
    model: Transformer, patterns: Sequence[str], n_examples: int, seed: int
) -> Float[Tensor, "task layer head query key"]:
    """Mean attention of each class (Fig. 18, 21, 23, 25)."""
    a, b = carries.sample_classes(patterns, n_examples, torch.Generator().manual_seed(seed))
    pairs = zip(a.split(n_examples), b.split(n_examples), strict=True)
    return torch.stack([measure.attention(model, *pair) for pair in pairs])


def balanced(n_digits: int, n_examples: int, seed: int = 0) -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
    """About `n_examples` sums in all, as many of every class."""
    return measure.sample(max(1, round(n_examples / len(carries.patterns(n_digits)))), n_digits, seed)


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
    """Measure `Heads` on the given sums; the decision head is `measure.decision_head`."""
    layout = model.config.layout
    pattern = measure.attention(model, a, b)
    stairs = partner_steps(pattern[:-1], layout)
    last = ablate_last_layer(model, a, b)
    own, right = (column_mass(pattern, layout, shift) for shift in (0, 1))
    early = ahead(pattern[:-1], layout)
    return Heads(stairs, early, own, right, last.decision_head, last.intact.exact_match, last.decision.exact_match)


def partner_steps(pattern: Float[Tensor, "*batch query key"], layout: Layout) -> Float[Tensor, "*batch column"]:
    """How much the digits of a column give to their partners, averaged over both: the staircase between the digits."""
    both: Tensor = partner_mass(pattern, layout).unflatten(-1, (-1, layout.width))
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


def widened(model: Transformer, width: int) -> Transformer:
    """The same weights, given sums of more digits (App. H, footnote): nothing in them depends on the length."""
    wider = Transformer(replace(model.config, width=width))
    wider.load_state_dict(model.state_dict())
    return wider.requires_grad_(requires_grad=False).eval()


def accuracy(model: Transformer, n_digits: int, n_examples: int, seed: int = 0) -> tuple[float, Float[Tensor, " pos"]]:
    """Share of whole answers that are right, and of right digits, on random sums of up to `n_digits` digits."""
    hit = right_digits(model, *random_sums(n_digits, n_examples, seed))
    return hit.all(1).double().mean().item(), hit.double().mean(0)


# ---------------------------------------------------------------- who carries (App. H, H.1)


def comes_to_carry(early: float, late: float) -> bool:
    """Whether the final MLP carries at the later epoch, and does so more than at the earlier one."""
    return cannot_carry(late) and late > early


def parts(model: Transformer) -> list[Ablation]:
    """Every head and every MLP by itself, after nothing at all."""
    config = model.config
    each = [Ablation(heads=frozenset({(i, head)})) for i in range(config.layers) for head in range(config.heads)]
    return [INTACT, *each, *(Ablation(mlps=frozenset({layer})) for layer in range(config.layers))]


def by_arrival(found: ClassAccuracies, kind: str = "accuracy") -> Float[Tensor, "arrives pos"]:
    """Mean of the cells where no carried one arrives (first row) and of those where one does, position by position.

    Every class counts once; NaN where no carried one ever arrives.
    """
    values = getattr(found, kind)
    arrives = carries.carry_in(values.shape[1])
    return torch.stack([values.where(side, torch.nan).nanmean(0) for side in (~arrives, arrives)])


def without_parts(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]
) -> dict[Ablation, Float[Tensor, "arrives pos"]]:
    """`by_arrival` for each of `parts` (App. H.1)."""
    wanted = parts(model)
    return {
        part: by_arrival(found)
        for part, found in zip(wanted, measure.class_accuracies(model, a, b, wanted), strict=True)
    }


@dataclass(frozen=True)
class Primed:
    """Who carries and who corrects in a primed model (App. H.1).

    Attributes:
        head: the head of the first layer without which the carry cells of the long positions lose most.
        carried: how much they lose.
        corrected: how much the cells of all positions where no carried one arrives lose without the final MLP.
        trained: how much the carry cells of the trained positions lose without it.
        spared: how much the carry cells of the long positions lose without it.
    """

    head: Ablation
    carried: float
    corrected: float
    trained: float
    spared: float

    @property
    def shows(self) -> bool:
        """Whether carrying is lost without the first and the second corrects."""
        return self.carried > CARRY_LOSS and self.corrected > PART_LOSS

    @property
    def spares(self) -> bool:
        """Whether all cells suffer without the final MLP but the carry cells at long positions, as the paper has it."""
        return min(self.corrected, self.trained) > PART_LOSS >= self.spared

    def __str__(self) -> str:
        return (
            f"Where a one arrives at a long position, accuracy falls by {self.carried:.2f} {self.head}, the costliest"
            f" of the first layer. Without the final MLP it falls by {self.corrected:.2f} where none arrives, by"
            f" {self.trained:.2f} where one does at a trained position, and by {self.spared:.2f} where one does at a"
            f" long one. That all of these suffer (by more than {PART_LOSS}) but the last, as the paper has it, is"
            f" {'so' if self.spares else 'not so'} here."
        )


def primed_parts(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]], n_long: int) -> Primed:
    """Read `Primed` off the accuracies `without_parts`."""
    fall = {part: lost[INTACT] - found for part, found in lost.items()}
    first = {part: float(x[1, :n_long].mean()) for part, x in fall.items() if {at for at, _ in part.heads} == {0}}
    head = max(first, key=lambda part: first[part])
    mlp = max((part for part in lost if part.mlps), key=lambda part: max(part.mlps))
    none, one = fall[mlp]
    return Primed(head, first[head], float(none.mean()), float(one[n_long:].nanmean()), float(one[:n_long].mean()))


def needed_without_carry(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]]) -> dict[Ablation, float]:
    """How much accuracy falls where no carried one arrives, without each part that costs more than `PART_LOSS`."""
    falls = {part: float((lost[INTACT] - found)[0].mean()) for part, found in lost.items()}
    return {part: fall for part, fall in falls.items() if fall > PART_LOSS}


def trained_correlation(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int
) -> tuple[float, ClassAccuracies]:
    """Pearson correlation without the final MLP with a model that cannot carry, over the last `n_digits` positions.

    Returns:
        It and the accuracies of all positions, classed by the full pattern.
    """
    (found,) = measure.class_accuracies(model, a, b, [measure.final_mlp(model)])
    expected = no_carry_reference(model.config.width)
    ends = [
        ClassAccuracies(c.accuracy[:, -n_digits:], c.corrected[:, -n_digits:], c.exact_match) for c in (found, expected)
    ]
    return pearson(*ends), found


# ---------------------------------------------------------------- forgetting (Fig. 20)


@dataclass(frozen=True)
class Forgetting:
    """What becomes of the accuracy on longer sums over a run's epochs (Fig. 20).

    Attributes:
        epochs: how many there are.
        peak: the first epoch with the best whole-answer accuracy.
        best: that accuracy.
        last: the accuracy at the end.
        goes: for each position, the epoch from which it stays below nine tenths of its own best; NaN if it does not
            end there.
        ends: accuracy of each position at the end.
    """

    epochs: int
    peak: int
    best: float
    last: float
    goes: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def forgets(self) -> bool:
        """Whether accuracy peaks before the end and at the end is half of that or less."""
        return self.peak < self.epochs and self.last <= self.best / 2

    @property
    def first(self) -> tuple[int, ...]:
        """The positions that go first, counted from the left; empty if none goes."""
        known = [epoch for epoch in self.goes if epoch == epoch]
        return tuple(i for i, epoch in enumerate(self.goes) if known and epoch == min(known))


def goes_at(curve: Float[np.ndarray, " epoch"]) -> float:
    """The epoch from which a curve stays below nine tenths of its best; NaN if it does not end there."""
    kept = np.flatnonzero(curve >= KEPT_OF_BEST * curve.max())[-1]
    return float(kept + 2) if kept + 1 < len(curve) else float("nan")


def forgetting(history: History) -> dict[int, Forgetting]:
    """`Forgetting` of every run of a padded group, from its learning curves.

    Raises:
        BadInput: the group is not padded.
    """
    if "long_whole" not in history:
        raise BadInput("These learning curves have no longer sums: expected those of a padded group, such as pad6_….")
    found = {}
    for run, curve, positions in zip(history["runs"], history["long_whole"], history["long_accuracy"], strict=True):
        whole, each = dynamics.finished(curve), dynamics.finished(positions)
        goes = tuple(goes_at(column) for column in each.T)
        found[int(run)] = Forgetting(
            len(whole), int(whole.argmax()) + 1, float(whole.max()), float(whole[-1]), goes, tuple(each[-1].tolist())
        )
    return found


@dataclass(frozen=True)
class Steps:
    """The weakest steps of a staircase at the epochs that are kept, at long positions and at the others (App. H)."""

    long: tuple[float, ...]
    trained: tuple[float, ...]

    @property
    def stands(self) -> tuple[bool, ...]:
        """At which of the epochs it stands at the long positions."""
        return tuple(step >= PARTNER_ATTENTION for step in self.long)

    @property
    def breaks(self) -> bool:
        """Whether it stands there at some epoch and does not at a later one."""
        return True in self.stands and not all(self.stands[self.stands.index(True) :])

    @property
    def ends_alone(self) -> bool:
        """Whether it stands there at first and not at last, while the trained steps stand all along."""
        return self.stands[0] and not self.stands[-1] and min(self.trained) >= PARTNER_ATTENTION


def steps(columns: Iterable[Float[Tensor, " column"]], n_long: int) -> Steps:
    """`Steps` of one staircase, column by column at each epoch."""
    weakest = [(float(x[:n_long].min()), float(x[n_long:].min())) for x in columns]
    long, trained = zip(*weakest, strict=True)
    return Steps(long, trained)


def falling(layer: int, every: Sequence[Heads], n_long: int) -> tuple[int, Steps]:
    """The head of a layer whose answer rows' weakest long step falls most over the epochs, or rises least.

    Args:
        layer: which.
        every: the run's heads at each epoch that is kept.
        n_long: how many positions are long.
    """
    by_head = [steps((h.own[layer, head] for h in every), n_long) for head in range(every[0].own.shape[1])]
    head = max(range(len(by_head)), key=lambda head: by_head[head].long[0] - by_head[head].long[-1])
    return head, by_head[head]


# ---------------------------------------------------------------- finetuning (App. H.2)


@dataclass(frozen=True)
class Moved:
    """How far finetuning moved a run's weights (App. H.2).

    Attributes:
        before: squared norm of all parameters.
        after: the same.
        distance: between the two, over the norm before.
        parts: for each parameter, the distance over its norm before, and its share of the squared distance.
    """

    before: float
    after: float
    distance: float
    parts: dict[str, tuple[float, float]]

    @property
    def change(self) -> float:
        """Relative change of the squared norm."""
        return self.after / self.before - 1


def moved(before: nn.Module, after: nn.Module) -> Moved:
    """Compare two sets of weights."""
    old, new = ({name: p.detach().double() for name, p in m.named_parameters()} for m in (before, after))
    squares: dict[str, list[Any]] = {
        name: [float(x.square().sum()) for x in (p, new[name], new[name] - p)] for name, p in old.items()
    }
    was, is_, step = (sum(values) for values in zip(*squares.values(), strict=True))
    shares = {
        name: ((d / w) ** 0.5 if w else float("nan"), d / step if step else 0.0) for name, (w, _, d) in squares.items()
    }
    return Moved(was, is_, (step / was) ** 0.5, shares)


def finetuned_pairs(before: Runs, after: Runs, epoch: int) -> dict[int, tuple[Transformer, Transformer]]:
    """Each finetuned run and what it started from: the run of its number, or the only one.

    The released run 1 was finetuned from the only released run without priming, run 0.
    """
    found = {}
    for i, run in enumerate(after.numbers):
        start = run if run in before.numbers else before.numbers[min(i, len(before.numbers) - 1)]
        found[run] = (before.model(start, epoch), after.model(run))
    return found


def parent(group: str) -> tuple[str, int]:
    """The group and epoch that a finetuned group starts from.

    Raises:
        BadInput: it is not finetuned.
    """
    found = groups.find(group).parent
    if found is None:
        known = ", ".join(name for name, other in groups.GROUPS.items() if other.parent)
        raise BadInput(f"{group} is not finetuned: expected a group that is, one of {known}.")
    return found


# ---------------------------------------------------------------- claims


@finding("four_digits", DIGITS4, need=all_heads(DIGITS4))
def four_digits(evidence: Evidence) -> Measurement:
    """App. F: the final MLP carries and a head decides, over the thirteen classes."""
    rows = {}
    for run, survey in evidence.surveys(DIGITS4).items():
        correlation, head = no_carry_correlation(survey, DIGITS4), decision(survey, DIGITS4)
        shows = cannot_carry(correlation) and head["shows"]
        rows[run] = head | {"value": correlation, "shows": shows, "cost_over_other_head": head["value"]}
    return measurement(rows, "Pearson correlation without the final MLP.")


def at_the_papers_epochs(evidence: Evidence, group: str, *epochs: int) -> Runs:
    """A group's runs, if they have weights at these epochs and an epoch is as long as the paper's.

    Raises:
        BadInput: they have not; says what is needed.
    """
    loaded = evidence.group(group)
    if loaded.record["recipe"] == "quick":
        asked = ", ".join(map(str, epochs))
        raise BadInput(f"needs: {group} at epoch {asked} of the recipe “paper”; epochs of “quick” are others.")
    for epoch in epochs:
        loaded.model(loaded.numbers[0], epoch)
    return loaded


def trained_to_the_end(evidence: Evidence, group: str) -> dict[int, Forgetting]:
    """`Forgetting` of every run of a group.

    Raises:
        BadInput: there are none, or they stopped before the end of their recipe.
    """
    curves = evidence.curves(group)
    if evidence.source == "ours":
        whole, reached = evidence.planned_epochs(group), evidence.group(group).record["epochs"]
        if reached < whole:
            raise BadInput(f"needs: {group} for all {whole} epochs of its recipe; it has {reached}.")
    return forgetting(curves)


@finding("length", PAD6, PRIMED)
def length(evidence: Evidence) -> Measurement:
    """App. H, Fig. 20: forgotten without priming, kept with it."""
    rows = {
        (name, run): {
            "value": f.last / f.best,
            "shows": f.forgets == (name == "unprimed"),
            "best": f.best,
            "at_epoch": f.peak,
            "last": f.last,
            "first_to_go": list(f.first),
        }
        for name, group in {"unprimed": PAD6, "primed": PRIMED}.items()
        for run, f in trained_to_the_end(evidence, group).items()
    }
    how = "Accuracy at the end over the best; what stands for all is the mean of the unprimed runs."
    return measurement(rows, how, among=[key for key in rows if key[0] == "unprimed"])


@finding("mlp_2500", PAD6)
def mlp_2500(evidence: Evidence) -> Measurement:
    """App. H: without the final MLP, at the three trained positions of six-digit sums."""
    epochs = (500, 1000, 2500)
    loaded = at_the_papers_epochs(evidence, PAD6, *epochs)
    n_digits, asked = groups.find(PAD6).n_digits, balanced(groups.find(PAD6).config.width, BALANCED)

    def correlations(run: int, model: Transformer) -> list[float]:
        return [trained_correlation(loaded.model(run, epoch), *asked, n_digits)[0] for epoch in epochs]

    rows = {
        run: {"value": late, "shows": comes_to_carry(early, late), "at_epochs_500_1000": [early, middle]}
        for run, (early, middle, late) in evidence.each(PAD6, correlations).items()
    }
    return measurement(rows, "Correlation over the last three positions at epoch 2500.")


@finding("primed_parts", PRIMED)
def primed_parts_of_runs(evidence: Evidence) -> Measurement:
    """App. H.1: who carries at the long positions, and who corrects. The author's head has to be 0:0."""
    n_long, asked = long_positions(PRIMED), balanced(groups.find(PRIMED).config.width, BALANCED)
    found = evidence.each(PRIMED, lambda run, m: primed_parts(without_parts(m, *asked), n_long))
    named = evidence.source == "ours"
    rows = {
        run: {
            "value": x.carried,
            "shows": x.shows and (named or x.head.heads == {(0, 0)}),
            "head": str(x.head).removeprefix("without "),
            "no_carry_cells_lose_without_the_final_MLP": x.corrected,
            "trained_carry_cells_lose": x.trained,
            "long_carry_cells_lose": x.spared,
            "all_but_the_last_suffer": x.spares,
        }
        for run, x in found.items()
    }
    return measurement(rows, "What carry cells at long positions lose without the costliest head of the first layer.")


@finding("carry_axis_long", PRIMED, FINETUNED)
def carry_axis_long(evidence: Evidence) -> Measurement:
    """App. H.1, H.2: as `carry_axis`, on six-digit sums, in the primed and in the finetuned runs."""
    asked = random_sums(groups.find(PRIMED).config.width, RANDOM)
    named = {"primed": PRIMED, "finetuned": FINETUNED}
    at_hand = {name: group for name, group in named.items() if evidence.has(group)} or {"primed": PRIMED}
    rows = {
        (name, run): {"value": axis, "shows": neurons.is_carry_axis(axis), "best_direction_of_two_axes": plane}
        for name, group in at_hand.items()
        for run, (axis, plane) in evidence.each(group, lambda run, m: axis_and_plane(m, *asked)).items()
    }
    return measurement(rows, "Size of the correlation of the leading axis.")


@finding("unpadded_fail", MAIN)
def unpadded_fail(evidence: Evidence) -> Measurement:
    """App. H, footnote: the three-digit weights, given longer inputs."""
    a, b = random_sums(6, SAMPLE)
    rows = {}
    for run, hit in evidence.each(MAIN, lambda run, m: right_digits(widened(m, 6), a, b)).items():
        exact = float(hit.all(1).double().mean())
        digits = hit.double().mean(0).tolist()
        rows[run] = {"value": exact, "shows": exact < UNTRAINED_LENGTH_ACCURACY, "digit_by_digit": digits}
    return measurement(rows, "Exact match on 20,000 six-digit sums.")


def finetuning(evidence: Evidence) -> dict[int, Moved]:
    """How far finetuning moved each run (App. H.2)."""
    before, epoch = parent(FINETUNED)
    pairs = finetuned_pairs(evidence.group(before), evidence.group(FINETUNED), epoch)
    return {run: moved(*pair) for run, pair in pairs.items()}


@finding("finetune_small_change", FINETUNED, PAD6)
def finetune_small_change(evidence: Evidence) -> Measurement:
    """App. H.2: the squared norm hardly changes; the distance moved says more."""
    rows = {
        run: {"value": m.distance, "shows": m.distance < FINETUNING_DISTANCE, "change_of_squared_norm": m.change}
        for run, m in finetuning(evidence).items()
    }
    return measurement(rows, "Distance that the weights move, over their norm.")

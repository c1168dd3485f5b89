"""Sums with more digits than the paper's three: does the same algorithm run in them (Sec. 6, App. F, App. H)?

Everything here takes any number of digits. A padded model's *long* positions are those of which its training set, the
few priming sums apart, has only zeros; the others are *trained*.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from carry_core import carries, groups, measure, sums
from carry_core.errors import BadInput
from carry_core.findings import dynamics, geometry, neurons
from carry_core.findings.base import DIGITS4, FINETUNED, MAIN, PAD6, PRIMED, Fields, all_heads, finding, per_run
from carry_core.findings.heads import (
    CANNOT_CARRY_CORRELATION,
    ablate_last_layer,
    column_mass,
    decision,
    named,
    no_carry_correlation,
    no_carry_reference,
    partner_mass,
    pearson,
    right_digits,
)
from carry_core.findings.survey import SAMPLE, Evidence, Survey
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.runs import Runs
from carry_core.sums import Layout
from carry_core.training.histories import History

BALANCED = 4_450  # six-digit sums, fifty of each class
RANDOM = 5_000  # six-digit sums, drawn from all
CARRY_LOSS = 0.5  # of the digits of carry cells, without the head that carries
PART_LOSS = 0.1  # of the digits of cells, without a part: from here on they suffer
KEPT_OF_BEST = 0.9  # a position that ends below has been forgotten, from the epoch it stays below
UNTRAINED_LENGTH_ACCURACY = 0.05  # exact match below which weights fail at a length that they were not trained on
FINETUNING_DISTANCE = 0.05  # over the norm of the weights: below it they change little (App. H.2)


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
    """Where the heads look, digit column by digit column, over sums of all classes alike (Fig. 18, 21, 23, 25)."""

    stairs: Float[Tensor, "early head column"]  # a digit's attention to its partner, in every layer but the last
    ahead: Float[Tensor, "early head column"]  # to the two digits of the column to its right, NaN for the last
    own: Float[Tensor, "layer head column"]  # of an answer's row, to the two digits of its own column
    right: Float[Tensor, "layer head column"]  # and of the column to the right, NaN for the last
    decides: int  # the head of the last layer without which most answers are wrong
    intact: float  # exact match
    without: float  # the same without that head

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
    layout, pattern = model.config.layout, measure.attention(model, a, b)
    last = ablate_last_layer(model, a, b)
    own, right = (column_mass(pattern, layout, shift) for shift in (0, 1))
    stairs, early = partner_steps(pattern[:-1], layout), ahead(pattern[:-1], layout)
    return Heads(stairs, early, own, right, last.decision_head, last.intact.exact_match, last.decision.exact_match)


def attention_shares(found: Mapping[int, Heads]) -> pd.DataFrame:
    """How much of its attention a digit, or a row of the answer, gives to which column (Fig. 21, 23, App. H).

    Returns:
        A row for each `run`, `kind` of attention, `layer`, `head` (as `1:0`) and `position`, with the `share`.
    """
    rows = [
        (run, kind, layer, f"{layer}:{head}", position, share)
        for run, h in found.items()
        for kind, mass in {
            "digit to partner": h.stairs,
            "digit to next column": h.ahead,
            "answer row to own column": h.own,
            "answer row to next column": h.right,
        }.items()
        for layer, by_head in enumerate(mass.tolist())
        for head, shares in enumerate(by_head)
        for position, share in enumerate(shares)
    ]
    return pd.DataFrame(rows, columns=["run", "kind", "layer", "head", "position", "share"]).dropna()


def attention_summary(found: Mapping[int, Heads], n_long: int) -> pd.DataFrame:
    """The weakest step of each staircase, and which heads look to the right; a row for each run (Fig. 21, 23, App. H).

    Returns:
        `exact match` intact and without the `decision head`; of each of `Heads.staircases` the weakest step at the
        trained positions and at the long ones; `ahead`, what the `ahead head` gives of a digit's attention to the next
        column; `right`, what the `right head` of the last layer gives of an answer row's.
    """
    parts = {"trained": slice(n_long, None)} | ({"long": slice(0, n_long)} if n_long else {})

    def row(h: Heads) -> Fields:
        ahead, right = h.ahead.nanmean(-1), h.right[-1].nanmean(-1)
        layer, head = divmod(int(ahead.argmax()), ahead.shape[1])
        last, most = len(h.own) - 1, int(right.argmax())
        about = {"exact match": h.intact, "decision head": f"{last}:{h.decides}", "without it": h.without}
        steps = {
            f"{kind}, {name}": float(steps[part].min())
            for kind, steps in h.staircases.items()
            for name, part in parts.items()
        }
        ends = {"ahead": float(ahead.max()), "ahead head": f"{layer}:{head}", "right": float(right.max())}
        return about | steps | ends | {"right head": f"{last}:{most}"}

    return per_run(found, row).rename_axis("run").reset_index()


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


class Separation(NamedTuple):
    """How well sums are told apart at each answer position, along the best direction of six principal axes."""

    tens: tuple[float, ...]  # after the first layer, whether the two digits add up to ten or more
    ones: tuple[float, ...]  # after the last attention, whether a one arrives; NaN where none can


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


def separations(models: Mapping[int, Transformer], a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> pd.DataFrame:
    """`separation` of each run: columns `run`, `step` (`tens` or `ones`), `position` and `accuracy`."""
    rows = [
        (run, step, position, x)
        for run, model in models.items()
        for step, accuracies in separation(model, a, b)._asdict().items()
        for position, x in enumerate(accuracies)
    ]
    return pd.DataFrame(rows, columns=["run", "step", "position", "accuracy"]).dropna()


def axis_and_plane(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> tuple[float, float]:
    """How well the leading singular axis, and the best direction in the plane of the leading two, tells carry neurons.

    The first is `neurons.carry_axis`'s correlation; the second that of the least-squares fit of what a neuron does more
    where a one arrives, since App. H.1 grants a linear combination of the two axes.
    """
    axis = neurons.carry_axis(model, a, b)
    fit = LinearRegression().fit(axis.points.numpy(), axis.more.numpy())
    return axis.correlation, float(fit.score(axis.points.numpy(), axis.more.numpy())) ** 0.5


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
    return late >= CANNOT_CARRY_CORRELATION and late > early


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
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    ablations: Sequence[Ablation] | None = None,
) -> dict[Ablation, Float[Tensor, "arrives pos"]]:
    """`by_arrival` under each ablation; of each of `parts` if None (App. H.1)."""
    ablations = parts(model) if ablations is None else ablations
    return dict(zip(ablations, map(by_arrival, measure.class_accuracies(model, a, b, ablations)), strict=True))


def primed_parts(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]], n_long: int) -> Fields:
    """Who carries and who corrects in a primed model (App. H.1), from `without_parts`.

    Returns:
        The `head` of the first layer without which the carry cells of the long positions lose most, and how much they
        lose (`carried`); without the final MLP, what the cells lose where no carried one arrives (`corrected`), the
        carry cells of the trained positions (`trained`) and of the long ones (`spared`). Whether the first carries
        and the second corrects (`shows`), and whether, as the paper has it, all cells suffer without the MLP but the
        carry cells at long positions (`spares`).
    """
    fall = {part: lost[INTACT] - accuracy for part, accuracy in lost.items()}
    carried = {
        part: float(x[1, :n_long].mean()) for part, x in fall.items() if {layer for layer, _ in part.heads} == {0}
    }
    head = max(carried, key=lambda part: carried[part])
    none, one = fall[max((part for part in lost if part.mlps), key=lambda part: max(part.mlps))]
    corrected, trained, spared = (float(x) for x in (none.mean(), one[n_long:].nanmean(), one[:n_long].mean()))
    return {
        "head": head,
        "carried": carried[head],
        "corrected": corrected,
        "trained": trained,
        "spared": spared,
        "shows": carried[head] > CARRY_LOSS and corrected > PART_LOSS,
        "spares": min(corrected, trained) > PART_LOSS >= spared,
    }


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


def goes_at(curve: Float[np.ndarray, " epoch"]) -> float:
    """The epoch from which a curve stays below nine tenths of its best; NaN if it does not end there."""
    kept = np.flatnonzero(curve >= KEPT_OF_BEST * curve.max())[-1]
    return float(kept + 2) if kept + 1 < len(curve) else float("nan")


def forgetting(history: History) -> pd.DataFrame:
    """What becomes of the accuracy on longer sums over the epochs (Fig. 20); a row for each run of a padded group.

    Returns:
        How many `epochs` there are; the first with the best exact match (`peak`), that (`best`), and the one at the end
        (`last`); whether the run `forgets`: peaks before the end and ends at half of that or less. By position, from
        where on accuracy stays below nine tenths of its own best (`goes`; NaN: it does not end there) and where it
        `ends`; and which go `first`, none if none goes.

    Raises:
        BadInput: the group is not padded.
    """
    if "long_whole" not in history:
        raise BadInput("These learning curves have no longer sums: expected those of a padded group, such as pad6_….")
    positions = dynamics.curves(history, "long_accuracy")
    curves = {run: (curve, positions[run]) for run, curve in dynamics.curves(history, "long_whole").items()}

    def row(curve: tuple[Float[np.ndarray, " epoch"], Float[np.ndarray, "epoch pos"]]) -> Fields:
        exact, by_position = curve
        goes = [goes_at(column) for column in by_position.T]
        about = {"epochs": len(exact), "peak": int(exact.argmax()) + 1, "best": float(exact.max())}
        return about | {
            "last": float(exact[-1]),
            "forgets": bool(exact.argmax() + 1 < len(exact) and exact[-1] <= exact.max() / 2),
            "goes": tuple(goes),
            "ends": tuple(by_position[-1].tolist()),
            "first": tuple(i for i, epoch in enumerate(goes) if epoch == np.nanmin([*goes, np.inf])),
        }

    return per_run(curves, row)


# ---------------------------------------------------------------- finetuning (App. H.2)


@dataclass(frozen=True)
class Moved:
    """How far finetuning moved a run's weights (App. H.2)."""

    before: float  # squared norm of all parameters
    after: float
    distance: float  # between the two, over the norm before
    parts: dict[str, tuple[float, float]]  # of each parameter: distance over its norm, share of the squared distance

    @property
    def change(self) -> float:
        """Relative change of the squared norm."""
        return self.after / self.before - 1


def moved(before: nn.Module, after: nn.Module) -> Moved:
    """Compare two sets of weights."""
    old, new = ({name: p.detach().double() for name, p in m.named_parameters()} for m in (before, after))
    squares = pd.DataFrame(
        {name: [float(x.square().sum()) for x in (p, new[name], new[name] - p)] for name, p in old.items()}
    )
    (first, _, step), total = squares.to_numpy(), squares.sum(axis=1)
    own = np.sqrt(np.divide(step, first, out=np.full_like(step, np.nan), where=first > 0))
    shares = step / total[2] if total[2] else step
    parts = dict(zip(squares, zip(own.tolist(), shares.tolist(), strict=True), strict=True))
    return Moved(total[0], total[1], (total[2] / total[0]) ** 0.5, parts)


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
def four_digits(evidence: Evidence) -> pd.DataFrame:
    """Pearson correlation without the final MLP, over the thirteen classes; a head has to decide as well (App. F)."""

    def row(survey: Survey) -> Fields:
        correlation, head = no_carry_correlation(survey, DIGITS4), decision(survey, DIGITS4)
        shows = correlation >= CANNOT_CARRY_CORRELATION and head["shows"]
        return {**head, "value": correlation, "shows": shows, "cost_over_other_head": head["value"]}

    return per_run(evidence.surveys(DIGITS4), row)


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


def trained_to_the_end(evidence: Evidence, group: str) -> pd.DataFrame:
    """`forgetting` of a group.

    Raises:
        BadInput: there are no curves, or they stop before the end of their recipe.
    """
    rows = forgetting(evidence.curves(group))
    if evidence.source == "ours":
        planned, reached = evidence.planned_epochs(group), evidence.group(group).record["epochs"]
        if reached < planned:
            raise BadInput(f"needs: {group} for all {planned} epochs of its recipe; it has {reached}.")
    return rows


@finding("length", PAD6, PRIMED, among="unprimed")
def length(evidence: Evidence) -> pd.DataFrame:
    """Accuracy at the end over the best, with the mean of the unprimed runs: forgotten, but kept if primed (App. H)."""
    rows = pd.concat(
        {name: trained_to_the_end(evidence, group) for name, group in {"unprimed": PAD6, "primed": PRIMED}.items()}
    )
    shows = rows.forgets == (rows.index.get_level_values(0) == "unprimed")
    rows = rows.assign(value=rows["last"] / rows.best, shows=shows, first_to_go=rows["first"].map(list))
    return rows.rename(columns={"peak": "at_epoch"})[["value", "shows", "best", "at_epoch", "last", "first_to_go"]]


@finding("mlp_2500", PAD6)
def mlp_2500(evidence: Evidence) -> pd.DataFrame:
    """Correlation without the final MLP at the three trained positions of six-digit sums, at epoch 2500 (App. H)."""
    epochs = (500, 1000, 2500)
    loaded = at_the_papers_epochs(evidence, PAD6, *epochs)
    n_digits, drawn = groups.find(PAD6).n_digits, balanced(groups.find(PAD6).config.width, BALANCED)

    def correlations(run: int, model: Transformer) -> list[float]:
        return [trained_correlation(loaded.model(run, epoch), *drawn, n_digits)[0] for epoch in epochs]

    def row(found: list[float]) -> Fields:
        return {"value": found[-1], "shows": comes_to_carry(found[0], found[-1]), "at_epochs_500_1000": found[:-1]}

    return per_run(evidence.each(PAD6, correlations), row)


@finding("primed_parts", PRIMED)
def primed_parts_of_runs(evidence: Evidence) -> pd.DataFrame:
    """What carry cells at long positions lose without the costliest head of the first layer (App. H.1).

    In the author's run that has to be 0:0, as in the paper.
    """
    n_long, drawn = long_positions(PRIMED), balanced(groups.find(PRIMED).config.width, BALANCED)

    def row(found: Fields) -> Fields:
        same = evidence.source == "ours" or found["head"].heads == {(0, 0)}
        return {
            "value": found["carried"],
            "shows": found["shows"] and same,
            "head": named(found["head"]),
            "no_carry_cells_lose_without_the_final_MLP": found["corrected"],
            "trained_carry_cells_lose": found["trained"],
            "long_carry_cells_lose": found["spared"],
            "all_but_the_last_suffer": found["spares"],
        }

    return per_run(evidence.each(PRIMED, lambda run, m: primed_parts(without_parts(m, *drawn), n_long)), row)


@finding("carry_axis_long", PRIMED, FINETUNED)
def carry_axis_long(evidence: Evidence) -> pd.DataFrame:
    """Size of the correlation of the leading axis on six-digit sums, primed and finetuned (App. H.1, H.2)."""
    drawn = random_sums(groups.find(PRIMED).config.width, RANDOM)

    def row(found: tuple[float, float]) -> Fields:
        axis, plane = found
        shows = axis >= neurons.CARRY_AXIS_CORRELATION
        return {"value": axis, "shows": shows, "best_direction_of_two_axes": plane}

    by_name = {"primed": PRIMED, "finetuned": FINETUNED}
    at_hand = {name: group for name, group in by_name.items() if evidence.has(group)} or {"primed": PRIMED}
    measured = {name: evidence.each(group, lambda run, m: axis_and_plane(m, *drawn)) for name, group in at_hand.items()}
    return pd.concat({name: per_run(axes, row) for name, axes in measured.items()})


@finding("unpadded_fail", MAIN)
def unpadded_fail(evidence: Evidence) -> pd.DataFrame:
    """Exact match of the three-digit weights on random six-digit sums (App. H, footnote)."""
    a, b = random_sums(6, SAMPLE)

    def row(hit: Bool[Tensor, "sums pos"]) -> Fields:
        exact = float(hit.all(1).double().mean())
        digits = hit.double().mean(0).tolist()
        return {"value": exact, "shows": exact < UNTRAINED_LENGTH_ACCURACY, "digit_by_digit": digits}

    return per_run(evidence.each(MAIN, lambda run, m: right_digits(widened(m, 6), a, b)), row)


def finetuning(evidence: Evidence) -> dict[int, Moved]:
    """How far finetuning moved each run (App. H.2)."""
    before, epoch = parent(FINETUNED)
    pairs = finetuned_pairs(evidence.group(before), evidence.group(FINETUNED), epoch)
    return {run: moved(*pair) for run, pair in pairs.items()}


@finding("finetune_small_change", FINETUNED, PAD6)
def finetune_small_change(evidence: Evidence) -> pd.DataFrame:
    """Distance that the weights move, over their norm; the squared norm hardly changes (App. H.2)."""

    def row(m: Moved) -> Fields:
        return {"value": m.distance, "shows": m.distance < FINETUNING_DISTANCE, "change_of_squared_norm": m.change}

    return per_run(finetuning(evidence), row)

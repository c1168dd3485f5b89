"""Sums with more digits than the paper's three: does the same algorithm run in them (Sec. 6, App. F, App. H)?

Everything here takes any number of digits. A padded model's *long* positions are those of which its
training set, the few priming sums apart, has only zeros; the others are *trained*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carry_core import carries, groups, measure
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer
from carry_core.runs import History, Runs
from carry_core.sums import Layout, Numbers
from carry_paper.findings import base, dynamics, geometry, heads, neurons
from carry_paper.findings.base import Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Survey, random_sums

BALANCED = 4_450  # six-digit sums, fifty of each class
RANDOM = 5_000  # six-digit sums, drawn from all
CARRY_LOSS = 0.5  # of the digits of carry cells, without the head that carries
PART_LOSS = 0.1  # of the digits of cells, without a part: from here on they suffer
KEPT_OF_BEST = 0.9  # a position that ends below has been forgotten, from the epoch it stays below
# exact match below which weights fail at a length that they were not trained on
UNTRAINED_LENGTH_ACCURACY = 0.05
FINETUNING_DISTANCE = 0.05  # over the norm of the weights: below it they change little (App. H.2)


def balanced(n_digits: int, n_examples: int, seed: int = 0) -> tuple[Numbers, Numbers]:
    """About `n_examples` sums in all, as many of every class."""
    return measure.sample(
        max(1, round(n_examples / len(carries.patterns(n_digits)))), n_digits, seed
    )


def long_positions(group: str) -> int:
    """How many leading digits of a group's answers are not trained, three of six; `BadInput` if it is not padded."""
    found = groups.find(group)
    if not found.padded:
        known = ", ".join(name for name, other in groups.GROUPS.items() if other.padded)
        raise BadInput(f"{group} has no longer sums: expected a padded group, one of {known}.")
    return found.config.width - found.n_digits


@dataclass(frozen=True)
class Heads:
    """Where the heads look, digit column by digit column, over sums of all classes alike (Fig. 18, 21, 23, 25)."""

    # a digit's attention to its partner, in every layer but the last
    stairs: Float[Tensor, "early head column"]
    # to the two digits of the column to its right, NaN for the last
    ahead: Float[Tensor, "early head column"]
    # of an answer's row, to the two digits of its own column
    own: Float[Tensor, "layer head column"]
    right: Float[Tensor, "layer head column"]  # and of the column to the right, NaN for the last
    decides: int  # the head of the last layer without which most answers are wrong
    intact: float  # exact match
    without: float  # the same without that head

    @property
    def staircases(self) -> dict[str, Float[Tensor, " column"]]:
        """By column, the step of the best head: between the digits, and of each layer's answer rows (App. F, H)."""
        rows = {
            f"of the answer rows in layer {layer}": own.amax(0)
            for layer, own in enumerate(self.own)
        }
        return {"between the digits": self.stairs.amax((0, 1)), **rows}


def measure_heads(model: Transformer, a: Numbers, b: Numbers) -> Heads:
    """Measure `Heads` on the given sums; the decision head is `measure.decision_head`."""
    layout, pattern, decides = (
        model.config.layout,
        measure.attention(model, a, b),
        measure.decision_head(model),
    )
    parts = [INTACT, measure.last_heads(model)[decides]]
    intact, without = (cells.exact_match for cells in measure.class_accuracies(model, a, b, parts))
    own, right = (heads.column_mass(pattern, layout, shift) for shift in (0, 1))
    both_numbers = heads.partner_mass(pattern[:-1], layout).unflatten(-1, (-1, layout.width))
    return Heads(
        both_numbers.mean(-2), ahead(pattern[:-1], layout), own, right, decides, intact, without
    )


def attention_shares(found: Mapping[int, Heads]) -> pd.DataFrame:
    """The `share` of attention by `run`, `kind`, `layer`, `head` (as `1:0`) and `position` (Fig. 21, 23, App. H)."""
    kinds = {"digit to partner": "stairs", "digit to next column": "ahead"}
    kinds |= {"answer row to own column": "own", "answer row to next column": "right"}
    rows = [
        (run, kind, layer, f"{layer}:{head}", position, float(share))
        for run, h in found.items()
        for kind, name in kinds.items()
        for (layer, head, position), share in np.ndenumerate(getattr(h, name))
    ]
    return pd.DataFrame(
        rows, columns=["run", "kind", "layer", "head", "position", "share"]
    ).dropna()


SUMMARY = {
    "without it": "exact match without it",
    "ahead": "digits to the next column",
    "ahead head": "digits to the next column, by head",
    "right": "answer rows to the next column",
    "right head": "answer rows to the next column, by head",
}  # what rows of `attention_summary` are called in a table


def attention_summary(found: Mapping[int, Heads], n_long: int) -> pd.DataFrame:
    """The weakest step of each staircase, and which heads look to the right, by run (Fig. 21, 23, App. H)."""
    parts = {"trained": slice(n_long, None)} | ({"long": slice(0, n_long)} if n_long else {})

    def row(h: Heads) -> Fields:
        ahead, right, last = h.ahead.nanmean(-1), h.right[-1].nanmean(-1), len(h.own) - 1
        layer, head = divmod(int(ahead.argmax()), ahead.shape[1])
        steps = {
            f"{kind}, {name}": x[part].min()
            for kind, x in h.staircases.items()
            for name, part in parts.items()
        }
        return {
            "exact match": h.intact,
            "decision head": f"{last}:{h.decides}",
            "without it": h.without,
            **{name: float(step) for name, step in steps.items()},
            "ahead": float(ahead.max()),
            "ahead head": f"{layer}:{head}",
            "right": float(right.max()),
            "right head": f"{last}:{int(right.argmax())}",
        }

    rows = {run: row(heads) for run, heads in found.items()}
    return per_run(rows).rename_axis("run").reset_index()


def ahead(
    pattern: Float[Tensor, "*batch query key"], layout: Layout
) -> Float[Tensor, "*batch column"]:
    """How much attention a column's digits give to the digits of the next, averaged over both numbers; NaN at last."""
    first, second = range(layout.width), range(layout.width + 1, 2 * layout.width + 1)
    # a decoder's first number cannot see the second
    numbers = [second] if layout.causal else [first, second]
    return torch.stack([heads.column_mass(pattern, layout, 1, rows) for rows in numbers]).mean(0)


def answer_columns(model: Transformer) -> list[tuple[int, int, int]]:
    """The columns of Fig. 22 and 24, as `geometry.journey` takes them: the answer positions, layer by layer."""
    answer = model.config.layout.answer
    return [
        (layer, position, i)
        for layer in range(model.config.layers)
        for i, position in enumerate(answer)
    ]


def separation(model: Transformer, a: Numbers, b: Numbers) -> dict[str, list[float]]:
    """How well tens after the first layer, and carry-ins (`ones`) after the last attention, are told on six axes."""
    width, columns = model.config.width, answer_columns(model)
    planes = geometry.journey(model, a, b, columns[:width] + columns[-width:])
    parts = {"tens": planes[1 : 2 * width : 2], "ones": planes[2 * width :: 2]}
    return {name: list(map(geometry.accuracy_on_all_axes, found)) for name, found in parts.items()}


def separations(models: Mapping[int, Transformer], a: Numbers, b: Numbers) -> pd.DataFrame:
    """`separation` of each run by `step` (`tens` or `ones`) and `position`, as `accuracy` (Fig. 22, 24)."""
    found = {run: pd.DataFrame(separation(model, a, b)) for run, model in models.items()}
    frame = pd.concat(found, names=["run", "position"]).reset_index()
    return frame.melt(["run", "position"], var_name="step", value_name="accuracy").dropna()


def widened(model: Transformer, width: int) -> Transformer:
    """The same weights, given sums of more digits (App. H, footnote): nothing in them depends on the length."""
    wider = Transformer(replace(model.config, width=width))
    wider.load_state_dict(model.state_dict())
    return wider.requires_grad_(requires_grad=False).eval()


def accuracy(model: Transformer, n_digits: int) -> tuple[float, Float[Tensor, " pos"]]:
    """Share of whole answers that are right, and of right digits, on `random_sums` of up to `n_digits` digits."""
    hit = heads.correct_digits(model, *random_sums(n_digits))
    return hit.all(1).double().mean().item(), hit.double().mean(0)


def means_by_carry_in(
    found: measure.ClassAccuracies, kind: str = "accuracy"
) -> Float[Tensor, "carry_in pos"]:
    """Mean of the cells without a carry-in, and of those with one, by position; NaN where there never is one."""
    values = getattr(found, kind)
    carry_in = carries.carry_in(values.shape[1])
    return torch.stack([values.where(side, torch.nan).nanmean(0) for side in (~carry_in, carry_in)])


def without_parts(
    model: Transformer, a: Numbers, b: Numbers
) -> dict[Ablation, Float[Tensor, "carry_in pos"]]:
    """`means_by_carry_in`, intact and without each head and each MLP by itself (App. H.1)."""
    mlps = [Ablation(mlps=frozenset({layer})) for layer in range(model.config.layers)]
    parts = [INTACT, *measure.last_heads(model, model.config.layers), *mlps]
    return dict(
        zip(
            parts, map(means_by_carry_in, measure.class_accuracies(model, a, b, parts)), strict=True
        )
    )


def part_costs(lost: Mapping[Ablation, Float[Tensor, "carry_in pos"]], n_long: int) -> Fields:
    """Who carries and who corrects in a primed model (App. H.1), from `without_parts`.

    The `head` of the first layer that costs the carry cells of the long positions most, and how
    much (`carried`); what the final MLP costs the no-carry cells (`corrected`) and the carry cells
    of the `trained` and of the long positions (`spared`).
    """
    fall = {part: lost[INTACT] - accuracy for part, accuracy in lost.items()}
    carried = {
        part: float(x[1, :n_long].mean())
        for part, x in fall.items()
        if {i for i, _ in part.heads} == {0}
    }
    head = max(carried, key=lambda part: carried[part])
    *_, final_mlp = (part for part in lost if part.mlps)
    none, one = fall[final_mlp]
    corrected, trained, spared = (
        float(x) for x in (none.mean(), one[n_long:].nanmean(), one[:n_long].mean())
    )
    return {
        "head": head,
        "carried": carried[head],
        "corrected": corrected,
        "trained": trained,
        "spared": spared,
    }


def has_its_parts(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Tell in which runs a head carries and the final MLP corrects; from a row of `part_costs` for each."""
    return (runs.carried > CARRY_LOSS) & (runs.corrected > PART_LOSS)


def spares_long_carries(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Tell in which runs all suffer without the final MLP but the carry cells of the long positions (App. H.1)."""
    return (runs.corrected > PART_LOSS) & (runs.trained > PART_LOSS) & (runs.spared <= PART_LOSS)


def forgets(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Tell in which runs exact match peaks before the end and ends at half of that or less, from `forgetting`."""
    return (runs.peak < runs.epochs) & (runs["last"] <= runs.best / 2)


def forgetting(history: History) -> pd.DataFrame:
    """What becomes of the accuracy on longer sums, by run of a padded group, else `BadInput` (Fig. 20).

    Exact match is `best` at the epoch `peak`, and at the end `last`. By position, accuracy stays
    below nine tenths of its own best from the epoch `goes` on (NaN: never), and `ends` there.
    All are epochs after which it was tested; `resolution` is the most epochs since the test before.
    """
    if "long_accuracy" not in history:
        raise BadInput(
            "These learning curves have no longer sums: expected those of a padded group."
        )
    rows = {}
    for i, (run, exact) in enumerate(dynamics.curves(history, "long_whole").items()):
        tested = exact.index.to_numpy()
        digits = history["long_accuracy"][i, np.isin(history["epochs"], tested)]
        by_position = pd.DataFrame(digits, tested)
        next_test = pd.Series([*tested[1:], np.nan], tested)
        kept = (by_position >= KEPT_OF_BEST * by_position.max())[::-1].idxmax()  # the last epoch
        peak, epochs, goes = int(exact.idxmax()), int(tested[-1]), kept.map(next_test)
        best, last = float(exact.max()), float(exact.iloc[-1])
        rows[run] = {
            "epochs": epochs,
            "peak": peak,
            "best": best,
            "last": last,
            "goes": tuple(goes),
            "ends": tuple(by_position.iloc[-1].tolist()),
            "first": tuple(goes.index[goes == goes.min()].tolist()),
            "resolution": dynamics.resolution(tested, [peak, *goes]),
        }
    return per_run(rows)


def moved(before: nn.Module, after: nn.Module) -> pd.DataFrame:
    """Squared norm of each parameter `before` and `after` finetuning, and of the `step` between the two (App. H.2)."""
    old, new = (
        {name: p.detach().double() for name, p in m.named_parameters()} for m in (before, after)
    )
    weights = {name: (p, new[name], new[name] - p) for name, p in old.items()}
    squares = {name: [float(x.square().sum()) for x in three] for name, three in weights.items()}
    return pd.DataFrame.from_dict(squares, orient="index", columns=["before", "after", "step"])


def finetuned_pairs(
    before: Runs, after: Runs, epoch: int
) -> dict[int, tuple[Transformer, Transformer]]:
    """What each finetuned run started from, the run of its number or else the last at hand, and the run itself."""
    # the released run 1 started from the only other one, run 0
    starts = {run: run if run in before.numbers else before.numbers[-1] for run in after.numbers}
    return {run: (before.model(start, epoch), after.model(run)) for run, start in starts.items()}


def parent(group: str) -> tuple[str, int]:
    """The group and epoch that a finetuned group starts from; `BadInput` if it is not finetuned."""
    found = groups.find(group).parent
    if found is None:
        known = ", ".join(name for name, other in groups.GROUPS.items() if other.parent)
        raise BadInput(f"{group} is not finetuned: expected a group that is, one of {known}.")
    return found


def four_digits(survey: Survey) -> Fields:
    """Pearson correlation without the final MLP, over the thirteen classes; a head has to decide as well (App. F)."""
    correlation, head = heads.no_carry_correlation(survey.without_mlp), heads.decision(survey)
    shows = correlation >= heads.CANNOT_CARRY_CORRELATION and heads.decides(head)
    return {**head, "value": correlation, "shows": shows, "cost_over_other_head": head["value"]}


def by_the_papers_epochs(evidence: Evidence, group: str) -> Runs:
    """A group's runs, if an epoch of theirs is as long as the paper's; else `BadInput`."""
    loaded = evidence.group(group)
    if loaded.record["recipe"] == "quick":
        raise BadInput(
            f"It needs {group} at an epoch of the recipe “paper”; those of “quick” are others."
        )
    return loaded


def length(evidence: Evidence) -> pd.DataFrame:
    """Accuracy at the end over the best, with the mean of the unprimed runs: forgotten, but kept if primed (App. H)."""
    fates = {}
    for name, group in {"unprimed": base.PAD6, "primed": base.PRIMED}.items():
        fates[name] = forgetting(evidence.curves(group))
        planned = evidence.planned_epochs(group)
        if (
            evidence.source == "ours"
            and (reached := evidence.group(group).record["epochs"]) < planned
        ):
            raise BadInput(
                f"It needs {group} for all {planned} epochs of its recipe; it has {reached}."
            )
    rows = pd.concat(fates)
    shows = forgets(rows) == (rows.index.get_level_values(0) == "unprimed")
    rows = rows.assign(
        value=rows["last"] / rows.best, shows=shows, first_to_go=rows["first"].map(list)
    )
    rows = rows.rename(columns={"peak": "at_epoch"})
    columns = ["value", "shows", "best", "at_epoch", "last", "first_to_go", "resolution"]
    return dynamics.with_resolution(rows[columns])


def unprimed_steps(evidence: Evidence) -> pd.DataFrame:
    """Lowest balanced accuracy of tens and carry-ins at trained positions, on six axes, at epoch 500 (Fig. 22)."""
    n_long, width = long_positions(base.PAD6), groups.find(base.PAD6).config.width
    found = separations(evidence.models(base.PAD6, 500), *balanced(width, BALANCED))
    lowest = (
        found.groupby(["run", found.position < n_long])
        .accuracy.min()
        .unstack()
        .set_axis(["value", "long"], axis=1)
    )
    enough = lowest >= geometry.SEPARATING_ACCURACY
    return lowest.assign(shows=enough.value & ~enough.long).rename(
        columns={"long": "at_long_positions"}
    )


def mlp_2500(evidence: Evidence) -> pd.DataFrame:
    """Correlation without the final MLP at the three trained positions of six-digit sums, at epoch 2500 (App. H)."""
    epochs, loaded = (500, 1000, 2500), by_the_papers_epochs(evidence, base.PAD6)
    n_digits, drawn = groups.find(base.PAD6).n_digits, balanced(loaded.config.width, BALANCED)
    mlp = measure.final_mlp(loaded.config)

    def row(run: int, model: Transformer) -> Fields:
        without = [
            measure.class_accuracies(loaded.model(run, epoch), *drawn, [mlp])[0] for epoch in epochs
        ]
        *early, last = (heads.no_carry_correlation(cells, n_digits) for cells in without)
        shows = last >= heads.CANNOT_CARRY_CORRELATION and last > early[0]
        return {"value": last, "shows": shows, "at_epochs_500_1000": early}

    return per_run(evidence.each(base.PAD6, row))


def primed_parts(evidence: Evidence) -> pd.DataFrame:
    """What carry cells at long positions lose without the costliest head of the first layer (App. H.1)."""
    n_long, drawn = (
        long_positions(base.PRIMED),
        balanced(groups.find(base.PRIMED).config.width, BALANCED),
    )
    rows = per_run(
        evidence.each(
            base.PRIMED, lambda run, model: part_costs(without_parts(model, *drawn), n_long)
        )
    )
    rows = rows.assign(shows=has_its_parts(rows), spares=spares_long_carries(rows))
    if evidence.source == "author":  # as in the paper
        rows["shows"] &= rows["head"] == Ablation(heads={(0, 0)})
    names = {
        "carried": "value",
        "corrected": "no_carry_cells_lose_without_the_final_MLP",
        "trained": "trained_carry_cells_lose",
        "spared": "long_carry_cells_lose",
        "spares": "all_but_the_last_suffer",
    }
    return rows.rename(columns=names).assign(head=rows["head"].map(heads.ablated_part))


def carry_axis_long(evidence: Evidence) -> pd.DataFrame:
    """Size of the correlation of the leading axis on six-digit sums, primed and finetuned (App. H.1, H.2)."""
    drawn = random_sums(groups.find(base.PRIMED).config.width, RANDOM)

    def row(run: int, model: Transformer) -> Fields:
        axis = neurons.singular_axes(model, *drawn)
        shows = axis.correlations[0] >= neurons.CARRY_AXIS_CORRELATION
        return {
            "value": axis.correlations[0],
            "shows": shows,
            "best_direction_of_two_axes": axis.plane,
        }

    by_name = {"primed": base.PRIMED, "finetuned": base.FINETUNED}
    at_hand = {name: group for name, group in by_name.items() if evidence.has(group)} or {
        "primed": base.PRIMED
    }
    return pd.concat({name: per_run(evidence.each(group, row)) for name, group in at_hand.items()})


def fails_at_length(row: Fields) -> bool:
    """Tell whether weights get next to no sum of an untrained length right."""
    return bool(row["value"] < UNTRAINED_LENGTH_ACCURACY)


def unpadded_fail(model: Transformer) -> Fields:
    """Exact match of the three-digit weights on random six-digit sums (App. H, footnote)."""
    exact, digits = accuracy(widened(model, 6), 6)
    return {"value": exact, "digit_by_digit": digits.tolist()}


def finetuning(evidence: Evidence) -> pd.DataFrame:
    """Each run's squared norm `before` and `after` finetuning, its `change`, and the `distance` over it (App. H.2)."""
    before, epoch = parent(base.FINETUNED)
    pairs = finetuned_pairs(evidence.group(before), evidence.group(base.FINETUNED), epoch)
    total = pd.DataFrame({run: moved(*pair).sum() for run, pair in pairs.items()}).T
    return total.assign(
        change=total.after / total.before - 1, distance=(total.step / total.before) ** 0.5
    )


def finetune_small_change(evidence: Evidence) -> pd.DataFrame:
    """Distance that the weights move, over their norm; the squared norm hardly changes (App. H.2)."""
    rows = finetuning(evidence).rename(
        columns={"distance": "value", "change": "change_of_squared_norm"}
    )
    return rows.assign(shows=rows.value < FINETUNING_DISTANCE)[
        ["value", "shows", "change_of_squared_norm"]
    ]

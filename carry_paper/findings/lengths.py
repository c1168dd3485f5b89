"""Findings about longer sums: the same algorithm with more than three digits (Sec. 6, App. F, H).

Everything here takes any number of digits. A padded model's *long* positions are those at which its
training set has only zeros, apart from the few priming sums; the others are *trained*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from carry_core import carries, measure
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer
from carry_core.runs import History, Runs
from carry_core.sums import Layout, Numbers
from carry_paper.findings import base, dynamics, geometry, heads, neurons
from carry_paper.findings.bars import Bar, below
from carry_paper.findings.base import Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Survey, random_sums
from carry_train import groups

BALANCED = 4_450  # six-digit sums, fifty of each class
RANDOM = 5_000  # six-digit sums, drawn from all
# Random sums for accuracies with two decimals, whose standard error is at most half of 0.01.
TWO_DECIMALS = 10_000


# ---- sums and groups


def balanced(n_digits: int, n_examples: int, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Return about `n_examples` sums in all, equally many of each class."""
    n_classes = len(carries.patterns(n_digits))
    return measure.sample(max(1, round(n_examples / n_classes)), n_digits, seed)


def long_positions(group: str) -> int:
    """Return how many leading answer digits of a padded group are not trained: three of six."""
    padded_group = groups.find(group)
    if not padded_group.padded:
        names = ", ".join(name for name, candidate in groups.GROUPS.items() if candidate.padded)
        raise BadInput(f"{group} has no longer sums: expected a padded group, one of {names}.")
    return padded_group.config.width - padded_group.n_digits


def parent(group: str) -> tuple[str, int]:
    """Return the group and epoch that a group starts from; raise `BadInput` if it has none."""
    start = groups.find(group).parent
    if start is None:
        names = ", ".join(name for name, candidate in groups.GROUPS.items() if candidate.parent)
        raise BadInput(f"{group} is not finetuned: expected a group that is, one of {names}.")
    return start


# ---- four digits (App. F)


def four_digits(survey: Survey) -> Fields:
    """Pearson correlation without the final MLP, over the thirteen classes (App. F)."""
    decision = heads.decision(survey)
    return {
        **decision,
        "value": heads.no_carry_correlation(survey.without_mlp),
        "cost_over_other_head": decision["value"],
    }


def works_the_same_way(
    measured: Fields,
    *,
    correlation: float = heads.CANNOT_CARRY_CORRELATION,
    least_cost: float = heads.EXACT_MATCH_COST,
    cell: float = heads.CELL_ACCURACY,
) -> bool:
    """Return True if nothing is carried without the final MLP, and a head decides."""
    decision = {**measured, "value": measured["cost_over_other_head"]}
    decides = heads.decides(decision, least_cost=least_cost, cell=cell)
    return decides and heads.cannot_carry(measured, bar=correlation)


# ---- attention (Fig. 18, 21, 23, 25)


@dataclass(frozen=True)
class Heads:
    """The heads' attention by digit column, over sums of all classes (Fig. 18, 21, 23, 25).

    Attributes:
        stairs: A digit's attention to its partner, in every layer but the last.
        ahead: A digit's attention to the two digits of the column on its right, in every layer
            but the last; NaN in the last column.
        own: An answer row's attention to the two digits of its own column.
        right: Its attention to those of the column on its right; NaN in the last column.
        decides: The decision head in the last layer (`measure.decision_head`).
        intact: The exact match of the intact model.
        without: The exact match without the decision head.
    """

    stairs: Float[Tensor, "early head column"]
    ahead: Float[Tensor, "early head column"]
    own: Float[Tensor, "layer head column"]
    right: Float[Tensor, "layer head column"]
    decides: int
    intact: float
    without: float

    @property
    def staircases(self) -> dict[str, Float[Tensor, " column"]]:
        """Return the attention of the best head in each column, for each staircase (App. F, H).

        There is one staircase between the digits, and one for each layer's answer rows.
        """
        staircases = {"between the digits": self.stairs.amax((0, 1))}
        for layer, own_mass in enumerate(self.own):
            staircases[f"of the answer rows in layer {layer}"] = own_mass.amax(0)
        return staircases


def measure_heads(
    model: Transformer, a: Numbers, b: Numbers, decision_head: int | None = None
) -> Heads:
    """Measure `Heads` on the sums a + b.

    `decision_head` is the model's `measure.decision_head`, for a page that knows it already.
    """
    layout = model.config.layout
    pattern = measure.attention(model, a, b)  # (layer, head, query, key)
    early = pattern[:-1]
    partner = heads.partner_mass(early, layout)  # (early, head, digit)
    if decision_head is None:
        decision_head = measure.decision_head(model)
    ablations = [INTACT, measure.last_heads(model)[decision_head]]
    intact, without = measure.class_accuracies(model, a, b, ablations)
    return Heads(
        # The mean over both numbers; a decoder has the second number's digits only.
        stairs=partner.unflatten(-1, (-1, layout.width)).mean(-2),
        ahead=ahead(early, layout),
        own=heads.column_mass(pattern, layout, shift=0),
        right=heads.column_mass(pattern, layout, shift=1),
        decides=decision_head,
        intact=intact.exact_match,
        without=without.exact_match,
    )


def ahead(
    pattern: Float[Tensor, "*batch query key"], layout: Layout
) -> Float[Tensor, "*batch column"]:
    """Return the attention of a column's digits to those of the next column on the right.

    It is the mean over both numbers, and NaN in the last column.
    """
    first_number = range(layout.width)
    second_number = range(layout.width + 1, 2 * layout.width + 1)
    # A decoder's first number cannot see the second.
    numbers = [second_number] if layout.causal else [first_number, second_number]
    masses = [heads.column_mass(pattern, layout, 1, queries) for queries in numbers]
    return torch.stack(masses).mean(0)


def previous_sums(model: Transformer) -> Fields:
    """Attention of the last layer's best head to the column on the right, mean over rows (App. H).

    The rows are those of the answer that have such a column. `layer_0` is that of layer 0's best
    head, at the digits or at the answer rows, whichever is more; `layer_0_exceeds_last_by` is how
    much more it is at the digits than in the last layer.
    """
    layout = model.config.layout
    pattern = heads.mean_attention(model)  # (layer, head, query, key)
    at_answer_rows = heads.column_mass(pattern, layout, shift=1).nanmean(-1)  # (layer, head)
    last_layer = float(at_answer_rows[-1].max())
    at_digits = float(ahead(pattern[0], layout).nanmean(-1).max())
    return {
        "value": last_layer,
        "layer_0": max(at_digits, float(at_answer_rows[0].max())),
        "layer_0_exceeds_last_by": at_digits - last_layer,
        "uniform": 2 / layout.length,  # two digits out of all tokens
    }


def last_layer_brings_previous_sum(measured: Fields) -> bool:
    """Return True if a head of the last layer gives the column on the right more than uniform."""
    return bool(measured["value"] > measured["uniform"])


def first_layer_brings_previous_sum(measured: Fields) -> bool:
    """Return True if a head of layer 0 gives it more than uniform."""
    return bool(measured["layer_0"] > measured["uniform"])


def first_layer_brings_most(measured: Fields) -> bool:
    """Return True if a head of layer 0 gives it more, at the digits, than the last layer's do."""
    return bool(measured["layer_0_exceeds_last_by"] > 0)


# The attributes of `Heads` that are shares of attention.
KINDS = {
    "digit to partner": "stairs",
    "digit to next column": "ahead",
    "answer row to own column": "own",
    "answer row to next column": "right",
}


def attention_shares(heads_by_run: Mapping[int, Heads]) -> pd.DataFrame:
    """Return each share of attention, of a `kind` of `KINDS` (Fig. 21, 23, App. H).

    There is a row for each `run`, `head` (such as `1:0`) and `position`, the column from the left.
    """
    names = ["run", "kind", "layer", "head", "position", "share"]
    rows = []
    for run, measured in heads_by_run.items():
        for kind, name in KINDS.items():
            for (layer, head, position), share in np.ndenumerate(getattr(measured, name)):
                rows.append((run, kind, layer, f"{layer}:{head}", position, float(share)))
    return pd.DataFrame(rows, columns=names).dropna()


# The names of the columns of `attention_summary` in a table.
SUMMARY = {
    "without it": "exact match without it",
    "ahead": "digits to the next column",
    "ahead head": "digits to the next column, by head",
    "right": "answer rows to the next column",
    "right head": "answer rows to the next column, by head",
}


def attention_summary(heads_by_run: Mapping[int, Heads], n_long: int) -> pd.DataFrame:
    """Return the weakest step of each staircase, and the heads that look to the right, by run.

    (Fig. 21, 23, App. H.) The first `n_long` answer positions are long ones.
    """
    rows = {run: _attention_row(measured, n_long) for run, measured in heads_by_run.items()}
    return per_run(rows).rename_axis("run").reset_index()


def _attention_row(measured: Heads, n_long: int) -> Fields:
    """Return a run's row of `attention_summary`."""
    parts = {"trained": slice(n_long, None)}
    if n_long:
        parts["long"] = slice(0, n_long)
    weakest_steps = {}
    for kind, steps in measured.staircases.items():
        for name, part in parts.items():
            weakest_steps[f"{kind}, {name}"] = float(steps[part].min())

    ahead_by_head = measured.ahead.nanmean(-1)  # (early, head)
    ahead_layer, ahead_head = divmod(int(ahead_by_head.argmax()), ahead_by_head.shape[1])
    right_by_head = measured.right[-1].nanmean(-1)  # (head,)
    last_layer = len(measured.own) - 1
    return {
        "exact match": measured.intact,
        "decision head": f"{last_layer}:{measured.decides}",
        "without it": measured.without,
        **weakest_steps,
        "ahead": float(ahead_by_head.max()),
        "ahead head": f"{ahead_layer}:{ahead_head}",
        "right": float(right_by_head.max()),
        "right head": f"{last_layer}:{int(right_by_head.argmax())}",
    }


# ---- planes (Fig. 19, 22, 24)


def answer_columns(model: Transformer) -> list[geometry.Column]:
    """Return the columns of Fig. 22 and 24: the answer positions, layer by layer."""
    columns = []
    for layer in range(model.config.layers):
        for i, position in enumerate(model.config.layout.answer):
            columns.append(geometry.Column(layer, position, i))
    return columns


def separation(model: Transformer, a: Numbers, b: Numbers) -> dict[str, list[float]]:
    """Return the accuracies on six axes at each answer position, for two steps of the algorithm.

    These are `tens` after the first layer (the digit sum is ten or more), and `ones` after the last
    attention (there is a carry-in).
    """
    last_layer = model.config.layers - 1
    columns = [column for column in answer_columns(model) if column.layer in (0, last_layer)]
    accuracies: dict[str, list[float]] = {"tens": [], "ones": []}
    for plane in geometry.journey(model, a, b, columns):
        if plane.layer == 0 and plane.after == "MLP":
            accuracies["tens"].append(geometry.accuracy_on_all_axes(plane))
        if plane.layer == last_layer and plane.after == "attention":
            accuracies["ones"].append(geometry.accuracy_on_all_axes(plane))
    return accuracies


def separations(models: Mapping[int, Transformer], a: Numbers, b: Numbers) -> pd.DataFrame:
    """Return `separation` of each run by `step` and `position`, as `accuracy` (Fig. 22, 24)."""
    frames = {run: pd.DataFrame(separation(model, a, b)) for run, model in models.items()}
    frame = pd.concat(frames, names=["run", "position"]).reset_index()
    return frame.melt(["run", "position"], var_name="step", value_name="accuracy").dropna()


def unprimed_steps(evidence: Evidence) -> pd.DataFrame:
    """Lowest accuracy of tens and carry-ins at trained positions, six axes, epoch 500 (Fig. 22)."""
    evidence.by_the_papers_epochs(base.PAD6)
    n_long = long_positions(base.PAD6)
    a, b = balanced(groups.find(base.PAD6).config.width, BALANCED)
    accuracies = separations(evidence.models(base.PAD6, 500), a, b)
    is_long = accuracies.position < n_long
    lowest = accuracies.groupby(["run", is_long]).accuracy.min().unstack()
    return lowest.set_axis(["value", "at_long_positions"], axis=1)


def separates_where_trained(
    measured: Fields, *, accuracy: float = geometry.SEPARATING_ACCURACY
) -> bool:
    """Return True if both steps separate at all trained positions, and not at all long ones."""
    return bool(measured["at_long_positions"] < accuracy <= measured["value"])


# ---- accuracy at other lengths (App. H)

# Below this exact match, weights fail at a length that they were not trained on.
UNTRAINED_LENGTH_ACCURACY = Bar(0.05, perfect=0)


def widened(model: Transformer, width: int) -> Transformer:
    """Return the same weights as a model of sums with more digits (App. H, footnote).

    No parameter depends on the length.
    """
    wider = Transformer(replace(model.config, width=width))
    wider.load_state_dict(model.state_dict())
    return wider.requires_grad_(requires_grad=False).eval()


def accuracy_at_length(
    model: Transformer, n_digits: int, count: int | None = None
) -> tuple[float, Float[Tensor, " pos"]]:
    """Return the exact match on `random_sums` of up to `n_digits` digits, and that of each digit.

    There are `count` sums, as many as usual if None.
    """
    is_correct = measure.correct_digits(model, *random_sums(n_digits, count))
    return is_correct.all(1).double().mean().item(), is_correct.double().mean(0)


def unpadded_fail(model: Transformer) -> Fields:
    """Exact match of the three-digit weights on random six-digit sums (App. H, footnote)."""
    exact_match, digits = accuracy_at_length(widened(model, 6), 6)
    return {"value": exact_match, "digit_by_digit": digits.tolist()}


fails_at_length = below(UNTRAINED_LENGTH_ACCURACY)

# ---- forgetting (Fig. 20)

KEPT_OF_BEST = 0.9  # share of its best below which a position has been forgotten
# Share of the best exact match that is left of one that has been forgotten, at most.
FORGOTTEN = Bar(0.5, perfect=0)


def forgetting(history: History) -> pd.DataFrame:
    """Return the peak and the loss of accuracy on longer sums, by run of a padded group (Fig. 20).

    Exact match is `best` at the epoch `peak`, and `last` at the end. By position, accuracy stays
    below nine tenths of its own best from the epoch `goes` on (NaN: never), and is `ends` at the
    end; `first` has the positions that go first. All epochs are ones after which the run was
    tested, of the `epochs` of the training; `resolution` is the most epochs since the test before.

    Raises:
        BadInput: The history has no longer sums.
    """
    if "long_accuracy" not in history:
        raise BadInput(
            "These learning curves have no longer sums: expected those of a padded group."
        )
    rows = {}
    for i, (run, exact_match) in enumerate(dynamics.curves(history, "long_whole").items()):
        tested = exact_match.index.to_numpy()
        digits = history["long_accuracy"][i, np.isin(history["epochs"], tested)]
        by_position = pd.DataFrame(digits, tested)
        peak, goes = int(exact_match.idxmax()), _goes(by_position)
        rows[run] = {
            "epochs": int(tested[-1]),
            "peak": peak,
            "best": float(exact_match.max()),
            "last": float(exact_match.iloc[-1]),
            "goes": tuple(goes),
            "ends": tuple(by_position.iloc[-1].tolist()),
            "first": tuple(goes.index[goes == goes.min()].tolist()),
            "resolution": dynamics.resolution(tested, [peak, *goes]),
        }
    return per_run(rows)


def _goes(by_position: pd.DataFrame) -> "pd.Series[float]":
    """Return the epoch from which on each position's accuracy stays below `KEPT_OF_BEST`."""
    is_good = by_position >= KEPT_OF_BEST * by_position.max()
    last_good_epoch = is_good[::-1].idxmax()
    tested = by_position.index.to_numpy()
    next_test = pd.Series([*tested[1:], np.nan], tested)
    return last_good_epoch.map(next_test)


def forgets(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return a mask of the runs of `forgetting` whose exact match peaks early and then falls."""
    return (runs.peak < runs.epochs) & (runs["last"] <= FORGOTTEN * runs.best)


def length(evidence: Evidence) -> pd.DataFrame:
    """Exact match at the end over the best, with the mean of the unprimed runs (App. H)."""
    frames = {}
    for group in (base.PAD6, base.PRIMED):
        frames[group] = forgetting(evidence.curves(group))
        _check_fully_trained(evidence, group)
    rows = pd.concat(frames)
    rows = rows.assign(value=rows["last"] / rows.best, first_to_go=rows["first"].map(list))
    rows = rows.rename(columns={"peak": "at_epoch"})
    columns = ["value", "best", "at_epoch", "last", "first_to_go", "resolution"]
    return dynamics.with_resolution(rows[columns])


BEST_UNTIL = "Lowest and highest of the runs' best accuracies up to epoch 1000."
LAST_OF_RANGE = 1000  # the epoch


def best_on_longer_sums(evidence: Evidence) -> pd.DataFrame:
    """Best exact match on six-digit sums up to epoch 1000, of unprimed runs (Sec. 6)."""
    curves = evidence.curves(base.PAD6)
    if evidence.source == "ours":
        evidence.by_the_papers_epochs(base.PAD6)
    epochs = curves["epochs"]
    if epochs[-1] < LAST_OF_RANGE:
        raise BadInput(
            f"It needs learning curves of {base.PAD6} up to epoch {LAST_OF_RANGE}; "
            f"these have {epochs[-1]}."
        )
    counted = epochs <= LAST_OF_RANGE
    resolution = dynamics.resolution(epochs, epochs[counted].tolist())
    rows = {}
    for run, curve in zip(curves["runs"], curves["long_whole"][:, counted], strict=True):
        rows[int(run)] = {"value": float(curve.max()), "resolution": resolution}
    return dynamics.with_resolution(per_run(rows))


def forgets_unless_primed(measured: Fields, *, left: float = FORGOTTEN) -> bool:
    """Return True if an unprimed run of `length` forgets, or a primed one does not."""
    forgets = bool(measured["value"] <= left)
    return forgets != bool(measured["primed"])


def _check_fully_trained(evidence: Evidence, group: str) -> None:
    """Raise `BadInput` if our runs of a group have not had all epochs of their recipe."""
    if evidence.source != "ours":
        return
    planned, reached = evidence.planned_epochs(group), evidence.group(group).record["epochs"]
    if reached < planned:
        raise BadInput(
            f"It needs {group} for all {planned} epochs of its recipe; it has {reached}."
        )


def mlp_2500(evidence: Evidence) -> pd.DataFrame:
    """Correlation without the final MLP at the three trained positions, at epoch 2500 (App. H)."""
    loaded = evidence.by_the_papers_epochs(base.PAD6)
    n_digits = groups.find(base.PAD6).n_digits
    a, b = balanced(loaded.config.width, BALANCED)
    final_mlp = measure.final_mlp(loaded.config)

    def correlation(run: int, epoch: int) -> float:
        (without_mlp,) = measure.class_accuracies(loaded.model(run, epoch), a, b, [final_mlp])
        return heads.no_carry_correlation(without_mlp, n_digits)

    def row(run: int, model: Transformer) -> Fields:
        return {
            "value": correlation(run, 2500),
            "at_epochs_500_1000": [correlation(run, epoch) for epoch in (500, 1000)],
        }

    return per_run(evidence.each(base.PAD6, row))


def comes_to_carry(measured: Fields) -> bool:
    """Return True if the final MLP of `mlp_2500` carries more clearly at each later epoch."""
    at_500, at_1000 = measured["at_epochs_500_1000"]
    return bool(at_500 < at_1000 < measured["value"])


# ---- the parts of a primed model (App. H.1)

# Accuracy that carry cells lose, at least, without the head that carries.
CARRY_LOSS = Bar(0.5, perfect=1, chance=0.1)
# From this loss of accuracy on, cells need the part that was ablated.
PART_LOSS = Bar(0.1, perfect=0)


def means_by_carry_in(
    table: measure.ClassAccuracies, kind: str = "accuracy"
) -> Float[Tensor, "carry_in pos"]:
    """Return the mean of the cells without a carry-in, and of those with one, by position.

    It is NaN at a position that never has one. `kind` is "accuracy" or "corrected".
    """
    values = getattr(table, kind)  # (carry_class, pos)
    carry_in = carries.carry_in(values.shape[1])
    without_carry_in = values.where(~carry_in, torch.nan).nanmean(0)
    with_carry_in = values.where(carry_in, torch.nan).nanmean(0)
    return torch.stack([without_carry_in, with_carry_in])


def without_parts(
    model: Transformer, a: Numbers, b: Numbers
) -> dict[Ablation, Float[Tensor, "carry_in pos"]]:
    """Return `means_by_carry_in` of the intact model, and without each head and MLP (App. H.1)."""
    n_layers = model.config.layers
    mlps = [Ablation(mlps=frozenset({layer})) for layer in range(n_layers)]
    ablations = [INTACT, *measure.last_heads(model, n_layers), *mlps]
    tables = measure.class_accuracies(model, a, b, ablations)
    means = [means_by_carry_in(table) for table in tables]
    return dict(zip(ablations, means, strict=True))


def part_costs(means: Mapping[Ablation, Float[Tensor, "carry_in pos"]], n_long: int) -> Fields:
    """Return the parts that carry and correct in a primed model, from `without_parts` (App. H.1).

    The fields are the `head` of the first layer whose ablation costs the carry cells of the long
    positions most, and that cost (`carried`); and the costs of ablating the final MLP for the
    no-carry cells (`corrected`), the carry cells of the `trained` positions, and those of the long
    positions (`spared`).
    """
    costs = {ablation: means[INTACT] - mean for ablation, mean in means.items()}
    carried = {}
    for ablation, cost in costs.items():
        if {layer for layer, _ in ablation.heads} == {0}:
            carried[ablation] = float(cost[1, :n_long].mean())
    head = max(carried, key=lambda ablation: carried[ablation])
    final_mlp = [ablation for ablation in means if ablation.mlps][-1]
    no_carry_cost, carry_cost = costs[final_mlp]  # by position
    return {
        "head": head,
        "carried": carried[head],
        "corrected": float(no_carry_cost.mean()),
        "trained": float(carry_cost[n_long:].nanmean()),
        "spared": float(carry_cost[:n_long].mean()),
    }


# The names of `part_costs` in the fields of `primed_parts`.
COSTS = {
    "carried": "value",
    "corrected": "no_carry_cells_lose_without_the_final_MLP",
    "trained": "trained_carry_cells_lose",
    "spared": "long_carry_cells_lose",
}


def primed_parts(evidence: Evidence) -> pd.DataFrame:
    """Loss of carry cells at long positions without the first layer's costliest head (App. H.1).

    Head numbers mean nothing across runs, so `head_of_the_paper` is "" for ours.
    """
    n_long = long_positions(base.PRIMED)
    a, b = balanced(groups.find(base.PRIMED).config.width, BALANCED)

    def row(run: int, model: Transformer) -> Fields:
        return part_costs(without_parts(model, a, b), n_long)

    rows = per_run(evidence.each(base.PRIMED, row))
    rows = rows.assign(
        head=rows["head"].map(heads.ablated_part),
        head_of_the_paper="head 0:0" if evidence.source == "author" else "",
    )
    return rows.rename(columns=COSTS)


def head_carries(measured: Fields, *, loss: float = CARRY_LOSS) -> bool:
    """Return True if the first layer's head of `primed_parts` carries at the long positions.

    Of the author's runs, it has to be the paper's head.
    """
    is_right_head = measured["head_of_the_paper"] in ("", measured["head"])
    return bool(is_right_head and measured["value"] > loss)


def mlp_corrects(measured: Fields, *, loss: float = PART_LOSS) -> bool:
    """Return True if digits without a carry-in need the final MLP of `primed_parts`."""
    return bool(measured["no_carry_cells_lose_without_the_final_MLP"] > loss)


def mlp_spares_long_carries(measured: Fields, *, loss: float = PART_LOSS) -> bool:
    """Return True if all digits but the carries at the long positions need the final MLP."""
    trained_suffer = measured["trained_carry_cells_lose"] > loss
    long_are_spared = measured["long_carry_cells_lose"] <= loss
    return bool(mlp_corrects(measured, loss=loss) and trained_suffer and long_are_spared)


def carry_axis_long(model: Transformer) -> Fields:
    """Correlation of the best direction in the leading plane, six-digit sums (App. H.1, H.2).

    The paper allows for the leading axis "or a linear combination of the two leading ones".
    """
    axes = neurons.singular_axes(model, *random_sums(model.config.width, RANDOM))
    return {"value": axes.plane, "leading_axis": axes.correlations[0]}


# ---- finetuning (App. H.2)

# Over the norm of the weights: below this distance they change little.
FINETUNING_DISTANCE = Bar(0.05, perfect=0)


def moved(before: nn.Module, after: nn.Module) -> pd.DataFrame:
    """Return each parameter's squared norm `before` and `after` finetuning, and of the `step`.

    (App. H.2.)
    """
    new_weights = dict(after.named_parameters())
    rows = {}
    for name, parameter in before.named_parameters():
        old = parameter.detach().double()
        new = new_weights[name].detach().double()
        rows[name] = {
            "before": float(old.square().sum()),
            "after": float(new.square().sum()),
            "step": float((new - old).square().sum()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def finetuned_pairs(
    before: Runs, after: Runs, epoch: int
) -> dict[int, tuple[Transformer, Transformer]]:
    """Return the model that each finetuned run started from, and the run itself.

    It started from the run of its number, or else from the last: the released run 1 started from
    the only other one, run 0.
    """
    pairs = {}
    for run in after.numbers:
        start = run if run in before.numbers else before.numbers[-1]
        pairs[run] = before.model(start, epoch), after.model(run)
    return pairs


def finetuning(evidence: Evidence) -> pd.DataFrame:
    """Distance that the weights move, over their norm, which hardly changes (App. H.2).

    Other fields are the squared norm before and after finetuning, and its relative change.
    """
    group, epoch = parent(base.FINETUNED)
    pairs = finetuned_pairs(evidence.group(group), evidence.group(base.FINETUNED), epoch)
    totals = pd.DataFrame(
        {run: moved(before, after).sum() for run, (before, after) in pairs.items()}
    ).T
    return pd.DataFrame(
        {
            "value": (totals.step / totals.before) ** 0.5,
            "change_of_squared_norm": totals.after / totals.before - 1,
            "norm_before": totals.before,
            "norm_after": totals.after,
        }
    )


barely_moves = below(FINETUNING_DISTANCE)

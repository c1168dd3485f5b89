"""Findings about parts of a model: heads, the final MLP, biases (Sec. 4, 5, App. A, C, D, H).

A finding is a plain function of one run's model, or of a survey of the run. It returns
the measured `value`, and whatever else it measures. The rule next to it decides whether
the run shows what the paper claims. So you can apply both to your own model:

    measured = heads.staircase(model)
    heads.has_staircase(measured)

    need = Need(frozenset(measure.last_heads(model)))
    heads.decision(survey(model, *all_sums(), need))

The constants are criteria; the `reason` of a claim in `data/claims.yml` justifies their values.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from carry_core import carries, measure
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.sums import Layout, Numbers, equal_sums
from carry_paper.findings.bars import Bar, at_least, below
from carry_paper.findings.base import N3, Fields
from carry_paper.findings.survey import Survey, random_sums
from carry_train.groups import GROUPS

# ---- tables of accuracies


def mean_over(table: ClassAccuracies, kind: str, *, carry: bool) -> float:
    """Return the mean over the cells with a carry-in, or over those without if `carry` is False.

    `kind` is "accuracy" or "corrected".
    """
    cells = getattr(table, kind)  # (carry_class, pos)
    carry_in = carries.carry_in(cells.shape[1])
    mask = carry_in if carry else ~carry_in
    return float(cells[mask].mean())


# Below this accuracy, a cell's carries count as lost (Tab. 4).
CARRY_LOST = Bar(0.1, perfect=0)
# Below this one, more of them are lost than are left (Tab. 3, 4, 5).
CARRY_MOSTLY_LOST = Bar(0.5, perfect=0)
C_ALL_CON_AT_8 = (4, 1)  # the cell of a table of three digits: class and position


def cells_left(table: ClassAccuracies, but: tuple[int, int] | None = None) -> Fields:
    """Return what an ablation leaves of the cells with a carry-in, and of the others.

    These are the mean accuracies of both kinds of cells, the highest of a cell with a carry-in and
    the lowest of one without. The cell `but`, a class and a position, is left out of those with a
    carry-in.
    """
    carry_in = carries.carry_in(table.accuracy.shape[1])
    is_counted = carry_in.clone()
    if but is not None:
        is_counted[but] = False
    with_carry_in = table.accuracy[is_counted].double()
    without = table.accuracy[~carry_in].double()
    return {
        "carry_cells": float(with_carry_in.mean()),
        "no_carry_cells": float(without.mean()),
        "highest_carry_cell": float(with_carry_in.max()),
        "lowest_no_carry_cell": float(without.min()),
    }


def lose_more(measured: Fields) -> bool:
    """Return True if by `cells_left` each cell with a carry-in loses more than any without."""
    return bool(measured["highest_carry_cell"] < measured["lowest_no_carry_cell"])


def loses_carries(measured: Fields, *, carry: float = CARRY_MOSTLY_LOST) -> bool:
    """Return True if by `cells_left` more carries are lost than are left, and little else is."""
    return bool(measured["carry_cells"] < carry and lose_more(measured))


def no_carry_reference(n_digits: int = 3) -> ClassAccuracies:
    """Return the table of a model that adds each column but never carries (Sec. 5, Fig. 5).

    Its exact match is NaN, since that depends on how often each class occurs.
    """
    carry_in = carries.carry_in(n_digits).float()
    return ClassAccuracies(accuracy=1 - carry_in, corrected=carry_in, exact_match=float("nan"))


# From this correlation on, a model counts as one that cannot carry (Sec. 4).
CANNOT_CARRY_CORRELATION = Bar(0.9, perfect=1)


def no_carry_correlation(
    table: ClassAccuracies, n_digits: int = 0, but: tuple[int, int] | None = None
) -> float:
    """Return the Pearson correlation with a model that never carries (the PCC of Sec. 5, Fig. 5).

    It is taken over both kinds of accuracy, at the last `n_digits` positions (all if
    0), without the cell `but`, a class and a position. It is NaN if all cells are equal.
    """
    reference = no_carry_reference(table.accuracy.shape[1])
    counts = torch.ones_like(table.accuracy, dtype=torch.bool)
    if but is not None:
        counts[but] = False
    counts = torch.cat([counts, counts])[:, -n_digits:]
    measured = torch.cat([table.accuracy, table.corrected])[:, -n_digits:][counts]
    expected = torch.cat([reference.accuracy, reference.corrected])[:, -n_digits:][counts]
    return torch.corrcoef(torch.stack([measured, expected]).double())[0, 1].item()


def no_carry_correlations(cells: pd.DataFrame) -> "pd.Series[float]":
    """Return `no_carry_correlation` by run, for the cells of one intervention."""
    correlations = {}
    for run, of_run in cells.groupby("run"):
        carry_in = of_run.carry_in.astype(float)
        measured = [*of_run.accuracy, *of_run.corrected]
        correlations[run] = np.corrcoef(measured, [*(1 - carry_in), *carry_in])[0, 1]
    return pd.Series(correlations, dtype=float)


# ---- the decision head (Sec. 4)


def worst_cells(table: ClassAccuracies) -> Fields:
    """Return the worst cells of a table, with a candidate decision head ablated (Tab. 1).

    These are the lowest accuracy of a cell with a carry-in, and the lowest share of digits that are
    correct or one too large, of a cell without one.
    """
    carry_in = carries.carry_in(table.accuracy.shape[1])
    # Without a carry-in, `corrected` is the share of digits that are one too large.
    correct_or_too_large = table.accuracy + table.corrected
    return {
        "lowest_carry_cell": table.accuracy[carry_in].min().item(),
        "lowest_right_or_too_large": correct_or_too_large[~carry_in].min().item(),
    }


# A part whose ablation costs fewer exact matches does not matter.
EXACT_MATCH_COST = Bar(0.1, perfect=0)
# A head that costs more exact matches than another, by as much, matters more than it does.
LEAST_LEAD = Bar(0.01, perfect=0)
# From this accuracy on, the digits of a cell count as correct.
CELL_ACCURACY = Bar(0.99, perfect=1)
STAYS_CORRECT = 0.9  # an ablation after which so many digits stay correct does little


def acts_as_decision_head(
    cost: float,
    worst: Fields,
    *,
    least_cost: float = EXACT_MATCH_COST,
    cell: float = CELL_ACCURACY,
) -> bool:
    """Return True if an ablation has the effect of ablating a decision head (Sec. 4, App. C.3).

    It costs exact matches, but digits with a carry-in stay correct, and the others are
    correct or one too large. So the model still adds each carry that is due, but also
    some that are not. `cost` is the share of exact matches, and `worst` has `worst_cells`.
    """
    return cost >= least_cost and adds_carries(worst, cell=cell)


def ablated_part(ablation: Ablation) -> str:
    """Return the name of what an ablation removes, such as `head 1:0`."""
    return str(ablation).removeprefix("without ")


def tendency(with_carry_in: float, without: float) -> str:
    """Return what a model does under an ablation: it "adds" carries, "forgets" them, or "little".

    It is told by the accuracy of digits with a carry-in and that of the others.
    """
    if (with_carry_in + without) / 2 >= STAYS_CORRECT:
        return "little"
    return "forgets" if with_carry_in < without else "adds"


def decision(survey: Survey) -> Fields:
    """Exact matches that the decision head costs, minus those of the other head (Sec. 4, Tab. 1).

    The survey has to cover `measure.last_heads`.
    """
    heads = survey.heads  # the decision head comes first
    exact_matches = [survey.cells[head].exact_match for head in heads]
    return {
        "value": exact_matches[-1] - exact_matches[0],
        "decision_head": ablated_part(heads[0]),
        "exact_match_without_each_head": exact_matches,
        **worst_cells(survey.cells[heads[0]]),
    }


matters_more = at_least(LEAST_LEAD)
carries_stay = at_least(CELL_ACCURACY, "lowest_carry_cell")
carries_are_added = at_least(CELL_ACCURACY, "lowest_right_or_too_large")


def decides(
    measured: Fields, *, least_cost: float = EXACT_MATCH_COST, cell: float = CELL_ACCURACY
) -> bool:
    """Return True if the decision head of `decision` decides where the model carries."""
    return acts_as_decision_head(measured["value"], measured, least_cost=least_cost, cell=cell)


def decoder(survey: Survey) -> Fields:
    """Share of digits one too large at 7 and 8 without a carry-in, decision head ablated (App. D).

    The survey has to cover `measure.last_heads`, on three-digit sums.
    """
    decision_head = survey.heads[0]
    without = survey.cells[decision_head]
    no_carry_in = ~carries.carry_in(3)  # (carry_class, pos)
    at_7 = without.corrected[no_carry_in[:, 0], 0]
    at_8 = without.corrected[no_carry_in[:, 1], 1]
    at_9 = without.corrected[no_carry_in[:, 2], 2]
    at_7_and_8 = torch.cat([at_7, at_8])
    return {
        "value": float(at_7_and_8.mean()),
        "decision_head": ablated_part(decision_head),
        "one_too_large_at_7": at_7.tolist(),
        "one_too_large_at_8": at_8.tolist(),
        "one_too_large_at_9": at_9.tolist(),
        **worst_cells(without),
    }


# From this share of a cell on, a carry is always added, if the paper is taken at its word (App. D).
ONE_TOO_LARGE = Bar(0.95, perfect=1)


def adds_carries(measured: Fields, *, cell: float = CELL_ACCURACY) -> bool:
    """Return True if without its decision head a model adds each due carry, and some others."""
    return carries_stay(measured, bar=cell) and carries_are_added(measured, bar=cell)


CLOSE_TO_LOWEST = 0.05  # in exact match
COMPARED_ON = 2_000  # random sums: the standard error is a fifth of what counts as close


def default_run(
    models: Iterable[tuple[int, Transformer]],
    run: int | None = None,
    decision_heads: Mapping[int, int] | None = None,
) -> int:
    """Return `run`, or if it is None, the run that a page shows by default.

    The default is the first run whose exact match without its decision head is close to
    the lowest of all runs. In the author's main group it is run 2, which the paper shows.
    `decision_heads` has `measure.decision_head` of each run, for a page that knows it already.
    """
    if run is not None:
        return run
    without_decision_head = {}
    for number, model in models:
        if decision_heads is None:
            decision_head = measure.decision_head(model)
        else:
            decision_head = decision_heads[number]
        a, b = random_sums(model.config.width, COMPARED_ON)
        ablation = measure.last_heads(model)[decision_head]
        (table,) = measure.class_accuracies(model, a, b, [ablation])
        without_decision_head[number] = table.exact_match
    highest = min(without_decision_head.values()) + CLOSE_TO_LOWEST
    return min(number for number, exact in without_decision_head.items() if exact <= highest)


# ---- three layers (App. C.3)

HEADS_OF_LAST_TWO_LAYERS = measure.last_heads(GROUPS[N3].config, layers=2)


def three_layers(survey: Survey) -> Fields:
    """Pearson correlation without the last MLP (App. C.3, Tab. 3).

    The paper notes that the model "does know how to deal with" `C all con.` at 8, so that cell is
    left out of the highest one.
    """
    table = survey.without_mlp
    return {
        "value": no_carry_correlation(table),
        **cells_left(table, but=C_ALL_CON_AT_8),
        "C_all_con_at_8": float(table.accuracy[C_ALL_CON_AT_8]),
    }


def three_layers_heads(survey: Survey) -> Fields:
    """Exact matches that the costliest head of the last two layers costs (App. C.3).

    The survey has to cover `INTACT` and `HEADS_OF_LAST_TWO_LAYERS`.
    """
    intact = survey.cells[INTACT]
    costs = []
    for head in HEADS_OF_LAST_TWO_LAYERS:
        costs.append(intact.exact_match - survey.cells[head].exact_match)
    return {"value": max(costs), "cost_of_heads_1:0_1:1_2:0_2:1": costs}


no_head_matters = below(EXACT_MATCH_COST)

# "The entire second layer attention and one of the two final attention heads" (App. C.3).
LAYER_1_AND_A_LAST_HEAD = (
    Ablation(heads={(1, 0), (1, 1), (2, 0)}),
    Ablation(heads={(1, 0), (1, 1), (2, 1)}),
)


def three_layers_pairs(survey: Survey) -> Fields:
    """Exact matches lost without layer 1's attention and the costlier head of layer 2 (App. C.3).

    The survey has to cover `INTACT` and `LAYER_1_AND_A_LAST_HEAD`.
    """
    intact = survey.cells[INTACT]
    tables = [survey.cells[pair] for pair in LAYER_1_AND_A_LAST_HEAD]
    exact_matches = [table.exact_match for table in tables]
    worst = pd.DataFrame([worst_cells(table) for table in tables])
    return {
        "value": intact.exact_match - min(exact_matches),
        "pairs": [ablated_part(pair) for pair in LAYER_1_AND_A_LAST_HEAD],
        "exact_match": exact_matches,
        "lowest_carry_cell": worst.lowest_carry_cell.tolist(),
        "lowest_right_or_too_large": worst.lowest_right_or_too_large.tolist(),
    }


def a_pair_decides(
    measured: Fields, *, least_cost: float = EXACT_MATCH_COST, cell: float = CELL_ACCURACY
) -> bool:
    """Return True if a pair of `three_layers_pairs` acts as a decision head."""
    # The value is the cost of the pair that leaves the fewest exact matches.
    intact = measured["value"] + min(measured["exact_match"])
    names = ("lowest_carry_cell", "lowest_right_or_too_large")
    of_pairs = zip(measured["exact_match"], *(measured[name] for name in names), strict=True)
    for exact_match, *cells in of_pairs:
        worst = dict(zip(names, cells, strict=True))
        if acts_as_decision_head(intact - exact_match, worst, least_cost=least_cost, cell=cell):
            return True
    return False


# ---- the final MLP (Sec. 4, 5)


def final_mlp_carries(survey: Survey) -> Fields:
    """Pearson correlation with a model that cannot carry (Sec. 4, Tab. 1)."""
    return {"value": no_carry_correlation(survey.without_mlp)}


cannot_carry = at_least(CANNOT_CARRY_CORRELATION)


@torch.inference_mode()
def carry_neurons(
    model: Transformer, a: Numbers, b: Numbers, n_digits: int | None = None
) -> Bool[Tensor, " neuron"]:
    """Return a mask of the final MLP's carry neurons, by the criterion z_i > z_NC (Sec. 5).

    Here z_i is a neuron's mean activation over the sums a + b of carry class i, at the
    first of the last `n_digits` answer digits (all if None). A neuron carries if the
    criterion holds for some i.
    """
    n_digits = n_digits or model.config.width
    name = f"blocks.{model.config.layers - 1}.mlp.post"
    position = model.config.layout.answer[-n_digits]
    post = measure.activations(model, a, b, [name], read=[position])[name][:, 0]  # (sums, neuron)

    carry_class = carries.classify(a, b, n_digits)
    means = []
    for i in range(len(carries.patterns(n_digits))):
        means.append(post[carry_class == i].double().mean(0))
    no_carry, *with_carry = means  # NC is the first class
    return (torch.stack(with_carry) > no_carry).any(0)


# Below this accuracy without the final MLP, a run needs it for more than carries (App. C.2, C.4).
# It is 1 less the cost from which on any part matters.
NO_CARRY_ACCURACY = Bar(1 - EXACT_MATCH_COST, perfect=1)


def wide_mlp(survey: Survey) -> Fields:
    """Accuracy of the no-carry cells without the final MLP (App. C.2)."""
    return {"value": mean_over(survey.without_mlp, "accuracy", carry=False)}


needs_whole_mlp = below(NO_CARRY_ACCURACY)


def wide_mlp_neurons(survey: Survey) -> Fields:
    """Accuracy of the cells with a carry-in without the carry neurons (App. C.2).

    The survey has to include the dissection: `Need(dissect=True)`.
    """
    assert survey.dissected is not None
    left = cells_left(survey.dissected.cells)
    return {
        "value": left["carry_cells"],
        "carry_neurons": survey.dissected.neurons,
        **left,
    }


def only_the_neurons_carry(measured: Fields, *, accuracy: float = NO_CARRY_ACCURACY) -> bool:
    """Return True if the neurons of `wide_mlp_neurons` are relevant for carrying, and little else.

    Without them digits with a carry-in lose as much as makes a part matter, the others do not, and
    each cell with a carry-in loses more than any without.
    """
    carries_suffer = measured["carry_cells"] < accuracy
    others_stay = measured["no_carry_cells"] >= accuracy
    return bool(carries_suffer and others_stay and lose_more(measured))


def full_ablation_works(
    measured: Fields,
    *,
    accuracy: float = NO_CARRY_ACCURACY,
    carry: float = CARRY_MOSTLY_LOST,
) -> bool:
    """Return True if without its final MLP, or its carry neurons, a run only fails to carry (C.2).

    It is judged by `cells_left`.

    Digits without a carry-in stay correct, by the accuracy that says for other groups whether a run
    can take the ablation, and of those with one more are lost than are left.
    """
    return bool(measured["no_carry_cells"] >= accuracy and measured["carry_cells"] < carry)


def correct_or_off_by_one(survey: Survey) -> Fields:
    """Lowest share of a cell without the final MLP that is correct or off by one (App. C.3)."""
    table = survey.without_mlp
    shares = (table.accuracy + table.corrected).double()
    return {"value": float(shares.min()), "mean": float(shares.mean())}


is_correct_or_off_by_one = at_least(CELL_ACCURACY)

# From this share on, most carries are lost.
MOST_CARRIES = 0.5


def dissection_control(survey: Survey) -> Fields:
    """Share of carries lost without the carry neurons, minus that without as many random ones.

    (Sec. 5.) A carry is lost if the digit is one too small. Shares are means over the cells with a
    carry-in; of several random sets, it is the one that loses most. The survey has to include the
    dissection.
    """
    assert survey.dissected is not None
    cells = survey.dissected.cells
    random = [draw.cells for draw in survey.random_samples]
    lost = mean_over(cells, "corrected", carry=True)
    lost_at_random = [mean_over(table, "corrected", carry=True) for table in random]
    return {
        "value": lost - max(lost_at_random),
        "neurons": survey.dissected.neurons,
        "carries_lost": lost,
        "carries_lost_without_random_ones": lost_at_random,
        "carry_cells_without_random_ones": [mean_over(t, "accuracy", carry=True) for t in random],
        "no_carry_cells_without_them": mean_over(cells, "accuracy", carry=False),
        "no_carry_cells_without_random_ones": [
            mean_over(table, "accuracy", carry=False) for table in random
        ],
    }


def only_carry_neurons_matter(measured: Fields, *, most: float = MOST_CARRIES) -> bool:
    """Return True if most carries are lost in `dissection_control`, but to no random set."""
    lost_at_random = max(measured["carries_lost_without_random_ones"])
    return bool(measured["carries_lost"] >= most > lost_at_random)


def with_final_mlp(head: Ablation) -> Ablation:
    """Return the ablation of a head of the last layer and of the MLP after it (Sec. 4)."""
    return Ablation(heads=head.heads, mlps=frozenset(layer for layer, _ in head.heads))


def joint_ablation(survey: Survey) -> Fields:
    """Accuracy without a carry-in at 7 and 8, decision head and final MLP ablated (Sec. 4).

    The survey has to cover `measure.last_heads`, and each of them `with_final_mlp`.
    """
    head = survey.heads[0]
    both = survey.cells[with_final_mlp(head)]
    no_carry_in = ~carries.carry_in(3)[:, :2]  # (carry_class, pos)

    def accuracy(table: ClassAccuracies) -> float:
        return float(table.accuracy[:, :2][no_carry_in].mean())

    return {
        "value": accuracy(both),
        "decision_head": ablated_part(head),
        "without_the_head_alone": accuracy(survey.cells[head]),
        "without_the_MLP_alone": accuracy(survey.without_mlp),
    }


adds_without_carrying = at_least(NO_CARRY_ACCURACY)


def cosine_spread(resid: Float[Tensor, "sums pos d_model"]) -> Float[Tensor, " pos"]:
    """Return the largest minus the smallest cosine between activations of two sums, by position."""
    unit = nn.functional.normalize(resid.double(), dim=-1).transpose(0, 1)  # (pos, sums, d_model)
    cosine = (unit @ unit.mT).flatten(1)  # (pos, sums * sums)
    return cosine.amax(1) - cosine.amin(1)


SQUASHED_OUTCOME = 74  # the paper's example


def squashing_ratio(model: Transformer, outcome: int = SQUASHED_OUTCOME) -> Float[Tensor, " pos"]:
    """Return the ratio of cosine spreads after and before the final MLP (Sec. 4, footnote).

    A ratio below one means that the MLP squashes the sums with this outcome together.

    Raises:
        BadInput: Fewer than two sums have this outcome.
    """
    last_layer = model.config.layers - 1
    before = f"blocks.{last_layer}.resid_mid"
    after = f"blocks.{last_layer}.resid_post"
    answer = list(model.config.layout.answer)

    a, b = equal_sums(outcome, model.config.width)
    resid = measure.activations(model, a, b, [before, after], read=answer)
    return cosine_spread(resid[after]) / cosine_spread(resid[before])


def squashing(model: Transformer) -> Fields:
    """Ratio of the cosine spread after the final MLP to that before, for outcome 74 (Sec. 4)."""
    ratio = squashing_ratio(model)
    return {"value": float(ratio.mean()), "at_7_8_9": ratio.tolist()}


def squashes(measured: Fields) -> bool:
    """Return True if the spread is smaller after the MLP at each answer position."""
    return all(ratio < 1 for ratio in measured["at_7_8_9"])


# ---- biases (App. A.1)


def bias_cost(model: Transformer, a: Numbers, b: Numbers) -> float:
    """Return the exact match lost when the biases of all linear layers are zeroed (App. A.1).

    LayerNorms keep their biases. The loss is negative if the model improves.
    """
    without_biases = deepcopy(model)
    for module in without_biases.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    before = measure.correct_digits(model, a, b).all(1).double().mean()
    after = measure.correct_digits(without_biases, a, b).all(1).double().mean()
    return float(before - after)


# A model that loses more exact matches needs its biases.
BIAS_COST = Bar(0.01, perfect=0)


def biases(model: Transformer) -> Fields:
    """Loss of exact matches with zeroed biases (App. A.1).

    The paper says that models of one layer need their biases and deeper models do not.
    """
    cost = bias_cost(model, *random_sums(model.config.width))
    return {"value": cost, "layers": model.config.layers}


def needs_biases(measured: Fields, *, cost: float = BIAS_COST) -> bool:
    """Return True if a model loses more than this without its biases."""
    return bool(measured["value"] > cost)


def spares_biases(measured: Fields, *, cost: float = BIAS_COST) -> bool:
    """Return True if a model loses no more than this without its biases."""
    return not needs_biases(measured, cost=cost)


# ---- attention (Sec. 4, Fig. 3)


def mean_attention(model: Transformer) -> Float[Tensor, "layer head query key"]:
    """Return the attention probabilities, averaged over random sums."""
    return measure.attention(model, *random_sums(model.config.width))


def partner_mass(
    pattern: Float[Tensor, "*batch query key"], layout: Layout
) -> Float[Tensor, "*batch digit"]:
    """Return each digit's attention to its partner: the staircase (Sec. 4, Fig. 3).

    The partner is the other number's digit in the same column. Digits of the first
    number come first. For a decoder there are only those of the second, since its first
    number cannot see the second.
    """
    first_number = torch.arange(layout.width)
    second_number = first_number + layout.width + 1  # after the plus sign
    second_to_first = pattern[..., second_number, first_number]
    if layout.causal:
        return second_to_first
    first_to_second = pattern[..., first_number, second_number]
    return torch.cat([first_to_second, second_to_first], -1)


def column_mass(
    pattern: Float[Tensor, "*batch query key"],
    layout: Layout,
    shift: int = 0,
    queries: Sequence[int] | None = None,
) -> Float[Tensor, "*batch pos"]:
    """Return the attention to the two digits that are `shift` columns to the right (Fig. 3).

    `queries` are the positions that attend, one for each column from the left; those
    that predict the answer if None. The attention is NaN where there is no such column.
    """
    mass = torch.full((*pattern.shape[:-2], layout.width), torch.nan)
    for position, query in enumerate(queries or layout.answer):
        column = position + shift
        if 0 <= column < layout.width:
            both_digits = [column, column + layout.width + 1]
            mass[..., position] = pattern[..., query, both_digits].sum(-1)
    return mass


def attention_of_heads(
    pattern: Float[Tensor, "layer head query key"], layout: Layout
) -> dict[tuple[str, str], float]:
    """Return the mean attention of each head to what its layer looks at (Sec. 4, Fig. 3).

    Returns:
        By what is looked at and by head, as `layer:head`: in all layers but the last, the
        digits' attention to their `partner`; in the last layer that of the answer's positions
        to the column `to the right` and to their `own column`. The last position has no column
        on its right, and is left out of both.
    """
    means = {}
    for layer, of_heads in enumerate(partner_mass(pattern[:-1], layout).mean(-1).tolist()):
        for head, mass in enumerate(of_heads):
            means["partner", f"{layer}:{head}"] = mass
    last = len(pattern) - 1
    for name, shift in (("to the right", 1), ("own column", 0)):
        mass_by_position = column_mass(pattern[-1], layout, shift)[:, :-1]
        for head, mass in enumerate(mass_by_position.mean(-1).tolist()):
            means[name, f"{last}:{head}"] = mass
    return means


# From this attention to its partner on, a digit is a step of a staircase. Uniform attention gives
# each of ten tokens a tenth.
PARTNER_ATTENTION = Bar(0.5, perfect=1, chance=0.1)


def staircase(model: Transformer) -> Fields:
    """Attention of the weakest digit row's best head to its partner (Sec. 4, Fig. 3)."""
    layout = model.config.layout
    first_layer = mean_attention(model)[0]  # (head, query, key)
    best_head = partner_mass(first_layer, layout).amax(0)  # (digit,)
    best_head_at_answer = column_mass(first_layer, layout).amax(0)  # (pos,)
    return {
        "value": float(best_head.min()),
        "at_answer_rows": float(best_head_at_answer.min()),
    }


def layer_staircases(model: Transformer) -> Fields:
    """Attention of the weakest step of each layer's staircase, the lower layer's (App. F, H).

    A staircase is of either kind: between the digits of a column, or from the answer rows to the
    two digits of their column (App. F, caption of the attention patterns). The last layer's, of
    which the paper shows the answer rows only, is of the second kind.
    """
    layout = model.config.layout
    attention = mean_attention(model)  # (layer, head, query, key)
    between_digits = partner_mass(attention, layout).amax(1).amin(-1)  # (layer,)
    at_answer_rows = column_mass(attention, layout).amax(1).amin(-1)
    strongest = at_answer_rows.clone()
    strongest[:-1] = torch.maximum(at_answer_rows, between_digits)[:-1]
    return {
        "value": float(strongest.min()),
        "at_answer_rows_by_layer": at_answer_rows.tolist(),
        "between_digits_by_layer": between_digits.tolist(),
    }


has_staircase = at_least(PARTNER_ATTENTION)


def share_to_the_right(
    pattern: Float[Tensor, "*batch query key"], layout: Layout
) -> Float[Tensor, "*batch column"]:
    """Return the attention to the column on the right as a share of that to it and one's own.

    The last position has no column on its right, and is left out (Fig. 21, 23).
    """
    own, right = column_mass(pattern, layout), column_mass(pattern, layout, 1)
    return (right / (own + right))[..., :-1]


def looks_right(
    own: Float[Tensor, "head pos"], right: Float[Tensor, "head pos"], head: int
) -> bool:
    """Return True if a head attends more to the column on its right than to its own.

    `own` and `right` are `column_mass` for shifts of 0 and 1 (Fig. 3, 15, 18, 23).
    """
    difference = (right - own)[head, :-1]  # the last position has no column on its right
    return bool(difference.mean() > 0)


def attends_most(mass: Float[Tensor, "head pos"], head: int, layout: Layout) -> bool:
    """Return True if a head attends to a column most, at each position.

    It gives the column's two digits more than any other head does, and more than uniform attention
    would. `mass` is that of `column_mass`.
    """
    uniform = 2 / layout.length  # two digits out of all tokens
    other_heads = torch.cat([mass[:head], mass[head + 1 :]]).amax(0)
    return bool(((mass[head] > uniform) & (mass[head] > other_heads)).all())


def previous_sum(model: Transformer) -> Fields:
    """Attention of the decision head to the digits one to the right, at 7 and 8 (Sec. 4, Fig. 3).

    With four digits, it is that at 9, 10 and 11 (App. F).
    """
    mass = last_layer_mass(model, shift=1)[:, :-1]  # the last position has no column on its right
    decision_head = measure.decision_head(model)
    return _fields_of_mass(model, mass, decision_head, decision_head)


def previous_sum_comes(measured: Fields) -> bool:
    """Return True if the decision head of `previous_sum` brings the previous sum."""
    mass = _stored_mass(measured)
    layout = Layout(mass.shape[1] + 1)  # a decoder's layout is as long
    return attends_most(mass, _stored_decision_head(measured), layout)


def own_column(model: Transformer) -> Fields:
    """Attention of the other head to the digits of its own column, at 7 and 8 (App. D).

    That is the head of the last layer, other than the decision head, with the most of it. At 9 the
    decision head has no column on its right to attend to.
    """
    mass = last_layer_mass(model, shift=0)[:, :-1]
    decision_head = measure.decision_head(model)
    by_head = mass.mean(1)
    by_head[decision_head] = -torch.inf
    return _fields_of_mass(model, mass, int(by_head.argmax()), decision_head)


def other_head_attends_to_own_column(measured: Fields) -> bool:
    """Return True if a head of `own_column` other than the decision head attends to it most."""
    mass = _stored_mass(measured)
    layout = Layout(mass.shape[1] + 1)
    others = [head for head in range(len(mass)) if head != _stored_decision_head(measured)]
    return any(attends_most(mass, head, layout) for head in others)


def last_layer_mass(model: Transformer, shift: int) -> Float[Tensor, "head pos"]:
    """Return `column_mass` of each head of the last layer, where the answer is predicted."""
    return column_mass(mean_attention(model)[-1], model.config.layout, shift)


def _fields_of_mass(
    model: Transformer,
    mass: Float[Tensor, "head pos"],
    head: int,
    decision_head: int,
) -> Fields:
    """Return the fields of a finding about attention, of which `head` gives the value."""
    layer = model.config.layers - 1
    positions = model.config.layout.position_names[: mass.shape[1]]
    where = "_".join(name.removeprefix("pos") for name in positions)
    fields = {
        "value": float(mass[head].mean()),
        "decision_head": f"{layer}:{decision_head}",
    }
    for i in range(model.config.heads):
        fields[f"head_{layer}:{i}_at_{where}"] = mass[i].tolist()
    return fields


def _stored_mass(measured: Fields) -> Float[Tensor, "head pos"]:
    """Return the attention of each head that is among the fields of a finding."""
    names = sorted(name for name in measured if name.startswith("head_"))
    return torch.tensor([measured[name] for name in names])


def _stored_decision_head(measured: Fields) -> int:
    """Return the number of the decision head in the last layer, from the fields of a finding."""
    return int(measured["decision_head"].partition(":")[2])


SUMS_PER_CLASS = 100  # as many as the page of Fig. 18 draws


def previous_sum_by_class(model: Transformer) -> Fields:
    """Attention of the decision head to where a carry comes from, in the lowest class (App. F).

    Where a class of sums has a carry-in, it comes from the column on the right.
    """
    width = model.config.width
    attention = measure.class_attention(model, carries.patterns(width), SUMS_PER_CLASS, seed=0)
    decision_head = measure.decision_head(model)
    mass = column_mass(
        attention[:, -1, decision_head], model.config.layout, shift=1
    )  # (carry_class, pos)
    at_carry_ins = mass[carries.carry_in(width)]
    return {
        "value": float(at_carry_ins.min()),
        "mean": float(at_carry_ins.mean()),
        "decision_head": f"{model.config.layers - 1}:{decision_head}",
    }


attends_where_carries_come_from = at_least(PARTNER_ATTENTION)

# Two heads are mostly similar if they share more of their attention than not.
SHARED_ATTENTION = Bar(0.5, perfect=1)


def first_layer_overlap(model: Transformer) -> Fields:
    """Share of attention that the heads of the first layer have in common, mean over rows (App. F).

    Of each row it is the sum over tokens of the smallest attention that a head gives.
    """
    first_layer = mean_attention(model)[0]  # (head, query, key)
    return {"value": float(first_layer.amin(0).sum(-1).mean())}


def heads_are_similar(measured: Fields, *, shared: float = SHARED_ATTENTION) -> bool:
    """Return True if the heads of `first_layer_overlap` share most of their attention."""
    return bool(measured["value"] > shared)

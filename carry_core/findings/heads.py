"""What heads, the final MLP and biases do: ablations (Sec. 4, App. C, D), attention (Fig. 3), squashing.

Thresholds say when a run shows a claim; why they are what they are is the `reason` of the claim's row.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from carry_core import carries, measure, sums
from carry_core.errors import check_whole
from carry_core.findings.base import DECODER, DFF1024, MAIN, N1, N3, Fields, Need, all_heads, finding, per_run
from carry_core.findings.survey import (
    FEWEST,
    Evidence,
    Survey,
    carry_neuron_mask,
    cosine_spread,
    random_sums,
    ranked_heads,
    without_mlp,
)
from carry_core.groups import GROUPS
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer, cache_hook
from carry_core.sums import Layout, equal_sums

EXACT_MATCH_COST = 0.1  # what a part has to cost to matter
CELL_ACCURACY = 0.99  # from here on the digits of a cell count as right
CARRY_LOST = 0.1  # accuracy of carry cells below which the carried one counts as lost
CARRY_MOSTLY_LOST = 0.5  # the same, for most of it (Tab. 4 and 5, which the paper gives number by number)
NO_CARRY_ACCURACY = 0.9  # without the final MLP; a run below cannot take that ablation (App. C.2, C.4)
ABLATION_CORRELATION = 0.95  # with a model that cannot carry, from which the full ablation "works" (App. C.2)
CANNOT_CARRY_CORRELATION = 0.9  # the same, from which nothing that carries is left (Sec. 4)
ONE_TOO_LARGE = 0.95  # share of a no-carry cell that counts as always, for a decoder (App. D)
BIAS_COST = 0.01  # of exact matches: what zeroed biases may cost a model that does not need them (App. A.1)
PARTNER_ATTENTION = 0.5  # of a digit's attention, to its partner: a step of a staircase
SQUASHED_OUTCOME = 74  # the paper's


# ---------------------------------------------------------------- the last layer, part by part


def head_pairs(config: ModelConfig) -> list[Ablation]:
    """The whole attention of the layer before the last, together with each head of the last layer (App. C.3).

    Raises:
        BadInput: as `last_heads`, for two layers.
    """
    heads = [part.heads for part in measure.last_heads(config, 2)]
    before = frozenset().union(*heads[: config.heads])
    return [Ablation(heads=before | head) for head in heads[config.heads :]]


@dataclass(frozen=True)
class LastLayer:
    """What becomes of the accuracies when a part of the last block is ablated (Tab. 1, 4 and 5, Sec. 4 and 5)."""

    intact: ClassAccuracies
    heads: tuple[ClassAccuracies, ...]  # without each head
    mlp: ClassAccuracies
    decision_head: int  # as `measure.decision_head`
    neurons: Bool[Tensor, " neuron"] | None = None  # the MLP's carry neurons, if they were asked for
    dissected: ClassAccuracies | None = None  # without these

    @property
    def decision(self) -> ClassAccuracies:
        return self.heads[self.decision_head]

    @property
    def other(self) -> ClassAccuracies:
        """Without the head that costs least."""
        return max(self.heads, key=lambda cells: cells.exact_match)


def ablate_last_layer(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    n_digits: int | None = None,
    chosen_on: tuple[Int[Tensor, " other"], Int[Tensor, " other"]] | None = None,
) -> LastLayer:
    """Accuracies intact, without each of the last block's heads, without its MLP, and without its carry neurons.

    Sums are classed by `n_digits` digits, the model's width if None; carry neurons are chosen on other sums, and left
    alone if there are none.
    """
    parts = [INTACT, *measure.last_heads(model), measure.final_mlp(model)]
    neurons = None if chosen_on is None else carry_neurons(model, *chosen_on, n_digits)
    if neurons is not None:
        parts.append(dissection(neurons, model.config.layers - 1))
    intact, *accuracies = measure.class_accuracies(model, a, b, parts, n_digits)
    heads, (mlp, *dissected) = accuracies[: model.config.heads], accuracies[model.config.heads :]
    return LastLayer(intact, tuple(heads), mlp, measure.decision_head(model), neurons, *dissected)


def decision_head_scores(found: ClassAccuracies) -> tuple[float, float]:
    """How nearly a model adds every one that it should and only ever errs by adding more of them (Tab. 1, Sec. 4).

    Returns:
        The lowest accuracy of a cell at which a one arrives, and the lowest share that is right or exactly one too
        large of any other cell: both 1 where a decision head is gone, as the paper has it.
    """
    arrives = carries.carry_in(found.accuracy.shape[1])
    either = found.accuracy + found.corrected
    return found.accuracy[arrives].min().item(), either[~arrives].min().item()


def mean_over(found: ClassAccuracies, kind: str, *, carry: bool) -> float:
    """Mean of the cells at which a one arrives, or of the others; `kind` is `accuracy` or `corrected`."""
    arrives = carries.carry_in(found.accuracy.shape[1])
    return float(getattr(found, kind)[arrives == carry].mean())


def no_carry_reference(n_digits: int = 3) -> ClassAccuracies:
    """What is expected of a model that adds every position right and never carries (Sec. 5, Fig. 5)."""
    arrives = carries.carry_in(n_digits).float()
    return ClassAccuracies(1 - arrives, arrives, exact_match=float("nan"))


def carry_neurons(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> Bool[Tensor, " neuron"]:
    """Neurons of the last MLP that are more active for some carry class than for NC (Sec. 5, Dissection).

    Mean activation after the ReLU at the first answer position, class by class.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    name, first = f"blocks.{config.layers - 1}.mlp.post", config.layout.answer[-n_digits]
    total = torch.zeros(len(carries.patterns(n_digits)), config.d_ff, dtype=torch.float64)
    count = torch.zeros(len(total))
    with torch.inference_mode():
        for part_a, part_b in zip(a.split(measure.BATCH), b.split(measure.BATCH), strict=True):
            kept: dict[str, Tensor] = {}
            model(sums.encode(part_a, part_b, config.layout), cache_hook(kept, name), read=[first])
            task = carries.classify(part_a, part_b, n_digits)
            total.index_add_(0, task, kept[name][:, 0].double())
            count += torch.bincount(task, minlength=len(total))
    return carry_neuron_mask(total / count.unsqueeze(-1))


def dissection(neurons: Bool[Tensor, " neuron"], layer: int) -> Ablation:
    """The ablation of the chosen neurons of a layer."""
    return Ablation(neurons=frozenset((layer, i) for i in neurons.nonzero().flatten().tolist()))


def shown_run(models: Iterable[tuple[int, Transformer]], run: int | None = None) -> int:
    """The run that a page shows, if not the given one: that whose decision head matters most, on a fixed draw.

    Of those within 0.05 exact match of it, the first. In the author's release of the main model this is run 2, the one
    that the paper shows.
    """
    if run is not None:
        return run
    without = {number: min(measure.exact_match_without_heads(model)) for number, model in models}
    return min(number for number, exact in without.items() if exact <= min(without.values()) + 0.05)


def like_no_carries(cells: pd.DataFrame) -> float:
    """Pearson correlation of `accuracy`'s cells with those of a model that adds right and never carries (Sec. 5)."""
    due = cells.carry_in.astype(float)
    return float(np.corrcoef([*cells.accuracy, *cells.corrected], [*(1 - due), *due])[0, 1])


def pearson(found: ClassAccuracies, expected: ClassAccuracies) -> float:
    """Pearson correlation over all accuracies and corrected accuracies; NaN if either side is constant."""
    pair = torch.stack([torch.cat([c.accuracy, c.corrected]).flatten().double() for c in (found, expected)])
    return torch.corrcoef(pair)[0, 1].item()


def no_carry_correlation(survey: Survey, group: str) -> float:
    """Correlation with a model that cannot carry, once the final MLP is gone (Sec. 5)."""
    cells = without_mlp(survey, group)
    return pearson(cells, no_carry_reference(cells.accuracy.shape[1]))


# ---------------------------------------------------------------- criteria


def decides(cost: float, without: ClassAccuracies) -> bool:
    """Whether a part decides (Sec. 4, App. C.3).

    Args:
        cost: how many more exact matches are lost without it.
        without: what is right without it: every one is added that should be, and the only mistake is to add more.
    """
    return cost >= EXACT_MATCH_COST and all(x >= CELL_ACCURACY for x in decision_head_scores(without))


def only_carrying_goes(carry: float, rest: float) -> bool:
    """Whether without the carry neurons the carried one is lost and nothing else (Sec. 5)."""
    return carry < CARRY_LOST and rest >= CELL_ACCURACY


def added_ones(without: ClassAccuracies) -> list[Float[Tensor, " task"]]:
    """By position, the share of one too large of each class to which no one arrives there (App. D, Tab. 5)."""
    arrives = carries.carry_in(without.corrected.shape[1])
    return [column[~side] for column, side in zip(without.corrected.unbind(1), arrives.unbind(1), strict=True)]


def brings_previous_sum(mass: Float[Tensor, "head pos"], head: int, layout: Layout) -> bool:
    """Whether at every position a head looks right more than others do, and than one that looks at all tokens alike.

    Args:
        mass: `column_mass` of the last layer, one column to the right, where there is one.
        head: the decision head.
        layout: of the sums.
    """
    others = torch.cat([mass[:head], mass[head + 1 :]]).amax(0)
    return bool(((mass[head] > 2 / layout.length) & (mass[head] > others)).all())


def looks_right(own: Float[Tensor, "head pos"], right: Float[Tensor, "head pos"], head: int) -> bool:
    """Whether a head looks more to the right than at its own column, averaged over positions (Fig. 3, 15, 18, 23).

    `own` and `right` are `column_mass` of the last layer, the second one column to the right.
    """
    return bool((right - own)[head, :-1].mean() > 0)  # the last position has no column to its right


# ---------------------------------------------------------------- ablations


def named(ablation: Ablation) -> str:
    """Which part an ablation is without."""
    return str(ablation).removeprefix("without ")


def decision(survey: Survey, group: str) -> Fields:
    """How many more exact matches a run's decision head costs than its other head, and what is right without it."""
    ranked = ranked_heads(survey, group)
    exact = [survey.cells[head].exact_match for head in ranked]
    carry, other = decision_head_scores(survey.cells[ranked[0]])
    return {
        "value": exact[-1] - exact[0],
        "shows": decides(exact[-1] - exact[0], survey.cells[ranked[0]]),
        "decision_head": named(ranked[0]),
        "exact_match_without_each_head": exact,
        "lowest_carry_cell": carry,
        "lowest_right_or_too_large": other,
    }


@finding("decision_head", MAIN, need=all_heads(MAIN))
def decision_head_costs(evidence: Evidence) -> pd.DataFrame:
    """How many more exact matches the decision head costs than the other (Sec. 4, Tab. 1)."""
    return per_run(evidence.surveys(MAIN), lambda survey: decision(survey, MAIN))


@finding("final_mlp_carries", MAIN, need=Need())
def final_mlp_carries(evidence: Evidence) -> pd.DataFrame:
    """Pearson correlation with a model that cannot carry (Sec. 4, Tab. 1)."""
    correlations = {run: no_carry_correlation(survey, MAIN) for run, survey in evidence.surveys(MAIN).items()}
    return per_run(correlations, lambda x: {"value": x, "shows": x >= CANNOT_CARRY_CORRELATION})


def costs(survey: Survey, parts: list[Ablation]) -> list[float]:
    """How many exact matches each part takes away."""
    return [survey.cells[INTACT].exact_match - survey.cells[part].exact_match for part in parts]


@finding("three_layers", N3, need=Need(frozenset([INTACT, *measure.last_heads(GROUPS[N3].config, 2)])))
def three_layers(evidence: Evidence) -> pd.DataFrame:
    """Pearson correlation without the last MLP (App. C.3, Tab. 3)."""

    def row(survey: Survey) -> Fields:
        lost, correlation = costs(survey, measure.last_heads(GROUPS[N3].config, 2)), no_carry_correlation(survey, N3)
        shows = correlation >= CANNOT_CARRY_CORRELATION and max(lost) < EXACT_MATCH_COST
        return {"value": correlation, "shows": shows, "cost_of_heads_1:0_1:1_2:0_2:1": lost}

    return per_run(evidence.surveys(N3), row)


PAIRS = head_pairs(GROUPS[N3].config)


@finding("three_layers_pairs", N3, need=Need(frozenset([INTACT, *PAIRS])))
def three_layers_pairs(evidence: Evidence) -> pd.DataFrame:
    """Exact matches that the costlier pair takes away: layer 1's attention and one head of layer 2 (App. C.3)."""

    def row(survey: Survey) -> Fields:
        without = [survey.cells[pair] for pair in PAIRS]
        carry, other = zip(*map(decision_head_scores, without), strict=True)
        return {
            "value": max(costs(survey, PAIRS)),
            "shows": any(map(decides, costs(survey, PAIRS), without)),
            "pairs": list(map(named, PAIRS)),
            "exact_match": [cells.exact_match for cells in without],
            "lowest_carry_cell": list(carry),
            "lowest_right_or_too_large": list(other),
        }

    return per_run(evidence.surveys(N3), row)


@finding("decoder", DECODER, need=all_heads(DECODER))
def decoder(evidence: Evidence) -> pd.DataFrame:
    """Share of answers that are one too large at 7 and 8 where no one arrives, without the decision head (App. D)."""

    def row(survey: Survey) -> Fields:
        head = ranked_heads(survey, DECODER)[0]
        added = added_ones(survey.cells[head])
        return {
            "value": float(torch.cat(added[:2]).mean()),
            "shows": bool(torch.cat(added[:-1]).min() >= ONE_TOO_LARGE),
            "decision_head": named(head),
            **{f"one_too_large_at_{7 + i}": column.tolist() for i, column in enumerate(added)},
            "lowest_right_or_too_large": decision_head_scores(survey.cells[head])[1],
        }

    return per_run(evidence.surveys(DECODER), row)


def bias_cost(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> float:
    """Share of exact matches that is lost if every linear layer's bias is zeroed, LayerNorm's kept (App. A.1)."""
    without = deepcopy(model)
    for module in without.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    before, after = (right_digits(one, a, b).all(1).double().mean() for one in (model, without))
    return float(before - after)


def right_digits(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Bool[Tensor, "sums pos"]:
    """Which digits of the answers are right, at every position of the model."""
    return measure.predict(model, a, b, [INTACT], model.config.width)[0] == sums.digits(a + b, model.config.width)


@finding("biases", N1, MAIN, among=MAIN)
def biases(evidence: Evidence) -> pd.DataFrame:
    """Loss of exact matches with zeroed biases, of one layer and of two; the mean is that of two (App. A.1)."""

    def of(group: str) -> pd.DataFrame:
        cost = evidence.each(group, lambda run, model: bias_cost(model, *random_sums()))
        return per_run(cost, lambda x: {"value": x, "shows": (x > BIAS_COST) == (group == N1)})

    return pd.concat({group: of(group) for group in (MAIN, N1)})


# ---------------------------------------------------------------- squashing


def squashing(model: Transformer, outcome: int = 74) -> Float[Tensor, " pos"]:
    """How much the final MLP squashes sums of equal outcome together, per answer position (Sec. 4).

    The `cosine_spread` of `sums.equal_sums` after the MLP, over that before; below one: squashed.
    """
    last = model.config.layers - 1
    a, b = sums.equal_sums(outcome, model.config.width)
    found = measure.activations(model, a, b, [f"blocks.{last}.resid_mid", f"blocks.{last}.resid_post"])
    before, after = (cosine_spread(x[:, list(model.config.layout.answer)]) for x in found.values())
    return after / before


def outcomes(step: int = 1, n_digits: int = 3) -> list[int]:
    """Every `step`-th outcome that has at least 20 sums a >= b, the paper's 74 among them.

    Raises:
        BadInput: the step is no positive whole number, or leaves 74 alone.
    """
    first, end = 2 * (FEWEST - 1), 10**n_digits
    most = max(SQUASHED_OUTCOME - first, end - 1 - SQUASHED_OUTCOME)
    check_whole("step", step, 1, most)
    return list(range(first + (SQUASHED_OUTCOME - first) % step, end, step))


def carry_differs(outcome: int, n_digits: int = 3) -> Bool[Tensor, " pos"]:
    """At which answer positions a one arrives in some of the sums a >= b with this outcome and not in others."""
    arrives = carries.carry_in(n_digits)[carries.classify(*equal_sums(outcome, n_digits), n_digits)]
    return arrives.any(0) & ~arrives.all(0)


@finding("squashing", MAIN, need=Need(squash=True))
def squashing_of_runs(evidence: Evidence) -> pd.DataFrame:
    """Ratio of the spread of cosines after the final MLP to that before, for the outcome 74 (Sec. 4)."""

    def row(survey: Survey) -> Fields:
        ratio, every = survey.squashing[SQUASHED_OUTCOME], torch.stack(list(survey.squashing.values()))
        below = (every < 1).double().mean(0).tolist()  # of all outcomes with at least 20 sums a >= b
        shows = bool((ratio < 1).all())
        return {
            "value": float(ratio.mean()),
            "shows": shows,
            "at_7_8_9": ratio.tolist(),
            "share_of_outcomes_below_one": below,
        }

    return per_run(evidence.surveys(MAIN), row)


# ---------------------------------------------------------------- attention


def partner_mass(pattern: Float[Tensor, "*batch query key"], layout: Layout) -> Float[Tensor, "*batch pos"]:
    """How much attention each digit's row puts on the other number's digit in its column: the staircase (Sec. 4).

    For the digits of a, which a decoder cannot let look at b and which are left out there, then those of b.
    """
    left = torch.arange(layout.width)
    right = left + layout.width + 1
    looks_back = pattern[..., right, left]
    return looks_back if layout.causal else torch.cat([pattern[..., left, right], looks_back], -1)


def column_mass(
    pattern: Float[Tensor, "*batch query key"], layout: Layout, shift: int = 0
) -> Float[Tensor, "*batch pos"]:
    """How much attention each answer row puts on the two digits of the column `shift` to the right of its own.

    NaN where there is no such column.
    """
    mass = torch.full((*pattern.shape[:-2], layout.width), torch.nan)
    for i, row in enumerate(layout.answer):
        if 0 <= i + shift < layout.width:
            keys = [i + shift, i + shift + layout.width + 1]
            mass[..., i] = pattern[..., row, keys].sum(-1)
    return mass


def mean_attention(run: int, model: Transformer) -> Float[Tensor, "layer head query key"]:
    """Attention averaged over random sums."""
    return measure.attention(model, *random_sums())


@finding("staircase", MAIN)
def staircase(evidence: Evidence) -> pd.DataFrame:
    """Attention of the weakest digit row's best head to its partner (Sec. 4, Fig. 3)."""
    layout = GROUPS[MAIN].config.layout

    def row(pattern: Float[Tensor, "layer head query key"]) -> Fields:
        weakest = float(partner_mass(pattern[0], layout).amax(0).min())
        at_answer = float(column_mass(pattern[0], layout).amax(0).min())
        return {"value": weakest, "shows": weakest >= PARTNER_ATTENTION, "at_answer_rows": at_answer}

    return per_run(evidence.each(MAIN, mean_attention), row)


@finding("previous_sum", MAIN, need=all_heads(MAIN))
def previous_sum(evidence: Evidence) -> pd.DataFrame:
    """Attention of the decision head to the digits one to the right, at 7 and 8 (Sec. 4, Fig. 3)."""
    rows, layout = {}, GROUPS[MAIN].config.layout
    for run, pattern in evidence.each(MAIN, mean_attention).items():
        mass = column_mass(pattern[-1], layout, shift=1)[:, :2]
        ((_, head),) = ranked_heads(evidence.surveys(MAIN)[run], MAIN)[0].heads
        rows[run] = {
            "value": float(mass[head].mean()),
            "shows": brings_previous_sum(mass, head, layout),
            "decision_head": f"1:{head}",
            **{f"head_1:{h}_at_7_8": mass[h].tolist() for h in range(len(mass))},
        }
    return per_run(rows, dict)


# ---------------------------------------------------------------- a wider MLP


@finding("wide_mlp", DFF1024, need=Need(dissect=True))
def wide_mlp(evidence: Evidence) -> pd.DataFrame:
    """Accuracy of the no-carry cells without the final MLP (App. C.2)."""

    def row(survey: Survey) -> Fields:
        assert survey.dissected is not None
        kept = mean_over(without_mlp(survey, DFF1024), "accuracy", carry=False)
        rest, carry = (mean_over(survey.dissected.cells, "accuracy", carry=c) for c in (False, True))
        return {
            "value": kept,
            "shows": kept < NO_CARRY_ACCURACY and only_carrying_goes(carry, rest),
            "carry_neurons": survey.dissected.neurons,
            "no_carry_cells_without_them": rest,
            "carry_cells_without_them": carry,
        }

    return per_run(evidence.surveys(DFF1024), row)

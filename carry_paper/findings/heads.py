"""What heads, the final MLP and biases do: ablations (Sec. 4, App. C, D), attention (Fig. 3), squashing.

Thresholds say when a run shows a claim; why they are what they are is the `reason` of the claim's
row.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from carry_core import carries, measure, sums
from carry_core.groups import GROUPS
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.sums import Layout, Numbers
from carry_paper.findings import base
from carry_paper.findings.base import Fields, Need, finding, finding_of_runs
from carry_paper.findings.survey import Evidence, Survey, random_sums

EXACT_MATCH_COST = 0.1  # what a part has to cost to matter
CELL_ACCURACY = 0.99  # from here on the digits of a cell count as right
CARRY_LOST = 0.1  # accuracy of carry cells below which the carried one counts as lost
# the same, for most of it (Tab. 4 and 5, which the paper gives number by number)
CARRY_MOSTLY_LOST = 0.5
# without the final MLP; a run below cannot take that ablation (App. C.2, C.4)
NO_CARRY_ACCURACY = 0.9
# with a model that cannot carry, from which the full ablation "works" (App. C.2)
ABLATION_CORRELATION = 0.95
CANNOT_CARRY_CORRELATION = 0.9  # the same, from which nothing that carries is left (Sec. 4)
ONE_TOO_LARGE = 0.95  # share of a no-carry cell that counts as always, for a decoder (App. D)
# of exact matches: what zeroed biases may cost a model that does not need them (App. A.1)
BIAS_COST = 0.01
PARTNER_ATTENTION = 0.5  # of a digit's attention, to its partner: a step of a staircase
SQUASHED_OUTCOME = 74  # the paper's


def decision_head_scores(found: ClassAccuracies) -> tuple[float, float]:
    """The lowest accuracy of a cell with a carry-in, and the lowest share right or one too large of others (Tab. 1)."""
    carry_in = carries.carry_in(found.accuracy.shape[1])
    # both are 1 where a decision head is gone, as the paper has it
    either = found.accuracy + found.corrected
    return found.accuracy[carry_in].min().item(), either[~carry_in].min().item()


def mean_over(found: ClassAccuracies, kind: str, *, carry: bool) -> float:
    """Mean of the cells with a carry-in, or of the others; `kind` is `accuracy` or `corrected`."""
    return float(getattr(found, kind)[carries.carry_in(found.accuracy.shape[1]) == carry].mean())


def no_carry_reference(n_digits: int = 3) -> ClassAccuracies:
    """What is expected of a model that adds every position right and never carries (Sec. 5, Fig. 5)."""
    carry_in = carries.carry_in(n_digits).float()
    return ClassAccuracies(1 - carry_in, carry_in, exact_match=float("nan"))


@torch.inference_mode()
def carry_neurons(
    model: Transformer, a: Numbers, b: Numbers, n_digits: int | None = None
) -> Bool[Tensor, " neuron"]:
    """Neurons of the last MLP that are more active at the first answer digit for some class than for NC (Sec. 5)."""
    n_digits = n_digits or model.config.width
    name, first = (
        f"blocks.{model.config.layers - 1}.mlp.post",
        model.config.layout.answer[-n_digits],
    )
    post = measure.activations(model, a, b, [name], read=[first])[name][:, 0]
    task, n_classes = carries.classify(a, b, n_digits), len(carries.patterns(n_digits))
    mean = torch.stack([post[task == i].double().mean(0) for i in range(n_classes)])
    return (mean[1:] > mean[0]).any(0)


def shown_run(models: Iterable[tuple[int, Transformer]], run: int | None = None) -> int:
    """The run that a page shows if none is given: the first within 0.05 exact match of the costliest decision head."""
    if run is not None:
        return run
    # of the author's runs of the main model it is run 2, the one that the paper shows
    without = {number: min(measure.exact_match_without_heads(model)) for number, model in models}
    return min(number for number, exact in without.items() if exact <= min(without.values()) + 0.05)


def like_no_carries(cells: pd.DataFrame) -> float:
    """Pearson correlation of `accuracy`'s cells with those of a model that adds right and never carries (Sec. 5)."""
    due = cells.carry_in.astype(float)
    return float(np.corrcoef([*cells.accuracy, *cells.corrected], [*(1 - due), *due])[0, 1])


def no_carry_correlation(cells: ClassAccuracies, n_digits: int = 0) -> float:
    """As `like_no_carries`, at the last `n_digits` positions, all if 0; NaN if all cells are the same."""
    pair = (cells, no_carry_reference(cells.accuracy.shape[1]))
    flat = [torch.cat([c.accuracy, c.corrected])[:, -n_digits:].flatten().double() for c in pair]
    return torch.corrcoef(torch.stack(flat))[0, 1].item()


def decides(cost: float, lowest_carry_cell: float, lowest_right_or_too_large: float) -> bool:
    """Tell whether a part decides, by the exact matches that it costs and what is right without it (Sec. 4, App. C.3).

    The two lowest cells are `decision_head_scores` without the part.
    """
    right = min(lowest_carry_cell, lowest_right_or_too_large)
    return cost >= EXACT_MATCH_COST and right >= CELL_ACCURACY


def brings_previous_sum(mass: Float[Tensor, "head pos"], head: int, layout: Layout) -> bool:
    """Whether a head's `column_mass` one to the right is everywhere above all others', and above that of chance."""
    others = torch.cat([mass[:head], mass[head + 1 :]]).amax(0)
    return bool(((mass[head] > 2 / layout.length) & (mass[head] > others)).all())


def looks_right(
    own: Float[Tensor, "head pos"], right: Float[Tensor, "head pos"], head: int
) -> bool:
    """Whether a head's `column_mass` is larger one to the right, averaged over positions (Fig. 3, 15, 18, 23)."""
    return bool((right - own)[head, :-1].mean() > 0)  # the last position has no column to its right


def named(ablation: Ablation) -> str:
    """Which part an ablation is without."""
    return str(ablation).removeprefix("without ")


def decision(survey: Survey) -> Fields:
    """How many more exact matches the decision head costs than the other (Sec. 4, Tab. 1)."""
    exact = [survey.cells[head].exact_match for head in survey.heads]
    without = survey.cells[survey.heads[0]]
    carry, other = decision_head_scores(without)
    return {
        "value": exact[-1] - exact[0],
        "decision_head": named(survey.heads[0]),
        "exact_match_without_each_head": exact,
        "lowest_carry_cell": carry,
        "lowest_right_or_too_large": other,
    }


def decision_head_decides(row: Fields) -> bool:
    """Tell whether the costliest head decides, from the row that `decision` gives."""
    return decides(row["value"], row["lowest_carry_cell"], row["lowest_right_or_too_large"])


decision_head_costs = finding_of_runs(
    "decision_head",
    base.MAIN,
    need=base.all_heads(base.MAIN),
    rule=decision_head_decides,
)(decision)


@finding_of_runs(
    "final_mlp_carries", base.MAIN, need=Need(), rule=base.at_least(CANNOT_CARRY_CORRELATION)
)
def final_mlp_carries(survey: Survey) -> Fields:
    """Pearson correlation with a model that cannot carry (Sec. 4, Tab. 1)."""
    return {"value": no_carry_correlation(survey.without_mlp)}


SINGLE = measure.last_heads(GROUPS[base.N3].config, 2)
PAIRS = [Ablation(heads={(1, 0), (1, 1), (2, head)}) for head in (0, 1)]


@finding_of_runs("three_layers", base.N3, need=Need(frozenset([INTACT, *SINGLE])))
def three_layers(survey: Survey) -> Fields:
    """Pearson correlation without the last MLP (App. C.3, Tab. 3)."""
    lost = [survey.cells[INTACT].exact_match - survey.cells[head].exact_match for head in SINGLE]
    correlation = no_carry_correlation(survey.without_mlp)
    shows = correlation >= CANNOT_CARRY_CORRELATION and max(lost) < EXACT_MATCH_COST
    return {"value": correlation, "shows": shows, "cost_of_heads_1:0_1:1_2:0_2:1": lost}


@finding_of_runs("three_layers_pairs", base.N3, need=Need(frozenset([INTACT, *PAIRS])))
def three_layers_pairs(survey: Survey) -> Fields:
    """Exact matches that the costlier pair takes away: layer 1's attention and one head of layer 2 (App. C.3)."""
    without = [survey.cells[pair] for pair in PAIRS]
    lost = [survey.cells[INTACT].exact_match - cells.exact_match for cells in without]
    carry, other = zip(*map(decision_head_scores, without), strict=True)
    return {
        "value": max(lost),
        "shows": any(map(decides, lost, carry, other)),
        "pairs": list(map(named, PAIRS)),
        "exact_match": [cells.exact_match for cells in without],
        "lowest_carry_cell": list(carry),
        "lowest_right_or_too_large": list(other),
    }


@finding_of_runs("decoder", base.DECODER, need=base.all_heads(base.DECODER))
def decoder(survey: Survey) -> Fields:
    """Share of answers that are one too large at 7 and 8 where no one arrives, without the decision head (App. D)."""
    without = survey.cells[survey.heads[0]]
    added = [x[~side] for x, side in zip(without.corrected.T, carries.carry_in(3).T, strict=True)]
    return {
        "value": float(torch.cat(added[:2]).mean()),
        "shows": bool(torch.cat(added[:-1]).min() >= ONE_TOO_LARGE),
        "decision_head": named(survey.heads[0]),
        **{f"one_too_large_at_{7 + i}": column.tolist() for i, column in enumerate(added)},
        "lowest_right_or_too_large": decision_head_scores(without)[1],
    }


def bias_cost(model: Transformer, a: Numbers, b: Numbers) -> float:
    """Share of exact matches that is lost if every linear layer's bias is zeroed, LayerNorm's kept (App. A.1)."""
    without = deepcopy(model)
    for module in without.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    before, after = (right_digits(one, a, b).all(1).double().mean() for one in (model, without))
    return float(before - after)


def right_digits(model: Transformer, a: Numbers, b: Numbers) -> Bool[Tensor, "sums pos"]:
    """Which digits of the answers are right, at every position of the model."""
    return measure.predict(model, a, b)[0] == sums.digits(a + b, model.config.width)


def needs_biases(row: Fields) -> bool:
    """Tell whether a run needs its biases as the paper says: those of one layer do, those of two do not."""
    return bool((row["value"] > BIAS_COST) == (row["group"] == base.N1))


@finding("biases", base.N1, base.MAIN, among=base.MAIN, rule=needs_biases)
def biases(evidence: Evidence) -> pd.DataFrame:
    """Loss of exact matches with zeroed biases, of one layer and of two; the mean is that of two (App. A.1)."""
    drawn = random_sums()
    costs = {
        g: pd.Series(evidence.each(g, lambda run, model: bias_cost(model, *drawn)))
        for g in (base.MAIN, base.N1)
    }
    rows = pd.concat(costs).to_frame("value")
    return rows.assign(group=rows.index.get_level_values(0))


def cosine_spread(x: Float[Tensor, "sums pos d_model"]) -> Float[Tensor, " pos"]:
    """The largest minus the smallest cosine between the streams of any two sums, position by position."""
    x = nn.functional.normalize(x.double(), dim=-1).transpose(0, 1)
    cosine = (x @ x.mT).flatten(1)
    return cosine.amax(1) - cosine.amin(1)


def squashing(model: Transformer, outcome: int = SQUASHED_OUTCOME) -> Float[Tensor, " pos"]:
    """Cosine spread of the sums to an outcome after the final MLP over that before; below one: squashed (Sec. 4)."""
    names = [f"blocks.{model.config.layers - 1}.{point}" for point in ("resid_mid", "resid_post")]
    a, b = sums.equal_sums(outcome, model.config.width)
    streams = measure.activations(model, a, b, names).values()
    before, after = (cosine_spread(x[:, list(model.config.layout.answer)]) for x in streams)
    return after / before


def squashes(row: Fields) -> bool:
    """Tell whether the spread is smaller after the MLP at each answer position."""
    return all(ratio < 1 for ratio in row["at_7_8_9"])


@finding_of_runs("squashing", base.MAIN, rule=squashes)
def squashing_of_runs(model: Transformer) -> Fields:
    """Ratio of the spread of cosines after the final MLP to that before, for the outcome 74 (Sec. 4)."""
    ratio = squashing(model)
    return {"value": float(ratio.mean()), "at_7_8_9": ratio.tolist()}


def partner_mass(
    pattern: Float[Tensor, "*batch query key"], layout: Layout
) -> Float[Tensor, "*batch pos"]:
    """How much attention each digit puts on the other number's digit in its column: the staircase (Sec. 4)."""
    left = torch.arange(layout.width)
    right = left + layout.width + 1
    looks_back = pattern[..., right, left]  # in a decoder the first number cannot see the second
    return looks_back if layout.causal else torch.cat([pattern[..., left, right], looks_back], -1)


def column_mass(
    pattern: Float[Tensor, "*batch query key"],
    layout: Layout,
    shift: int = 0,
    rows: Sequence[int] | None = None,
) -> Float[Tensor, "*batch pos"]:
    """How much attention each column's row, the answer's if None, puts on the digits `shift` columns to its right."""
    mass = torch.full((*pattern.shape[:-2], layout.width), torch.nan)
    for i, row in enumerate(rows or layout.answer):
        if 0 <= i + shift < layout.width:
            mass[..., i] = pattern[..., row, [i + shift, i + shift + layout.width + 1]].sum(-1)
    return mass


def mean_attention(model: Transformer) -> Float[Tensor, "layer head query key"]:
    """Attention averaged over random sums."""
    return measure.attention(model, *random_sums(model.config.width))


@finding_of_runs(
    "staircase",
    base.MAIN,
    ("decoder_staircase", base.DECODER, None),
    ("unprimed_staircase", base.PAD6, 500),
    ("primed_staircase", base.PRIMED, None),
    rule=base.at_least(PARTNER_ATTENTION),
)
def staircase(model: Transformer) -> Fields:
    """Attention of the weakest digit row's best head to its partner (Sec. 4, Fig. 3)."""
    first, layout = mean_attention(model)[0], model.config.layout
    weakest, at_answer = (
        float(x.amax(0).min()) for x in (partner_mass(first, layout), column_mass(first, layout))
    )
    return {"value": weakest, "at_answer_rows": at_answer}


def previous_sum_comes(row: Fields) -> bool:
    """Tell whether the decision head brings the previous sum, from the row that `previous_sum` gives."""
    mass = [row[name] for name in sorted(row) if name.startswith("head_1:")]
    head = int(row["decision_head"].removeprefix("1:"))
    return brings_previous_sum(torch.tensor(mass), head, Layout())  # a decoder's layout is as long


@finding_of_runs(
    "previous_sum",
    base.MAIN,
    ("decoder_previous_sum", base.DECODER, None),
    rule=previous_sum_comes,
)
def previous_sum(model: Transformer) -> Fields:
    """Attention of the decision head to the digits one to the right, at 7 and 8 (Sec. 4, Fig. 3)."""
    mass = column_mass(mean_attention(model)[-1], model.config.layout, shift=1)[:, :2]
    head = measure.decision_head(model)
    return {
        "value": float(mass[head].mean()),
        "decision_head": f"1:{head}",
        **{f"head_1:{h}_at_7_8": mass[h].tolist() for h in range(len(mass))},
    }


@finding_of_runs("wide_mlp", base.DFF1024, need=Need(dissect=True))
def wide_mlp(survey: Survey) -> Fields:
    """Accuracy of the no-carry cells without the final MLP (App. C.2)."""
    assert survey.dissected is not None
    kept = mean_over(survey.without_mlp, "accuracy", carry=False)
    rest, carry = (mean_over(survey.dissected.cells, "accuracy", carry=c) for c in (False, True))
    return {
        "value": kept,
        "shows": kept < NO_CARRY_ACCURACY and carry < CARRY_LOST and rest >= CELL_ACCURACY,
        "carry_neurons": survey.dissected.neurons,
        "no_carry_cells_without_them": rest,
        "carry_cells_without_them": carry,
    }

"""When a run shows what the paper claims in words: each criterion once, for the ledger and for the pages alike.

What is measured stands in `measure`, `geometry` and `neurons`; why a criterion is what it is, in the `reason` of its
row in `data/claims.yml`. Those of learning curves stand in `dynamics`, those of longer sums in `roles` and
`forgetting`, that of the full adder in `ledger.structure`.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from carry_core import measure, tasks
from carry_core.measure import Cells
from carry_core.sums import Layout

COSTS = 0.1  # of the whole answers: what a part has to cost to matter
SURE = 0.99  # of the digits of a cell: from here on they count as right
GONE = 0.1  # of the digits of the carry cells: below it the carried one counts as lost
HALF = 0.5  # of the digits of the carry cells: below it most of them are lost
UNABLE = 0.9  # no-carry accuracy without the final MLP below which a run cannot take that (App. C.2, C.4)
WORKS = 0.95  # Pearson correlation with the same model from which ablating the whole final MLP "works" (App. C.2)
CANNOT_CARRY = 0.9  # Pearson correlation with a model that cannot carry: without the final MLP that is what is left
ALWAYS = 0.95  # of the digits of a no-carry cell: one too large so often is always, for a decoder (App. D)
BIASES = 0.01  # of the whole answers: what zeroed biases may cost a model that does not need them (App. A.1)
FAILS = 0.05  # of the whole answers, on sums of a length that the weights were not trained on: below it they fail
MOVED = 0.05  # of the norm of the weights: what finetuning has to move them by to change them much (App. H.2)
STAIRCASE = 0.5  # of a digit's attention, to its partner
SEPARATES = 0.95  # balanced accuracy of a threshold from which an axis separates two kinds of sums
CARRY_AXIS = 0.7  # size of the correlation from which an axis is a carry axis
BOARD = 0.1  # gap between cosines within and across carry status that makes a checkerboard


def matters(cost: float) -> bool:
    """Whether a part costs so much of the whole answers that it matters."""
    return cost >= COSTS


def adds_every_one(without: Cells) -> bool:
    """Whether every cell at which a one arrives stays right (the first half of `finding/decision_head`)."""
    return measure.decision_pattern(without)[0] >= SURE


def decides(cost: float, without: Cells) -> bool:
    """Whether a part decides (`finding/decision_head`, `three_layers_pairs`): Sec. 4, App. C.3.

    Args:
        cost: how many more of the whole answers are lost without it.
        without: what is right without it: every one is added that should be, and the only mistake is to add more.
    """
    return matters(cost) and all(share >= SURE for share in measure.decision_pattern(without))


def cannot_carry(correlation: float) -> bool:
    """Whether what is left without the final MLP is a model that cannot carry (`finding/final_mlp_carries`): Sec. 4."""
    return correlation >= CANNOT_CARRY


def ablation_works(correlation: float) -> bool:
    """Whether ablating the final MLP, or neurons of it, takes carrying away and nothing else: App. C.2.

    For `n2_w0/runs_full_mlp_ablation_works`, which the paper counts without a criterion.
    """
    return correlation >= WORKS


def only_carrying_goes(carry: float, rest: float) -> bool:
    """Whether without the carry neurons the carried one is lost and nothing else (`finding/wide_mlp`): Sec. 5."""
    return carry < GONE and rest >= SURE


def unable(rest: float) -> bool:
    """Whether a run cannot take the full ablation, from the no-carry accuracy without its final MLP (App. C.2, C.4)."""
    return rest < UNABLE


def most_carrying_goes(carry: float) -> bool:
    """Whether most digits to which a one arrives are lost, for Tab. 4 and 5, which the paper gives number by number."""
    return carry < HALF


def added_ones(without: Cells) -> list[Float[Tensor, " task"]]:
    """By position, the share of one too large of each class to which no one arrives there (App. D, Tab. 5)."""
    arrives = tasks.carry_arrives(without.corrected.shape[1])
    return [column[~side] for column, side in zip(without.corrected.unbind(1), arrives.unbind(1), strict=True)]


def always_adds(without: Cells) -> bool:
    """Whether a one is added wherever it could be, in every class (`finding/decoder`): App. D."""
    return float(torch.cat(added_ones(without)[:-1]).min()) >= ALWAYS


def needs_biases(cost: float) -> bool:
    """Whether a model needs its biases (`finding/biases`): App. A.1."""
    return cost > BIASES


def fails(accuracy: float) -> bool:
    """Whether a model fails at sums of a length that it was not trained on (`finding/unpadded_fail`): App. H."""
    return accuracy < FAILS


def changes_little(distance: float) -> bool:
    """Whether finetuning changes the weights little (`finding/finetune_small_change`): App. H.2.

    Args:
        distance: how far they move, over their norm.
    """
    return distance < MOVED


def staircase(mass: Float[Tensor, "head digit"]) -> bool:
    """Whether every digit has a head that looks at its partner (`finding/staircase`): Sec. 4.

    Args:
        mass: `measure.partner_mass` of a layer.
    """
    return bool((mass.amax(0) >= STAIRCASE).all())


def brings_previous_sum(mass: Float[Tensor, "head pos"], head: int, layout: Layout) -> bool:
    """Whether a head looks right more than others do, and than one that looks at everything alike would.

    At every given position (`finding/previous_sum`): Sec. 4.

    Args:
        mass: `measure.column_mass` of the last layer, one column to the right, where there is one.
        head: the decision head.
        layout: of the sums; a head that looks at all their tokens alike gives two of them to that column.
    """
    others = torch.cat([mass[:head], mass[head + 1 :]]).amax(0)
    return bool(((mass[head] > 2 / layout.length) & (mass[head] > others)).all())


def looks_right(own: Float[Tensor, "head pos"], right: Float[Tensor, "head pos"], head: int) -> bool:
    """Whether a head looks more to the right than at its own column, averaged over positions (Fig. 3, 15, 18, 23).

    Args:
        own: `measure.column_mass` of the last layer.
        right: the same, one column to the right.
        head: the decision head.
    """
    return bool((right - own)[head, :-1].mean() > 0)  # the last position has no column to its right


def leading_axis_separates(scores: Iterable[Sequence[float]]) -> bool:
    """Whether the leading axis separates at each position, and is the one that does so best.

    For `finding/layer0_tens` and `layer1_carry`: Sec. 4.1.

    Args:
        scores: at each position, how well a threshold on each axis tells.
    """
    return all(axes[0] >= SEPARATES and axes[0] == max(axes) for axes in scores)


def by_outcome(pockets: Iterable[tuple[float, float]]) -> bool:
    """Whether sums lie by their digit more than by their class, at each position (`finding/outcome_pockets`): Sec. 4.1.

    Args:
        pockets: `geometry.pocket_accuracy` for the digit and for the class.
    """
    return all(digit > task for digit, task in pockets)


def loses_order(order: float, decayed: Iterable[float]) -> bool:
    """Whether the digits of a run are less in order than those of every run with weight decay.

    For `finding/decay_matters_one_layer`: App. B, C.1. Both are `geometry.mean_order`.
    """
    return order < min(decayed)


def carry_axis(correlation: float) -> bool:
    """Whether an axis is a carry axis (`finding/carry_axis`): Sec. 5."""
    return correlation >= CARRY_AXIS


def checkerboard(before: float, after: float) -> bool:
    """Whether ablation makes a checkerboard of the cosines (`finding/checkerboard`): Sec. 5.

    Args:
        before: the gap between cosines within and across carry status, intact.
        after: the same without the carry neurons.
    """
    return after > BOARD and after > before

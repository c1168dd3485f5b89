"""The numbers that the paper prints, as functions of a run.

A number is a plain function of a survey or of a model, and returns its `value`, or fields by name.
If there is a `variance`, it is the one that the paper's own random sums add. `registry.py` says
which row of `data/claims.yml` reads which field, and on which runs.
"""

from collections.abc import Callable
from itertools import product
from statistics import mean, variance
from typing import Any

from carry_core import carries, measure, sums
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_paper.findings import base, heads
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import DRAWN, SAMPLE, Dissected, Need, Survey, random_sums
from carry_paper.ledger.claims import CLASSES, KINDS
from carry_paper.ledger.entries import NO_NEED, VALUE, Entry, Function, number
from carry_train.groups import GROUPS

# The last layer's heads have the same names in each of these groups: 1:0 and 1:1.
LAST_HEADS = measure.last_heads(GROUPS[base.MAIN].config)
POSITIONS = GROUPS[base.MAIN].config.layout.position_names  # of the answers to three-digit sums
MAIN_RUN = 2  # the released run of the main group that Sec. 5 and Fig. 3, 4 and 14 show
S01_RUN = 4  # the released run at s = 0.1 whose dissection App. C.4 gives
NO_SKIP = Ablation(skips=frozenset({0}))


# ---- shares that the paper counted on a draw


# The paper drew this number of sums for Tab. 5, from all sums and not class by class: the scores in
# the release are fractions of 6747, 4415, 4425, 3561 and 817 sums.
DECODER_DRAW = 100_000


# Cells where a model without its decision head is unsure: no carry is due, but it may add one.
UNSURE = tuple(f"accuracy/{cell}" for cell in ("NC/pos7", "C@2/pos7", "NC/pos8", "C@1/pos8"))


def sums_drawn(group: str, pattern: str) -> float | int:
    """Return the number of sums of a carry class on which the paper measured a run of a group."""
    if group == base.DECODER:
        return DECODER_DRAW * carries.n_sums_in_class(pattern) / sums.n_sums(3)
    return DRAWN


def binomial_variance(share: float, n_drawn: float | int) -> float:
    """Return the variance of a share that was counted on `n_drawn` random sums."""
    return max(0.0, share * (1 - share)) / n_drawn


def by_cell(number_of: Callable[[str, int, int], Any]) -> Fields:
    """Return a number for each cell of a table of three-digit sums, by kind, class and position.

    `number_of` takes the kind of accuracy, and the numbers of the class and the position.
    """
    fields: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in KINDS:
        fields[kind] = {}
        for carry_class, name in enumerate(CLASSES):
            by_position = {}
            for pos, position_name in enumerate(POSITIONS):
                by_position[position_name] = number_of(kind, carry_class, pos)
            fields[kind][name] = by_position
    return fields


def cells(table: ClassAccuracies) -> Fields:
    """Return a table of accuracies of three-digit sums as fields."""
    return by_cell(lambda kind, carry_class, pos: float(getattr(table, kind)[carry_class, pos]))


def without_decision_head(survey: Survey) -> Fields:
    """Return the accuracies without the decision head (Tab. 1)."""
    return cells(survey.cells[survey.heads[0]])


def without_final_mlp(survey: Survey) -> Fields:
    """Return the accuracies without the final MLP (Tab. 1, 3, 5)."""
    return cells(survey.without_mlp)


def exact_match(survey: Survey) -> Fields:
    """Return the intact model's exact match."""
    return {"value": survey.cells[INTACT].exact_match}


def exact_match_without_skips(survey: Survey) -> Fields:
    """Return the exact match without the skip connections of layer 0 (Sec. 4)."""
    return {"value": survey.cells[NO_SKIP].exact_match}


def carry_cells_without_final_mlp(survey: Survey) -> Fields:
    """Return the mean accuracies of the cells with a carry-in, without the final MLP (App. F)."""
    return {
        "accuracy": heads.mean_over(survey.without_mlp, "accuracy", carry=True),
        "corrected": heads.mean_over(survey.without_mlp, "corrected", carry=True),
    }


def carry_accuracy_without_other_head(survey: Survey) -> Fields:
    """Return the mean accuracy of a decoder's carry cells without its other head (App. D)."""
    head = survey.heads[-1]
    without = survey.cells[head]
    carry_in = carries.carry_in(3)  # (carry_class, pos)
    variances = []
    for carry_class, pos in carry_in.nonzero().tolist():
        n_drawn = sums_drawn(base.DECODER, carries.patterns(3)[carry_class])
        variances.append(binomial_variance(float(without.accuracy[carry_class, pos]), n_drawn))
    return {
        "value": heads.mean_over(without, "accuracy", carry=True),
        "variance": sum(variances) / len(variances) ** 2,
        "head": heads.ablated_part(head),
        "carry_cells": without.accuracy[carry_in].tolist(),
    }


# ---- the final MLP's ablation


def cells_without_final_mlp(survey: Survey) -> Fields:
    """Return the mean accuracies of both kinds of cells, without the final MLP (App. C.2)."""
    left = heads.cells_left(survey.without_mlp)
    return {
        "no_carry_cells": left["no_carry_cells"],
        "carry_cells": left["carry_cells"],
        "correlation": heads.no_carry_correlation(survey.without_mlp),
    }


# ---- the dissection of the final MLP (Sec. 5)


def over_draws(survey: Survey, part: Callable[[Dissected], float]) -> Fields:
    """Return a number of the dissection: its mean over draws, as large as the paper's.

    The paper printed one draw, so its variance is that of one. Another draw chooses other neurons,
    so the number varies more than a share does. On all sums fewer neurons are usually chosen than
    on a draw, since noise alone makes some neurons more active for a class with a carry.
    """
    assert survey.dissected is not None
    by_draw = [part(draw) for draw in survey.dissected_samples]
    return {
        "value": mean(by_draw),
        "variance": variance(by_draw),
        "draws": [min(by_draw), max(by_draw)],
        "on_all_sums": part(survey.dissected),
    }


def dissected(survey: Survey) -> Fields:
    """Return the number of carry neurons, and the accuracies without them (Sec. 5).

    For three-digit sums these are also given for each cell, by kind, class and position.
    """

    def mean_over(kind: str, *, carry: bool) -> Fields:
        return over_draws(survey, lambda draw: heads.mean_over(draw.cells, kind, carry=carry))

    def cell(kind: str, carry_class: int, pos: int) -> Fields:
        return over_draws(survey, lambda draw: float(getattr(draw.cells, kind)[carry_class, pos]))

    n_digits = survey.without_mlp.accuracy.shape[1]
    return {
        **over_draws(survey, lambda draw: float(draw.neurons)),
        "carry_accuracy": mean_over("accuracy", carry=True),
        "carry_corrected": mean_over("corrected", carry=True),
        "no_carry_accuracy": mean_over("accuracy", carry=False),
        **(by_cell(cell) if n_digits == len(POSITIONS) else {}),
    }


def dissection(group: str, field: str = VALUE, **more: Any) -> Entry:
    """Return the entry of a number of the dissection; `more` are other attributes of `Entry`."""
    method = (
        "The mean of ten draws: neurons chosen on 20,000 sums of each class, ablated on 20,000 "
        "others. Beside it the lowest and the highest draw, and neurons chosen on all sums."
    )
    return number(group, dissected, Need(dissect=True), field=field, method=method, **more)


# ---- numbers of a model

SQUASHING = f"For the outcome {heads.SQUASHED_OUTCOME}."


def accuracy_on_random_sums(n_digits: int, model: Transformer) -> Fields:
    """Return a padded model's exact match on random sums of up to `n_digits` digits (App. H)."""
    correct = measure.correct_digits(model, *random_sums(n_digits)).double()  # (sums, pos)
    fields = {
        "value": float(correct.amin(1).mean()),
        "digit_by_digit": correct.mean(0).tolist(),
    }
    if n_digits < model.config.width:
        # The digits before them are padding, and do not count here.
        last_digits = float(correct[:, -n_digits:].amin(1).mean())
        fields[f"last_{n_digits}_digits_alone"] = last_digits
    return fields


def accuracy_on_three_digits(model: Transformer) -> Fields:
    """Return a padded model's exact match on random three-digit sums (App. H.2)."""
    return accuracy_on_random_sums(3, model)


def accuracy_on_six_digits(model: Transformer) -> Fields:
    """Return a padded model's exact match on random six-digit sums (App. H)."""
    return accuracy_on_random_sums(6, model)


THREE_DIGITS = f"On {SAMPLE:,} random sums of up to 3 digits."
SIX_DIGITS = f"On {SAMPLE:,} random sums of up to 6 digits."


def primed_share(group: str) -> float:
    """Return the priming sums of a group as a share of its other training sums (App. H.1)."""
    primed = GROUPS[group].primed
    return primed / (GROUPS[group].n_train - primed)


# ---- the entries of Tables 1, 3, 4 and 5


def table(name: str, group: str, function: Function, need: Need = NO_NEED) -> dict[str, Entry]:
    """Return the entries of a table's cells, such as `tab1/final_mlp`, by id.

    `function` measures all cells of a run, by kind, class and position.
    """
    entries = {}
    for end, (field, pattern) in ends_of_cells().items():
        drawn = sums_drawn(group, pattern)
        entries[f"{name}/{end}"] = number(group, function, need, field=field, drawn=drawn)
    return entries


def dissected_table(name: str, group: str) -> dict[str, Entry]:
    """Return the entries of a table without the carry neurons, by id; the paper shows run 0."""
    entries = {}
    for end, (field, _) in ends_of_cells().items():
        entries[f"{name}/{end}"] = dissection(group, field, shown_run=0)
    return entries


def ends_of_cells() -> dict[str, tuple[str, str]]:
    """Return the path in the fields of a quantity, and the pattern, by the end of a cell's id."""
    cells = {}
    for (name, pattern), kind, position in product(CLASSES.items(), KINDS, POSITIONS):
        cells[f"{name}/{kind}/{position}"] = (f"{kind}/{name}/{position}", pattern)
    return cells

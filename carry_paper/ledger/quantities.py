"""The numbers that the paper prints, as functions of a run or of all runs.

A number of a run is a plain function of a survey or of a model, and returns its `value`. If there
is a `variance`, it is the one that the paper's own random sums add. `registry.py` says which row of
`data/claims.yml` a function measures, and on which runs.
"""

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

import torch

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_paper.findings import base, dynamics, heads, lengths
from carry_paper.findings.base import Fields
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import DRAWN, SAMPLE, Dissected, Need, Survey, random_sums
from carry_paper.ledger.entries import Among, Entry, Measurement, Statistic, number
from carry_train.groups import GROUPS

MAIN_RUN = 2  # the released run of the main group that Sec. 5 and Fig. 3, 4 and 14 show
S01_RUN = 4  # the released run at s = 0.1 whose dissection App. C.4 gives
NO_SKIP = Ablation(skips=frozenset({0}))


# ---- shares that the paper counted on a draw


def drawn_share(share: float, n_drawn: float | int = DRAWN) -> Fields:
    """Return a share, and its variance if it was counted on `n_drawn` sums."""
    return {"value": share, "variance": binomial_variance(share, n_drawn)}


def binomial_variance(share: float, n_drawn: float | int = DRAWN) -> float:
    """Return the variance of a share that was counted on `n_drawn` random sums."""
    return max(0.0, share * (1 - share)) / n_drawn


# The paper drew this number of sums for Tab. 5, from all sums and not class by class: the scores in
# the release are fractions of 6747, 4415, 4425, 3561 and 817 sums.
DECODER_DRAW = 100_000


def sums_drawn(group: str, pattern: str) -> float | int:
    """Return the number of sums of a carry class on which the paper measured a run of a group."""
    if group == base.DECODER:
        return DECODER_DRAW * carries.n_sums_in_class(pattern) / sums.n_sums(3)
    return DRAWN


def without_decision_head(survey: Survey) -> ClassAccuracies:
    """Return the accuracies without the decision head (Tab. 1)."""
    return survey.cells[survey.heads[0]]


def without_final_mlp(survey: Survey) -> ClassAccuracies:
    """Return the accuracies without the final MLP (Tab. 1, 3, 5)."""
    return survey.without_mlp


def exact_match(survey: Survey) -> Fields:
    """Return the intact model's exact match."""
    return drawn_share(survey.cells[INTACT].exact_match)


def exact_match_without_skips(survey: Survey) -> Fields:
    """Return the exact match without the skip connections of layer 0 (Sec. 4)."""
    return drawn_share(survey.cells[NO_SKIP].exact_match)


def carry_accuracy_without_mlp(survey: Survey) -> Fields:
    """Return the mean accuracy of the cells with a carry-in, without the final MLP (App. F)."""
    return drawn_share(heads.mean_over(survey.without_mlp, "accuracy", carry=True))


def carry_corrected_without_mlp(survey: Survey) -> Fields:
    """Return the mean corrected accuracy of these cells (App. F)."""
    return drawn_share(heads.mean_over(survey.without_mlp, "corrected", carry=True))


def carry_accuracy_without_other_head(survey: Survey) -> Fields:
    """Return the mean accuracy of a decoder's carry cells without its other head (App. D)."""
    head = survey.heads[-1]
    without = survey.cells[head]
    carry_in = carries.carry_in(3)  # (task, pos)
    variances = []
    for task, pos in carry_in.nonzero().tolist():
        n_drawn = sums_drawn(base.DECODER, carries.patterns(3)[task])
        variances.append(binomial_variance(float(without.accuracy[task, pos]), n_drawn))
    return {
        "value": heads.mean_over(without, "accuracy", carry=True),
        "variance": sum(variances) / len(variances) ** 2,
        "head": heads.ablated_part(head),
        "carry_cells": without.accuracy[carry_in].tolist(),
    }


# ---- the final MLP's ablation


def final_mlp_correlation(survey: Survey) -> Fields:
    """Return the correlation with a model that cannot carry, without the final MLP (Sec. 5)."""
    return {"value": heads.no_carry_correlation(survey.without_mlp)}


def ablation_works(survey: Survey) -> Fields:
    """Return 1 for a run whose whole final MLP can be ablated, else 0 (App. C.2)."""
    table = survey.without_mlp
    works = heads.full_ablation_works(table)
    left = heads.cells_left(table)
    return {
        "value": float(works),
        "no_carry_cells": left["no_carry_cells"],
        "carry_cells": left["carry_cells"],
        "correlation": heads.no_carry_correlation(table),
    }


# ---- the dissection of the final MLP (Sec. 5)


def over_draws(survey: Survey, part: Callable[[Dissected], float]) -> Fields:
    """Return a number of the dissection, and its variance over samples of the paper's size.

    Another sample chooses other neurons, so the number varies more than a share does.
    """
    assert survey.dissected is not None
    value = part(survey.dissected)
    estimates = [part(draw) for draw in survey.dissected_samples]
    variance = mean((estimate - value) ** 2 for estimate in estimates)
    return {"value": value, "variance": variance, "ten_draws": [min(estimates), max(estimates)]}


def carry_neurons(survey: Survey) -> Fields:
    """Return the number of carry neurons."""
    return over_draws(survey, lambda dissected: float(dissected.neurons))


def carry_accuracy(survey: Survey) -> Fields:
    """Return the accuracy of the cells with a carry-in without the carry neurons."""
    return over_draws(survey, lambda d: heads.mean_over(d.cells, "accuracy", carry=True))


def carry_corrected(survey: Survey) -> Fields:
    """Return the corrected accuracy of the cells with a carry-in without the carry neurons."""
    return over_draws(survey, lambda d: heads.mean_over(d.cells, "corrected", carry=True))


def no_carry_accuracy(survey: Survey) -> Fields:
    """Return the accuracy of the cells without a carry-in, without the carry neurons."""
    return over_draws(survey, lambda d: heads.mean_over(d.cells, "accuracy", carry=False))


def needs_final_mlp(survey: Survey) -> bool:
    """Return True if a run needs its final MLP for more than carries (App. C.4)."""
    accuracy = heads.mean_over(survey.without_mlp, "accuracy", carry=False)
    return accuracy < heads.NO_CARRY_ACCURACY


CANNOT_TAKE_THE_ABLATION = Among(needs_final_mlp, "cannot take the full ablation")


def dissection(
    group: str,
    function: Callable[[Survey], Fields],
    shown_run: int | None = None,
    among: Among | None = None,
) -> Entry:
    """Return the entry of a number of the dissection; `shown_run` and `among` as in `Statistic`."""
    method = "Chosen and ablated on all sums; beside it the ends of ten draws of 20,000 a class."
    statistic = Statistic(shown_run=shown_run, among=among, method=method)
    return number(group, function, Need(dissect=True), statistic)


# ---- numbers of a model


def squashing_at(pos: int, model: Transformer) -> Fields:
    """Return the final MLP's squashing of the sums to 74 at an answer position (Sec. 4, App. F.1).

    `pos` counts the answer's digits from the left.
    """
    return {"value": float(heads.squashing_ratio(model)[pos])}


SQUASHING = f"For the outcome {heads.SQUASHED_OUTCOME}."


def accuracy_on_random_sums(n_digits: int, model: Transformer) -> Fields:
    """Return a padded model's exact match on random sums of up to `n_digits` digits (App. H)."""
    correct = measure.correct_digits(model, *random_sums(n_digits)).double()  # (sums, pos)
    exact = float(correct.amin(1).mean())
    fields = {**drawn_share(exact), "digit_by_digit": correct.mean(0).tolist()}
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


# ---- numbers of several runs


# Cells where a model without its decision head is unsure: no carry is due, but it may add one.
UNSURE = (("NC", 0), ("C@2", 0), ("NC", 1), ("C@1", 1))


def decision_head_spread(evidence: Evidence) -> Measurement:
    """Measure how runs vary where the model without its decision head is unsure (Tab. 1).

    The value is the mean over four cells of the standard deviation between runs.
    """
    surveys = evidence.surveys(base.MAIN)
    if len(surveys) < 2:
        raise BadInput(
            f"It needs two runs of {base.MAIN} or more, since one has no standard deviation."
        )
    names = [carries.paper_name(pattern) for pattern in carries.patterns(3)]
    deviations = []
    for name, pos in UNSURE:
        task = names.index(name)
        shares = []
        for survey in surveys.values():
            shares.append(float(without_decision_head(survey).accuracy[task, pos]))
        deviations.append(torch.tensor(shares, dtype=torch.float64).std().item())
    four = ", ".join(f"{deviation:.4g}" for deviation in deviations)
    method = f"Mean over four cells of the standard deviation between runs: {four}."
    return Measurement({}, mean(deviations), method=method, group_size=len(surveys))


def squashing_spread(pos: int, evidence: Evidence) -> Measurement:
    """Measure the standard deviation of the squashing at an answer position over runs (Sec. 4)."""
    squashing = evidence.each(base.MAIN, lambda run, model: heads.squashing_ratio(model))
    return _spread([float(ratios[pos]) for ratios in squashing.values()], SQUASHING)


def no_skip_spread(evidence: Evidence) -> Measurement:
    """Measure the standard deviation over runs of the exact match without skips (Sec. 4)."""
    surveys = evidence.surveys(base.MAIN)
    return _spread([survey.cells[NO_SKIP].exact_match for survey in surveys.values()], "")


def _spread(values: list[float], method: str) -> Measurement:
    """Return the standard deviation of the runs' values, with n - 1, as a measurement."""
    if len(values) < 2:
        raise BadInput(
            f"It needs two runs of {base.MAIN} or more, since one has no standard deviation."
        )
    return Measurement({}, stdev(values), method=method, group_size=len(values))


def accuracy_range(evidence: Evidence) -> Measurement:
    """Return the lowest and highest six-digit accuracy that unprimed runs reach (Sec. 6).

    Raises:
        BadInput: There is one run only, or its epochs are others than the paper's.
    """
    curves = evidence.curves(base.PAD6)
    if evidence.source == "ours":
        evidence.by_the_papers_epochs(base.PAD6)
    epochs = curves["epochs"]
    if epochs[-1] < 1000:
        raise BadInput(
            f"It needs learning curves of {base.PAD6} up to epoch 1000; these have {epochs[-1]}."
        )
    if len(curves["runs"]) < 2:
        raise BadInput(f"It is a range over models, and there is one run of {base.PAD6} only.")
    until_1000 = epochs <= 1000
    runs = {}
    for run, curve in zip(curves["runs"], curves["long_whole"][:, until_1000], strict=True):
        runs[int(run)] = float(curve.max())

    gap = dynamics.resolution(epochs, epochs[until_1000].tolist())
    tests = f", tested after every {gap} epochs" if gap > 1 else ""
    method = f"Lowest and highest of the runs' best accuracies up to epoch 1000{tests}."
    return Measurement(runs, [min(runs.values()), max(runs.values())], method=method)


def weight_norm(column: str, evidence: Evidence) -> Measurement:
    """Measure the squared norm of all parameters `before` or `after` finetuning, or its `change`.

    The change is relative to the norm before (App. H.2).
    """
    if column != "change":
        before, _ = lengths.parent(base.FINETUNED)
        evidence.by_the_papers_epochs(before)
    runs: dict[Any, Any] = lengths.finetuning(evidence)[column].to_dict()
    return Measurement(runs, mean(runs.values()), method="The squared norm of all parameters.")


def primed_share(group: str) -> float:
    """Return the priming sums of a group as a share of its other training sums (App. H.1)."""
    primed = GROUPS[group].primed
    return primed / (GROUPS[group].n_train - primed)

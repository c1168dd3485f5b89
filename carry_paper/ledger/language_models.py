"""The rows of the 7B models (Tab. 2, Sec. 6, App. G): from the author's recordings, or our surveys.

A number is a function of a `Recording` by the author or a `Survey` of our own, and of the published
model. It returns the value, and a sentence on how it was obtained. The last rows are of models that
cannot add, a control that the paper does not have.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from carry_core.errors import BadInput
from carry_paper.findings.base import Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.llm import recordings
from carry_paper.llm.head_survey import RIGHT_TO_RANK, Survey
from carry_paper.llm.model import format_heads
from carry_paper.llm.recordings import MODELS, PublishedModel, Recording
from carry_paper.llm.staircases import strongest_cell

HOW = "how"  # the field with a sentence on how a number was obtained
# Of the heads of Alpaca 7B, 164 win a cell: the fewest of Tab. 2.
SMALLEST_SHARE = 164 / recordings.N_HEADS


def obtained(value: Any, how: str, noise: float = 0.0) -> Fields:
    """Return the fields of a number of a language model.

    `noise` is the standard error of a share that was counted on some of the paper's prompts.
    """
    return {"value": value, "variance": noise**2, HOW: how}


def generations_asked(run: Recording | Survey) -> int:
    """Return the number of prompts that the model answered; not all replies were released."""
    return len(run.correct) if isinstance(run, Recording) else len(run.answers.replies)


def accuracy(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the share of prompts with a correct answer (Tab. 2)."""
    answers, n = run.answers, len(run.answers.replies)
    if isinstance(run, Survey):
        return obtained(answers.accuracy, f"On {n} prompts.")
    n_asked = generations_asked(run)
    if n < n_asked:
        return obtained(run.accuracy, f"As recorded; {n} of {n_asked} generations were released.")
    if answers.right.tolist() != run.correct:
        raise BadInput(
            "The recorded generations do not give the recorded verdicts: import the release again."
        )
    return obtained(answers.accuracy, "From the recorded generations.")


def staircase_heads(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the number of staircase heads (Tab. 2)."""
    recorded = ", as recorded" if isinstance(run, Recording) else ""
    return obtained(run.n_staircase, f"Heads that win a cell{recorded}.")


def ablated_accuracy(run: Recording | Survey, model: PublishedModel, pair: int = 0) -> Fields:
    """Return the accuracy without one of the paper's pairs of addition heads (Tab. 2)."""
    if isinstance(run, Recording):
        if run.ablated_accuracy is None:
            raise not_released(model)
        return obtained(run.ablated_accuracy, "As recorded.")
    heads = model.pairs[pair]
    for ablated in run.ablated:
        if format_heads(ablated.heads) == heads:
            method = f"Without {heads}; intact {run.answers.accuracy:.3f}."
            return obtained(ablated.answers.accuracy, method)
    raise BadInput(
        f"The survey of {run.title} is without {heads}: run `carry llm` with --ablate {heads}."
    )


def ablated_accuracy_of_second_pair(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the accuracy without the second pair of addition heads (Tab. 2)."""
    return ablated_accuracy(run, model, pair=1)


def addition_heads(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the pairs of heads that cost most, as many as the paper names (Tab. 2).

    Pairs that were ablated at random do not count.
    """
    if isinstance(run, Recording):
        raise not_released(model)
    pairs = [ablated for ablated in run.targeted if len(ablated.heads) == 2]
    if not pairs:
        raise BadInput(f"The survey of {run.title} ablated no pairs: run `{model.command}`.")
    costliest = []
    for ablated in pairs[: len(model.pairs)]:
        costliest.append([list(head) for head in ablated.heads])
    accuracies = [f"{format_heads(p.heads)} {p.answers.accuracy:.3f}" for p in pairs]
    method = f"Of the pairs that were chosen: {', '.join(accuracies)}."
    return obtained(costliest if len(costliest) > 1 else costliest[0], method)


def carry_mistakes(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the share of mistakes that are mistakes in carrying (Sec. 6)."""
    answers, n = run.answers, len(run.answers.replies)
    if n < generations_asked(run):
        raise BadInput(f"Needs all generations; {n} were released.")
    mistakes = int((~answers.right).sum())
    return obtained(answers.carry_share, f"{int(answers.carrying.sum())} of {mistakes} mistakes.")


def first_position_accuracy(run: Recording | Survey, model: PublishedModel) -> Fields:
    """Return the accuracy of the answer's first digit (App. G)."""
    n, n_asked = len(run.answers.replies), generations_asked(run)
    method = f"Of the {n} generations that were released, of {n_asked}."
    share = run.answers.by_position[0]
    return obtained(share, method, noise=standard_error(share, n, n_asked))


def standard_error(share: float, n: int, n_in_all: int) -> float:
    """Return the standard error of a share that was counted on `n` of `n_in_all` prompts.

    A share of 1 has no variance of its own, so two prompts of each kind are added (Agresti and
    Coull 1998). It is 0 if all prompts were counted.
    """
    adjusted = (share * n + 2) / (n + 4)
    left_out = 1 - n / n_in_all
    return float((adjusted * (1 - adjusted) / (n + 4) * left_out) ** 0.5)


def not_released(model: PublishedModel) -> BadInput:
    """Return the error of a number for which the author's release has no ablated run."""
    return BadInput(
        f"The author's release has no ablated run of {model.key}; "
        f"it needs the weights: `{model.command}`."
    )


def llm_heads(evidence: Evidence) -> pd.DataFrame:
    """Lowest accuracy of a 7B model without its costliest pair of chosen heads (Sec. 6).

    There is a row for each model, which also has its lowest accuracy without a random pair.

    Raises:
        BadInput: No 7B model was surveyed.
    """
    rows: dict[str, Fields] = {}
    for key, model in MODELS.items() if evidence.source == "ours" else ():
        with suppress(BadInput):
            survey = recordings.stored_survey(key)
            accuracies = [ablated.answers.accuracy for ablated in survey.targeted]
            random = [a.answers.accuracy for a in survey.ablated if a.kind == "random"]
            if accuracies and random:
                rows[key] = {
                    "value": min(accuracies),
                    "model": model.title,
                    "lowest_of_random_pairs": min(random),
                }
    if not rows:
        commands = "; ".join(f"`{model.command}`" for model in MODELS.values())
        by_author = evidence.source == "author"
        opening = "The author's release has no such runs, and it" if by_author else "It"
        raise BadInput(f"{opening} needs 7B weights: {commands}.")
    return per_run(rows)


def below_random_pairs(measured: Fields) -> bool:
    """Return True if chosen heads cost more than each random pair."""
    return bool(measured["value"] < measured["lowest_of_random_pairs"])


def staircases_without_addition(evidence: Evidence) -> pd.DataFrame:
    """Share of the heads of a model that cannot add that win a cell of the search (Tab. 2).

    Raises:
        BadInput: The model was not surveyed.
    """
    return staircases_of_controls(evidence, [recordings.CANNOT_ADD])


def staircases_of_random_weights(evidence: Evidence) -> pd.DataFrame:
    """Share of the heads that win a cell of the search, in networks with random weights (Tab. 2).

    There is a row for each seed of the weights. The networks are that of the model that cannot add.

    Raises:
        BadInput: One of them was not surveyed.
    """
    return staircases_of_controls(evidence, recordings.RANDOM_WEIGHTS)


def staircases_of_controls(evidence: Evidence, names: Sequence[str]) -> pd.DataFrame:
    """Return what the staircase search finds in some controls, in a row for each."""
    if evidence.source == "author":
        raise BadInput("The author's release has no model that cannot add.")
    return per_run({name: staircases(recordings.control(name)) for name in names})


def staircases(survey: Survey) -> Fields:
    """Return how many heads win a cell of the staircase search, and how clearly.

    Returns:
        The share of heads that win a cell as `value`; their number and that of all heads; the
            number of sums that the model gets right, and of prompts; `half`, the smallest number
            of heads that win half of the cells; `attention`, the largest mean attention of the
            most frequent winners in a cell.
    """
    wins = survey.counts.flatten().sort(descending=True).values
    half = int((wins.cumsum(0) < wins.sum() / 2).sum()) + 1
    return {
        "value": survey.n_staircase / len(wins),
        "winners": survey.n_staircase,
        "heads": len(wins),
        "right": int(survey.answers.right.sum()),
        "prompts": len(survey.answers.replies),
        "half": half,
        "attention": strongest_cell(survey.mean),
    }


def is_below_models_that_add(measured: Fields) -> bool | None:
    """Return True if a smaller share of heads wins a cell than in each model of Table 2.

    A model that gets enough sums right to rank its heads by accuracy is no control, and can't say.
    """
    if measured["right"] >= RIGHT_TO_RANK:
        return None
    return bool(measured["value"] < SMALLEST_SHARE)

"""The rows of the 7B models (Tab. 2, Sec. 6, App. G): from the author's recordings, or from a survey of our own."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from carry_core.errors import BadInput
from carry_core.findings.base import Measurement, per_run, summary
from carry_core.findings.survey import Evidence
from carry_core.llm import recordings
from carry_core.llm.model import format_heads
from carry_core.llm.recordings import MODELS, PublishedModel, Recording
from carry_core.llm.survey import Survey

ROWS = ("tab2/", "llm/", "finding/llm_heads")  # how their ids start
Part = Callable[[Recording | Survey], Measurement]


def _one(value: float | int, how: str) -> Measurement:
    return Measurement({0: value}, value, how=how)


def accuracy(found: Recording | Survey) -> Measurement:
    """Share of whole answers that are right, as recorded, and again from the generations where all are there."""
    if isinstance(found, Survey):
        return _one(found.answers.accuracy, f"On {len(found.answers.replies)} prompts.")
    if not found.complete:
        n = len(found.answers.replies)
        return _one(found.accuracy, f"As recorded; {n} of {len(found.correct)} generations were released.")
    if found.answers.right.tolist() != found.correct:
        raise BadInput("The recorded generations do not give the recorded verdicts: import the release again.")
    return _one(found.answers.accuracy, "From the recorded generations.")


def staircase_heads(found: Recording | Survey) -> Measurement:
    """How many heads win at least one cell of the staircase search."""
    ours = isinstance(found, Survey)
    return _one(found.n_staircase, "Heads that win a cell." if ours else "Heads that win a cell, as recorded.")


def carry_mistakes(found: Recording | Survey) -> Measurement:
    """Share of the mistakes in which a digit that receives a one is exactly one too small."""
    answers = found.answers
    if isinstance(found, Recording) and not found.complete:
        raise BadInput(f"Needs all generations; {len(answers.replies)} were released.")
    return _one(answers.carry_share, f"{int(answers.carrying.sum())} of {int((~answers.right).sum())} mistakes.")


def first_position(found: Recording | Survey) -> Measurement:
    """Share of answers whose first digit is right (App. G)."""
    n = len(found.answers.replies)
    every = len(found.correct) if isinstance(found, Recording) else n
    return _one(found.answers.by_position[0], f"Of the {n} generations that were released, of {every}.")


PARTS: dict[str, Part] = {
    "accuracy": accuracy,
    "staircase_heads": staircase_heads,
    "carry_mistakes": carry_mistakes,
    "first_position_accuracy": first_position,
}


def find(name: str, evidence: Evidence) -> Measurement:
    """A row whose id starts with `tab2/` or `llm/`, or `finding/llm_heads`.

    Raises:
        BadInput: what it needs is not at hand; says which command makes it.
    """
    if name == "finding/llm_heads":
        return llm_heads(evidence)
    _, key, part, *number = name.split("/")
    model, author = MODELS[key], evidence.source == "author"
    found = recordings.recording(key) if author else recordings.stored_survey(key)
    if part in PARTS:
        return PARTS[part](found)
    if isinstance(found, Recording):
        if part == "ablated_accuracy" and found.ablated_accuracy is not None:
            return _one(found.ablated_accuracy, "As recorded.")
        raise BadInput(f"The author's release has no ablated run of {key}; it needs the weights: `{model.command}`.")
    if part == "ablated_accuracy":
        return _ablated(found, model.pairs[int(number[0])])
    return _addition_heads(found, model)


def _ablated(found: Survey, pair: str) -> Measurement:
    for ablated in found.ablated:
        if format_heads(ablated.heads) == pair:
            return _one(ablated.answers.accuracy, f"Without {pair}; intact {found.answers.accuracy:.3f}.")
    raise BadInput(f"The survey of {found.title} is without {pair}: run `carry llm` with --ablate {pair}.")


def _addition_heads(found: Survey, model: PublishedModel) -> Measurement:
    """The pairs among those ablated for a reason which cost most, as many as the paper names."""
    tried = [a for a in found.targeted if len(a.heads) == 2]
    if not tried:
        raise BadInput(f"The survey of {found.title} ablated no pairs: run `{model.command}`.")
    best = [[list(head) for head in a.heads] for a in tried[: len(model.pairs)]]
    value = best if len(best) > 1 else best[0]
    costs = ", ".join(f"{format_heads(a.heads)} {a.answers.accuracy:.3f}" for a in tried)
    return Measurement({0: value}, value, how=f"Of the pairs that were chosen: {costs}.")


def llm_heads(evidence: Evidence) -> Measurement:
    """Accuracy without the most frequent winners, against random pairs (`finding/llm_heads`).

    Raises:
        BadInput: no 7B model was surveyed; says which commands do it.
    """
    rows: dict[int, dict[str, Any]] = {}
    for number, (key, model) in enumerate(MODELS.items() if evidence.source == "ours" else ()):
        with suppress(BadInput):
            found = recordings.stored_survey(key)
            chosen = [a.answers.accuracy for a in found.targeted]
            random = [a.answers.accuracy for a in found.ablated if a.kind == "random"]
            if chosen and random:
                rows[number] = {
                    "value": min(chosen),
                    "shows": min(chosen) < min(random),
                    "model": model.title,
                    "chosen_pairs": len(chosen),
                    "random_pairs": len(random),
                    "lowest_of_random_pairs": min(random),
                }
    if not rows:
        commands = "; ".join(f"`{model.command}`" for model in MODELS.values())
        whose = "The author's release has no such runs, and it" if evidence.source == "author" else "It"
        raise BadInput(f"{whose} needs 7B weights: {commands}.")
    how = "Accuracy without the costliest pair of chosen heads; the lowest model's."
    return replace(summary(frame := per_run(rows, dict), how), value=float(frame.value.min()))

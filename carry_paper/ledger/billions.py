"""The rows of the 7B models (Tab. 2, Sec. 6, App. G): from the author's recordings, or from a survey of our own."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from carry_core.errors import BadInput
from carry_paper.findings.base import Measurement, per_run, summary
from carry_paper.findings.survey import Evidence
from carry_paper.llm import recordings
from carry_paper.llm.model import format_heads
from carry_paper.llm.recordings import MODELS, PublishedModel, Recording
from carry_paper.llm.survey import Survey

ROWS = ("tab2/", "llm/", "finding/llm_heads")  # how their ids start


def find(name: str, evidence: Evidence) -> Measurement:
    """A row whose id starts as in `ROWS`; `BadInput` if what it needs is not at hand, with the command for it."""
    if name == "finding/llm_heads":
        return llm_heads(evidence)
    _, key, part, *number = name.split("/")
    found = (
        recordings.recording(key) if evidence.source == "author" else recordings.stored_survey(key)
    )
    value, how = _value(found, MODELS[key], part, *map(int, number))
    return Measurement({0: value}, value, how=how)


def _value(
    found: Recording | Survey, model: PublishedModel, part: str, number: int = 0
) -> tuple[Any, str]:
    """A number of a model, and how it was obtained."""
    answers, n = found.answers, len(found.answers.replies)
    every = len(found.correct) if isinstance(found, Recording) else n
    if part == "staircase_heads":
        return (
            found.n_staircase,
            f"Heads that win a cell{', as recorded' if isinstance(found, Recording) else ''}.",
        )
    if part == "first_position_accuracy":  # App. G
        return answers.by_position[0], f"Of the {n} generations that were released, of {every}."
    if part == "carry_mistakes":
        if n < every:
            raise BadInput(f"Needs all generations; {n} were released.")
        return (
            answers.carry_share,
            f"{int(answers.carrying.sum())} of {int((~answers.right).sum())} mistakes.",
        )
    if isinstance(found, Survey):
        if part == "accuracy":
            return answers.accuracy, f"On {n} prompts."
        return (
            _ablated(found, model.pairs[number])
            if part == "ablated_accuracy"
            else _addition_heads(found, model)
        )
    if part == "accuracy":
        if n < every:
            return found.accuracy, f"As recorded; {n} of {every} generations were released."
        if answers.right.tolist() != found.correct:
            raise BadInput(
                "The recorded generations do not give the recorded verdicts: import the release again."
            )
        return answers.accuracy, "From the recorded generations."
    if part == "ablated_accuracy" and found.ablated_accuracy is not None:
        return found.ablated_accuracy, "As recorded."
    raise BadInput(
        f"The author's release has no ablated run of {model.key}; it needs the weights: `{model.command}`."
    )


def _ablated(found: Survey, pair: str) -> tuple[float, str]:
    for ablated in found.ablated:
        if format_heads(ablated.heads) == pair:
            return ablated.answers.accuracy, f"Without {pair}; intact {found.answers.accuracy:.3f}."
    raise BadInput(
        f"The survey of {found.title} is without {pair}: run `carry llm` with --ablate {pair}."
    )


def _addition_heads(found: Survey, model: PublishedModel) -> tuple[Any, str]:
    """The pairs among those ablated for a reason which cost most, as many as the paper names."""
    tried = [a for a in found.targeted if len(a.heads) == 2]
    if not tried:
        raise BadInput(f"The survey of {found.title} ablated no pairs: run `{model.command}`.")
    best = [[list(head) for head in a.heads] for a in tried[: len(model.pairs)]]
    costs = ", ".join(f"{format_heads(a.heads)} {a.answers.accuracy:.3f}" for a in tried)
    return best if len(best) > 1 else best[0], f"Of the pairs that were chosen: {costs}."


def llm_heads(evidence: Evidence) -> Measurement:
    """Accuracy without the most frequent winners, against random pairs; `BadInput` if no 7B model was surveyed."""
    rows: dict[int, dict[str, Any]] = {}
    for number, (key, model) in enumerate(MODELS.items() if evidence.source == "ours" else ()):
        with suppress(BadInput):
            found = recordings.stored_survey(key)
            chosen = [ablated.answers.accuracy for ablated in found.targeted]
            random = [
                ablated.answers.accuracy for ablated in found.ablated if ablated.kind == "random"
            ]
            if chosen and random:
                lowest = {"model": model.title, "lowest_of_random_pairs": min(random)}
                rows[number] = {"value": min(chosen), "shows": min(chosen) < min(random), **lowest}
    if not rows:
        commands = "; ".join(f"`{model.command}`" for model in MODELS.values())
        whose = (
            "The author's release has no such runs, and it" if evidence.source == "author" else "It"
        )
        raise BadInput(f"{whose} needs 7B weights: {commands}.")
    how = "Accuracy without the costliest pair of chosen heads; the lowest model's."
    return replace(summary(frame := per_run(rows), how), value=float(frame.value.min()))

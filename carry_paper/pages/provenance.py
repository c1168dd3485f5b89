"""Sentences on the weights and the learning curves of a page, and names for their groups."""

from collections.abc import Sequence

import numpy as np

from carry_core import runs
from carry_paper import catalogue
from carry_paper.findings import dynamics
from carry_paper.findings.interchange_maps import PAIRS_OF_OTHERS
from carry_paper.pages.values import in_ranges
from carry_train import groups


def provenance(loaded: catalogue.GroupRuns, beside: catalogue.GroupRuns | None = None) -> str:
    """Return sentences on a page's weights, and on those with which it compares them.

    They say how the runs were trained, and whether that stands in for the paper's protocol.
    """
    if beside is not None:
        note = ""
        if len(_trainings(loaded, beside)) > 1:
            note = " They were not trained alike: differences may come from the training."
        return f"{provenance(loaded)} Beside it {provenance(beside)}{note}"
    single = len(loaded.numbers) == 1
    n_runs = "1 run" if single else f"{len(loaded.numbers)} runs"
    if loaded.source == "author":
        return f"{loaded.group}: {n_runs} of the author's release."

    sessions = [
        session for run in loaded.record["runs"] for session in (run, *run.get("sessions", ()))
    ]
    values = {}
    for key in ("precision", "device", "torch"):
        values[key] = ", ".join(sorted({session[key] for session in sessions if key in session}))
    text = (
        f"{loaded.group}: {n_runs} of our own, {loaded.training}, {values['precision']},"
        f" {values['device']}, torch {values['torch']}."
    )
    if loaded.stand_in:
        subject = "It stands in for a full run" if single else "They stand in for full runs"
        planned = groups.find(loaded.group).epochs
        text += f" {subject} ({planned} epochs) by the recipe “paper”."
    return text


def _trainings(*groups_of_runs: catalogue.GroupRuns) -> set[tuple[str, float]]:
    """Return the ways in which our runs were trained: recipe and share of the planned epochs."""
    trainings = set()
    for loaded in groups_of_runs:
        if loaded.source == "ours":
            share = loaded.record["epochs"] / loaded.planned_epochs
            trainings.add((loaded.record["recipe"], share))
    return trainings


def measured_anew(numbers: Sequence[int]) -> str:
    """Return a sentence on the runs whose swaps a page measured: no stored ones are theirs."""
    names = f"run {numbers[0]}" if len(numbers) == 1 else f"runs {', '.join(in_ranges(numbers))}"
    return (
        f" The swaps of {names} were measured for this page, on {PAIRS_OF_OTHERS:,} pairs of sums:"
        " the stored swaps are of other weights."
    )


def tested_epochs(history: runs.History) -> str:
    """Return a sentence on the epochs that learning curves have; "" if they have all."""
    tested = history["epochs"]
    gaps = dynamics.since_last_test(tested)
    largest = int(gaps.max())
    if largest == 1:
        return ""
    last = tested[np.argmax(gaps > 1) - 1]
    return (
        f" All runs were tested at every epoch up to {last}, and then at most {largest} epochs"
        " apart. What the page says of a later epoch may have happened up to"
        f" {largest - 1} epochs earlier, and a best value is the best of the tested epochs."
    )


def difference_from_main(name: str) -> str:
    """Return in words what sets a group apart from the main one, `the main model`."""
    main = str(groups.find(groups.MAIN)).split(", ")
    parts = [part for part in str(groups.find(name)).split(", ") if part not in main]
    return ", ".join(parts).replace("causal", "decoder") or "the main model"


def longer_sums(name: str) -> str:
    """Return the longer sums of a primed group's training set in words."""
    group = groups.find(name)
    return f"{group.primed} sums of {group.config.width} digits"

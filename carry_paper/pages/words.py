"""Words for a page's sentences, made from computed results."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from carry_core import carries, groups, runs
from carry_paper.findings import dynamics, lengths, typology
from carry_paper.findings.geometry import SEPARATING_ACCURACY
from carry_paper.findings.heads import CANNOT_CARRY_CORRELATION, PARTNER_ATTENTION
from carry_paper.pages.minus import minus_signs
from carry_paper.plots.sides import AUTHORS, Arrays

MISSING = "–"  # stands for a number that a page does not have

# ---- weights and learning curves


def provenance(loaded: runs.Runs, beside: runs.Runs | None = None) -> str:
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


def _trainings(*groups_of_runs: runs.Runs) -> set[tuple[str, float]]:
    """Return the ways in which our runs were trained: recipe and share of the planned epochs."""
    trainings = set()
    for loaded in groups_of_runs:
        if loaded.source == "ours":
            share = loaded.record["epochs"] / loaded.planned_epochs
            trainings.add((loaded.record["recipe"], share))
    return trainings


def tested_epochs(history: runs.History) -> str:
    """Return a sentence on the epochs that learning curves have; "" if they have all."""
    tested = history["epochs"]
    gaps = dynamics.since_last_test(tested)
    largest = int(gaps.max())
    if largest == 1:
        return ""
    last = tested[np.argmax(gaps > 1) - 1]
    return (
        f" The learning curves have every epoch up to {last}, then one in {largest} or more, after"
        " which all runs were tested: what is said to happen at a later epoch may have happened up"
        f" to {largest - 1} epochs before, and a best value is the best of these epochs."
    )


def difference_from_main(name: str) -> str:
    """Return in words what sets a group apart from the main one, `the main model`."""
    main = str(groups.find(groups.MAIN)).split(", ")
    parts = [part for part in str(groups.find(name)).split(", ") if part not in main]
    return ", ".join(parts).replace("causal", "decoder") or "the main model"


# ---- numbers and runs


def of_runs(shows: Mapping[Any, bool] | pd.Series) -> str:
    """Return the number and the list of runs that show something, in words.

    Examples are `4 of 6 runs (0, 1, 3 and 4)`, `all 6 runs`, `both runs` and `none of 6 runs`.
    """
    n_runs = len(shows)
    showing = [str(run) for run, shows_it in dict(shows).items() if shows_it]
    if len(showing) == n_runs:
        few = {0: MISSING, 1: "the only run", 2: "both runs"}
        return few.get(n_runs, f"all {n_runs} runs")
    if not showing:
        return f"none of {n_runs} runs" if n_runs > 1 else "no run"
    *earlier, last = showing
    listed = f"{', '.join(earlier)} and {last}" if earlier else last
    return f"{len(showing)} of {n_runs} runs ({listed})"


def n_of_runs(shows: "pd.Series[bool]") -> str:
    """Return the number of runs that show something, such as `4 of 6 runs`."""
    return f"{int(shows.sum())} of {len(shows)} runs"


def kinds_of_runs(side: str, deciding: pd.DataFrame | None) -> dict[str, Any]:
    """Return a side's runs by kind, and those whose final MLP adds the carry, in words.

    Args:
        side: The end of the words' names, such as `ours`.
        deciding: The runs, from `findings.typology.who_decides`; None if the side has no stored
            map, which gives dashes.
    """
    names = {
        "one": "one head",
        "together": "heads together",
        "earlier": "earlier",
        "split": "split",
    }
    if deciding is None:
        words: dict[str, Any] = dict.fromkeys((*names, "not_one", "mlp"), MISSING)
    else:
        words = {name: deciding.kind == kind for name, kind in names.items()}
        words["not_one"] = deciding.kind != "one head"
        words["mlp"] = deciding["final MLP"] >= typology.DECIDES
    return {f"{name}_{side}": value for name, value in words.items()}


def counted(values: "pd.Series[Any]") -> str:
    """Return the count of each value, the most frequent first, such as `9 split, 1 earlier`."""
    return ", ".join(f"{n} {value}" for value, n in values.value_counts().items())


def in_words(value: Any) -> Any:
    """Return the words for a value: `of_runs` for booleans by run, else the value itself."""
    return of_runs(value) if isinstance(value, Mapping | pd.Series) else value


def spans(**values: Any) -> dict[str, Any]:
    """Return the lowest and the highest of several lists of values, as `…_low` and `…_high`."""
    ends = {}
    for name, numbers in values.items():
        series = pd.Series(numbers)
        ends[f"{name}_low"] = series.min()
        ends[f"{name}_high"] = series.max()
    return ends


def both_sides(
    sides: Mapping[str, Any], words: Callable[[Any], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the words for the side computed here and, as `author_…`, for the author's side.

    The latter are dashes if there is no author's side.

    Args:
        sides: The data of each side; the last one was computed here.
        words: A function that returns the words for a side's data, by name.
    """
    computed = dict(words(list(sides.values())[-1]))
    authors = words(sides[AUTHORS]) if AUTHORS in sides else dict.fromkeys(computed, MISSING)
    return computed | {f"author_{name}": value for name, value in authors.items()}


# ---- longer sums


def attention_words(side: tuple[pd.DataFrame, Arrays]) -> dict[str, Any]:
    """Return the words for attention in models of longer sums (Fig. 21, 23).

    `side` has `findings.lengths.attention_summary`, and the arrays that `shares_by_class` draws.
    """
    summary, classes = side
    by_run = summary.set_index("run")
    last_layer = by_run["decision head"].iloc[0].partition(":")[0]
    staircases = {
        "digits": by_run.filter(like="between").min(axis=1),
        "rows_first": by_run.filter(like="layer 0").min(axis=1),
        "rows_last": by_run.filter(like=f"layer {last_layer}").min(axis=1),
    }
    to_right = classes["right"].swapaxes(0, 1)  # [head, class, position]
    head = int(to_right.mean((1, 2)).argmax())
    carry_in = carries.carry_in(to_right.shape[-1] + 1)[:, :-1].numpy()
    words = {name: weakest >= PARTNER_ATTENTION for name, weakest in staircases.items()}
    return words | {
        "weakest": ", ".join(f"{x:.2f}" for x in staircases["digits"]),
        "ahead": ", ".join(f"{x:.2f}" for x in by_run["ahead"]),
        "head": f"{last_layer}:{head}",
        "carry": f"{to_right[head][carry_in].mean():.2f}",
        "rest": f"{to_right[head][~carry_in].mean():.2f}",
    }


def decodable(separations: pd.DataFrame, n_long: int) -> dict[str, Any]:
    """Return, for each step, the runs in which it can be decoded at all positions of a kind.

    (Fig. 22, 24.)

    `separations` are those of `findings.lengths`. The first `n_long` positions are long, the
    others trained.
    """
    words: dict[str, Any] = {}
    kinds = np.where(separations.position < n_long, "long", "trained")
    for (step, kind), rows in separations.groupby(["step", kinds]):
        worst = rows.groupby("run").accuracy.min()
        words[f"{step}_{kind}"] = worst >= SEPARATING_ACCURACY
        words[f"{step}_{kind}_worst"] = ", ".join(f"{x:.3f}" for x in worst)
    return words


def forgetting(fates: pd.DataFrame) -> str:
    """Return a clause for each run on how its exact match falls again (Fig. 20).

    `fates` are those of `findings.lengths.forgetting`; `first to go` has the first positions that
    a run loses, in words.
    """
    clauses = []
    for _, run in fates.iterrows():
        first = run["first to go"]
        lost = "and no position is lost" if first == "none" else f"position {first} first"
        clauses.append(
            f"run {run['run']} falls from {run['best']:.2f} at epoch {run['peak']} of"
            f" {run['epochs']} to {run['last']:.2f}, {lost}"
        )
    return "; ".join(clauses)


def staircase_falls(steps: pd.DataFrame) -> dict[str, Any]:
    """Return the runs in which a staircase falls at long positions, and its path (Fig. 20).

    It is that of the answer rows in the last layer, without priming.
    """
    unprimed = steps[(steps.group == "unprimed") & (steps.staircase == steps.staircase.max())]
    breaks = {}
    paths = []
    for run, weakest in unprimed.sort_values("epoch").groupby("run")["weakest long"]:
        stands = weakest >= PARTNER_ATTENTION
        breaks[run] = bool((stands.cummax() & ~stands).any())
        paths.append(" → ".join(f"{x:.2f}" for x in weakest))
    return {"breaks": breaks, "path": "; ".join(paths)}


def final_mlp_paths(correlations: pd.DataFrame) -> dict[str, Any]:
    """Return the path of each run's correlation without the final MLP (App. H.1).

    Also return the runs in which it rises, and those in which it ends where the final MLP carries.
    """
    paths = {run: rows.correlation.tolist() for run, rows in correlations.groupby("run")}
    in_words = [" → ".join(f"{x:.2f}" for x in path) for path in paths.values()]
    return {
        "path": minus_signs("; ".join(in_words)),
        "rises": {run: path[-1] > path[0] for run, path in paths.items()},
        "carries": {run: path[-1] >= CANNOT_CARRY_CORRELATION for run, path in paths.items()},
    }


def primed_parts(
    side: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame], n_long: int
) -> dict[str, Any]:
    """Return the words for the steps that a primed model decodes, and for its parts (Fig. 24).

    `side` has `findings.lengths.separations`, what `findings.lengths.part_costs` gives for each
    run, and accuracies by ablated part, kind of digit and position.
    """
    separations, costs, accuracies = side
    words = decodable(separations, n_long)
    for name in ("carried", "corrected", "trained", "spared"):
        words[name] = ", ".join(f"{x:.2f}" for x in costs[name])
    without_carry_in = accuracies[accuracies.digits == "without a carry-in"]
    means = without_carry_in.groupby("without", sort=False).accuracy.mean()
    losses = (means["intact"] - means).round(2)
    needed = [f"{part} ({loss:.2f})" for part, loss in losses.items() if loss >= lengths.PART_LOSS]
    return words | {
        "head": ", ".join(costs["head"]),
        "spares": lengths.spares_long_carries(costs.set_index("run")),
        "needed": ", ".join(needed) or "none",
    }


# ---- language models


def spread(values: "pd.Series[float]") -> str:
    """Return the range and the mean of some values; a dash if there are none."""
    if not len(values):
        return MISSING
    return f"{values.min():.2f} to {values.max():.2f} (mean {values.mean():.2f})"


def small_model(record: Mapping[str, Any]) -> str:
    """Return sentences on the training of our own small language model, the first good one tried.

    `record` is that of its training (`llm.recordings.small_training`).
    """
    ladder = record.get("ladder")
    if not ladder:
        reached = record["history"][-1]["accuracy"]
        ladder = [record["recipe"] | {"accuracy": reached, "parameters": record["parameters"]}]
    *earlier, last = ladder
    sentences = []
    for size in earlier:
        sentences.append(
            f"A model of width {size['width']} ({size['parameters']:,} parameters)"
            f" reached {size['accuracy']:.3f}."
        )
    minutes = max(1, round(record["seconds"] / 60))
    sentences.append(
        f"The one of this page has width {last['width']} ({last['parameters']:,} parameters)"
        f" and reached {last['accuracy']:.3f} on other sums after {record['steps']:,} steps,"
        f" {minutes} minutes on a {record['device']}."
    )
    return " ".join(sentences)

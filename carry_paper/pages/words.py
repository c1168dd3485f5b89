"""Put what was computed into the words of a page's sentences."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from carry_core import carries, groups, runs
from carry_paper.findings.geometry import SEPARATING_ACCURACY
from carry_paper.findings.heads import PARTNER_ATTENTION
from carry_paper.plots.sides import AUTHORS, Arrays


def provenance(loaded: runs.Runs, beside: runs.Runs | None = None) -> str:
    """Where a page's weights come from, and those it compares them with; whether they stand in for others."""
    if beside is not None:
        pair = (loaded, beside)
        how = {
            (x.record["recipe"], x.record["epochs"] / x.planned_epochs)
            for x in pair
            if x.source == "ours"
        }
        note = (
            ""
            if len(how) < 2
            else " They were not trained alike: differences may come from the training."
        )
        return f"{provenance(loaded)} Beside it {provenance(beside)}{note}"
    one = len(loaded.numbers) == 1
    n_runs = "1 run" if one else f"{len(loaded.numbers)} runs"
    if loaded.source == "author":
        return f"{loaded.group}: {n_runs} of the author's release."
    sessions = [session for r in loaded.record["runs"] for session in (r, *r.get("sessions", ()))]
    used = (
        sorted({s[key] for s in sessions if key in s}) for key in ("precision", "device", "torch")
    )
    precision, device, torchs = map(", ".join, used)
    text = f"{loaded.group}: {n_runs} of our own, {loaded.training}, {precision}, {device}, torch {torchs}."
    stand = "It stands in for a full run" if one else "They stand in for full runs"
    planned = groups.find(loaded.group).epochs
    return text + (f" {stand} ({planned} epochs) by the recipe “paper”." if loaded.stand_in else "")


def of_runs(shows: Mapping[Any, bool] | pd.Series) -> str:
    """How many runs show something, and which: `4 of 6 runs (0, 1, 3 and 4)`, `all 6 runs`, `none of 6 runs`."""
    which = [str(run) for run, x in dict(shows).items() if x]
    if len(which) == len(shows):
        return {0: "–", 1: "the only run", 2: "both runs"}.get(len(shows), f"all {len(shows)} runs")
    if not which:
        return f"none of {len(shows)} runs" if len(shows) > 1 else "no run"
    listed = " and ".join(filter(None, [", ".join(which[:-1]), which[-1]]))
    return f"{len(which)} of {len(shows)} runs ({listed})"


def of_its_own(name: str) -> str:
    """What sets a group apart from the main one, in words; that itself is `the main model`."""
    main, parts = (str(groups.find(each)).split(", ") for each in (groups.MAIN, name))
    return (
        ", ".join(part for part in parts if part not in main).replace("causal", "decoder")
        or "the main model"
    )


def spans(**values: Any) -> dict[str, float]:
    """The lowest and the highest of each of some values, as `…_low` and `…_high`, for `glue`."""
    series = {name: pd.Series(x) for name, x in values.items()}
    return {
        f"{name}_{end}": x
        for name, s in series.items()
        for end, x in (("low", s.min()), ("high", s.max()))
    }


def words_of(sides: Mapping[str, Any], words: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """What the sentences say of the side that was computed here, and as `author_…` of the author's, or dashes."""
    here = words(list(sides.values())[-1])
    theirs = words(sides[AUTHORS]) if AUTHORS in sides else dict.fromkeys(here, "–")
    return {**here, **{f"author_{key}": said for key, said in theirs.items()}}


def attention_words(side: tuple[pd.DataFrame, Arrays]) -> dict[str, str]:
    """What sentences say of `findings.lengths.attention_summary`, and of what `shares_by_class` draws (Fig. 21, 23)."""
    by_run, classes = side[0].set_index("run"), side[1]
    last = by_run["decision head"].iloc[0].partition(":")[0]
    kinds = {"digits": "between", "rows_first": "layer 0", "rows_last": f"layer {last}"}
    steps = {key: by_run.filter(like=kind).min(axis=1) for key, kind in kinds.items()}
    right = classes["right"].swapaxes(0, 1)
    most = int(right.mean((1, 2)).argmax())
    carry_in = carries.carry_in(right.shape[-1] + 1)[:, :-1].numpy()
    return {key: of_runs(weakest >= PARTNER_ATTENTION) for key, weakest in steps.items()} | {
        "weakest": ", ".join(f"{x:.2f}" for x in steps["digits"]),
        "ahead": ", ".join(f"{x:.2f}" for x in by_run["ahead"]),
        "head": f"{last}:{most}",
        "carry": f"{right[most][carry_in].mean():.2f}",
        "rest": f"{right[most][~carry_in].mean():.2f}",
    }


def told_apart(separations: pd.DataFrame, n_long: int) -> dict[str, str]:
    """In which runs a step of `lengths.separations` is told at all trained, or all long positions (Fig. 22, 24)."""
    found, long = {}, np.where(separations.position < n_long, "long", "trained")
    for (step, kind), some in separations.groupby(["step", long]):
        worst = some.groupby("run").accuracy.min()
        found[f"{step}_{kind}"] = of_runs(worst >= SEPARATING_ACCURACY)
        found[f"{step}_{kind}_worst"] = ", ".join(f"{x:.3f}" for x in worst)
    return found

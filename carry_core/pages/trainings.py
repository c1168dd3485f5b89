"""Trainings of one group by each recipe, side by side: how each went, and what it found inside (App. A)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from carry_core import author, groups, measure, runs
from carry_core.findings import heads
from carry_core.findings.dynamics import finished
from carry_core.model import Transformer
from carry_core.pages import at_hand
from carry_core.plots.curves import plain_log
from carry_core.plots.style import WIDTH, Table, number, styled
from carry_core.runs import History, Runs

MOMENTS = (0.001, 0.02, 0.06, 0.09, 1.0)  # of the paper's epochs: of 1000 the first, 20, 60 (the end of quick), 90, all
COLOURS = {"author": "#6B7280", "paper": "#7A1F5C", "quick": "#2381A0"}


@dataclass(frozen=True)
class Training:
    """The runs of one group that were trained alike.

    Attributes:
        runs: their weights at the end.
        history: their learning curves; empty if there are none.
    """

    runs: Runs
    history: History

    @property
    def kind(self) -> str:
        """`author`, or by which recipe ours were trained."""
        return "author" if self.runs.source == "author" else str(self.runs.record["recipe"])


def of(group: str, source: str) -> dict[str, Training]:
    """Every training of a group by a source, by what to call it: ours by each recipe.

    Raises:
        BadInput: as `runs.load`.
    """
    if source == "ours":
        found = ours(group)
        return {at_hand.mark(found[recipe].runs): found[recipe] for recipe in groups.RECIPES if recipe in found}
    theirs = runs.load(group, source)
    curves = runs.history(group, source) if author.holds("history", group) else {}
    return {at_hand.mark(theirs): Training(theirs, curves)}


def ours(group: str) -> dict[str, Training]:
    """Our trainings of a group by recipe, that of the group's own file first.

    Raises:
        BadInput: as `runs.load`, if a file is there.
    """
    return {
        recipe: Training(runs.load(group, recipe=recipe), runs.history(group, recipe=recipe))
        for recipe in recipes(group)
    }


def compared() -> list[str]:
    """Groups of which ours were trained by both recipes, in the order of the campaign."""
    return [name for name in groups.GROUPS if len(recipes(name)) > 1]


def told(found: Mapping[str, Training]) -> str:
    """Where each training's weights come from, a line each, for the page."""
    return "\n".join(f"- **{name}**: {training.runs.provenance}" for name, training in found.items())


def inside(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int) -> dict[str, float]:
    """What one run does with the sums, and what it needs for it (Sec. 3 to 5), by what to call it.

    With one layer nothing reads the rows of the digits: attention is that of the answer's rows (Fig. 2).

    Args:
        model: the run.
        a, b: the sums' two numbers.
        n_digits: their digits.
    """
    last = heads.ablate_last_layer(model, a, b, n_digits)
    pattern, layout = measure.attention(model, a, b)[0], model.config.layout
    found = {
        "whole answers": last.intact.exact_match,
        "lost without the decision head": last.intact.exact_match - last.decision.exact_match,
        "lost without the last layer’s other head": last.intact.exact_match - last.other.exact_match,
    }
    if model.config.layers == 1:
        own = heads.column_mass(pattern, layout)[:, -n_digits:].amax(0)
        return found | {"the least attention that a row of the answer gives its own column": float(own.min())}
    correlation = heads.pearson(last.mlp, heads.no_carry_reference(n_digits))
    return found | {
        "without the final MLP: correlation with a model that cannot carry": correlation,
        "staircase: the least attention that a digit gives its partner": float(
            heads.partner_mass(pattern, layout).amax(0).min()
        ),
    }


def insides(found: Mapping[str, Training], group: str, n_examples: int, seed: int) -> dict[str, list[dict[str, float]]]:
    """`inside` for every run of a group's trainings, on the same random sums of each class."""
    n_digits = groups.find(group).n_digits
    a, b = measure.sample(n_examples, n_digits, seed)
    return {
        name: [inside(model, a, b, n_digits) for _, model in training.runs.models()] for name, training in found.items()
    }


# ---------------------------------------------------------------- tables and curves


def table_of_groups() -> Table:
    """Every group of the paper and what there is of it from us: runs, recipe, epochs, time, and how well it adds.

    A group that was trained by both recipes has a line for each, the one that the pages use first.

    The accuracy is that of whole answers on the test sums after the last epoch, the lowest of the runs.
    """
    rows = []
    for name in groups.GROUPS:
        for recipe, training in ours(name).items():
            last = [float(finished(curve)[-1]) for curve in training.history["test_whole"]]
            each = training.runs.record["runs"]
            minutes = [run["seconds"] / 60 for run in each]
            precisions = ", ".join(sorted({run["precision"] for run in each}))
            took = "–".join(dict.fromkeys(f"{end(minutes):.0f}" for end in (min, max)))
            epochs = groups.reached(name, recipe, training.runs.record["epochs"])
            n_runs = f"{len(each)} of {groups.find(name).n_runs}"
            rows.append([name, n_runs, recipe, epochs, precisions, took, number(min(last), 4)])
    return Table(["group", "runs", "recipe", "epochs", "precision", "minutes a run", "lowest accuracy"], rows)


def steps(history: Mapping[str, NDArray[Any]], group: str) -> NDArray[np.int64]:
    """Optimiser steps after each epoch of a history."""
    return np.arange(1, history["test_loss"].shape[1] + 1) * groups.find(group).steps


@styled
def training_curves(found: Mapping[str, Training], group: str) -> Figure:
    """Test loss, accuracy of whole answers and squared norm against optimiser steps, one colour a training.

    Args:
        found: trainings of the group by what they are called; those without learning curves are left out.
        group: which group they are of.
    """
    figure = Figure(figsize=(WIDTH, 2.5), layout="constrained")
    panels = {"test_loss": "test loss", "test_whole": "test accuracy, whole answer", "weight_norm": "squared norm"}
    for ax, (key, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for name, training in found.items():
            if key not in training.history:
                continue
            at, colour = steps(training.history, group), COLOURS[training.kind]
            for i, curve in enumerate(training.history[key]):
                ax.plot(at, curve, color=colour, linewidth=0.9, alpha=0.7, label=name if i == 0 else None)
        ax.set(title=title, xlabel="optimiser steps", xscale="log")
        if key == "test_loss":
            plain_log(ax)
        else:
            ax.set_ylim(0)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), handlelength=1.2)
    return figure


def table_of_norms(found: Mapping[str, Training], group: str) -> Table:
    """The squared norm along each training, run by run, at epochs of the recipe of the paper."""
    wanted = sorted({max(1, round(share * groups.find(group).epochs)) for share in MOMENTS})
    rows = []
    for name, training in found.items():
        if not training.history:
            continue
        for run, curve in zip(training.history["runs"].tolist(), training.history["weight_norm"], strict=True):
            known = finished(curve)
            values = [number(known[epoch - 1], 0) if epoch <= len(known) else "–" for epoch in wanted]
            rows.append([f"{name}, run {run}", *values])
    return Table(["", *(f"epoch {epoch}" for epoch in wanted)], rows)


def table_of_costs(found: Mapping[str, Any] | None) -> Table:
    """A training step of ours beside the plain one's, from what `carry bench train --save` wrote."""
    header = ["device", "runs", "layers", "precision", "plain", "ours", "ratio", "floor", "share"]
    rows = []
    for row in (found or {"rows": []})["rows"]:
        plain, ratio = "–", "–"
        if "ratio" in row:
            plain = f"{number(row['plain fp32, ms'], 0)} ms"
            ratio = (
                f"{number(row['ratio'], 1)}\n{number(row['ratio, lowest'], 1)} to {number(row['ratio, highest'], 1)}"
            )
        ours, floor = (f"{row[key]:.3g} ms" for key in ("ours, ms", "floor, ms"))
        if "binds" in row:
            others = {name: row[f"floor of {name}, ms"] for name in ("bytes", "launches")}
            each = sorted(({"operations": row["floor, ms"]} | others).items(), key=lambda floor: -floor[1])
            floor = "\n".join(f"{value:.3g} ms ({name})" for name, value in each)
        share = f"{100 * row['share of matmul peak']:.0f}%"
        rows.append(
            [row["device"], *map(str, (row["runs"], row["layers"])), row["precision"], plain, ours, ratio, floor, share]
        )
    if all(row[0].startswith("cpu") for row in rows):
        main = groups.GROUPS[groups.MAIN]
        rows.append(["a GPU", f"{main.n_runs}", f"{main.config.layers}", "fp32", "–", "not measured", "–", "–", "–"])
    return Table(header, rows)


def table_of_insides(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    """What the runs of each training do: the mean, and in small type the runs if there are several.

    Args:
        found: of each training, `inside` of its runs.
    """
    quantities = next(iter(found.values()), [{}])[0]
    rows: list[list[str]] = []
    for quantity in quantities:
        cells = []
        for values in ([run[quantity] for run in training] for training in found.values()):
            told = [number(x, 2) for x in values] if len(values) > 1 else []
            lines = [" ".join(told[i : i + 3]) for i in range(0, len(told), 3)]
            cells.append("\n".join([number(sum(values) / len(values), 3), *lines]))
        rows.append([quantity, *cells])
    return Table(["", *found], rows)


def summary(values: Tensor) -> tuple[float, float | None]:
    """Mean over runs and standard deviation with n - 1 (None for a single run)."""
    return values.double().mean().item(), values.double().std().item() if len(values) > 1 else None


def recipes(group: str) -> list[str]:
    """The recipes that ours of a group were trained by, the one that `load` gives first."""
    there = [recipe for recipe in groups.RECIPES if runs.find(group, recipe=recipe)]
    leading = [path.parent.name for path in runs.find(group).values()]
    return list(dict.fromkeys([*leading, *there]))

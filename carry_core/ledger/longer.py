"""What the paper claims in words of longer sums, measured in each run (Sec. 6, App. F, App. H).

As in `behaviour`, a row's `reason` in `data/claims.yml` says when a run counts as showing a finding.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

from carry_core import criteria, forgetting, groups, longer, measure, roles
from carry_core.errors import BadInput
from carry_core.ledger.behaviour import finding, per_model, result
from carry_core.ledger.evidence import Evidence
from carry_core.ledger.quantities import FINETUNED, PAD6, PRIMED, of_the_papers_epochs
from carry_core.ledger.readings import DIGITS4, Found, all_heads, listed, pearson, ranked_heads
from carry_core.model import Transformer

BALANCED = 4_450  # six-digit sums, fifty of each class
RANDOM = 5_000  # six-digit sums, drawn from all


@finding("four_digits", {DIGITS4: all_heads(DIGITS4)})
def four_digits(evidence: Evidence) -> Found:
    """App. F: the final MLP carries and a head decides, over the thirteen classes."""
    found, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(DIGITS4).items():
        found[run] = pearson(survey, DIGITS4)
        first, *_, last = ranked_heads(survey, DIGITS4)
        gap = survey.cells[last].whole - survey.cells[first].whole
        kept, either = measure.decision_pattern(survey.cells[first])
        shows[run] = criteria.cannot_carry(found[run]) and criteria.decides(gap, survey.cells[first])
        notes.append(
            f"run {run}: {first} costs {gap:.3f} more than the other, lowest carry cell {kept:.3f}, lowest"
            f" right-or-too-large {either:.3f}"
        )
    return result(found, shows, f"Pearson correlation without the final MLP. {'; '.join(notes)}.")


def trained_to_the_end(evidence: Evidence, group: str) -> dict[int, forgetting.Forgetting]:
    """`Forgetting` of every run of a group.

    Raises:
        BadInput: there are none, or they stopped before the end of their recipe.
    """
    curves = evidence.curves(group)
    if evidence.source == "ours":
        whole, reached = evidence.whole(group), evidence.group(group).record["epochs"]
        if reached < whole:
            raise BadInput(f"needs: {group} for all {whole} epochs of its recipe; it has {reached}.")
    return forgetting.forgetting(curves)


@finding("length")
def length(evidence: Evidence) -> Found:
    """App. H, Fig. 20: forgotten without priming, kept with it."""
    unprimed, primed = (trained_to_the_end(evidence, group) for group in (PAD6, PRIMED))
    runs, shows, notes = {}, {}, []
    for name, found in (("unprimed", unprimed), ("primed", primed)):
        for run, f in found.items():
            runs[name, run], shows[name, run] = f.last / f.best, f.forgets == (name == "unprimed")
            first = " and ".join(map(str, f.first)) or "none"
            notes.append(
                f"{name} {run}: {f.best:.3f} at epoch {f.peak}, {f.last:.3f} at {f.epochs}, first to go {first}"
            )
    detail = f"Accuracy at the end over the best, mean of the unprimed runs. {'; '.join(notes)}."
    return replace(result(runs, shows, detail), value=mean(f.last / f.best for f in unprimed.values()))


@finding("mlp_2500")
def mlp_2500(evidence: Evidence) -> Found:
    """App. H: without the final MLP, at the three trained positions of six-digit sums."""
    epochs = (500, 1000, 2500)
    loaded = of_the_papers_epochs(evidence, PAD6, *epochs)
    n_digits, sums = groups.find(PAD6).n_digits, longer.balanced(groups.find(PAD6).config.width, BALANCED)

    def correlations(run: int, model: Transformer) -> list[float]:
        return [roles.trained_correlation(loaded.model(run, epoch), *sums, n_digits)[0] for epoch in epochs]

    found = per_model(evidence, PAD6, correlations)
    told = "; ".join(f"run {run}: {listed(values)}" for run, values in found.items())
    return result(
        {run: values[-1] for run, values in found.items()},
        {run: roles.comes_to_carry(values[0], values[-1]) for run, values in found.items()},
        f"Correlation over the last three positions at epochs 500, 1000 and 2500: {told}.",
    )


@finding("primed_parts")
def primed_parts(evidence: Evidence) -> Found:
    """App. H.1: who carries at the long positions, and who corrects. The author's head has to be 0:0."""
    n_long, sums = longer.long_positions(PRIMED), longer.balanced(groups.find(PRIMED).config.width, BALANCED)
    found: dict[int, roles.Primed] = per_model(
        evidence, PRIMED, lambda run, m: roles.primed_parts(roles.without_parts(m, *sums), n_long)
    )
    named = evidence.source == "ours"
    shows = {run: x.shows and (named or x.head.heads == {(0, 0)}) for run, x in found.items()}
    told = " ".join(f"Run {run}: {x}" for run, x in found.items())
    detail = f"What carry cells at the long positions lose without the costliest head of the first layer. {told}"
    return result({run: x.carried for run, x in found.items()}, shows, detail)


@finding("carry_axis_long")
def carry_axis_long(evidence: Evidence) -> Found:
    """App. H.1, H.2: as `carry_axis`, on six-digit sums, in the primed and in the finetuned runs."""
    sums = longer.random_sums(groups.find(PRIMED).config.width, RANDOM)
    of: Callable[[int, Transformer], Any] = lambda run, m: longer.axis_and_plane(m, *sums)  # noqa: E731
    runs: dict[tuple[str, int], float] = {}
    notes = []
    for name, group in (("primed", PRIMED), ("finetuned", FINETUNED)):
        if not evidence.has(group):
            notes.append(f"{name}: no weights at hand")
            continue
        found = per_model(evidence, group, of)
        runs |= {(name, run): axis for run, (axis, _) in found.items()}
        told = "; ".join(f"run {run}: {listed(both)}" for run, both in found.items())
        notes.append(f"{name}, {told}")
    if not runs:
        evidence.group(PRIMED)
    shows = {key: criteria.carry_axis(x) for key, x in runs.items()}
    return result(
        runs,
        shows,
        f"Correlation of the leading axis, and of the best direction in the plane of two. {'. '.join(notes)}.",
    )

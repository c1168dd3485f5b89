"""What the paper claims in words about learning curves and ablations, measured in each run (`findings.yml`).

When a run counts as showing a finding is the `reason` of its row in `data/claims.yml`. What the averages hide
stands in the detail.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from carry_core import criteria, measure, sums, transitions
from carry_core.dynamics import LEARNT, SOON, first_at, window
from carry_core.edits import INTACT
from carry_core.errors import BadInput
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger.evidence import Evidence, Need, each
from carry_core.ledger.quantities import finetuned
from carry_core.ledger.readings import (
    DECODER,
    DFF1024,
    N1,
    N3,
    Found,
    all_heads,
    listed,
    pearson,
    ranked_heads,
    without_mlp,
)
from carry_core.longer import right_digits, widened
from carry_core.model import Transformer

SAMPLE = 20_000  # random sums where a finding does not need all
Measure = Callable[[Evidence], Found]


@dataclass(frozen=True)
class Finding:
    """How a finding is measured, and what that needs of which group."""

    of: Measure
    needs: Mapping[str, Need] = field(default_factory=dict)


FINDINGS: dict[str, Finding] = {}


def finding(name: str, needs: Mapping[str, Need] | None = None) -> Callable[[Measure], Measure]:
    """Register the measure of `finding/<name>`."""

    def register(of: Measure) -> Measure:
        FINDINGS[f"finding/{name}"] = Finding(of, needs or {})
        return of

    return register


def result(runs: Mapping[Any, float], shows: Mapping[Any, bool], detail: str) -> Found:
    """A finding whose headline is the mean over runs; these by number, or by group and number."""
    known = [x for x in runs.values() if x == x]
    return Found(dict(runs), mean(known) if known else float("nan"), detail=detail, shows=dict(shows))


def random_sums() -> tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]]:
    """The same random three-digit sums every time."""
    return sums.long_sums(SAMPLE, 3, torch.Generator().manual_seed(0))


def per_model(evidence: Evidence, group: str, of: Callable[[int, Transformer], Any]) -> dict[int, Any]:
    """`of(run, model)` for each run of a group, several at once."""
    models = evidence.models(group)
    return dict(zip(models, each(lambda run: of(run, models[run]), models), strict=True))


# learning curves


@finding("transition")
def transition(evidence: Evidence) -> Found:
    """Sec. 3, Fig. 2: attention from the units' answer position to its two digits, against its accuracy."""
    found = transitions.of_runs(evidence.curves(N1), GROUPS[N1].config.layout, evidence.whole(N1))
    notes = [
        f"run {run}: steepest rise at epoch {t.rise:.0f}, attention passes one half at {t.formed[0]:.0f}"
        for run, t in found.items()
    ]
    return result(
        {run: t.lag for run, t in found.items()},
        {run: t.coincides for run, t in found.items()},
        f"The lag in epochs. {'; '.join(notes)}.",
    )


@finding("norm_bounce")
def norm_bounce(evidence: Evidence) -> Found:
    """Sec. 3, Fig. 2: the squared norm turns from falling to rising."""
    found = transitions.of_runs(evidence.curves(N1), GROUPS[N1].config.layout, evidence.whole(N1))
    notes = [f"run {run}: it has lost {t.fall:.1%} and gains {t.rebound:.1%}" for run, t in found.items()]
    return result(
        {run: t.bounce - t.rise for run, t in found.items()},
        {run: t.bounces for run, t in found.items()},
        f"Epochs from the steepest rise of units accuracy to the nearest turn of the norm. {'; '.join(notes)}.",
    )


@finding("one_layer_imperfect")
def one_layer_imperfect(evidence: Evidence) -> Found:
    """Sec. 3."""
    curves = evidence.curves(N1)
    best = dict(zip(curves["runs"].tolist(), curves["test_whole"].max(1).astype(float).tolist(), strict=True))
    return result(best, {run: x < 1 for run, x in best.items()}, "Best whole-answer test accuracy of any epoch.")


@finding("no_grokking")
def no_grokking(evidence: Evidence) -> Found:
    """App. C."""
    lag, shows, notes = {}, {}, []
    for group in GROUPS:
        try:
            curves = evidence.curves(group)
        except BadInput:
            continue
        late, soon = [], window(evidence.whole(group), SOON)
        for i, run in enumerate(curves["runs"].tolist()):
            learnt, gap = (first_at(curves[f"{part}_whole"][i], LEARNT) for part in ("train", "test"))
            gap -= learnt
            if learnt == learnt:  # if test accuracy never follows, that is what grokking would look like so far
                lag[group, run], shows[group, run] = gap, gap <= soon
                late.append(gap)
        notes.append(f"{group}: {listed(late) or 'no run gets there'}")
    if not lag:
        raise BadInput(f"needs: learning curves in which training and test accuracy pass {LEARNT}.")
    return result(lag, shows, f"Epochs by which test accuracy passes {LEARNT} later. {'; '.join(notes)}.")


# ablations


@finding("decision_head", {MAIN: all_heads(MAIN)})
def decision_head(evidence: Evidence) -> Found:
    """Sec. 4, Tab. 1."""
    gap, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(MAIN).items():
        first, *_, last = ranked_heads(survey, MAIN)
        gap[run] = survey.cells[last].whole - survey.cells[first].whole
        kept, either = measure.decision_pattern(survey.cells[first])
        shows[run] = criteria.decides(gap[run], survey.cells[first])
        others = listed(survey.cells[head].whole for head in ranked_heads(survey, MAIN))
        notes.append(
            f"run {run}: {first} {others}, lowest carry cell {kept:.3f}, lowest right-or-too-large {either:.3f}"
        )
    return result(gap, shows, f"How much more of the whole answers the decision head costs. {'; '.join(notes)}.")


@finding("final_mlp_carries", {MAIN: Need()})
def final_mlp_carries(evidence: Evidence) -> Found:
    """Sec. 4, Tab. 1."""
    found = {run: pearson(survey, MAIN) for run, survey in evidence.surveys(MAIN).items()}
    shows = {run: criteria.cannot_carry(x) for run, x in found.items()}
    return result(found, shows, "Pearson correlation with a model that cannot carry.")


@finding("squashing", {MAIN: Need(squash=True)})
def squashing(evidence: Evidence) -> Found:
    """Sec. 4: 74 is the paper's; all other outcomes with at least 20 sums a >= b beside it."""
    ratio, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(MAIN).items():
        ratio[run] = float(survey.squashing[74].mean())
        shows[run] = bool((survey.squashing[74] < 1).all())
        below = (torch.stack(list(survey.squashing.values())) < 1).double().mean(0)
        notes.append(f"run {run}: {listed(survey.squashing[74].tolist())}, below one in {listed(below.tolist())}")
    return result(ratio, shows, f"At 7, 8, 9 for 74, and the share of all outcomes: {'; '.join(notes)}.")


@finding("wide_mlp", {DFF1024: Need(dissect=True)})
def wide_mlp(evidence: Evidence) -> Found:
    """App. C.2."""
    kept, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(DFF1024).items():
        assert survey.dissected is not None
        whole, part = without_mlp(DFF1024)(survey), survey.dissected.cells
        kept[run] = measure.mean_over(whole, "accuracy", carry=False)
        rest, carry = (measure.mean_over(part, "accuracy", carry=c) for c in (False, True))
        shows[run] = criteria.unable(kept[run]) and criteria.only_carrying_goes(carry, rest)
        notes.append(f"run {run}: {kept[run]:.3f}; of {survey.dissected.neurons} neurons {rest:.3f} and {carry:.3f}")
    return result(
        kept,
        shows,
        f"No-carry cells without the MLP; no-carry and carry cells without the neurons: {'; '.join(notes)}.",
    )


HEADS = measure.last_heads(GROUPS[N3].config, 2)


@finding("three_layers", {N3: Need(frozenset([INTACT, *HEADS]))})
def three_layers(evidence: Evidence) -> Found:
    """App. C.3, Tab. 3."""
    found, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(N3).items():
        found[run] = pearson(survey, N3)
        loss = [survey.cells[INTACT].whole - survey.cells[head].whole for head in HEADS]
        shows[run] = criteria.cannot_carry(found[run]) and not criteria.matters(max(loss))
        notes.append(f"run {run}: heads 1:0, 1:1, 2:0, 2:1 cost {listed(loss)}")
    return result(found, shows, f"Pearson correlation without the last MLP. {'; '.join(notes)}.")


@finding("decoder", {DECODER: all_heads(DECODER)})
def decoder(evidence: Evidence) -> Found:
    """App. D: without the decision head (1:1 in the released run) a one is always added."""
    share, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(DECODER).items():
        head = ranked_heads(survey, DECODER)[0]
        added = criteria.added_ones(survey.cells[head])
        share[run] = float(torch.cat(added[:2]).mean())
        shows[run] = criteria.always_adds(survey.cells[head])
        cells = "; ".join(f"position {7 + i}: {listed(added[i].tolist())}" for i in range(3))
        either = measure.decision_pattern(survey.cells[head])[1]
        notes.append(f"run {run} {head}, one too large at {cells}; lowest right or one too large {either:.3f}")
    return result(share, shows, f"{'. '.join(notes)}.")


def bias_cost(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> float:
    """Share of the whole answers that is lost if every linear layer's bias is zeroed, LayerNorm's kept (App. A.1)."""
    without = deepcopy(model)
    for module in without.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    before, after = (right_digits(one, a, b).all(1).double().mean() for one in (model, without))
    return float(before - after)


@finding("biases")
def biases(evidence: Evidence) -> Found:
    """App. A.1, footnote: every linear layer's bias zeroed, LayerNorm's kept."""

    def cost(run: int, model: Transformer) -> float:
        return bias_cost(model, *random_sums())

    one, two = per_model(evidence, N1, cost), per_model(evidence, MAIN, cost)
    runs = {(group, run): x for group, found in ((MAIN, two), (N1, one)) for run, x in found.items()}
    shows = {key: criteria.needs_biases(x) == (key[0] == N1) for key, x in runs.items()}
    detail = f"Loss of whole answers: two layers {listed(two.values())}; one layer {listed(one.values())}."
    return replace(result(runs, shows, detail), value=mean(two.values()))


@finding("unpadded_fail")
def unpadded_fail(evidence: Evidence) -> Found:
    """App. H, footnote: the three-digit weights, given longer inputs."""
    a, b = sums.long_sums(SAMPLE, 6, torch.Generator().manual_seed(0))

    def wider(run: int, model: Transformer) -> Tensor:
        return right_digits(widened(model, 6), a, b)

    right = per_model(evidence, MAIN, wider)
    found = {run: float(hit.all(1).double().mean()) for run, hit in right.items()}
    told = "; ".join(f"run {run}: {listed(hit.double().mean(0).tolist())}" for run, hit in right.items())
    detail = f"Whole answers on 20,000 six-digit sums; digit by digit {told}."
    return result(found, {run: criteria.fails(x) for run, x in found.items()}, detail)


@finding("finetune_small_change")
def finetune_small_change(evidence: Evidence) -> Found:
    """App. H.2: the squared norm hardly changes; the distance moved says more."""
    found = finetuned(evidence)
    told = "; ".join(f"run {run}: squared norm {m.change:+.4f}" for run, m in found.items())
    moved = {run: m.distance for run, m in found.items()}
    return result(moved, {run: criteria.changes_little(x) for run, x in moved.items()}, f"Distance over norm; {told}.")

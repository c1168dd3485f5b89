"""What the paper claims in words of some runs of other groups: parts ablated in pairs, a step done a layer earlier.

As in `behaviour`, a row's `reason` in `data/claims.yml` says when a run counts as showing a finding.
"""

from carry_core import criteria, measure
from carry_core.edits import INTACT
from carry_core.groups import GROUPS
from carry_core.ledger.behaviour import finding, per_model, result
from carry_core.ledger.evidence import Evidence, Need
from carry_core.ledger.insides import arriving, axes_of, mean_attention
from carry_core.ledger.readings import N3, S01, Found, listed
from carry_core.model import Transformer

PAIRS = measure.head_pairs(GROUPS[N3].config)


@finding("three_layers_pairs", {N3: Need(frozenset([INTACT, *PAIRS]))})
def three_layers_pairs(evidence: Evidence) -> Found:
    """App. C.3: without the attention of layer 1 and one head of layer 2."""
    lost, shows, notes = {}, {}, []
    for run, survey in evidence.surveys(N3).items():
        costs, told, shows[run] = [], [], False
        for pair in PAIRS:
            costs.append(survey.cells[INTACT].whole - survey.cells[pair].whole)
            kept, either = measure.decision_pattern(survey.cells[pair])
            shows[run] |= criteria.decides(costs[-1], survey.cells[pair])
            told.append(
                f"{pair} {survey.cells[pair].whole:.4g}, lowest carry cell {kept:.3f},"
                f" lowest right-or-too-large {either:.3f}"
            )
        lost[run] = max(costs)
        notes.append(f"run {run} {'; '.join(told)}")
    return result(lost, shows, f"Whole answers that the costlier pair takes away. {'. '.join(notes)}.")


@finding("carry_in_layer0")
def carry_in_layer0(evidence: Evidence) -> Found:
    """App. C.2: whether layer 0 already knows that a one arrives, and looks where it comes from."""

    def axes(run: int, model: Transformer) -> dict[int, list[float]]:
        labels = arriving(model)
        at_digits = dict(zip(range(2), labels.values(), strict=True))
        return axes_of(model, "blocks.0.resid_post", at_digits | labels)

    patterns = per_model(evidence, S01, mean_attention)
    value, shows, notes = {}, {}, []
    for run, scores in per_model(evidence, S01, axes).items():
        best = {position: max(found) for position, found in scores.items()}
        answer = GROUPS[S01].config.layout.answer[:2]
        value[run] = min(best[position] for position in answer)
        shows[run] = value[run] >= criteria.SEPARATES
        mass = measure.column_mass(patterns[run][0], GROUPS[S01].config.layout, shift=1)[:, :2].amax(0)
        told = ", ".join(f"{position}: {x:.3f}" for position, x in best.items())
        notes.append(f"run {run} attends {listed(mass.tolist())}, best axis at {told}")
    detail = (
        "Best of six axes after layer 0, the lower of positions 7 and 8. Attention of the better head of layer 0 from"
        f" 7 and 8 to the digits one to the right, and axes at the digits of a too: {'. '.join(notes)}."
    )
    return result(value, shows, detail)

"""What the paper claims in words about attention and the axes of the residual stream, measured in each run.

As in `behaviour`, a row's `reason` in `data/claims.yml` says when a run counts as showing a finding.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import criteria, geometry, measure, neurons, sums, tasks
from carry_core.edits import INTACT, Ablation
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger.behaviour import finding, per_model, random_sums, result
from carry_core.ledger.evidence import Evidence
from carry_core.ledger.readings import N1, Found, all_heads, listed, ranked_heads
from carry_core.model import Transformer


def mean_attention(run: int, model: Transformer) -> Float[Tensor, "layer head query key"]:
    """Attention averaged over random sums."""
    return measure.attention(model, *random_sums())


@finding("staircase")
def staircase(evidence: Evidence) -> Found:
    """Sec. 4, Fig. 3."""
    layout = GROUPS[MAIN].config.layout
    found, shows, at_answer = {}, {}, []
    for run, pattern in per_model(evidence, MAIN, mean_attention).items():
        mass = measure.partner_mass(pattern[0], layout)
        found[run], shows[run] = float(mass.amax(0).min()), criteria.staircase(mass)
        at_answer.append(float(measure.column_mass(pattern[0], layout).amax(0).min()))
    many = sum(x >= criteria.STAIRCASE for x in at_answer)
    detail = (
        f"The weakest digit row's best head. At the answer rows {listed(at_answer)}: {many} of {len(at_answer)} runs."
    )
    return result(found, shows, detail)


@finding("previous_sum", {MAIN: all_heads(MAIN)})
def previous_sum(evidence: Evidence) -> Found:
    """Sec. 4, Fig. 3."""
    found, shows, notes = {}, {}, []
    for run, pattern in per_model(evidence, MAIN, mean_attention).items():
        mass = measure.column_mass(pattern[-1], GROUPS[MAIN].config.layout, shift=1)[:, :2]
        ((_, head),) = ranked_heads(evidence.surveys(MAIN)[run], MAIN)[0].heads
        found[run] = float(mass[head].mean())
        shows[run] = criteria.brings_previous_sum(mass, head, GROUPS[MAIN].config.layout)
        each_head = "; ".join(f"1:{h} {listed(mass[h].tolist())}" for h in range(len(mass)))
        notes.append(f"run {run} (1:{head} decides): {each_head}")
    return result(found, shows, f"Attention to the digits one to the right, at 7 and 8. {'. '.join(notes)}.")


# principal axes


def axes_of(
    model: Transformer, site: str, positions: dict[int, Bool[Tensor, " sums"]], ablation: Ablation = INTACT
) -> dict[int, list[float]]:
    """At each position of a site, how well a threshold on each leading axis tells its label, on random sums."""
    found = measure.streams(model, *random_sums(), [site], ablation)[site]
    scores = {}
    for position, label in positions.items():
        points, _ = geometry.principal_axes(found[:, position], [])
        scores[position] = geometry.axis_by_axis(points, label)
    return scores


def arriving(model: Transformer) -> dict[int, Bool[Tensor, " sums"]]:
    """Whether a one arrives, at the two answer positions where it can."""
    a, b = random_sums()
    arrives = tasks.carry_arrives(3)[tasks.classify(a, b)]
    return {position: arrives[:, i] for i, position in enumerate(model.config.layout.answer[:2])}


def leading(found: dict[int, dict[int, list[float]]], where: str) -> Found:
    """Whether the leading axis separates at each position, and is the one that does so best."""
    value, shows, notes = {}, {}, []
    for run, axes in found.items():
        value[run] = min(scores[0] for scores in axes.values())
        shows[run] = criteria.leading_axis_separates(axes.values())
        best = "; ".join(
            f"{p}: axis 1 {scores[0]:.3f}, best {1 + scores.index(max(scores))} {max(scores):.3f}"
            for p, scores in axes.items()
        )
        notes.append(f"run {run} at {best}")
    return result(value, shows, f"Balanced accuracy of the leading axis, lowest position, {where}. {'. '.join(notes)}.")


@finding("layer0_tens")
def layer0_tens(evidence: Evidence) -> Found:
    """Sec. 4.1, Fig. 4: digit sums below and above ten, at the tens and units of a."""
    a, b = random_sums()
    big = sums.digits(a, 3) + sums.digits(b, 3) >= 10
    labels = {i: big[:, i] for i in (1, 2)}
    return leading(per_model(evidence, MAIN, lambda run, m: axes_of(m, "blocks.0.resid_post", labels)), "after layer 0")


@finding("layer1_carry")
def layer1_carry(evidence: Evidence) -> Found:
    """Sec. 4.1, Fig. 4: whether a one is needed."""
    found = per_model(evidence, MAIN, lambda run, m: axes_of(m, "blocks.1.resid_mid", arriving(m)))
    return leading(found, "after the last attention")


@finding("one_layer_no_carry")
def one_layer_no_carry(evidence: Evidence) -> Found:
    """App. B, Fig. 7: whether a one is needed is never what the leading axis of a one-layer run tells."""
    value, shows, notes = {}, {}, []
    sites = {"attention": "blocks.0.resid_mid", "MLP": "blocks.0.resid_post"}
    for run, found in per_model(
        evidence, N1, lambda run, m: {after: axes_of(m, site, arriving(m)) for after, site in sites.items()}
    ).items():
        firsts = {after: [scores[0] for scores in axes.values()] for after, axes in found.items()}
        any_axis = max(max(scores) for axes in found.values() for scores in axes.values())
        value[run] = max(x for scores in firsts.values() for x in scores)
        shows[run] = value[run] < criteria.SEPARATES
        told = "; ".join(f"{after} {listed(scores)}" for after, scores in firsts.items())
        notes.append(f"run {run} after {told}; best of six axes {any_axis:.3f}")
    return result(value, shows, f"Balanced accuracy of the leading axis at 7 and 8, the highest. {'. '.join(notes)}.")


@finding("outcome_pockets")
def outcome_pockets(evidence: Evidence) -> Found:
    """Sec. 4.1: after the final MLP sums sit by outcome, not by class."""
    a, b = random_sums()
    answer, task = sums.digits(a + b, 3), tasks.classify(a, b)

    def pockets(run: int, model: Transformer) -> list[list[float]]:
        names = ["blocks.1.resid_mid", "blocks.1.resid_post"]
        found = measure.streams(model, a, b, names)
        rows = []
        for i, position in enumerate(model.config.layout.answer[:2]):
            for name in names:
                points, _ = geometry.principal_axes(found[name][:, position], [])
                rows.append([geometry.pocket_accuracy(points[:, :2], label) for label in (answer[:, i], task)])
        return rows

    value, shows, notes = {}, {}, []
    for run, rows in per_model(evidence, MAIN, pockets).items():
        after = [(digit, task) for digit, task in rows[1::2]]
        value[run] = min(digit for digit, _ in after)
        shows[run] = criteria.by_outcome(after)
        told = "; ".join(
            f"{d0:.2f}/{t0:.2f} to {d1:.2f}/{t1:.2f}" for (d0, t0), (d1, t1) in zip(rows[::2], after, strict=True)
        )
        notes.append(f"run {run}: {told}")
    detail = f"Nearest centroid for digit/class through the MLP, at 7 and 8: {'. '.join(notes)}."
    return result(value, shows, detail)


@finding("pca_without_decision_head", {MAIN: all_heads(MAIN)})
def pca_without_decision_head(evidence: Evidence) -> Found:
    """Sec. 4.1, footnote: position 8 with either head of the last layer gone."""
    surveys = evidence.surveys(MAIN)

    def best(run: int, model: Transformer) -> list[float]:
        labels = {model.config.layout.answer[1]: arriving(model)[model.config.layout.answer[1]]}
        site = "blocks.1.resid_mid"
        ranked = ranked_heads(surveys[run], MAIN)
        return [max(max(s) for s in axes_of(model, site, labels, head).values()) for head in (ranked[0], ranked[-1])]

    found = per_model(evidence, MAIN, best)
    shows = {run: without < criteria.SEPARATES <= other for run, (without, other) in found.items()}
    told = "; ".join(f"run {run}: {without:.3f}, {other:.3f}" for run, (without, other) in found.items())
    detail = f"Best of six axes without the decision head, without the other: {told}."
    return result({run: x[0] for run, x in found.items()}, shows, detail)


# the final MLP's neurons


@finding("carry_axis")
def carry_axis(evidence: Evidence) -> Found:
    """Sec. 5, Fig. 14: a neuron's coordinate on the leading singular axis, and what it is active for."""
    found = per_model(evidence, MAIN, lambda run, m: neurons.carry_axis(m, *random_sums()).correlation)
    shows = {run: criteria.carry_axis(x) for run, x in found.items()}
    return result(found, shows, "Size of the correlation over the 128 neurons.")


@finding("checkerboard")
def checkerboard(evidence: Evidence) -> Found:
    """Sec. 5: cosines between sums of equal outcome, within minus across carry status, before and after dissection."""

    def gaps(run: int, model: Transformer) -> tuple[float, float]:
        return neurons.checkerboard(model, measure.carry_neurons(model, *measure.sample(2_000, 3, seed=0)))

    found = per_model(evidence, MAIN, gaps)
    shows = {run: criteria.checkerboard(*gaps) for run, gaps in found.items()}
    told = "; ".join(f"run {run}: {before:.3f} to {after:.3f}" for run, (before, after) in found.items())
    detail = f"Mean cosine within minus across carry status over {len(neurons.OUTCOMES)} outcomes at 7 and 8: {told}."
    return result({run: after for run, (_, after) in found.items()}, shows, detail)

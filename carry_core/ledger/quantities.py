"""From a number's id in the ledger to its value in each run, for one source of weights (PROTOCOLS).

Most are among `readings.READINGS`. The others stand here, in `SPECIAL`, a function each.
"""

from collections.abc import Callable
from statistics import mean

import torch

from carry_core import groups, longer, measure, sums, tasks
from carry_core.errors import BadInput
from carry_core.finetuning import Moved, finetuned_pairs, moved
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger import billions
from carry_core.ledger.evidence import Evidence, Need
from carry_core.ledger.readings import DIGITS4, READINGS, Found, all_heads, binomial, evaluate, listed
from carry_core.runs import Runs

PAD6, PRIMED, FINETUNED = "pad6_n2_s0.3_w0.2", "pad6_primed100_n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"
DECODER_PAD6 = "decoder_pad6_primed500_n2_s0.3_w0.2"
OTHER_OUTCOMES = (24, 49, 99, 149, 250, 499, 750, 998)  # shown beside the paper's 74
LONG = 20_000  # random sums that a padded model is tested on


def constant(value: float | int) -> Callable[[Evidence], Found]:
    """A number that needs no weights."""
    return lambda evidence: Found({}, value)


def squashing(group: str, position: int) -> Callable[[Evidence], Found]:
    """The final MLP's squashing of the sums to 74 at an answer position (Sec. 4, App. F.1)."""

    def found(evidence: Evidence) -> Found:
        models = evidence.models(group)
        runs = {run: float(measure.squashing(model)[position]) for run, model in models.items()}
        others = [
            f"{outcome}: {mean(float(measure.squashing(model, outcome)[position]) for model in models.values()):.2f}"
            for outcome in OTHER_OUTCOMES
        ]
        return Found(runs, mean(runs.values()), detail=f"For the outcome 74; for others: {', '.join(others)}.")

    return found


def spread(evidence: Evidence) -> Found:
    """Standard deviation between runs where the model without its decision head is unsure (Tab. 1, caption)."""
    unsure = ["NC/accuracy/pos7", "C@2/accuracy/pos7", "NC/accuracy/pos8", "C@1/accuracy/pos8"]
    cells = [evaluate(READINGS[f"tab1/decision_head/{end}"], evidence) for end in unsure]
    if len(cells[0].runs) < 2:
        raise BadInput(f"needs: two runs of {MAIN} or more, since one has no standard deviation.")
    deviations = [torch.tensor(list(c.runs.values()), dtype=torch.float64).std().item() for c in cells]
    detail = f"Mean over four cells of the standard deviation between runs: {listed(deviations)}."
    return Found({}, mean(deviations), detail=detail, at_hand=cells[0].at_hand)


def of_the_papers_epochs(evidence: Evidence, group: str, *epochs: int) -> Runs:
    """A group's runs, if they have weights at these epochs and an epoch is as long as the paper's.

    Raises:
        BadInput: they have not; says what is needed.
    """
    loaded = evidence.group(group)
    if loaded.record["recipe"] == "quick":
        listed_ = ", ".join(map(str, epochs))
        raise BadInput(f"needs: {group} at epoch {listed_} of the recipe “paper”; epochs of “quick” are others.")
    for epoch in epochs:
        loaded.model(loaded.numbers[0], epoch)
    return loaded


def long_accuracy(group: str, n_digits: int = 6, epoch: int | None = None) -> Callable[[Evidence], Found]:
    """Whole-answer accuracy of a padded group on random sums of so many digits, at all positions (App. H)."""

    def found(evidence: Evidence) -> Found:
        loaded = evidence.group(group) if epoch is None else of_the_papers_epochs(evidence, group, epoch)
        asked = longer.random_sums(n_digits, LONG, seed=0)
        right = {run: longer.right_digits(loaded.model(run, epoch), *asked).double() for run in loaded.numbers}
        runs = {run: float(hit.amin(1).mean()) for run, hit in right.items()}
        noise = sum(map(binomial, runs.values())) ** 0.5 / len(runs)
        told = "; ".join(f"run {run}: {listed(hit.mean(0).tolist())}" for run, hit in right.items())
        detail = f"On {LONG:,} random sums of up to {n_digits} digits; digit by digit {told}."
        if n_digits < loaded.config.width:
            last = listed(float(hit[:, -n_digits:].amin(1).mean()) for hit in right.values())
            detail += f" Of the last {n_digits} digits alone, whatever stands before them, all are right in {last}."
        return Found(runs, mean(runs.values()), noise, detail)

    return found


def accuracy_range(evidence: Evidence) -> Found:
    """Lowest and highest six-digit accuracy of the unprimed runs from epoch 200 to 1000 (Sec. 6)."""
    curves = evidence.curves(PAD6)
    if evidence.source == "ours":
        of_the_papers_epochs(evidence, PAD6, 1000)
    curve = curves["long_whole"][:, 199:1000]
    if curve.shape[1] <= 800:
        raise BadInput(
            f"needs: learning curves of {PAD6} up to epoch 1000; these have {curves['long_whole'].shape[1]}."
        )
    runs = {int(run): [float(c.min()), float(c.max())] for run, c in zip(curves["runs"], curve, strict=True)}
    ends = [mean(pair[i] for pair in runs.values()) for i in (0, 1)]
    return Found(runs, ends, detail="Lowest and highest from epoch 200 to 1000 of the learning curve.")


def finetuned(evidence: Evidence) -> dict[int, Moved]:
    """How far finetuning moved each run (App. H.2)."""
    parent = groups.find(FINETUNED).parent
    assert parent is not None
    pairs = finetuned_pairs(evidence.group(parent[0]), evidence.group(FINETUNED), parent[1])
    return {run: moved(*pair) for run, pair in pairs.items()}


def norm_of(part: str) -> Callable[[Evidence], Found]:
    """Squared norm of all parameters before and after finetuning, and its relative change (App. H.2)."""

    def found(evidence: Evidence) -> Found:
        parent = groups.find(FINETUNED).parent
        assert parent is not None
        if part != "change":
            of_the_papers_epochs(evidence, parent[0], parent[1])
        runs = {run: float(getattr(m, part)) for run, m in finetuned(evidence).items()}
        return Found(runs, mean(runs.values()), detail="The squared norm of all parameters.")

    return found


SPECIAL: dict[str, Callable[[Evidence], Found]] = {
    "data/sums3": constant(sums.n_sums(3)),
    "data/sums4": constant(sums.n_sums(4)),
    "data/vocabulary": constant(sums.VOCABULARY),
    "data/sequence_length3": constant(GROUPS[MAIN].config.layout.length),
    "data/classes3": constant(len(tasks.patterns(3))),
    "data/classes4": constant(len(tasks.patterns(4))),
    "data/classes6": constant(len(tasks.patterns(6))),
    "data/train3": constant(GROUPS[MAIN].n_train),
    "n2/decision_head_spread": spread,
    "pad6/accuracy_range": accuracy_range,
    "pad6/accuracy_epoch500": long_accuracy(PAD6, epoch=500),
    "pad6/accuracy_epoch1000": long_accuracy(PAD6, epoch=1000),
    "pad6_primed/accuracy": long_accuracy(PRIMED),
    "pad6_primed/fraction": constant(GROUPS[PRIMED].primed / (GROUPS[PRIMED].n_train - GROUPS[PRIMED].primed)),
    "pad6_finetuned/accuracy6": long_accuracy(FINETUNED),
    "pad6_finetuned/accuracy3": long_accuracy(FINETUNED, 3),
    "decoder_pad6_primed/accuracy6": long_accuracy(DECODER_PAD6),
}
SPECIAL |= {f"n2/squashing/pos{7 + i}": squashing(MAIN, i) for i in range(3)}
SPECIAL |= {f"digits4/squashing/pos{i}": squashing(DIGITS4, i) for i in range(4)}
SPECIAL |= {f"pad6_finetuned/weight_norm_{part}": norm_of(part) for part in ("before", "after", "change")}
SPECIAL_NEEDS = {"n2/decision_head_spread": {MAIN: all_heads(MAIN)}}


def known(name: str) -> bool:
    """Whether the number can be computed from weights that are there."""
    return name in READINGS or name in SPECIAL or billions.known(name)


def needed(name: str) -> dict[str, Need]:
    """What a number needs of which group."""
    if name in READINGS:
        return {READINGS[name].group: READINGS[name].need}
    return SPECIAL_NEEDS.get(name, {})


def find(name: str, evidence: Evidence) -> Found:
    """The number called `name`, from a source's weights.

    Raises:
        BadInput: it cannot be computed; says why.
    """
    if name in READINGS:
        return evaluate(READINGS[name], evidence)
    if name.startswith(("tab2/", "llm/")):
        return billions.find(name, evidence)
    return SPECIAL[name](evidence)

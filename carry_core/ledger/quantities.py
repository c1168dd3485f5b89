"""From a number's id in the ledger to its value in each run, for one source of weights (PROTOCOLS).

Most are among `readings.READINGS`. The others stand here, in `SPECIAL`, a function each.
"""

from collections.abc import Callable
from statistics import mean

import torch

from carry_core import groups, measure, sums, tasks
from carry_core.edits import INTACT
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger import billions
from carry_core.ledger.evidence import Evidence, Need
from carry_core.ledger.readings import DIGITS4, READINGS, Found, all_heads, binomial, evaluate, listed

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
    deviations = [torch.tensor(list(c.runs.values()), dtype=torch.float64).std().item() for c in cells]
    detail = f"Mean over four cells of the standard deviation between runs: {listed(deviations)}."
    return Found({}, mean(deviations), detail=detail, at_hand=cells[0].at_hand)


def long_accuracy(group: str, n_digits: int = 6, epoch: int | None = None) -> Callable[[Evidence], Found]:
    """Whole-answer accuracy of a padded group on random sums of so many digits (App. H)."""

    def found(evidence: Evidence) -> Found:
        loaded = evidence.group(group)
        a, b = sums.long_sums(LONG, n_digits, torch.Generator().manual_seed(0))
        runs = {}
        for run in loaded.numbers:
            model = loaded.model(run, epoch)
            guess = measure.guesses(model, a, b, [(model.config.layers, INTACT.site(model.config))], n_digits)[0]
            runs[run] = measure.score(guess, a, b).whole
        noise = sum(map(binomial, runs.values())) ** 0.5 / len(runs)
        return Found(runs, mean(runs.values()), noise, f"On {LONG:,} random sums of up to {n_digits} digits.")

    return found


def accuracy_range(evidence: Evidence) -> Found:
    """Lowest and highest six-digit accuracy of the unprimed runs from epoch 200 to 1000 (Sec. 6)."""
    curves = evidence.curves(PAD6)
    curve = curves["long_whole"][:, 199:1000]
    runs = {int(run): [float(c.min()), float(c.max())] for run, c in zip(curves["runs"], curve, strict=True)}
    ends = [mean(pair[i] for pair in runs.values()) for i in (0, 1)]
    return Found(runs, ends, detail="Lowest and highest from epoch 200 to 1000 of the learning curve.")


def norm_of(part: str) -> Callable[[Evidence], Found]:
    """Squared norm of all parameters before and after finetuning, and its relative change (App. H.2)."""

    def found(evidence: Evidence) -> Found:
        parent = groups.find(FINETUNED).parent
        assert parent is not None
        before, after = evidence.group(parent[0]), evidence.group(FINETUNED)
        runs = {}
        for i, run in enumerate(after.numbers):  # the released run 1 was finetuned from the only unprimed one, run 0
            start = before.numbers[min(i, len(before.numbers) - 1)]
            old, new = (
                sum(float(p.double().square().sum()) for p in model.parameters())
                for model in (before.model(start, parent[1]), after.model(run))
            )
            runs[run] = {"before": old, "after": new, "change": (new - old) / old}[part]
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

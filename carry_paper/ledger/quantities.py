"""From a number's id in the ledger to its value in each run, for one source of weights.

Most are read off one `Survey` per run (`READINGS`), others have a function each (`SPECIAL`), those
of the 7B models are in `billions`.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from operator import attrgetter
from statistics import mean, median
from typing import Any

import torch

from carry_core import carries, sums
from carry_core.errors import BadInput
from carry_core.groups import GROUPS
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_paper.findings import base, dynamics, heads, lengths
from carry_paper.findings.base import FINDINGS, Entry, Fields, Measurement, Need, all_heads
from carry_paper.findings.survey import DRAWN, Dissected, Evidence, Survey, random_sums
from carry_paper.ledger import billions
from carry_paper.ledger.claims import CLASSES, KINDS

NO_NEED = Need()
MAIN_RUN = 2  # the released run of `MAIN` that Sec. 5 and Fig. 3, 4, 14 show
NO_SKIP = Ablation(skips=frozenset({0}))
WHOLE = Need(frozenset({INTACT}))
RUNS_COUNTED = "n2_w0/runs_full_mlp_ablation_works"  # the one number that counts runs


def reading(
    group: str,
    of: Callable[[Survey], float],
    need: Need = NO_NEED,
    *,
    drawn: float | int | None = None,
    variance: Callable[[Survey], float] = lambda survey: 0.0,
    shown: int | None = None,
    combine: Callable[[list[float]], float] = mean,
    among: Callable[[Survey], bool] = lambda survey: True,
    kind: str = "",
    how: str = "",
    fields: Callable[[Survey], Fields] = lambda survey: {},
) -> Entry:
    """A number that is read off the surveys of a group's runs: `of` gives that of a run, `combine` makes one of them.

    `drawn` are the sums that the paper counted a share on; of other numbers `variance` is that of a
    run's, from the paper's own draw. `shown` is the released run whose number the paper prints,
    None for all. `among` says which runs count, and `kind` what these can or cannot do, after "runs
    that". `how` is on the protocol, `fields` what else is measured on a run.
    """

    def measure(evidence: Evidence) -> Measurement:
        every = evidence.surveys(group)
        surveys = {run: survey for run, survey in every.items() if among(survey)}
        if not surveys:
            raise BadInput(
                f"It is about runs that {kind}: of the {len(every)} of {group} none is such."
            )
        runs = {run: of(survey) for run, survey in surveys.items()}
        told, chosen = [how], list(runs)
        if len(surveys) < len(every):
            told.append(f"Over the runs that {kind}.")
        if evidence.source == "author" and shown in runs:
            chosen = [shown]
            if len(runs) > 1:
                told.append(f"The value is that of run {shown}, which the paper shows.")
        value = combine([runs[run] for run in chosen])
        scatter = [
            variance(surveys[run]) if drawn is None else binomial(runs[run], drawn)
            for run in chosen
        ]
        noise = sum(scatter) ** 0.5 / len(chosen)
        more = {run: fields(survey) for run, survey in surveys.items()}
        return Measurement(
            runs, value, noise, " ".join(filter(None, told)), len(every), fields=more
        )

    return Entry(measure, (group,), need)


def binomial(share: float, drawn: float | int = DRAWN) -> float:
    """Variance of a share that was counted on a draw."""
    return max(0.0, share * (1 - share)) / drawn


def drawn_for(group: str, pattern: str) -> float | int:
    """Sums of a class that the paper counted on in a run of a group.

    Those of Tab. 5 are of the 100,000 that it is said to average over, drawn from all sums and not
    class by class: the scores in the release are fractions of 6747, 4415, 4425, 3561 and 817 sums.
    """
    return (
        100_000 * carries.n_sums_in_class(pattern) / sums.n_sums(3)
        if group == base.DECODER
        else DRAWN
    )


def carved(group: str, of: Callable[[Any], float], **more: Any) -> Entry:
    """A number of the dissection (Sec. 5): another draw chooses other neurons, so it scatters more than a share."""
    return reading(
        group,
        lambda s: of(s.dissected),
        Need(dissect=True),
        variance=lambda s: mean((of(draw) - of(s.dissected)) ** 2 for draw in s.draws),
        how="Chosen and ablated on all sums; beside it the ends of ten draws of 20,000 a class.",
        fields=lambda s: {"ten_draws": [min(map(of, s.draws)), max(map(of, s.draws))]},
        **more,
    )


def cell(
    of: Callable[[Any], ClassAccuracies], kind: str, task: int, position: int
) -> Callable[[Any], float]:
    """One cell of the table that `of` gives."""
    return lambda survey: float(getattr(of(survey), kind)[task, position])


def _tables() -> dict[str, Entry]:
    """The cells of Tab. 1, 3, 4 and 5, by carry class, kind of accuracy and answer position."""
    shares: dict[str, tuple[str, Callable[[Survey], ClassAccuracies], Need]] = {
        "tab1/decision_head": (base.MAIN, lambda s: s.cells[s.heads[0]], all_heads(base.MAIN)),
        "tab1/final_mlp": (base.MAIN, lambda s: s.without_mlp, NO_NEED),
        "tab3/final_mlp": (base.N3, lambda s: s.without_mlp, NO_NEED),
        "tab5/final_mlp": (base.DECODER, lambda s: s.without_mlp, NO_NEED),
    }
    found: dict[str, Entry] = {}
    positions = enumerate(GROUPS[base.MAIN].config.layout.position_names)
    for (t, (key, pattern)), kind, (p, position) in product(
        enumerate(CLASSES.items()), KINDS, positions
    ):
        end = f"{key}/{kind}/{position}"
        for table, (group, of, need) in shares.items():
            found[f"{table}/{end}"] = reading(
                group, cell(of, kind, t, p), need, drawn=drawn_for(group, pattern)
            )
        for table, group in {"tab4/dissected": base.DFF512, "tab5/dissected": base.DECODER}.items():
            found[f"{table}/{end}"] = carved(group, cell(attrgetter("cells"), kind, t, p), shown=0)
    return found


def _dissections() -> dict[str, Entry]:
    parts: dict[str, Callable[[Dissected], float]] = {
        "neurons": lambda d: float(d.neurons),
        "carry_accuracy": lambda d: heads.mean_over(d.cells, "accuracy", carry=True),
        "carry_corrected": lambda d: heads.mean_over(d.cells, "corrected", carry=True),
        "non_carry_accuracy": lambda d: heads.mean_over(d.cells, "accuracy", carry=False),
    }
    unable: dict[str, Any] = {
        "among": lambda s: (
            heads.mean_over(s.without_mlp, "accuracy", carry=False) < heads.NO_CARRY_ACCURACY
        ),
        "kind": "cannot take the full ablation",
    }
    found = {
        f"n2/dissection/{part}": carved(base.MAIN, of, shown=MAIN_RUN) for part, of in parts.items()
    }
    found |= {
        f"n2_s01/dissection/{part}": carved(base.S01, of, **unable) for part, of in parts.items()
    }
    counted = {"n2_dff512": base.DFF512, "decoder": base.DECODER, "digits4": base.DIGITS4}
    found |= {
        f"{name}/dissection/neurons": carved(group, parts["neurons"], shown=0)
        for name, group in counted.items()
    }
    return found | {"n2_dff1024/dissection/neurons": carved(base.DFF1024, parts["neurons"])}


def _other_head(survey: Survey) -> Fields:
    head = survey.heads[-1]
    return {
        "head": heads.named(head),
        "carry_cells": survey.cells[head].accuracy[carries.carry_in(3)].tolist(),
    }


def _cell_mean_variance(cells: ClassAccuracies) -> float:
    drawn = [drawn_for(base.DECODER, pattern) for pattern in carries.patterns(3)]
    each = [
        binomial(float(cells.accuracy[t, p]), drawn[t])
        for t, p in carries.carry_in(3).nonzero().tolist()
    ]
    return sum(each) / len(each) ** 2


PERFECT = {
    "n2": base.MAIN,
    "n2_w0": base.W0,
    "n2_s01": base.S01,
    "n3": base.N3,
    "digits4": base.DIGITS4,
}
READINGS = _tables() | _dissections()
READINGS |= {
    f"{name}/accuracy": reading(group, lambda s: s.cells[INTACT].exact_match, WHOLE, drawn=DRAWN)
    for name, group in PERFECT.items()
}
READINGS |= {
    f"digits4/final_mlp/carry_{kind}": reading(
        base.DIGITS4,
        partial(lambda kind, s: heads.mean_over(s.without_mlp, kind, carry=True), kind),
        drawn=DRAWN,
    )
    for kind in KINDS
}
READINGS |= {
    "n2/no_skip_accuracy": reading(
        base.MAIN, lambda s: s.cells[NO_SKIP].exact_match, Need(frozenset({NO_SKIP})), drawn=DRAWN
    ),
    "n2/evolution/final_pcc": reading(
        base.MAIN,
        lambda s: heads.no_carry_correlation(s.without_mlp),
        combine=median,
        how="The median, since the paper does not name its run.",
    ),
    RUNS_COUNTED: reading(
        base.W0,
        lambda s: float(heads.no_carry_correlation(s.without_mlp) >= heads.ABLATION_CORRELATION),
        combine=sum,
        how="How many runs have a Pearson correlation with a model that cannot carry from which the ablation works.",
        fields=lambda s: {"correlation": heads.no_carry_correlation(s.without_mlp)},
    ),
    "decoder/ablate_head_1_0/carry_accuracy": reading(
        base.DECODER,
        lambda s: heads.mean_over(s.cells[s.heads[-1]], "accuracy", carry=True),
        all_heads(base.DECODER),
        shown=0,
        how="Mean of the six cells with a carry, without the head that is not the decision head.",
        fields=_other_head,
        variance=lambda s: _cell_mean_variance(s.cells[s.heads[-1]]),
    ),
}


def constant(value: float | int) -> Entry:
    """A number that needs no weights."""
    return Entry(lambda evidence: Measurement({}, value))


def squashing(group: str, position: int, evidence: Evidence) -> Measurement:
    """The final MLP's squashing of the sums to 74 at an answer position (Sec. 4, App. F.1)."""
    runs = evidence.each(group, lambda run, model: float(heads.squashing(model)[position]))
    return Measurement(runs, mean(runs.values()), how="For the outcome 74.")


def spread(evidence: Evidence) -> Measurement:
    """Standard deviation between runs where the model without its decision head is unsure (Tab. 1, caption)."""
    unsure = ["NC/accuracy/pos7", "C@2/accuracy/pos7", "NC/accuracy/pos8", "C@1/accuracy/pos8"]
    cells = [READINGS[f"tab1/decision_head/{end}"].of(evidence) for end in unsure]
    if len(cells[0].runs) < 2:
        raise BadInput(
            f"It needs two runs of {base.MAIN} or more, since one has no standard deviation."
        )
    deviations = [
        torch.tensor(list(c.runs.values()), dtype=torch.float64).std().item() for c in cells
    ]
    four = ", ".join(f"{x:.4g}" for x in deviations)
    how = f"Mean over four cells of the standard deviation between runs: {four}."
    return Measurement({}, mean(deviations), how=how, at_hand=cells[0].at_hand)


def long_accuracy(
    group: str, evidence: Evidence, n_digits: int = 6, epoch: int | None = None
) -> Measurement:
    """Whole-answer accuracy of a padded group on random sums of so many digits, at all positions (App. H)."""
    loaded = (
        evidence.group(group) if epoch is None else lengths.by_the_papers_epochs(evidence, group)
    )
    asked, runs = random_sums(n_digits), {}
    fields: dict[int, dict[str, Any]] = {}
    for run in loaded.numbers:
        hit = heads.right_digits(loaded.model(run, epoch), *asked).double()
        runs[run] = float(hit.amin(1).mean())
        fields[run] = {"digit_by_digit": hit.mean(0).tolist()}
        if n_digits < loaded.config.width:  # whatever stands before them
            fields[run] |= {
                f"last_{n_digits}_digits_alone": float(hit[:, -n_digits:].amin(1).mean())
            }
    noise = sum(map(binomial, runs.values())) ** 0.5 / len(runs)
    how = f"On {len(asked[0]):,} random sums of up to {n_digits} digits."
    return Measurement(runs, mean(runs.values()), noise, how, fields=fields)


def accuracy_range(evidence: Evidence) -> Measurement:
    """Lowest and highest six-digit accuracy of the unprimed runs from epoch 200 to 1000 (Sec. 6)."""
    curves = evidence.curves(base.PAD6)
    if evidence.source == "ours":
        lengths.by_the_papers_epochs(evidence, base.PAD6)
    epochs = curves["epochs"]
    if epochs[-1] < 1000:
        end = f"these have {epochs[-1]}"
        raise BadInput(f"It needs learning curves of {base.PAD6} up to epoch 1000; {end}.")
    looked_at = (epochs >= 200) & (epochs <= 1000)
    curve = curves["long_whole"][:, looked_at]
    runs = {
        int(run): [float(c.min()), float(c.max())]
        for run, c in zip(curves["runs"], curve, strict=True)
    }
    ends = [mean(pair[i] for pair in runs.values()) for i in (0, 1)]
    apart = dynamics.resolution(epochs, epochs[looked_at].tolist())
    tests = f", tested after every {apart} epochs" if apart > 1 else ""
    how = f"Lowest and highest from epoch 200 to 1000 of the learning curve{tests}."
    return Measurement(runs, ends, how=how)


def norm_of(part: str, evidence: Evidence) -> Measurement:
    """Squared norm of all parameters before and after finetuning, and its relative change (App. H.2)."""
    if part != "change":
        lengths.by_the_papers_epochs(evidence, lengths.parent(base.FINETUNED)[0])
    runs = lengths.finetuning(evidence)[part].to_dict()
    return Measurement(runs, mean(runs.values()), how="The squared norm of all parameters.")


PRIMED_SHARE = GROUPS[base.PRIMED].primed / (
    GROUPS[base.PRIMED].n_train - GROUPS[base.PRIMED].primed
)
SPECIAL: dict[str, Entry] = {
    "data/sums3": constant(sums.n_sums(3)),
    "data/sums4": constant(sums.n_sums(4)),
    "data/vocabulary": constant(sums.VOCABULARY),
    "data/sequence_length3": constant(GROUPS[base.MAIN].config.layout.length),
    "data/classes3": constant(len(carries.patterns(3))),
    "data/classes4": constant(len(carries.patterns(4))),
    "data/classes6": constant(len(carries.patterns(6))),
    "data/train3": constant(GROUPS[base.MAIN].n_train),
    "n2/decision_head_spread": Entry(spread, (base.MAIN,), all_heads(base.MAIN)),
    "pad6/accuracy_range": Entry(accuracy_range, (base.PAD6,)),
    "pad6/accuracy_epoch500": Entry(partial(long_accuracy, base.PAD6, epoch=500), (base.PAD6,)),
    "pad6/accuracy_epoch1000": Entry(partial(long_accuracy, base.PAD6, epoch=1000), (base.PAD6,)),
    "pad6_primed/accuracy": Entry(partial(long_accuracy, base.PRIMED), (base.PRIMED,)),
    "pad6_primed/fraction": constant(PRIMED_SHARE),
    "pad6_finetuned/accuracy6": Entry(partial(long_accuracy, base.FINETUNED), (base.FINETUNED,)),
    "pad6_finetuned/accuracy3": Entry(
        partial(long_accuracy, base.FINETUNED, n_digits=3), (base.FINETUNED,)
    ),
    "decoder_pad6_primed/accuracy6": Entry(
        partial(long_accuracy, base.DECODER_PAD6), (base.DECODER_PAD6,)
    ),
}
SPECIAL |= {
    f"n2/squashing/pos{7 + i}": Entry(partial(squashing, base.MAIN, i), (base.MAIN,))
    for i in range(3)
}
SPECIAL |= {
    f"digits4/squashing/pos{i}": Entry(partial(squashing, base.DIGITS4, i), (base.DIGITS4,))
    for i in range(4)
}
SPECIAL |= {
    f"pad6_finetuned/weight_norm_{part}": Entry(partial(norm_of, part), (base.FINETUNED, base.PAD6))
    for part in ("before", "after", "change")
}


def entry(name: str) -> Entry:
    """How a row is found, and from the runs of which groups: none for what needs no weights, or those of a 7B model.

    `BadInput` if nothing measures it.
    """
    if name.startswith(billions.ROWS):
        return Entry(partial(billions.find, name))
    entries = READINGS | SPECIAL | FINDINGS
    if name not in entries:
        raise BadInput(
            f"Nothing measures {name!r} of claims.yml: expected an id that `carry_paper.ledger` has."
        )
    return entries[name]


def find(name: str, evidence: Evidence) -> Measurement:
    """The number or the finding called `name`, from a source's weights; `BadInput` says why it cannot be computed."""
    return entry(name).of(evidence)

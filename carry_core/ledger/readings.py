"""The numbers of the paper that are read off one `Survey` per run: of which group, and what of it (PROTOCOLS)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import mean, median
from typing import Any

from carry_core import criteria, measure, tasks
from carry_core.edits import INTACT, Ablation
from carry_core.errors import BadInput
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger.evidence import NO_NEED, Evidence, Need
from carry_core.ledger.survey import DRAWN, Dissected, Survey
from carry_core.measure import Cells
from carry_core.sums import n_sums

N1, N3, DECODER, DIGITS4 = "n1_s0.3_w0.2", "n3_s0.3_w0.2", "decoder_n2_s0.3_w0.2", "digits4_n2_s0.3_w0.2"
W0, S01 = "n2_s0.3_w0.0", "n2_s0.1_w0.2"
DFF512, DFF1024 = "n2_s0.2_w1.0_dff512", "n2_s0.3_w0.2_dff1024"

MAIN_RUN = 2  # the released run of `MAIN` that Sec. 5 and Fig. 3, 4, 14 show
NO_SKIP = Ablation(skips=frozenset({0}))
WHOLE = Need(frozenset({INTACT}))
KINDS = ("accuracy", "corrected")


@dataclass(frozen=True)
class Found:
    """What a source gives for one row.

    Attributes:
        runs: the value of each run, by its number; by its group and its number where there are several groups.
        value: what stands for all of them.
        noise: standard deviation that the paper's own draw of sums adds to `value`.
        detail: how it was obtained, and what the alternatives give.
        at_hand: runs of the group; as many as in `runs` if None.
        shows: for a finding, whether each run shows it.
    """

    runs: Mapping[Any, Any]
    value: Any
    noise: float | int = 0.0
    detail: str = ""
    at_hand: int | None = None
    shows: Mapping[Any, bool] | None = None


@dataclass(frozen=True)
class Reading:
    """A number that is read off the surveys of a group's runs.

    Attributes:
        of: the value of one run.
        variance: of that value, from the paper's own draw of sums.
        shown: the released run whose value the paper prints; None for all of them.
        combine: how the runs' values make one.
        among: which runs count.
        kind: what these can or cannot do, after "runs that".
        note: on the protocol and its alternatives, given what was found.
    """

    group: str
    of: Callable[[Survey], float]
    need: Need = NO_NEED
    variance: Callable[[Survey], float] = lambda survey: 0.0
    shown: int | None = None
    combine: Callable[[list[float]], float] = mean
    among: Callable[[Survey], bool] = lambda survey: True
    kind: str = ""
    note: Callable[[Mapping[int, Survey]], str] = lambda surveys: ""


def evaluate(reading: Reading, evidence: Evidence) -> Found:
    """The number in every run of a source.

    Raises:
        BadInput: its group is missing or damaged, or none of its runs counts.
    """
    every = evidence.surveys(reading.group)
    surveys = {run: survey for run, survey in every.items() if reading.among(survey)}
    if not surveys:
        raise BadInput(f"It is about runs that {reading.kind}: {reading.group} has none, of {len(every)}.")
    runs = {run: reading.of(survey) for run, survey in surveys.items()}
    notes, chosen = [], list(runs)
    if len(surveys) < len(every):
        notes.append(f"Over the runs that {reading.kind}: {listed(chosen)} of {listed(every)}.")
    if evidence.source == "author" and reading.shown in runs:
        chosen = [reading.shown]
        if len(runs) > 1:
            notes.append(f"The value is that of run {reading.shown}, which the paper shows.")
    notes.append(reading.note({run: surveys[run] for run in chosen}))
    value = reading.combine([runs[run] for run in chosen])
    noise = sum(reading.variance(surveys[run]) for run in chosen) ** 0.5 / len(chosen)
    return Found(runs, value, noise, " ".join(filter(None, notes)), len(every))


def listed(values: Any) -> str:
    """Numbers as text."""
    return ", ".join(f"{value:.4g}" for value in values)


def share(
    group: str, of: Callable[[Survey], float], need: Need = NO_NEED, drawn: float | int = DRAWN, **more: Any
) -> Reading:
    """A share of right answers, which the paper counted on so many drawn sums."""
    return Reading(group, of, need, lambda survey: binomial(of(survey), drawn), **more)


def binomial(share: float, drawn: float | int = DRAWN) -> float:
    """Variance of a share that was counted on a draw."""
    return max(0.0, share * (1 - share)) / drawn


def drawn_for_decoder(pattern: str) -> float:
    """Sums of a class among the 100,000 that Tab. 5 is said to average over.

    They were drawn from all sums, not class by class: the scores in the release are fractions of 6747, 4415, 4425,
    3561 and 817 sums.
    """
    return 100_000 * tasks.size(pattern) / n_sums(3)


def drawn_for(group: str, pattern: str) -> float | int:
    """Sums of a class that the paper counted on in a run of a group."""
    return drawn_for_decoder(pattern) if group == DECODER else DRAWN


def carved(group: str, of: Callable[[Dissected], float], **more: Any) -> Reading:
    """A number of the dissection (Sec. 5): another draw chooses other neurons, so it scatters more than a share."""

    def at(survey: Survey) -> float:
        assert survey.dissected is not None
        return of(survey.dissected)

    def variance(survey: Survey) -> float:
        return mean((of(draw) - at(survey)) ** 2 for draw in survey.draws)

    def note(surveys: Mapping[int, Survey]) -> str:
        drawn = [f"{min(map(of, s.draws)):.4g} to {max(map(of, s.draws)):.4g}" for s in surveys.values()]
        return f"Chosen and ablated on all sums; over ten draws of 20,000 a class, run by run: {'; '.join(drawn)}."

    return Reading(group, at, Need(dissect=True), variance, note=note, **more)


def without_mlp(group: str) -> Callable[[Survey], Cells]:
    """What is left without the final MLP."""
    return lambda survey: survey.cells[measure.final_mlp(GROUPS[group].config)]


def ranked_heads(survey: Survey, group: str) -> list[Ablation]:
    """The last layer's heads, the decision head first: the one that costs most whole answers (Sec. 4)."""
    return sorted(measure.last_heads(GROUPS[group].config), key=lambda head: survey.cells[head].whole)


def all_heads(group: str) -> Need:
    """Each head of the last layer, ablated by itself."""
    return Need(frozenset(measure.last_heads(GROUPS[group].config)))


def pearson(survey: Survey, group: str) -> float:
    """Correlation with a model that cannot carry, once the final MLP is gone (Sec. 5)."""
    cells = without_mlp(group)(survey)
    return measure.pearson(cells, measure.cannot_carry(cells.accuracy.shape[1]))


def _tables() -> dict[str, Reading]:
    shares = {
        "tab1/decision_head": (MAIN, lambda s: s.cells[ranked_heads(s, MAIN)[0]], all_heads(MAIN)),
        "tab1/final_mlp": (MAIN, without_mlp(MAIN), NO_NEED),
        "tab3/final_mlp": (N3, without_mlp(N3), NO_NEED),
        "tab5/final_mlp": (DECODER, without_mlp(DECODER), NO_NEED),
    }
    found: dict[str, Reading] = {}
    for end, read in _cells().items():
        for table, (group, of, need) in shares.items():
            drawn = drawn_for(group, tasks.find(end.split("/")[0]))
            found[f"{table}/{end}"] = share(group, _then(of, read), need, drawn)
        for table, group in {"tab4/dissected": DFF512, "tab5/dissected": DECODER}.items():
            found[f"{table}/{end}"] = carved(group, _then(attrgetter("cells"), read), shown=0)
    return found


def _cells() -> dict[str, Callable[[Cells], float]]:
    """Each cell of a table of three digits, by the end of its id."""
    return {
        f"{tasks.key(pattern)}/{kind}/{pos}": partial(_cell, kind=kind, task=t, pos=p)
        for t, pattern in enumerate(tasks.patterns(3))
        for kind in KINDS
        for p, pos in enumerate(GROUPS[MAIN].config.layout.names)
    }


def _cell(cells: Cells, kind: str, task: int, pos: int) -> float:
    return float(getattr(cells, kind)[task, pos])


def _then(first: Callable[[Any], Cells], second: Callable[[Cells], float]) -> Callable[[Any], float]:
    return lambda x: second(first(x))


def _dissections() -> dict[str, Reading]:
    parts: dict[str, Callable[[Dissected], float]] = {
        "neurons": lambda d: float(d.neurons),
        "carry_accuracy": lambda d: measure.mean_over(d.cells, "accuracy", carry=True),
        "carry_corrected": lambda d: measure.mean_over(d.cells, "corrected", carry=True),
        "non_carry_accuracy": lambda d: measure.mean_over(d.cells, "accuracy", carry=False),
    }
    wanted: dict[str, tuple[str, list[str], dict[str, Any]]] = {
        "n2": (MAIN, list(parts), {"shown": MAIN_RUN}),
        "n2_s01": (S01, list(parts), {"among": _unable, "kind": "cannot take the full ablation"}),
        "n2_dff1024": (DFF1024, ["neurons"], {}),
        "n2_dff512": (DFF512, ["neurons"], {"shown": 0}),
        "decoder": (DECODER, ["neurons"], {"shown": 0}),
        "digits4": (DIGITS4, ["neurons"], {"shown": 0}),
    }
    return {
        f"{name}/dissection/{part}": carved(group, parts[part], **more)
        for name, (group, chosen, more) in wanted.items()
        for part in chosen
    }


def _unable(survey: Survey) -> bool:
    return criteria.unable(measure.mean_over(without_mlp(S01)(survey), "accuracy", carry=False))


def _others() -> dict[str, Reading]:
    perfect = {"n2": MAIN, "n2_w0": W0, "n2_s01": S01, "n3": N3, "digits4": DIGITS4}
    found = {
        f"{name}/accuracy": share(group, lambda s: s.cells[INTACT].whole, WHOLE) for name, group in perfect.items()
    }
    for kind, name in zip(KINDS, ("carry_accuracy", "carry_corrected"), strict=True):
        found[f"digits4/final_mlp/{name}"] = share(
            DIGITS4, _then(without_mlp(DIGITS4), partial(measure.mean_over, kind=kind, carry=True))
        )
    found["n2/no_skip_accuracy"] = share(MAIN, lambda s: s.cells[NO_SKIP].whole, Need(frozenset({NO_SKIP})))
    found["n2/evolution/final_pcc"] = Reading(
        MAIN, lambda s: pearson(s, MAIN), combine=median,
        note=lambda found: "The median, since the paper does not name its run;"
        f" the mean over runs is {mean(pearson(s, MAIN) for s in found.values()):.3f}.",
    )  # fmt: skip
    found["n2_w0/runs_full_mlp_ablation_works"] = Reading(
        W0, lambda s: float(criteria.ablation_works(pearson(s, W0))), combine=sum,
        note=lambda found: f"Runs whose Pearson correlation without the final MLP is at least {criteria.WORKS}:"
        f" {listed(pearson(s, W0) for s in found.values())}.",
    )  # fmt: skip
    found["decoder/ablate_head_1_0/carry_accuracy"] = Reading(
        DECODER, lambda s: measure.mean_over(s.cells[ranked_heads(s, DECODER)[-1]], "accuracy", carry=True),
        all_heads(DECODER), shown=0, note=_other_head,
        variance=lambda s: _cell_mean_variance(s.cells[ranked_heads(s, DECODER)[-1]]),
    )  # fmt: skip
    return found


def _cell_mean_variance(cells: Cells) -> float:
    arrives = tasks.carry_arrives(3)
    drawn = [drawn_for_decoder(pattern) for pattern in tasks.patterns(3)]
    each = [binomial(float(cells.accuracy[t, p]), drawn[t]) for t, p in arrives.nonzero().tolist()]
    return sum(each) / len(each) ** 2


def _other_head(surveys: Mapping[int, Survey]) -> str:
    notes = []
    for survey in surveys.values():
        head = ranked_heads(survey, DECODER)[-1]
        cells = survey.cells[head].accuracy[tasks.carry_arrives(3)]
        notes.append(f"{head}: the six cells with a carry are {listed(cells.tolist())}")
    return f"Mean of these cells for the head that is not the decision head; {'; '.join(notes)}."


READINGS = _tables() | _dissections() | _others()

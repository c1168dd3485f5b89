"""Kinds of ledger rows: each is measured by a function that is called on some runs.

The functions below return the entries of the table in `registry.py`. A finding is measured on each
run of a group: on its model (`on_models`), on its survey, which all rows of the group share
(`on_surveys`), or on all that a source has (`on_evidence`). A printed number is the mean of the
runs' numbers, or another `Statistic` of them (`number`, `number_on_models`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

import pandas as pd

from carry_core.errors import BadInput
from carry_core.interventions import Ablation
from carry_core.model import Transformer
from carry_paper.findings.bars import variants
from carry_paper.findings.base import CONTEXT, Fields, Rule, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need, Survey


@dataclass(frozen=True)
class Measurement:
    """The results for a number or a finding, measured on a source's weights.

    Attributes:
        runs: The value of each run, by its number, or by group and number if there are several
            groups.
        value: The one value that stands for all runs.
        noise: The standard deviation that the paper's own random sums add to `value`.
        method: A sentence that says how the value was obtained.
        group_size: The number of runs in the group; None if all of them are in `runs`.
        shows: For a finding, True for each run that shows it, None for one that cannot say.
        shows_at: The same by its rule's `bars.variants`, each with another bar.
        fields: Everything else that was measured, by run.
    """

    runs: Mapping[Any, Any]
    value: Any
    noise: float | int = 0.0
    method: str = ""
    group_size: int | None = None
    shows: Mapping[Any, bool | None] | None = None
    shows_at: Mapping[str, Mapping[Any, bool | None]] = field(default_factory=dict)
    fields: Mapping[Any, Fields] = field(default_factory=dict)

    def of_runs(self, keys: Sequence[Any]) -> "Measurement":
        """Return the part of a finding's measurement, or of a mean, that is on some of its runs."""
        runs = {key: self.runs[key] for key in keys}
        shows = None
        if self.shows is not None:
            shows = {key: self.shows[key] for key in keys}
        shows_at = {}
        for bar, shows_of_bar in self.shows_at.items():
            shows_at[bar] = {key: shows_of_bar[key] for key in keys}
        fields = {key: self.fields[key] for key in keys if key in self.fields}
        value = mean(runs.values())
        return replace(self, runs=runs, value=value, shows=shows, shows_at=shows_at, fields=fields)


@dataclass(frozen=True)
class Entry:
    """The function that measures a row of the ledger, and what it needs.

    Attributes:
        measure: Measures the row on a source's weights and learning curves.
        function: The function that `measure` calls on each run, or on all of them; None if the row
            needs no runs.
        groups: The groups whose runs are measured.
        need: The survey that each run of the first group needs; None if it needs none.
        rule: Decides from a run's fields whether it shows a finding; None for a number.
    """

    measure: Callable[[Evidence], Measurement]
    function: Callable[..., Any] | None
    groups: tuple[str, ...] = ()
    need: Need | None = None
    rule: Rule | None = None


def first_line(finding: Callable[..., Any]) -> str:
    """Return the first line of a finding's docstring, which says what its value is."""
    return (inspect.getdoc(finding) or "").partition("\n")[0]


def method_of(finding: Callable[..., Any], value: str) -> str:
    """Return what a row's value is: the finding's own, or one of its fields."""
    if value == "value":
        return first_line(finding)
    return f"{value[:1].upper()}{value[1:]}, of: {first_line(finding)}".replace("_", " ")


# ---- findings


def on_models(
    groups: str | Sequence[str],
    finding: Callable[[Transformer], Fields],
    *,
    shows: Rule,
    value: str = "value",
    epoch: int | None = None,
    mean_over: str | None = None,
) -> Entry:
    """Return the entry of a finding that takes a model.

    Args:
        groups: The group whose runs are measured, or several of them.
        finding: The function that measures a run.
        shows: The rule that decides whether a run shows the claim.
        value: The field that is this row's value, where several rows share a finding.
        epoch: The epoch of the weights, by the paper's count (the last if None). If it is given,
            runs of another recipe are refused, since their epochs differ from the paper's.
        mean_over: The group over whose runs the row's value is the mean (all if None).
    """
    names = [groups] if isinstance(groups, str) else list(groups)
    method = method_of(finding, value)
    if mean_over is not None:
        method += f" The value is the mean over the runs of {mean_over}."

    def frame_of(evidence: Evidence, name: str) -> pd.DataFrame:
        return per_run(evidence.each(name, lambda run, model: finding(model), epoch))

    def measure(evidence: Evidence) -> Measurement:
        frames = {}
        for name in names:
            if epoch is not None:
                evidence.by_the_papers_epochs(name)
            frames[name] = evidence.once((finding, name, epoch), partial(frame_of, evidence, name))
        # The rows of one group are indexed by run, those of several by group and run.
        frame = frames[groups] if isinstance(groups, str) else pd.concat(frames)
        return summary(frame, shows, method, mean_over, value)

    return Entry(measure, finding, tuple(names), rule=shows)


def on_surveys(
    group: str,
    finding: Callable[[Survey], Fields],
    *,
    shows: Rule,
    value: str = "value",
    ablate: Sequence[Ablation] = (),
    dissect: bool = False,
) -> Entry:
    """Return the entry of a finding that takes a survey.

    Args:
        group: The group whose runs are measured.
        finding: The function that measures a run.
        shows: The rule that decides whether a run shows the claim.
        value: As in `on_models`.
        ablate: The ablations that the survey has to cover, besides the final MLP's.
        dissect: True if the survey has to dissect the final MLP (Sec. 5).
    """

    def measure(evidence: Evidence) -> Measurement:
        fields_by_run = {}
        for run, survey in evidence.surveys(group).items():
            fields_by_run[run] = finding(survey)
        frame = per_run(fields_by_run)
        return summary(frame, shows, method_of(finding, value), value=value)

    return Entry(measure, finding, (group,), Need(frozenset(ablate), dissect), shows)


def on_evidence(
    groups: str | Sequence[str],
    finding: Callable[[Evidence], pd.DataFrame],
    *,
    shows: Rule,
    value: str = "value",
    mean_over: str | None = None,
) -> Entry:
    """Return the entry of a finding that takes a source's evidence and returns a row for each run.

    `groups` are those that the finding asks the evidence for; other arguments are as in
    `on_models`.
    """
    names = [groups] if isinstance(groups, str) else list(groups)

    def measure(evidence: Evidence) -> Measurement:
        frame = evidence.once((finding,), partial(finding, evidence))
        return summary(frame, shows, method_of(finding, value), mean_over, value)

    return Entry(measure, finding, tuple(names), rule=shows)


def on_column(
    group: str,
    statements: Callable[[Evidence], pd.DataFrame],
    column: str,
    method: str,
    shows: Rule,
) -> Entry:
    """Return the entry of one of several values that a function measures together on each run.

    `method` is a sentence that says what the value is.
    """

    def measure(evidence: Evidence) -> Measurement:
        values_of_runs = evidence.once((statements,), partial(statements, evidence))
        frame = pd.DataFrame({"value": values_of_runs[column]})
        return summary(frame, shows, method)

    return Entry(measure, statements, (group,), rule=shows)


def judged(frame: pd.DataFrame, rule: Rule) -> dict[Any, bool | None]:
    """Return True for each run of a finding's frame that shows it, by a rule.

    It is None for a run of which the rule cannot say.
    """
    shows: dict[Any, bool | None] = {}
    for run, fields in zip(frame.index, frame.to_dict("records"), strict=True):
        says = rule(fields)
        shows[run] = None if says is None else bool(says)
    return shows


def summary(
    frame: pd.DataFrame,
    rule: Rule,
    method: str,
    mean_over: str | None = None,
    value: str = "value",
) -> Measurement:
    """Return a finding's frame, judged by its rule, as a measurement.

    Its value is the mean of the field `value` over the runs of the group `mean_over` (all if None).
    """
    by_run = frame[value]
    values = by_run if mean_over is None else by_run.loc[mean_over]
    fields = frame.drop(columns=["value", *CONTEXT], errors="ignore")
    shows_at = {name: judged(frame, variant) for name, variant in variants(rule).items()}
    return Measurement(
        runs=by_run.astype(float).to_dict(),
        value=float(values.mean()),
        method=method,
        shows=judged(frame, rule),
        shows_at=shows_at,
        fields=fields.to_dict("index"),
    )


# ---- numbers


class Among(NamedTuple):
    """The runs of a group that a number is about.

    Attributes:
        counts: Returns True if a run counts, given its survey.
        words: The words that describe these runs, after "runs that".
    """

    counts: Callable[[Survey], bool]
    words: str


class Statistic(NamedTuple):
    """A way to combine the numbers of a group's runs into the one that the paper prints.

    Attributes:
        combine: Combines the runs' numbers into one.
        shown_run: The released run whose number the paper prints; None if it is about all runs.
        among: The runs that count; None if all do.
        method: A sentence on the protocol.
    """

    combine: Callable[[list[float]], float] = mean
    shown_run: int | None = None
    among: Among | None = None
    method: str = ""


MEAN = Statistic()
NO_NEED = Need()


def number(
    group: str,
    function: Callable[[Survey], Fields],
    need: Need = NO_NEED,
    statistic: Statistic = MEAN,
) -> Entry:
    """Return the entry of a number that is read off the surveys of a group's runs.

    `function` returns a run's `value`, and the `variance` that the paper's own random sums add to
    it (0 if it is left out).
    """

    def measure(evidence: Evidence) -> Measurement:
        surveys = evidence.surveys(group)
        fields_by_run = {}
        for run, survey in surveys.items():
            if statistic.among is None or statistic.among.counts(survey):
                fields_by_run[run] = function(survey)
        if statistic.among is not None and not fields_by_run:
            raise BadInput(
                f"It is about runs that {statistic.among.words}: "
                f"of the {len(surveys)} of {group} none is such."
            )
        return combined(fields_by_run, statistic, evidence.source, len(surveys))

    return Entry(measure, function, (group,), need)


def number_on_models(
    group: str, function: Callable[[Transformer], Fields], method: str, epoch: int | None = None
) -> Entry:
    """Return the entry of a number that is measured on a group's models, as in `number`.

    `epoch` is that of the weights, by the paper's count (the last if None). If it is given, runs of
    another recipe are refused, since their epochs differ from the paper's.
    """

    def measure(evidence: Evidence) -> Measurement:
        if epoch is not None:
            evidence.by_the_papers_epochs(group)
        fields_by_run = evidence.each(group, lambda run, model: function(model), epoch)
        statistic = Statistic(method=method)
        return combined(fields_by_run, statistic, evidence.source, len(fields_by_run))

    return Entry(measure, function, (group,))


def combined(
    fields_by_run: Mapping[int, Fields], statistic: Statistic, source: str, group_size: int
) -> Measurement:
    """Return the measurement that stands for the numbers of a group's runs."""
    values = {run: fields["value"] for run, fields in fields_by_run.items()}
    sentences = [statistic.method]
    if statistic.among is not None and len(values) < group_size:
        sentences.append(f"Over the runs that {statistic.among.words}.")

    run_numbers = list(values)
    if source == "author" and statistic.shown_run in values:
        run_numbers = [statistic.shown_run]
        if len(values) > 1:
            sentences.append(
                f"The value is that of run {statistic.shown_run}, which the paper shows."
            )

    variance = sum(fields_by_run[run].get("variance", 0.0) for run in run_numbers)
    other_fields = {}
    for run, fields in fields_by_run.items():
        other_fields[run] = {
            name: entry for name, entry in fields.items() if name not in ("value", "variance")
        }
    return Measurement(
        runs=values,
        value=statistic.combine([values[run] for run in run_numbers]),
        noise=variance**0.5 / len(run_numbers),
        method=" ".join(sentence for sentence in sentences if sentence),
        group_size=group_size,
        fields=other_fields,
    )


def computed(
    groups: str | Sequence[str],
    function: Callable[[Evidence], Measurement],
    need: Need | None = None,
) -> Entry:
    """Return the entry of a number that a function computes from all that a source has."""
    names = (groups,) if isinstance(groups, str) else tuple(groups)
    return Entry(function, function, names, need)


def constant(value: float | int) -> Entry:
    """Return the entry of a number that needs no weights."""
    return Entry(lambda evidence: Measurement({}, value), None)

"""Findings as data: a frame with a row for each run, and the registry of which function measures which claim.

A finding takes one source's `Evidence` and gives a frame whose rows are runs, by number or by group
and number. Its column `value` has the measured number, `shows` whether the run shows what the paper
claims (the `reason` in `data/claims.yml` says when), others what else was measured. The first line
of its docstring says what `value` is.

A finding that a table of many runs is about too has a `Rule`, which gives `shows` from a run's
other columns: so the table stores what was measured, and today's rule judges it whenever it is
read. `CONTEXT` are columns that rules read and no table stores.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import pandas as pd

from carry_core import measure
from carry_core.groups import GROUPS
from carry_core.groups import MAIN as MAIN
from carry_paper.findings.survey import Evidence
from carry_paper.findings.survey import Need as Need

N1, N1_W0, N1_W1 = "n1_s0.3_w0.2", "n1_s0.3_w0.0", "n1_s0.2_w1.0"
W0, S01 = "n2_s0.3_w0.0", "n2_s0.1_w0.2"
DFF512, DFF1024 = "n2_s0.2_w1.0_dff512", "n2_s0.3_w0.2_dff1024"
N3, DECODER, DIGITS4 = "n3_s0.3_w0.2", "decoder_n2_s0.3_w0.2", "digits4_n2_s0.3_w0.2"
PAD6, PRIMED, FINETUNED = (
    "pad6_n2_s0.3_w0.2",
    "pad6_primed100_n2_s0.3_w0.2",
    "pad6_finetuned500_n2_s0.3_w0.2",
)
DECODER_PAD6 = "decoder_pad6_primed500_n2_s0.3_w0.2"

Fields = Mapping[str, Any]  # numbers, texts or lists of these, by name
# from what was measured on a run, whether it shows what the paper claims
Rule = Callable[[Fields], bool]
CONTEXT = ("group", "planned")  # the run's group, and the epochs of the whole training


def all_heads(group: str) -> Need:
    """Each head of the last layer, ablated by itself."""
    return Need(frozenset(measure.last_heads(GROUPS[group].config)))


@dataclass(frozen=True)
class Measurement:
    """What a source's weights give for one number or finding."""

    # the value of each run, by its number, or by group and number if there are several groups
    runs: Mapping[Any, Any]
    value: Any  # what stands for all of them
    noise: float | int = 0.0  # standard deviation that the paper's own draw of sums adds to `value`
    how: str = ""  # how it was obtained, in a sentence
    at_hand: int | None = None  # runs of the group; as many as in `runs` if None
    shows: Mapping[Any, bool] | None = None  # for a finding, whether each run shows it
    fields: Mapping[Any, Fields] = field(default_factory=dict)  # what else was measured, by run


def per_run(measured: Mapping[Any, Any], row: Callable[[Any], Fields] = dict) -> pd.DataFrame:
    """A frame with a row for each run, made of what was measured in it."""
    return pd.DataFrame([row(x) for x in measured.values()], index=list(measured))


def summary(rows: pd.DataFrame, how: str, among: str | None = None) -> Measurement:
    """A finding's frame as a measurement, with the mean of `value` over its runs, or those of the group `among`."""
    value = rows.value if among is None else rows.value.loc[among]
    more = rows.drop(columns=["value", "shows", *CONTEXT], errors="ignore").to_dict("index")
    runs, shows = rows.value.astype(float).to_dict(), rows.shows.astype(bool).to_dict()
    return Measurement(runs, float(value.mean()), how=how, shows=shows, fields=more)


@dataclass(frozen=True)
class Entry:
    """How a row of the ledger is measured, of which groups' runs, and what is to be surveyed of the first of these."""

    of: Callable[[Evidence], Measurement]
    groups: tuple[str, ...] = ()
    need: Need | None = None
    # of a finding whose measure leaves it to the rule whether a run shows the claim
    rule: Rule | None = None


FINDINGS: dict[str, Entry] = {}
Measure = Callable[[Evidence], pd.DataFrame]


def at_least(level: float) -> Rule:
    """The rule that a run shows a claim from this value on."""
    return lambda row: bool(row["value"] >= level)


def finding(
    name: str,
    *groups: str,
    need: Need | None = None,
    among: str | None = None,
    rule: Rule | None = None,
) -> Callable[[Measure], Measure]:
    """Register the measure of `finding/<name>`, which is about the runs of `groups`; `among` as in `summary`.

    With a `rule` the measure's frame needs no column `shows`.
    """

    def register(of: Measure) -> Measure:
        @wraps(of)
        def judged(evidence: Evidence) -> pd.DataFrame:
            rows = of(evidence)
            if rule is None:
                return rows
            return rows.assign(shows=[rule(row) for row in rows.to_dict("records")])

        how = (inspect.getdoc(of) or "").partition("\n")[0]
        entry = Entry(lambda e: summary(judged(e), how, among), groups or (MAIN,), need, rule)
        FINDINGS[f"finding/{name}"] = entry
        return judged

    return register


def finding_of_runs(
    name: str,
    group: str,
    *alike: tuple[str, str, int | None],
    need: Need | None = None,
    rule: Rule | None = None,
) -> Callable[[Callable[[Any], Fields]], Measure]:
    """Register a finding whose row is measured on each run's model by itself, or with a `need` read off its survey.

    Of each finding that is measured and judged `alike`, they are name and group, and the epoch of
    the weights if not the last.
    """

    def register(of: Callable[[Any], Fields]) -> Measure:
        def rows(group: str, epoch: int | None, evidence: Evidence) -> pd.DataFrame:
            if need is not None:
                return per_run(evidence.surveys(group), of)
            return per_run(evidence.each(group, lambda run, model: of(model), epoch))

        for other, its, epoch in alike:
            finding(other, its, need=need, rule=rule)(wraps(of)(partial(rows, its, epoch)))
        return finding(name, group, need=need, rule=rule)(wraps(of)(partial(rows, group, None)))

    return register

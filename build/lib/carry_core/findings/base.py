"""Findings as data: a measurement of each run, and the registry of which function measures which claim.

A finding takes one source's `Evidence` and gives a `Measurement`: a value for each run, whether the run shows what the
paper claims, and what else was measured. When a run shows a claim is said in its row's `reason` in `data/claims.yml`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, Any

from carry_core import measure
from carry_core.groups import GROUPS
from carry_core.groups import MAIN as MAIN
from carry_core.interventions import Ablation

if TYPE_CHECKING:
    from carry_core.findings.survey import Evidence

N1, N1_W0 = "n1_s0.3_w0.2", "n1_s0.3_w0.0"
W0, S01 = "n2_s0.3_w0.0", "n2_s0.1_w0.2"
DFF512, DFF1024 = "n2_s0.2_w1.0_dff512", "n2_s0.3_w0.2_dff1024"
N3, DECODER, DIGITS4 = "n3_s0.3_w0.2", "decoder_n2_s0.3_w0.2", "digits4_n2_s0.3_w0.2"
PAD6, PRIMED, FINETUNED = "pad6_n2_s0.3_w0.2", "pad6_primed100_n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"
DECODER_PAD6 = "decoder_pad6_primed500_n2_s0.3_w0.2"

Fields = Mapping[str, Any]  # numbers, texts or lists of these, by name


@dataclass(frozen=True)
class Need:
    """What has to be surveyed on each run of a group, besides the final MLP's ablation."""

    ablations: frozenset[Ablation] = frozenset()
    dissect: bool = False
    squash: bool = False

    def __or__(self, other: "Need") -> "Need":
        return Need(self.ablations | other.ablations, self.dissect or other.dissect, self.squash or other.squash)


def all_heads(group: str) -> Need:
    """Each head of the last layer, ablated by itself."""
    return Need(frozenset(measure.last_heads(GROUPS[group].config)))


@dataclass(frozen=True)
class Measurement:
    """What a source's weights give for one number or finding.

    Attributes:
        runs: the value of each run, by its number; by its group and its number where there are several groups.
        value: what stands for all of them.
        noise: standard deviation that the paper's own draw of sums adds to `value`.
        how: how it was obtained, in a sentence.
        at_hand: runs of the group; as many as in `runs` if None.
        shows: for a finding, whether each run shows it.
        fields: what else was measured, by run.
    """

    runs: Mapping[Any, Any]
    value: Any
    noise: float | int = 0.0
    how: str = ""
    at_hand: int | None = None
    shows: Mapping[Any, bool] | None = None
    fields: Mapping[Any, Fields] = field(default_factory=dict)


def measurement(rows: Mapping[Any, Fields], how: str, among: Iterable[Any] | None = None) -> Measurement:
    """A finding from a row for each run: its `value`, whether it `shows` the claim, and what else was measured.

    Args:
        rows: by the run's number, or by its group and its number.
        how: what `value` is.
        among: runs whose mean stands for all; every run's if None.
    """
    known = [rows[run]["value"] for run in (rows if among is None else among)]
    known = [value for value in known if value == value]
    return Measurement(
        {run: row["value"] for run, row in rows.items()},
        mean(known) if known else float("nan"),
        how=how,
        shows={run: bool(row["shows"]) for run, row in rows.items()},
        fields={run: {k: x for k, x in row.items() if k not in ("value", "shows")} for run, row in rows.items()},
    )


@dataclass(frozen=True)
class Finding:
    """How a finding is measured, of which groups' runs, and what has to be surveyed of the first of these."""

    of: Callable[["Evidence"], Measurement]
    groups: tuple[str, ...]
    need: Need | None = None


FINDINGS: dict[str, Finding] = {}


def finding(
    name: str, *groups: str, need: Need | None = None
) -> Callable[[Callable[["Evidence"], Measurement]], Callable[["Evidence"], Measurement]]:
    """Register the measure of `finding/<name>`, which is about the runs of `groups`."""

    def register(of: Callable[["Evidence"], Measurement]) -> Callable[["Evidence"], Measurement]:
        FINDINGS[f"finding/{name}"] = Finding(of, groups or (MAIN,), need)
        return of

    return register

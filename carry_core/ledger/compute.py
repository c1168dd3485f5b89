"""The ledger of one source, computed from weights: a row and a verdict for each number and finding."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.ledger import findings, published, quantities, results, verdicts
from carry_core.ledger.evidence import Evidence, Need, Nothing
from carry_core.ledger.published import Claim
from carry_core.ledger.readings import Found
from carry_core.ledger.results import Row


class Ledger:
    """The rows of one source.

    Args:
        source: `ours` or `author`.
        only: the rows whose id starts with this.
        report: called with a line after each run that was measured and each row that took its time.

    Raises:
        BadInput: unknown source, no such row, or a row that nothing is measured for.
    """

    def __init__(self, source: str, only: str = "", report: Callable[[str], None] = lambda done: None) -> None:
        self.source, self.claims, self.report = source, published.chosen(only), report
        for claim in self.claims:
            if not (findings.known(claim.id) if claim.paper is None else quantities.known(claim.id)):
                raise BadInput(f"{data_dir() / 'claims.yml'}: nothing is measured for {claim.id}: correct the id.")
        needs: dict[str, Need] = {}
        for claim in self.claims:
            for group, need in (findings.needed(claim.id) | quantities.needed(claim.id)).items():
                needs[group] = needs.get(group, Need()) | need
        self.evidence = Evidence(source, needs, report)
        self.theirs = results.author_rows() if source == "ours" else {}

    def steps(self) -> int:
        """How often `report` will be called at most."""
        return self.evidence.steps() + sum(claim.paper is None for claim in self.claims)

    def rows(self) -> list[Row]:
        """Compute them all, from weights; what cannot be computed says why."""
        return [self.row(claim) for claim in self.claims]

    def row(self, claim: Claim) -> Row:
        """Compute one."""
        self.evidence.used.clear()
        try:
            found = find(claim, self.evidence)
        except BadInput as error:
            return Row(claim.id, claim.where, claim.paper, None, None, [], None, "not run", str(error))
        if claim.paper is None:
            self.report(claim.id)
        judgement = self._judge(claim, found)
        numbers = list(found.runs.values())
        pooled = len({key[0] for key in found.runs if isinstance(key, tuple)}) > 1  # groups that need not be alike
        bounded = not pooled and all(isinstance(x, float) and abs(x) <= claim.range for x in numbers)
        groups_apart = verdicts.disagreement(numbers, claim.range) if bounded else ""
        sentences = [found.detail, judgement.detail, groups_apart, results.named(found.runs), self.evidence.recipes()]
        detail = " ".join(filter(None, sentences))
        std = np.std(numbers, axis=0, ddof=1).tolist() if len(numbers) > 1 and not pooled else None
        return Row(
            claim.id, claim.where, claim.paper, _plain(found.value), _plain(std), [_plain(x) for x in numbers],
            judgement.tolerance if judgement.tolerance is None else round(judgement.tolerance, 6), judgement.verdict,
            detail,
        )  # fmt: skip

    def _judge(self, claim: Claim, found: Found) -> verdicts.Judgement:
        theirs = self.theirs.get(claim.id)
        return judge(claim, self.source, found, theirs.runs if theirs else [])


def find(claim: Claim, evidence: Evidence) -> Found:
    """What a source's weights give for a claim.

    Raises:
        BadInput: it cannot be measured; says why.
    """
    of = findings.find if claim.paper is None else quantities.find
    return of(claim.id, evidence)


def about(claim: Claim) -> frozenset[str]:
    """The group whose runs a row is about: the one that its measure asks for first. All, if it goes on without them."""
    asked = Nothing()
    with suppress(BadInput):
        find(claim, asked)
    return frozenset(asked.used)


def judge(claim: Claim, source: str, found: Found, theirs: Sequence[Any]) -> verdicts.Judgement:
    """The verdict on what a source's runs gave; `theirs` are the author's runs, which ours are compared with."""
    if found.shows is not None:
        enough = verdicts.ENOUGH if source == "ours" and not claim.single else 1
        return verdicts.judge_finding(claim.rule, list(found.shows.values()), enough)
    printed = verdicts.Printed(_array(claim.paper), claim.unit, claim.range, claim.single)
    if (n := len(_array(found.value))) != len(printed.value):
        raise BadInput(f"{claim.id}: {n} number(s) were computed, but `paper` has {len(printed.value)}: correct it.")
    at_hand = len(found.runs) if found.at_hand is None else found.at_hand
    runs = np.stack([_array(x) for x in found.runs.values()]) if found.runs else np.zeros((0, 1))
    if source == "author":
        return verdicts.judge_author(claim.rule, printed, _array(found.value), found.noise, at_hand, runs)
    known = np.stack([_array(x) for x in theirs]) if theirs else None
    return verdicts.judge_ours(claim.rule, printed, _array(found.value), runs, known, at_hand)


def _array(value: Any) -> verdicts.Array:
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def _plain(value: Any) -> Any:
    """A number with six places, so that the last bits of another processor change no file."""
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, float):
        return round(value, 6) if value == value else None
    return value

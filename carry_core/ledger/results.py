"""The ledger's rows, and the files in `data/results/` that keep those of each source."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, sha256, write_json
from carry_core.ledger.claims import claims

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
APART = 1 / 3  # of the range: an empty gap between runs from which they are said to disagree
VERSION = 3  # of results files


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    `fields` are lists with an entry for each run: `run` (its number, with its group before it where there are several),
    for a finding `shows`, `training` where runs were not trained as the paper's were, and what else was measured.
    """

    id: str
    where: str
    paper: Any
    value: Any = None  # a number, a list where `paper` is one, None if it was not run
    std: Any = None  # between `runs`, with n - 1; None for fewer than two, or runs of several groups
    runs: list[Any] = field(default_factory=list)
    tolerance: float | None = None  # how far `value` may lie from `paper`; None where there is no such distance
    verdict: str = "not run"  # one of `verdicts.VERDICTS`
    detail: str = ""  # `fields` and how the row was obtained as a sentence, or why it was not run
    n: int = 0  # runs that it is judged on
    fields: dict[str, list[Any]] = field(default_factory=dict)
    interval: list[list[float]] | None = None  # of the difference to the author's runs or the paper, by entry
    rule: str = ""  # the rule that gave the verdict, as `verdicts.rule_text` states it; empty in older results
    reason: str = ""  # the claim's reason for that rule

    @property
    def keys(self) -> list[str]:
        """What each run is called."""
        return self.fields.get("run", [])

    @property
    def trainings(self) -> list[str]:
        """How those of its groups were trained that were not trained as the paper's."""
        return sorted({training for every in self.fields.get("training", []) for training in every})

    @property
    def shown(self) -> tuple[int, int] | None:
        """Of a finding, how many runs show it and how many there are."""
        return (sum(self.fields["shows"]), len(self.fields["shows"])) if "shows" in self.fields else None

    @property
    def pooled(self) -> bool:
        """Whether its runs are of several groups, which need not be alike."""
        return len({name.rpartition(" ")[0] for name in self.keys}) > 1

    def disagreement(self, range_: float | int) -> str:
        """A sentence if one group's runs fall into two, with over `APART` of the range between them, else nothing."""
        ordered = sorted(self.runs) if all(isinstance(x, float) and abs(x) <= range_ for x in self.runs) else []
        gaps = [high - low for low, high in pairwise(ordered)]
        if self.pooled or max(gaps, default=0.0) <= APART * range_:
            return ""
        split = gaps.index(max(gaps)) + 1
        sides = ordered[:split], ordered[split:]
        low, high = (f"{len(x)} at {x[0]:.3g}" + (f" to {x[-1]:.3g}" if x[0] < x[-1] else "") for x in sides)
        return f"The runs disagree (bimodal): {low}, {high}; the mean may describe no run."


def path_of(source: str) -> Path:
    """Where the committed results of a source lie."""
    return data_dir() / "results" / f"{source}.json"


def save(source: str, rows: list[Row]) -> Path:
    """Write a source's rows, with the sha256 of the weights that they come from."""
    kept = {"version": VERSION, "source": source, "weights": weights(source), "rows": [asdict(row) for row in rows]}
    write_json(path_of(source), kept)
    return path_of(source)


def weights(source: str) -> dict[str, str]:
    """The sha256 of every file behind a source's rows, those of the author's by their path in his repository."""
    if source == "ours":
        first = [path for group in groups.GROUPS for path in runs.find(group).values()]
        pairs = [file for path in first for file in (path, path.with_suffix(".npz")) if file.exists()]
        return {path.relative_to(data_dir()).as_posix(): sha256(path) for path in sorted(pairs)}
    path = runs.folder(source) / "sources.json"
    imported = json.loads(path.read_text()) if path.exists() else {}
    return dict(sorted(item for output in imported.values() for item in output["files"].items()))


def read(source: str) -> dict[str, Any]:
    """A source's committed results: `weights` and `rows`; `BadInput` if missing, damaged, or of another version."""
    path = path_of(source)
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if (found["version"], found["source"]) != (VERSION, source):
            raise ValueError("it is of another version or source")
        return found | {"rows": [Row(**row) for row in found["rows"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else f"is damaged ({error})"
        raise BadInput(f"{path} {why}: write it with `carry claims --source {source} --save`.") from error


def uninformative(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, str]:
    """Why rows can hardly fail, by id, from the results of each source by id: they are counted apart."""
    known = {name: [by_id[name] for by_id in rows.values() if name in by_id] for name in claims()}
    why = {}
    for name, claim in claims().items():
        first = known.get(name.replace("/corrected/", "/accuracy/"), []) if "/corrected/" in name else []
        if claim.rule == "exact" and known[name] and not any(r.runs or r.value is None for r in known[name]):
            why[name] = "a fact of the data set"
        elif name.startswith("tab1/decision_head/") and name.endswith("/pos9"):
            why[name] = "no carry can arrive there, with or without the head"
        elif len(first) == len(known[name]) == len(runs.SOURCES) and all(
            one.runs and np.allclose(np.add(one.runs, other.runs), 1, rtol=0, atol=1.5e-6)  # as stored
            for one, other in zip(first, known[name], strict=True)
        ):
            why[name] = "accuracy and corrected accuracy add up to one, so it says what the other row says"
    return why


def gathered(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Things in lists by what `key` says of each, in the order in which that comes up."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_id(source: str) -> dict[str, Row]:
    """The committed results of a source by id; empty where there are none."""
    return {row.id: row for row in read(source)["rows"]} if path_of(source).exists() else {}

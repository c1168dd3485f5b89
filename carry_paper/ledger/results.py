"""The ledger's rows, and the files in `data/results/` that keep those of each source."""

import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, json_bytes, sha256
from carry_paper import author
from carry_paper.checksums import save_listed
from carry_paper.ledger.claims import check_numbers, claims
from carry_paper.ledger.verdicts import VERDICTS
from carry_paper.schemas import one_of, read_json

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
APART = 1 / 3  # of the range: an empty gap between runs from which they are said to disagree
VERSION = 3  # of results files
NOT_RUN = "not run"
Value = Annotated[
    Any, AfterValidator(lambda value: None if value is None else check_numbers(value))
]


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    `fields` are lists with an entry for each run: `run` (its number, with its group before it where
    there are several), for a finding `shows`, `training` where runs were not trained as the paper's
    were, and what else was measured.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False
    )

    id: str
    where: str
    paper: Value
    value: Value = None  # a number, a list where `paper` is one, None if it was not run
    # between `runs`, with n - 1; None for fewer than two, or runs of several groups
    std: Value = None
    runs: list[Any] = field(default_factory=list)
    # how far `value` may lie from `paper`; None where there is no such distance
    tolerance: float | None = None
    verdict: Annotated[str, one_of(VERDICTS)] = NOT_RUN  # one of `verdicts.VERDICTS`
    detail: str = ""  # `fields` and how the row was obtained as a sentence, or why it was not run
    n: Annotated[int, Field(ge=0)] = 0  # runs that it is judged on
    fields: dict[str, list[Any]] = field(default_factory=dict)
    # of the difference to the author's runs or the paper, by entry
    interval: list[list[float]] | None = None
    # the rule that gave the verdict, as `verdicts.rule_text` states it; empty in older results
    rule: str = ""
    reason: str = ""  # the claim's reason for that rule, with its criteria filled in
    groups: list[str] = field(default_factory=list)  # the groups whose runs it is about

    @model_validator(mode="after")
    def check_lengths(self) -> "Row":
        """Raise `ValueError` unless `fields` have an entry for each run."""
        lengths = {name: len(entries) for name, entries in self.fields.items()}
        if len({*lengths.values()}) > 1:
            raise ValueError(f"{self.id} has fields of unequal lengths: {lengths}")
        return self

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
        return (
            (sum(self.fields["shows"]), len(self.fields["shows"]))
            if "shows" in self.fields
            else None
        )

    @property
    def pooled(self) -> bool:
        """Whether its runs are of several groups, which need not be alike."""
        return len({name.rpartition(" ")[0] for name in self.keys}) > 1

    def disagreement(self, range_: float | int) -> str:
        """A sentence if one group's runs fall into two, with over `APART` of the range between them, else nothing."""
        ordered = (
            sorted(self.runs)
            if all(isinstance(x, float) and abs(x) <= range_ for x in self.runs)
            else []
        )
        gaps = [high - low for low, high in pairwise(ordered)]
        if self.pooled or max(gaps, default=0.0) <= APART * range_:
            return ""
        split = gaps.index(max(gaps)) + 1
        sides = ordered[:split], ordered[split:]
        low, high = (
            f"{len(x)} at {x[0]:.3g}" + (f" to {x[-1]:.3g}" if x[0] < x[-1] else "") for x in sides
        )
        return f"The runs disagree (bimodal): {low}, {high}; the mean may describe no run."


def check_version(version: int) -> int:
    """Raise `ValueError` if a results file is of another version."""
    if version != VERSION:
        raise ValueError(f"it is {version}, expected {VERSION}")
    return version


class Results(BaseModel):
    """What a results file holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Annotated[int, AfterValidator(check_version)]
    source: Annotated[str, one_of(runs.SOURCES)]
    weights: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
    rows: list[Row]

    @model_validator(mode="after")
    def check_ids(self) -> "Results":
        """Raise `ValueError` if an id stands twice."""
        ids = [row.id for row in self.rows]
        if len({*ids}) < len(ids):
            raise ValueError("an id stands twice")
        return self


def path_of(source: str) -> Path:
    """Where the committed results of a source lie."""
    return data_dir() / "results" / f"{source}.json"


def save(source: str, rows: list[Row]) -> Path:
    """Write a source's rows, with the sha256 of the weights that they come from.

    `BadInput` if a row that is stored with a value would become `not run`: nothing is written then.
    """
    stored = by_id(source)
    lost = [
        row
        for row in rows
        if row.verdict == NOT_RUN and row.id in stored and stored[row.id].verdict != NOT_RUN
    ]
    if lost:
        why = f"{len(lost)} rows that {path_of(source)} has would become `not run`, such as {lost[0].id}"
        raise BadInput(f"Nothing was saved: {why} ({lost[0].detail.rstrip('.')}). {_anew(source)}")
    content = {
        "version": VERSION,
        "source": source,
        "weights": weights(source),
        "rows": [asdict(row) for row in rows],
    }
    return save_listed(path_of(source), json_bytes(content))


def check_weights(source: str) -> None:
    """Raise `BadInput` if runs behind the stored results of a source are missing, before any row is computed anew."""
    if not os.path.lexists(path_of(source)):
        return
    stored: dict[str, str] = read(source)["weights"]
    if source == "author":
        lost = sorted(stored.keys() - weights(source).keys())
    else:
        present = {_group_and_file(path) for path in _files()}  # by whichever recipe
        lost = [name for name in sorted(stored) if _group_and_file(Path(name)) not in present]
    if lost:
        why = f"{len(lost)} of the {len(stored)} files behind {path_of(source)} are missing, such as {lost[0]}"
        raise BadInput(f"--save would lose rows: {why}. {_anew(source)}")


def _group_and_file(path: Path) -> tuple[str, str]:
    return path.parent.parent.name, path.name


def _files() -> list[Path]:
    """Our files behind the rows: those of the first six runs of each group."""
    first = [path for group in groups.GROUPS for path in runs.find(group).values()]
    return sorted(
        file for path in first for file in (path, path.with_suffix(".npz")) if file.exists()
    )


def _anew(source: str) -> str:
    get = "import the whole release first" if source == "author" else "get those weights first"
    return f"Expected all of them: {get}, or delete {path_of(source)} to begin anew."


def weights(source: str) -> dict[str, str]:
    """The sha256 of every file behind a source's rows, those of the author's by their path in his repository."""
    if source == "ours":
        return {path.relative_to(data_dir()).as_posix(): sha256(path) for path in _files()}
    imported = author.imported_files(runs.folder(source))
    return dict(sorted(item for files in imported.values() for item in files.items()))


def read(source: str) -> dict[str, Any]:
    """A source's committed results: `weights` and `rows`; `BadInput` if missing, damaged, or of another version."""
    path = path_of(source)
    remedy = f"delete it and write it with `carry claims --source {source} --save`"
    results = read_json(path, Results, remedy)
    if results.source != source:
        raise damaged(path, f"it is of the source {results.source}", remedy)
    return dict(results)


def uninformative(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, str]:
    """Why rows can hardly fail, by id, from the results of each source by id: they are counted apart."""
    known = {name: [by_id[name] for by_id in rows.values() if name in by_id] for name in claims()}
    why = {}
    for name, claim in claims().items():
        first = (
            known.get(name.replace("/corrected/", "/accuracy/"), [])
            if "/corrected/" in name
            else []
        )
        if (
            claim.rule == "exact"
            and known[name]
            and not any(r.runs or r.value is None for r in known[name])
        ):
            why[name] = "a fact of the data set"
        elif name.startswith("tab1/decision_head/") and name.endswith("/pos9"):
            why[name] = "no carry can arrive there, with or without the head"
        elif len(first) == len(known[name]) == len(runs.SOURCES) and all(
            # as stored
            one.runs and np.allclose(np.add(one.runs, other.runs), 1, rtol=0, atol=1.5e-6)
            for one, other in zip(first, known[name], strict=True)
        ):
            why[name] = (
                "accuracy and corrected accuracy add up to one, so it says what the other row says"
            )
    return why


def gathered(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Things in lists by what `key` says of each, in the order in which that comes up."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_id(source: str) -> dict[str, Row]:
    """The committed results of a source by id; empty where there are none."""
    return {row.id: row for row in read(source)["rows"]} if os.path.lexists(path_of(source)) else {}

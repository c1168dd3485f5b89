"""The ledger's rows, and the files in `data/results/` that keep those of each source."""

import math
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, json_bytes, sha256
from carry_paper import author, catalogue
from carry_paper.checksums import save_listed
from carry_paper.ledger.claims import Claim, Why, check_numbers, claims
from carry_paper.ledger.exchangeability import AS_PRINTED, TableTest
from carry_paper.ledger.verdicts import CANNOT_TELL, NOT_RUN, VERDICTS
from carry_paper.schemas import one_of, read_json
from carry_train import groups

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
# Runs disagree if there is a gap between them of more than this share of the quantity's range.
APART = 1 / 3
VERSION = 3  # the format of results files
# Two rows are one measurement if their values are perfectly correlated over so many runs.
RUNS_TO_COMPARE = 6
CORRELATION_ROUNDING = 1e-6
# What a row takes from `claims.yml` when it is read. It is not stored, so that it cannot be stale.
# The printed number, the rule and its reason are stored: they say what the verdict was judged by.
FROM_CLAIMS = ("where", "why")
# Verdicts that were called otherwise in older results.
RENAMED = {"compatible": CANNOT_TELL}
Verdict = Annotated[str, BeforeValidator(lambda name: RENAMED.get(name, name)), one_of(VERDICTS)]
Value = Annotated[
    Any, AfterValidator(lambda value: None if value is None else check_numbers(value))
]


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    Attributes:
        id: The claim's id.
        where: The place in the paper, from `claims.yml`.
        paper: The printed number, or a list of them; None for a finding.
        value: The measured value, a list if `paper` is one; None if it was not run.
        std: The standard deviation between `runs`, with n - 1; None for fewer than two runs, or
            runs of several groups.
        runs: The value of each run.
        tolerance: How far `value` may lie from `paper`; None where there is no such distance.
        verdict: One of `verdicts.VERDICTS`.
        detail: Sentences on the `fields` and on how the row was obtained, or why it was not run.
        n: The number of runs on which it is judged.
        fields: Lists with an entry for each run: `run` (its number, with its group before it where
            there are several), for a finding `shows`, `training` if runs were not trained as the
            paper's were, and whatever else was measured.
        interval: The 95% interval of the difference from the author's runs or from the paper, by
            entry; for a finding, that of the share of runs that show it.
        rule: The rule that gave the verdict (`verdicts.rule_text`); empty in older results.
        reason: The claim's reason for that rule, with its criteria filled in.
        groups: The groups whose runs it is about.
        settles: What would settle a verdict of `verdicts.CANNOT_TELL`; "" for other verdicts.
        table: The comparison of our whole table with the author's, for a cell of one.
        why: The reason why it is not reproduced, from `claims.yml`; None if that gives none.
        sensitivity: The verdict that it would have with a bar of its rule at half or at twice the
            distance from perfect, by that bar; only where this is another verdict.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False
    )

    id: str
    where: str = ""
    paper: Value = None
    value: Value = None
    std: Value = None
    runs: list[Any] = field(default_factory=list)
    tolerance: float | None = None
    verdict: Verdict = NOT_RUN
    detail: str = ""
    n: Annotated[int, Field(ge=0)] = 0
    fields: dict[str, list[Any]] = field(default_factory=dict)
    interval: list[list[float]] | None = None
    rule: str = ""
    reason: str = ""
    groups: list[str] = field(default_factory=list)
    settles: str = ""
    table: TableTest | None = None
    why: Why | None = None
    sensitivity: dict[str, Verdict] = field(default_factory=dict)

    @model_validator(mode="after")
    def check_lengths(self) -> "Row":
        """Raise `ValueError` unless `fields` have an entry for each run."""
        lengths = {name: len(entries) for name, entries in self.fields.items()}
        if len({*lengths.values()}) > 1:
            raise ValueError(f"{self.id} has fields of unequal lengths: {lengths}")
        return self

    @property
    def keys(self) -> list[str]:
        """Return the name of each run."""
        return self.fields.get("run", [])

    @property
    def counts_groups(self) -> bool:
        """Return True if it is groups that show a finding, not runs."""
        return bool(self.keys) and all(key in groups.GROUPS for key in self.keys)

    @property
    def trainings(self) -> list[str]:
        """Return how runs were trained that were not trained as the paper's were."""
        trainings = set[str]()
        for of_run in self.fields.get("training", []):
            trainings.update(of_run)
        return sorted(trainings)

    @property
    def shown(self) -> tuple[int, int] | None:
        """Return how many runs show a finding, and how many can say; None for a number."""
        if "shows" not in self.fields:
            return None
        shows = [shows for shows in self.fields["shows"] if shows is not None]
        return sum(shows), len(shows)

    @property
    def half_width(self) -> float | None:
        """Return half the width of a number's interval, the widest of its entries; None if none."""
        if self.interval is None or self.paper is None:
            return None
        return max((high - low) / 2 for low, high in self.interval)

    @property
    def pooled(self) -> bool:
        """Return True if its runs are of several groups, which need not be alike."""
        groups = {name.rpartition(" ")[0] for name in self.keys}
        return len(groups) > 1

    @property
    def measured(self) -> dict[str, list[Any]]:
        """Return the fields that were measured besides the value, with an entry for each run."""
        others = ("run", "shows", "training")
        return {name: values for name, values in self.fields.items() if name not in others}

    @property
    def fields_in_words(self) -> str:
        """Return what was measured besides the value as a sentence, run by run; "" if nothing."""
        if not self.measured:
            return ""
        runs = []
        for i, run in enumerate(self.keys):
            parts = [
                f"{name.replace('_', ' ')} {field_text(values[i])}"
                for name, values in self.measured.items()
            ]
            runs.append(f"run {run}: {', '.join(parts)}")
        sentence = "; ".join(runs)
        return f"{sentence[:1].upper()}{sentence[1:]}."

    def disagreement(self, range_: float | int) -> str:
        """Return a sentence if one group's runs fall into two, else nothing.

        They do if the largest gap between them is more than `APART` of the range.
        """
        can_be_ordered = all(isinstance(x, float) and abs(x) <= range_ for x in self.runs)
        if self.pooled or not can_be_ordered or len(self.runs) < 2:
            return ""
        ordered = sorted(self.runs)
        gaps = [high - low for low, high in pairwise(ordered)]
        if max(gaps) <= APART * range_:
            return ""
        split = gaps.index(max(gaps)) + 1
        low, high = _in_words(ordered[:split]), _in_words(ordered[split:])
        return f"The runs disagree (bimodal): {low}, {high}; the mean may describe no run."


def field_text(value: Any) -> str:
    """Return an entry of a field in words."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return " ".join(field_text(entry) for entry in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _in_words(ordered: list[float]) -> str:
    """Return how many numbers there are, and their ends: `2 at 0.1 to 0.2`."""
    lowest, highest = ordered[0], ordered[-1]
    end = f" to {highest:.3g}" if lowest < highest else ""
    return f"{len(ordered)} at {lowest:.3g}{end}"


def check_version(version: int) -> int:
    """Raise `ValueError` if a results file is of another version."""
    if version != VERSION:
        raise ValueError(f"it is {version}, expected {VERSION}")
    return version


class Results(BaseModel):
    """The content of a results file."""

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


def path_of(source: str, folder: Path | None = None) -> Path:
    """Return where the committed results of a source are stored: in this data folder.

    The folder is `data_dir()` if it is None.
    """
    return (folder or data_dir()) / "results" / f"{source}.json"


def save(source: str, rows: list[Row]) -> Path:
    """Write a source's rows, with the sha256 of the weights that they come from.

    Raises:
        BadInput: A row that is stored with a value would become `not run`, by the same rule.
            Nothing is written.
    """
    stored = by_id(source)
    lost = []
    for row in rows:
        before = stored.get(row.id, row)
        same_rule = (row.rule, row.reason) == (before.rule, before.reason)
        if row.verdict == NOT_RUN != before.verdict and same_rule:
            lost.append(row)
    if lost:
        reason = lost[0].detail.rstrip(".")
        raise BadInput(
            f"Nothing was saved: {len(lost)} rows that {path_of(source)} has would become "
            f"`not run`, such as {lost[0].id} ({reason}). {_anew(source)}"
        )
    content = {
        "version": VERSION,
        "source": source,
        "weights": weights(source),
        "rows": [to_store(row) for row in rows],
    }
    return save_listed(path_of(source), json_bytes(content))


def to_store(row: Row) -> dict[str, Any]:
    """Return what a results file keeps of a row: all but what it takes from `claims.yml`."""
    return {name: value for name, value in asdict(row).items() if name not in FROM_CLAIMS}


def explained(row: Row, claim: Claim, source: str) -> Row:
    """Return a row of a source with what it takes from its claim in `claims.yml`."""
    why = None if row.verdict == "reproduced" else claim.why.get(source)
    return replace(row, where=claim.where, why=why)


def check_weights(source: str) -> None:
    """Raise `BadInput` if runs behind a source's stored results are missing.

    It is called before any row is computed.
    """
    if not os.path.lexists(path_of(source)):
        return
    stored: dict[str, str] = read(source)["weights"]
    if source == "author":
        lost = sorted(stored.keys() - weights(source).keys())
    else:
        present = {_group_and_file(path) for path in _files()}  # by whichever recipe
        lost = [name for name in sorted(stored) if _group_and_file(Path(name)) not in present]
    if lost:
        raise BadInput(
            f"--save would lose rows: {len(lost)} of the {len(stored)} files behind "
            f"{path_of(source)} are missing, such as {lost[0]}. {_anew(source)}"
        )


def _group_and_file(path: Path) -> tuple[str, str]:
    """Return the group's name and the file's, which do not depend on the recipe."""
    return path.parent.parent.name, path.name


def _files() -> list[Path]:
    """Return our files behind the rows: those of the first six runs of each group."""
    files = []
    for group in groups.GROUPS:
        for weights_file in catalogue.find(group).values():
            for file in (weights_file, weights_file.with_suffix(".npz")):
                if file.exists():
                    files.append(file)
    return sorted(files)


def _anew(source: str) -> str:
    """Return what to do about missing weights."""
    get = "import the whole release first" if source == "author" else "get those weights first"
    return f"Expected all of them: {get}, or delete {path_of(source)} to begin anew."


def weights(source: str) -> dict[str, str]:
    """Return the sha256 of every file behind a source's rows.

    The author's files are called by their path in his repository.
    """
    if source == "ours":
        return {path.relative_to(data_dir()).as_posix(): sha256(path) for path in _files()}
    checksums: dict[str, str] = {}
    for files in author.imported_files(runs.folder(source)).values():
        checksums.update(files)
    return dict(sorted(checksums.items()))


def read(source: str, folder: Path | None = None) -> dict[str, Any]:
    """Return a source's committed results: `weights` and `rows`, with what `claims.yml` adds.

    The `folder` is as in `path_of`.

    Raises:
        BadInput: They are missing or damaged, or of another version.
    """
    path = path_of(source, folder)
    remedy = f"delete it and write it with `carry claims --source {source} --save`"
    results = read_json(path, Results, remedy)
    if results.source != source:
        raise damaged(path, f"it is of the source {results.source}", remedy)
    by_id = claims()
    rows = []
    for row in results.rows:
        claim = by_id.get(row.id)
        rows.append(row if claim is None else explained(row, claim, source))
    return {**dict(results), "rows": rows}


# ---- results beside the weights that are here


def has_other_weights(source: str, group: str, paths: Iterable[Path] | None = None) -> bool:
    """Return True if a group's weights are not those from which a source's results were made.

    They are compared by sha256. If there are no weights, or no results, they are no others.

    Args:
        source: `ours` or `author`.
        group: The group's name.
        paths: The files with the weights; those that `catalogue.load` loads if None.
    """
    path = path_of(source)
    if not os.path.lexists(path):
        return False
    stored = _weights_behind(source, path, path.stat().st_mtime_ns)
    if source == "author":
        return any(stored.get(name) != digest for name, digest in _released(group).items())
    behind_rows = set()
    for name, digest in stored.items():
        if Path(name).parts[1:2] == (group,) and name.endswith(runs.SUFFIX):
            behind_rows.add(digest)
    present = {sha256(path) for path in paths or catalogue.find(group).values()}
    return bool(present) and present != behind_rows


@lru_cache(maxsize=4)
def _weights_behind(source: str, _path: Path, _modified: int) -> dict[str, str]:
    weights: dict[str, str] = read(source)["weights"]
    return weights


def _released(group: str) -> dict[str, str]:
    """Return the sha256 of the author's released files that are imported of a group."""
    checksums: dict[str, str] = {}
    for output, files in author.imported_files(runs.folder("author")).items():
        if output.startswith(f"{group}/"):
            checksums.update(files)
    return checksums


def of_these_weights(source: str, name: str) -> Row:
    """Return a stored row; one without a value if there is none, or other weights are here."""
    row = by_id(source).get(name)
    if row is None or any(has_other_weights(source, group) for group in row.groups):
        claim = claims()[name]
        return Row(name, claim.where, claim.paper, fields={"run": [], "shows": []})
    return row


def uninformative(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, str]:
    """Return why rows can hardly fail, or say what another row says, by id: they are counted apart.

    Args:
        rows: The results of each source, by id.
    """
    reasons = {}
    for name, claim in claims().items():
        own_rows = [by_id[name] for by_id in rows.values() if name in by_id]
        if claim.hardly_fails:
            reasons[name] = claim.hardly_fails
        elif claim.rule == "exact" and own_rows and all(_needs_no_runs(row) for row in own_rows):
            reasons[name] = "a fact of the data set"
        elif _is_never_carried_into(name):
            reasons[name] = "no carry can arrive there, with or without the head"
    for name, first in repeated({name: rows_of(rows, name) for name in claims()}, reasons).items():
        reasons[name] = f"over all runs of both sources it says what {first} says"
    return reasons


def rows_of(rows: Mapping[str, Mapping[str, Row]], name: str) -> list[Row]:
    """Return the row of each source that has it."""
    return [by_id[name] for by_id in rows.values() if name in by_id]


def repeated(rows: Mapping[str, list[Row]], skipped: Collection[str]) -> dict[str, str]:
    """Return the rows that are one measurement with another row, by the id of that row.

    Over `RUNS_TO_COMPARE` runs or more, of both sources, their values are perfectly correlated, as
    those of complements are. Findings come first, since numbers are details of them.

    Args:
        rows: The rows of each claim, one for each source.
        skipped: The ids that are not compared.
    """
    values_by_groups: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    names = sorted(rows, key=lambda name: all(row.paper is not None for row in rows[name]))
    first_of: dict[str, str] = {}
    for name in names:
        values = _values_of_runs(rows[name])
        if name in skipped or not values:
            continue
        earlier = values_by_groups.setdefault(tuple(rows[name][0].groups), {})
        for other, other_values in earlier.items():
            if _are_one_measurement(values, other_values):
                first_of[name] = other
                break
        else:
            earlier[name] = values
    return first_of


def _values_of_runs(rows: Iterable[Row]) -> dict[str, float]:
    """Return the value of each run, by its source's place and its name; none of lists."""
    values = {}
    for place, row in enumerate(rows):
        for key, value in zip(row.keys, row.runs, strict=False):
            if isinstance(value, int | float):
                values[f"{place} {key}"] = float(value)
    return values


def _are_one_measurement(values: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return True if two rows' values are perfectly correlated over the runs that both have."""
    common = [key for key in values if key in others]
    if len(common) < RUNS_TO_COMPARE:
        return False
    x = np.array([values[key] for key in common])
    y = np.array([others[key] for key in common])
    x_apart, y_apart = x - x.mean(), y - y.mean()
    if min(np.ptp(x_apart), np.ptp(y_apart)) <= AS_PRINTED:
        return False
    # np.corrcoef takes ten times as long, and a page compares thousands of pairs.
    correlation = x_apart @ y_apart / math.sqrt((x_apart @ x_apart) * (y_apart @ y_apart))
    return bool(abs(correlation) > 1 - CORRELATION_ROUNDING)


def _needs_no_runs(row: Row) -> bool:
    """Return True if a row has a value that no run gave."""
    return not row.runs and row.value is not None


def _is_never_carried_into(name: str) -> bool:
    """Return True if an id is that of a digit of which the decision head decides nothing."""
    last_position = groups.GROUPS[groups.MAIN].config.layout.position_names[-1]
    return name.startswith("tab1/decision_head/") and name.endswith(f"/{last_position}")


def gathered(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items in lists by what `key` returns of each, in the order of first occurrence."""
    lists: dict[K, list[T]] = {}
    for item in items:
        lists.setdefault(key(item), []).append(item)
    return lists


def by_id(source: str, folder: Path | None = None) -> dict[str, Row]:
    """Return the committed results of a source by id; empty if there are none.

    The `folder` is as in `path_of`.
    """
    if not os.path.lexists(path_of(source, folder)):
        return {}
    return {row.id: row for row in read(source, folder)["rows"]}

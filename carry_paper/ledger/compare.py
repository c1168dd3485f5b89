"""The paper's questions, asked of any runs: yours beside the paper and the spread of our seeds.

A question is a row of the ledger, or who writes the carry: along the carry line, and by swaps of
parts. Rows are measured by their entries in `registry.py`, on the runs that are given in place of
the row's own. There are no verdicts: these
runs are other models than those of the paper.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from carry_core import carries, measure
from carry_core.errors import BadInput
from carry_core.files import ROOT, data_dir
from carry_core.interventions import INTACT
from carry_core.model import ModelConfig
from carry_paper import catalogue, measurements
from carry_paper.catalogue import GroupRuns
from carry_paper.findings import interchange, line_table, typology
from carry_paper.findings.base import MAIN
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need, Survey
from carry_paper.ledger import claims, kinds_of_run, ledger, measuring, registry
from carry_paper.ledger.claims import CLASSES, Claim
from carry_train import groups

# What is asked of any model whose sums have no padding, by the row that measures it.
_DECISION_HEAD = {
    "finding/decision_head": "Exact matches that its decision head costs more than the other head",
    "finding/decision_head_carries": "Without that head: lowest accuracy of a cell with a carry-in",
    "finding/decision_head_adds": "Without it: correct or one too large, the lowest other cell",
}
_DISSECTION = {
    "n2/dissection/carry_accuracy": "Without them: accuracy of digits with a carry-in",
    "n2/dissection/carry_corrected": "Without them: digits with a carry-in that lack it",
    "n2/dissection/non_carry_accuracy": "Without them: accuracy of digits without a carry-in",
}
STAIRCASE = "Weakest step of the first layer's staircase"
FINAL_MLP = "Without the final MLP: correlation with a model that cannot carry"
ENCODER = {
    "n2/accuracy": "Exact match",
    "finding/staircase": STAIRCASE,
    **_DECISION_HEAD,
    "finding/final_mlp_carries": FINAL_MLP,
    "n2/dissection/neurons": "Carry neurons",
    **_DISSECTION,
}
DECODER = {
    "n2/accuracy": "Exact match",
    "finding/decoder_staircase": STAIRCASE,
    **_DECISION_HEAD,
    "finding/decoder_mlp": FINAL_MLP,
    "decoder/dissection/neurons": "Carry neurons",
    **_DISSECTION,
}
# Of padded sums, carry classes are those of longer sums, which the tables do not have.
PADDED = {
    "pad6_finetuned/accuracy3": "Exact match on three-digit sums",
    "finding/primed_staircase": "Weakest step of both layers' staircases",
}
# Tables whose cells are asked, of three-digit sums.
ENCODER_TABLES = ("tab1/decision_head", "tab1/final_mlp")
DECODER_TABLES = ("tab1/decision_head", "tab5/final_mlp")
THREE_LAYER_TABLES = ("tab1/decision_head", "tab3/final_mlp")

# What is asked along the carry line: the columns of `line_table.by_run`, in words.
LINE = {
    "lowest": "Swaps of one coordinate that move the carry, at the least",
    "late": "Late share: what the last attention writes of it",
    "writers": "Heads of the last layer that write it",
}
# What is asked by interchange of whole parts: the columns of `typology.who_decides`, in words.
PARTS = {
    "one head": "Swaps that move the carry: of the last layer's best head",
    "heads together": "Swaps that move the carry: of the last layer's attention",
    "earlier": "Swaps that move the carry: of what enters the last layer",
    "final MLP": "Swaps that move the carry: of the final MLP",
}
SIDES = ("yours", "ours", "paper")
PAIRS = 500  # pairs of sums for each swap
DECIMALS = 5  # places to which values are compared, since the last bits depend on the processor


@dataclass(frozen=True)
class ComparedRow:
    """The answer of some runs to one question.

    Attributes:
        runs_of: The runs, as `Subject.name` has them.
        id: The row of the ledger, or `carry/…` for who writes the carry.
        question: What is asked, in words.
        paper: The printed number; for a finding, the runs of which the paper states it; None if the
            paper does not say.
        runs: The value of each run, by its number; None where it is not defined.
        shows: For a finding, True for each run that shows it, None for one that cannot say.
        seeds: The values of our own runs of the model that the question is about.
        seeds_of: Which runs these are, in words.
        seeds_show: How many of our runs show a finding, and how many can say.
        percentiles: The percentage of our runs that lie below each run; ties count half.
        not_asked: The reason why the question cannot be asked; "" if it was.
    """

    runs_of: str
    id: str
    question: str
    paper: Any = None
    runs: dict[str, Any] = field(default_factory=dict)
    shows: dict[str, bool | None] = field(default_factory=dict)
    seeds: list[Any] = field(default_factory=list)
    seeds_of: str = ""
    seeds_show: tuple[int, int] | None = None
    percentiles: dict[str, float] = field(default_factory=dict)
    not_asked: str = ""

    @property
    def table(self) -> str:
        """Return the table of which this is a cell; "" if it is none."""
        known_claim = claims.claims().get(self.id)
        return known_claim.table if known_claim else ""


@dataclass(frozen=True)
class Subject:
    """Runs that are compared, and what they are called: a group's name or a path."""

    name: str
    loaded: GroupRuns

    @classmethod
    def of(cls, name: str) -> "Subject":
        """Return the runs of a group or of a path; raise `BadInput` as `catalogue.load`."""
        return cls(name, catalogue.load(name))

    @property
    def words(self) -> str:
        """Return the group in words, the runs, and how they were trained."""
        numbers = ", ".join(map(str, self.loaded.numbers))
        plural = "s" if len(self.loaded.numbers) > 1 else ""
        description = groups.find(self.loaded.group)
        return f"{description}; run{plural} {numbers}, {self.loaded.training}"


class Given(Evidence):
    """Some runs in place of whatever group a row of the ledger is about."""

    def __init__(self, given: GroupRuns, **options: Any) -> None:
        super().__init__(given.source, **options)
        self.given = given

    def group(self, group: str) -> GroupRuns:
        """Return the given runs."""
        return self.given

    def surveys(self, group: str) -> dict[int, Survey]:
        """Return a survey of each of the given runs."""
        return super().surveys(self.given.group)


# ---- asking


def ask(
    asked: Subject,
    report: Callable[[str], None] = lambda done: None,
    pairs: int = PAIRS,
    surveyed: Callable[[str], Any] | None = None,
) -> list[ComparedRow]:
    """Return the answers of some runs to the paper's questions.

    `report` is called with a line after each step. Each swap takes this many pairs of sums;
    `surveyed` is as in `Evidence`.
    """
    config = asked.loaded.config
    group = groups.find(asked.loaded.group)
    ids = rows_for(config, group.n_digits)
    need = Need(frozenset([INTACT, *measure.last_heads(config)]), dissect=True)
    evidence = Given(asked.loaded, report=report, surveyed=surveyed)
    reference = Reference(asked.loaded)

    quantities = measuring.quantities(registry.entry(id_) for id_ in ids)
    asking = measuring.Measuring(evidence, quantities)
    # These runs have heads of their own, which may be other ones than those that the rows name.
    evidence.needs = {group.name: need} if config.width == group.n_digits else {}
    measured = ledger.Measured(evidence.source, asking.rows(), all_runs=True)
    answers = [_answer(asked, claims.claims()[id_], measured, reference) for id_ in ids]
    along_the_line = line_answers(asked, reference, pairs)
    answers[1:1] = [*along_the_line, *part_answers(asked, reference, pairs)]
    report(f"{asked.name}: who writes the carry")
    return answers


def rows_for(config: ModelConfig, n_digits: int) -> list[str]:
    """Return the ids of the rows that can be asked of models of a shape."""
    if config.width > n_digits:
        return [*PADDED]
    ids = [*(DECODER if config.causal else ENCODER)]
    if n_digits == groups.DIGITS:
        tables = DECODER_TABLES if config.causal else ENCODER_TABLES
        if config.layers > 2 and not config.causal:
            tables = THREE_LAYER_TABLES
        for table in tables:
            ids += [claim.id for claim in claims.chosen(f"{table}/")]
    return ids


def _answer(
    asked: Subject, claim: Claim, measured: ledger.Measured, reference: "Reference"
) -> ComparedRow:
    """Return the answer to a row of the ledger."""
    question = (ENCODER | DECODER | PADDED).get(claim.id, claim.words)
    paper: Any = claim.paper
    if paper is None:
        paper = "one run" if claim.single else f"{claim.quantifier} runs"
    answer = ComparedRow(asked.name, claim.id, question, paper)
    try:
        row = ledger.combine(claim, measured).row
    except BadInput as error:
        return replace(answer, not_asked=str(error))
    values = dict(zip(row.keys, row.runs, strict=True))
    shows = dict(zip(row.keys, row.fields.get("shows", []), strict=False))
    return _beside_ours(replace(answer, shows=shows), values, reference.of_row(claim.id))


def _beside_ours(
    answer: ComparedRow, values: Mapping[str, Any], spread: Mapping[str, Any]
) -> ComparedRow:
    """Return an answer with the values of runs, and their places in the spread of our own."""
    plain = {run: x if x is None else ledger.stored(float(x)) for run, x in values.items()}
    places = percentiles(plain, spread["seeds"])
    return replace(answer, runs=plain, **spread, percentiles=places)


def line_answers(asked: Subject, reference: "Reference", pairs: int) -> list[ComparedRow]:
    """Return what the carry line says of each run (`line_table.by_run`)."""
    not_asked = ComparedRow(asked.name, "carry/line/lowest", LINE["lowest"])
    if asked.loaded.config.layers < 2:
        reason = "a model of one layer has no earlier layer to tell from the last one"
        return [replace(not_asked, not_asked=reason)]
    summary = line_table.lines_of(asked.loaded, pairs / PAIRS)
    if summary.lowest.isna().all():
        reason = "only sums that a run gets right are swapped, and it gets too few"
        return [replace(not_asked, not_asked=reason)]
    return _of_columns(asked, "carry/line", LINE, summary, reference.of_lines)


def part_answers(asked: Subject, reference: "Reference", pairs: int) -> list[ComparedRow]:
    """Return which parts move the carry in each run, by interchange (`typology.who_decides`)."""
    n_digits = groups.find(asked.loaded.group).n_digits
    frames = []
    for run, model in asked.loaded.models():
        swaps = interchange.carry_swaps(model, pairs, n_digits).assign(run=run)
        if swaps.accuracy.notna().any():
            frames.append(swaps)
    if not frames:
        reason = "only sums that a run gets right are swapped, and it gets none"
        return [ComparedRow(asked.name, "carry/one head", PARTS["one head"], not_asked=reason)]
    table = typology.who_decides(pd.concat(frames))
    return _of_columns(asked, "carry", PARTS, table, reference.of_seeds)


def _of_columns(
    asked: Subject,
    prefix: str,
    questions: Mapping[str, str],
    table: pd.DataFrame,
    spread_of: Callable[[str], dict[str, Any]],
) -> list[ComparedRow]:
    """Return the answer to each question from its column in a table of runs."""
    answers = []
    for column, question in questions.items():
        values = {str(run): value for run, value in table[column].items()}
        answer = ComparedRow(asked.name, f"{prefix}/{column}", question)
        answers.append(_beside_ours(answer, values, spread_of(column)))
    return answers


def percentiles(values: Mapping[str, Any], spread: Sequence[Any]) -> dict[str, float]:
    """Return the percentage of our runs that lie below each value; ties count half."""
    if not spread:
        return {}
    others = [round(other, DECIMALS) for other in spread]
    below = {}
    for run, value in values.items():
        if value is not None:
            rounded = round(value, DECIMALS)
            n_below = sum(other < rounded for other in others)
            below[run] = round(100 * (n_below + others.count(rounded) / 2) / len(others), 1)
    return below


# ---- the spread of our own seeds


def reference_folder() -> Path:
    """Return the data folder with our results: `data_dir()` if it has any, else the repository's.

    So runs in a CARRY_DATA of their own are compared with ours too.
    """
    folder = data_dir()
    return folder if measurements.is_stored("ours", folder) else ROOT / "data"


class Reference:
    """The stored values of our own runs.

    Findings of two-layer encoders are taken from the many seeds of the main group, by the recipe of
    the runs that are compared, and so is what is asked along the carry line. All else is from the
    ledger's rows.
    """

    def __init__(self, compared: GroupRuns) -> None:
        self.folder = reference_folder()
        self.rows = ledger.by_id("ours", self.folder)
        self.recipe = compared.record["recipe"]
        table = kinds_of_run.table(self.folder)
        self.table = self._by_recipe(table[table.source == "ours"])

    def of_row(self, id_: str) -> dict[str, Any]:
        """Return the fields of an `ComparedRow` that tell the spread of our runs in a row."""
        name = id_.removeprefix("finding/")
        if id_.startswith("finding/") and name in self.table:
            return self.of_seeds(name)
        row = self.rows.get(id_)
        if row is None or not row.runs:
            return {"seeds": []}
        words = f"{len(row.runs)} runs of {', '.join(row.groups)}"
        return {"seeds": row.runs, "seeds_of": words, "seeds_show": row.shown}

    def of_seeds(self, column: str) -> dict[str, Any]:
        """Return the same for a column of the table of many seeds."""
        if column not in self.table:
            return {"seeds": []}
        fields = _seeds(self.table, self.table[column])
        if f"{column} shows" in self.table:
            shows = self.table[f"{column} shows"].dropna()
            fields["seeds_show"] = (int(shows.sum()), len(shows))
        return fields

    def of_lines(self, column: str) -> dict[str, Any]:
        """Return the same for a column of the stored carry lines of our main group."""
        if not os.path.lexists(line_table.path_of(self.folder)):
            return {"seeds": []}
        lines = line_table.saved(self.folder)
        rows = self._by_recipe(lines[(lines.source == "ours") & (lines.group == MAIN)])
        return _seeds(rows, line_table.by_run(rows)[column])

    def _by_recipe(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows by the recipe of the runs that are compared; all if there are none."""
        by_recipe = rows[rows.recipe == self.recipe]
        return by_recipe if len(by_recipe) else rows


def _seeds(rows: pd.DataFrame, column: "pd.Series[Any]") -> dict[str, Any]:
    """Return the values of a column that our runs have, and these runs in words."""
    values = column.dropna().tolist()
    recipes = " and ".join(f"“{recipe}”" for recipe in sorted(set(rows.recipe)))
    return {"seeds": values, "seeds_of": f"{len(values)} runs of {MAIN}, {recipes}"}


# ---- frames, for a terminal and for figures


def summary(answers: Iterable[ComparedRow]) -> pd.DataFrame:
    """Return the answers that are no cells of a table, a row for each question, in words."""
    rows = []
    for answer in answers:
        if not answer.table:
            percentiles = [f"{percentile:.0f}" for percentile in answer.percentiles.values()]
            rows.append(
                {
                    "question": answer.question,
                    "paper": _text(answer.paper),
                    "our seeds": spread_words(answer),
                    "yours": value_words(answer),
                    "percentile": " ".join(percentiles) or "–",
                }
            )
    return pd.DataFrame(rows)


def spread_words(answer: ComparedRow) -> str:
    """Return the spread of our runs: `0.53 [0.31–0.66], 5 of 6 show it`."""
    if not answer.seeds:
        return "–"
    spread = pd.Series(answer.seeds, dtype=float)
    words = f"{_text(spread.median())} [{_text(spread.min())}–{_text(spread.max())}]"
    if answer.seeds_show:
        n_showing, n_runs = answer.seeds_show
        return f"{words}, {n_showing} of {n_runs} show it"
    return f"{words}, n = {len(spread)}"


def value_words(answer: ComparedRow) -> str:
    """Return the value of each run, and how many show a finding; or why it was not asked."""
    if answer.not_asked:
        return f"not asked: {answer.not_asked}"
    words = " ".join(_text(value) for value in answer.runs.values())
    if answer.shows:
        says = [shows_it for shows_it in answer.shows.values() if shows_it is not None]
        words += f", {sum(says)} of {len(says)} show it"
    return words


def _text(value: Any) -> str:
    """Return a value in words."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float | int) else str(value)


def cells(answers: Iterable[ComparedRow], table: str) -> pd.DataFrame:
    """Return a table's cells of each run, as `measure.accuracy` has them, with our runs' and paper.

    Returns:
        A row for each run, class and position, with `side` (`yours`, `ours` or `paper`) and
        `carry_in`; `accuracy` and `corrected` are columns.
    """
    rows = []
    for answer in answers:
        if answer.table != table:
            continue
        class_name, kind, position = answer.id.split("/")[2:]
        pattern = CLASSES[class_name]
        where = {"carry_class": carries.paper_name(pattern), "position": position, "kind": kind}
        by_side: dict[str, dict[Any, Any]] = {
            "paper": {"paper": answer.paper},
            "ours": dict(enumerate(answer.seeds)),
            "yours": answer.runs,
        }
        for side, values in by_side.items():
            for run, value in values.items():
                rows.append({**where, "side": side, "run": str(run), "value": value})
    frame = pd.DataFrame(rows, columns=["carry_class", "position", "kind", "side", "run", "value"])
    index = ["side", "run", "carry_class", "position"]
    wide = frame.pivot_table("value", index, "kind", sort=False).reset_index()
    classes = [carries.paper_name(pattern) for pattern in carries.patterns(groups.DIGITS)]
    positions = groups.find(MAIN).config.layout.position_names
    has_carry_in = pd.DataFrame(carries.carry_in(groups.DIGITS), classes, positions)
    cells = zip(wide.carry_class, wide.position, strict=True)
    return wide.assign(carry_in=[bool(has_carry_in.loc[cell]) for cell in cells])


def tables(answers: Iterable[ComparedRow]) -> list[str]:
    """Return the names of the tables whose cells were asked."""
    return list(dict.fromkeys(answer.table for answer in answers if answer.table))


def table_in_words(answers: Iterable[ComparedRow], table: str) -> pd.DataFrame:
    """Return a table's accuracies, classes by positions: `0.15 (0.22; 0.20)` of yours, ours, paper.

    Those of runs are means.
    """
    means = cells(answers, table).pivot_table(
        "accuracy", ["carry_class", "position"], "side", sort=False
    )
    words = []
    for values in means.to_dict("records"):
        shares = [f"{values[side]:.2f}" if side in values else "–" for side in SIDES]
        words.append(f"{shares[0]} ({'; '.join(shares[1:])})")
    return pd.Series(words, means.index).unstack(sort=False)


def shares_in_words(values: Mapping[str, float]) -> str:
    """Return the value of each run in words: `run 0 0.53, run 1 0.6`."""
    return ", ".join(f"run {run} {_text(value)}" for run, value in values.items())

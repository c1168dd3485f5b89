"""Many seeds of the main group: what was measured on each run, and who writes its carry.

One table stores what was measured. Which findings a run shows is derived by `decided` whenever the
table is read, so that a changed rule changes the page along with the ledger. Who writes the carry
comes from the stored carry lines (`with_lines`).

The page `what_kind_of_run` shows the table, and says which questions and rules were written down
before the runs were looked at. Two rules are in this module: our runs by `quick` from number 6 on
are judged, whatever they have learned (`judged`); and a part has settled at the first snapshot from
which on it does what it does at the end of training (`settled`).
"""

import json
import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import scipy
from pydantic import BaseModel, ConfigDict, Field, Json

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.checksums import save_table
from carry_paper.findings import (
    dynamics,
    heads,
    interchange,
    interchange_maps,
    line_table,
    typology,
)
from carry_paper.findings.base import CONTEXT, MAIN, Fields
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import DRAWN, Need, random_sums
from carry_paper.ledger import measuring, quantities, registry
from carry_paper.ledger.entries import Entry
from carry_paper.schemas import one_of, read_table
from carry_train import groups

FIRST_JUDGED = 6  # the number of the first run that is judged
DECIMALS = 5  # places of a stored number
# Findings about the runs of another group, which they compare with those of the main group.
ABOUT_OTHERS = ("finding/weights_not_saturated",)
# The columns that identify a row. The epoch is that of a snapshot, and NaN at the end of training.
KEY = ["source", "recipe", "run", "epoch"]
# Parts of the last layer (`typology.who_decides`), and the full adder's variables in their places
# (`typology.abstraction`).
PARTS = ["one head", "heads together", "earlier", "final MLP", "digit_sum", "carry_in", "all"]
REMEDY = "restore it with `git checkout`, or delete it and run `make seeds`"


class StoredRuns(BaseModel):
    """The columns of the stored table that identify a row; the others are measurements."""

    model_config = ConfigDict(extra="allow", strict=True)

    source: list[Annotated[str, one_of(runs.SOURCES)]]
    recipe: list[Annotated[str, one_of(groups.RECIPES)]]
    run: list[Annotated[int, Field(ge=0)]]
    epoch: list[Annotated[float, Field(ge=1)] | None]
    fields: list[Json[dict[str, dict[str, Any]]] | None]


# ---- measuring


def carry_swaps(
    model: Transformer, count: int = interchange_maps.PAIRS, n_digits: int | None = None
) -> pd.DataFrame:
    """Return the part of `interchange.sweep` that `who_decides` reads, on `count` pairs.

    `n_digits` is that of the sums; the model's if None.
    """
    return interchange.sweep(
        model, interchange.PairCounts(count, 0), n_digits, own=True, variables=["carry_in"]
    )


def run_measures(model: Transformer) -> Fields:
    """Return the measurements on a run besides its parts and the paper's findings.

    Attention is that of the decision head; `zero ablation` is the head that costs most without it.
    """
    decision_head = measure.decision_head(model)
    attention = heads.mean_attention(model)[-1][decision_head]  # (query, key)
    correct = measure.correct_digits(model, *random_sums())  # (sums, pos)
    fields = {
        "exact match": correct.all(1).double().mean().item(),
        "squared norm": sum(float(weight.square().sum()) for weight in model.parameters()),
        "zero ablation": measure.costliest_head(model),
    }
    for name, shift in (("left", -1), ("own", 0), ("right", 1)):
        mass = heads.column_mass(attention, model.config.layout, shift)
        fields[f"attention {name}"] = float(mass.nanmean())
    return fields


def measured(
    source: str,
    recipe: str | None,
    numbers: Collection[int],
    report: Callable[[str], None] = lambda done: None,
) -> pd.DataFrame:
    """Return the measurements on some runs of the main group, and what rules decide (`decided`).

    Args:
        source: `ours` or `author`.
        recipe: The recipe of their training; None for the one that leads.
        numbers: The numbers of the runs.
        report: A function that is called with a line after each run that was surveyed.

    Returns:
        A row for each run with `KEY`, the columns of `typology.who_decides` and `run_measures`,
        and each finding's value in a column of its name. Whatever else a finding measures is in
        `fields`, by finding. `learned` is the epoch from which on the exact match on test sums is
        0.99; `kink of the loss` is also an epoch (Sec. 5, Fig. 5). The rows of `on_the_way` follow.

    Raises:
        BadInput: There is no such source or recipe, or a run is missing or damaged.
    """
    selection = {MAIN: {"recipe": recipe, "runs": numbers}}
    sample = measure.sample(DRAWN, 3, seed=0)  # as many sums of each class as the paper drew
    need = Need(frozenset(quantities.LAST_HEADS))
    for entry in findings().values():
        if entry.need is not None:
            need |= entry.need
    evidence = Evidence(source, {MAIN: need}, report, selection, lambda group: sample)

    swaps = evidence.each(MAIN, lambda run, model: carry_swaps(model).assign(run=run))
    table = typology.who_decides(pd.concat(swaps.values()))
    measures = evidence.each(MAIN, lambda run, model: run_measures(model))
    table = table.join(pd.DataFrame.from_dict(measures, orient="index"))
    table = table.join(finding_values(evidence, list(table.index)))
    if source == "ours":
        exact_match = dynamics.curves(evidence.curves(MAIN), "test_whole")
        learned = {}
        for run, curve in exact_match.items():
            learned[run] = dynamics.first_at(curve, dynamics.LEARNT_ACCURACY)
        table["learned"] = pd.Series(learned)

    at_the_end = table.rename_axis("run").reset_index().assign(epoch=np.nan)
    snapshots = [on_the_way(evidence.group(MAIN), run) for run in at_the_end.run]
    rows = pd.concat([at_the_end, *snapshots], ignore_index=True)
    return decided(rows.assign(source=source, recipe=recipe or "paper"))


def finding_values(evidence: Evidence, numbers: Sequence[int]) -> pd.DataFrame:
    """Return each finding's value in some runs of the main group, and its other `fields`."""
    columns: dict[str, pd.Series[Any]] = {}
    fields: dict[int, dict[str, Fields]] = {run: {} for run in numbers}
    for name, entry in findings().items():
        # The author's learning curves are of other runs.
        if evidence.source == "author" and name in ("kink", "no_grokking"):
            continue
        if measured_as(name) != name:
            continue
        parts = {}
        for (group, run), part in measuring.of_entry(entry, evidence).items():
            if group == MAIN and run is not None:
                parts[run] = part
        columns[name] = pd.Series({run: part.value for run, part in parts.items()})
        for run in numbers:
            of_run = parts[run].fields if run in parts else {}
            names = [x for x in of_run if x not in ("value", "variance", *CONTEXT)]
            fields[run][name] = {x: of_run[x] for x in names}
        if name == "kink":
            kinks = {run: part.fields["kink"] for run, part in parts.items()}
            columns["kink of the loss"] = pd.Series(kinks)
    columns["fields"] = pd.Series(fields)
    return pd.DataFrame(columns, index=list(numbers))


def on_the_way(loaded: catalogue.GroupRuns, run: int, count: int = typology.COUNT) -> pd.DataFrame:
    """Return the values of `PARTS` in a run at each of its snapshots and at the end.

    Returns:
        A row for each `epoch`; none if the run has no snapshots.
    """
    if loaded.source == "ours":  # other runs of the group may have no snapshots
        loaded = catalogue.load(loaded.group, recipe=loaded.record["recipe"], runs=[run])
    if not loaded.snapshots:
        return pd.DataFrame()
    models = {}
    for epoch in (*loaded.snapshots, None):
        models[loaded.own_epoch(epoch)] = loaded.model(run, epoch)

    swaps = [carry_swaps(model, count=count).assign(run=epoch) for epoch, model in models.items()]
    table = typology.who_decides(pd.concat(swaps)).reindex([*models])
    head_at_the_end = int(table["head"].iloc[-1])
    accuracies = {}
    for epoch, model in models.items():
        adder = typology.abstraction(model, head_at_the_end, "digits and answer", count)
        accuracies[epoch] = adder.set_index("variable").accuracy
    table = table.join(pd.DataFrame(accuracies).T)
    return table.rename_axis("epoch").reset_index().assign(run=run)


# ---- what rules decide


def findings() -> dict[str, Entry]:
    """Return the findings that are about the main group, by name."""
    entries = {}
    for name, entry in registry.ROWS.items():
        if name.startswith("finding/") and MAIN in entry.groups and name not in ABOUT_OTHERS:
            entries[name.removeprefix("finding/")] = entry
    return entries


def measured_as(name: str) -> str:
    """Return the name of the finding with whose columns this one is stored.

    It is the first one that has the same function, of which rules take different fields.
    """
    entries = findings()
    function = entries[name].function
    return next(other for other, entry in entries.items() if entry.function == function)


def decided(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with what the current rules decide about them.

    That is for each finding, in `<finding> shows`, True if the run shows it; NaN where it was not
    measured.

    Raises:
        BadInput: The rows lack a field that a rule needs.
    """
    shows = {}
    fields_of_rows = rows.to_dict("records")
    for name, entry in findings().items():
        stored_name = measured_as(name)
        answers = [_shows(fields, name, stored_name, entry) for fields in fields_of_rows]
        shows[f"{name} shows"] = pd.Series(answers, rows.index)
    return rows.assign(**shows)


def _shows(row: Mapping[Hashable, Any], name: str, stored_name: str, entry: Entry) -> bool | float:
    """Return True if a run shows a finding, else False; NaN if it can't say or wasn't measured."""
    if entry.rule is None or pd.isna(row.get(stored_name)):
        return np.nan
    group = groups.find(MAIN)
    planned = group.epochs
    if row["source"] == "ours":
        planned = groups.RECIPES[row["recipe"]].epochs(group)
    context = {"layers": group.config.layers, "planned": planned, "primed": group.primed}
    try:
        fields = row["fields"].get(stored_name, {})
        answer = entry.rule({"value": row[stored_name], **context, **fields})
    except (KeyError, AttributeError) as error:
        raise BadInput(
            f"{path_of()} lacks what the rule of {name} asks for: run `make seeds`."
        ) from error
    return np.nan if answer is None else answer


def settled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the epoch from which on each of `PARTS` does what it does at the end, by run.

    It is NaN for a part that does nothing at the end. `rows` are those of `on_the_way`. One head
    does what it does at the end only if it is the same head.
    """
    epochs = {}
    for run, rows_of_run in rows.sort_values("epoch").set_index("epoch").groupby("run"):
        acts = rows_of_run[PARTS] >= typology.DECIDES
        acts["one head"] &= rows_of_run["head"] == rows_of_run["head"].iloc[-1]
        acts_from_here_on = acts[::-1].cummin()[::-1]
        epochs[run] = acts_from_here_on.idxmax().where(acts_from_here_on.iloc[-1])
    return pd.DataFrame.from_dict(epochs, orient="index")


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that are judged."""
    ours = (table.source == "ours") & (table.recipe == "quick")
    return table[ours & (table.run >= FIRST_JUDGED) & table.epoch.isna()]


def with_lines(rows: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """Return runs with what their carry lines say of them.

    Args:
        rows: Runs of the main group.
        lines: A summary by run, from `line_table.by_run`.

    Returns:
        The rows in their order, with the word for `who` writes the coordinate (one of
        `line_table.WORDS`), the `late` share and the number of `writers`, heads of the last layer.
    """
    names = ["source", "recipe", "run"]
    of_main = lines[lines.group == MAIN]
    joined = rows.merge(of_main[[*names, "who", "late", "writers"]], how="left", on=names)
    has_line = joined.late.notna()
    return joined.assign(
        who=joined.who.where(has_line, line_table.NO_LINE),
        writers=joined.writers.where(has_line),
    )


# ---- the stored table


def path_of(folder: Path | None = None) -> Path:
    """Return the path of the stored table, in this data folder (`data_dir()` if None)."""
    return (folder or data_dir()) / "results" / "seeds.csv.gz"


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored table with what rules decide; raise `BadInput` if it cannot be read.

    The `folder` is as in `path_of`.
    """
    path = path_of(folder)
    table = read_table(path, StoredRuns, REMEDY, KEY, "run")
    with reading(path, REMEDY):
        table["fields"] = table["fields"].map(json.loads, na_action="ignore")
        return decided(table)


def save(rows: pd.DataFrame) -> Path:
    """Store rows in place of those of the same runs; all others stay.

    What a rule decides is left out: what `decided` adds, and fields that are true or false.

    Raises:
        BadInput: As from `check_replaces`.
    """
    check_replaces(rows)
    stored = [saved()] if os.path.lexists(path_of()) else []
    table = pd.concat([*stored, rows]).drop_duplicates(KEY, keep="last").sort_values(KEY)
    measured_columns = []
    for name in table:
        if not name.endswith(" shows") and name not in (*KEY, "fields"):
            measured_columns.append(name)
    table = table[[*KEY, *measured_columns, "fields"]].round(DECIMALS)
    table["fields"] = table["fields"].map(
        lambda fields: json.dumps(_stored(fields)), na_action="ignore"
    )
    return save_table(path_of(), table)


def check_replaces(rows: pd.DataFrame) -> None:
    """Raise `BadInput` if a stored snapshot of these runs is not among `rows`.

    It would stay in the table, next to measurements of other weights.
    """
    if not os.path.lexists(path_of()):
        return
    stored = saved().merge(rows[KEY[:-1]].drop_duplicates())
    lost = _snapshots(stored) - _snapshots(rows)
    if lost:
        _, _, run, epoch = min(lost)
        raise BadInput(
            f"{path_of()} has run {run} at epoch {epoch:.0f}, of which the weights are missing: "
            "get them, or delete it to begin anew."
        )


def _snapshots(rows: pd.DataFrame) -> set[tuple[Any, ...]]:
    """Return the keys of the rows that are of a snapshot."""
    return set(rows[KEY].dropna().itertuples(index=False, name=None))


def _stored(value: Any) -> Any:
    """Return a field as it is stored: rounded, and without what is true or false."""
    if isinstance(value, dict):
        return {name: _stored(x) for name, x in value.items() if not isinstance(x, bool)}
    if isinstance(value, list | tuple):
        return [_stored(x) for x in value]
    return round(value, DECIMALS) if isinstance(value, float) else value


# ---- statistics of runs by who writes their carry

SIGNIFICANCE = 0.05  # a smaller p-value rejects that two sets of runs are alike
CONFIDENCE = 0.95
FEWEST = 3  # a word of fewer runs does not count
HOLDS = 2 / 3  # the share of a word's runs from which on a finding holds in it


def word_counts(words: "pd.Series[str]") -> "pd.Series[int]":
    """Return the number of runs of each of `line_table.WORDS`."""
    return words.value_counts().reindex(list(line_table.WORDS), fill_value=0)


def shares(words: "pd.Series[str]") -> pd.DataFrame:
    """Return the share of each of `line_table.WORDS`.

    Returns:
        For each word the number of `runs`, their `share`, and its exact interval by Clopper
        and Pearson, from `low` to `high`.
    """
    counts = word_counts(words)
    intervals = []
    for count in counts:
        intervals.append(scipy.stats.binomtest(int(count), len(words)).proportion_ci(CONFIDENCE))
    return pd.DataFrame(
        {
            "runs": counts,
            "share": counts / len(words),
            "low": [interval.low for interval in intervals],
            "high": [interval.high for interval in intervals],
        }
    )


def exact_test(draw: Sequence[int], population: Sequence[int]) -> float:
    """Return the probability that a draw without replacement is as unlikely as `draw`, or more so.

    This is Fisher's exact test of a table with two rows and any number of columns: `draw`,
    and `population` less `draw`.

    Args:
        draw: The number of each sort in the draw.
        population: The number of each sort in all that is drawn from.
    """
    size = sum(draw)
    all_draws = [x for x in product(*(range(n + 1) for n in population)) if sum(x) == size]
    probabilities = scipy.stats.multivariate_hypergeom.pmf(all_draws, population, size)
    of_this_draw = scipy.stats.multivariate_hypergeom.pmf(draw, population, size)
    rounding = 1 + 1e-9
    return float(min(1, probabilities[probabilities <= of_this_draw * rounding].sum()))


def likely_draw(words: "pd.Series[str]", judged_words: "pd.Series[str]") -> float:
    """Return the p-value of `exact_test` for the words of some runs beside the judged ones'."""
    draw = word_counts(words)
    population = draw + word_counts(judged_words)
    return exact_test(draw.tolist(), population.tolist())


class RankCorrelation(NamedTuple):
    """Spearman's rank correlation and its p-value; NaN and 1 if there is nothing to compare."""

    rho: float
    p: float


def rank_correlation(x: "pd.Series[float]", y: "pd.Series[float]") -> RankCorrelation:
    """Return the rank correlation of two measures, over the runs that have both."""
    both = pd.DataFrame({"x": x, "y": y}).dropna()
    if both.empty or both.nunique().min() < 2:
        return RankCorrelation(rho=float("nan"), p=1.0)
    test = scipy.stats.spearmanr(both.x, both.y)
    return RankCorrelation(rho=float(test.statistic), p=float(test.pvalue))


def by_word(rows: pd.DataFrame, measures: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the findings and the measures of runs, compared between words.

    Args:
        rows: Runs from `with_lines`.
        measures: Columns that are compared.

    Returns:
        The findings of which some run can say, with the number of runs of each word that show
        them, and with `holds`: in `every` word that counts, in `some` or in `none`. And the
        measures, with the median of each word, and `rho`, the rank correlation with the late
        share. Both have `p`, corrected for all of them together; NaN if fewer than two words
        count.
    """
    rows_of_word = {}
    for word in line_table.WORDS:
        if (rows.who == word).any():
            rows_of_word[word] = rows[rows.who == word]
    sizes = pd.Series({word: len(table) for word, table in rows_of_word.items()}, dtype=int)
    counting = sizes[sizes >= FEWEST]

    # A finding that was measured on no run, or of which none can say, is no finding that fails.
    says = rows.columns[rows.notna().any()]
    names = [name.removesuffix(" shows") for name in says if name.endswith(" shows")]
    columns = [f"{name} shows" for name in names]
    showing = pd.DataFrame({word: table[columns].sum() for word, table in rows_of_word.items()})
    showing = showing.set_axis(names).astype(int)
    medians = pd.DataFrame({word: table[measures].median() for word, table in rows_of_word.items()})

    n_holds = (showing[counting.index] / counting >= HOLDS).sum(axis=1)
    holds = np.select([n_holds == 0, n_holds == len(counting)], ["none", "every"], "some")

    correlations = [rank_correlation(rows[name], rows.late) for name in measures]
    corrected = np.full(len(names) + len(measures), np.nan)
    if len(counting) > 1:
        p_values = []
        for name in names:
            p_values.append(
                exact_test(showing.loc[name, counting.index].tolist(), counting.tolist())
            )
        p_values += [correlation.p for correlation in correlations]
        corrected = scipy.stats.false_discovery_control(p_values)
    findings_by_word = showing.assign(holds=holds, p=corrected[: len(names)])
    rho = [correlation.rho for correlation in correlations]
    return findings_by_word, medians.assign(rho=rho, p=corrected[len(names) :])

"""Runs of the main group from many seeds, compared by who writes their carry.

`table` is a query of the measurements: a row for each run, with what was measured and which
findings it shows by today's rules. Who writes the carry comes from the stored carry lines
(`with_lines`).

The page `what_kind_of_run` shows the table, and says which questions and rules were written down
before the runs were looked at. One rule is in this module: our runs by `quick` from number 6 on are
judged, whatever they have learned (`judged`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy

from carry_core import runs
from carry_paper import measurements
from carry_paper.findings import line_table, run_measures
from carry_paper.findings.base import MAIN
from carry_paper.findings.run_measures import PARTS
from carry_paper.ledger import intervals, ledger, registry
from carry_paper.ledger.entries import Entry, Function, name_of, picked
from carry_paper.ledger.ledger import Measured
from carry_paper.measurements import Record

FIRST_JUDGED = 6  # the number of the first run that is judged
RUN = ["source", "recipe", "run"]  # the columns that identify a run


# ---- the query


def findings() -> dict[str, Entry]:
    """Return the findings that are about the main group, by name."""
    entries = {}
    for name, entry in registry.ROWS.items():
        if name.startswith("finding/") and MAIN in entry.groups:
            entries[name.removeprefix("finding/")] = entry
    return entries


def table(folder: Path | None = None) -> pd.DataFrame:
    """Return what was measured on each run of the main group, of both sources.

    Returns:
        A row for each run with `RUN`, the value of each finding in a column of its name, and in
        `<finding> shows` True if the run shows it: NaN if it was not measured, or cannot say.
        Besides, the columns of `typology.who_decides`, the fields of `run_measures.in_short`, and
        two epochs: `learned`, from which on the exact match on test sums is 0.99, and `kink of the
        loss` (Sec. 5, Fig. 5).

    Raises:
        BadInput: The stored measurements are damaged.
    """
    tables = []
    for source in runs.SOURCES:
        stored = measurements.read(source, folder)
        of_main = stored[(stored.group == MAIN) & stored.epoch.isna()]
        tables.append(_of_source(Measured(source, of_main, all_runs=True)))
    return pd.concat(tables, ignore_index=True)


def _of_source(measured: Measured) -> pd.DataFrame:
    """Return the table of one source's runs."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}

    def add(function: Function, columns: Callable[[Record], Mapping[str, Any]]) -> None:
        for record in measured.of(name_of(function), (MAIN,)):
            # The author's learning curves, which have no sha256, are of other runs.
            if record["sha256"] is not None and record["run"] is not None:
                key = (record["recipe"], record["run"])
                rows.setdefault(key, {}).update(columns(record))

    add(run_measures.deciding_parts, lambda x: {"one head": x["value"], **x["fields"]})
    add(run_measures.in_short, lambda x: {"exact match": x["value"], **x["fields"]})
    add(run_measures.epoch_of_learning, lambda x: {"learned": x["value"]})
    for name, entry in findings().items():
        assert entry.function is not None
        add(entry.function, partial(_of_finding, name, entry))
    keys = pd.MultiIndex.from_tuples(rows, names=RUN[1:])
    frame = pd.DataFrame(list(rows.values()), index=keys).sort_index().reset_index()
    return frame.assign(source=measured.source)


def _of_finding(name: str, entry: Entry, record: Record) -> dict[str, Any]:
    """Return the value of a finding in a run, and whether the run shows it."""
    assert entry.rule is not None
    assert isinstance(entry.field, str)
    part = picked(ledger.whole(record), entry.field)
    shows = ledger.says(entry.rule, ledger.fields_of(record, part.value))
    columns = {name: part.value, f"{name} shows": np.nan if shows is None else shows}
    if name == "kink":
        columns["kink of the loss"] = part.fields["kink"]
    return columns


def on_the_way() -> pd.DataFrame:
    """Return what `PARTS` do at each snapshot of our runs that have some, as `snapshots` has it.

    `RUN` says which run it is.
    """
    stored = measurements.read("ours")
    frames = []
    for record in stored[stored.quantity == name_of(run_measures.on_the_way)].to_dict("records"):
        lists = {name: record["fields"][name] for name in ("epoch", "head", *PARTS)}
        frames.append(pd.DataFrame(lists).assign(**{name: record[name] for name in RUN}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that are judged."""
    ours = (table.source == "ours") & (table.recipe == "quick")
    return table[ours & (table.run >= FIRST_JUDGED)]


def with_lines(rows: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """Return runs of the main group with what `line_table.by_run` says of them.

    That is the word for `who` writes the coordinate (one of `line_table.WORDS`), the `late` share
    and the number of `writers`, heads of the last layer.
    """
    of_main = lines[lines.group == MAIN]
    joined = rows.merge(of_main[[*RUN, "who", "late", "writers"]], how="left", on=RUN)
    has_line = joined.late.notna()
    return joined.assign(
        who=joined.who.where(has_line, line_table.NO_LINE),
        writers=joined.writers.where(has_line),
    )


# ---- statistics of runs by who writes their carry

SIGNIFICANCE = 0.05  # a smaller p-value rejects that two sets of runs are alike
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
    ends = [intervals.clopper_pearson(int(count), len(words)) for count in counts]
    table = pd.DataFrame({"runs": counts, "share": counts / len(words)})
    table[["low", "high"]] = ends
    return table


def exact_test(draw: Sequence[int], population: Sequence[int]) -> float:
    """Return the probability that a draw without replacement is as unlikely as `draw`, or more so.

    This is Fisher's exact test of a table with two rows and any number of columns: `draw`,
    and `population` less `draw`, the numbers of each sort.
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


def rank_correlation(x: "pd.Series[float]", y: "pd.Series[float]") -> tuple[float, float]:
    """Return Spearman's rank correlation of two measures over the runs that have both, and its p.

    They are NaN and 1 if there is nothing to compare.
    """
    both = pd.DataFrame({"x": x, "y": y}).dropna()
    if both.empty or both.nunique().min() < 2:
        return float("nan"), 1.0
    test = scipy.stats.spearmanr(both.x, both.y)
    return float(test.statistic), float(test.pvalue)


def by_word(rows: pd.DataFrame, measures: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the findings and some measures of runs from `with_lines`, compared between words.

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
        of_words = showing[counting.index]
        p_values = [exact_test(of_words.loc[x].tolist(), counting.tolist()) for x in names]
        p_values += [p for _, p in correlations]
        corrected = scipy.stats.false_discovery_control(p_values)
    findings_by_word = showing.assign(holds=holds, p=corrected[: len(names)])
    rho = [rho for rho, _ in correlations]
    return findings_by_word, medians.assign(rho=rho, p=corrected[len(names) :])

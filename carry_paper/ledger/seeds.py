"""Many seeds of the main group: of which kind each run is, and what else was measured on it, as one stored table.

Stored is what was measured. What a rule decides, a run's `kind` and which findings it shows, is
derived by `decided` whenever the table is read, so that a rule that changes changes the page as it
changes the ledger.

The page `what_kind_of_run` asks of the table, and says which questions and rules were written down
before what was looked at. Those of this module: judged are our runs by `quick` from number 6 on,
whatever they have learned. Of runs with snapshots, what a part does at the end of training
(`PARTS`, each from `DECIDES` on) has settled at the first snapshot from which on it does so up to
the end; where the model gets no pair of sums right it does nothing.
"""

import gzip
import json
import os
from collections.abc import Callable, Collection, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, Json
from scipy import stats

from carry_core import groups, measure, runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, reading
from carry_core.model import Transformer
from carry_paper.checksums import save_listed
from carry_paper.findings import dynamics, heads, interchange, interchange_maps, typology
from carry_paper.findings.base import MAIN, Fields
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import DRAWN, Need, random_sums
from carry_paper.ledger import registry
from carry_paper.ledger.entries import Entry
from carry_paper.schemas import one_of, read_table

FIRST_JUDGED = 6
DIGITS = 5  # of a stored number, after the point
KEY = ["source", "recipe", "run", "epoch"]  # the epoch of a snapshot, none at the end of training
# of the last layer (`typology.who_decides`), and of the full adder's variables in their places
# (`typology.abstraction`)
PARTS = ["one head", "heads together", "earlier", "final MLP", "digit_sum", "carry_in", "all"]


REMEDY = "delete it and run `make seeds`"


class StoredRuns(BaseModel):
    """The columns of the stored table that say whose run a row is of; the others are what was measured."""

    model_config = ConfigDict(extra="allow", strict=True)

    source: list[Annotated[str, one_of(runs.SOURCES)]]
    recipe: list[Annotated[str, one_of(groups.RECIPES)]]
    run: list[Annotated[int, Field(ge=0)]]
    epoch: list[Annotated[float, Field(ge=1)] | None]
    fields: list[Json[dict[str, dict[str, Any]]] | None]


def last_layer(model: Transformer, count: int = interchange_maps.PAIRS) -> pd.DataFrame:
    """The part of `interchange.sweep` that `typology.who_decides` is about, on the same pairs."""
    return interchange.sweep(
        model, interchange.PairCounts(count, 0), own=True, variables=["carry_in"]
    )


def of_run(run: int, model: Transformer) -> Fields:
    """What is measured on a run besides its kind and the paper's findings; attention is the decision head's."""
    head, layout = measure.decision_head(model), model.config.layout
    attention = heads.mean_attention(model)[-1][head]
    to = {
        name: heads.column_mass(attention, layout, shift)
        for name, shift in (("left", -1), ("own", 0), ("right", 1))
    }
    return {
        "exact match": heads.correct_digits(model, *random_sums()).all(1).double().mean().item(),
        "squared norm": sum(float(p.square().sum()) for p in model.parameters()),
        "zero ablation": head,  # the head that it names
        **{f"attention {name}": float(x.nanmean()) for name, x in to.items()},
    }


def measured(
    source: str,
    recipe: str | None,
    numbers: Collection[int],
    report: Callable[[str], None] = lambda done: None,
) -> pd.DataFrame:
    """A row for each of these runs of the main group: `KEY`, `typology.who_decides`, `of_run`, epochs, the findings.

    A finding has a column of its name with its value, and one with whether the run shows it
    (`decided`); what else it measures is in `fields`, by finding. `learned` is the epoch by which
    the exact match on test sums passes 0.99, `kink of the loss` another (Sec. 5, Fig. 5). Rows of
    `on_the_way` come after them. Raises `BadInput` if source or recipe is unknown, or a run missing
    or damaged.
    """
    # his learning curves are of other runs
    left_out = {"kink", "no_grokking"} if source == "author" else set()
    asked = {name: entry for name, entry in findings().items() if name not in left_out}
    chosen = {MAIN: {"recipe": recipe, "runs": numbers}}
    drawn = measure.sample(DRAWN, 3, seed=0)  # a draw of the paper's size from every class
    need = Need(frozenset(registry.LAST_HEADS))
    evidence = Evidence(source, {MAIN: need}, report, chosen, lambda group: drawn)
    cells = evidence.each(MAIN, lambda run, model: last_layer(model).assign(run=run))
    table = typology.who_decides(pd.concat(cells.values()))
    table = table.join(pd.DataFrame.from_dict(evidence.each(MAIN, of_run), orient="index"))
    fields: dict[int, dict[str, Fields]] = {run: {} for run in table.index}
    for name, entry in asked.items():
        found = entry.measure(evidence)
        values = pd.Series(found.runs, name=name)
        # of several groups
        table = table.join(values.loc[MAIN] if values.index.nlevels > 1 else values)
        for run in fields:
            fields[run][name] = found.fields.get(run) or found.fields.get((MAIN, run)) or {}
        if name == "kink":
            table["kink of the loss"] = pd.Series(
                {run: fields["kink"] for run, fields in found.fields.items()}
            )
    if source == "ours":
        exact = dynamics.curves(evidence.curves(MAIN), "test_whole")
        table["learned"] = pd.Series(
            {run: dynamics.first_at(x, dynamics.LEARNT_ACCURACY) for run, x in exact.items()}
        )
    table["fields"] = pd.Series(fields)
    table = table.rename_axis("run").reset_index().assign(epoch=np.nan)
    rows = pd.concat(
        [table, *(on_the_way(evidence.group(MAIN), run) for run in table.run)], ignore_index=True
    )
    return decided(rows.assign(source=source, recipe=recipe or "paper"))


def findings() -> dict[str, Entry]:
    """The findings that are about the main group, by name."""
    entries = {}
    for name, entry in registry.ROWS.items():
        if name.startswith("finding/") and MAIN in entry.groups:
            entries[name.removeprefix("finding/")] = entry
    return entries


def decided(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what today's rules decide of them: the `kind`, and in `<finding> shows` whether the run shows it.

    NaN where the finding was not measured. Raises `BadInput` if the rows lack what a rule asks for.
    """
    # an early model may get no pair of sums right
    kinds = typology.kinds(rows).where(rows["one head"].notna())
    shows = {
        f"{name} shows": rows.apply(_shows, axis=1, args=(name, entry))
        for name, entry in findings().items()
    }
    return rows.assign(kind=kinds, **shows)


def _shows(row: "pd.Series[Any]", name: str, entry: Entry) -> bool | float:
    if entry.rule is None or pd.isna(row.get(name)):
        return np.nan
    group = groups.find(MAIN)
    try:
        planned = (
            group.epochs if row.source == "author" else groups.RECIPES[row.recipe].epochs(group)
        )
        return entry.rule(
            {"value": row[name], "layers": group.config.layers, "planned": planned}
            | row.fields.get(name, {})
        )
    except (KeyError, AttributeError) as error:
        raise BadInput(
            f"{path_of()} lacks what the rule of {name} asks for: run `make seeds`."
        ) from error


def on_the_way(loaded: runs.Runs, run: int, count: int = typology.COUNT) -> pd.DataFrame:
    """What `PARTS` do in a run with snapshots, at each of them and at the end: rows by `epoch`, else none."""
    alone = (
        runs.load(loaded.group, recipe=loaded.record["recipe"], runs=[run])
        if loaded.source == "ours"
        else loaded
    )
    if not alone.snapshots:
        return pd.DataFrame()
    models = {alone.own_epoch(epoch): alone.model(run, epoch) for epoch in (*alone.snapshots, None)}
    cells = pd.concat(
        [last_layer(model, count=count).assign(run=epoch) for epoch, model in models.items()]
    )
    table = typology.who_decides(cells).reindex([*models])
    head, place = int(table["head"].iloc[-1]), "digits and answer"
    found = {
        epoch: typology.abstraction(model, head, place, count).set_index("variable").accuracy
        for epoch, model in models.items()
    }
    return table.join(pd.DataFrame(found).T).rename_axis("epoch").reset_index().assign(run=run)


def settled(rows: pd.DataFrame) -> pd.DataFrame:
    """The epoch from which on each of `PARTS` does what it does at the end, by run; NaN if it does nothing then.

    From the rows of `on_the_way`; one head means the same one as at the end.
    """
    found = {}
    for run, own in rows.sort_values("epoch").set_index("epoch").groupby("run"):
        does = own[PARTS] >= typology.DECIDES
        does["one head"] &= own["head"] == own["head"].iloc[-1]
        lasting = does[::-1].cummin()[::-1]
        found[run] = lasting.idxmax().where(lasting.iloc[-1])
    return pd.DataFrame.from_dict(found, orient="index")


def path_of() -> Path:
    """Where the table lies."""
    return data_dir() / "results" / "seeds.csv.gz"


def saved() -> pd.DataFrame:
    """The stored table, as from `measured`; `BadInput` if it is not there, or damaged."""
    table = read_table(path_of(), StoredRuns, REMEDY)
    if table.duplicated(KEY).any():
        raise damaged(path_of(), "a run stands twice", REMEDY)
    with reading(path_of(), REMEDY):
        table["fields"] = table["fields"].map(json.loads, na_action="ignore")
        return decided(table)


def save(rows: pd.DataFrame) -> Path:
    """Put rows into the stored table in place of those of the same runs; all others stay.

    Left out is what `decided` adds, and so is what else a rule decides: fields that are true or
    false. `BadInput` as from `check_replaces`.
    """
    check_replaces(rows)
    known = [saved()] if os.path.lexists(path_of()) else []
    table = pd.concat([*known, rows]).drop_duplicates(KEY, keep="last").sort_values(KEY)
    derived = [name for name in table if name == "kind" or name.endswith(" shows")]
    measured = [name for name in table.drop(columns=derived) if name not in (*KEY, "fields")]
    table = table[[*KEY, *measured, "fields"]].round(DIGITS)
    table["fields"] = table["fields"].map(lambda x: json.dumps(_stored(x)), na_action="ignore")
    return save_listed(path_of(), gzip.compress(table.to_csv(index=False).encode(), mtime=0))


def check_replaces(rows: pd.DataFrame) -> None:
    """Raise `BadInput` if a snapshot of these runs is stored that `rows` lack: it would stay, beside other weights."""
    if not os.path.lexists(path_of()):
        return
    of_these_runs = saved().merge(rows[KEY[:-1]].drop_duplicates())
    stored, new = (
        {*frame[KEY].dropna().itertuples(index=False, name=None)} for frame in (of_these_runs, rows)
    )
    if stored - new:
        *_, run, epoch = min(stored - new)
        why = f"{path_of()} has run {run} at epoch {epoch:.0f}, of which the weights are missing"
        raise BadInput(f"{why}: get them, or delete it to begin anew.")


def _stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stored(x) for name, x in value.items() if not isinstance(x, bool)}
    if isinstance(value, list | tuple):
        return [_stored(x) for x in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """The runs that are judged."""
    ours = (table.source == "ours") & (table.recipe == "quick")
    return table[ours & (table.run >= FIRST_JUDGED) & table.epoch.isna()]


# ---- statistics of the kinds of runs

SIGNIFICANCE = 0.05  # a smaller p-value rejects that two sets of runs are alike
POWER = 0.8  # of a test: from here on it would have noticed
CONFIDENCE = 0.95
FEWEST = 3  # a kind with fewer runs does not count
HOLDS = 2 / 3  # the share of a kind's runs from which on a finding holds in it
SET_SIZE = 6  # the runs of a set that is compared with the judged ones, as many as the paper has


def by_kind_counts(kinds: "pd.Series[str]") -> "pd.Series[int]":
    """Return how many runs are of each of `typology.KINDS`."""
    return kinds.value_counts().reindex(list(typology.KINDS), fill_value=0)


def shares(kinds: "pd.Series[str]") -> pd.DataFrame:
    """Return the share of each of `typology.KINDS`.

    Returns:
        For each kind the number of `runs`, their `share`, and its exact interval by Clopper
        and Pearson, from `low` to `high`.
    """
    counts = by_kind_counts(kinds)
    intervals = []
    for count in counts:
        intervals.append(stats.binomtest(int(count), len(kinds)).proportion_ci(CONFIDENCE))
    return pd.DataFrame(
        {
            "runs": counts,
            "share": counts / len(kinds),
            "low": [interval.low for interval in intervals],
            "high": [interval.high for interval in intervals],
        }
    )


def exact_test(draw: Sequence[int], population: Sequence[int]) -> float:
    """Return how likely a draw without replacement is to be as unlikely as `draw`, or more so.

    This is Fisher's exact test of a table with two rows and any number of columns: `draw`,
    and `population` less `draw`.

    Args:
        draw: The number of each kind in the draw.
        population: The number of each kind in all that is drawn from.
    """
    size = sum(draw)
    all_draws = [x for x in product(*(range(n + 1) for n in population)) if sum(x) == size]
    probabilities = stats.multivariate_hypergeom.pmf(all_draws, population, size)
    of_this_draw = stats.multivariate_hypergeom.pmf(draw, population, size)
    rounding = 1 + 1e-9
    return float(min(1, probabilities[probabilities <= of_this_draw * rounding].sum()))


def likely_draw(kinds: "pd.Series[str]", judged_kinds: "pd.Series[str]") -> float:
    """Return the p-value of `exact_test` for the kinds of some runs beside the judged ones'."""
    draw = by_kind_counts(kinds)
    population = draw + by_kind_counts(judged_kinds)
    return exact_test(draw.tolist(), population.tolist())


def rejections(n_main: int, n_judged: int, size: int = SET_SIZE) -> "pd.Series[float]":
    """Return the power of `exact_test`: in which share of draws it rejects.

    Args:
        n_main: How many of the judged runs are of the most frequent kind.
        n_judged: How many runs are judged.
        size: How many runs are drawn, and compared with them.

    Returns:
        The power, by the share of that kind among the runs that are drawn from.
    """
    p_values = []
    for count in range(size + 1):
        draw = (count, size - count)
        population = (count + n_main, size - count + n_judged - n_main)
        p_values.append(exact_test(draw, population))
    rejected = np.array(p_values) < SIGNIFICANCE
    share = np.linspace(0, 1, 101).round(2)
    chance = stats.binom.pmf(np.arange(size + 1)[:, None], size, share)  # [count, share]
    return pd.Series(chance[rejected].sum(0), index=share)


def kruskal(samples: Sequence["pd.Series[float]"]) -> float:
    """Return the p-value of Kruskal and Wallis's test; 1 where there is nothing to compare."""
    measured = [sample.dropna() for sample in samples]
    if not all(map(len, measured)) or pd.concat(measured).nunique() < 2:
        return 1.0
    return float(stats.kruskal(*measured).pvalue)


def by_kind(rows: pd.DataFrame, measures: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what depends on the kind of run.

    Args:
        rows: Runs with their `kind`, from `saved`.
        measures: Columns that are compared.

    Returns:
        The findings, with the number of runs of each kind that show them, and with `holds`:
        in `every` kind that counts, in `some` or in `none`. And the measures, with the
        median of each kind. Both have `p`, corrected for all of them together; NaN if fewer
        than two kinds count.
    """
    rows_of_kind = {}
    for kind in typology.KINDS:
        if (rows.kind == kind).any():
            rows_of_kind[kind] = rows[rows.kind == kind]
    sizes = pd.Series({kind: len(own) for kind, own in rows_of_kind.items()}, dtype=int)
    counting = sizes[sizes >= FEWEST]

    names = [name.removesuffix(" shows") for name in rows if name.endswith(" shows")]
    columns = [f"{name} shows" for name in names]
    showing = pd.DataFrame({kind: own[columns].sum() for kind, own in rows_of_kind.items()})
    showing = showing.set_axis(names).astype(int)
    medians = pd.DataFrame({kind: own[measures].median() for kind, own in rows_of_kind.items()})

    n_holds = (showing[counting.index] / counting >= HOLDS).sum(axis=1)
    holds = np.select([n_holds == 0, n_holds == len(counting)], ["none", "every"], "some")

    corrected = np.full(len(names) + len(measures), np.nan)
    if len(counting) > 1:
        p_values = []
        for name in names:
            p_values.append(
                exact_test(showing.loc[name, counting.index].tolist(), counting.tolist())
            )
        for name in measures:
            p_values.append(kruskal([rows_of_kind[kind][name] for kind in counting.index]))
        corrected = stats.false_discovery_control(p_values)
    findings_by_kind = showing.assign(holds=holds, p=corrected[: len(names)])
    return findings_by_kind, medians.assign(p=corrected[len(names) :])

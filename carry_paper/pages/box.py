"""The ledger on a page: the verdict box at its top, and its rows as a table.

Both are made from the committed results, so they need no weights and are the same wherever a page
runs. A page that runs with a group other than that of the claims says what the paper claims, but
judges nothing. Nor does a page show a verdict beside other weights than those behind it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import log10
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from carry_core import carries, groups
from carry_core.runs import Runs, folder
from carry_paper.ledger import export, results
from carry_paper.ledger.claims import CLASSES, Claim, chosen, claims
from carry_paper.ledger.report import counted, percents
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import CANNOT_TELL
from carry_paper.pages.html import SIGNS, Html, environment
from carry_paper.pages.minus import minus_signs

SOURCES = {"author": "author’s weights", "ours": "ours"}
LONG_TABLE = 12  # rows; a longer table of the ledger is collapsed
SAID = {
    "all": "all runs",
    "most": "most runs",
    "some": "some runs",
    "one": "one run",
    "none": "no run",
}
NEVER = "never"  # how `settles` begins where nothing settles a row
OUR_RUNS = re.compile(r"with (\d+) of our runs")
TEMPLATES = environment()


class Side(NamedTuple):
    """A line's results from one source.

    Attributes:
        value: The value in words.
        verdicts: Each verdict in words, with a row that has it.
        n: The number of runs.
    """

    value: str
    verdicts: list[tuple[Row, str]]
    n: int


class Line:
    """A line of the box or of the table: a claim of the paper, and its results.

    Attributes:
        words: The claim, in words.
        claims: The claim, or those of all cells of a table.
        rows: The results of each source.
        sides: The same in words; None where a source has none.
        groups: The groups that the claims are about.
    """

    def __init__(
        self, words: str, claims: list[Claim], rows: Mapping[str, Mapping[str, Row]]
    ) -> None:
        self.words = words
        self.claims = claims
        self.rows = {}
        for source, by_id in rows.items():
            self.rows[source] = [by_id[claim.id] for claim in claims if claim.id in by_id]
        self.sides = {}
        for source, results_of_source in self.rows.items():
            self.sides[source] = self._side(results_of_source) if results_of_source else None
        names = set[str]()
        for results_of_source in self.rows.values():
            for row in results_of_source:
                names.update(row.groups)
        self.groups = sorted(names)

    @property
    def paper(self) -> str:
        """The printed number, or the runs for which the paper states it; "" for a table."""
        claim = self.claims[0]
        if claim.finding:
            return "one run" if claim.single else SAID[claim.quantifier]
        if len(self.claims) > 1 or claim.paper is None:
            return ""
        return number(claim.paper, claim)

    def leave_out(self, source: str) -> None:
        """Leave out the results of a source."""
        self.rows[source] = []
        self.sides[source] = None

    def about(self, group: str | None) -> bool:
        """Return True if a page about this group judges the line; None stands for all groups."""
        return group is None or not self.groups or group in self.groups

    def _side(self, rows: list[Row]) -> Side:
        row = rows[0]
        by_verdict = gathered(rows, lambda row: row.verdict)
        if len(self.claims) > 1:
            value = f"{len(rows)} cells"
        elif row.shown:
            n_showing, n = row.shown
            value = f"{n_showing} of {n} run{'s' if n > 1 else ''}"
            if row.interval is not None and n > 1:
                value += f" ({percents(row.interval[0])})"
        else:
            value = number(row.value, self.claims[0])
        verdicts = []
        for verdict in SIGNS:
            if verdict in by_verdict:
                n_rows = len(by_verdict[verdict])
                words = counted(n_rows, verdict) if len(by_verdict) > 1 else verdict
                if verdict == CANNOT_TELL:
                    words += half_widths(by_verdict[verdict])
                verdicts.append((by_verdict[verdict][0], words))
        return Side(value, verdicts, max(row.n for row in rows))

    def difference(self, source: str) -> str:
        """Return the difference of a source's runs from the paper in words; "" if none differs."""
        rows = self.rows[source]
        if all(row.verdict == "reproduced" for row in rows):
            return ""
        if len(self.claims) == 1:
            return difference(rows[0])
        measured = [row for row in rows if row.value is not None]
        farthest = max(measured, key=lambda row: abs(row.value - row.paper), default=rows[0])
        gap = difference(farthest)
        cell = claims()[farthest.id].words.partition(": ")[2]
        return f"largest gap in {cell}: {gap}" if gap else ""

    def explanation(self, source: str) -> str:
        """Return why a source's rows are not reproduced, and what would settle them, in words."""
        rows = self.rows[source]
        sentences = dict.fromkeys(row.why.text for row in rows if row.why is not None)
        at_other_bars = dict.fromkeys(bar for row in rows for bar in at_bars(row))
        if at_other_bars:
            sentences[f"The verdict hangs on the bar: {', '.join(at_other_bars)}."] = None
        undecided = [row for row in rows if row.settles]
        table = next((row.table for row in undecided if row.table is not None), None)
        if table is not None:
            sentences[table.words] = None
        if undecided:
            sentences[f"{what_settles(undecided)}."] = None
        return " ".join(sentences)

    @property
    def explained(self) -> bool:
        """True if a source's rows are not reproduced and say why, or what would settle them."""
        return any(self.explanation(source) for source in self.rows)

    @property
    def which(self) -> str:
        """Our runs that do not show a finding, in words."""
        return "" if self.claims[0].paper is not None else self.difference("ours")


def number(value: Any, claim: Claim) -> str:
    """Return a value with as many decimals as the paper's number; a dash for None.

    Heads are `layer:head`.
    """
    if isinstance(value, list):
        heads = all(isinstance(x, int) for x in value)
        return (":" if heads else ", ").join(number(x, claim) for x in value)
    if value is None:
        return "–"
    places = max(0, round(-log10(claim.unit)))
    rounded = round(value, places) + 0.0  # no -0.00
    return minus_signs(f"{rounded:,.{places if isinstance(value, float) else 0}f}")


def half_widths(rows: Sequence[Row]) -> str:
    """Return the median half-width of rows of which we can't tell: ` · ±0.43`; "" if none has."""
    widths = [row.half_width for row in rows if row.half_width is not None]
    return f" · ±{median(widths):.2g}" if widths else ""


def what_settles(rows: Sequence[Row]) -> str:
    """Return what would settle rows of which we can't tell: `To settle it: with 24 of our runs`."""
    pronoun = "it" if len(rows) == 1 else "them"
    never = [row for row in rows if row.settles.startswith(NEVER)]
    if len(never) == len(rows):
        return f"Nothing would settle {pronoun}: {_without_never(never[0])}"
    if len(rows) == 1:
        return f"To settle it: {rows[0].settles}"
    parts = []
    if never:
        parts.append(f"{_cells(len(never))}: nothing would, since {_without_never(never[0])}")
    numbers = []
    others: dict[str, int] = {}
    for row in rows:
        match = OUR_RUNS.search(row.settles)
        if match:
            numbers.append(int(match.group(1)))
        elif row not in never:
            others[row.settles] = others.get(row.settles, 0) + 1
    if numbers:
        low, high = min(numbers), max(numbers)
        range_ = str(high) if low == high else f"{low} to {high}"
        parts.append(f"{_cells(len(numbers))}: with {range_} of our runs")
    for settles, count in others.items():
        parts.append(f"{_cells(count)}: {settles}")
    return f"To settle {'; '.join(parts)}"


def _without_never(row: Row) -> str:
    """Return why nothing settles a row: `one run leaves ±0.6`."""
    return row.settles.removeprefix(NEVER).removeprefix(": ")


def at_bars(row: Row) -> list[str]:
    """Return the verdicts of a row at other bars in words: `mixed at share 0.9`."""
    return [
        f"{verdict} at {bar.replace('=', ' ').replace('_', ' ')}"
        for bar, verdict in row.sensitivity.items()
    ]


def _cells(count: int) -> str:
    """Return a number of cells in words."""
    return "1 cell" if count == 1 else f"{count} cells"


def difference(row: Row) -> str:
    """Return the difference of a row from the paper in words; "" if it was not run."""
    if row.shown:
        without = [
            key for key, shows in zip(row.keys, row.fields["shows"], strict=True) if shows is False
        ]
        if not without:
            return ""
        return "in no run" if len(without) == len(row.keys) else f"not in {of_groups(without)}"
    if row.value is None or isinstance(row.value, list):
        return ""
    claim = claims()[row.id]
    paper = number(claim.paper, claim)
    ours = number(row.value, claim)
    return f"{ours} against {paper} in the paper" if paper != ours else ""


def not_run(rows: Iterable[Row]) -> str:
    """Return the reason why rows were not run, without commands; "" if all were run."""
    reasons: list[str] = []
    for row in rows:
        reason = row.detail.partition(": `")[0].rstrip(".")
        if row.value is None and reason not in reasons:
            reasons.append(reason)
    if not reasons:
        return ""
    first = reasons[0][:1].lower() + reasons[0][1:]
    return f"{first}; others likewise" if len(reasons) > 1 else first


def of_groups(keys: Sequence[str]) -> str:
    """Return the names of runs in words: `runs 3 and 4`.

    The keys of a row about several groups name them; then it is `run 3 of …`.
    """
    words = []
    for group, group_keys in gathered(keys, lambda key: key.rpartition(" ")[0]).items():
        *earlier, last = (key.rpartition(" ")[2] for key in group_keys)
        text = f"runs {', '.join(earlier)} and {last}" if earlier else f"run {last}"
        if group in groups.GROUPS:
            text += f" of {group}"
        elif group:
            text += f" of the {group} group"
        words.append(text)
    return "; ".join(words)


def leave_out_other_weights(lines: Iterable[Line], page_runs: Runs | None) -> list[str]:
    """Leave out the results of each source that were made from other weights than are here.

    Args:
        lines: The lines that are judged.
        page_runs: The runs that the page shows; of other groups, the ones that lead are compared.

    Returns:
        The groups with other weights.
    """
    others: dict[tuple[str, str], bool] = {}
    for line in lines:
        for source, rows in line.rows.items():
            names = {name for row in rows for name in row.groups}
            for name in names:
                if (source, name) not in others:
                    paths = _paths(page_runs, source, name)
                    others[source, name] = results.has_other_weights(source, name, paths)
            if any(others[source, name] for name in names):
                line.leave_out(source)
    return sorted({name for (_, name), is_other in others.items() if is_other})


def _paths(page_runs: Runs | None, source: str, group: str) -> list[Path] | None:
    """Return the files of the runs that a page shows, if they are of this group; else None."""
    if page_runs is None or (page_runs.source, page_runs.group) != (source, group):
        return None
    return [stored.path for stored in page_runs.stored.values()]


def _place(page_runs: Runs | None) -> str:
    """Return the file or folder of a page's runs, if it is not that of their group; else ""."""
    if page_runs is None:
        return ""
    paths = [stored.path for stored in page_runs.stored.values()]
    in_groups = folder(page_runs.source)
    if not paths or all(path.is_relative_to(in_groups) for path in paths):
        return ""
    return str(paths[0] if len(paths) == 1 else paths[0].parent)


def verdict_box(
    ids: Iterable[str],
    group: str | None = None,
    words: Mapping[str, str] | None = None,
    pages: bool = False,
    page_runs: Runs | None = None,
) -> Html:
    """Return the box at the top of a page: the paper's claims, and the verdicts on them.

    Keep it to about six rows, which can be read at a glance.

    Args:
        ids: The claims' ids, or the beginning of ids for a whole table.
        group: The group that the page shows; a claim about others is not judged there.
        words: The page's own words for a claim, by id, in place of its `short` in claims.yml.
        pages: True to link each row to the page that computes it.
        page_runs: The runs that the page shows, which may be others than those that lead.

    Raises:
        BadInput: There is no such id.
    """
    stored = {source: results.by_id(source) for source in SOURCES}
    weightless = results.uninformative(stored)
    lines = []
    for name in ids:
        claims_of_line = [claims()[name]] if name in claims() else chosen(name)
        line_words = (words or {}).get(name) or claims_of_line[0].short or claims_of_line[0].words
        informative = [claim for claim in claims_of_line if claim.id not in weightless]
        lines.append(Line(line_words, informative or claims_of_line, stored))
    judged = [line for line in lines if line.about(group)]
    other_weights = leave_out_other_weights(judged, page_runs)

    html = TEMPLATES.get_template("box.html.j2").render(
        lines=lines,
        judged=judged,
        group=group,
        pages=pages,
        trainings=sorted(_trainings(line for line in judged if line.groups == [group])),
        others=bool(_trainings(line for line in judged if line.groups != [group])),
        named=groups.find,
        other_weights=other_weights,
        place=_place(page_runs),
        missing=not any(stored.values()),
        waiting={
            source: not_run(row for line in judged for row in line.rows[source])
            for source in SOURCES
        },
    )
    text = "\n".join(_plain(line, line in judged) for line in lines)
    return Html(html, text, rows_of(judged))


def rows_of(lines: Iterable[Line]) -> pd.DataFrame:
    """Return the stored rows behind some lines, as `carry results --csv` has them."""
    rows: dict[str, list[Row]] = {source: [] for source in SOURCES}
    for line in lines:
        for source, rows_of_source in line.rows.items():
            rows[source] += rows_of_source
    return export.table(rows)


def _trainings(lines: Iterable[Line]) -> set[str]:
    """Return the trainings of the runs behind lines, other than by the paper's protocol."""
    trainings: set[str] = set()
    for line in lines:
        for row in line.rows["ours"]:
            trainings.update(row.trainings)
    return trainings


def _plain(line: Line, judged: bool) -> str:
    """Return a line of the box as text."""
    parts = [line.words, line.paper]
    for source, side in line.sides.items():
        if judged and side:
            verdicts = ", ".join(words for _, words in side.verdicts)
            parts.append(f"{SOURCES[source]}: {side.value} {verdicts}")
    return " | ".join(parts)


def ledger(*ids: str, group: str | None = None, page_runs: Runs | None = None) -> Html:
    """Return rows of the ledger: paper, author's weights, ours, runs, verdicts, runs that differ.

    Args:
        ids: Ids, or beginnings of ids such as `tab1/`.
        group: The group that the page shows; rows about others name theirs.
        page_runs: As in `verdict_box`.

    Raises:
        BadInput: There is no such id.
    """
    rows = {source: results.by_id(source) for source in SOURCES}
    lines = []
    for name in ids:
        for claim in [claims()[name]] if name in claims() else chosen(name):
            lines.append(Line(claim.words, [claim], rows))
    leave_out_other_weights(lines, page_runs)
    template = TEMPLATES.get_template("rows.html.j2")
    html = template.render(
        lines=lines, sources=SOURCES, group=group, collapsed=len(lines) > LONG_TABLE
    )
    text = []
    for line in lines:
        values = [side.value for side in line.sides.values() if side]
        text.append(" | ".join([line.claims[0].id, line.paper, *values]))
    return Html(html, "\n".join(text), rows_of(lines))


def printed_cells(table: str) -> pd.DataFrame:
    """Return a table of the paper as a frame of `carry_class`, `position` and both accuracies.

    `table` is the beginning of its ids, such as `tab1/final_mlp`.
    """
    rows = [(*claim.id.split("/")[2:], claim.paper) for claim in chosen(f"{table}/")]
    cells = pd.DataFrame(rows, columns=["carry_class", "kind", "position", "paper"])
    cells["carry_class"] = [carries.paper_name(CLASSES[task]) for task in cells.carry_class]
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()

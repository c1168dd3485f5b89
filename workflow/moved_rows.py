"""Write the list of verdicts that the rules of 2026-11-26 moved into `book/protocol.md`.

It is taken from the results as they were committed before these rules, and by them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from carry_core.files import ROOT, replacing
from carry_paper.ledger import claims
from carry_paper.ledger.results import gathered

PAGE = ROOT / "book" / "protocol.md"
BLOCK = re.compile(r"(?<=<!-- moved rows -->\n).*?(?=<!-- /moved rows -->)", re.DOTALL)
BEFORE = "da84cf5"  # the last results before these rules
SINCE = "dcf450c"  # the first by them
SOURCES = {"author": "the author's", "ours": "ours"}
# The section of rows that are gone, by its name in `claims.yml`.
GONE = "complements"
# The section of that day, of rows whose rule was changed again since.
CHANGED_SINCE = {"pad6/accuracy_range": "ranges"}
CELL = re.compile(r"(.+)/([^/]+)/(accuracy|corrected)/pos(\d)")

Rows = dict[str, dict[str, Any]]


def results_at(commit: str, source: str) -> Rows:
    """Return a source's rows by id, as they were committed."""
    path = f"{commit}:data/results/{source}.json"
    text = subprocess.run(
        ["git", "show", path], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return {row["id"]: row for row in json.loads(text)["rows"]}


def listed() -> str:
    """Return a folded table for each rule: rows whose verdicts it moved, with both rules."""
    before = {source: results_at(BEFORE, source) for source in SOURCES}
    since = {source: results_at(SINCE, source) for source in SOURCES}
    names = list({**before["ours"], **since["ours"]})
    moves = {name: verdict_moves(name, before, since) for name in names}
    moved_names = [name for name in names if any(moves[name])]
    by_section = gathered(moved_names, lambda name: section_of(name, moves[name], since))
    lines = []
    for section, moved in by_section.items():
        title = titles()[section]
        n_rows = f"{len(moved)} row{'s' if len(moved) > 1 else ''}"
        lines += [
            f"::::{{admonition}} {title}: {n_rows}",
            ":class: dropdown wraps",
            "",
            f"By [this rule](#rule-{section}).",
            "",
        ]
        lines += [
            "| rows | the author's | ours | rule before | rule since |",
            "|---|---|---|---|---|",
        ]

        cells_of = partial(cells, moves=moves, before=before, since=since)
        for (theirs, ours, old, new), same in gathered(moved, cells_of).items():
            lines.append(f"| {in_braces(same)} | {theirs or '–'} | {ours or '–'} | {old} | {new} |")
        lines += ["::::", ""]
    return "\n".join(lines)


def cells(
    name: str,
    moves: Mapping[str, tuple[str, str]],
    before: Mapping[str, Rows],
    since: Mapping[str, Rows],
) -> tuple[str, str, str, str]:
    """Return a row's moves and its rules, before and since, which rows may share."""
    old, new = rule_of(name, before), rule_of(name, since)
    if is_cell(name):
        old, new = "by its own interval", "its whole table is compared first"
    elif old == new:
        old, new = "the same", "the same"
    return *moves[name], old, new


def verdict_moves(
    name: str, before: Mapping[str, Rows], since: Mapping[str, Rows]
) -> tuple[str, str]:
    """Return how a row's verdict moved for each source, such as `differs → mixed`; "" if not."""
    moves = []
    for source in SOURCES:
        old = before[source].get(name, {"verdict": "new"})["verdict"]
        new = since[source].get(name, {"verdict": "gone"})["verdict"]
        moves.append("" if old == new else f"{old} → {new}")
    theirs, ours = moves
    return theirs, ours


def section_of(name: str, moves: tuple[str, str], since: Mapping[str, Rows]) -> str:
    """Return the section of the page with the rule that moved a row.

    One that only ours no longer have, since it depends on the recipe, moved by that rule alone.
    """
    claim = claims.claims().get(name)
    if claim is None:
        return GONE
    is_not_run = since["ours"][name]["verdict"] == "not run"
    waits_for_the_recipe = is_not_run and claim.recipe_sensitive and not moves[0]
    return "recipe" if waits_for_the_recipe else CHANGED_SINCE.get(name, claim.made)


def titles() -> dict[str, str]:
    """Return the titles of the page's sections by name."""
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^\(rule-([\w-]+)\)=\n### [\d-]+: (.+)$", text, re.MULTILINE))


def rule_of(name: str, rows: Mapping[str, Rows]) -> str:
    """Return a row's rule and the reason for it, as one cell of a table."""
    row = rows["ours"].get(name)
    if row is None:
        return "no row"
    rule_name = row["rule"].partition(":")[0]
    return f"*{rule_name}*: {row['reason']}".replace("|", "\\|")


def is_cell(name: str) -> bool:
    """Return True for a cell of a table."""
    return bool(CELL.fullmatch(name))


def in_braces(names: list[str]) -> str:
    """Return ids as code, those of one table with their positions in braces."""
    parts: dict[str, list[str]] = {}
    for name in names:
        match = CELL.fullmatch(name)
        if match:
            table, carry_class, kind, position = match.groups()
            parts.setdefault(f"{table}/{carry_class}/{kind}/pos", []).append(position)
        else:
            parts[name] = []
    texts = []
    for name, positions in parts.items():
        ends = ",".join(positions)
        texts.append(f"`{name}{{{ends}}}`" if len(positions) > 1 else f"`{name}{ends}`")
    return ", ".join(texts)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if not BLOCK.search(page):
        sys.exit(f"{PAGE} has no place for the list: expected <!-- moved rows --> in it.")
    with replacing(PAGE) as part:
        part.write_text(BLOCK.sub(lambda _: listed(), page), encoding="utf-8")

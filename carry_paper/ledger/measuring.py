"""Measures quantities on runs: from weights to rows of the table of measurements."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.model import Transformer
from carry_paper.findings.base import CONTEXT, Fields
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need, Survey
from carry_paper.ledger import code_digest
from carry_paper.ledger.entries import (
    NO_NEED,
    VALUE,
    Entry,
    Function,
    name_of,
    takes,
)
from carry_paper.llm import recordings
from carry_paper.measurements import COLUMNS, REASON, WHOLE, is_reason, to_store
from carry_train import groups
from carry_train.files import sha256

Key = tuple[str, int | None]  # a group and a run; no run for what is measured on a whole group
OTHER_CODE = "stale: other code measured it"
FROM_CURVES = "dynamics.", "lengths.length", "lengths.best_on_longer_sums"


class Quantity:
    """A quantity, and all that some rows of the ledger read of it."""

    def __init__(self, function: Function, epoch: int | None = None) -> None:
        self.function = function
        self.epoch = epoch
        self.places: dict[str, None] = {}  # groups, or a language model
        self.need: Need | None = None  # of its surveys, if it takes any


def quantities(entries: Iterable[Entry]) -> list[Quantity]:
    """Return the quantities that rows read, each once."""
    by_name: dict[tuple[Any, ...], Quantity] = {}
    for entry in entries:
        if entry.function is None:
            continue
        places = [*entry.places, *([entry.beside.group] if entry.beside else [])]
        asked: list[Any] = [(entry.function, entry.epoch, places, entry.need)]
        if entry.among is not None:
            asked.append((entry.among.function, None, entry.groups, None))
        for function, epoch, on_places, need in asked:
            quantity = by_name.setdefault((function, epoch), Quantity(function, epoch))
            quantity.places.update(dict.fromkeys(on_places))
            if takes(function) is Survey:
                quantity.need = (quantity.need or NO_NEED) | (need or NO_NEED)
    return list(by_name.values())


class Measuring:
    """Measures quantities on a source's runs; what they share is measured once."""

    def __init__(self, evidence: Evidence, asked: Iterable[Quantity]) -> None:
        """Set the `needs` of the evidence to what is asked; nothing is loaded yet."""
        self.evidence = evidence
        self.source = evidence.source
        self.asked = list(asked)
        for quantity in self.asked:
            for place in quantity.places if quantity.need is not None else ():
                need = evidence.needs.get(place, NO_NEED)
                evidence.needs[place] = need | (quantity.need or NO_NEED)
        self.failed: list[str] = []  # quantities with an unforeseen error
        self._loaded: dict[str, runs.Runs | None] = {}
        self._digests: dict[tuple[str, int, bool], str] = {}

    def rows(self) -> pd.DataFrame:
        """Return a row for each run and quantity.

        A quantity that cannot be measured has a row with the reason, and does not affect others.
        """
        rows: list[dict[str, Any]] = []
        for quantity in self.asked:
            rows += self.of_quantity(quantity)
        return as_table(rows)

    def missing(self, table: pd.DataFrame) -> dict[Quantity, str]:
        """Return the quantities that have to be measured, and why.

        Of a run, a table has no row, or one of other weights, or one that other code measured.
        """
        stored: dict[Any, Any] = {}
        for row in table[~table.fields.map(is_reason)].to_dict("records"):
            run, epoch, n_sums = (_whole(row[name]) for name in ("run", "epoch", "sums"))
            of_run = (row["group"], row["recipe"], run, n_sums)
            of_quantity = stored.setdefault((row["quantity"], epoch), {})
            of_quantity[of_run] = (row["sha256"], row["code"])
        lacking = {}
        for quantity in self.asked:
            whys = {place: self._why(quantity, place, stored) for place in quantity.places or [""]}
            lacking_places = {place: why for place, why in whys.items() if why}
            if len(together(quantity)) > 1:
                quantity.places = dict.fromkeys(lacking_places)
            if lacking_places:
                lacking[quantity] = ", ".join(dict.fromkeys(lacking_places.values()))
        return lacking

    def _why(self, quantity: Quantity, place: str, stored: Mapping[Any, Any]) -> str:
        """Return why a quantity has to be measured on some run of a group; "" if it has not.

        What it is measured on is no group if the place is "", as a language model.
        """
        of_quantity = stored.get((name_of(quantity.function), quantity.epoch), {})
        rows = {key: row for key, row in of_quantity.items() if not place or key[0] == place}
        if not rows:
            return "not measured"
        loaded = self._runs(place) if place in groups.GROUPS else None
        asked = [*rows]
        if loaded is not None and any(run is not None for _, _, run, _ in rows):
            asked = []
            for run in loaded.numbers:
                about = self._about(quantity, place, run)
                key = (place, about["recipe"], run, about.get("sums"))
                if key not in rows:
                    return "not measured"
                if rows[key][0] != about.get("sha256"):
                    return "of other weights"
                asked.append(key)
        codes = {rows[key][1] for key in asked}
        return OTHER_CODE if codes - {code_digest.digest(quantity.function)} else ""

    def of_quantity(self, quantity: Quantity) -> list[dict[str, Any]]:
        """Return the rows of a quantity."""
        rows: list[dict[str, Any]] = []
        for places in together(quantity):
            try:
                fields_by_key = self.fields(quantity, places)
            except BadInput as error:
                # It is stored, and read on other machines.
                reason = str(error).replace(f"{data_dir()}/", "data/")
                rows.append(self._row(quantity, (places[0], None), {REASON: reason}))
            except Exception as error:
                self.failed.append(name_of(quantity.function))
                reason = f"It failed unexpectedly: {' '.join(repr(error).split())}."
                rows.append(self._row(quantity, (places[0], None), {REASON: reason}))
            else:
                rows += [self._row(quantity, key, x) for key, x in fields_by_key.items()]
        return rows

    def fields(self, quantity: Quantity, places: list[str]) -> dict[Key, Fields]:
        """Return what is measured on each run, by group and number.

        Raises:
            BadInput: It cannot be measured.
        """
        function, place = quantity.function, places[0]
        kind = takes(function)
        if kind is Transformer:
            if quantity.epoch is not None:
                self.evidence.by_the_papers_epochs(place)
            by_run = self.evidence.each(place, lambda run, model: function(model), quantity.epoch)
            return {(place, run): fields for run, fields in by_run.items()}
        if kind is Survey:
            surveys = self.evidence.surveys(place)
            return {(place, run): function(survey) for run, survey in surveys.items()}
        if kind is Evidence:
            arguments = (place,) if of_a_group(function) else ()
            frame = function(self.evidence, *arguments)
            records = frame.to_dict("records")
            return {key_of(i, place): x for i, x in zip(frame.index, records, strict=True)}
        is_recorded = self.source == "author"
        run = recordings.recording(place) if is_recorded else recordings.stored_survey(place)
        return {(place, None): function(run, recordings.MODELS[place])}

    def _row(self, quantity: Quantity, key: Key, fields: Fields) -> dict[str, Any]:
        """Return a row of the table, with values as they are stored."""
        group, run = key
        others = {}
        for name, value in fields.items():
            if name not in (VALUE, "variance", *CONTEXT):
                others[name] = value
        row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
            "source": self.source,
            "group": group or None,
            "epoch": quantity.epoch,
            "quantity": name_of(quantity.function),
            "code": code_digest.digest(quantity.function),
            "value": to_store(fields.get(VALUE)),
            "variance": to_store(fields.get("variance")),
            "fields": to_store(others),
            "ships": 0,
        }
        if group in groups.GROUPS and fields.keys() != {REASON}:
            row |= self._about(quantity, group, run)
        return row

    def _about(self, quantity: Quantity, group: str, run: int | None) -> dict[str, Any]:
        """Return what a row says of its run."""
        about: dict[str, Any] = {"run": run, "recipe": "paper"}
        name = name_of(quantity.function)
        if quantity.need is not None and run is not None:
            about["sums"] = self.evidence.n_sums(group)
        loaded = self._runs(group)
        if loaded is None:  # of the author's, only learning curves were released
            return about | {"epochs": groups.find(group).epochs}
        about["epochs"] = loaded.record["epochs"]
        if self.source == "ours":
            about["recipe"] = loaded.record["recipe"]
        if run is None or run not in loaded.numbers:
            return about
        path = loaded.stored[run].path
        about["sha256"] = self._digest(loaded, run, of_curves=name.startswith(FROM_CURVES))
        if self.source == "ours" and path.is_relative_to(runs.folder("ours")):
            about["ships"] = 1
        return about

    def _runs(self, group: str) -> runs.Runs | None:
        """Return a group's runs, or None if there are no weights."""
        if group not in self._loaded:
            has = self.evidence.has(group)
            self._loaded[group] = self.evidence.group(group) if has else None
        return self._loaded[group]

    def _digest(self, loaded: runs.Runs, run: int, *, of_curves: bool) -> str:
        """Return the sha256 of a run's weights, or of the file with its learning curves."""
        key = (loaded.group, run, of_curves)
        if key not in self._digests:
            curves = loaded.stored[run].path.with_suffix(".npz")
            is_file = of_curves and curves.exists()
            self._digests[key] = sha256(curves) if is_file else runs.digest(loaded.weights[run])
        return self._digests[key]


def as_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table of measurements."""
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.astype(dict.fromkeys(WHOLE, "Int64") | {"value": object})


def _whole(number: Any) -> int | None:
    """Return a whole number of a table; None if it is missing."""
    return None if pd.isna(number) else int(number)


def together(quantity: Quantity) -> list[list[str]]:
    """Return the places of a quantity, those together that are measured in one call."""
    places = [*quantity.places]
    if takes(quantity.function) is Evidence and not of_a_group(quantity.function):
        return [places or [""]]
    return [[place] for place in places]


def of_a_group(function: Function) -> bool:
    """Return True if a function of a source's evidence also takes the name of a group."""
    return "group" in function.__annotations__


def key_of(index: Any, place: str) -> Key:
    """Return the group and the run that an index of a quantity's frame names."""
    if isinstance(index, tuple):
        return index[0], int(index[1])
    return (index, None) if isinstance(index, str) else (place, int(index))

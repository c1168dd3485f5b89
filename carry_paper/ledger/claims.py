"""The numbers that the paper prints and the findings that it states, from `data/claims.yml`."""

import re
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import (
    AllowInfNan,
    ConfigDict,
    Field,
    RootModel,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from carry_core import carries
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir
from carry_core.runs import SOURCES
from carry_paper.schemas import one_of, read_yaml

SHIPPED = Path(__file__).parent.parent / "resources" / "claims.yml"
BEYOND = "Beyond the paper"  # the section of rows that put the paper's claims in other terms
# Carry patterns by their names in ids: `C_all_con` for `C all con.`.
CLASSES = {carries.paper_name(p).replace(".", "").replace(" ", "_"): p for p in carries.patterns(3)}
KINDS = {"accuracy": "accuracy", "corrected": "corrected accuracy"}
# The end of the id of a table's cell.
CELL = re.compile(rf"/({'|'.join(map(re.escape, CLASSES))})/({'|'.join(KINDS)})/pos[0-9]+$")
FLOATS = {"fig": "Figure", "tab": "Table"}
# Why a row that is not reproduced is not.
CAUSES = {
    "seeds": "an experiment shows in what runs differ, by their seeds alone",
    "differs between runs": "runs differ from each other; the cause is not known",
    "recipe": "our runs were not trained by the paper's protocol",
    "text and code": "the paper's text and the released code, or two of its statements, disagree",
    "unknown": "not known; the sentence names the experiments that excluded the other causes",
}
# Of our runs, those of a number of one run (`single`) are shown and not judged.
RULES = {
    "exact": "nothing but rounding lies between, whatever the weights",
    "fixed": (
        "author: rounding alone, since nothing is drawn; ours: equivalence to the author's runs"
    ),
    "drawn": (
        "author: rounding and three standard errors of the shares counted on 20,000 sums; "
        "ours: equivalence"
    ),
    "selected": (
        "author: rounding and three times the scatter of ten draws of neurons; ours: equivalence"
    ),
    "unnamed": (
        "one run that the paper does not name, and that may not be released; author: equivalence, "
        "by the prediction interval"
    ),
    "spread": "ours: equivalence of a standard deviation, by the chi-squared intervals of both",
    "shown": "not judged, on the author's runs and on ours: the text does not fix what it is of",
    "count": "a count of runs; author: nothing lies between; ours: Fisher's exact test",
}
_SOME = (
    "reproduced if a run shows it; if none does, differs on the author's six, of which the paper "
    "speaks, and can't tell on ours"
)
QUANTIFIERS = {
    "all": (
        "reproduced if every run shows it, mostly if two thirds do, "
        "differs if at most a third does, else mixed"
    ),
    "most": (
        "reproduced if two thirds of the runs show it, differs if at most a third does, else mixed"
    ),
    "some": _SOME,
    "one": _SOME,
    "open": (
        "no verdict: it is a part of a sentence about groups, which `finding/range` judges as a "
        "whole; the runs of each group that show it are counted"
    ),
    "range": (
        "of the settings that the paper tried: reproduced if it holds in all, mostly if in two "
        "thirds, differs if that is out of reach even if those that can't tell held, else can't "
        "tell"
    ),
    "none": (
        "reproduced if no run shows it, mostly if at most a third does, "
        "differs if two thirds do, else mixed"
    ),
}
REMEDY = "correct it"

Text = Annotated[StrictStr, Field(min_length=1)]
Number = StrictInt | Annotated[StrictFloat, AllowInfNan(False)]  # no text, no truth value
Positive = Annotated[Number, Field(gt=0)]
Numbers = Number | list[Number] | list[list[Number]] | list[list[list[Number]]]


@dataclass(frozen=True)
class Why:
    """The reason why a row is not reproduced: one of the `CAUSES`, and a sentence."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    cause: Annotated[StrictStr, one_of(CAUSES)]
    text: Text  # with numbers in braces (`ledger.why`)
    experiment: str = ""  # of `findings.causes`, for `seeds`


@dataclass(frozen=True)
class Claim:
    """One published number, or one finding; the top of `data/claims.yml` explains each field.

    A number has one of the `RULES`. A finding has one of the `QUANTIFIERS`, and no `paper`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Text
    where: Text
    paper: Numbers | None
    notebook: Text
    heading: Text
    reason: Text
    rule: Annotated[str, one_of(RULES)] = ""
    quantifier: Annotated[str, one_of(QUANTIFIERS)] = ""
    note: str = ""
    unit: Positive = 0.01
    range: Positive = 1.0
    single: StrictBool = False
    title: str = ""
    short: str = ""
    claim: str = ""
    measure: str = ""
    hardly_fails: str = ""
    recipe_sensitive: StrictBool = False
    since: date = field(kw_only=True)
    made: str = ""
    why: dict[Annotated[StrictStr, one_of(SOURCES)], Why] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_number = self.paper is not None
        if (bool(self.rule), bool(self.quantifier)) != (is_number, not is_number):
            raise ValueError("a number needs a rule, a finding a quantifier, and neither has both")

    @property
    def finding(self) -> bool:
        """Return True if the paper states the claim in words.

        Rows beyond the paper, which put its claims in other terms, do not count.
        """
        return self.paper is None and not self.beyond

    @property
    def beyond(self) -> bool:
        """Return True for a statement of the book, of which the paper says nothing."""
        return self.heading.startswith(BEYOND)

    @property
    def table(self) -> str:
        """Return the beginning of the ids of the table of which it is a cell; "" if it is none."""
        return CELL.sub("", self.id) if CELL.search(self.id) else ""

    @property
    def section(self) -> str:
        """Return the claim's section of the ledger, such as `Table 1`."""
        return self.heading.partition(", ")[0]

    @property
    def part(self) -> str:
        """Return what the rows of its part have in common, such as `without the final MLP`."""
        return self.heading.partition(", ")[2]

    @property
    def words(self) -> str:
        """Return the words for the quantity of a number, or for the statement of a finding."""
        if self.title:
            text = self.title
        elif self.paper is None:
            text = self.claim
        else:
            class_name, kind, position = self.id.split("/")[2:]
            carry_class = carries.paper_name(CLASSES[class_name])
            digit = position.removeprefix("pos")
            text = f"{self.part}: {carry_class}, {KINDS[kind]} at position {digit}"
        return text[:1].upper() + text[1:]

    @property
    def page(self) -> str:
        """Return the name of the page that shows the claim, such as `Table 1`."""
        match = re.match(r"(fig|tab)0?(\d+)_", self.notebook)
        if match is None:
            return self.notebook.capitalize().replace("_", " ")
        kind, number = match.groups()
        return f"{FLOATS[kind]} {number}"


class Claims(RootModel[list[Claim]]):
    """The schema of `claims.yml`."""


def claims() -> dict[str, Claim]:
    """Return all claims of `data/claims.yml` by id.

    Raises:
        BadInput: A claim has unknown or missing fields, or two claims have the same id.
    """
    path = data_dir() / "claims.yml"
    if not path.exists():
        path = SHIPPED  # installed without the repository's data
    return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=2)
def _read(path: Path, _modified: int) -> dict[str, Claim]:
    rows = read_yaml(path, Claims, REMEDY).root
    by_id: dict[str, Claim] = {}
    for claim in rows:
        if claim.id in by_id:
            raise damaged(path, f"the id {claim.id} stands twice", REMEDY)
        by_id[claim.id] = claim
    return by_id


def of_line(name: str) -> list[Claim]:
    """Return the claim with an id, or those of a table's cells by the beginning of their ids."""
    return [claims()[name]] if name in claims() else chosen(name)


def chosen(only: str = "") -> list[Claim]:
    """Return the claims whose id starts with `only`; raise `BadInput` if there are none."""
    rows = [claim for claim in claims().values() if claim.id.startswith(only)]
    if not rows:
        beginnings = dict.fromkeys(name.split("/")[0] for name in claims())
        raise BadInput(
            f"No id of the ledger starts with {only!r}; "
            f"expected one that starts with {', '.join(beginnings)}."
        )
    return rows
